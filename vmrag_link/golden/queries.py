"""Golden queries as records, the comparison of answers with what they expect, and the changes of
each chunk in a ranking.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest
from typing import Any, Literal

import msgspec

from vmrag_link.errors import first_of, shortened
from vmrag_link.models import Record
from vmrag_link.retrieval.query import Hit, Mode, Query
from vmrag_link.retrieval.ranking import Ranking
from vmrag_link.settings import RetrievalSettings

UPDATE = "vmrag check --update"
"""Command that records rankings."""


class RankedChunk(Record, frozen=True):
    """One rank of an answer."""

    document: str
    """Name of the document: COLLECTION/DOC."""
    chunk: int
    score: float
    """Score as shown by a query, exact on every machine with the model's vectors."""


class GoldenQuery(Record, frozen=True):
    """A query with its expectations. `line` counts from 1. Without `mode` or `k`, the settings
    apply. Other fields without a value are not checked.
    """

    text: str
    line: int
    collections: tuple[str, ...] | None = None
    mode: Mode | None = None
    k: int | None = None
    where: Mapping[str, Any] | None = None
    where_document: Mapping[str, Any] | None = None
    expect: tuple[str, ...] = ()
    """Documents that must be among the first `k` chunks."""
    first: str | None = None
    """The document of the best chunk."""
    ranking: tuple[RankedChunk, ...] | None = None
    """The whole answer."""
    id: str = ""
    """Name of the test of this query, instead of the text."""
    order: tuple[str, ...] | None = None
    """The documents in the order of their best chunks, each at most `within` ranks away."""
    within: int = 0

    @property
    def expects(self) -> bool:
        """True if the query has any expectation."""
        recorded = self.ranking is not None or self.order is not None
        return bool(self.expect) or self.first is not None or recorded

    @property
    def named_documents(self) -> tuple[str, ...]:
        """The documents that it expects."""
        first = (self.first,) if self.first is not None else ()
        return (*self.expect, *first, *(self.order or ()))

    def build_query(self, settings: RetrievalSettings) -> Query:
        """Return the query for a search."""
        return Query(
            text=self.text,
            collections=self.collections,
            k=self.k or settings.k,
            mode=self.mode or Mode(settings.mode),
            where=self.where,
            where_document=self.where_document,
        )


class GoldenNames(Record, frozen=True):
    """Names of documents of an index."""

    full: Mapping[str, str] = {}
    """The recorded name (COLLECTION/DOC) of a file, by the path that a user may write."""
    shown: Mapping[str, str] = {}
    """The printed name by full name."""

    def show_name(self, document: str) -> str:
        return self.shown.get(document, document)

    def resolve_query(self, query: GoldenQuery) -> GoldenQuery:
        """Return the query with full names."""

        def resolve_names(names: Iterable[str]) -> tuple[str, ...]:
            return tuple(self.full.get(name, name) for name in names)

        first = self.full.get(query.first or "", query.first)
        order = query.order and resolve_names(query.order)
        return msgspec.structs.replace(query, expect=resolve_names(query.expect), first=first, order=order)


NO_NAMES = GoldenNames()


class Recording(Record, frozen=True):
    """Conditions under which rankings were recorded: the ranking's version, and the settings of
    `retrieval`.
    """

    version: int
    mode: str
    k: int
    vector_weight: float
    document_weight: float
    per_document: int


class GoldenFile(Record, frozen=True):
    """Content of the file. Without recorded rankings, `recorded` has no value."""

    queries: tuple[GoldenQuery, ...]
    recorded: Recording | None = None


class Miss(Record, frozen=True, rename={"expected": "wanted"}):
    """An unmet expectation.

    `expect`, `first`: the expectation of that name, about `document`. `order`, `ranking`: the
    answer has another one. `asked`: the query failed. `expected` and `got`: texts to compare, from
    the first rank that differs.
    """

    kind: Literal["expect", "first", "order", "ranking", "asked"]
    message: str
    document: str | None = None
    expected: str = ""
    got: str = ""

    @property
    def sides(self) -> list[str]:
        """Lines that compare the expected and the actual answer."""
        return [f"wanted: {self.expected}", f"got:    {self.got}"] if self.expected else []


def name_queries(queries: Iterable[GoldenQuery]) -> list[str]:
    """Return names for the tests of these queries: their ids, or texts, so that a name stays when
    lines change. The second of equal names ends with ` (2)`.
    """
    seen = Counter[str]()
    names = []
    for query in queries:
        name = query.id or shortened(" ".join(query.text.split()))
        seen[name] += 1
        names.append(f"{name} ({seen[name]})" if seen[name] > 1 else name)
    return names


def build_recording(ranking: Ranking, settings: RetrievalSettings) -> Recording:
    """Return the conditions under which rankings are recorded now."""
    return Recording(
        version=ranking.version,
        mode=settings.mode,
        k=settings.k,
        vector_weight=ranking.vector_weight,
        document_weight=ranking.document_weight,
        per_document=ranking.per_document,
    )


def describe_changes(recorded: Recording, now: Recording) -> list[str]:
    """Return the conditions that have changed since rankings were recorded, such as `the ranking's
    version was 1 and is 2`.
    """
    names = {name: f"retrieval.{name}" for name in Recording.__struct_fields__} | {"version": "the ranking's version"}
    pairs = ((names[name], getattr(recorded, name), getattr(now, name)) for name in names)
    return [f"{name} was {before} and is {after}" for name, before, after in pairs if before != after]


def rank_chunks(hits: Sequence[Hit]) -> tuple[RankedChunk, ...]:
    """Return the results of a search as a ranking."""
    return tuple(RankedChunk(f"{hit.collection}/{hit.doc_id}", hit.chunk, hit.score) for hit in hits)


def find_misses(
    query: GoldenQuery, chunks: Sequence[RankedChunk], k: int, names: GoldenNames = NO_NAMES, *, comparable: bool
) -> list[Miss]:
    """Return the expectations that the first `k` chunks do not meet.

    `comparable` is False if the recorded ranking was made under other settings. Then it is not
    compared.
    """
    query = names.resolve_query(query)
    documents = [chunk.document for chunk in chunks]
    got = _number_names(map(names.show_name, list_documents(chunks)))
    missed = [
        Miss("expect", f"{shown} is not among the first {k}", document, f"{shown} among the first {k}", got)
        for document, shown in ((document, names.show_name(document)) for document in query.expect)
        if document not in documents
    ]
    if query.first is not None and documents[:1] != [query.first]:
        instead = f"but {names.show_name(documents[0])}" if documents else "because nothing is found"
        first = names.show_name(query.first)
        missed.append(Miss("first", f"{first} is not the first, {instead}", query.first, f"1. {first}", got))
    if query.order is not None and (
        wrong := _find_wrong_order(query.order, list_documents(chunks), query.within, names)
    ):
        missed.append(wrong)
    if comparable and query.ranking is not None and query.ranking != tuple(chunks):
        sides = ([_format_chunk(chunk, names) for chunk in ranking] for ranking in (query.ranking, chunks))
        expected, got = _show_difference(*sides)
        missed.append(Miss("ranking", "the ranking is not the recorded one", None, expected, got))
    return missed


def list_documents(chunks: Iterable[RankedChunk]) -> tuple[str, ...]:
    """Return the documents in the order of their best chunks."""
    return tuple(dict.fromkeys(chunk.document for chunk in chunks))


def _find_wrong_order(order: Sequence[str], documents: Sequence[str], within: int, names: GoldenNames) -> Miss | None:
    """Return the miss if documents are not in the recorded order. Documents after those of `order`
    are ignored, unless `order` is empty.
    """
    compared = documents[: len(order) + within] if order else documents
    expected, got = _show_difference(list(map(names.show_name, order)), list(map(names.show_name, compared)))
    if not order:
        return (
            Miss("order", "nothing was found when the order was recorded", None, expected, got) if documents else None
        )
    ranks = {document: rank for rank, document in enumerate(documents, start=1)}
    for rank, document in enumerate(order, start=1):
        if document not in ranks:
            return Miss("order", f"{names.show_name(document)} is no longer found", document, expected, got)
        if abs(ranks[document] - rank) > within:
            near = f", and not within {within} of number {rank}" if within else f", and not at number {rank}"
            return Miss(
                "order", f"{names.show_name(document)} comes at number {ranks[document]}{near}", None, expected, got
            )
    return None


_MOST_RANKS = 5
"""Maximum number of ranks that a message shows."""


def _format_chunk(chunk: RankedChunk, names: GoldenNames) -> str:
    return f"{names.show_name(chunk.document)} #{chunk.chunk} ({chunk.score:g})"


def _show_difference(expected: Sequence[str], got: Sequence[str]) -> tuple[str, str]:
    """Return both lists as texts, from the first difference on."""
    pairs = enumerate(zip_longest(expected, got), start=1)
    start = next((rank for rank, (one, other) in pairs if one != other), 1)
    return _number_names(expected[start - 1 :], start), _number_names(got[start - 1 :], start)


def _number_names(names: Iterable[str], start: int = 1) -> str:
    ranks = [f"{rank}. {name}" for rank, name in enumerate(names, start)]
    return first_of(ranks, _MOST_RANKS) if ranks else "nothing"


class RankChange(Record, frozen=True):
    """Ranks and scores of a chunk in two rankings. Ranks count from 1. They have no value in a
    ranking without the chunk.
    """

    document: str
    chunk: int
    rank_before: int | None
    rank_after: int | None
    score_before: float | None
    score_after: float | None

    @property
    def is_same(self) -> bool:
        return (self.rank_before, self.score_before) == (self.rank_after, self.score_after)

    def __str__(self) -> str:
        before, after = (str(rank or "-") for rank in (self.rank_before, self.rank_after))
        distinct = dict.fromkeys(score for score in (self.score_before, self.score_after) if score is not None)
        scores = " -> ".join(f"{score:g}" for score in distinct)
        return f"{before:>4} -> {after:<4} {self.document} #{self.chunk}  {scores}"


def compare_rankings(before: Sequence[RankedChunk], after: Sequence[RankedChunk]) -> list[RankChange]:
    """Return the changes in the order of `after`. Chunks that are missing there are last."""
    old = {(chunk.document, chunk.chunk): (rank, chunk.score) for rank, chunk in enumerate(before, start=1)}
    changes = []
    for rank, chunk in enumerate(after, start=1):
        rank_before, score_before = old.pop((chunk.document, chunk.chunk), (None, None))
        changes.append(
            RankChange(
                document=chunk.document,
                chunk=chunk.chunk,
                rank_before=rank_before,
                rank_after=rank,
                score_before=score_before,
                score_after=chunk.score,
            )
        )
    removed = (RankChange(*key, rank, None, score, None) for key, (rank, score) in old.items())
    return [*changes, *removed]
