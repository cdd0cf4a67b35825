"""Every check of this repository: `python tests/check.py`. Fails if any of them fails; whatever follows goes to pytest.

The quick ones run side by side and their output is kept together; then the tests, on all cores.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parents[1]
TOOLS = Path(sys.executable).parent  # of this environment, whichever another shell has activated

QUICK = {
    "format": ["ruff", "format", "--check", "."],
    "lint": ["ruff", "check", "."],
    "types": ["mypy"],
    "imports": ["lint-imports"],
}
TESTS = ["pytest", "-n", "auto", "--dist", "loadgroup"]


def started(name: str, arguments: list[str]) -> tuple[str, bool]:
    begun = time.monotonic()
    done = subprocess.run(
        [TOOLS / arguments[0], *arguments[1:]], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    took = f"{time.monotonic() - begun:.1f} s"
    print(f"── {name} ({took}): {' '.join(arguments)}\n{done.stdout.strip()}\n", flush=True)
    return name, done.returncode == 0


def main() -> int:
    os.chdir(ROOT)
    os.environ["PATH"] = f"{TOOLS}{os.pathsep}{os.environ.get('PATH', '')}"
    begun = time.monotonic()
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        passed = dict(pool.map(started, QUICK, QUICK.values()))
    tests = [*TESTS, *sys.argv[1:]]
    print(f"── tests: {' '.join(tests)}", flush=True)
    passed["tests"] = subprocess.run([TOOLS / tests[0], *tests[1:]], check=False).returncode == 0
    summary = ", ".join(f"{name} {'ok' if ok else 'FAILED'}" for name, ok in passed.items())
    print(f"\n{summary} ({time.monotonic() - begun:.0f} s)")
    return 0 if all(passed.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
