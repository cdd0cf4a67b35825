"""Golden queries as records, whether an answer is what they expect, and what became of each chunk
of a ranking.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest
from typing import Any, Literal

import msgspec

from vmrag_link.errors import first_of, shortened
from vmrag_link.models import Record
from vmrag_link.retrieval.fusion import Ranking
from vmrag_link.retrieval.query import Hit, Mode, Query
from vmrag_link.settings import RetrievalSettings

UPDATE = "vmrag check --update"
"""The command that records rankings."""


class RankedChunk(Record, frozen=True):
    """One place of a ranking. `document`: COLLECTION/DOC. `score`: as a query shows it, exact on
    every machine where the model's vectors are.
    """

    document: str
    chunk: int
    score: float


class GoldenQuery(Record, frozen=True):
    """`line` counts from 1. What is None is left to the settings (`mode`, `k`), or not asked for.

    `expect`: documents that must be among the first `k` chunks; `first`: the document of the best
    chunk; `order`: the documents in the order of their best chunks, each at most `within` places
    from there; `ranking`: the whole answer. `id`: what tests are called that ask it, in place of
    the text.
    """

    text: str
    line: int
    collections: tuple[str, ...] | None = None
    mode: Mode | None = None
    k: int | None = None
    where: Mapping[str, Any] | None = None
    where_document: Mapping[str, Any] | None = None
    expect: tuple[str, ...] = ()
    first: str | None = None
    ranking: tuple[RankedChunk, ...] | None = None
    id: str = ""
    order: tuple[str, ...] | None = None
    within: int = 0

    @property
    def expects(self) -> bool:
        recorded = self.ranking is not None or self.order is not None
        return bool(self.expect) or self.first is not None or recorded

    @property
    def named_documents(self) -> tuple[str, ...]:
        """The documents that it expects."""
        first = (self.first,) if self.first is not None else ()
        return (*self.expect, *first, *(self.order or ()))

    def build_query(self, settings: RetrievalSettings) -> Query:
        return Query(
            self.text,
            self.collections,
            self.k or settings.k,
            self.mode or Mode(settings.mode),
            self.where,
            self.where_document,
        )


class GoldenNames(Record, frozen=True):
    """Names of documents of an index. `full`: the recorded name (COLLECTION/DOC) of a file, by its
    path as a person may write it; `shown`: what is printed for a full name.
    """

    full: Mapping[str, str] = {}
    shown: Mapping[str, str] = {}

    def show_name(self, document: str) -> str:
        return self.shown.get(document, document)

    def resolve_query(self, query: GoldenQuery) -> GoldenQuery:
        """Return the query with full names."""

        def full(names: Iterable[str]) -> tuple[str, ...]:
            return tuple(self.full.get(name, name) for name in names)

        first = self.full.get(query.first or "", query.first)
        order = query.order and full(query.order)
        return msgspec.structs.replace(query, expect=full(query.expect), first=first, order=order)


NO_NAMES = GoldenNames()


class Recording(Record, frozen=True):
    """Under what rankings were recorded: the ranking's version, and the settings of `retrieval`."""

    version: int
    mode: str
    k: int
    vector_weight: float
    document_weight: float
    per_document: int


class GoldenFile(Record, frozen=True):
    """`recorded`: None where no ranking was recorded."""

    queries: tuple[GoldenQuery, ...]
    recorded: Recording | None = None


class Miss(Record, frozen=True):
    """What an answer lacks. `expect`, `first`: that expectation, about `document`; `order`,
    `ranking`: it is another one; `asked`: the query could not be asked. `wanted` and `got`: what a
    person compares, from the first place on that differs.
    """

    kind: Literal["expect", "first", "order", "ranking", "asked"]
    message: str
    document: str | None = None
    wanted: str = ""
    got: str = ""

    @property
    def sides(self) -> list[str]:
        return [f"wanted: {self.wanted}", f"got:    {self.got}"] if self.wanted else []


def name_queries(queries: Iterable[GoldenQuery]) -> list[str]:
    """What tests are called that ask these queries: by their ids, or texts, so that a name stays
    where lines come and go. Of equal ones the second has ` (2)`.
    """
    seen = Counter[str]()
    names = []
    for query in queries:
        name = query.id or shortened(" ".join(query.text.split()))
        seen[name] += 1
        names.append(f"{name} ({seen[name]})" if seen[name] > 1 else name)
    return names


def build_recording(ranking: Ranking, settings: RetrievalSettings) -> Recording:
    return Recording(
        version=ranking.version,
        mode=settings.mode,
        k=settings.k,
        vector_weight=ranking.vector_weight,
        document_weight=ranking.document_weight,
        per_document=ranking.per_document,
    )


def describe_changes(recorded: Recording, now: Recording) -> list[str]:
    """What is not as it was when rankings were recorded: `the ranking's version was 1 and is 2`."""
    names = {name: f"retrieval.{name}" for name in Recording.__struct_fields__} | {"version": "the ranking's version"}
    pairs = ((names[name], getattr(recorded, name), getattr(now, name)) for name in names)
    return [f"{name} was {before} and is {after}" for name, before, after in pairs if before != after]


def rank_chunks(hits: Sequence[Hit]) -> tuple[RankedChunk, ...]:
    return tuple(RankedChunk(f"{hit.collection}/{hit.doc_id}", hit.chunk, hit.score) for hit in hits)


def find_misses(
    query: GoldenQuery, found: Sequence[RankedChunk], k: int, names: GoldenNames = NO_NAMES, *, comparable: bool
) -> list[Miss]:
    """What the first `k` chunks lack of what is expected. `comparable` False: the recorded ranking
    does not count, because it was made under other settings.
    """
    query = names.resolve_query(query)
    there = [each.document for each in found]
    got = _numbered(map(names.show_name, list_documents(found)))
    missed = [
        Miss("expect", f"{shown} is not among the first {k}", document, f"{shown} among the first {k}", got)
        for document, shown in ((document, names.show_name(document)) for document in query.expect)
        if document not in there
    ]
    if query.first is not None and there[:1] != [query.first]:
        instead = f"but {names.show_name(there[0])}" if there else "because nothing is found"
        first = names.show_name(query.first)
        missed.append(Miss("first", f"{first} is not the first, {instead}", query.first, f"1. {first}", got))
    if query.order is not None and (wrong := _out_of_order(query.order, list_documents(found), query.within, names)):
        missed.append(wrong)
    if comparable and query.ranking is not None and query.ranking != tuple(found):
        sides = ([_format_chunk(chunk, names) for chunk in ranking] for ranking in (query.ranking, found))
        wanted, got = _from_difference(*sides)
        missed.append(Miss("ranking", "the ranking is not the recorded one", None, wanted, got))
    return missed


def list_documents(found: Iterable[RankedChunk]) -> tuple[str, ...]:
    """In the order of their best chunks."""
    return tuple(dict.fromkeys(each.document for each in found))


def _out_of_order(order: Sequence[str], documents: Sequence[str], within: int, names: GoldenNames) -> Miss | None:
    """What comes behind those of `order` does not count, unless that is empty."""
    compared = documents[: len(order) + within] if order else documents
    expected, got = _from_difference(list(map(names.show_name, order)), list(map(names.show_name, compared)))
    if not order:
        return (
            Miss("order", "nothing was found when the order was recorded", None, expected, got) if documents else None
        )
    places = {document: place for place, document in enumerate(documents, start=1)}
    for place, document in enumerate(order, start=1):
        if document not in places:
            return Miss("order", f"{names.show_name(document)} is no longer found", document, expected, got)
        if abs(places[document] - place) > within:
            near = f", and not within {within} of number {place}" if within else f", and not at number {place}"
            return Miss(
                "order", f"{names.show_name(document)} comes at number {places[document]}{near}", None, expected, got
            )
    return None


_MOST_PLACES = 5
"""That a message shows of a ranking."""


def _format_chunk(chunk: RankedChunk, names: GoldenNames) -> str:
    return f"{names.show_name(chunk.document)} #{chunk.chunk} ({chunk.score:g})"


def _from_difference(wanted: Sequence[str], got: Sequence[str]) -> tuple[str, str]:
    pairs = enumerate(zip_longest(wanted, got), start=1)
    start = next((place for place, (one, other) in pairs if one != other), 1)
    return _numbered(wanted[start - 1 :], start), _numbered(got[start - 1 :], start)


def _numbered(names: Iterable[str], start: int = 1) -> str:
    places = [f"{place}. {name}" for place, name in enumerate(names, start)]
    return first_of(places, _MOST_PLACES) if places else "nothing"


class RankChange(Record, frozen=True):
    """A chunk's places and scores in two rankings, from 1; None where it is not in that one."""

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
        known = dict.fromkeys(score for score in (self.score_before, self.score_after) if score is not None)
        scores = " -> ".join(f"{score:g}" for score in known)
        return f"{before:>4} -> {after:<4} {self.document} #{self.chunk}  {scores}"


def compare_rankings(before: Sequence[RankedChunk], after: Sequence[RankedChunk]) -> list[RankChange]:
    """In the order of `after`; what is gone comes last."""
    old = {(each.document, each.chunk): (rank, each.score) for rank, each in enumerate(before, start=1)}
    found = []
    for rank, each in enumerate(after, start=1):
        rank_before, score_before = old.pop((each.document, each.chunk), (None, None))
        found.append(RankChange(each.document, each.chunk, rank_before, rank, score_before, each.score))
    gone = (RankChange(*key, rank, None, score, None) for key, (rank, score) in old.items())
    return [*found, *gone]
