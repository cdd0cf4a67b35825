"""git's conflict in the pin: its three versions, even if `git add` has closed the conflict without
a decision.

git keeps the versions of a conflict in the index as stages: 1 is the base, 2 is ours, 3 is theirs.
Without a conflict, a file has stage 0.
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from vmrag_link import env
from vmrag_link import pin as pins
from vmrag_link.errors import PinMalformed
from vmrag_link.git.git_operation import find_operation
from vmrag_link.git.plumbing import FoundObject, read_pin_entries
from vmrag_link.git.refs import BRANCHES
from vmrag_link.git.run import check_git, run_git
from vmrag_link.models import Record
from vmrag_link.paths import PIN_NAME, Places

Operation = Literal["merge", "rebase", "cherry-pick", "revert", "am", "stash"]

_OR_FRESH = "or 'vmrag pin' to write a fresh one"
_STASH = "refs/stash"
_BRANCHES = (BRANCHES, "refs/remotes/")
_JJ_FOLDER = ".jjconflict"
_HEADS: dict[Operation, str] = {
    "merge": "MERGE_HEAD",
    "rebase": "REBASE_HEAD",
    "cherry-pick": "CHERRY_PICK_HEAD",
    "revert": "REVERT_HEAD",
}


class Stages(NamedTuple):
    """The index's three versions of a pin in conflict. A missing version has the value None."""

    base: bytes | None
    ours: bytes | None
    theirs: bytes | None


class StoppedOperation(Record, frozen=True):
    """A git operation that stopped because of the pin."""

    operation: Operation
    commit: str
    """The commit that it merges, picks or reverts, empty for a stash."""


class UndecidedConflict(Record, frozen=True):
    """A conflict without a decision."""

    stages: Stages
    closed: bool
    """True if `git add` closed it and left one side in the pin."""


def read_stages(places: Places) -> Stages | None:
    """Return the pin's versions during a conflict, otherwise None."""
    conflict = find_undecided(places)
    return conflict.stages if conflict and not conflict.closed else None


def find_undecided(places: Places) -> UndecidedConflict | None:
    """Return the pin's conflict, even if `git add` has closed it. None if the pin differs from both
    sides, or after the git operation has ended.

    `git add --all` is a common reflex in a conflict. The index remembers the versions until git
    checks out something. Without them, the versions are those of the commits.
    """
    staged = {stage: entry.name for stage, entry in read_pin_entries(places).stages.items()}
    if staged.keys() - {0}:
        return UndecidedConflict(_read_contents(places, staged), closed=False)
    stopped = find_stopped_operation(places) if staged else None
    if stopped is None:
        return None
    closed_versions = _read_closed_versions(places)
    if stopped.operation == "stash" and not closed_versions:
        return None
    versions = closed_versions or _read_commit_versions(places, stopped)
    base, ours, theirs = (versions.get(stage) for stage in (1, 2, 3))
    is_conflict = ours and theirs and ours != theirs and base not in (ours, theirs)
    if not is_conflict or staged[0] not in (ours, theirs):
        return None
    if stopped.operation == "stash" and _resolve_object(places, f"{_STASH}:{PIN_NAME}") != theirs:
        return None  # that stash is gone
    return UndecidedConflict(_read_contents(places, versions), closed=True)


def restore_hint(places: Places) -> str:
    """Return the command that restores a pin of the work tree that cannot be read: the staged pin,
    else HEAD's.

    HEAD's pin may be older than the staged one, and in a merge it is only one side.
    """
    entries = read_pin_entries(places)
    if entries.stages.keys() - {0}:
        return "run 'vmrag resolve' to resolve the conflicts"
    if _is_whole(places, entries.stages.get(0)):
        return f"run 'git checkout -- {PIN_NAME} && vmrag sync', {_OR_FRESH}"
    if find_operation(places) and _read_closed_versions(
        places
    ):  # `git add` staged the unreadable file and kept the versions
        return f"run 'git checkout -m -- {PIN_NAME} && vmrag resolve'"
    if _is_whole(places, entries.head):
        return f"run 'git checkout HEAD -- {PIN_NAME} && vmrag sync', {_OR_FRESH}"
    return f"run 'vmrag pin' to write a fresh one, or 'git log -p -- {PIN_NAME}' to see earlier ones"


def _is_whole(places: Places, blob: FoundObject | None) -> bool:
    if blob is None or blob.kind != "blob":
        return False
    try:
        pins.parse_pin(check_git(places, "cat-file", "blob", blob.name).stdout)
    except PinMalformed:
        return False
    return True


def find_stopped_operation(places: Places) -> StoppedOperation | None:
    """Return the git operation in progress that merges commits. A stash is one for as long as it is
    kept.
    """
    current = find_operation(places)
    for operation, ref in _HEADS.items():
        if current == operation:
            return StoppedOperation(operation, _resolve_commit(places, ref))
    if current == "am":
        return StoppedOperation("am", "")
    if heads := env.list_merge_heads():  # a hook runs before MERGE_HEAD is written
        return StoppedOperation("merge", heads[0])
    return StoppedOperation("stash", "") if current is None and _has_stash(places) else None


def is_jj_conflict(places: Places) -> bool:
    """Return whether git has checked out a jj commit with conflicts. jj itself shows them as
    markers. This reads files only.
    """
    return (places.top / "JJ-CONFLICT-README").is_file()


def list_jj_conflict_commits(places: Places, tip: str, without: str | None) -> list[str]:
    """Return the commits that `tip` reaches and `without` does not, in which jj conflicts begin or
    end, oldest first.
    """
    revisions = (tip, *([f"^{without}"] if without else []))
    path = f"{_JJ_FOLDER}-side-0/{PIN_NAME}"
    return check_git(places, "rev-list", "--reverse", "--full-history", *revisions, "--", path).text.split()


def read_jj_conflict_pins(places: Places, commit: str) -> tuple[list[bytes], list[bytes]]:
    """Return the pins of the bases and of the sides of a commit's jj conflicts, or two empty lists.

    Such a commit also has the files of its first side, so its pin can be read. It is the pin of one
    side.
    """
    from vmrag_link.git import history  # rarely needed

    lines = check_git(places, "ls-tree", commit).text.splitlines()
    matches = (re.fullmatch(rf"040000 tree (\w+)\t{re.escape(_JJ_FOLDER)}-(base|side)-\d+", line) for line in lines)
    trees = [(match[2], match[1]) for match in matches if match]
    pins_by_tree = history.read_pins(places, (tree for _, tree in trees))
    bases = [pins_by_tree[tree] for kind, tree in trees if kind == "base" and tree in pins_by_tree]
    sides = [pins_by_tree[tree] for kind, tree in trees if kind == "side" and tree in pins_by_tree]
    return bases, sides


def list_branches_at(places: Places, commit: str) -> list[str]:
    """Return the branches whose tip is the commit, local branches first, by their short names."""
    refs = check_git(places, "for-each-ref", f"--points-at={commit}", "--format=%(refname)", *_BRANCHES).text.split()
    return [ref.split("/", 2)[2] for ref in refs if not ref.endswith("/HEAD")]


def _read_closed_versions(places: Places) -> dict[int, str]:
    """Return the pin's blobs by stage that the index had before `git add` closed a conflict."""
    lines = check_git(places, "ls-files", "--resolve-undo", "-z", "--", PIN_NAME).text.split("\0")
    entries = (line.partition("\t")[0].split(" ") for line in lines if line)
    return {int(stage): blob for _, blob, stage in entries}


def _read_commit_versions(places: Places, stopped: StoppedOperation) -> dict[int, str]:
    """Return the versions with which a merge, a pick or a revert began.

    A rebase is left out: when it stops for `edit`, the commit has been picked already.
    """
    match stopped.operation:
        case "merge":
            from vmrag_link.git.pin_merge import list_merge_bases

            bases = list_merge_bases(places, ["HEAD", stopped.commit])
            commits = {1: bases[0] if bases else "", 2: "HEAD", 3: stopped.commit}
        case "cherry-pick":
            commits = {1: f"{stopped.commit}^", 2: "HEAD", 3: stopped.commit}
        case "revert":
            commits = {1: stopped.commit, 2: "HEAD", 3: f"{stopped.commit}^"}
        case _:
            return {}
    blobs = {stage: _resolve_object(places, f"{commit}:{PIN_NAME}") for stage, commit in commits.items() if commit}
    return {stage: blob for stage, blob in blobs.items() if blob}


def _has_stash(places: Places) -> bool:
    """Return whether a stash exists. This reads files only, because each command calls it."""
    return (places.common / "logs" / _STASH).exists()


def _resolve_commit(places: Places, ref: str) -> str:
    return run_git(places, "rev-parse", "--verify", "--quiet", f"{ref}^{{commit}}").text.strip()


def _resolve_object(places: Places, name: str) -> str | None:
    return run_git(places, "rev-parse", "--verify", "--quiet", name).text.strip() or None


def _read_contents(places: Places, blobs: dict[int, str]) -> Stages:
    return Stages(
        *(check_git(places, "cat-file", "blob", blobs[stage]).stdout if stage in blobs else None for stage in (1, 2, 3))
    )
