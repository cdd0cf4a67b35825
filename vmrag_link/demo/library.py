"""The public modules of this Python's standard library, found without an import of them."""

from __future__ import annotations

import importlib
import importlib.machinery
import pkgutil
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from importlib.abc import InspectLoader
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

from vmrag_link.models import Record

LEFT_OUT = frozenset(
    "antigravity distutils ensurepip idlelib lib2to3 pydoc_data test this turtledemo"  # jokes, tools, data and tests
    " encodings"  # a hundred tables of characters
    " ctypes.test sqlite3.test tkinter.test unittest.test".split()
)

IMPORTABLE = frozenset(
    "array atexit binascii builtins cmath errno faulthandler fcntl gc grp itertools marshal math mmap posix pwd"
    " pyexpat resource select sys syslog termios time unicodedata zlib".split()
)
"""C modules whose import only defines names. Their documentation is nowhere else."""


class Module(Record, frozen=True):
    """A module of the library.

    A module in C has no `source`. It is read by an import.
    """

    name: str
    source: str | None
    package: bool = False


def list_modules() -> Iterator[Module]:
    """Yield modules by name, each package before its submodules.

    Modules without source and without a safe import are left out.
    """
    for name in sorted(sys.stdlib_module_names):
        if not _is_private(name):
            yield from _with_submodules(name, _list_paths())


def find_module(name: str) -> Module | None:
    """Return a module with source by its full name, also a private one."""
    paths: Sequence[str] = _list_paths()
    parts = name.split(".")
    for depth in range(1, len(parts)):
        spec = PathFinder.find_spec(".".join(parts[:depth]), paths)
        if spec is None or spec.submodule_search_locations is None:
            return None
        paths = spec.submodule_search_locations
    spec = PathFinder.find_spec(name, paths)
    return _find_module(name, spec) if spec and name.partition(".")[0] in sys.stdlib_module_names else None


def import_module(name: str) -> ModuleType:
    """Import a module of `IMPORTABLE`."""
    return importlib.import_module(name)


def _with_submodules(name: str, paths: Sequence[str]) -> Iterator[Module]:
    spec = PathFinder.find_spec(name, paths)
    module = _find_module(name, spec)
    if module:
        yield module
    if spec is None or spec.submodule_search_locations is None:
        return
    below = spec.submodule_search_locations
    for child in sorted(info.name for info in pkgutil.iter_modules(below)):
        if not _is_private(child) and f"{name}.{child}" not in LEFT_OUT:
            yield from _with_submodules(f"{name}.{child}", below)


def _find_module(name: str, spec: ModuleSpec | None) -> Module | None:
    if spec is not None and isinstance(spec.loader, InspectLoader):
        source = spec.loader.get_source(name)
        if source is not None:
            return Module(name, source, package=spec.submodule_search_locations is not None)
    exists = spec is not None or name in sys.builtin_module_names
    return Module(name, None) if exists and name in IMPORTABLE else None


def _is_private(name: str) -> bool:
    return name.startswith("_") or name in LEFT_OUT


def _list_paths() -> list[str]:
    """Return the folders of the library, without site-packages and the working directory."""
    folders = [Path(sysconfig.get_path("stdlib")), Path(sysconfig.get_path("platstdlib"))]
    return [str(path) for folder in dict.fromkeys(folders) for path in (folder, folder / "lib-dynload")]
