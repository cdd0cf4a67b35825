"""git's configuration: read whole, and cached until one of its files changes.

Each command needs several settings, a tool call ten, and one git process takes eight milliseconds.
The keys that vmrag itself writes are in `own_keys`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from vmrag_link import env
from vmrag_link.file_access import FileStamp, read_file_stamps
from vmrag_link.git.run import build_failure, check_git, run_git
from vmrag_link.models import Record
from vmrag_link.paths import Places

T = TypeVar("T")
Stamp = tuple[object, ...]

_FILE_ORIGIN = "file:"
_SYSTEM = Path("/etc/gitconfig")
_NOT_SET = 5  # exit code of `git config --unset-all`
_ATTEMPTS = 3
"""Number of times that the files are read again because git named other files than expected."""


class Entry(NamedTuple):
    """A key as git spells it: section and last part in lower case. A key without `=` has the value
    `true`.
    """

    key: str
    value: str


class Setting(NamedTuple):
    """An entry and the place where it is configured."""

    scope: str
    """git's name of the kind of place: system, global, local, worktree or command."""
    origin: str
    """The place itself, such as `file:.git/config` or `command line:`."""
    key: str
    value: str

    @property
    def url(self) -> str:
        """The URL of `http.URL.name`, to which the setting is limited. Empty for `http.name`."""
        return self.key.partition(".")[2].rpartition(".")[0]


class _CachedConfiguration(Record, frozen=True):
    """git's answer, and everything on which it depends."""

    environment: dict[str, str]
    files: tuple[Path, ...]
    stamps: tuple[FileStamp | None, ...]
    """The state of each file before git read it (inode, size and times)."""
    settings: tuple[Setting, ...]
    entries: tuple[Entry, ...]
    derived: dict[object, Any]
    """Results of `get_cached`, by function."""


_CACHE: dict[tuple[Path, bool], _CachedConfiguration] = {}
"""By git directory, and whether the options of `git -c` are included."""


def list_entries(places: Places) -> tuple[Entry, ...]:
    """Return all settings from git's files and the environment in git's order: the last one of a
    key applies.

    Raises `GitFailed`.
    """
    return _read_configuration(places).entries


def list_settings(places: Places) -> tuple[Setting, ...]:
    """Return all settings with their places, including those of `git -c`, for git commands that
    contact remotes.

    Raises `GitFailed`.
    """
    return _read_configuration(places, options=bool(env.read_git_options())).settings


def read_section(places: Places, prefix: str) -> dict[str, str]:
    """Return every key below a prefix such as `vmrag` or `branch.main`, by its full name.

    git writes the section and the last part in lower case and keeps the rest, so the prefix must be
    spelled like that.
    """
    return {key: value for key, value in list_entries(places) if key.startswith(prefix + ".")}


def read_config_values(places: Places, key: str) -> list[str]:
    """Return the values of the keys whose whole name, in lower case, matches this regular
    expression.
    """
    return [value for _, value in read_config_entries(places, key)]


def read_config_entries(places: Places, key: str) -> list[Entry]:
    """Return the entries whose key, in lower case, matches this regular expression, with the keys
    as git spells them.
    """
    pattern = re.compile(key.lower(), re.DOTALL)
    return [entry for entry in list_entries(places) if pattern.fullmatch(entry.key)]


def get_cached(places: Places, compute: Callable[[Places], T]) -> T:
    """Return the result of `compute`, which depends only on git's configuration. It is computed
    again after the configuration has changed.
    """
    cached = _read_configuration(places)
    if compute not in cached.derived:
        cached.derived[compute] = compute(places)
    answer: T = cached.derived[compute]
    return answer


def read_object_format(places: Places) -> str:
    """Return the hash function of the repository's object names: `sha1` or `sha256`."""
    return dict(list_entries(places)).get("extensions.objectformat", "sha1")


def read_stamp(places: Places) -> Stamp:
    """Return a value that differs after any of the files has changed. No git process is started."""
    cached = _CACHE.get((places.git_dir, False))
    return env.read_git_configuration(), read_file_stamps(cached.files if cached else _usual_files(places))


def clear_cache(places: Places) -> None:
    """Forget the cached configuration of this repository, because this process has changed it."""
    for key in [cached_key for cached_key in list(_CACHE) if places.common in (cached_key[0], *cached_key[0].parents)]:
        del _CACHE[key]


def set_value(places: Places, key: str, value: str) -> None:
    """Write a key to the repository's own configuration, replacing all its values there."""
    check_git(places, "config", "--local", "--replace-all", "--", key, value)
    clear_cache(places)


def add_value(places: Places, key: str, value: str) -> None:
    """Add a value for a key to the repository's own configuration."""
    check_git(places, "config", "--local", "--add", "--", key, value)
    clear_cache(places)


def remove_value(places: Places, key: str, value: str | None = None) -> bool:
    """Remove a value of a key, or all values, from the repository's own configuration. Return
    whether one existed.
    """
    which = ["--fixed-value", "--unset-all", "--", key, value] if value is not None else ["--unset-all", "--", key]
    arguments = ("config", "--local", *which)
    finished = run_git(places, *arguments)
    clear_cache(places)
    if finished.returncode not in (0, _NOT_SET):
        raise build_failure(arguments, finished)
    return finished.returncode == 0


def _read_configuration(places: Places, *, options: bool = False) -> _CachedConfiguration:
    """Return the configuration, with the settings of `git -c` if `options`.

    The files are known only after git has read them. So if it names other files than expected, they
    are read again, with the state of these files before.
    """
    environment = env.read_git_configuration()
    cached = _CACHE.get((places.git_dir, options))
    if cached and cached.environment == environment and read_file_stamps(cached.files) == cached.stamps:
        return cached
    files = cached.files if cached and cached.environment == environment else _usual_files(places)
    for _ in range(_ATTEMPTS):
        stamps = read_file_stamps(files)  # before git reads them, so the next call sees a change in between
        extra = env.read_git_options() if options else None
        answer = check_git(places, "config", "--null", "--list", "--show-scope", "--show-origin", extra=extra)
        words = answer.text.split("\0")
        lines = zip(words[::3], words[1::3], words[2::3], strict=False)
        settings = tuple(Setting(scope, origin, *_parse_entry(pair)) for scope, origin, pair in lines)
        configuration = _CachedConfiguration(
            environment=environment,
            files=files,
            stamps=stamps,
            settings=settings,
            entries=tuple(Entry(setting.key, setting.value) for setting in settings),
            derived={},
        )
        needed = dict.fromkeys((*_usual_files(places), *_named_files(places, settings)))
        if needed.keys() <= set(files):
            _CACHE[places.git_dir, options] = configuration
            break
        files = tuple(needed)
    return configuration


def _usual_files(places: Places) -> tuple[Path, ...]:
    """Return the files that git always reads, whether they exist or not."""
    environment = env.read_git_configuration()
    home = Path(environment.get("HOME", "/"))
    named_files = (environment.get("GIT_CONFIG_GLOBAL"), environment.get("GIT_CONFIG_SYSTEM"))
    return (
        places.common / "config",
        places.git_dir / "config.worktree",
        home / ".gitconfig",
        Path(environment.get("XDG_CONFIG_HOME") or home / ".config") / "git" / "config",
        _SYSTEM,
        *(Path(name) for name in named_files if name),
    )


def _named_files(places: Places, settings: tuple[Setting, ...]) -> set[Path]:
    """Return the files that settings come from, and the files that they include, existing or not.

    HEAD is one of them if it decides what is included.
    """
    files = set()
    for _, origin, key, value in settings:
        file = places.top / origin.removeprefix(_FILE_ORIGIN) if origin.startswith(_FILE_ORIGIN) else None
        if file:
            files.add(file)
        if key == "include.path" or (key.startswith("includeif.") and key.endswith(".path")):
            # An absolute path stays as it is.
            files.add((file or places.top).parent / os.path.expanduser(value))  # noqa: PTH111  never raises
        if key.startswith("includeif.onbranch:"):
            files |= {places.git_dir / "HEAD", places.git_dir / "reftable" / "tables.list"}
    return files


def _parse_entry(pair: str) -> Entry:
    key, equals, value = pair.partition("\n")
    return Entry(key, value if equals else "true")
