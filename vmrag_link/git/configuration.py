"""git's configuration: read whole, and cached until one of its files changes. This module also
writes the settings that a repository cannot provide, and the KB branch of each code branch.

Each command needs several settings, a tool call ten, and one git process takes eight milliseconds.
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

_ORIGIN = "file:"
_SYSTEM = Path("/etc/gitconfig")
_ATTEMPTS = 3
"""Number of times that the files are read again because git named other files than expected."""


class Entry(NamedTuple):
    """A key as git spells it: section and last part in lower case. A key without `=` has the value
    `true`.
    """

    key: str
    value: str


class Setting(NamedTuple):
    """An entry and its place. `scope`, `origin` and `key` are spelled as in git."""

    scope: str
    origin: str
    key: str
    value: str

    @property
    def url(self) -> str:
        """The URL of `http.URL.name`, to which the setting is limited. Empty for `http.name`."""
        return self.key.partition(".")[2].rpartition(".")[0]


class _CachedConfiguration(Record, frozen=True):
    """git's answer, its files, and the stamps of these files before git read them."""

    environment: dict[str, str]
    files: tuple[Path, ...]
    stamps: tuple[FileStamp | None, ...]
    settings: tuple[Setting, ...]
    entries: tuple[Entry, ...]
    derived: dict[object, Any]


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


def _read_configuration(places: Places, *, options: bool = False) -> _CachedConfiguration:
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
            entries=tuple(Entry(*entry[2:]) for entry in settings),
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
        file = places.top / origin.removeprefix(_ORIGIN) if origin.startswith(_ORIGIN) else None
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


_NOT_SET = 5  # exit code of `git config --unset-all`
_MAPPING = "vmragBranch"
_IMPORTS = "vmrag-import"


def read_section(places: Places, prefix: str) -> dict[str, str]:
    """Return every key below a prefix such as `vmrag` or `branch.main`, by its full name.

    git writes the section and the last part in lower case and keeps the rest, so the prefix must be
    spelled like that.
    """
    return {key: value for key, value in list_entries(places) if key.startswith(prefix + ".")}


class KbMapping(NamedTuple):
    """A code branch and the KB branch on which its documents are written."""

    code: str
    kb_branch: str
    tree: str = ""
    """The key of the linked work tree to which the mapping is limited. If it is empty, the mapping
    applies to all work trees.
    """


def list_kb_mappings(places: Places) -> list[KbMapping]:
    """Return all configured mappings, whether their branches and work trees exist or not."""
    entries = read_config_entries(places, rf"branch\..*\.{_MAPPING}(-[0-9a-f]*)?")
    parts = ((*key.removeprefix("branch.").rpartition(".")[::2], kb) for key, kb in entries if kb)
    return [KbMapping(code, kb, name.partition("-")[2]) for code, name, kb in parts]


def format_tree_key(git_dir: Path) -> str:
    """Return the end of the keys of a work tree's own mappings.

    It is derived from git's folder for the work tree, which `git worktree move` does not rename.
    """
    import hashlib  # needed only if several work trees have one branch checked out

    return hashlib.sha256(os.fsencode(git_dir.name)).hexdigest()[:12]


def read_kb_branches(places: Places) -> dict[str, str]:
    """Return the KB branches by code branch, without those of a single work tree.

    `git branch -m` and `-D` rename and remove the entries. `git branch -c` copies the entry and
    appends the copy, so the first entry owns the KB branch.
    """
    owners = _first_owners(places)
    return {owner.code: owner.kb_branch for owner in owners.values() if not owner.tree}


def read_kb_owners(places: Places) -> dict[str, str]:
    """Return the code branches by KB branch, including KB branches of a single work tree."""
    return {kb_branch: first_owner.code for kb_branch, first_owner in _first_owners(places).items()}


def find_kb_branch(places: Places, branch: str, *, of_tree: bool = False) -> str | None:
    """Return the KB branch for the documents of a code branch, or None.

    With `of_tree`, only the KB branch that belongs to this work tree alone is returned.
    """
    if not of_tree:
        return read_kb_branches(places).get(branch)
    mappings = [mapping for mapping in _first_owners(places).values() if mapping.code == branch and mapping.tree]
    key = format_tree_key(places.git_dir) if mappings else ""
    return next((mapping.kb_branch for mapping in mappings if mapping.tree == key), None)


def _first_owners(places: Places) -> dict[str, KbMapping]:
    owners: dict[str, KbMapping] = {}
    for kb_mapping in list_kb_mappings(places):
        owners.setdefault(kb_mapping.kb_branch, kb_mapping)
    return owners


def set_kb_branch(places: Places, branch: str, kb_branch: str, *, of_tree: bool = False) -> None:
    """Write the mapping to the repository's own configuration, replacing an older one."""
    key = f"branch.{branch}.{_MAPPING}" + (f"-{format_tree_key(places.git_dir)}" if of_tree else "")
    check_git(places, "config", "--local", "--replace-all", "--", key, kb_branch)
    clear_cache(places)


def forget_kb_branch(places: Places, branch: str, tree: str = "") -> None:
    """Remove a mapping that `set_kb_branch` wrote, if it exists."""
    name = f"{_MAPPING}-{tree}" if tree else _MAPPING
    arguments = ("config", "--local", "--unset-all", "--", f"branch.{branch}.{name}")
    finished = run_git(places, *arguments)
    clear_cache(places)
    if finished.returncode not in (0, _NOT_SET):
        raise build_failure(arguments, finished)


def read_import_folder(places: Places, collection: str) -> Path | None:
    """Return the folder outside the repository from which a collection is imported on this machine,
    or None.
    """
    section = f"{_IMPORTS}.{collection}"
    value = read_section(places, section).get(f"{section}.base")
    return Path(value) if value and Path(value).is_absolute() else None


def set_import_folder(places: Places, collection: str, folder: Path) -> None:
    """Write the folder to the repository's own configuration, replacing an older one."""
    check_git(places, "config", "--local", "--replace-all", "--", f"{_IMPORTS}.{collection}.base", str(folder))
    clear_cache(places)


def remove_own_keys(places: Places) -> tuple[str, ...]:
    """Remove all vmrag keys except the merge driver from the repository's own configuration, and
    return them.
    """
    keys = list_own_keys(places)
    for key in keys:
        check_git(places, "config", "--local", "--unset-all", "--", key)
    clear_cache(places)
    return keys


def list_own_keys(places: Places) -> tuple[str, ...]:
    """Return the keys that `remove_own_keys` removes."""
    listed = check_git(places, "config", "--local", "--null", "--name-only", "--list").text.split("\0")
    return tuple(key for key in dict.fromkeys(listed) if _is_vmrag_key(key))


def _is_vmrag_key(key: str) -> bool:
    """Return whether vmrag wrote the key. git writes the first and the last part of a key in lower
    case.
    """
    return key.startswith(("vmrag.", f"{_IMPORTS}.")) or (
        key.startswith("branch.") and key.rpartition(".")[2].partition("-")[0] == _MAPPING.lower()
    )


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


def add_value(places: Places, key: str, value: str) -> None:
    """Add a value for a key to the repository's own configuration."""
    check_git(places, "config", "--local", "--add", "--", key, value)
    clear_cache(places)


def remove_value(places: Places, key: str, value: str) -> bool:
    """Remove a value from the repository's own configuration, and return whether it existed."""
    arguments = ("config", "--local", "--fixed-value", "--unset-all", "--", key, value)
    finished = run_git(places, *arguments)
    clear_cache(places)
    if finished.returncode not in (0, _NOT_SET):
        raise build_failure(arguments, finished)
    return finished.returncode == 0
