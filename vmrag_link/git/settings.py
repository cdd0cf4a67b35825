"""git's configuration: settings that a repository cannot give, and each code branch's KB branch."""

from __future__ import annotations

from pathlib import Path

from vmrag_link.git.run import demand, failure, git
from vmrag_link.paths import Places

_ABSENT = 1  # exit code of `git config --get-regexp`
_NOT_SET = 5  # exit code of `git config --unset-all`
_MAPPING = "vmragBranch"
_IMPORTS = "vmrag-import"

_Stamp = tuple[int, int, int, int]

_known_mappings: dict[Path, tuple[_Stamp | None, list[tuple[str, str]]]] = {}
"""By common directory: the stamp of the repository's configuration when git read it, and the
result.
"""


def config_section(places: Places, prefix: str) -> dict[str, str]:
    """Every key below a prefix such as `vmrag` or `branch.main`, by its full name as git spells it.

    git lowers the case of section and last part and keeps the rest; give the prefix so. A key
    without `=` is `true`.
    """
    entries = demand(places, "config", "--null", "--list").text.split("\0")
    pairs = (entry.partition("\n") for entry in entries)
    return {key: value if equals else "true" for key, equals, value in pairs if key.startswith(prefix + ".")}


def kb_mappings(places: Places) -> list[tuple[str, str]]:
    """Every configured (code branch, KB branch), whether these branches exist or not.

    git is called again when the repository's own configuration, where `set_kb_branch` writes, was
    replaced or changed. A command needs this up to ten times, and each git process takes eight
    milliseconds.
    """
    stamp = _stamp(places.common / "config")
    known = _known_mappings.get(places.common)
    if known is None or stamp is None or known[0] != stamp:
        found = config_entries(places, rf"branch\..*\.{_MAPPING}")
        mappings = [(key.removeprefix("branch.")[: -len(f".{_MAPPING}")], kb) for key, kb in found if kb]
        known = _known_mappings[places.common] = (stamp, mappings)
    return list(known[1])


def _stamp(file: Path) -> _Stamp | None:
    """A value that changes when the file is replaced, as git does, or written to; or None."""
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def kb_branches(places: Places) -> dict[str, str]:
    """KB branches by code branch; `git branch -m` and `-D` carry and drop them.

    `git branch -c` copies the entry and appends the copy: the first entry owns the KB branch.
    """
    owners: dict[str, str] = {}
    for code, kb_branch in kb_mappings(places):
        owners.setdefault(kb_branch, code)
    return {code: kb_branch for kb_branch, code in owners.items()}


def kb_branch_of(places: Places, branch: str) -> str | None:
    """The KB branch on which this code branch's documents are written."""
    return kb_branches(places).get(branch)


def set_kb_branch(places: Places, branch: str, kb_branch: str) -> None:
    """In the repository's own configuration, in place of what stood there."""
    demand(places, "config", "--local", "--replace-all", "--", f"branch.{branch}.{_MAPPING}", kb_branch)
    _known_mappings.pop(places.common, None)


def forget_kb_branch(places: Places, branch: str) -> None:
    """Undo `set_kb_branch`; fine where nothing is written down."""
    arguments = ("config", "--local", "--unset-all", "--", f"branch.{branch}.{_MAPPING}")
    done = git(places, *arguments)
    _known_mappings.pop(places.common, None)
    if done.returncode not in (0, _NOT_SET):
        raise failure(arguments, done)


def import_folder(places: Places, collection: str) -> Path | None:
    """Where a collection's import base outside of the repository lies on this machine."""
    section = f"{_IMPORTS}.{collection}"
    value = config_section(places, section).get(f"{section}.base")
    return Path(value) if value and Path(value).is_absolute() else None


def set_import_folder(places: Places, collection: str, folder: Path) -> None:
    """In the repository's own configuration, in place of what stood there."""
    demand(places, "config", "--local", "--replace-all", "--", f"{_IMPORTS}.{collection}.base", str(folder))


def config_values(places: Places, key: str) -> list[str]:
    """Every value of the keys whose whole name, in lower case, this regular expression matches."""
    return [value for _, value in config_entries(places, key)]


def config_entries(places: Places, key: str) -> list[tuple[str, str]]:
    """As `config_values`, with the keys as git spells them."""
    arguments = ("config", "--null", "--get-regexp", f"^{key}$".lower())
    done = git(places, *arguments)
    if done.returncode not in (0, _ABSENT):
        raise failure(arguments, done)
    entries = (entry.partition("\n") for entry in done.text.split("\0"))
    return [(name, value) for name, _, value in entries if name]


def add(places: Places, key: str, value: str) -> None:
    """One more value, in the repository's own configuration."""
    demand(places, "config", "--local", "--add", "--", key, value)


def remove(places: Places, key: str, value: str) -> bool:
    """Take one value out of the repository's own configuration; whether it was there."""
    arguments = ("config", "--local", "--fixed-value", "--unset-all", "--", key, value)
    done = git(places, *arguments)
    if done.returncode not in (0, _NOT_SET):
        raise failure(arguments, done)
    return done.returncode == 0
