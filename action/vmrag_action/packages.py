"""Which packages a mode needs, out of the exact versions that lie beside the Action, and by which
keys the job's caches are read and written: that of the packages, and that of vectors.

The standard library alone, because nothing is installed yet. `pyproject.toml` says what each extra
requires, and `constraints.txt` who brings which other package (`# via`): what a mode needs is what
its extras lead to. Of actions-toolkit the steps import `core` alone, which needs nothing else: its
list is written without PyGithub, requests and what those bring.

A key ends with the run, so that a cache that proved wrong is followed by a better one: an entry
cannot be written twice. The others are the beginnings of keys, and the newest match counts.
"""

from __future__ import annotations

import functools
import hashlib
import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:  # the installation asks before any of ours can be imported
    from vmrag_link.settings import Config


LAYOUT = "vmrag-2"
"""Rises with what a cache of vectors holds."""

LAYOUT_OF_PACKAGES = "vmrag-packages-1"

NOT_AUTOMATIC = ("release", "pull_request_target", "workflow_run")
"""Jobs that publish, or have secrets beside a stranger's input: a cache is read only if asked."""


class CacheKeys(NamedTuple):
    """`key` to write; `prefixes` to read, the best first."""

    key: str
    prefixes: tuple[str, ...]


class CacheAccess(NamedTuple):
    read: bool
    write: bool


def vectors_folder(temp: Path) -> Path:
    """Where the vectors lie while the job runs: outside of the repository, and never served
    from.
    """
    return temp / "vmrag-cache"


def compute_vector_keys(environ: Mapping[str, str], config: Config, revision: str) -> CacheKeys:
    """By system, architecture, format of the index, settings, revision. All of them have a known
    form.
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
    machine = "-".join((LAYOUT, *_machine(environ), SUFFIX))
    pinned = f"{machine}-{settings}-{revision}"
    return CacheKeys(f"{pinned}-{_run(environ)}", (f"{pinned}-", f"{machine}-{settings}-", f"{machine}-"))


def compute_package_keys(environ: Mapping[str, str], digest: str) -> CacheKeys:
    """`digest` says which packages, for which machine and Python. Of the Action's own code nothing
    is kept.
    """
    prefix = "-".join((LAYOUT_OF_PACKAGES, *_machine(environ), digest[:32], ""))
    return CacheKeys(prefix + _run(environ), (prefix,))


def decide_access(environ: Mapping[str, str], asked: str, *, saves: bool) -> CacheAccess:
    """`saves`: the workflow wants it, and the event is one of the default branch that no stranger
    causes (`Comparison.saves`).
    """
    hosted = environ.get("RUNNER_ENVIRONMENT") == "github-hosted"
    tag = environ.get("GITHUB_REF", "").startswith("refs/tags/")
    careful = not hosted or tag or environ.get("GITHUB_EVENT_NAME", "") in NOT_AUTOMATIC
    if asked != "true" and (asked != "auto" or careful):
        return CacheAccess(read=False, write=False)
    return CacheAccess(read=True, write=saves)


def _machine(environ: Mapping[str, str]) -> tuple[str, str]:
    return _plain(environ.get("RUNNER_OS", "")), _plain(environ.get("RUNNER_ARCH", ""))


def _run(environ: Mapping[str, str]) -> str:
    """What no other run is called."""
    return _plain(f"{environ.get('GITHUB_RUN_ID', '0')}.{environ.get('GITHUB_RUN_ATTEMPT', '1')}")


def _plain(text: str) -> str:
    return "".join(sign if sign.isascii() and (sign.isalnum() or sign == ".") else "_" for sign in text) or "_"


ROOT = Path(__file__).resolve().parents[2]
LOCKS = (ROOT / "constraints.txt", ROOT / "action" / "requirements.txt")

_INDEX = ("code", "index", "web")
"""`web` asks services of embedding and Chroma servers, where settings name one."""

EXTRAS: Mapping[str, tuple[str, ...]] = {
    "repair": ("web",),  # opens pull requests
    "update": ("web",),  # lists them
    "sync": _INDEX,
    "verify": (),
    "check": _INDEX,
    "link": (),
    "report": (*_INDEX, "report"),
}
"""What each mode imports beside the base."""

_ACTION = "action"
_NOT_OFFERED = {_ACTION, "dev", "langchain", "llama-index"}
"""Extras of the Action itself, of development, and of programs, which install them themselves."""

_VIA = re.compile(r"^ +#(?: via|  ) +([A-Za-z0-9._-]+)", re.MULTILINE)


class LockedPackage(NamedTuple):
    """An exact version with its hashes, once for each range of Pythons; the packages that bring
    it.
    """

    entries: tuple[str, ...]
    via: frozenset[str]


def list_mode_extras(modes: Iterable[str]) -> set[str]:
    """The extras that modes need. The step `prepare` refuses what is no mode."""
    return {extra for mode in modes for extra in EXTRAS.get(mode, ())}


def list_offered_extras() -> tuple[str, ...]:
    """The extras that a workflow may ask for."""
    return tuple(sorted(_project()["optional-dependencies"].keys() - _NOT_OFFERED))


def list_package_folders() -> list[Path]:
    """Where the packages of this checkout lie, as its wheel names them."""
    packages = read_declared_packages()["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    return sorted({ROOT / Path(package).parent for package in packages})


def find_entry_point(command: str) -> tuple[str, str]:
    """Module and function of a command."""
    module, _, function = str(_project()["scripts"][command]).partition(":")
    return module, function


def list_package_names(extras: Iterable[str]) -> list[str]:
    """The packages of the base, of the Action and of some extras, with all that they bring."""
    there = read_locked_packages()
    found: set[str] = set()
    new = {each for extra in ("", _ACTION, *extras) for each in _required(extra)}
    while new:
        found |= new
        new = {name for name, package in there.items() if package.via & new} - found
    return sorted(found)


def format_requirements(extras: Iterable[str]) -> str:
    """A list for `--require-hashes --no-deps -r`."""
    there = read_locked_packages()
    return "".join(entry for name in list_package_names(extras) for entry in there[name].entries)


@functools.cache
def read_locked_packages() -> Mapping[str, LockedPackage]:
    """By canonical name."""
    found: dict[str, LockedPackage] = {}
    for text in (entry for file in LOCKS for entry in re.split(r"\n(?=\S)", file.read_text().strip())):
        name, before = _canonical(text), found.get(_canonical(text), LockedPackage((), frozenset()))
        entry = "".join(f"{line}\n" for line in text.splitlines() if not line.lstrip().startswith("#"))
        found[name] = LockedPackage((*before.entries, entry), before.via.union(map(_canonical, _VIA.findall(text))))
    return found


@functools.cache
def read_declared_packages() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def _project() -> dict[str, Any]:
    return dict(read_declared_packages()["project"])


def _required(extra: str) -> set[str]:
    """What an extra (empty: the base) requires by itself, and through others of our extras."""
    project = _project()
    found: set[str] = set()
    for each in project["optional-dependencies"][extra] if extra else project["dependencies"]:
        if own := re.match(rf"{re.escape(project['name'])}\[([\w,-]+)\]", each):
            found |= {name for other in own[1].split(",") for name in _required(other)}
        else:
            found.add(_canonical(each))
    return found


def _canonical(requirement: str) -> str:
    """The name at its start, as indexes compare names."""
    return re.sub(r"[-_.]+", "-", re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0]).lower()
