"""Random filters on random metadata and texts: an index answers as Chroma does.

Differences that a ruling names (R54: strings compare with strings by code points, numbers with
numbers):
* Chroma takes no strings behind `$gt`, `$gte`, `$lt`, `$lte`:
`test_strings_are_ordered_by_code_points`.
* Chroma converts a number to the type of the value before it compares: `converted`, and
  `test_numbers_compare_as_the_numbers_that_they_are`.
"""

from __future__ import annotations

import contextlib
import random
import struct
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any, NamedTuple

import pytest

from tests.support.chroma import Refused, list_passing_ids, needs_chroma
from tests.support.knowledge import Knowledge, collection, doc
from tests.support.long import examples
from vmrag_link.chroma.bindings import ChromaStore, RowBatch, open_store
from vmrag_link.errors import FilterInvalid
from vmrag_link.index import contents, draft
from vmrag_link.index import view as views
from vmrag_link.index.metadata import build_chunk_metadata, build_document_metadata, chunk_id
from vmrag_link.index.reader import IndexReader
from vmrag_link.models import Chunking
from vmrag_link.retrieval import filters
from vmrag_link.retrieval.chunk_filter import ChunkFilter
from vmrag_link.retrieval.filters import compile_where, list_keys

pytestmark = needs_chroma

FILTERS = examples(4_500)
DOCUMENTS = 60
SEED = 20261122

NUMBERS: list[int | float] = [
    *(0, 1, 2, -3, 2**31, 2**53 - 1, 2**53, 2**53 + 1, -(2**53) - 1, 2**63 - 1, -(2**63)),
    *(0.0, -0.0, 1.0, 2.0, -3.0, 0.5, 1.5, 2.5, -0.5, -2.5, 0.1, 1e-300, float(2**53), float(2**63), -1e19, 1e300),
]
STRINGS = [
    "",
    "1",
    "a",
    "A",
    "ab",
    "a%b",
    "a_b",
    "a\\b",
    'a"b',
    "Ä",
    "A\u0308",
    "ä",
    "日本",
    "\U0001d4b3",
    "😀",
    "\ufffd",
    "a\0b",
    "true",
]
BOOLEANS = [True, False]
POOLS: list[list[Any]] = [NUMBERS, STRINGS, BOOLEANS]
KEYS = [
    "n",
    "m",
    "s",
    "flag",
    "list",
    "Größe",
    "a b",
    'q"k',
    "title",
    "source_id",
    "chunk_index",
    "total_chunks",
    "absent",
]
PIECES = ["alpha", "Alpha", "ALPHA", "a", "%", "_", "a_b", "50%", "Äpfel", "äpfel", "ÄPFEL", "\n", "日本語", "\\", "é", "e\u0301", "😀", "ß", "İ", "\u017f", "K", "k", "K", "x.y", "[z]"]  # fmt: skip
PATTERNS = [
    *("alpha", "(?i)ALPHA", "^a", "a$", r"\d+", "[[:alpha:]]+", r"\p{L}", r"\p{Lu}", "^alpha$", "(?m)^alpha$", "a.b"),
    *(
        r"(?s)a.b",
        r"\ba",
        r"\b{start}a",
        "x*",
        r"\z",
        "(?i)k",
        "(?i)ß",
        "[^a-z]",
        "日.語",
        "a|%",
        r"x\.y",
        "(?x) a  b",
        "é{1,2}",
    ),
]


def some_value(rng: random.Random) -> Any:
    """A value of metadata: of each kind that JSON has."""
    pool = rng.choice(POOLS)
    return rng.choice(
        [
            rng.choice(NUMBERS),
            rng.choice(pool),
            rng.choices(pool, k=rng.randrange(3)),
            rng.choice([[], [1, "a"], {"a": 1}, None, 2**64, -(2**70)]),
        ]
    )


def some_comparison(rng: random.Random) -> dict[str, Any]:
    name = rng.choice(["$eq", "$ne", "$gt", "$gte", "$lt", "$lte", "$in", "$nin", "$contains", "$not_contains"])
    pool = NUMBERS if name in filters.ORDERINGS else rng.choice(POOLS)
    if name not in ("$in", "$nin"):
        return {rng.choice(KEYS): {name: rng.choice(pool)}}
    first, *rest = rng.choices(pool, k=rng.randint(1, 4))
    return {rng.choice(KEYS): {name: [first, *(piece for piece in rest if type(piece) is type(first))]}}


def some_text_match(rng: random.Random) -> dict[str, Any]:
    name = rng.choice(["$contains", "$not_contains", "$regex", "$not_regex"])
    return {name: rng.choice(PATTERNS) if "regex" in name else "".join(rng.choices(PIECES, k=rng.randint(1, 2)))}


def nested(rng: random.Random, leaf: Any, depth: int = 0) -> dict[str, Any]:
    if depth == 3 or rng.random() < 0.55:
        return leaf(rng)
    return {rng.choice(["$and", "$or"]): [nested(rng, leaf, depth + 1) for _ in range(rng.randint(1, 3))]}


class Both(NamedTuple):
    """The same chunks in an index and in a store of Chroma's; `values` is their metadata there."""

    index: IndexReader
    names: dict[int, str]
    store: ChromaStore
    made: str
    values: dict[str, dict[str, Any]]

    def ours(self, where: filters.NormalFilter | None, where_document: filters.NormalFilter | None) -> set[str]:
        rows = ChunkFilter(where, where_document).list_rows(self.index, "guide")
        assert rows == sorted(set(rows))
        return {self.names[row] for row in rows}

    def chromas(self, where: filters.NormalFilter | None, where_document: filters.NormalFilter | None) -> set[str]:
        return list_passing_ids(self.store, self.made, where, where_document)


@pytest.fixture(scope="module")
def both(tmp_path_factory) -> Iterator[Both]:
    folder, rng = tmp_path_factory.mktemp("filters"), random.Random(SEED)
    documents = [
        doc(
            f"d{number}",
            " ".join(rng.choices(PIECES, k=rng.choice([1, 3, 9, 30]))) + str(number),
            title=rng.choice(["", "a", "Ä"]),
            metadata={key: some_value(rng) for key in rng.sample(KEYS[:9], rng.randrange(9))},
        )
        for number in range(DOCUMENTS)
    ]
    kb, guide = Knowledge(folder), collection(chunking=Chunking(size=60, overlap=10))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(draft, "SMALL_SEGMENT", 0)
        half = kb.commit(*documents[::2], doc("d1", "changed later"), doc("gone", "alpha"), collections=[guide])
        kb.index(half)
        whole = kb.commit(*documents[1::2], remove=[("guide", "gone")])
        path = kb.index(whole, base=half).path
    kb.close()
    assert [bool(part.pieces["guide"].dead) for part in views.read_view(path).parts] == [True, False]
    rows = RowBatch([], [], [], [])
    assert rows.documents is not None
    texts = contents.read_rows(path, "guide")
    for document in documents:
        for number, row in enumerate(texts[document.doc_id]):
            rows.ids.append(chunk_id(document.doc_id, number))
            rows.vectors.append(struct.pack("<2f", 1.0, len(rows.ids)))
            rows.metadatas.append(
                build_document_metadata(document.header, "documents")
                | build_chunk_metadata(document.header, "documents", number, len(texts[document.doc_id]))
            )
            rows.documents.append(row.text)
    assert len(rows.ids) > DOCUMENTS
    store = open_store(tmp_path_factory.mktemp("chroma"))
    made = store.create_collection("guide", space="cosine", metadata={"embedding_model": "m"})
    store.add_rows(made, rows)
    values = dict(zip(rows.ids, map(dict, rows.metadatas), strict=True))
    with contextlib.closing(store), IndexReader.open(path) as index:
        names = {
            row: chunk_id(header.doc_id, n)
            for header, rows in index.list_documents("guide")
            for n, row in enumerate(rows)
        }
        yield Both(index, names, store, made, values)


def converted(normal: filters.NormalFilter, values: Mapping[str, Any]) -> filters.NormalFilter:
    """The filter as Chroma applies it to these values: numbers take the type of what they are
    compared with.
    """
    [(key, condition)] = normal.items()
    if key in filters.JUNCTIONS:
        return {key: [converted(part, values) for part in condition]}
    [(name, operand)] = condition.items()
    if "contains" in name:
        return normal

    def convert(number: Any) -> Any:
        if isinstance(number, bool | str) or type(values.get(key)) not in (int, float):
            return number
        return float(number) if isinstance(values[key], float) else max(-(2**63), min(2**63 - 1, int(number)))

    return {key: {name: [convert(value) for value in operand] if isinstance(operand, list) else convert(operand)}}


def test_index_passes_the_chunks_that_chroma_passes(both):
    rng, by_ruling, some = random.Random(SEED + 1), 0, 0
    for _ in range(FILTERS):
        kind = rng.randrange(4)
        where = filters.normalize_where(nested(rng, some_comparison)) if kind != 3 else None
        where_document = filters.normalize_where_document(nested(rng, some_text_match)) if kind >= 2 else None
        ours, chromas = both.ours(where, where_document), both.chromas(where, where_document)
        some += 0 < len(ours) < len(both.values)
        for name in ours ^ chromas:
            assert where is not None, (where_document, name)
            chroma_condition = converted(where, both.values[name])
            assert chroma_condition != where, (where, where_document, name)
            columns = {key: [both.values[name].get(key)] for key in list_keys(chroma_condition)}
            assert compile_where(chroma_condition)(columns) == [name in chromas], (where, where_document, name)
            by_ruling += 1
    assert some > FILTERS / 3
    assert by_ruling > 0


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("name", ["$eq", "$ne", "$gt", "$gte", "$lt", "$lte"])
def test_numbers_compare_as_the_numbers_that_they_are(name, number):
    differences = [Fraction(value) - Fraction(number) for value in NUMBERS]
    holds = {
        "$eq": lambda difference: difference == 0,
        "$ne": lambda difference: difference != 0,
        "$gt": lambda difference: difference > 0,
        "$gte": lambda difference: difference >= 0,
        "$lt": lambda difference: difference < 0,
        "$lte": lambda difference: difference <= 0,
    }[name]
    assert compile_where({"n": {name: number}})({"n": NUMBERS}) == [*map(holds, differences)]


@pytest.mark.parametrize("name", sorted(filters.ORDERINGS))
def test_strings_are_ordered_by_code_points(both, name):
    for operand in STRINGS:
        normal = filters.normalize_where({"s": {name: operand}})
        with pytest.raises(Refused):
            both.chromas(normal, None)
        points = [ord(character) for character in operand]
        expected = set()
        for chunk, values in both.values.items():
            if isinstance(value := values.get("s"), str):
                others = [ord(character) for character in value]
                less, equal = others < points, others == points
                if {"$lt": less, "$lte": less or equal, "$gt": not less and not equal, "$gte": not less}[name]:
                    expected.add(chunk)
        assert both.ours(normal, None) == expected


@pytest.mark.parametrize("pattern", ["(", r"(a)\1", "a(?=l)", r"\Z", "a{2,1}"])
def test_invalid_regular_expressions_are_rejected_like_in_chroma(both, pattern):
    normal = filters.normalize_where_document({"$regex": pattern})
    with pytest.raises(Refused):
        both.chromas(None, normal)
    with pytest.raises(FilterInvalid):
        both.ours(None, normal)


def test_oversized_regular_expression_is_rejected_in_one_sentence(both):
    normal = filters.normalize_where_document({"$regex": "(a{1000}){1000}"})
    with pytest.raises(FilterInvalid) as refused:
        both.ours(None, normal)
    assert refused.value.message.endswith("'(a{1000}){1000}' (Compiled regex exceeds size limit of 10485760 bytes).")
