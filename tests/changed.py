"""List the test files that a change can break, according to imports: `tests/check.py --changed
[BASE]`.

Imports by name at run time are invisible to this module, so `AT_RUN_TIME` lists them. A test that
starts a process depends on the modules of that process: its helpers in `tests/support` import the
same modules.
"""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import grimp

ROOT = Path(__file__).parents[1]
PACKAGES = {
    "vmrag_link": ROOT / "vmrag_link",
    "vmrag_hooks": ROOT / "hooks" / "vmrag_hooks",
    "vmrag_mcp": ROOT / "mcp_server" / "vmrag_mcp",
    "vmrag_action": ROOT / "action" / "vmrag_action",
}
AT_RUN_TIME = {
    "vmrag_link.cli.commands": ("vmrag_link.cli.",),
    "vmrag_mcp.registry": ("vmrag_mcp.tools.",),
    "vmrag_link.proc": ("vmrag_link.conversion.child.", "vmrag_link.code.child", "vmrag_hooks."),
    "vmrag_mcp.reference": ("vmrag_link.toolsets.",),
    "tests.contract.reading": ("vmrag_link.toolsets.", "vmrag_mcp."),
    "tests.support.actions_runner": ("vmrag_action.",),
}
"""Module → the modules that it imports, or starts, by names that begin so."""

ALWAYS = "tests/unit/test_project_rules.py"
"""It reads every file."""

EVERYTHING = ("pyproject.toml", "constraints", "tests/conftest.py", "tests/check.py", ".ci/")
"""Files after whose change every test runs."""


def tests_of(changed: Iterable[str]) -> list[str] | None:
    """The test files for changed files, as paths below the root; None: all tests."""
    files = list(changed)
    if any(file.startswith(EVERYTHING) for file in files):
        return None
    modules = {module for file in files for module in _modules(ROOT / file)}
    texts = [file for file in files if not file.endswith(".py")]
    paths = [path for path in sorted(ROOT.glob("tests/**/test_*.py")) if _stands_on(path, modules, texts)]
    return sorted({ALWAYS, *(path.relative_to(ROOT).as_posix() for path in paths)})


def changed_since(base: str) -> list[str]:
    """Files that differ from a commit, and those that git does not track."""
    commands = (["diff", "--name-only", "-z", base], ["ls-files", "-z", "--others", "--exclude-standard"])
    result = [
        subprocess.run(["git", *command], cwd=ROOT, capture_output=True, text=True, check=True) for command in commands
    ]
    return [name for completed in result for name in completed.stdout.split("\0") if name]


def _stands_on(path: Path, modules: set[str], texts: list[str]) -> bool:
    needed = _needed(path)
    if _module(path) in modules or modules & needed:
        return True
    source = path.read_text()
    folder = path.parent.relative_to(ROOT).as_posix()
    # A page, a table of tools, data: by name, or because they lie beside the test.
    return any(Path(text).name in source or text.startswith(f"{folder}/") for text in texts)


@cache
def _needed(path: Path) -> frozenset[str]:
    """Return the modules on which a test file and its imported helpers depend.

    The tests of a toolset drive it through the server and the command line, so they depend on all
    of it.
    """
    direct = _imported(path)
    result = set(direct)
    parts = path.relative_to(ROOT / "tests").parts
    if parts[0] == "toolsets":
        result |= {module for module in _graph().modules if module.startswith(f"vmrag_link.toolsets.{parts[1]}.")}
    for item in direct:
        result |= _below(item)
    return frozenset(result)


@cache
def _below(module: str) -> frozenset[str]:
    if module.startswith("tests."):
        path = ROOT.joinpath(*module.split(".")).with_suffix(".py")
        return _needed(path) | _named(module) if path.exists() else frozenset()
    graph = _graph()
    return frozenset(graph.find_upstream_modules(module)) if module in graph.modules else frozenset()


def _named(module: str) -> frozenset[str]:
    beginnings = AT_RUN_TIME.get(module, ())
    direct = {module for module in _graph().modules if module.startswith(beginnings)} if beginnings else set()
    return frozenset(direct.union(*(_below(module) for module in direct)))


@cache
def _graph() -> grimp.ImportGraph:
    graph = grimp.build_graph(*PACKAGES, cache_dir=None)
    # A program that uses the API imports it. All other modules have the package as parent only.
    graph.remove_import(importer="vmrag_link", imported="vmrag_link.api")
    for importer, beginnings in AT_RUN_TIME.items():
        if importer in graph.modules:
            for module in graph.modules:
                if module.startswith(beginnings) and module != importer:
                    graph.add_import(importer=importer, imported=module)
    return graph


@cache
def _imported(path: Path) -> frozenset[str]:
    result: set[str] = set()
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            result |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            result |= {node.module, *(f"{node.module}.{name.name}" for name in node.names)}
    return frozenset(text for text in result if text.startswith((*PACKAGES, "tests")))


def _modules(path: Path) -> set[str]:
    """Return the module of a file, or the modules next to a file that is not a module."""
    if path.suffix == ".py":
        return {_module(path)}
    return {_module(module_path) for module_path in path.parent.glob("*.py")}


def _module(path: Path) -> str:
    """The dotted name of a file; of a test's, below `tests`."""
    for name, folder in PACKAGES.items():
        if path.is_relative_to(folder):
            return ".".join((name, *path.relative_to(folder).with_suffix("").parts)).removesuffix(".__init__")
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
