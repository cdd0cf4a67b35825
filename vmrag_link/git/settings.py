"""git's configuration: settings that a repository cannot give, and each code branch's KB branch."""

from __future__ import annotations

import re
from pathlib import Path

from vmrag_link.git import configuration
from vmrag_link.git.configuration import Entry
from vmrag_link.git.run import demand, failure, git
from vmrag_link.paths import Places

_NOT_SET = 5  # exit code of `git config --unset-all`
_MAPPING = "vmragBranch"
_IMPORTS = "vmrag-import"


def config_section(places: Places, prefix: str) -> dict[str, str]:
    """Every key below a prefix such as `vmrag` or `branch.main`, by its full name as git spells it.

    git lowers the case of section and last part and keeps the rest; give the prefix so.
    """
    return {key: value for key, value in configuration.entries(places) if key.startswith(prefix + ".")}


def kb_mappings(places: Places) -> list[tuple[str, str]]:
    """Every configured (code branch, KB branch), whether these branches exist or not."""
    found = config_entries(places, rf"branch\..*\.{_MAPPING}")
    return [(key.removeprefix("branch.")[: -len(f".{_MAPPING}")], kb) for key, kb in found if kb]


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
    configuration.forget(places)


def forget_kb_branch(places: Places, branch: str) -> None:
    """Undo `set_kb_branch`; fine where nothing is written down."""
    arguments = ("config", "--local", "--unset-all", "--", f"branch.{branch}.{_MAPPING}")
    done = git(places, *arguments)
    configuration.forget(places)
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
    configuration.forget(places)


def forget_all(places: Places) -> tuple[str, ...]:
    """Remove everything of ours from the repository's own configuration but the merge driver;
    returns the keys.
    """
    listed = demand(places, "config", "--local", "--null", "--name-only", "--list").text.split("\0")
    keys = tuple(key for key in dict.fromkeys(listed) if _is_own(key))
    for key in keys:
        demand(places, "config", "--local", "--unset-all", "--", key)
    configuration.forget(places)
    return keys


def _is_own(key: str) -> bool:
    """Git lowers the case of a key's first and last part."""
    return key.startswith(("vmrag.", f"{_IMPORTS}.")) or (
        key.startswith("branch.") and key.endswith(f".{_MAPPING.lower()}")
    )


def config_values(places: Places, key: str) -> list[str]:
    """Every value of the keys whose whole name, in lower case, this regular expression matches."""
    return [value for _, value in config_entries(places, key)]


def config_entries(places: Places, key: str) -> list[Entry]:
    """As `config_values`, with the keys as git spells them."""
    wanted = re.compile(key.lower(), re.DOTALL)
    return [each for each in configuration.entries(places) if wanted.fullmatch(each.key)]


def add(places: Places, key: str, value: str) -> None:
    """One more value, in the repository's own configuration."""
    demand(places, "config", "--local", "--add", "--", key, value)
    configuration.forget(places)


def remove(places: Places, key: str, value: str) -> bool:
    """Take one value out of the repository's own configuration; whether it was there."""
    arguments = ("config", "--local", "--fixed-value", "--unset-all", "--", key, value)
    done = git(places, *arguments)
    configuration.forget(places)
    if done.returncode not in (0, _NOT_SET):
        raise failure(arguments, done)
    return done.returncode == 0
