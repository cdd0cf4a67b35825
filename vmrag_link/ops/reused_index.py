"""An index that stays open for many queries of one program, for the Python API."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TypeVar

from vmrag_link.errors import NO_DOCUMENTS, IndexFailed
from vmrag_link.git import plumbing
from vmrag_link.retrieval.ranking import read_ranking
from vmrag_link.retrieval.search import Searcher
from vmrag_link.workspace import Workspace, reasons
from vmrag_link.workspace.answers.query import search_index, view_at
from vmrag_link.workspace.follow.follow_pin import read_consistently
from vmrag_link.workspace.follow.search_scope import RankedRevision
from vmrag_link.workspace.reader import View

T = TypeVar("T")


class ReusedIndex:
    """The index of the work tree at the first query, or of a git ref (`at`).

    No process removes it before `close_index`. An index with uncommitted documents of the knowledge
    base is not kept open, because writers would wait: each query opens it again.
    """

    def __init__(self, ws: Workspace, at: RankedRevision | None = None) -> None:
        self._ws = ws
        self._at = at
        self._stack = contextlib.ExitStack()
        self._opened: tuple[Searcher, View] | None = None

    @property
    def is_open(self) -> bool:
        return self._opened is not None

    def close_index(self) -> None:
        self._opened = None
        self._stack.close()

    def use_index(self, use: Callable[[Searcher, View], T]) -> T:
        """Return the result of `use`, which gets the open index.

        The errors are those of `query.search_index`.
        """
        try:
            searcher, view = self._opened or self._open_index()
            answer = use(searcher, view)
        except IndexFailed:
            self.close_index()  # the index is built again, which needs an exclusive lock
            return search_index(self._ws, use, at=self._at)
        if self._follows_writers(view):
            self.close_index()
        return answer

    def _open_index(self) -> tuple[Searcher, View]:
        self._opened = self._enter_view(view_at(self._ws, self._at)) if self._at else self._open_work_tree()
        return self._opened

    def _open_work_tree(self) -> tuple[Searcher, View]:
        try:
            return read_consistently(self._ws, lambda: self._enter_view(self._ws.reader.view()))
        except NO_DOCUMENTS as error:
            if not self._ws.sources.configured:
                raise
            return self._enter_view(self._view_files(reasons.explain_missing_documents(error)))

    @contextlib.contextmanager
    def _view_files(self, notes: tuple[str, ...]) -> Iterator[View]:
        """Open the index of the files of sources alone."""
        with self._ws.source_index.open_work_tree(stored=self._ws.list_stored_collections()) as opened:
            assert opened is not None  # noqa: S101  sources are configured
            head = plumbing.read_head(self._ws.places).commit
            yield View(opened.folder, "", None, dirty=False, git_head=head, notes=notes, sources=opened)

    def _enter_view(self, opening: contextlib.AbstractContextManager[View]) -> tuple[Searcher, View]:
        """Keep a view and its searcher open, and close the last ones."""
        self.close_index()
        ranking = read_ranking(self._at.retrieval) if self._at else self._ws.ranking
        with contextlib.ExitStack() as stack:
            view = stack.enter_context(opening)
            searcher = Searcher(view.folder, self._ws.models.load_for, ranking, more=view.more)
            stack.enter_context(contextlib.closing(searcher))
            self._stack = stack.pop_all()
        return searcher, view

    def _follows_writers(self, view: View) -> bool:
        """Return True if the view is the working copy, which follows uncommitted documents."""
        return bool(view.revision) and view.folder != self._ws.views.view_path(view.revision)
