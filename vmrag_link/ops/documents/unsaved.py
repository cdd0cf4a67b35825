"""Documents whose present state no revision holds, and how a command keeps what it takes away."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence

from vmrag_link import clock
from vmrag_link.engines.by_key import documents_by_key
from vmrag_link.merging.replay import AUTHOR
from vmrag_link.merging.threeway import as_rows
from vmrag_link.models import At, Difference, DocumentChange, HeaderChange, Working
from vmrag_link.workspace import DocumentStore, Workspace


def of(
    ws: DocumentStore, at: At, documents: Callable[[tuple[str, str]], bool], collections: Container[str] = ()
) -> Difference:
    """What no revision holds as it is of these documents and of these collections' settings.

    What was removed is none of it: a revision holds that. Of what is not versioned it is nothing:
    there what is removed shall be gone.
    """
    branch = ws.engine.branch(at.branch) if isinstance(ws, Workspace) and isinstance(at, Working) else None
    if branch is None or not branch.dirty:
        return Difference((), ())
    found = ws.engine.diff_headers(branch.head, at)
    lost = [each for each in found.documents if each.after and documents(each.key)]
    homes = {each.key[0] for each in lost}
    rows = (each for each in found.collections if each.after and (each.key in collections or each.key in homes))
    return Difference(tuple(rows), with_texts(ws, at, lost))


def with_texts(ws: DocumentStore, at: At, changes: Sequence[HeaderChange]) -> tuple[DocumentChange, ...]:
    """Changes that lead to what is at a place, with the texts there."""
    rows = documents_by_key(ws.engine, at, [each.key for each in changes if each.after])
    # What somebody removed meanwhile is planned for again: see `writing.write`.
    return tuple(
        DocumentChange(each.kind, each.before, rows.get(each.key))
        for each in changes
        if each.after is None or each.key in rows
    )


def keep(ws: DocumentStore, at: At, lost: Difference, *, before: str) -> str:
    """Commit this to no branch, where it stays reachable; returns the revision, empty for nothing.

    `before`: what the commit's message says will happen.
    """
    branch = ws.engine.branch(at.branch) if isinstance(at, Working) else None
    if branch is None or lost.empty:
        return ""
    message = f"Uncommitted documents of {branch.name}, before {before}"
    return ws.engine.commit_onto(branch.head, [as_rows(lost)], message=message, author=AUTHOR, date=clock.now())
