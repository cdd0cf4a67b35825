"""git's configuration: read whole, once as long as none of its files changes, and written where
vmrag keeps settings that a repository cannot give, and the KB branch of each code branch.

Every command needs several settings, a call of a tool ten, and each git process takes eight
milliseconds.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from vmrag_link import env
from vmrag_link.git.run import build_failure, check_git, run_git
from vmrag_link.models import Record
from vmrag_link.paths import FileStamp, Places, read_file_stamps

T = TypeVar("T")
Stamp = tuple[object, ...]

_ORIGIN = "file:"
_SYSTEM = Path("/etc/gitconfig")
_ATTEMPTS = 3
"""How often files are looked at again because git has named others than those."""


class Entry(NamedTuple):
    """A key as git spells it: section and last part in lower case. One without `=` is `true`."""

    key: str
    value: str


class Setting(NamedTuple):
    """An entry with where it stands. `scope`, `origin` and `key` are as git spells them."""

    scope: str
    origin: str
    key: str
    value: str

    @property
    def url(self) -> str:
        """The URL of `http.URL.name`, for which alone it counts; empty for `http.name`."""
        return self.key.partition(".")[2].rpartition(".")[0]


class _Known(Record, frozen=True):
    """What git said, of which files, and what these looked like before it was asked."""

    environment: dict[str, str]
    files: tuple[Path, ...]
    stamps: tuple[FileStamp | None, ...]
    settings: tuple[Setting, ...]
    entries: tuple[Entry, ...]
    derived: dict[object, Any]


_known: dict[tuple[Path, bool], _Known] = {}
"""By git directory, without and with what `git -c` says."""


def list_entries(places: Places) -> tuple[Entry, ...]:
    """Every setting, of all of git's files and of the environment, in git's order: the last one of
    a key counts. Raises `GitFailed`.
    """
    return _read(places).entries


def list_settings(places: Places) -> tuple[Setting, ...]:
    """As `entries`, with where they stand, and with those of `git -c`: for a git that talks to
    remotes.
    """
    return _read(places, options=bool(env.read_git_options())).settings


def get_cached(places: Places, ask: Callable[[Places], T]) -> T:
    """What `ask` answers, which depends on git's configuration alone: asked once as long as that
    does not change.
    """
    known = _read(places)
    if ask not in known.derived:
        known.derived[ask] = ask(places)
    answer: T = known.derived[ask]
    return answer


def read_object_format(places: Places) -> str:
    """The hash by which git names the repository's objects: `sha1`, `sha256`."""
    return dict(list_entries(places)).get("extensions.objectformat", "sha1")


def read_stamp(places: Places) -> Stamp:
    """Another one after any of the files has changed; git is not asked."""
    known = _known.get((places.git_dir, False))
    return env.read_git_configuration(), read_file_stamps(known.files if known else _usual_files(places))


def clear_cache(places: Places) -> None:
    """This process has changed something itself."""
    for each in [key for key in list(_known) if places.common in (key[0], *key[0].parents)]:
        del _known[each]


def _read(places: Places, *, options: bool = False) -> _Known:
    environment = env.read_git_configuration()
    known = _known.get((places.git_dir, options))
    if known and known.environment == environment and read_file_stamps(known.files) == known.stamps:
        return known
    files = known.files if known and known.environment == environment else _usual_files(places)
    for _ in range(_ATTEMPTS):
        stamps = read_file_stamps(files)  # before git reads them: a change in between shows with the next look
        extra = env.read_git_options() if options else None
        said = check_git(places, "config", "--null", "--list", "--show-scope", "--show-origin", extra=extra)
        words = said.text.split("\0")
        lines = zip(words[::3], words[1::3], words[2::3], strict=False)
        there = tuple(Setting(scope, origin, *_entry(pair)) for scope, origin, pair in lines)
        found = _Known(environment, files, stamps, there, tuple(Entry(*each[2:]) for each in there), {})
        needed = dict.fromkeys((*_usual_files(places), *_named_files(places, there)))
        if needed.keys() <= set(files):
            _known[places.git_dir, options] = found
            break
        files = tuple(needed)
    return found


def _usual_files(places: Places) -> tuple[Path, ...]:
    """Where git looks by itself, whether there is something or not."""
    given = env.read_git_configuration()
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


def _named_files(places: Places, found: tuple[Setting, ...]) -> set[Path]:
    """The files that settings come from, and those that they include, there or not.

    HEAD is one of them where it decides what is included.
    """
    files = set()
    for _, origin, key, value in found:
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


_NOT_SET = 5  # exit code of `git config --unset-all`
_MAPPING = "vmragBranch"
_IMPORTS = "vmrag-import"


def read_section(places: Places, prefix: str) -> dict[str, str]:
    """Every key below a prefix such as `vmrag` or `branch.main`, by its full name as git spells it.

    git lowers the case of section and last part and keeps the rest; give the prefix so.
    """
    return {key: value for key, value in list_entries(places) if key.startswith(prefix + ".")}


class KbMapping(NamedTuple):
    """A code branch writes on a KB branch. `tree`: in that linked work tree alone, by the name of
    its key; empty: in all of them.
    """

    code: str
    kb_branch: str
    tree: str = ""


def list_kb_mappings(places: Places) -> list[KbMapping]:
    """Every configured one, whether branches and work trees exist or not."""
    found = read_config_entries(places, rf"branch\..*\.{_MAPPING}(-[0-9a-f]*)?")
    parts = ((*key.removeprefix("branch.").rpartition(".")[::2], kb) for key, kb in found if kb)
    return [KbMapping(code, kb, name.partition("-")[2]) for code, name, kb in parts]


def format_tree_key(git_dir: Path) -> str:
    """How the keys of a work tree's own mappings end: by the folder that git has for it, which
    `git worktree move` does not rename.
    """
    import hashlib  # needed where several work trees have one branch checked out

    return hashlib.sha256(os.fsencode(git_dir.name)).hexdigest()[:12]


def read_kb_branches(places: Places) -> dict[str, str]:
    """KB branches by code branch; `git branch -m` and `-D` carry and drop them.

    `git branch -c` copies the entry and appends the copy: the first entry owns the KB branch. What
    one work tree alone writes on is not among them.
    """
    owners = _first_owners(places)
    return {owner.code: owner.kb_branch for owner in owners.values() if not owner.tree}


def read_kb_owners(places: Places) -> dict[str, str]:
    """Code branches by KB branch, those that one work tree alone writes on included."""
    return {kb_branch: first_owner.code for kb_branch, first_owner in _first_owners(places).items()}


def find_kb_branch(places: Places, branch: str, *, own: bool = False) -> str | None:
    """The KB branch on which this code branch's documents are written; `own`: by this work tree
    alone.
    """
    if not own:
        return read_kb_branches(places).get(branch)
    found = [
        first_owner for first_owner in _first_owners(places).values() if first_owner.code == branch and first_owner.tree
    ]
    key = format_tree_key(places.git_dir) if found else ""
    return next((each.kb_branch for each in found if each.tree == key), None)


def _first_owners(places: Places) -> dict[str, KbMapping]:
    owners: dict[str, KbMapping] = {}
    for kb_mapping in list_kb_mappings(places):
        owners.setdefault(kb_mapping.kb_branch, kb_mapping)
    return owners


def set_kb_branch(places: Places, branch: str, kb_branch: str, *, own: bool = False) -> None:
    """Write to the repository's own configuration, in place of what stood there."""
    key = f"branch.{branch}.{_MAPPING}" + (f"-{format_tree_key(places.git_dir)}" if own else "")
    check_git(places, "config", "--local", "--replace-all", "--", key, kb_branch)
    clear_cache(places)


def forget_kb_branch(places: Places, branch: str, tree: str = "") -> None:
    """Undo `set_kb_branch`; fine where nothing is written down."""
    name = f"{_MAPPING}-{tree}" if tree else _MAPPING
    arguments = ("config", "--local", "--unset-all", "--", f"branch.{branch}.{name}")
    done = run_git(places, *arguments)
    clear_cache(places)
    if done.returncode not in (0, _NOT_SET):
        raise build_failure(arguments, done)


def read_import_folder(places: Places, collection: str) -> Path | None:
    """Where a collection's import base outside of the repository lies on this machine."""
    section = f"{_IMPORTS}.{collection}"
    value = read_section(places, section).get(f"{section}.base")
    return Path(value) if value and Path(value).is_absolute() else None


def set_import_folder(places: Places, collection: str, folder: Path) -> None:
    """Write to the repository's own configuration, in place of what stood there."""
    check_git(places, "config", "--local", "--replace-all", "--", f"{_IMPORTS}.{collection}.base", str(folder))
    clear_cache(places)


def remove_own_keys(places: Places) -> tuple[str, ...]:
    """Remove everything of ours from the repository's own configuration but the merge driver;
    returns the keys.
    """
    keys = list_own_keys(places)
    for key in keys:
        check_git(places, "config", "--local", "--unset-all", "--", key)
    clear_cache(places)
    return keys


def list_own_keys(places: Places) -> tuple[str, ...]:
    """Return the keys that `forget_all` removes."""
    listed = check_git(places, "config", "--local", "--null", "--name-only", "--list").text.split("\0")
    return tuple(key for key in dict.fromkeys(listed) if _is_own(key))


def _is_own(key: str) -> bool:
    """Git lowers the case of a key's first and last part."""
    return key.startswith(("vmrag.", f"{_IMPORTS}.")) or (
        key.startswith("branch.") and key.rpartition(".")[2].partition("-")[0] == _MAPPING.lower()
    )


def read_config_values(places: Places, key: str) -> list[str]:
    """Every value of the keys whose whole name, in lower case, this regular expression matches."""
    return [value for _, value in read_config_entries(places, key)]


def read_config_entries(places: Places, key: str) -> list[Entry]:
    """As `config_values`, with the keys as git spells them."""
    wanted = re.compile(key.lower(), re.DOTALL)
    return [entry for entry in list_entries(places) if wanted.fullmatch(entry.key)]


def add_value(places: Places, key: str, value: str) -> None:
    """One more value, in the repository's own configuration."""
    check_git(places, "config", "--local", "--add", "--", key, value)
    clear_cache(places)


def remove_value(places: Places, key: str, value: str) -> bool:
    """Take one value out of the repository's own configuration; whether it was there."""
    arguments = ("config", "--local", "--fixed-value", "--unset-all", "--", key, value)
    done = run_git(places, *arguments)
    clear_cache(places)
    if done.returncode not in (0, _NOT_SET):
        raise build_failure(arguments, done)
    return done.returncode == 0
