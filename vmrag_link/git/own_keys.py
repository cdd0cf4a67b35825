"""vmrag's own keys in the repository's configuration, which git neither commits nor pushes.

* `branch.CODE.vmragBranch`: the KB branch on which documents of a code branch are written. The key
  ends with `-` and the key of a work tree if it applies to that work tree alone.
* `vmrag-import.COLLECTION.base`: the folder from which a collection is imported on this machine.
* `vmrag.…`: settings that users write, for example the git remote for `git:`.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from vmrag_link.git.configuration import read_config_entries, read_section, remove_value, set_value
from vmrag_link.git.run import check_git
from vmrag_link.paths import Places

_MAPPING = "vmragBranch"
_IMPORTS = "vmrag-import"


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
    mappings = []
    for key, kb_branch in entries:
        code, _, name = key.removeprefix("branch.").rpartition(".")
        if kb_branch:
            mappings.append(KbMapping(code, kb_branch, tree=name.partition("-")[2]))
    return mappings


def format_tree_key(git_dir: Path) -> str:
    """Return the end of the keys of a work tree's own mappings.

    It is derived from git's folder for the work tree, which `git worktree move` does not rename.
    """
    import hashlib  # needed only if several work trees have one branch checked out

    return hashlib.sha256(os.fsencode(git_dir.name)).hexdigest()[:12]


def read_kb_branches(places: Places) -> dict[str, str]:
    """Return the KB branches by code branch, without those of a single work tree."""
    return {owner.code: owner.kb_branch for owner in _first_owners(places).values() if not owner.tree}


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
    """Return the mapping that owns each KB branch, by KB branch.

    `git branch -m` and `-D` rename and remove the entries. `git branch -c` copies the entry and
    appends the copy, so the first entry owns the KB branch.
    """
    owners: dict[str, KbMapping] = {}
    for kb_mapping in list_kb_mappings(places):
        owners.setdefault(kb_mapping.kb_branch, kb_mapping)
    return owners


def set_kb_branch(places: Places, branch: str, kb_branch: str, *, of_tree: bool = False) -> None:
    """Write the mapping of a code branch, replacing an older one.

    With `of_tree`, it applies to this work tree alone.
    """
    tree = format_tree_key(places.git_dir) if of_tree else ""
    set_value(places, _mapping_key(branch, tree), kb_branch)


def forget_kb_branch(places: Places, branch: str, tree: str = "") -> None:
    """Remove a mapping that `set_kb_branch` wrote, if it exists."""
    remove_value(places, _mapping_key(branch, tree))


def _mapping_key(branch: str, tree: str) -> str:
    return f"branch.{branch}.{_MAPPING}-{tree}" if tree else f"branch.{branch}.{_MAPPING}"


def read_import_folder(places: Places, collection: str) -> Path | None:
    """Return the folder outside the repository from which a collection is imported on this machine,
    or None.
    """
    section = f"{_IMPORTS}.{collection}"
    value = read_section(places, section).get(f"{section}.base")
    return Path(value) if value and Path(value).is_absolute() else None


def set_import_folder(places: Places, collection: str, folder: Path) -> None:
    """Record the folder for `read_import_folder`, replacing an older one."""
    set_value(places, f"{_IMPORTS}.{collection}.base", str(folder))


def remove_own_keys(places: Places) -> tuple[str, ...]:
    """Remove all vmrag keys except those of the merge driver, and return them."""
    keys = list_own_keys(places)
    for key in keys:
        remove_value(places, key)
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
