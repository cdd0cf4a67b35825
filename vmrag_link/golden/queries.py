"""Golden queries as records, and the comparison of an answer with what its query expects.

A *rank* is the position of a chunk in an answer, from 1, and a *ranking* is a whole answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
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

_MAX_RANKS = 5
"""Maximum number of ranks that a message shows."""


class RankedChunk(Record, frozen=True):
    """One rank of an answer."""

    document: str
    """Name of the document: COLLECTION/DOC."""
    chunk: int
    score: float
    """Score as shown by a query, exact on every machine with the model's vectors."""


class GoldenQuery(Record, frozen=True):
    """A query with its expectations. Expectations without a value are not checked."""

    text: str
    line: int
    """The line of the query in the file, from 1."""
    collections: tuple[str, ...] | None = None
    """None for all collections."""
    mode: Mode | None = None
    """None for the mode of the settings."""
    k: int | None = None
    """The number of chunks; None for that of the settings."""
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
    """Names of documents of an index. A *full name* is COLLECTION/DOC, which rankings record."""

    full: Mapping[str, str] = {}
    """The full name of a file, by the path that a user may write."""
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
    """Content of the file."""

    queries: tuple[GoldenQuery, ...]
    recorded: Recording | None = None
    """None without recorded rankings."""


class Miss(Record, frozen=True, rename={"expected": "wanted"}):
    """An unmet expectation."""

    kind: Literal["expect", "first", "order", "ranking", "asked"]
    """The expectation of that name; `asked` if the query failed."""
    message: str
    document: str | None = None
    """The document that an expectation `expect`, `first` or `order` is about."""
    expected: str = ""
    """Text to compare with `got`, from the first rank that differs."""
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
    misses: list[Miss] = []
    for document in query.expect:
        if document not in documents:
            name = names.show_name(document)
            message = f"{name} is not among the first {k}"
            misses.append(Miss("expect", message, document, f"{name} among the first {k}", got))
    if query.first is not None and documents[:1] != [query.first]:
        instead = f"but {names.show_name(documents[0])}" if documents else "because nothing is found"
        first = names.show_name(query.first)
        misses.append(Miss("first", f"{first} is not the first, {instead}", query.first, f"1. {first}", got))
    if query.order is not None:
        misses += _list_wrong_order(query.order, list_documents(chunks), query.within, names)
    if comparable and query.ranking is not None and query.ranking != tuple(chunks):
        recorded = [_format_chunk(chunk, names) for chunk in query.ranking]
        expected, got = _show_difference(recorded, [_format_chunk(chunk, names) for chunk in chunks])
        misses.append(Miss("ranking", "the ranking is not the recorded one", None, expected, got))
    return misses


def list_documents(chunks: Iterable[RankedChunk]) -> tuple[str, ...]:
    """Return the documents in the order of their best chunks."""
    return tuple(dict.fromkeys(chunk.document for chunk in chunks))


def _list_wrong_order(
    order: Sequence[str], documents: Sequence[str], within: int, names: GoldenNames
) -> Iterator[Miss]:
    """Yield a miss for the first document that is not at its recorded rank, at most `within` away.

    Documents after those of `order` are ignored, unless `order` is empty.
    """
    compared = documents[: len(order) + within] if order else documents
    expected, got = _show_difference(list(map(names.show_name, order)), list(map(names.show_name, compared)))
    if not order and documents:
        yield Miss("order", "nothing was found when the order was recorded", None, expected, got)
    ranks = {document: rank for rank, document in enumerate(documents, start=1)}
    for rank, document in enumerate(order, start=1):
        name = names.show_name(document)
        if document not in ranks:
            yield Miss("order", f"{name} is no longer found", document, expected, got)
            return
        if abs(ranks[document] - rank) > within:
            near = f"within {within} of number {rank}" if within else f"at number {rank}"
            yield Miss("order", f"{name} comes at number {ranks[document]}, and not {near}", None, expected, got)
            return


def _format_chunk(chunk: RankedChunk, names: GoldenNames) -> str:
    return f"{names.show_name(chunk.document)} #{chunk.chunk} ({chunk.score:g})"


def _show_difference(expected: Sequence[str], got: Sequence[str]) -> tuple[str, str]:
    """Return both lists as texts, from the first difference on."""
    pairs = enumerate(zip_longest(expected, got), start=1)
    start = next((rank for rank, (one, other) in pairs if one != other), 1)
    return _number_names(expected[start - 1 :], start), _number_names(got[start - 1 :], start)


def _number_names(names: Iterable[str], start: int = 1) -> str:
    ranks = [f"{rank}. {name}" for rank, name in enumerate(names, start)]
    return first_of(ranks, _MAX_RANKS) if ranks else "nothing"


class RankChange(Record, frozen=True):
    """Ranks and scores of a chunk in two rankings; None in a ranking without the chunk."""

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
        before = str(self.rank_before or "-")
        after = str(self.rank_after or "-")
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
