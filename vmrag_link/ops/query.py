"""`vmrag query`: answer from the knowledge of the code that is checked out, or of another git ref."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from vmrag_link.git import plumbing
from vmrag_link.models import Record
from vmrag_link.ops.recover import reconciled_for_reading
from vmrag_link.retrieval.search import Hit, Query, Searcher
from vmrag_link.workspace import View, Workspace


class KbBlock(Record, frozen=True):
    """Where an answer comes from. `commit` is the revision that the index stood at; `in_sync` False: not the pinned one."""

    worktree: str
    git_head: str | None
    branch: str | None
    commit: str
    dirty: bool
    in_sync: bool


class QueryReport(Record, frozen=True):
    """`notes`: why the answer is not from the pinned revision, if so."""

    results: list[Hit]
    kb: KbBlock
    notes: tuple[str, ...] = ()


def query(ws: Workspace, asked: Query, *, ref: str | None = None) -> QueryReport:
    """The best chunks. A pin that moved is followed first; one that cannot be followed leaves the bound revision answering.

    `ref`: answer from the revision that this git ref pins, without touching the workspace.
    """
    with at_ref(ws, ref) if ref else here(ws) as (view, notes):
        searcher = Searcher(view.folder, ws.model_for)
        try:
            results = searcher.search(asked)
        finally:
            searcher.close()
    return QueryReport(results, block(ws, view, in_sync=not notes), notes)


def block(ws: Workspace, view: View, *, in_sync: bool) -> KbBlock:
    head = plumbing.head(ws.places)
    return KbBlock(str(ws.places.top), head.commit, view.branch, view.revision, view.dirty, in_sync)


@contextlib.contextmanager
def here(ws: Workspace) -> Iterator[tuple[View, tuple[str, ...]]]:
    """The workspace's own index, brought to the pin; with the reasons where it could not be."""
    reconciled_for_reading(ws)
    target = ws.target()
    with ws.view() as view:
        stands = target.state == "pinned" and target.revision == view.revision
        yield view, () if stands else (describe(target.state, view.revision),)


def describe(state: str, revision: str) -> str:
    """Why an answer does not come from the pinned revision."""
    why = {
        "no_pin": "This code commit pins no knowledge",
        "malformed": "The pin cannot be read",
        "missing": "The pinned revision is not in this knowledge base",
    }.get(state, "The pin has moved")
    return f"{why}; this answer comes from revision {revision[:7]}. See: vmrag status"


@contextlib.contextmanager
def at_ref(ws: Workspace, ref: str) -> Iterator[tuple[View, tuple[str, ...]]]:
    """The snapshot of the revision that a git ref pins; built if it is not there, and kept as a spare."""
    revision = ws.pinned_at(ref)
    with ws.snapshot(revision) as path:
        yield View(path, revision, None, dirty=False), ()
