"""Read the pins in the git history, and offer revisions to a commit without a pin.

For example, an old tag or a branch from before the first pin has no pin.
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
_SHOWN_BRANCHES = 3
"""Number of branches that a text names."""


def pins_reached(places: Places, commit: str) -> Iterator[tuple[Pin, Sequence[str]]]:
    """Yield the pins of a commit and its ancestors, as `read_pins` does."""
    return parse_pins(places, history.list_reachable_pins(places, [commit]))


def pins_after(places: Places, commit: str) -> Iterator[Pin]:
    """Yield the pins that descendants of a commit introduced, oldest first."""
    return filter(None, (try_read_pin(places.kb, data) for data in history.list_pins_after(places, commit).values()))


def read_pins(places: Places, *, reflogs: bool = True, also: Iterable[str] = ()) -> Iterator[tuple[Pin, Sequence[str]]]:
    """Yield each pin with the commits that introduced it, newest first, of the refs in
    `git.history.list_pins`.

    Unreadable pins are left out.
    """
    return parse_pins(places, history.list_pins(places, reflogs=reflogs, also=also))


def list_pinned(places: Places) -> list[str]:
    """Return the revisions that anything in git pins, latest first: refs, reflogs, work trees and
    merges in progress.

    Missing revisions are included.
    """
    uncommitted = (try_read_pin(places.kb, data) for data in work_trees.list_uncommitted_pins(places))
    committed = (pin for pin, _ in read_pins(places, also=work_trees.list_noted_commits(places)))
    return [pin.dolt_commit for pin in (*filter(None, uncommitted), *committed)]


def read_branch_pins(places: Places, branches: Iterable[str]) -> dict[str, str]:
    """Return the pinned revision at the end of each code branch.

    Branches without a pin are left out.
    """
    names = {BRANCHES + branch: branch for branch in branches}
    pins = ((names[name], try_read_pin(places.kb, data)) for name, data in history.read_pins(places, names).items())
    return {code: pin.dolt_commit for code, pin in pins if pin}


def is_unpinned(ws: Workspace, pinned: str, head: str) -> bool:
    """Return whether a revision is ahead of the pinned one, and no commit in git ever pinned it."""
    engine = ws.engine
    ahead = pinned != head and engine.has_revision(pinned) and engine.is_ancestor(pinned, head)
    return ahead and head not in list_pinned(ws.places)


def parse_pins(places: Places, commits_by_data: Mapping[bytes, Sequence[str]]) -> Iterator[tuple[Pin, Sequence[str]]]:
    """Yield the pins in the data that commits introduced."""
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
    """Code branches that end with it."""

    @property
    def command(self) -> str:
        return f"vmrag pin {self.revision}"

    @property
    def described(self) -> str:
        """For example `7 documents, of main` or `7 documents, of commit 1a2b3c4`."""
        whose = enumerated(self.branches[:_SHOWN_BRANCHES]) or (f"commit {self.commit[:7]}" if self.commit else "")
        return plural(self.documents, "document") + (f", of {whose}" if whose else "")


def list_offers(ws: Workspace) -> tuple[Offer, ...]:
    """Return the current revision and the first revision that was pinned after HEAD.

    Without a current revision, the newest pin is also offered. Only readable revisions that exist
    here are offered. The result is empty if no other commit pins documents. The revision without
    documents, which is the first of every knowledge base, is left out.
    """
    code = plumbing.read_head(ws.places).commit
    commits: dict[str, str] = {}
    for pin, introduced in read_pins(ws.places, reflogs=False):
        commits.setdefault(pin.dolt_commit, introduced[0])
    current = _find_first_usable(ws, filter(None, [ws.current_revision]))
    later = (pin.dolt_commit for pin in pins_after(ws.places, code)) if code else ()
    revisions = [*current, *_find_first_usable(ws, later), *([] if current else _find_first_usable(ws, commits))]
    ends = _list_branches(ws)
    return tuple(
        Offer(revision, ws.engine.count_documents(revision), commits.get(revision, ""), tuple(ends.get(revision, ())))
        for revision in dict.fromkeys(revisions)
    )


def undecided_pin(choices: Sequence[Offer], *, empty: str) -> PinMissing:
    """Return the error if the user must choose a revision.

    `empty`: the command for no documents.
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
    """Return the first usable revision in a list, or an empty list."""
    engine, root = ws.engine, read_root(ws.engine)
    usable = (
        revision
        for revision in revisions
        if revision != root and engine.has_revision(revision) and not engine.find_refusal(revision)
    )
    return list(itertools.islice(usable, 1))


def _list_branches(ws: Workspace) -> dict[str, list[str]]:
    """Return the code branches that end with each revision."""
    branches: dict[str, list[str]] = {}
    for code, revision in read_branch_pins(ws.places, sorted(work_trees.list_code_branches(ws.places))).items():
        branches.setdefault(revision, []).append(code)
    return branches
