"""The packages that a mode needs, and the keys of the job's caches of packages and of vectors.

The module uses only the standard library, because nothing is installed yet. The exact versions are
next to the Action. `pyproject.toml` has the requirements of each extra, and `constraints.txt` the
packages that require another one (`# via`). A mode needs everything that its extras lead to. Of
actions-toolkit, the steps import only the module core, which has no requirements, so its list is
written without PyGithub, requests and their requirements.

A key ends with the run, because an entry cannot be written twice: a better cache can then follow a
bad one. The other keys are beginnings of keys, and the newest match is used.
"""

from __future__ import annotations

import functools
import hashlib
import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:  # during the installation, vmrag cannot be imported
    from vmrag_link.settings import Config


LAYOUT = "vmrag-2"
"""Changes with the contents of the cache of vectors."""

LAYOUT_OF_PACKAGES = "vmrag-packages-1"

NOT_AUTOMATIC = ("release", "pull_request_target", "workflow_run")
"""Events of jobs that publish, or have secrets next to untrusted input. They read a cache only if
the workflow asks for it.
"""


class CacheKeys(NamedTuple):
    """Keys of a cache.

    `key` is for writing, and `prefixes` are for reading, the best first.
    """

    key: str
    prefixes: tuple[str, ...]


class CacheAccess(NamedTuple):
    read: bool
    write: bool


def vectors_folder(temp: Path) -> Path:
    """Return the folder of the vectors while the job runs.

    It is outside the repository, and nothing is served from it.
    """
    return temp / "vmrag-cache"


def compute_vector_keys(environ: Mapping[str, str], config: Config, revision: str) -> CacheKeys:
    """Return the keys for vectors, by system, architecture, format of the index, settings and
    revision.

    All of them have a known form.
    """
    import msgspec

    from vmrag_link import __version__
    from vmrag_link.index.view import SUFFIX
    from vmrag_link.models import encode_canonical_json

    decisive = encode_canonical_json(
        {
            "embedding": msgspec.to_builtins(config.embedding),
            "chunking": msgspec.to_builtins(config.chunking),
            "version": __version__,
        }
    )
    settings = hashlib.sha256(decisive.encode()).hexdigest()[:16]
    machine = "-".join((LAYOUT, *_describe_machine(environ), SUFFIX))
    pinned = f"{machine}-{settings}-{revision}"
    return CacheKeys(f"{pinned}-{_identify_run(environ)}", (f"{pinned}-", f"{machine}-{settings}-", f"{machine}-"))


def compute_package_keys(environ: Mapping[str, str], digest: str) -> CacheKeys:
    """Return the keys for packages.

    `digest` identifies the packages, the machine and Python. The code of the Action is not cached.
    """
    prefix = "-".join((LAYOUT_OF_PACKAGES, *_describe_machine(environ), digest[:32], ""))
    return CacheKeys(prefix + _identify_run(environ), (prefix,))


def decide_access(environ: Mapping[str, str], mode: str, *, saves: bool) -> CacheAccess:
    """Return whether the job reads and writes a cache.

    `saves` is True if the workflow wants to write, and the event is on the default branch and not
    caused by an untrusted user (`Comparison.saves`).
    """
    hosted = environ.get("RUNNER_ENVIRONMENT") == "github-hosted"
    tag = environ.get("GITHUB_REF", "").startswith("refs/tags/")
    careful = not hosted or tag or environ.get("GITHUB_EVENT_NAME", "") in NOT_AUTOMATIC
    if mode != "true" and (mode != "auto" or careful):
        return CacheAccess(read=False, write=False)
    return CacheAccess(read=True, write=saves)


def _describe_machine(environ: Mapping[str, str]) -> tuple[str, str]:
    return _clean_name(environ.get("RUNNER_OS", "")), _clean_name(environ.get("RUNNER_ARCH", ""))


def _identify_run(environ: Mapping[str, str]) -> str:
    """Return a text that identifies this run."""
    return _clean_name(f"{environ.get('GITHUB_RUN_ID', '0')}.{environ.get('GITHUB_RUN_ATTEMPT', '1')}")


def _clean_name(text: str) -> str:
    return "".join(sign if sign.isascii() and (sign.isalnum() or sign == ".") else "_" for sign in text) or "_"


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
    """An exact version with its hashes, once for each range of Python versions, and the packages
    that require it.
    """

    entries: tuple[str, ...]
    via: frozenset[str]


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
    for text in (entry for file in LOCKS for entry in re.split(r"\n(?=\S)", file.read_text().strip())):
        name, before = _canonical_name(text), packages.get(_canonical_name(text), LockedPackage((), frozenset()))
        entry = "".join(f"{line}\n" for line in text.splitlines() if not line.lstrip().startswith("#"))
        packages[name] = LockedPackage(
            (*before.entries, entry), before.via.union(map(_canonical_name, _VIA.findall(text)))
        )
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
