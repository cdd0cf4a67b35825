"""The state that all calls at one position share: the workspace and the open indexes.

It runs the operations of commands and tools, and converts their reports to results.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from vmrag_link.api import reading
from vmrag_link.api.results import (
    AnswerPosition,
    CommittedRevision,
    DiffResults,
    DocumentEntry,
    DocumentText,
    DocumentVersion,
    FoundPassage,
    LineMatches,
    RemovedDocuments,
    SearchResults,
    WrittenDocument,
)
from vmrag_link.errors import UsageInvalid
from vmrag_link.git import plumbing
from vmrag_link.git.refs import COMMIT_NAME
from vmrag_link.ops.query.placed_hits import PlacedHit, PlacedHits, place_hits
from vmrag_link.ops.reused_index import ReusedIndex
from vmrag_link.paths import Places
from vmrag_link.progress import QUIET
from vmrag_link.retrieval.query import MOST_BUDGET, MOST_HITS, Mode, Query
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.answers.query import require_query, search_index
from vmrag_link.workspace.follow.provenance import RankedRevision, ranked_at, source_warnings

if TYPE_CHECKING:
    from vmrag_link.api.writing import NewText
    from vmrag_link.retrieval.narrowing import Narrowing

_MOST_REFS = 4
"""Maximum number of open indexes of other git refs."""

_MOST_RESULTS = 1000


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


class PlacedIndex(NamedTuple):
    """The index of a git ref."""

    at: RankedRevision
    held: ReusedIndex


class ApiSession:
    """Run the operations for one thread at a time.

    `keep`: leave indexes open between two calls.
    """

    def __init__(self, places: Places, *, keep: bool) -> None:
        self._ws = Workspace(places, QUIET)
        self._keep = keep
        self._work_tree = ReusedIndex(self._ws)
        self._commits: dict[str, PlacedIndex] = {}

    def close(self) -> None:
        self._work_tree.close_index()
        for placed in self._commits.values():
            placed.held.close_index()
        self._commits.clear()
        self._ws.close()

    @property
    def holds_work_tree(self) -> bool:
        """Return True if the index of the work tree is open."""
        return self._work_tree.is_open

    def position(self, ref: str | None) -> AnswerPosition:
        from vmrag_link.workspace.follow.provenance import find_view_origin

        held = self._placed(ref).held if ref is not None else self._work_tree
        position = held.use_index(lambda _, view: reading.position_of(find_view_origin(self._ws, view).kb))
        self._release()
        return position

    # -- search ------------------------------------------------------------------------------------

    def search(self, question: SearchArguments, ref: str | None) -> SearchResults:
        require_query(question.text)
        placed = self._placed(ref) if ref is not None else None
        query = self._query(question, placed.at if placed else None)
        budget, committed = question.max_tokens, placed is not None
        store: Any = self._ws
        if question.collections and not placed:
            from vmrag_link.ops.stores import stores

            store = stores.find_common_store(self._ws, question.collections)
        if store is not self._ws:  # only on this machine
            hits = search_index(
                store, lambda searcher, view: place_hits(store, searcher, view, query, budget=budget, committed=False)
            )
        else:
            held = placed.held if placed else self._work_tree
            hits = held.use_index(
                lambda searcher, view: place_hits(self._ws, searcher, view, query, budget=budget, committed=committed)
            )
        self._release()
        return _results(question.text, hits)

    def _query(self, question: SearchArguments, at: RankedRevision | None) -> Query:
        settings = at.retrieval if at else self._ws.config.retrieval
        mode = question.mode or settings.mode
        if mode not in list(Mode):
            raise UsageInvalid(
                f"mode must be one of {', '.join(Mode)}; found {mode!r}.", hint="pass a mode, such as 'mode=\"hybrid\"'"
            )
        if question.k is not None and not 0 < question.k <= _MOST_RESULTS:
            raise UsageInvalid(
                f"k must be 1 to {_MOST_RESULTS}; found {question.k}.", hint="pass a number, such as 'k=5'"
            )
        if question.max_tokens is not None and not 0 < question.max_tokens <= MOST_BUDGET:
            raise UsageInvalid(
                f"max_tokens must be 1 to {MOST_BUDGET}.", hint="pass a number, such as 'max_tokens=2000'"
            )
        return Query(
            text=question.text,
            collections=question.collections or None,
            k=question.k or (MOST_HITS if question.max_tokens else settings.k),
            mode=Mode(mode),
            where=question.where,
            where_document=question.where_document,
            narrowing=_narrow(question),
        )

    def _placed(self, ref: str) -> PlacedIndex:
        """Return the index of a ref, which stays open for the next query."""
        commit = ref if re.fullmatch(COMMIT_NAME, ref) else plumbing.resolve_commit(self._ws.places, ref)
        placed = self._commits.pop(commit, None)
        if placed is None:
            at = ranked_at(self._ws, ref, or_files=True)
            placed = PlacedIndex(at, ReusedIndex(self._ws, at))
        self._commits[commit] = placed
        while len(self._commits) > _MOST_REFS:
            self._commits.pop(next(iter(self._commits))).held.close_index()
        return placed

    def _release(self) -> None:
        if not self._keep:
            self._work_tree.close_index()
            self._ws.release_files()

    # -- documents ---------------------------------------------------------------------------------

    def get(self, name: str, ref: str | None) -> DocumentText:
        return reading.get(self._ws, f"{ref}:{name}" if ref is not None else name, name)

    def grep(self, pattern: str, *, ref: str | None, **options: Any) -> LineMatches:
        return reading.grep(self._ws, pattern, ref=ref, **options)

    def list(self, collection: str | None) -> tuple[DocumentEntry, ...]:
        return reading.list_documents(self._ws, collection)

    def diff(self, old: str | None, new: str | None, only: Sequence[str], *, code: bool) -> DiffResults:
        return reading.diff(self._ws, old, new, only, code=code)

    def history(self, name: str, limit: int, ref: str | None) -> tuple[DocumentVersion, ...]:
        return reading.history(self._ws, name, limit, ref)

    def fingerprint(self, ref: str | None) -> str:
        from vmrag_link.ops.fingerprint.fingerprint import compute_fingerprint

        return compute_fingerprint(self._ws, ref=ref).fingerprint

    # -- write -------------------------------------------------------------------------------------

    def add(self, new: NewText) -> WrittenDocument:
        from vmrag_link.api import writing

        return writing.add(self._ws, new)

    def remove(self, names: Sequence[str], collection: str | None) -> RemovedDocuments:
        from vmrag_link.api import writing

        return writing.remove(self._ws, names, collection)

    def commit(self, message: str, *, git: bool, author: str | None) -> CommittedRevision:
        from vmrag_link.api import writing

        return writing.commit(self._ws, message, git=git, author=author)


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
