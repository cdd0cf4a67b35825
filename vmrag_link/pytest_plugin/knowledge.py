"""The fixture `kb`, and the work trees that a run of pytest has open."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar

if TYPE_CHECKING:
    from vmrag_link.ops.listing import ShowReport
    from vmrag_link.retrieval.query import Hit
    from vmrag_link.workspace import Workspace
    from vmrag_link.workspace.follow.provenance import RankedRevision


class Workspaces:
    """One for each work tree, open until the end of the run: a model is loaded once."""

    def __init__(self) -> None:
        self._tops: dict[Path, Path] = {}
        self._open: dict[Path, Workspace] = {}

    def around(self, folder: Path) -> Workspace:
        """Of the work tree that a folder lies in. Raises `GitRepositoryMissing`."""
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
    """A test's report shows the line of the test that failed, and the hint of the error."""

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
    """The knowledge that the checked-out code pins, with its uncommitted documents; or what a git
    ref pins, ranked as the settings of that commit say.

    Everything raises errors of `vmrag_link.errors` with the command that helps. An answer of
    another revision than the pinned one is never given.
    """

    def __init__(self, ws: Workspace, ref: str | None) -> None:
        self._ws = ws
        self._ref = ref

    @_hinted
    def require(self) -> None:
        """Raise why nothing can be asked."""
        if self._place() is None:
            from vmrag_link.errors import NotInitialized, PinMissing
            from vmrag_link.workspace.follow.follow_pin import follow
            from vmrag_link.workspace.follow.provenance import can_files_answer

            try:
                follow(self._ws, tolerate="failures")
            except (NotInitialized, PinMissing) as why:
                if not can_files_answer(self._ws, why):
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
        """The best chunks, as `vmrag query` finds them: `hit.collection`, `.doc_id`, `.chunk`,
        `.score`, `.text`, `.metadata`.
        """
        from vmrag_link.errors import UsageInvalid
        from vmrag_link.retrieval.query import Mode, Query
        from vmrag_link.workspace.answers.query import answer_query
        from vmrag_link.workspace.follow.provenance import require_pinned

        if mode is not None and mode not in list(Mode):
            raise UsageInvalid(f"mode must be one of {', '.join(Mode)}; found {mode!r}.", hint='mode="hybrid"')
        at = self._place()
        settings = at.retrieval if at else self._ws.config.retrieval
        names = (collection,) if isinstance(collection, str) else tuple(collection or ())
        asked = Query(
            text, names or None, settings.k if k is None else k, Mode(mode or settings.mode), where, where_document
        )
        report = answer_query(self._ws, asked, at=at)
        require_pinned(self._ws, report.notes)
        return report.results

    @_hinted
    def document(self, name: str) -> ShowReport:
        """The document COLLECTION/DOC: `.content`, `.title`, `.metadata`."""
        from vmrag_link.ops.listing import show_file, show_stored
        from vmrag_link.workspace.history.known import explain_missing_file
        from vmrag_link.workspace.history.revparse import WORKING

        at, ref = self._place(), self._ref or WORKING
        with explain_missing_file(self._ws, f"{ref}:{name}"):
            found = show_file(self._ws, f"{ref}:{name}") or show_stored(
                self._ws, f"{(at.revision if at else '') or ref}:{name}"
            )
        if at is None:
            self._require_pinned()
        return found

    @property
    @_hinted
    def revision(self) -> str:
        """The full hash of the revision that is pinned; empty where there is no knowledge base, and
        files of sources answer alone.
        """
        from vmrag_link.workspace.follow.follow_pin import follow

        if at := self._place():
            return at.revision
        if self._ws.is_initialized:
            follow(self._ws, index=False, tolerate="failures")
        return self._require_pinned()

    @property
    @_hinted
    def fingerprint(self) -> str:
        """As `vmrag fingerprint` prints it: where it is equal, equal queries get equal answers."""
        from vmrag_link.ops.fingerprint.fingerprint import compute_fingerprint

        found = compute_fingerprint(self._ws, ref=self._ref)
        if self._ref is None:
            self._require_pinned()
        return found.fingerprint

    def _place(self) -> RankedRevision | None:
        from vmrag_link.workspace.follow.provenance import ranked_at

        return None if self._ref is None else ranked_at(self._ws, self._ref)

    def _require_pinned(self) -> str:
        from vmrag_link.errors import NotInitialized, PinMissing
        from vmrag_link.workspace.follow.provenance import can_files_answer, find_origin, require_pinned

        try:
            stands = find_origin(self._ws)
        except (NotInitialized, PinMissing) as why:
            if not can_files_answer(self._ws, why):
                raise
            return ""
        require_pinned(self._ws, stands.notes)
        return stands.revision
