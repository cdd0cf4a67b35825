"""Find what is wrong with the pin of a commit, by git's history and the ancestry of revisions.

A *side* of a commit is the revision that one of its parents pins. The commit's own pin must contain
each side, unless a merge base already pinned it: then the other side decides.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import cached_property
from typing import Literal, NamedTuple

from vmrag_link import hints
from vmrag_link.errors import PinMalformed, quoted
from vmrag_link.git.history import PinChange
from vmrag_link.merging import revisions
from vmrag_link.models import Record
from vmrag_link.ops.verify.verify_pins import PinHistory, ReadPins
from vmrag_link.paths import PIN_NAME
from vmrag_link.workspace.commits.ancestry import Ancestry, MergeBases
from vmrag_link.workspace.pins import pinning

Code = Literal[
    "MOVED_BACK",
    "KNOWLEDGE_DROPPED",
    "PIN_REMOVED",
    "PIN_MALFORMED",
    "PIN_REVISION_MISSING",
    "NOT_ON_REMOTE",
    "NOT_COMPARABLE",
    "LOSS_ACCEPTED",
]
Level = Literal["error", "information"]


class PinFinding(Record, frozen=True):
    """A problem of a commit's pin, or information about it."""

    code: Code
    level: Level
    commit: str
    message: str
    hint: str
    mended_by: str | None = None
    """The commit that restored what `commit` lost. The finding is information then."""


class Fork(Record, frozen=True):
    """The fork that a pull request comes from."""

    url: str
    ref: str
    """The ref with its code in the base repository."""


class Flaw(NamedTuple):
    """A finding, and the revisions that a later pin must contain to restore the loss."""

    finding: PinFinding
    needs: tuple[str, ...] | None
    """None if no pin can restore it."""


class ConflictedCommit(NamedTuple):
    """A jj commit that contains conflicts, with the pins of its bases and sides.

    git sees the pin of the first side as the commit's own pin.
    """

    commit: str
    bases: tuple[str, ...]
    sides: tuple[str, ...]

    @property
    def flaw(self) -> Flaw | None:
        """The flaw of the commit; None if its pin has no conflict."""
        changed = tuple(dict.fromkeys(side for side in self.sides if side not in self.bases))
        if len({*self.sides}) < 2 or not changed:  # noqa: PLR2004  sides that differ
            return None
        message = (
            f"the jj commit {_short_hash(self.commit)} contains conflicts, and pins only {_short_hash(self.sides[0])}; "
            f"its sides pin {' and '.join(map(_short_hash, dict.fromkeys(self.sides)))}."
        )
        hint = (
            f"run 'jj new {_short_hash(self.commit)}', resolve its conflicts ('vmrag resolve' for the pin), then run "
            "'jj squash'"
        )
        return Flaw(PinFinding("KNOWLEDGE_DROPPED", "error", self.commit, message, hint), changed)


class Examination:
    """The checks of one range of commits. Call `examine_commits` first."""

    def __init__(
        self,
        pins: ReadPins,
        ancestry: Ancestry,
        merge_bases: MergeBases,
        past: PinHistory,
        *,
        tip: str,
        of_remote: bool = False,
        fork: Fork | None = None,
    ) -> None:
        """Prepare the examination of the commits up to `tip`.

        `of_remote`: the knowledge base contains everything that its remote has. `fork`: the fork
        from which the remote gets the revisions.
        """
        self.cut = False
        """True after a check for which a shallow clone lacks the merge bases."""
        self._of_remote = of_remote
        self._fork = fork
        self._merge_bases = merge_bases
        self._pins = pins
        self._ancestry = ancestry
        self._tip = tip
        self._past = past
        self._reported_missing: set[str] = set()
        """Missing revisions that have a finding. Each gets only one."""

    def examine_commits(self, changes: Sequence[PinChange]) -> list[Flaw]:
        """Return the flaws that these commits add to those of their parents.

        `changes`: parents before children.
        """
        return [flaw for change in changes if (flaw := self._examine_commit(change))]

    def _examine_commit(self, change: PinChange) -> Flaw | None:
        sides = list(filter(None, map(self._pins.find_revision, change.before)))
        if change.after is None:
            return self._check_removal(change, sides)
        pin = self._pins.read[change.after]
        if isinstance(pin, PinMalformed):
            if change.after in change.before:
                return None
            message = f"commit {_short_hash(change.commit)}: {pin.message}"
            return self._build_broken("PIN_MALFORMED", change, message, sides)
        if not self._ancestry.has_revision(pin):
            return self._check_missing_pin(change, pin, sides)
        sides = [side for side in sides if not self._ancestry.accepts_loss(pin, side)]
        if len(change.parents) == 1 and sides and not self._ancestry.has_revision(sides[0]):
            return self._check_unknown_side(change, sides[0])
        return self._compare_pin(change, pin, sides)

    def _compare_pin(self, change: PinChange, pin: str, sides: Sequence[str]) -> Flaw | None:
        """Check if a pin, whose revision exists here, contains the sides of its commit."""
        if not pinning.find_dropped(self._ancestry, pin, bases=(), sides=sides):
            return None  # the ordinary case, without computing merge bases
        moved = self._list_moved_pins(change)
        if moved is None:
            return None
        verdict, lost = pinning.judge_pin(self._ancestry, pin, sides=sides, moved=moved)
        if verdict == "fine":
            return None
        if verdict == "dropped":
            return self._build_drop(change, f"its pin {_short_hash(pin)} does not contain", lost)
        message = (
            f"commit {_short_hash(change.commit)} moves the pin back from {_short_hash(lost[0])} to {_short_hash(pin)}."
        )
        hint = _form_repair_hint(change.commit)
        return Flaw(PinFinding("MOVED_BACK", "information", change.commit, message, hint), None)

    def _check_removal(self, change: PinChange, sides: Sequence[str]) -> Flaw | None:
        """Check a commit without a pin, which a parent of it has."""
        moved = self._list_moved_pins(change)
        if moved is None:
            return None
        if None not in change.before:  # no parent lacks the pin
            message = (
                f"commit {_short_hash(change.commit)} removes {PIN_NAME}, so the code after it has no knowledge base."
            )
            return self._build_broken("PIN_REMOVED", change, message, moved or sides)
        return self._build_drop(change, "it has no pin, so it lacks", moved) if moved else None

    def _build_drop(self, change: PinChange, reason: str, lost: Sequence[str]) -> Flaw:
        kind = "merge"
        clause = "one of its sides pins" if len(lost) == 1 else "its sides pin"
        if len(change.parents) < 2:  # noqa: PLR2004  not a merge
            kind = "commit"
            clause = "its parent pins"
        revisions_lost = " and ".join(map(_short_hash, lost))
        message = f"the {kind} {_short_hash(change.commit)} drops documents: {reason} {revisions_lost}, which {clause}."
        return Flaw(
            PinFinding("KNOWLEDGE_DROPPED", "error", change.commit, message, _form_repair_hint(change.commit)),
            tuple(lost),
        )

    def _check_missing_pin(self, change: PinChange, pin: str, sides: Sequence[str]) -> Flaw | None:
        """Report a pin whose revision does not exist here, unless it is that of all moved sides."""
        if pin not in sides:
            self._reported_missing.add(pin)
            return Flaw(self._build_missing(change.commit, pin), self._list_needs(change, sides))
        others = [side for side in self._list_moved_pins(change) or () if side != pin]
        return self._check_unknown_side(change, pin) if others else None

    def _build_missing(self, commit: str, pin: str) -> PinFinding:
        if self._of_remote:
            return self._build_not_on_remote(commit, pin)
        message = f"commit {_short_hash(commit)} pins the revision {_short_hash(pin)}, which this knowledge base does not have."
        return PinFinding("PIN_REVISION_MISSING", "error", commit, message, _form_fetch_hint(commit))

    def _check_unknown_side(self, change: PinChange, revision: str) -> Flaw | None:
        """Report a missing revision that a pin must be compared with, once for each revision."""
        if revision in self._reported_missing:
            return None
        self._reported_missing.add(revision)
        message = (
            f"commit {_short_hash(change.commit)} cannot be checked for dropped documents: this knowledge base does not have "
            f"the revision {_short_hash(revision)}, which a parent pins."
        )
        parent_commit = next(
            parent
            for parent, entry in zip(change.parents, change.before, strict=True)
            if self._pins.find_revision(entry) == revision
        )
        finding = PinFinding("PIN_REVISION_MISSING", "error", change.commit, message, _form_fetch_hint(parent_commit))
        return Flaw(finding, (revision,))

    def _build_broken(self, code: Code, change: PinChange, message: str, sides: Sequence[str]) -> Flaw:
        finding = PinFinding(code, "error", change.commit, message, self._form_restore_hint(change))
        return Flaw(finding, self._list_needs(change, sides))

    def _form_restore_hint(self, change: PinChange) -> str:
        """Return the hint to restore the documents.

        It is a merge into the tip's pin, or an earlier pin if the tip has none.
        """
        if self._tip_revision is not None:
            return _form_repair_hint(change.commit)
        for parent, entry in zip(change.parents, change.before, strict=True):
            revision = self._pins.find_revision(entry)
            if revision and self._ancestry.has_revision(revision):
                command = f'git checkout {_short_hash(parent)} -- {PIN_NAME} && git commit -m "Restore the pin"'
                return hints.suggest_command(command, "restore the pin")
        return "run 'vmrag pin && git commit -m \"Pin the documents\"' to write a pin"

    @cached_property
    def _tip_revision(self) -> str | None:
        """The revision that the tip pins; None if the knowledge base does not have it."""
        revision = self._pins.ends.get(self._tip)
        return revision if revision and self._ancestry.has_revision(revision) else None

    def _list_needs(self, change: PinChange, sides: Sequence[str]) -> tuple[str, ...]:
        """Return what a later pin must contain: the sides that moved, or else all sides."""
        return tuple(dict.fromkeys(self._list_moved_pins(change) or sides))

    def _list_moved_pins(self, change: PinChange) -> list[str] | None:
        """Return the sides of a merge that moved since its merge bases; none for other commits.

        None if a shallow clone does not have the merge bases.
        """
        moved = []
        for parent, entry in zip(change.parents, change.before, strict=True):
            others = [other for other in change.parents if other != parent]
            revision = self._pins.find_revision(entry)
            if not others or revision is None:
                continue
            bases = self._list_base_revisions(parent, *others)
            if bases is None:
                return None
            if revision not in bases:
                moved.append(revision)
        return moved

    def _list_base_revisions(self, commit: str, *others: str) -> set[str] | None:
        """Return the revisions that the merge bases pin; None if a shallow clone does not have the
        merge bases.
        """
        bases = self._merge_bases.find_bases(commit, *others)
        if bases is None:
            self.cut = True
            return None
        return self._past.list_revisions(bases)

    def compare_with_base(self, base: str, name: str) -> PinFinding | None:
        """Return a finding if the head of a pull request drops what was added to its base branch
        since the fork point.
        """
        base_revision = self._pins.ends.get(base)
        head = self._tip_revision
        if base_revision is None or head is None or self._ancestry.accepts_loss(head, base_revision):
            return None
        fork_revisions = self._list_base_revisions(self._tip, base)
        if fork_revisions is None or head in fork_revisions:
            return None  # a merge replaces a pin that did not move
        if not pinning.find_dropped(self._ancestry, head, bases=fork_revisions, sides=[base_revision]):
            return None
        message = (
            f"{name} has moved its pin to {_short_hash(base_revision)} since this branch started, and "
            f"{_short_hash(head)}, which this branch pins, does not contain that revision. A merge would drop one of them."
        )
        hint = f"run 'git merge {quoted(name)}', or 'git rebase {quoted(name)}'"
        return PinFinding("KNOWLEDGE_DROPPED", "error", self._tip, message, hint)

    def list_accepted_losses(self, base: str | None) -> Iterator[PinFinding]:
        """Yield a finding for each revision that accepts a loss, and that the tip's pin contains
        and the pin of the base does not.

        `base` is a commit. The findings are for reviewers.
        """
        if self._tip_revision is None:
            return
        before = self._pins.ends.get(base) if base else None
        for info in self._ancestry.list_loss_records(self._tip_revision, before):
            lost = revisions.read_accepted_losses(info.message)
            existing = [revision for revision in lost if self._ancestry.has_revision(revision)]
            remark = ""
            if existing:
                remark = f" This has no effect on revisions that exist: {', '.join(map(_short_hash, existing))}."
            if len(existing) < len(lost) and not self._of_remote:
                remark += " Run 'vmrag verify --remote REMOTE' to check whether a remote has them."
            message = (
                f"revision {_short_hash(info.revision)} by {info.author} accepts the loss of {', '.join(map(_short_hash, lost))}: "
                f"documents that only these revisions contain are lost for good.{remark}"
            )
            hint = (
                f"run 'vmrag log {_short_hash(info.revision)}' to list its pins, or 'vmrag push' in a clone that has a "
                "lost revision to restore it"
            )
            yield PinFinding("LOSS_ACCEPTED", "information", self._tip, message, hint)

    def list_unreached(
        self, changes: Sequence[PinChange], list_lacking: Callable[[Collection[str]], Collection[str]]
    ) -> list[Flaw]:
        """Return a flaw for each pin, including the tip's, that the remote lacks, with the first
        commit that has it.
        """
        first_commits: dict[str, str] = {}
        for change in changes:
            revision = self._pins.find_revision(change.after)
            before = {self._pins.find_revision(entry) for entry in change.before}
            if revision and self._ancestry.has_revision(revision) and revision not in before:
                first_commits.setdefault(revision, change.commit)
        lacking: list[str] = []
        tip_revision = self._pins.ends.get(self._tip)
        if tip_revision and tip_revision not in self._reported_missing:
            if self._ancestry.has_revision(tip_revision):
                first_commits.setdefault(tip_revision, self._tip)
            else:
                lacking.append(tip_revision)
        lacking += list_lacking(list(first_commits))
        return [
            Flaw(self._build_not_on_remote(first_commits.get(revision, self._tip), revision), None)
            for revision in lacking
        ]

    def _build_not_on_remote(self, commit: str, pin: str) -> PinFinding:
        message = f"commit {_short_hash(commit)} pins revision {_short_hash(pin)}, which the remote does not have."
        hint = (
            f"run 'vmrag push' in the clone that made it, or 'vmrag adopt FORK {_short_hash(commit)}' as a "
            "maintainer if a fork made it"
        )
        if self._fork:
            fetched = f"git fetch origin {quoted(self._fork.ref)}"
            hint = (
                f"run '{fetched} && vmrag adopt {quoted(self._fork.url)} {_short_hash(commit)}' in a clone, as a "
                "maintainer"
            )
        return PinFinding("NOT_ON_REMOTE", "error", commit, message, hint)

    def restores_loss(self, pin: str | None, flaw: Flaw) -> bool:
        """Return whether a pinned revision contains everything that a flaw needs, or accepts its
        loss.
        """
        ancestry = self._ancestry
        if flaw.needs is None or pin is None or not ancestry.has_revision(pin):
            return False
        return all(
            ancestry.accepts_loss(pin, need) or (ancestry.has_revision(need) and ancestry.is_descendant(pin, need))
            for need in flaw.needs
        )


def build_not_comparable(tip: str, shown: str) -> PinFinding:
    """Build the finding of a shallow clone that ends before the common history of both ends of a
    range.
    """
    message = f"{shown} cannot be checked for dropped documents, because this clone is too shallow."
    hint = "run 'git fetch --unshallow', or set 'fetch-depth: 0' for actions/checkout in a workflow"
    return PinFinding("NOT_COMPARABLE", "error", tip, message, hint)


def _short_hash(name: str) -> str:
    return name[:12]


def _form_repair_hint(commit: str) -> str:
    return hints.suggest_command(f"vmrag merge --repair {_short_hash(commit)}", "restore the documents")


def _form_fetch_hint(commit: str) -> str:
    return f"run 'vmrag fetch' to fetch it, or 'git show --no-patch {_short_hash(commit)}' to see who can push it"
