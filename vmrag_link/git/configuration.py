"""git's whole configuration of a work tree, asked of git once as long as none of its files changes.

Every command needs several settings, a call of a tool ten, and each git process takes eight
milliseconds.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from vmrag_link import env
from vmrag_link.file_stamp import FileStamp, file_stamps
from vmrag_link.git.run import demand
from vmrag_link.paths import Places

Stamp = tuple[object, ...]

_ORIGIN = "file:"
_SYSTEM = Path("/etc/gitconfig")
_ATTEMPTS = 3
"""How often files are looked at again because git has named others than those."""


class Entry(NamedTuple):
    """A key as git spells it: section and last part in lower case. One without `=` is `true`."""

    key: str
    value: str


class _Known(NamedTuple):
    """What git said, of which files, and what these looked like before it was asked."""

    environment: dict[str, str]
    files: tuple[Path, ...]
    stamps: tuple[FileStamp | None, ...]
    entries: tuple[Entry, ...]


_known: dict[Path, _Known] = {}
"""By git directory."""


def entries(places: Places) -> tuple[Entry, ...]:
    """Every setting, of all of git's files and of the environment, in git's order: the last one of
    a key counts. Raises `GitFailed`.
    """
    return _read(places).entries


def stamp(places: Places) -> Stamp:
    """Another one after any of the files has changed; git is not asked."""
    known = _known.get(places.git_dir)
    return env.deciding_git_configuration(), file_stamps(known.files if known else _usual_files(places))


def forget(places: Places) -> None:
    """This process has changed something itself."""
    for each in [git_dir for git_dir in list(_known) if places.common in (git_dir, *git_dir.parents)]:
        del _known[each]


def _read(places: Places) -> _Known:
    environment = env.deciding_git_configuration()
    known = _known.get(places.git_dir)
    if known and known.environment == environment and file_stamps(known.files) == known.stamps:
        return known
    files = known.files if known and known.environment == environment else _usual_files(places)
    for _ in range(_ATTEMPTS):
        stamps = file_stamps(files)  # before git reads them: a change in between shows with the next look
        said = demand(places, "config", "--null", "--list", "--show-origin").text.split("\0")
        pairs = [*zip(said[::2], said[1::2], strict=False)]
        found = _Known(environment, files, stamps, tuple(_entry(pair) for _, pair in pairs))
        needed = dict.fromkeys((*_usual_files(places), *_named_files(places, pairs)))
        if needed.keys() <= set(files):
            _known[places.git_dir] = found
            break
        files = tuple(needed)
    return found


def _usual_files(places: Places) -> tuple[Path, ...]:
    """Where git looks by itself, whether there is something or not."""
    given = env.deciding_git_configuration()
    home = Path(given.get("HOME", "/"))
    named = (given.get("GIT_CONFIG_GLOBAL"), given.get("GIT_CONFIG_SYSTEM"))
    return (
        places.common / "config",
        places.git_dir / "config.worktree",
        home / ".gitconfig",
        Path(given.get("XDG_CONFIG_HOME") or home / ".config") / "git" / "config",
        _SYSTEM,
        *(Path(each) for each in named if each),
    )


def _named_files(places: Places, pairs: list[tuple[str, str]]) -> set[Path]:
    """The files that settings come from, and those that they include, there or not.

    HEAD is one of them where it decides what is included.
    """
    files = set()
    for origin, pair in pairs:
        key, _, value = pair.partition("\n")
        file = places.top / origin.removeprefix(_ORIGIN) if origin.startswith(_ORIGIN) else None
        if file:
            files.add(file)
        if key == "include.path" or (key.startswith("includeif.") and key.endswith(".path")):
            # An absolute path stays as it is.
            files.add((file or places.top).parent / os.path.expanduser(value))  # noqa: PTH111  never raises
        if key.startswith("includeif.onbranch:"):
            files |= {places.git_dir / "HEAD", places.git_dir / "reftable" / "tables.list"}
    return files


def _entry(pair: str) -> Entry:
    key, equals, value = pair.partition("\n")
    return Entry(key, value if equals else "true")
