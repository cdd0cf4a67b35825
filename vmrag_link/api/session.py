"""The workspace and the open indexes, which all calls at one position of the work tree share.

`KnowledgeBase` creates a session at its first call, and closes it when the position changes.
`reading` and `writing` use its workspace, and only searches use the indexes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from vmrag_link.api import reading
from vmrag_link.api.results import AnswerPosition, FoundPassage, SearchResults
from vmrag_link.errors import UsageInvalid
from vmrag_link.git import plumbing
from vmrag_link.git.refs import COMMIT_NAME
from vmrag_link.ops.query.placed_hits import PlacedHit, PlacedHits, place_hits
from vmrag_link.ops.reused_index import ReusedIndex
from vmrag_link.paths import Places
from vmrag_link.progress import QUIET
from vmrag_link.retrieval.query import MAX_BUDGET_TOKENS, MAX_PACKED_HITS, Mode, Query
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.answers.query import require_query, search_index
from vmrag_link.workspace.follow.provenance import source_warnings
from vmrag_link.workspace.follow.search_scope import RankedRevision, ranked_at

if TYPE_CHECKING:
    from vmrag_link.retrieval.narrowing import Narrowing
    from vmrag_link.retrieval.search import Searcher
    from vmrag_link.workspace import View

_MAX_REFS = 4
"""Maximum number of open indexes of other git refs."""

_MAX_RESULTS = 1000


class SearchArguments(NamedTuple):
    """The arguments of `KnowledgeBase.search`."""

    text: str
    k: int | None
    mode: str | None
    collections: tuple[str, ...]
    narrowed: Mapping[str, tuple[str, ...]]
    where: Mapping[str, Any] | None
    where_document: Mapping[str, Any] | None
    max_tokens: int | None


class RefIndex(NamedTuple):
    """The index of a git ref."""

    at: RankedRevision
    """The pinned revision, the commit and its settings."""
    reused: ReusedIndex


class ApiSession:
    """The workspace and the open indexes, for one thread at a time.

    `keep`: leave the index of the work tree open between two calls.
    """

    def __init__(self, places: Places, *, keep: bool) -> None:
        self.ws = Workspace(places, QUIET)
        self._keep = keep
        self._work_tree = ReusedIndex(self.ws)
        self._commits: dict[str, RefIndex] = {}
        """Indexes by commit, the last used one at the end."""

    def close(self) -> None:
        self._work_tree.close_index()
        for ref_index in self._commits.values():
            ref_index.reused.close_index()
        self._commits.clear()
        self.ws.close()

    @property
    def holds_work_tree(self) -> bool:
        """Return True if the index of the work tree is open."""
        return self._work_tree.is_open

    def position(self, ref: str | None) -> AnswerPosition:
        """Return the commit and revision that a search answers from."""
        from vmrag_link.workspace.follow.provenance import find_view_origin

        index = self._open_ref(ref).reused if ref is not None else self._work_tree
        position = index.use_index(lambda _, view: reading.position_of(find_view_origin(self.ws, view).kb))
        self._release()
        return position

    def search(self, question: SearchArguments, ref: str | None) -> SearchResults:
        """Return the passages that answer best. `ref`: a git ref, or None for the work tree."""
        require_query(question.text)
        ref_index = self._open_ref(ref) if ref is not None else None
        query = self._query(question, ref_index.at if ref_index else None)
        store: Any = self.ws
        if question.collections and not ref_index:
            from vmrag_link.ops.stores import stores

            store = stores.find_common_store(self.ws, question.collections)

        def place(searcher: Searcher, view: View) -> PlacedHits:
            committed = ref_index is not None
            return place_hits(store, searcher, view, query, budget=question.max_tokens, committed=committed)

        index = ref_index.reused if ref_index else self._work_tree
        # Collections that are only on this machine have an index of their own.
        hits = index.use_index(place) if store is self.ws else search_index(store, place)
        self._release()
        return _results(question.text, hits)

    def _query(self, question: SearchArguments, at: RankedRevision | None) -> Query:
        settings = at.retrieval if at else self.ws.config.retrieval
        mode = question.mode or settings.mode
        if mode not in list(Mode):
            raise UsageInvalid(
                f"mode must be one of {', '.join(Mode)}; found {mode!r}.", hint="pass a mode, such as 'mode=\"hybrid\"'"
            )
        if question.k is not None and not 0 < question.k <= _MAX_RESULTS:
            raise UsageInvalid(
                f"k must be 1 to {_MAX_RESULTS}; found {question.k}.", hint="pass a number, such as 'k=5'"
            )
        if question.max_tokens is not None and not 0 < question.max_tokens <= MAX_BUDGET_TOKENS:
            raise UsageInvalid(
                f"max_tokens must be 1 to {MAX_BUDGET_TOKENS}.", hint="pass a number, such as 'max_tokens=2000'"
            )
        return Query(
            text=question.text,
            collections=question.collections or None,
            k=question.k or (MAX_PACKED_HITS if question.max_tokens else settings.k),
            mode=Mode(mode),
            where=question.where,
            where_document=question.where_document,
            narrowing=_narrow(question),
        )

    def _open_ref(self, ref: str) -> RefIndex:
        """Return the index of a ref, which stays open for the next query."""
        commit = ref if re.fullmatch(COMMIT_NAME, ref) else plumbing.resolve_commit(self.ws.places, ref)
        ref_index = self._commits.pop(commit, None)
        if ref_index is None:
            at = ranked_at(self.ws, ref, or_files=True)
            ref_index = RefIndex(at, ReusedIndex(self.ws, at))
        self._commits[commit] = ref_index
        while len(self._commits) > _MAX_REFS:
            self._commits.pop(next(iter(self._commits))).reused.close_index()
        return ref_index

    def _release(self) -> None:
        if not self._keep:
            self._work_tree.close_index()
            self.ws.release_files()


def _narrow(question: SearchArguments) -> Narrowing | None:
    """Return the filters of a search, None without any.

    Prefixes in the text, such as `path:`, are words.
    """
    if not any(question.narrowed.values()):
        return None
    from vmrag_link.retrieval.narrowing import make_narrowing

    filters = question.narrowed
    return make_narrowing(
        paths=filters["path"], languages=filters["lang"], symbols=filters["symbol"], kinds=filters["kind"]
    )


def _results(text: str, hits: PlacedHits) -> SearchResults:
    return SearchResults(
        query=text,
        passages=tuple(_passage(hit) for hit in hits.hits),
        position=reading.position_of(hits.kb),
        notes=(*hits.notes, *source_warnings(hits.kb)),
        weak=hits.weak,
        left_out=hits.left_out,
    )


def _passage(hit: PlacedHit) -> FoundPassage:
    placed = hit.passage
    name = placed.path if placed.path and placed.revision else placed.name or placed.path
    return FoundPassage(
        rank=placed.rank,
        name=name or f"{placed.collection}/{placed.doc_id}",
        text=placed.text,
        score=hit.score,
        collection=placed.collection,
        doc_id=placed.doc_id,
        path=placed.path,
        lines=placed.lines,
        symbol=placed.symbol,
        heading=placed.heading,
        signature=placed.signature,
        commit=placed.commit or "",
        revision=placed.revision or "",
        uncommitted=placed.uncommitted,
        outdated=placed.outdated,
        cut=placed.cut,
        tokens=placed.tokens,
        metadata=hit.metadata,
    )
