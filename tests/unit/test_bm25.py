"""BM25 of chunks and of their documents, against SQLite's own."""

from __future__ import annotations

import contextlib
import math
import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from tests.support.fts_words import FtsWords, bm25_scores
from vmrag_link.index import flat_files, keywords, postings
from vmrag_link.index.reader import IndexReader
from vmrag_link.index.segment import DocumentTexts, SegmentWriter
from vmrag_link.index.view import CollectionPiece, IndexedCollection, IndexView, ViewPart
from vmrag_link.models import Collection, DocumentHeader
from vmrag_link.retrieval import bm25
from vmrag_link.retrieval.array_scores import ArrayScores
from vmrag_link.retrieval.bm25 import BILLION, WordScores

GUIDE, GONE = "guide", "gone"
VOCABULARY = "owl fox river stone night get_close_matches snake_case light rain path".split()
QUERIES = ["owl", "river fox", "night stone owl", "get_close_matches rain", "OWLS lights unknown", "snake_case owl owl"]


class Corpus:
    """Documents in a view, and in tables of FTS5: one of chunks, and one of whole documents."""

    def __init__(self, folder: Path, documents: list[list[str]], order: list[int] | None = None) -> None:
        """Build an index of the documents.

        `order`: the order in which they are added, to three segments one after the other; sometimes
        an ignored one is between them.
        """
        self.documents = documents
        numbers = order or list(range(len(documents)))
        size = -(-len(numbers) // (3 if order else 1))
        parts = [
            self._segment(folder, f"s{start}", numbers[start : start + size], dying=order is not None)
            for start in range(0, len(numbers), size)
        ]
        held = IndexedCollection(Collection(GUIDE), len(documents), sum(map(len, documents)))
        with IndexReader(IndexView("", {GUIDE: held}, tuple(parts)), folder) as reader:
            tokens = reader.count_tokens(rows for _, rows in reader.list_documents(GUIDE))
        self.held = msgspec.structs.replace(held, tokens=tokens)
        self.reader = IndexReader(IndexView("", {GUIDE: self.held}, tuple(parts)), folder)
        self.first = {int(header.doc_id): rows.start for header, rows in self.reader.list_documents(GUIDE)}
        numbers = sorted(self.first, key=lambda number: self.first[number])
        self.rows = [self.first[number] + place for number in numbers for place in range(len(documents[number]))]
        """The row of each chunk of `chunks`."""

        self.chunks = FtsWords([text] for number in numbers for text in documents[number])
        self.pages = FtsWords([" ".join(documents[number])] for number in numbers)

    def close(self) -> None:
        self.reader.close()
        self.chunks.close()
        self.pages.close()

    def _segment(self, folder: Path, name: str, numbers: list[int], *, dying: bool) -> ViewPart:
        entries: list[DocumentTexts] = []
        for number in numbers:
            entries.append(DocumentTexts(DocumentHeader(GUIDE, str(number), "", "", "{}"), self.documents[number]))
            if dying and number % 3 == 0:
                entries.append(DocumentTexts(DocumentHeader(GUIDE, GONE, "", "", "{}"), ["owl that goes away"]))
        slots = sum(len(entry.texts) for entry in entries)
        with contextlib.closing(SegmentWriter(folder / name)) as writer:
            writer.add_documents(GUIDE, entries, bytes(slots), dimensions=1)
            written = writer.finish()[GUIDE]
        dead, slot = bytearray(-(-slots // 8)), 0
        for entry in entries:
            if entry.header.doc_id == GONE:
                dead[slot >> 3] |= 1 << (slot & 7)
            slot += len(entry.texts)
        gone = sum(entry.header.doc_id == GONE for entry in entries)
        piece = CollectionPiece(written.id, slots, len(entries) - gone, slots - gone, bytes(dead) if gone else b"")
        return ViewPart(name, {GUIDE: piece})

    def scores(self, query: str, weight: float, by: type[WordScores] = WordScores) -> WordScores:
        query_terms = keywords.find_query_terms(query)
        occurrences = [(terms, self.reader.find_occurrences(terms, [GUIDE])[GUIDE]) for terms in query_terms]
        words = [
            self.reader.add_compounds(terms, GUIDE, holdings, alone=len(query_terms) == 1)
            for terms, holdings in occurrences
        ]
        return bm25.score_collection(self.held, words, self.reader.read_lengths(GUIDE), document_weight=weight, by=by)

    def reference(self, query: str, weight: float) -> tuple[dict[int, int], int]:
        """Return the scores that FTS5's rows give, by row, and the highest possible score."""
        sizes = [len(self.documents[number]) for number in sorted(self.first, key=lambda number: self.first[number])]
        firsts = [sum(sizes[:number]) for number, size in enumerate(sizes) for _ in range(size)]
        tokens = self.chunks.token_counts()
        of_documents = Counter[int]()
        for first, count in zip(firsts, tokens, strict=True):
            of_documents[first] += count
        words = [self.chunks.slots_with(terms) for terms in keywords.find_query_terms(query)]
        scores, most = bm25_scores(words, dict(enumerate(firsts)), dict(enumerate(tokens)), of_documents, weight)
        return {self.rows[chunk]: score for chunk, score in scores.items()}, most

    def sqlite(self, table: FtsWords, query: str) -> dict[int, float]:
        """The sum of SQLite's `bm25()` of each word, with the weight of our corpus instead of
        SQLite's.
        """
        connection = table.connection
        [texts] = connection.execute("SELECT count(*) FROM keywords").fetchone()
        totals = Counter[int]()
        for word in dict.fromkeys(keywords.split_query(query)):
            statement = "SELECT rowid, -bm25(keywords) FROM keywords WHERE keywords MATCH ?"
            scores = dict(connection.execute(statement, (f'"{word}"',)).fetchall())
            holding = len(scores)
            theirs = max(1e-6, math.log((texts - holding + 0.5) / (holding + 0.5)))
            ours = math.log(1 + (texts + 8 - holding + 0.5) / (holding + 0.5))
            totals.update({row: score / theirs * ours for row, score in scores.items()})
        return dict(totals)


Making = Callable[..., Corpus]


@pytest.fixture
def corpora(tmp_path: Path) -> Iterator[Making]:
    """Makes one, in a folder of its own where it is one of several."""
    with contextlib.ExitStack() as opened:

        def make(documents: list[list[str]], order: list[int] | None = None, folder: str = "") -> Corpus:
            (tmp_path / folder).mkdir(exist_ok=True)
            return opened.enter_context(contextlib.closing(Corpus(tmp_path / folder, documents, order)))

        yield make


@pytest.fixture(scope="module")
def documents() -> list[list[str]]:
    dice = random.Random(5)
    return [
        [
            " ".join(dice.choices(VOCABULARY, weights=range(1, 11), k=dice.randint(1, 30)))
            for _ in range(dice.randint(1, 6))
        ]
        for _ in range(120)
    ]


@pytest.mark.parametrize("query", QUERIES)
def test_scores_of_chunks_are_those_of_sqlite(corpora, documents, query):
    corpus = corpora(documents)
    expected = {corpus.rows[chunk]: score for chunk, score in corpus.sqlite(corpus.chunks, query).items()}
    scores = corpus.scores(query, 0.0)
    assert set(scores.rows) == set(expected)
    assert {row: scores.score_row(row) for row in expected} == {
        row: pytest.approx(score * BILLION, abs=2) for row, score in expected.items()
    }


@pytest.mark.parametrize("query", QUERIES)
def test_document_weight_adds_the_score_of_the_document_table(corpora, documents, query):
    corpus = corpora(documents)
    pages = corpus.sqlite(corpus.pages, query)
    scores, both = corpus.scores(query, 0.0), corpus.scores(query, 0.6)
    for number, first in corpus.first.items():
        for row in range(first, first + len(documents[number])):
            assert both.score_row(row) - scores.score_row(row) == pytest.approx(
                0.6 * pages.get(number, 0.0) * BILLION, abs=3
            )


@pytest.mark.parametrize("order", [None, [*range(60), *range(119, 59, -1)]])
@pytest.mark.parametrize("by", [WordScores, ArrayScores])
def test_scores_equal_those_of_fts_rows_bit_for_bit(corpora, documents, order, by, monkeypatch):
    monkeypatch.setattr(postings, "BLOCK_TOKENS", 500)
    corpus = corpora(documents, order)
    for query in QUERIES:
        expected, most = corpus.reference(query, 0.6)
        scores = corpus.scores(query, 0.6, by)
        assert {row: scores.score_row(row) for row in scores.rows} == expected
        assert scores.select_best(len(expected)) == expected
        assert scores.max_score == most


def test_scores_depend_on_the_contents_only(corpora, documents):
    answers = []
    for number in range(3):
        order = list(range(len(documents)))
        random.Random(number).shuffle(order)
        corpus = corpora(documents, order, str(number))
        assert len(corpus.reader.view.parts) == 3
        assert all(part.pieces[GUIDE].dead for part in corpus.reader.view.parts)
        answers.append(
            [
                [scores.score_row(first + place) for number, first in sorted(corpus.first.items()) for place in range(len(documents[number]))]
                for scores in (corpus.scores(query, 0.6) for query in QUERIES)
            ]
        )  # fmt: skip
    assert answers[0] == answers[1] == answers[2]


def test_numpy_gives_the_same_bits(corpora, documents):
    order = list(range(len(documents)))
    random.Random(7).shuffle(order)
    corpus = corpora(documents, order)
    everything = [row for _, rows in corpus.reader.list_documents(GUIDE) for row in rows]
    for query in QUERIES:
        plain, arrays = (corpus.scores(query, 0.6, by) for by in (WordScores, ArrayScores))
        assert set(arrays.rows) == set(plain.rows)
        assert arrays.max_score == plain.max_score
        assert [arrays.score_row(row) for row in everything] == [plain.score_row(row) for row in everything]
        for depth, among in ((1, None), (10, None), (1000, None), (3, everything[::3]), (9, []), (2, everything)):
            assert arrays.select_best(depth, among) == plain.select_best(depth, among)


def test_best_come_with_all_that_tie_with_the_last(corpora):
    corpus = corpora([["owl"]] * 5 + [["owl owl"]] + [["fox"]] * 30)
    scores = corpus.scores("owl", 0.6)
    assert [len(scores.select_best(depth)) for depth in (1, 2, 6, 1000)] == [1, 6, 6, 6]
    assert scores.select_best(1) == {corpus.first[5]: scores.score_row(corpus.first[5])}
    assert scores.select_best(3, list(scores.rows)[:2]).keys() == set(list(scores.rows)[:2])


@pytest.mark.parametrize("texts", [1, 2, 7, 60])
def test_word_of_all_texts_keeps_share_of_score(corpora, texts):
    """Beside the first word, the question has one that no text holds."""
    scores = corpora([["owl"]] * texts).scores("owl unknown", 0.6)
    [score] = set(scores.select_best(texts).values())
    assert score > scores.max_score / 100


COMPOUNDS = [
    ["Der Rückfahrscheinwerfer ist defekt.", "Scheinwerfereinstellung"],
    ["Ru\u0308ckfahrscheinwerfer und Nebelscheinwerfer"],
    ["Die Scheinwerfer reinigen."],
    ["Der Schein wirft Schatten.", "Scheinwerferlampenfassungen"],
    ["蓄電池の点検"],
]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("Scheinwerfer", [2, 1, 0, 3]),
        ("scheinwerfer Lampe", [2, 1, 0, 3]),
        ("Rückfahr", [1, 0]),
        ("lampenfassung", []),
        ("蓄", [4]),
        ("検", [4]),
        ("検 owl", []),
        ("wirft", [3]),
    ],
)
@pytest.mark.parametrize("by", [WordScores, ArrayScores])
def test_rare_word_finds_compounds_that_begin_or_end_with_it(corpora, query, expected, by):
    answers = []
    for number, order in enumerate([None, [4, 0, 3, 2, 1], [1, 2, 3, 4, 0]]):
        corpus = corpora(COMPOUNDS, order, str(number))
        scores = corpus.scores(query, 0.6, by)
        answers.append(
            {
                name: max(map(scores.score_row, range(first, first + len(COMPOUNDS[name]))))
                for name, first in corpus.first.items()
            }
        )
    ranked = sorted((number for number, score in answers[0].items() if score), key=lambda number: -answers[0][number])
    assert sorted(ranked) == sorted(expected)
    assert ranked[:1] == expected[:1]
    assert answers[0] == answers[1] == answers[2]


def test_common_word_finds_no_compounds(corpora):
    corpus = corpora([["Scheinwerfer"]] * 6 + [["Nebelscheinwerfer"]] + [["Lampe"]] * 5 + [["Nachttischlampe"]])
    assert not corpus.scores("Scheinwerfer", 0.6).score_row(corpus.first[6])
    assert corpus.scores("Lampe", 0.6).score_row(corpus.first[12])


def test_words_that_are_nowhere_give_nothing(corpora):
    corpus = corpora([["owl"], [""]])
    for query in ("", "?!", "unknown"):
        scores = corpus.scores(query, 0.6)
        assert (list(scores.rows), scores.select_best(5, scores.rows), scores.score_row(corpus.first[0])) == ([], {}, 0)


def test_file_of_lengths_of_another_size_is_refused():
    content = flat_files.encode_lengths([[3, 4], [5]])
    assert list(flat_files.decode_lengths(content, slots=3)) == [3, 7, 0, 4, 7, 1, 5, 5, 0]
    assert list(flat_files.decode_lengths(b"", slots=0)) == []
    with pytest.raises(ValueError, match="36 bytes for 4 slots"):
        flat_files.decode_lengths(content, slots=4)
