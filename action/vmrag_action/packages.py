"""The packages that a mode needs, with exact versions and hashes.

The module uses only the standard library, because nothing is installed yet. The exact versions are
next to the Action. `pyproject.toml` has the requirements of each extra, and `constraints.txt` the
packages that require another one (`# via`). A mode needs everything that its extras lead to. Of
actions-toolkit, the steps import only the module core, which has no requirements, so its list is
written without PyGithub, requests and their requirements.
"""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
LOCKS = (ROOT / "constraints.txt", ROOT / "action" / "requirements.txt")

_INDEX = ("code", "index", "web")
"""Extras for an index. `web` contacts embedding services and Chroma servers, if settings name
one.
"""

EXTRAS: Mapping[str, tuple[str, ...]] = {
    "repair": ("web",),  # opens pull requests
    "update": ("web",),  # lists them
    "sync": _INDEX,
    "verify": (),
    "check": _INDEX,
    "link": (),
    "report": (*_INDEX, "report"),
}
"""The extras that each mode imports."""

_ACTION = "action"
_NOT_OFFERED = {_ACTION, "dev", "langchain", "llama-index"}
"""Extras for the Action, for development, and for programs, which install them on their own."""

_VIA = re.compile(r"^ +#(?: via|  ) +([A-Za-z0-9._-]+)", re.MULTILINE)


class LockedPackage(NamedTuple):
    entries: tuple[str, ...]
    """An exact version with its hashes, once for each range of Python versions."""
    via: frozenset[str]
    """The packages that require it."""


def list_mode_extras(modes: Iterable[str]) -> set[str]:
    """Return the extras that the modes need.

    Invalid modes are refused by the step `prepare`.
    """
    return {extra for mode in modes for extra in EXTRAS.get(mode, ())}


def list_offered_extras() -> tuple[str, ...]:
    """Return the extras that a workflow can ask for."""
    return tuple(sorted(_read_project()["optional-dependencies"].keys() - _NOT_OFFERED))


def list_package_folders() -> list[Path]:
    """Return the folders of the packages of this checkout, by the names in its wheel."""
    packages = read_declared_packages()["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    return sorted({ROOT / Path(package).parent for package in packages})


def find_entry_point(command: str) -> tuple[str, str]:
    """Return the module and the function of a command."""
    module, _, function = str(_read_project()["scripts"][command]).partition(":")
    return module, function


def list_package_names(extras: Iterable[str]) -> list[str]:
    """Return the packages of the base, of the Action and of some extras, with all their
    requirements.
    """
    locked_packages = read_locked_packages()
    selected: set[str] = set()
    new = {required for extra in ("", _ACTION, *extras) for required in _list_required(extra)}
    while new:
        selected |= new
        new = {name for name, package in locked_packages.items() if package.via & new} - selected
    return sorted(selected)


def format_requirements(extras: Iterable[str]) -> str:
    """Return a list for `--require-hashes --no-deps -r`."""
    locked_packages = read_locked_packages()
    return "".join(entry for name in list_package_names(extras) for entry in locked_packages[name].entries)


@functools.cache
def read_locked_packages() -> Mapping[str, LockedPackage]:
    """Return the locked packages by their canonical names."""
    packages: dict[str, LockedPackage] = {}
    for file in LOCKS:
        for text in re.split(r"\n(?=\S)", file.read_text().strip()):
            name = _canonical_name(text)
            before = packages.get(name, LockedPackage((), frozenset()))
            entry = "".join(f"{line}\n" for line in text.splitlines() if not line.lstrip().startswith("#"))
            via = before.via.union(map(_canonical_name, _VIA.findall(text)))
            packages[name] = LockedPackage((*before.entries, entry), via)
    return packages


@functools.cache
def read_declared_packages() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def _read_project() -> dict[str, Any]:
    return dict(read_declared_packages()["project"])


def _list_required(extra: str) -> set[str]:
    """Return the requirements of an extra, also through other extras of vmrag. An empty extra is
    the base.
    """
    project = _read_project()
    required: set[str] = set()
    for requirement in project["optional-dependencies"][extra] if extra else project["dependencies"]:
        if match := re.match(rf"{re.escape(project['name'])}\[([\w,-]+)\]", requirement):
            required |= {name for other in match[1].split(",") for name in _list_required(other)}
        else:
            required.add(_canonical_name(requirement))
    return required


def _canonical_name(requirement: str) -> str:
    """Return the name at the start of a requirement, in the form in which indexes compare names."""
    return re.sub(r"[-_.]+", "-", re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0]).lower()
