"""The documents of the demo: Markdown pages of Python's standard library, one per module.

They are made of the docstrings in its source, which is not run.
"""

from __future__ import annotations

import ast
import sys
import sysconfig
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path

_MAX_PAGE_CHARACTERS = 20_000

EXCLUDED = frozenset(
    "antigravity distutils encodings ensurepip idlelib lib2to3 pydoc_data site-packages test this turtledemo".split()
)
"""Folders and modules without documentation for a user: jokes, tables, tools, data and tests."""

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def list_sources(first: Iterable[str] = ()) -> list[Path]:
    """List the files of public modules by name, with the modules `first` at the beginning."""
    folder = Path(sysconfig.get_path("stdlib"))
    paths = [
        path
        for path in folder.rglob("*.py")
        if path.relative_to(folder).parts[0].removesuffix(".py") in sys.stdlib_module_names
        and not any(_is_private(part.removesuffix(".py")) for part in path.relative_to(folder).parts)
    ]
    names = {*first}
    return sorted(paths, key=lambda path: (name_module(path) not in names, name_module(path)))


def _is_private(name: str) -> bool:
    return name in EXCLUDED or (name.startswith("_") and name != "__init__")


def name_module(path: Path) -> str:
    parts = path.relative_to(sysconfig.get_path("stdlib")).with_suffix("").parts
    return ".".join(parts).removesuffix(".__init__")


def format_page(name: str, source: str) -> str:
    """Return the documentation of a module as Markdown; empty if it has none."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about the library's own source
        tree = ast.parse(source)
    sections = [ast.get_docstring(tree) or "", *_list_sections(tree.body, f"{name}.")]
    page = "\n\n".join(section for section in sections if section)
    return f"# {name}\n\n{page[:_MAX_PAGE_CHARACTERS]}\n" if page else ""


def _list_sections(body: list[ast.stmt], owner: str) -> Iterator[str]:
    """Yield a section for each public, documented class, function and method."""
    for node in body:
        if isinstance(node, Definition) and not node.name.startswith("_"):
            arguments = "" if isinstance(node, ast.ClassDef) else f"({ast.unparse(node.args)})"
            doc = ast.get_docstring(node)
            if doc:
                yield f"## `{owner}{node.name}{arguments}`\n\n{doc}"
            if isinstance(node, ast.ClassDef):
                yield from _list_sections(node.body, f"{owner}{node.name}.")
