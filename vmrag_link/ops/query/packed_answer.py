"""Answer a query for a language model: the best passages with their paths and lines, in a budget of
tokens.

A *hit* is a chunk of the index. Hits of one document are joined to passages, which are whole lines
of the document as it is now. `answers.packing` cuts the text; this module reads the documents.
"""

from __future__ import annotations

from collections.abc import Collection as Several
from collections.abc import Hashable, Iterator, Sequence
from typing import TYPE_CHECKING, Literal, Self

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from vmrag_link.errors import EngineError
from vmrag_link.models import Collection, Document, Record
from vmrag_link.retrieval.query import FIRST_HITS, MAX_BUDGET_TOKENS, Hit, Mode, Query
from vmrag_link.retrieval.search import Searcher
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.answers.packing import (
    PackableDocument,
    PackableHit,
    Packed,
    PackedPassage,
    Span,
    pack_hits,
    whole_symbol,
)
from vmrag_link.workspace.answers.passage_places import PassagePlaces
from vmrag_link.workspace.answers.passages import committed_files, mark_notes, names_of_hits, read_documents
from vmrag_link.workspace.answers.query import answer_from_index, require_query, search_index, with_untracked_matches
from vmrag_link.workspace.documents.copies import StoredCopy, find_copies
from vmrag_link.workspace.follow.provenance import KbBlock, find_view_origin
from vmrag_link.workspace.follow.search_scope import RankedRevision

if TYPE_CHECKING:
    from vmrag_link.workspace import ReadableStore, View

_MAX_WEAK_TOKENS = 400
"""Maximum number of tokens of a weak answer."""


class PackRequest(Record, frozen=True):
    """How to pack an answer."""

    budget: int
    """Maximum number of tokens."""
    neighbours: int = 0
    """Number of chunks to add before and after each hit, if they fit."""
    frugal: bool = False
    """True to leave out hits that are not worth reading, and most of a weak answer."""

    def select_hits(self, hits: Sequence[Hit], mode: Mode, *, weak: bool) -> tuple[Sequence[Hit], Self]:
        """Return the hits to pack, and the request for them."""
        if self.frugal and weak:
            return hits[:FIRST_HITS], replace(self, budget=min(self.budget, _MAX_WEAK_TOKENS))
        if self.frugal and mode == Mode.HYBRID:
            from vmrag_link.retrieval.weakness import select_relevant  # only `search` leaves out hits

            return select_relevant(hits), self
        return hits, self


class PackedReport(Record, frozen=True):
    """A packed answer."""

    passages: tuple[PackedPassage, ...]
    budget: int
    tokens: int
    """Number of tokens of the passages, at most `budget`."""
    left_out: int
    """Number of hits that exceeded the budget."""
    kb: KbBlock
    notes: tuple[str, ...] = ()
    """Why the answer is not from the pinned revision; empty if it is."""
    copies: tuple[StoredCopy, ...] = ()
    """Documents of the answer that are stored copies of tracked files."""
    weak: Literal[True] | UnsetType = UNSET
    """True for a weak answer (`retrieval.weakness`), otherwise UNSET."""


def packed_answer(
    ws: ReadableStore, query: Query, request: PackRequest, *, at: RankedRevision | None = None
) -> PackedReport:
    """Answer a query with passages that fit the budget.

    Raises the errors of `query.answer_query`.
    """
    require_query(query.text)

    def pack_answer(searcher: Searcher, view: View) -> PackedReport:
        report = answer_from_index(ws, searcher, view, query)
        hits, chosen = request.select_hits(report.results, query.mode, weak=report.weak is True)
        packer = HitPacker(ws, searcher, view, hits, committed=at is not None)
        packed = packer.pack_hits(chosen)
        keys = {(passage.collection, passage.doc_id) for passage in packed.passages}
        copies = packer.find_copies(keys) if at is None and report.kb.in_sync else ()
        return PackedReport(
            passages=packed.passages,
            budget=request.budget,
            tokens=packed.tokens,
            left_out=packed.left_out,
            kb=report.kb,
            notes=report.notes,
            copies=copies,
            weak=report.weak,
        )

    report = search_index(ws, pack_answer, at=at)
    if at or not isinstance(ws, Workspace):
        return report
    best = replace(query, k=ws.config.retrieval.k)  # a pack uses all hits
    return replace(report, kb=with_untracked_matches(ws, best, report.kb))


class HitPacker:
    """The hits of an answer, sorted by rank, with their documents. It packs them.

    `view`: the open index. `committed`: the files are those of a commit, not of the work tree.
    """

    def __init__(
        self, ws: ReadableStore, searcher: Searcher, view: View, hits: Sequence[Hit], *, committed: bool = False
    ) -> None:
        self._ws = ws
        self._view = view
        self._hits = hits
        self._committed = committed
        self._revision = find_view_origin(ws, view).kb.commit or None
        self._names = names_of_hits(searcher, hits)
        self._documents: list[tuple[Collection, Document]] = []
        try:
            self._documents = list(read_documents(ws, searcher, view, hits))
        except EngineError as error:  # the index answers without the knowledge base
            ws.progress.note(f"cannot find the places of the results: {error.message}")
        files = committed_files(ws, view, self._documents) if committed else {}
        self._places = {
            document.key: PassagePlaces(ws, collection, document, files.get(document.key))
            for collection, document in self._documents
        }

    def pack_hits(self, request: PackRequest) -> Packed:
        """Return the best hits as passages within the budget."""
        packable, documents = self._prepare_hits(request.neighbours)
        packed = pack_hits(packable, documents, request.budget)
        passages = [replace(passage, also_in=self._hits[passage.rank - 1].also_in) for passage in packed.passages]
        return replace(packed, passages=tuple(self._mark_outdated(passages)))

    def pack_alone(self) -> tuple[PackedPassage, ...]:
        """Return a passage for each hit, in the same order: its whole lines, and nothing else."""
        packable, documents = self._prepare_hits(neighbours=0)
        alone = (replace(hit, spans=hit.spans[-1:]) for hit in packable)
        passages = [pack_hits([hit], documents, MAX_BUDGET_TOKENS).passages[0] for hit in alone]
        passages = [replace(passage, also_in=hit.also_in) for passage, hit in zip(passages, self._hits, strict=True)]
        return tuple(self._mark_outdated(passages))

    def find_copies(self, keys: Several[tuple[str, str]]) -> tuple[StoredCopy, ...]:
        """Return the copies of tracked files among these documents."""
        return find_copies(self._ws, [row for row in self._documents if row[1].key in keys])

    def _prepare_hits(self, neighbours: int) -> tuple[list[PackableHit], dict[Hashable, PackableDocument]]:
        """Return the hits and documents for `packing.pack_hits`."""
        packable: list[PackableHit] = []
        documents: dict[Hashable, PackableDocument] = {}
        for rank, hit in enumerate(self._hits, start=1):
            key: Hashable = (hit.collection, hit.doc_id)
            place = self._places.get((hit.collection, hit.doc_id))
            start = place.find_start(hit) if place else None
            if place is None or start is None:  # the document has changed, so only the text of the hit is known
                key = (hit.collection, hit.doc_id, hit.chunk)
                documents[key] = self._form_document(hit, hit.text, None)
                packable.append(PackableHit(rank, key, ((0, len(hit.text)),)))
                continue
            if key not in documents:
                documents[key] = self._form_document(hit, place.text, place)
            piece = start, start + len(hit.text)
            spans = (symbol_span(place, hit.chunk), piece) if place.pieces else (piece,)
            packable.append(PackableHit(rank, key, spans, tuple(place.find_neighbours(hit, neighbours))))
        return packable, documents

    def _mark_outdated(self, passages: Sequence[PackedPassage]) -> Iterator[PackedPassage]:
        keys = {(passage.collection, passage.doc_id) for passage in passages}
        files = self._view.sources
        commit = files.commit if self._committed and files else None
        outdated = mark_notes(self._ws, [row for row in self._documents if row[1].key in keys], commit)
        for passage in passages:
            yield replace(passage, outdated=outdated.get((passage.collection, passage.doc_id), ""))

    def _form_document(self, hit: Hit, text: str, place: PassagePlaces | None) -> PackableDocument:
        """Return a packable document. `place`: None if only the text of the hit is known."""
        sources = self._view.sources
        files = sources if sources and hit.collection in sources.collections else None
        above = place.lines_above() if place else None
        path = place.path if place and above is not None else None
        return PackableDocument(
            collection=hit.collection,
            doc_id=hit.doc_id,
            text=text,
            path=path,
            above=above if path or not place else 0,
            pieces=place.pieces if place else (),
            headings=place.headings if place else None,
            table_headers=place.table_headers if place else None,
            commit=files.commit if files else None,
            revision=None if files else self._revision,
            uncommitted=files.uncommitted.get(hit.collection, {}).get(hit.doc_id, "") if files else "",
            name=self._names[hit.collection, hit.doc_id],
            kind=hit.kind,
        )


def symbol_span(place: PassagePlaces, number: int) -> Span:
    """Return the place of the whole symbol that a piece is a part of."""
    pieces = whole_symbol(place.pieces, number)
    return place.spans[pieces[0]][0], place.spans[pieces[-1]][1]
