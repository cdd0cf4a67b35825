"""Merges: the configuration of the vmrag merge driver, the commits and pins of a merge in progress,
and the result of merging two commits as a code host does it, without any configuration.

The two commits may be untrusted. Nothing is checked out. No driver, filter or hook runs, and no
attributes apply, neither from the commits nor from this work tree.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

from vmrag_link import env, proc
from vmrag_link.errors import GitFailed
from vmrag_link.git.refs import read_head
from vmrag_link.git.run import build_failure, check_git, run_git, run_git_in
from vmrag_link.models import Record
from vmrag_link.paths import PIN_NAME, PIN_READ_LIMIT, Places

DRIVER = "vmrag"
ATTRIBUTE = f"{PIN_NAME} merge={DRIVER} -text"
"""Line of `.gitattributes`. `-text`, because a pin has one encoding, including its line ends."""

_MARKER_SIZE = 7
_SECTION = f"merge.{DRIVER}"
_NO_SUCH_SECTION = "no such section"


def driver_settings(command: str) -> dict[str, str]:
    """Return all keys of the driver's section."""
    return {"name": "the knowledge of both sides", "driver": command}


def register_driver(places: Places, command: str) -> bool:
    """Write the driver's section to the repository's own configuration, and return whether it
    changed.
    """
    settings = driver_settings(command)
    if read_driver(places) == settings:
        return False
    for key, value in settings.items():
        check_git(places, "config", "--local", "--replace-all", f"{_SECTION}.{key}", value)
    return True


def forget_driver(places: Places) -> bool:
    """Remove the whole section, and return whether it existed. git fails on a driver with a name
    and no command.
    """
    arguments = ("config", "--local", "--remove-section", _SECTION)
    finished = run_git(places, *arguments)
    if finished.returncode and _NO_SUCH_SECTION not in finished.error_text.lower():
        raise build_failure(arguments, finished)
    return finished.returncode == 0


def read_driver(places: Places) -> dict[str, str]:
    """Return the keys of the driver's section in the repository's own configuration."""
    finished = run_git(places, "config", "--local", "--null", "--get-regexp", rf"^merge\.{DRIVER}\.")
    entries = (entry.partition("\n") for entry in finished.text.split("\0") if entry)
    return {key.removeprefix(f"{_SECTION}."): value for key, _, value in entries}


def is_attributed(places: Places) -> bool:
    """Return whether an attributes file assigns the pin to our driver."""
    return _read_attribute(places, "merge") == DRIVER


def names_driver(attributes: bytes) -> bool:
    """Return whether this attributes file assigns the pin to our driver, regardless of other
    files.
    """
    lines = (os.fsdecode(line).split() for line in attributes.splitlines())
    return any(f"merge={DRIVER}" in words and words[0].rpartition("/")[2] == PIN_NAME for words in lines)


def read_marker_size(places: Places) -> int:
    """Return the length of conflict markers in the pin (%L).

    It is larger while git merges several merge bases.
    """
    size = _read_attribute(places, "conflict-marker-size")
    return int(size) if size.isdecimal() and int(size) else _MARKER_SIZE


def _read_attribute(places: Places, name: str) -> str:
    return check_git(places, "check-attr", "-z", name, "--", PIN_NAME).text.split("\0")[2]


def is_merge(places: Places) -> bool:
    """Return whether git merges branches now, rather than picking, reverting or rebasing a commit.

    `git merge` and `git pull` put their heads into the environment, and write MERGE_HEAD only if
    they stop. A rebase that recreates merges writes MERGE_HEAD before it commits.
    """
    return bool(env.list_merge_heads()) or (places.git_dir / "MERGE_HEAD").exists()


def list_parents(places: Places, commit: str) -> list[str]:
    """Return the parents of a commit by full hash."""
    return check_git(places, "rev-list", "--parents", "-n", "1", commit, "--").text.split()[1:]


def read_staged_pin(places: Places, *, index_file: Path | None = None) -> bytes | None:
    """Return the pin in the index, at most 8 KiB. None if the index has no pin, or one in conflict.

    `index_file`: the index of a commit in progress.
    """
    arguments = ("ls-files", "--stage", "-z", "--", PIN_NAME)
    finished = run_git(places, *arguments, index_file=index_file)
    if finished.returncode:
        raise build_failure(arguments, finished)
    for line in filter(None, finished.text.split("\0")):
        _, blob, stage = line.partition("\t")[0].split(" ")
        if stage == "0":
            return check_git(places, "cat-file", "blob", blob).stdout[:PIN_READ_LIMIT]
    return None


def withdraw_pin(places: Places) -> Literal["kept", "restored", "removed"]:
    """Remove a pin that was never committed from the index and the work tree. HEAD's pin is
    restored if it exists.
    """
    before = _committed_pin(places)
    if before is None:
        check_git(places, "rm", "--cached", "--force", "--quiet", "--ignore-unmatch", "--", PIN_NAME)
        places.pin.unlink(missing_ok=True)
        return "removed"
    if before == read_staged_pin(places) == (places.pin.read_bytes() if places.pin.is_file() else None):
        return "kept"
    check_git(places, "checkout", "--quiet", "HEAD", "--", PIN_NAME)
    return "restored"


def _committed_pin(places: Places) -> bytes | None:
    """Return HEAD's pin. None if HEAD has none, or before the first commit."""
    finished = run_git(places, "cat-file", "blob", f"HEAD:{PIN_NAME}")
    return None if finished.returncode else finished.stdout


def list_coming_parents(places: Places) -> list[str]:
    """Return the parents that the commit in progress will have: HEAD, and the merged heads.

    `pre-merge-commit` runs before MERGE_HEAD is written. Then `git merge` has put its heads into
    the environment.
    """
    head_commit = read_head(places).commit
    try:
        merged = (places.git_dir / "MERGE_HEAD").read_text().split()
    except FileNotFoundError:
        merged = env.list_merge_heads()
    return [commit for commit in [head_commit, *merged] if commit]


def list_merge_bases(places: Places, commits: list[str]) -> list[str]:
    """Return all best common ancestors of the first commit and the others."""
    return run_git(places, "merge-base", "--all", *commits).text.split()


_CONFLICT = 1
_MOST_SECONDS = 300.0
"""git compares thousands of renamed files with each other, so an untrusted commit may take hours.
"""


class MergedTree(Record, frozen=True):
    """A merged tree. If it has `conflicts`, these files contain git's markers. Their paths are as
    git names them.
    """

    name: str
    conflicts: tuple[str, ...]


def merge_trees(places: Places, ours: str, theirs: str) -> MergedTree:
    """Return the tree of a merge of two commits, given by their hashes. No ref moves.

    Their history must be in this clone back to their merge bases. Raises `GitFailed`, also after
    five minutes.
    """
    import tempfile  # few merge, and many import this module

    arguments = ("merge-tree", "--write-tree", "-z", "--name-only", "--no-messages", ours, theirs)
    with tempfile.TemporaryDirectory(prefix="vmrag-merge-") as folder:  # a work tree without attributes
        repository = (f"--git-dir={places.git_dir}", f"--work-tree={folder}")
        settings = ("-c", f"core.attributesFile={os.devnull}", "-c", "merge.renormalize=false")
        finished = _run_merge(Path(folder), *repository, *settings, *arguments)
    if finished.returncode not in (0, _CONFLICT):
        raise build_failure(arguments, finished)
    tree, *paths = os.fsdecode(finished.stdout).removesuffix("\0").split("\0")
    return MergedTree(tree, tuple(paths) if finished.returncode else ())


def _run_merge(folder: Path, *arguments: str) -> proc.FinishedProcess:
    extra = env.read_unattended() | {"GIT_ATTR_NOSYSTEM": "1"}
    try:
        return run_git_in(folder, *arguments, index_file=folder / "index", extra=extra, timeout=_MOST_SECONDS)
    except TimeoutError as error:
        raise GitFailed(
            f"git took more than {_MOST_SECONDS:g} s to merge the two commits.",
            hint="run 'git merge' in a clone, and push the result",
        ) from error
