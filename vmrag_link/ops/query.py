"""`vmrag query`: answer from the knowledge of the code that is checked out, or of another git ref."""

from __future__ import annotations

from vmrag_link.errors import IndexFailed
from vmrag_link.git import plumbing
from vmrag_link.models import Record
from vmrag_link.ops import arrival
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
    if ref is not None:
        return _at(ws, asked, ref)
    reconciled_for_reading(ws)
    return ws.read(lambda view: _answer(ws, asked, view))


def _at(ws: Workspace, asked: Query, ref: str) -> QueryReport:
    revision = arrival.pinned_at(ws, ref)
    for last in (False, True):
        try:
            with ws.snapshot(revision) as path:
                view = View(path, revision, None, dirty=False, git_head=plumbing.head(ws.places).commit)
                return _answer(ws, asked, view)
        except IndexFailed:
            if last or not ws.shelf.discard(ws.shelf.path(revision)):
                raise
    raise AssertionError  # the second attempt returns or raises


def _answer(ws: Workspace, asked: Query, view: View) -> QueryReport:
    searcher = Searcher(view.folder, ws.model_for)
    try:
        results = searcher.search(asked)
    finally:
        searcher.close()
    block = KbBlock(str(ws.places.top), view.git_head, view.branch, view.revision, view.dirty, in_sync=not view.notes)
    return QueryReport(results, block, view.notes)
