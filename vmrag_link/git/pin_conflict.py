"""git's conflict in the pin: its three versions, also where `git add` has closed it undecided."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from vmrag_link import env
from vmrag_link import pin as pins
from vmrag_link.errors import PinMalformed
from vmrag_link.git.plumbing import FoundObject, read_pin_entries
from vmrag_link.git.refs import BRANCHES, find_operation
from vmrag_link.git.run import check_git, run_git
from vmrag_link.models import Record
from vmrag_link.paths import PIN_NAME, Places

Operation = Literal["merge", "rebase", "cherry-pick", "revert", "am", "stash"]


class Stages(NamedTuple):
    """The index's three versions of a pin in conflict; None where a side has none."""

    base: bytes | None
    ours: bytes | None
    theirs: bytes | None


class StoppedOperation(Record, frozen=True):
    """An operation of git's that stopped over the pin. `commit`: what it merges, picks or reverts;
    empty for a stash.
    """

    operation: Operation
    commit: str


class UndecidedConflict(Record, frozen=True):
    """A conflict that nobody has decided. `closed`: `git add` took one side as it was."""

    stages: Stages
    closed: bool


def read_stages(places: Places) -> Stages | None:
    """The pin's versions while it is in conflict, else None."""
    found = find_undecided(places)
    return found.stages if found and not found.closed else None


def find_undecided(places: Places) -> UndecidedConflict | None:
    """The pin's conflict, also where `git add` has closed it.

    `git add --all` is what everyone types in a conflict. The index remembers the versions until git
    checks out something; without that they are those of the commits. None once the pin is another
    one than each side's, and when git is not in the middle of the operation any more.
    """
    staged = {stage: found.name for stage, found in read_pin_entries(places).stages.items()}
    if staged.keys() - {0}:
        return UndecidedConflict(_contents(places, staged), closed=False)
    what = find_stopped_operation(places) if staged else None
    if what is None:
        return None
    resolved = _read_resolved(places)
    if what.operation == "stash" and not resolved:
        return None
    versions = resolved or _of_commits(places, what)
    ours, theirs = versions.get(2), versions.get(3)
    changed = ours and theirs and ours != theirs and versions.get(1) not in (ours, theirs)
    if not changed or staged[0] not in (ours, theirs):
        return None
    if what.operation == "stash" and _blob(places, f"{_STASH}:{PIN_NAME}") != theirs:
        return None  # that stash is gone
    return UndecidedConflict(_contents(places, versions), closed=True)


def restore_hint(places: Places) -> str:
    """What brings back a pin of the work tree that cannot be read: the staged one, else HEAD's.

    HEAD's may be a revision older than what is staged, and in a merge it is one side alone.
    """
    entries = read_pin_entries(places)
    if entries.stages.keys() - {0}:
        return "vmrag resolve"
    if _is_whole(places, entries.stages.get(0)):
        return f"git checkout -- {PIN_NAME} && vmrag sync{_OR_FRESH}"
    if find_operation(places) and _read_resolved(places):  # `git add` took what cannot be read, and forgot nothing
        return f"git checkout -m -- {PIN_NAME} && vmrag resolve"
    if _is_whole(places, entries.head):
        return f"git checkout HEAD -- {PIN_NAME} && vmrag sync{_OR_FRESH}"
    return f"vmrag pin   (writes a fresh one; earlier ones: git log -p -- {PIN_NAME})"


def _is_whole(places: Places, blob: FoundObject | None) -> bool:
    if blob is None or blob.kind != "blob":
        return False
    try:
        pins.parse_pin(check_git(places, "cat-file", "blob", blob.name).stdout)
    except PinMalformed:
        return False
    return True


def find_stopped_operation(places: Places) -> StoppedOperation | None:
    """The operation that git is in the middle of, if it merges; a stash is one while it is kept."""
    what = find_operation(places)
    for operation, ref in _HEADS.items():
        if what == operation:
            return StoppedOperation(operation, _commit(places, ref))
    if what == "am":
        return StoppedOperation("am", "")
    if heads := env.list_merge_heads():  # a hook runs before MERGE_HEAD is written
        return StoppedOperation("merge", heads[0])
    return StoppedOperation("stash", "") if what is None and _has_stash(places) else None


def is_jj_conflict(places: Places) -> bool:
    """Whether git has checked out a commit of jj's with conflicts; jj itself shows them as markers.
    Reads files only.
    """
    return (places.top / "JJ-CONFLICT-README").is_file()


def list_jj_conflict_commits(places: Places, tip: str, without: str | None) -> list[str]:
    """The commits that a tip reaches, and `without` does not, in which conflicts of jj's begin or
    end, oldest first.
    """
    wanted = (tip, *([f"^{without}"] if without else []))
    path = f"{_OF_JJ}-side-0/{PIN_NAME}"
    return check_git(places, "rev-list", "--reverse", "--full-history", *wanted, "--", path).text.split()


def read_jj_conflict_pins(places: Places, commit: str) -> tuple[list[bytes], list[bytes]]:
    """The pins of the bases and of the sides of a commit's conflicts; empty where it has none.

    Such a commit has the files of its first side, too, so its pin can be read: it is one side's.
    """
    from vmrag_link.git import history  # rarely needed

    lines = check_git(places, "ls-tree", commit).text.splitlines()
    found = (re.fullmatch(rf"040000 tree (\w+)\t{re.escape(_OF_JJ)}-(base|side)-\d+", line) for line in lines)
    trees = [(each[2], each[1]) for each in found if each]
    data = history.read_pins(places, (tree for _, tree in trees))
    bases, sides = (
        [data[tree] for kind, tree in trees if kind == which and tree in data] for which in ("base", "side")
    )
    return bases, sides


def list_branches_at(places: Places, commit: str) -> list[str]:
    """The branches whose tip is the commit, this repository's own first, as git calls them."""
    refs = check_git(places, "for-each-ref", f"--points-at={commit}", "--format=%(refname)", *_BRANCHES).text.split()
    return [ref.split("/", 2)[2] for ref in refs if not ref.endswith("/HEAD")]


_OR_FRESH = "   (or `vmrag pin`, which writes a fresh one)"
_STASH = "refs/stash"
_BRANCHES = (BRANCHES, "refs/remotes/")
_OF_JJ = ".jjconflict"
_HEADS: dict[Operation, str] = {
    "merge": "MERGE_HEAD",
    "rebase": "REBASE_HEAD",
    "cherry-pick": "CHERRY_PICK_HEAD",
    "revert": "REVERT_HEAD",
}


def _read_resolved(places: Places) -> dict[int, str]:
    """The pin's blobs by stage that the index had before `git add` closed a conflict."""
    lines = check_git(places, "ls-files", "--resolve-undo", "-z", "--", PIN_NAME).text.split("\0")
    entries = (line.partition("\t")[0].split(" ") for line in lines if line)
    return {int(stage): blob for _, blob, stage in entries}


def _of_commits(places: Places, what: StoppedOperation) -> dict[int, str]:
    """The versions that a merge, a pick or a revert began with.

    Not those of a rebase: at its stop for `edit` the commit has been picked already.
    """
    commits: tuple[str | None, str, str]
    match what.operation:
        case "merge":
            from vmrag_link.git.pin_merge import list_merge_bases

            base = next(iter(list_merge_bases(places, ["HEAD", what.commit])), None)
            commits = (base, "HEAD", what.commit)
        case "cherry-pick":
            commits = (f"{what.commit}^", "HEAD", what.commit)
        case "revert":
            commits = (what.commit, "HEAD", f"{what.commit}^")
        case _:
            return {}
    blobs = (_blob(places, f"{commit}:{PIN_NAME}") if commit else None for commit in commits)
    return {number: blob for number, blob in enumerate(blobs, 1) if blob}


def _has_stash(places: Places) -> bool:
    """Reads files only: every command asks."""
    return (places.common / "logs" / _STASH).exists()


def _commit(places: Places, ref: str) -> str:
    return run_git(places, "rev-parse", "--verify", "--quiet", f"{ref}^{{commit}}").text.strip()


def _blob(places: Places, name: str) -> str | None:
    return run_git(places, "rev-parse", "--verify", "--quiet", name).text.strip() or None


def _contents(places: Places, blobs: dict[int, str]) -> Stages:
    read = (check_git(places, "cat-file", "blob", blobs[each]).stdout if each in blobs else None for each in (1, 2, 3))
    return Stages(*read)
