"""The pins of git's whole history, read; and which knowledge a commit that pins none could take:
that of an old tag, say, or of another branch from before there was a pin.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence

from vmrag_link.engines.base import read_root
from vmrag_link.engines.migrated import try_read_pin
from vmrag_link.errors import PinMissing, enumerated, plural
from vmrag_link.git import history, plumbing, refs
from vmrag_link.git.refs import BRANCHES
from vmrag_link.models import Record
from vmrag_link.paths import Places
from vmrag_link.pin import Pin
from vmrag_link.workspace import Workspace

NO_DOCUMENTS = "no documents, to import this commit's own"
_MOST = 3
"""Branches that are named."""


def pins_reached(places: Places, commit: str) -> Iterator[tuple[Pin, Sequence[str]]]:
    """As `read_pins`, of a commit and its ancestors."""
    return parse_pins(places, history.list_reachable_pins(places, [commit]))


def pins_after(places: Places, commit: str) -> Iterator[Pin]:
    """The pins that descendants of a commit introduce, oldest first."""
    return filter(None, (try_read_pin(places.kb, data) for data in history.list_pins_after(places, commit).values()))


def read_pins(places: Places, *, reflogs: bool = True, also: Iterable[str] = ()) -> Iterator[tuple[Pin, Sequence[str]]]:
    """Each pin with the commits that introduced it, newest first, of the refs in
    `git.history.pins`.

    Unreadable pins are left out.
    """
    return parse_pins(places, history.list_pins(places, reflogs=reflogs, also=also))


def list_pinned(places: Places) -> list[str]:
    """The revisions that something of git's pins, here or not, latest first: its refs, reflogs,
    work trees, and what it is in the middle of.
    """
    uncommitted = (try_read_pin(places.kb, data) for data in refs.list_uncommitted_pins(places))
    committed = (pin for pin, _ in read_pins(places, also=refs.list_noted_commits(places)))
    return [pin.dolt_commit for pin in (*filter(None, uncommitted), *committed)]


def read_branch_pins(places: Places, branches: Iterable[str]) -> dict[str, str]:
    """The revision that each code branch ends with, of those that end with one."""
    names = {BRANCHES + branch: branch for branch in branches}
    found = ((names[name], try_read_pin(places.kb, data)) for name, data in history.read_pins(places, names).items())
    return {code: pin.dolt_commit for code, pin in found if pin}


def is_unpinned(ws: Workspace, pinned: str, head: str) -> bool:
    """Whether a revision is ahead of the pinned one, and nothing of git's ever pinned it."""
    engine = ws.engine
    ahead = pinned != head and engine.has_revision(pinned) and engine.is_ancestor(pinned, head)
    return ahead and head not in list_pinned(ws.places)


def parse_pins(places: Places, found: Mapping[bytes, Sequence[str]]) -> Iterator[tuple[Pin, Sequence[str]]]:
    """Read the pins among what commits introduced."""
    for data, commits in found.items():
        if pin := try_read_pin(places.kb, data):
            yield pin, commits


class Offer(Record, frozen=True):
    """A revision with its number of documents; `commit` of the code introduced its pin, and the
    `branches` of the code end with it.
    """

    revision: str
    documents: int
    commit: str
    branches: tuple[str, ...]

    @property
    def command(self) -> str:
        return f"vmrag pin {self.revision}"

    @property
    def described(self) -> str:
        """`7 documents, of main`; `7 documents, of commit 1a2b3c4`."""
        whose = enumerated(self.branches[:_MOST]) or (f"commit {self.commit[:7]}" if self.commit else "")
        return plural(self.documents, "document") + (f", of {whose}" if whose else "")


def list_offers(ws: Workspace) -> tuple[Offer, ...]:
    """Where the work tree stands, and what was pinned first after HEAD; the newest pin, too, where
    the work tree stands nowhere.

    Only what is here and can be read, and nothing where no other commit pins documents. The
    revision without documents, which every knowledge base begins with, is not among them.
    """
    code = plumbing.read_head(ws.places).commit
    commits: dict[str, str] = {}
    for pin, introduced in read_pins(ws.places, reflogs=False):
        commits.setdefault(pin.dolt_commit, introduced[0])
    stands = _usable(ws, filter(None, [ws.current_revision]))
    later = (pin.dolt_commit for pin in pins_after(ws.places, code)) if code else ()
    found = [*stands, *_usable(ws, later), *([] if stands else _usable(ws, commits))]
    ends = _branches_at(ws)
    return tuple(
        Offer(each, ws.engine.count_documents(each), commits.get(each, ""), tuple(ends.get(each, ())))
        for each in dict.fromkeys(found)
    )


def undecided_pin(found: Sequence[Offer], *, empty: str) -> PinMissing:
    """The error where a person has to say which it should be; `empty`: the command for none."""
    return PinMissing(
        "This code commit pins no knowledge, while others do, and nothing says which it should have.",
        hint=f"{', '.join(f'{each.command} ({each.described})' for each in found)}, or {empty} ({NO_DOCUMENTS})",
        offers=[{"revision": each.revision, "documents": each.documents} for each in found],
    )


def _usable(ws: Workspace, revisions: Iterable[str]) -> list[str]:
    """The first of these revisions that can be taken, if any can."""
    engine, root = ws.engine, read_root(ws.engine)
    usable = (
        revision
        for revision in revisions
        if revision != root and engine.has_revision(revision) and not engine.find_refusal(revision)
    )
    return list(itertools.islice(usable, 1))


def _branches_at(ws: Workspace) -> dict[str, list[str]]:
    """Each revision that a local branch of the code ends with, and these branches."""
    found: dict[str, list[str]] = {}
    for code, revision in read_branch_pins(ws.places, sorted(refs.list_code_branches(ws.places))).items():
        found.setdefault(revision, []).append(code)
    return found
