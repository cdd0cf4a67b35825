"""BM25 of chunks and of their documents, against SQLite's own."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from vmrag_link.index import keywords, lengths
from vmrag_link.index.keywords import row_id
from vmrag_link.retrieval.bm25 import BILLION, WordIndex, WordScores

VOCABULARY = "owl fox river stone night get_close_matches snake_case light rain path".split()
QUERIES = ["owl", "river fox", "night stone owl", "get_close_matches rain", "OWLS lights unknown", "snake_case owl owl"]


class Corpus:
    """Documents in the two tables of FTS5 that ours replaces, and in our own index."""

    def __init__(self, folder: Path, documents: list[list[str]], order: list[int] | None = None) -> None:
        """`order`: in which they are added; ever so often one goes away again in between."""
        self.words = keywords.connect(folder)
        self.words.execute("CREATE VIRTUAL TABLE pages USING fts5(text, tokenize = 'porter unicode61')")
        self.first: dict[int, int] = {}
        slots = 0
        for number in order or range(len(documents)):
            slots = self._add(folder, number, documents[number], slots)
            if order and number % 3 == 0:
                gone = range(row_id(1, slots), row_id(1, slots + 1))
                slots = self._add(folder, None, ["owl that goes away"], slots)
                keywords.remove(self.words, [gone])
        self.words.close()
        self.words = keywords.connect(folder, frozen=True)
        self.index = WordIndex(
            keywords.Postings(self.words), {1: lengths.read(folder, 1, slots=slots)}, documents=len(documents)
        )

    def _add(self, folder: Path, number: int | None, chunks: list[str], slots: int) -> int:
        rows = range(row_id(1, slots), row_id(1, slots + len(chunks)))
        keywords.add(self.words, zip(rows, chunks, strict=True))
        lengths.append(folder, 1, [keywords.token_counts(self.words, rows)], slots=slots)
        if number is not None:
            self.first[number] = rows.start
            self.words.execute("INSERT INTO pages(rowid, text) VALUES (?, ?)", (rows.start, " ".join(chunks)))
        return slots + len(chunks)

    def scores(self, query: str, weight: float) -> WordScores:
        return self.index.scores(query, document_weight=weight)

    def sqlite(self, table: str, query: str) -> dict[int, float]:
        """What SQLite's `bm25()` says."""
        asked = " OR ".join(f'"{word}"' for word in keywords.words(query))
        found = self.words.execute(f"SELECT rowid, -bm25({table}) FROM {table} WHERE {table} MATCH ?", (asked,))
        return dict(found.fetchall())


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
def test_the_scores_of_chunks_are_those_of_sqlite(tmp_path, documents, query):
    corpus = Corpus(tmp_path, documents)
    expected = corpus.sqlite("keywords", query)
    scores = corpus.scores(query, 0.0)
    assert set(scores.rows) == set(expected)
    assert {row: scores.of(row) for row in expected} == {
        row: pytest.approx(score * BILLION, abs=2) for row, score in expected.items()
    }


@pytest.mark.parametrize("query", QUERIES)
def test_what_a_document_adds_is_its_score_in_a_table_of_documents(tmp_path, documents, query):
    corpus = Corpus(tmp_path, documents)
    pages = corpus.sqlite("pages", query)
    own, both = corpus.scores(query, 0.0), corpus.scores(query, 0.6)
    for number, first in corpus.first.items():
        for row in range(first, first + len(documents[number])):
            assert both.of(row) - own.of(row) == pytest.approx(0.6 * pages.get(first, 0.0) * BILLION, abs=3)


def test_scores_depend_on_the_contents_only(tmp_path, documents):
    answers = []
    for number in range(3):
        (folder := tmp_path / str(number)).mkdir()
        order = list(range(len(documents)))
        random.Random(number).shuffle(order)
        corpus = Corpus(folder, documents, order)
        answers.append(
            [
                [scores.of(first + place) for each, first in sorted(corpus.first.items()) for place in range(len(documents[each]))]
                for scores in (corpus.scores(query, 0.6) for query in QUERIES)
            ]
        )  # fmt: skip
    assert answers[0] == answers[1] == answers[2]


def test_the_best_come_with_all_that_tie_with_the_last(tmp_path):
    corpus = Corpus(tmp_path, [["owl"]] * 5 + [["owl owl"]] + [["fox"]] * 30)
    scores = corpus.scores("owl", 0.6)
    assert [len(scores.best(depth, scores.rows)) for depth in (1, 2, 6, 1000)] == [1, 6, 6, 6]
    assert scores.best(1, scores.rows) == {corpus.first[5]: scores.of(corpus.first[5])}
    assert scores.best(3, list(scores.rows)[:2]).keys() == set(list(scores.rows)[:2])


def test_words_that_are_nowhere_give_nothing(tmp_path):
    corpus = Corpus(tmp_path, [["owl"], [""]])
    for query in ("", "?!", "unknown"):
        scores = corpus.scores(query, 0.6)
        assert (list(scores.rows), scores.best(5, scores.rows), scores.of(corpus.first[0])) == ([], {}, 0)


def test_a_file_of_lengths_of_another_size_is_refused(tmp_path):
    lengths.append(tmp_path, 1, [[3, 4], [5]], slots=0)
    assert list(lengths.read(tmp_path, 1, slots=3)) == [3, 7, 0, 4, 7, 1, 5, 5, 0]
    assert list(lengths.read(tmp_path, 2, slots=0)) == []
    with pytest.raises(ValueError, match="36 bytes for 4 slots"):
        lengths.read(tmp_path, 1, slots=4)
