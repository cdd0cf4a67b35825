"""What is wrong with the pin of one commit.

Only git's history and the revisions' ancestry are asked.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import cached_property
from typing import Literal, NamedTuple

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
    """`mended_by`: the commit that restored what `commit` lost; it is information then."""

    code: Code
    level: Level
    commit: str
    message: str
    hint: str
    mended_by: str | None = None


class Fork(Record, frozen=True):
    """From where a pull request comes: the `url` of the fork, and the `ref` by which the base
    repository has its code.
    """

    url: str
    ref: str


class Flaw(NamedTuple):
    """A finding, and what a later pin must contain to mend it (None: nothing does)."""

    finding: PinFinding
    needs: tuple[str, ...] | None


class ConflictedCommit(NamedTuple):
    """A commit of jj's with conflicts in it, and what its bases and its sides pin. git sees the pin
    of the first side as the commit's own.
    """

    commit: str
    bases: tuple[str, ...]
    sides: tuple[str, ...]

    @property
    def flaw(self) -> Flaw | None:
        """None where the pin is not what is in conflict."""
        changed = tuple(dict.fromkeys(side for side in self.sides if side not in self.bases))
        if len({*self.sides}) < 2 or not changed:  # noqa: PLR2004  sides that differ
            return None
        message = (
            f"Commit {_short(self.commit)} is one of jj's with conflicts, and pins {_short(self.sides[0])}, of one side "
            f"alone; its sides pin {' and '.join(map(_short, dict.fromkeys(self.sides)))}."
        )
        hint = f"jj new {_short(self.commit)}   (resolve its conflicts, that of the pin by: vmrag resolve; then: jj squash)"
        return Flaw(PinFinding("KNOWLEDGE_DROPPED", "error", self.commit, message, hint), changed)


class Examination:
    """Of the commits of one range, parents before children.

    `cut`: a shallow clone could not tell whether something was lost.

    `of_remote`: all that the knowledge base's remote has is here. `fork`: what makes the commits
    known there.
    """

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
        self.cut = False
        self._of_remote = of_remote
        self._fork = fork
        self._merge_bases = merge_bases
        self._pins = pins
        self._ancestry = ancestry
        self._tip = tip
        self._past = past
        self._missing: set[str] = set()

    def examine_commit(self, change: PinChange) -> Flaw | None:
        """What this commit did wrong, not what its parents had done before."""
        sides = [revision for entry in change.before if (revision := self._pins.find_revision(entry))]
        if change.after is None:
            return self._removal(change, sides)
        read = self._pins.read[change.after]
        if isinstance(read, PinMalformed):
            if change.after in change.before:
                return None
            return self._broken("PIN_MALFORMED", change, f"Commit {_short(change.commit)}: {read.message}", sides)
        if not self._ancestry.has_revision(read):
            return self._missing_pin(change, read, sides)
        sides = [side for side in sides if not self._ancestry.accepts_loss(read, side)]
        if len(change.parents) == 1 and sides and not self._ancestry.has_revision(sides[0]):
            return self._unknown(change, sides[0])
        return self._compare(change, read, sides)

    def _compare(self, change: PinChange, pin: str, sides: Sequence[str]) -> Flaw | None:
        if not pinning.find_dropped(self._ancestry, pin, bases=(), sides=sides):
            return None  # the ordinary case, without asking for merge bases
        moved = self._moved_pins(change)
        if moved is None:
            return None
        way, lost = pinning.judge_pin(self._ancestry, pin, sides=sides, moved=moved)
        if way == "fine":
            return None
        if way == "dropped":
            return self._drop(change, f"its pin {_short(pin)} does not contain", lost)
        message = f"Commit {_short(change.commit)} moves the pin back from {_short(lost[0])} to {_short(pin)}."
        hint = f"{_repair(change.commit)} (only if that was not meant)"
        return Flaw(PinFinding("MOVED_BACK", "information", change.commit, message, hint), None)

    def _removal(self, change: PinChange, sides: Sequence[str]) -> Flaw | None:
        inherited = None in change.before
        moved = self._moved_pins(change)
        if moved is None:
            return None
        if not inherited:
            message = f"Commit {_short(change.commit)} removes {PIN_NAME}: from there on code has no knowledge."
            return self._broken("PIN_REMOVED", change, message, moved or sides)
        return self._drop(change, "it has no pin, and so not", moved) if moved else None

    def _drop(self, change: PinChange, why: str, lost: Sequence[str]) -> Flaw:
        merge = len(change.parents) > 1
        what = "merge" if merge else "commit"
        whose = "its parent pins" if not merge else "one of its sides pins" if len(lost) == 1 else "its sides pin"
        named = " and ".join(map(_short, lost))
        message = f"The {what} {_short(change.commit)} drops knowledge: {why} {named}, which {whose}."
        return Flaw(
            PinFinding("KNOWLEDGE_DROPPED", "error", change.commit, message, _repair(change.commit)), tuple(lost)
        )

    def _missing_pin(self, change: PinChange, pin: str, sides: Sequence[str]) -> Flaw | None:
        if pin not in sides:
            self._missing.add(pin)
            return Flaw(self._nowhere(change.commit, pin), self._needs(change, sides))
        others = [side for side in self._moved_pins(change) or () if side != pin]
        return self._unknown(change, pin) if others else None

    def _nowhere(self, commit: str, pin: str) -> PinFinding:
        if self._of_remote:
            return self._not_on_remote(commit, pin)
        message = f"Commit {_short(commit)} pins revision {_short(pin)}, which is not in this knowledge base."
        return PinFinding("PIN_REVISION_MISSING", "error", commit, message, _who(commit))

    def _unknown(self, change: PinChange, revision: str) -> Flaw | None:
        """Report a pin to compare whose revision is not here, once for each revision."""
        if revision in self._missing:
            return None
        self._missing.add(revision)
        message = (
            f"Whether commit {_short(change.commit)} drops knowledge cannot be said: the revision {_short(revision)}, "
            "which a parent pins, is not in this knowledge base."
        )
        whose = next(
            parent
            for parent, entry in zip(change.parents, change.before, strict=True)
            if self._pins.find_revision(entry) == revision
        )
        finding = PinFinding("PIN_REVISION_MISSING", "error", change.commit, message, _who(whose))
        return Flaw(finding, (revision,))

    def _broken(self, code: Code, change: PinChange, message: str, sides: Sequence[str]) -> Flaw:
        finding = PinFinding(code, "error", change.commit, message, self._restoring(change))
        return Flaw(finding, self._needs(change, sides))

    def _restoring(self, change: PinChange) -> str:
        """The command that restores the knowledge: a merge into the tip's pin, or an earlier pin if
        the tip has none.
        """
        if self._last is not None:
            return _repair(change.commit)
        for parent, entry in zip(change.parents, change.before, strict=True):
            if (revision := self._pins.find_revision(entry)) and self._ancestry.has_revision(revision):
                return f"git checkout {_short(parent)} -- {PIN_NAME} && git commit -m 'Restore the pin'"
        return "vmrag pin && git commit -m 'Pin the knowledge'"

    @cached_property
    def _last(self) -> str | None:
        """What the tip pins, if it is here."""
        found = self._pins.ends.get(self._tip)
        return found if found and self._ancestry.has_revision(found) else None

    def _needs(self, change: PinChange, sides: Sequence[str]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(self._moved_pins(change) or sides))

    def _moved_pins(self, change: PinChange) -> list[str] | None:
        """The pins of a merge's sides that moved since the merge bases.

        None if a shallow clone does not have these.
        """
        moved = []
        for parent, entry in zip(change.parents, change.before, strict=True):
            others = [each for each in change.parents if each != parent]
            revision = self._pins.find_revision(entry)
            if not others or revision is None:
                continue
            bases = self._bases(parent, *others)
            if bases is None:
                return None
            if revision not in bases:
                moved.append(revision)
        return moved

    def _bases(self, commit: str, *others: str) -> set[str] | None:
        """What the merge bases pin."""
        bases = self._merge_bases.find_bases(commit, *others)
        if bases is None:
            self.cut = True
            return None
        return self._past.list_revisions(bases)

    # -- more than one commit by itself ------------------------------------------------------------

    def compare_with_base(self, base: str, name: str) -> PinFinding | None:
        """Of a pull request: does its head drop what has come to the base branch since?"""
        tip, head = self._pins.ends.get(base), self._last
        if tip is None or head is None or self._ancestry.accepts_loss(head, tip):
            return None
        bases = self._bases(self._tip, base)
        if bases is None or head in bases:
            return None  # a pin that did not move takes the other side's
        if not pinning.find_dropped(self._ancestry, head, bases=bases, sides=[tip]):
            return None
        message = (
            f"{name} has moved its pin to {_short(tip)} since this branch left it, and {_short(head)}, which this branch pins, "
            "does not contain that: merged as it is, one of them would be dropped."
        )
        hint = f"git merge {quoted(name)} (or git rebase {quoted(name)})"
        return PinFinding("KNOWLEDGE_DROPPED", "error", self._tip, message, hint)

    def list_accepted_losses(self, base: str | None) -> Iterator[PinFinding]:
        """A finding for each revision that accepts a loss and is in the tip's pin, but not in
        that of the base, a commit: a reviewer has to see it.
        """
        if self._last is None:
            return
        before = self._pins.ends.get(base) if base else None
        for info in self._ancestry.list_loss_records(self._last, before):
            lost = revisions.read_accepted_losses(info.message)
            here = [each for each in lost if self._ancestry.has_revision(each)]
            counts = f" It is here, so that counts for nothing: {', '.join(map(_short, here))}." if here else ""
            if len(here) < len(lost) and not self._of_remote:
                counts += " No remote was asked whether it has them: vmrag verify --remote REMOTE asks."
            message = (
                f"Revision {_short(info.revision)} of {info.author} gives up {', '.join(map(_short, lost))}: what only "
                f"that held is left out for good.{counts}"
            )
            hint = f"vmrag log {_short(info.revision)} (says who pinned it); who has it puts it back: vmrag push"
            yield PinFinding("LOSS_ACCEPTED", "information", self._tip, message, hint)

    def list_unreached(
        self, changes: Sequence[PinChange], reachable: Callable[[Collection[str]], Collection[str]]
    ) -> list[Flaw]:
        """The pins, that of the tip included, that the knowledge base's remote does not have.

        Each with the first commit that has it.
        """
        first: dict[str, str] = {}
        for change in changes:
            revision = self._pins.find_revision(change.after)
            before = {self._pins.find_revision(entry) for entry in change.before}
            if revision and self._ancestry.has_revision(revision) and revision not in before:
                first.setdefault(revision, change.commit)
        last = self._pins.ends.get(self._tip)
        gone = [last] if last and not self._ancestry.has_revision(last) and last not in self._missing else []
        if last and last not in self._missing:
            first.setdefault(last, self._tip)
        found = [*gone, *reachable([each for each in first if each not in gone])]
        return [Flaw(self._not_on_remote(first[revision], revision), None) for revision in found]

    def _not_on_remote(self, commit: str, pin: str) -> PinFinding:
        message = f"Commit {_short(commit)} pins revision {_short(pin)}, which the remote does not have."
        hint = f"vmrag push, where it was made (of a fork, a maintainer: vmrag adopt FORK {_short(commit)})"
        if self._fork:
            fetched = f"git fetch origin {quoted(self._fork.ref)}"
            hint = f"{fetched} && vmrag adopt {quoted(self._fork.url)} {_short(commit)}   (a maintainer, in a clone)"
        return PinFinding("NOT_ON_REMOTE", "error", commit, message, hint)

    def holding(self, change: PinChange) -> Callable[[tuple[str, ...] | None], bool]:
        """Whether a commit's pin contains what a flaw needs."""
        return self.holding_pin(self._pins.find_revision(change.after))

    def holding_pin(self, pin: str | None) -> Callable[[tuple[str, ...] | None], bool]:
        """Whether a revision contains what a flaw needs."""
        if pin is None or not self._ancestry.has_revision(pin):
            return lambda _: False
        here = self._ancestry
        return lambda needs: (
            needs is not None
            and all(
                here.accepts_loss(pin, need) or (here.has_revision(need) and here.is_descendant(pin, need))
                for need in needs
            )
        )


def build_not_comparable(tip: str, shown: str) -> PinFinding:
    """Of a shallow clone that ends before what the two ends of a range share."""
    message = f"Whether {shown} drops knowledge cannot be said: this clone is shallow, and ends too early."
    hint = "git fetch --unshallow   (in a workflow: fetch-depth: 0 for actions/checkout; or vmrag verify --deepen)"
    return PinFinding("NOT_COMPARABLE", "error", tip, message, hint)


def _short(name: str) -> str:
    return name[:12]


def _repair(commit: str) -> str:
    return f"vmrag merge --repair {_short(commit)}"


def _who(commit: str) -> str:
    return f"vmrag fetch (who pinned it, and may have to push it: git show --no-patch {_short(commit)})"
