"""Merges: the configuration of our merge driver, the commits and pins of a merge under way, and
what git makes of two commits as on a code's host, where nobody has configured anything.

The two commits may be strangers'. Nothing of them is checked out; no driver, filter or hook runs,
and no attributes count, neither theirs nor this work tree's.
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
"""The line of `.gitattributes`; `-text` because a pin has one encoding, line ends included."""

_MARKER_SIZE = 7
_SECTION = f"merge.{DRIVER}"
_NO_SUCH_SECTION = "no such section"


def driver_settings(command: str) -> dict[str, str]:
    """All keys of the driver's section."""
    return {"name": "the knowledge of both sides", "driver": command}


def register_driver(places: Places, command: str) -> bool:
    """Write the driver's section to the repository's own configuration; returns whether that
    changed anything.
    """
    wanted = driver_settings(command)
    if read_driver(places) == wanted:
        return False
    for key, value in wanted.items():
        check_git(places, "config", "--local", "--replace-all", f"{_SECTION}.{key}", value)
    return True


def forget_driver(places: Places) -> bool:
    """Remove the whole section: git would die of a driver with a name and no command.

    Returns whether it existed.
    """
    arguments = ("config", "--local", "--remove-section", _SECTION)
    done = run_git(places, *arguments)
    if done.returncode and _NO_SUCH_SECTION not in done.error_text.lower():
        raise build_failure(arguments, done)
    return done.returncode == 0


def read_driver(places: Places) -> dict[str, str]:
    """The keys of the driver's section, in the repository's own configuration."""
    done = run_git(places, "config", "--local", "--null", "--get-regexp", rf"^merge\.{DRIVER}\.")
    entries = (entry.partition("\n") for entry in done.text.split("\0") if entry)
    return {key.removeprefix(f"{_SECTION}."): value for key, _, value in entries}


def is_attributed(places: Places) -> bool:
    """Whether some attributes file sends the pin to our driver."""
    return _attribute(places, "merge") == DRIVER


def names_driver(attributes: bytes) -> bool:
    """Whether this attributes file sends the pin to our driver, whatever others say."""
    lines = (os.fsdecode(line).split() for line in attributes.splitlines())
    return any(f"merge={DRIVER}" in words and words[0].rpartition("/")[2] == PIN_NAME for words in lines)


def read_marker_size(places: Places) -> int:
    """The length of conflict markers in the pin (%L).

    It is larger while git merges several merge bases.
    """
    wanted = _attribute(places, "conflict-marker-size")
    return int(wanted) if wanted.isdecimal() and int(wanted) else _MARKER_SIZE


def _attribute(places: Places, name: str) -> str:
    return check_git(places, "check-attr", "-z", name, "--", PIN_NAME).text.split("\0")[2]


def is_merge(places: Places) -> bool:
    """Whether git merges branches now, rather than picking, reverting or rebasing a commit.

    `git merge` and `git pull` name their heads in the environment, and write MERGE_HEAD only when
    they stop. A rebase that recreates merges writes it before.
    """
    return bool(env.list_merge_heads()) or (places.git_dir / "MERGE_HEAD").exists()


def list_parents(places: Places, commit: str) -> list[str]:
    """The parents of a commit, by full hash."""
    return check_git(places, "rev-list", "--parents", "-n", "1", commit, "--").text.split()[1:]


def read_staged_pin(places: Places, *, index_file: Path | None = None) -> bytes | None:
    """The pin in the index, at most 8 KiB; None if it has none, or one in conflict.

    `index_file`: the index of a commit under way.
    """
    arguments = ("ls-files", "--stage", "-z", "--", PIN_NAME)
    done = run_git(places, *arguments, index_file=index_file)
    if done.returncode:
        raise build_failure(arguments, done)
    for line in filter(None, done.text.split("\0")):
        _, blob, stage = line.partition("\t")[0].split(" ")
        if stage == "0":
            return check_git(places, "cat-file", "blob", blob).stdout[:PIN_READ_LIMIT]
    return None


def withdraw_pin(places: Places) -> Literal["kept", "restored", "removed"]:
    """Take back a pin that was never committed, from the index and the work tree: HEAD's is there
    again, or none.
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
    """HEAD's; None before the first commit, too."""
    done = run_git(places, "cat-file", "blob", f"HEAD:{PIN_NAME}")
    return None if done.returncode else done.stdout


def list_coming_parents(places: Places) -> list[str]:
    """The parents that the commit under way will have: HEAD, and the heads that are merged.

    `pre-merge-commit` runs before MERGE_HEAD is written; then `git merge` names its heads in the
    environment.
    """
    now = read_head(places).commit
    try:
        merged = (places.git_dir / "MERGE_HEAD").read_text().split()
    except FileNotFoundError:
        merged = env.list_merge_heads()
    return [each for each in [now, *merged] if each]


def list_merge_bases(places: Places, commits: list[str]) -> list[str]:
    """All best common ancestors of the first commit and the others."""
    return run_git(places, "merge-base", "--all", *commits).text.split()


_CONFLICT = 1
_MOST_SECONDS = 300.0
"""Thousands of renamed files are compared with each other: a stranger's commit may take hours."""


class MergedTree(Record, frozen=True):
    """A tree, which holds git's markers where it has `conflicts`, paths as git names them."""

    name: str
    conflicts: tuple[str, ...]


def merge_trees(places: Places, ours: str, theirs: str) -> MergedTree:
    """The tree of a merge of two commits, given by their hashes; no ref moves.

    Their history must be here as far back as their merge bases. Raises `GitFailed`, also where it
    is not done after five minutes.
    """
    import tempfile  # few merge, and many import this module

    arguments = ("merge-tree", "--write-tree", "-z", "--name-only", "--no-messages", ours, theirs)
    with tempfile.TemporaryDirectory(prefix="vmrag-merge-") as folder:  # a work tree without attributes
        where = (f"--git-dir={places.git_dir}", f"--work-tree={folder}")
        settings = ("-c", f"core.attributesFile={os.devnull}", "-c", "merge.renormalize=false")
        done = _merged(Path(folder), *where, *settings, *arguments)
    if done.returncode not in (0, _CONFLICT):
        raise build_failure(arguments, done)
    tree, *paths = os.fsdecode(done.stdout).removesuffix("\0").split("\0")
    return MergedTree(tree, tuple(paths) if done.returncode else ())


def _merged(folder: Path, *arguments: str) -> proc.FinishedProcess:
    extra = env.read_unattended() | {"GIT_ATTR_NOSYSTEM": "1"}
    try:
        return run_git_in(folder, *arguments, index_file=folder / "index", extra=extra, timeout=_MOST_SECONDS)
    except TimeoutError as error:
        raise GitFailed(
            f"git did not say within {_MOST_SECONDS:g} s whether they can be merged.",
            hint="git merge, in a clone",
        ) from error
