"""Read the pins in git's history, and offer revisions for a commit without a pin.

A commit from before the first pin has no pin, for example an old tag. Then the user chooses one of
the offers, because vmrag cannot know which documents belong to the commit.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence

from vmrag_link import hints
from vmrag_link.engines.migrated import try_read_pin
from vmrag_link.engines.own_branches import read_root
from vmrag_link.errors import PinMissing, enumerated, plural
from vmrag_link.git import history, plumbing, work_trees
from vmrag_link.git.refs import BRANCHES
from vmrag_link.models import Record
from vmrag_link.paths import Places
from vmrag_link.pin import Pin
from vmrag_link.workspace import Workspace

NO_DOCUMENTS = "begin without documents"
_MAX_LISTED_BRANCHES = 3


def pins_reached(places: Places, commit: str) -> Iterator[tuple[Pin, Sequence[str]]]:
    """Yield the pins of a commit and its ancestors, each with the commits that introduced it."""
    return parse_pins(places, history.list_reachable_pins(places, [commit]))


def pins_after(places: Places, commit: str) -> Iterator[Pin]:
    """Yield the pins that descendants of a commit introduced, oldest first."""
    return filter(None, (try_read_pin(places.kb, data) for data in history.list_pins_after(places, commit).values()))


def read_pins(places: Places, *, reflogs: bool = True, also: Iterable[str] = ()) -> Iterator[tuple[Pin, Sequence[str]]]:
    """Yield each pin in the history of all refs, with the commits that introduced it, newest first.

    `reflogs`: also search reflogs. `also`: more commits to search. Unreadable pins are left out.
    """
    return parse_pins(places, history.list_pins(places, reflogs=reflogs, also=also))


def list_pinned(places: Places) -> list[str]:
    """Return all revisions that git needs, also missing ones, latest first.

    These are the pins of refs, reflogs, work trees and merges in progress.
    """
    uncommitted = (try_read_pin(places.kb, data) for data in work_trees.list_uncommitted_pins(places))
    committed = (pin for pin, _ in read_pins(places, also=work_trees.list_noted_commits(places)))
    return [pin.dolt_commit for pin in (*filter(None, uncommitted), *committed)]


def read_branch_pins(places: Places, branches: Iterable[str]) -> dict[str, str]:
    """Return the pinned revision at the head of each code branch that has a pin."""
    names = {BRANCHES + branch: branch for branch in branches}
    pins = ((names[name], try_read_pin(places.kb, data)) for name, data in history.read_pins(places, names).items())
    return {code: pin.dolt_commit for code, pin in pins if pin}


def is_unpinned(ws: Workspace, pinned: str, head: str) -> bool:
    """Return whether `head` is ahead of the revision `pinned`, and no git commit ever pinned it."""
    engine = ws.engine
    is_ahead = pinned != head and engine.has_revision(pinned) and engine.is_ancestor(pinned, head)
    return is_ahead and head not in list_pinned(ws.places)


def parse_pins(places: Places, commits_by_data: Mapping[bytes, Sequence[str]]) -> Iterator[tuple[Pin, Sequence[str]]]:
    """Yield the readable pins, each with the commits that introduced it.

    `commits_by_data`: commits by the bytes of the pin that they introduced.
    """
    for data, commits in commits_by_data.items():
        if pin := try_read_pin(places.kb, data):
            yield pin, commits


class Offer(Record, frozen=True):
    """A revision that a commit without a pin can pin."""

    revision: str
    documents: int
    """Number of its documents."""
    commit: str
    """The code commit that introduced its pin."""
    branches: tuple[str, ...]
    """Code branches whose head pins it."""

    @property
    def command(self) -> str:
        """The command that accepts the offer."""
        return f"vmrag pin {self.revision}"

    @property
    def described(self) -> str:
        """For example `7 documents, of main` or `7 documents, of commit 1a2b3c4`."""
        whose = enumerated(self.branches[:_MAX_LISTED_BRANCHES]) or (f"commit {self.commit[:7]}" if self.commit else "")
        return plural(self.documents, "document") + (f", of {whose}" if whose else "")


def list_offers(ws: Workspace) -> tuple[Offer, ...]:
    """Return up to two offers: the current revision, and the first one that was pinned after HEAD.

    Without a current revision, the newest pin is offered instead. Only readable revisions with
    documents that exist here are offered.
    """
    code = plumbing.read_head(ws.places).commit
    commits: dict[str, str] = {}
    for pin, introducing in read_pins(ws.places, reflogs=False):
        commits.setdefault(pin.dolt_commit, introducing[0])
    later_revisions = (pin.dolt_commit for pin in pins_after(ws.places, code)) if code else ()
    current = _find_first_usable(ws, filter(None, [ws.current_revision]))
    revisions = [*current, *_find_first_usable(ws, later_revisions)]
    if not current:
        revisions += _find_first_usable(ws, commits)
    branches = _list_branches(ws)
    return tuple(
        Offer(
            revision,
            documents=ws.engine.count_documents(revision),
            commit=commits.get(revision, ""),
            branches=tuple(branches.get(revision, ())),
        )
        for revision in dict.fromkeys(revisions)
    )


def undecided_pin(choices: Sequence[Offer], *, empty: str) -> PinMissing:
    """Return the error if the user must choose a revision.

    `choices`: the offers. `empty`: the command to begin without documents.
    """
    pinned = enumerated([f"{offer.revision} ({offer.described})" for offer in choices])
    listed = f" Other commits pin {pinned}." if len(choices) > 1 else ""  # the hint has the first one
    return PinMissing(
        f"this commit has no pin, and vmrag cannot choose a revision for it.{listed}",
        hint=hints.join_alternatives(
            hints.suggest_command(choices[0].command, f"use {choices[0].described}"),
            hints.suggest_command(empty, NO_DOCUMENTS),
        ),
        offers=[{"revision": offer.revision, "documents": offer.documents} for offer in choices],
    )


def _find_first_usable(ws: Workspace, revisions: Iterable[str]) -> list[str]:
    """Return a list with the first revision that can be offered, or an empty list.

    The first revision of every knowledge base has no documents, so it is not offered.
    """
    engine = ws.engine
    root = read_root(engine)
    usable = (
        revision
        for revision in revisions
        if revision != root and engine.has_revision(revision) and not engine.find_refusal(revision)
    )
    return list(itertools.islice(usable, 1))


def _list_branches(ws: Workspace) -> dict[str, list[str]]:
    """Return the code branches by the revision that their head pins."""
    branches: dict[str, list[str]] = {}
    for code, revision in read_branch_pins(ws.places, sorted(work_trees.list_code_branches(ws.places))).items():
        branches.setdefault(revision, []).append(code)
    return branches
