"""Answer a query for programs: hits with places and scores, or the best hits that fit a budget."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from vmrag_link.models import Record
from vmrag_link.ops.query.packed_answer import HitPacker, PackRequest
from vmrag_link.retrieval.query import Query
from vmrag_link.retrieval.search import Searcher
from vmrag_link.workspace.answers.packing import PackedPassage
from vmrag_link.workspace.answers.query import answer_from_index
from vmrag_link.workspace.follow.provenance import KbBlock

if TYPE_CHECKING:
    from vmrag_link.workspace import ReadableStore, View


class PlacedHit(Record, frozen=True):
    """A passage with the score and the metadata of its best hit."""

    passage: PackedPassage
    score: float
    metadata: Mapping[str, Any]


class PlacedHits(Record, frozen=True):
    """The hits of an answer.

    `left_out`: the number of hits that exceeded the budget. The other fields are as in
    `query.QueryReport`.
    """

    hits: tuple[PlacedHit, ...]
    left_out: int
    kb: KbBlock
    notes: tuple[str, ...]
    weak: bool


def place_hits(
    ws: ReadableStore, searcher: Searcher, view: View, query: Query, *, budget: int | None, committed: bool
) -> PlacedHits:
    """Return the best hits of an open index, with their places.

    Without a `budget` in tokens, each hit is a passage. `committed`: as in `HitPacker`. Raises the
    errors of `query.answer_query`.
    """
    report = answer_from_index(ws, searcher, view, query)
    packer, left_out = HitPacker(ws, searcher, view, committed=committed), 0
    if budget is None:
        passages = packer.pack_alone(report.results)
        hits = [
            PlacedHit(passage, hit.score, hit.metadata) for passage, hit in zip(passages, report.results, strict=True)
        ]
    else:
        packed = packer.pack_hits(report.results, PackRequest(budget))
        best = {hit.rank: hit for hit in report.results}
        hits = [
            PlacedHit(passage, best[passage.rank].score, best[passage.rank].metadata) for passage in packed.passages
        ]
        left_out = packed.left_out
    return PlacedHits(tuple(hits), left_out, report.kb, report.notes, report.weak is True)
