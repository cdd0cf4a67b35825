"""Answer a query for the Python API: hits with their paths, lines and scores, or the best hits that
fit a budget of tokens.
"""

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
    """The hits of an answer."""

    hits: tuple[PlacedHit, ...]
    left_out: int
    """Number of hits that exceeded the budget."""
    kb: KbBlock
    notes: tuple[str, ...]
    """Why the answer is not from the pinned revision; empty if it is."""
    weak: bool
    """True if no hit is likely to help."""


def place_hits(
    ws: ReadableStore, searcher: Searcher, view: View, query: Query, *, budget: int | None, committed: bool
) -> PlacedHits:
    """Return the best hits of an open index, with their paths and lines.

    `budget`: the number of tokens for all passages; None to return a passage for each hit.
    `committed`: the files are those of a commit, not of the work tree. Raises the errors of
    `query.answer_query`.
    """
    report = answer_from_index(ws, searcher, view, query)
    packer = HitPacker(ws, searcher, view, report.results, committed=committed)
    if budget is None:
        passages = packer.pack_alone()
        pairs = list(zip(passages, report.results, strict=True))
        left_out = 0
    else:
        packed = packer.pack_hits(PackRequest(budget))
        hits_by_rank = {hit.rank: hit for hit in report.results}
        pairs = [(passage, hits_by_rank[passage.rank]) for passage in packed.passages]
        left_out = packed.left_out
    hits = tuple(PlacedHit(passage, hit.score, hit.metadata) for passage, hit in pairs)
    return PlacedHits(hits, left_out, report.kb, report.notes, report.weak is True)
