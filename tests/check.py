"""Every check of this repository: `python tests/check.py`. Fails if any of them fails.

The quick ones run side by side and their output is kept together; then the tests, on all cores.
`--long` adds the tests that are marked `long`; `--dolt` runs the tests of what people do with
knowledge bases on Dolt, and no others; `--changed` those that a change since HEAD can break, or
since `--changed=COMMIT`; all other arguments go to pytest.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parents[1]
TOOLS = Path(sys.executable).parent  # of this environment, whichever another shell has activated

WORKFLOWS = sorted(str(path.relative_to(ROOT)) for path in (ROOT / ".github" / "workflows").glob("*.yml"))

QUICK = {
    "format": ["ruff", "format", "--check", "."],
    "lint": ["ruff", "check", "."],
    "types": ["mypy"],
    "imports": ["lint-imports"],
    "workflows": ["check-jsonschema", "--builtin-schema", "vendor.github-workflows", *WORKFLOWS],
    "actions": ["check-jsonschema", "--builtin-schema", "vendor.github-actions", "action.yml", "action/action.yml"],
    "safety of both": ["zizmor", "--offline", "--no-progress", "--quiet", "--persona=pedantic", "."],
    "size and names": ["python", "tests/size.py"],
    "English": ["python", "tests/english.py"],
}
FIRST = {"bytecode": ["pytest", "--collect-only", "-qqq"]}
"""In a clean checkout: otherwise each worker compiles what all of them import."""
TESTS = ["pytest", "-n", str((os.cpu_count() or 1) + 2), "--dist", "worksteal"]
"""Two workers more than cores: now and then each waits for a program that it has started, or for a
disk. Each begins with a part of its own, so that most modules make fixtures in one worker only.
"""
LONG = ["-m", "", "--timeout", "900"]
"""Replaces the selection in pyproject.toml, which leaves the long tests out, and its seconds."""
LARGE = {
    "VMRAG_CITATION_HISTORIES": "200",
    "VMRAG_CORRUPTION_FLIPS": "12",
    "VMRAG_DAMAGED_FILES": "1000",
    "VMRAG_AGENT_HISTORIES": "100",
    "VMRAG_LINE_HISTORIES": "200",
    "VMRAG_MERGE_HISTORIES": "40",
    "VMRAG_MERGE_KILLS": "50",
    "VMRAG_OBEYED_FAULTS": "1000",
    "VMRAG_TEST_LONG": "1",
    "VMRAG_MIGRATE_KILLS": "20",
    "VMRAG_TRAVEL_KILLS": "30",
}
"""Number of repetitions of a random test in a long run, unless the environment sets another one."""

ON_DOLT = [
    *(
        f"tests/integration/test_{name}.py"
        for name in (
            "loop switch workspaces uncommitted commit_journal commit_git edit documents_ops query_ops history_ops links link_sharing pull_push arrival "
            "merge_ops merge_driver merge_kills resolve resolve_texts threeway replay kills concurrency leases"
        ).split()
    ),
    "tests/e2e/test_two_users.py",
    "tests/model",
]
"""Tests that start their knowledge bases on the engine that VMRAG_TEST_ENGINE names. Those that are
about an engine itself, such as the contract's, run on every one anyway.
"""

MEMORY = Path("/dev/shm")  # a disk in memory, where Linux has one
ROOM = 6 * 2**30
"""Bytes that must be free in it; a run needs less than half of that."""


def run_tool(name: str, arguments: Sequence[str]) -> tuple[str, bool]:
    begun = time.monotonic()
    result = subprocess.run(
        [TOOLS / arguments[0], *arguments[1:]], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    took = f"{time.monotonic() - begun:.1f} s"
    print(f"── {name} ({took}): {' '.join(arguments)}\n{result.stdout.strip()}\n", flush=True)
    return name, result.returncode == 0


def run_tests(arguments: Sequence[str]) -> bool:
    """The tests' folders lie in memory where there is room: git and the engine sync every file they
    write.
    """
    tests = [*TESTS, *arguments]
    print(f"── tests: {' '.join(tests)}", flush=True)
    given = any(argument.startswith("--basetemp") for argument in arguments)
    folder = None if given or not has_room(MEMORY) else tempfile.mkdtemp(prefix="vmrag-tests-", dir=MEMORY)
    if folder:
        tests.append(f"--basetemp={folder}/run")
    try:
        return subprocess.run([TOOLS / tests[0], *tests[1:]], check=False).returncode == 0
    finally:
        if folder:
            shutil.rmtree(folder, ignore_errors=True)


def selected(base: str) -> list[str]:
    """The test files that a change since a commit can break; empty where that is all of them."""
    sys.path.insert(0, str(ROOT))
    from tests import changed  # it reads all imports, which takes seconds

    files = changed.changed_since(base)
    tests = changed.tests_of(files)
    every = len(list(ROOT.glob("tests/**/test_*.py")))
    print(f"{len(files)} files changed; test files: {every if tests is None else len(tests)} of {every}", flush=True)
    return tests or []


def has_room(folder: Path) -> bool:
    return folder.is_dir() and os.access(folder, os.W_OK) and shutil.disk_usage(folder).free >= ROOM


def main() -> int:
    os.chdir(ROOT)
    os.environ["PATH"] = f"{TOOLS}{os.pathsep}{os.environ.get('PATH', '')}"
    # The tests start thousands of processes; each would compile all that it imports.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    arguments = sys.argv[1:]
    if "--long" in arguments:
        arguments.remove("--long")
        arguments += LONG
        os.environ |= LARGE | os.environ
    if "--dolt" in arguments:
        arguments[arguments.index("--dolt") : arguments.index("--dolt") + 1] = ON_DOLT
        os.environ |= {"VMRAG_TEST_ENGINE": "dolt", "VMRAG_REQUIRE_DOLT": "1"}
    if of_change := next((argument for argument in arguments if argument.partition("=")[0] == "--changed"), None):
        arguments.remove(of_change)
        arguments += selected(of_change.partition("=")[2] or "HEAD")
    begun = time.monotonic()
    quick = QUICK if (ROOT / "tests" / "unit" / "__pycache__").exists() else FIRST | QUICK
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        passed = dict(pool.map(run_tool, quick, quick.values()))
    passed["tests"] = run_tests(arguments)
    summary = ", ".join(f"{name} {'ok' if ok else 'FAILED'}" for name, ok in passed.items())
    print(f"\n{summary} ({time.monotonic() - begun:.0f} s)")
    return 0 if all(passed.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
