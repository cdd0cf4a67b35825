"""The fixture `kb`, and the open work trees of a run of pytest."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar

if TYPE_CHECKING:
    from vmrag_link.ops.show import ShowReport
    from vmrag_link.retrieval.query import Hit
    from vmrag_link.workspace import Workspace
    from vmrag_link.workspace.follow.search_scope import RankedRevision


class Workspaces:
    """The open work trees.

    Each stays open until the end of the run, so that a model is loaded once.
    """

    def __init__(self) -> None:
        self._tops: dict[Path, Path] = {}
        self._open: dict[Path, Workspace] = {}

    def around(self, folder: Path) -> Workspace:
        """Return the work tree around a folder.

        Raises `GitRepositoryMissing`.
        """
        from vmrag_link.git import plumbing
        from vmrag_link.progress import QUIET
        from vmrag_link.workspace import Workspace

        if folder not in self._tops:
            self._tops[folder] = plumbing.locate_work_tree(folder).top
        top = self._tops[folder]
        if top in self._open:
            self._open[top].reload_settings()
        else:
            self._open[top] = Workspace.open(top, QUIET)
        return self._open[top]

    def close(self) -> None:
        while self._open:
            self._open.popitem()[1].close()


P = ParamSpec("P")
T = TypeVar("T")


def _hinted(function: Callable[P, T]) -> Callable[P, T]:
    """Let the report of a test show the failing line of the test, and the hint of the error."""

    @functools.wraps(function)
    def called(*arguments: P.args, **keywords: P.kwargs) -> T:
        from vmrag_link.errors import VmragError

        __tracebackhide__ = True
        try:
            return function(*arguments, **keywords)
        except VmragError as error:
            if error.hint:
                error.add_note(f"hint: {error.hint}")
            raise error.with_traceback(None) from None

    return called


class Kb:
    """The documents that the checked-out code pins, including uncommitted ones, or those that a git
    ref pins, with the settings of that commit.

    All methods raise errors of `vmrag_link.errors`, whose `hint` names the command that helps. An
    answer always comes from the pinned revision.
    """

    def __init__(self, ws: Workspace, ref: str | None) -> None:
        self._ws = ws
        self._ref = ref

    @_hinted
    def require(self) -> None:
        """Raise the reason why a query would fail."""
        if self._place() is None:
            from vmrag_link.errors import NotInitialized, PinMissing
            from vmrag_link.workspace.follow.follow_pin import follow
            from vmrag_link.workspace.follow.search_scope import can_files_answer

            try:
                follow(self._ws, tolerate="failures")
            except (NotInitialized, PinMissing) as error:
                if not can_files_answer(self._ws, error):
                    raise
            self._require_pinned()

    @_hinted
    def query(
        self,
        text: str,
        *,
        collection: str | Sequence[str] | None = None,
        k: int | None = None,
        mode: Literal["hybrid", "vector", "keyword"] | None = None,
        where: Mapping[str, Any] | None = None,
        where_document: Mapping[str, Any] | None = None,
    ) -> list[Hit]:
        """Return the best chunks, like `vmrag query`: `hit.collection`, `.doc_id`, `.chunk`,
        `.score`, `.text`, `.metadata`.
        """
        from vmrag_link.errors import UsageInvalid
        from vmrag_link.retrieval.query import Mode, Query
        from vmrag_link.workspace.answers.query import answer_query
        from vmrag_link.workspace.follow.provenance import require_pinned

        if mode is not None and mode not in list(Mode):
            raise UsageInvalid(
                f"mode must be one of {', '.join(Mode)}; found {mode!r}.", hint="pass a mode, such as 'mode=\"hybrid\"'"
            )
        at = self._place()
        settings = at.retrieval if at else self._ws.config.retrieval
        names = (collection,) if isinstance(collection, str) else tuple(collection or ())
        parsed_query = Query(
            text=text,
            collections=names or None,
            k=settings.k if k is None else k,
            mode=Mode(mode or settings.mode),
            where=where,
            where_document=where_document,
        )
        report = answer_query(self._ws, parsed_query, at=at)
        require_pinned(self._ws, report.notes)
        return report.results

    @_hinted
    def document(self, name: str) -> ShowReport:
        """Return the document COLLECTION/DOC: `.content`, `.title`, `.metadata`."""
        from vmrag_link.ops.show import show_file, show_stored
        from vmrag_link.workspace.history.named_places import explain_missing_file
        from vmrag_link.workspace.history.revparse import WORKING

        at = self._place()
        file_name = f"{self._ref or WORKING}:{name}"
        stored_name = f"{at.revision}:{name}" if at and at.revision else file_name
        with explain_missing_file(self._ws, file_name):
            document = show_file(self._ws, file_name) or show_stored(self._ws, stored_name)
        if at is None:
            self._require_pinned()
        return document

    @property
    @_hinted
    def revision(self) -> str:
        """The full hash of the pinned revision; empty without a knowledge base, if only files of
        sources answer.
        """
        from vmrag_link.workspace.follow.follow_pin import follow

        at = self._place()
        if at:
            return at.revision
        if self._ws.is_initialized:
            follow(self._ws, index=False, tolerate="failures")
        return self._require_pinned()

    @property
    @_hinted
    def fingerprint(self) -> str:
        """The hash of `vmrag fingerprint`. If it is equal, equal queries have equal answers."""
        from vmrag_link.ops.fingerprint.fingerprint import compute_fingerprint

        result = compute_fingerprint(self._ws, ref=self._ref)
        if self._ref is None:
            self._require_pinned()
        return result.fingerprint

    def _place(self) -> RankedRevision | None:
        """Return what the git ref pins; None for the work tree."""
        from vmrag_link.workspace.follow.search_scope import ranked_at

        return None if self._ref is None else ranked_at(self._ws, self._ref)

    def _require_pinned(self) -> str:
        """Return the revision that answers, or raise the reason why it is not the pinned one."""
        from vmrag_link.errors import NotInitialized, PinMissing
        from vmrag_link.workspace.follow.provenance import find_origin, require_pinned
        from vmrag_link.workspace.follow.search_scope import can_files_answer

        try:
            origin = find_origin(self._ws)
        except (NotInitialized, PinMissing) as error:
            if not can_files_answer(self._ws, error):
                raise
            return ""
        require_pinned(self._ws, origin.notes)
        return origin.revision
