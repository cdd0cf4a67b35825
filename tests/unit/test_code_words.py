"""BM25F of pieces of code: words among the names that a piece declares, and all other words."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmrag_link.index import flat_files
from vmrag_link.index.postings import CODE_FIELDS, NAMES, BlockWriter, Postings, WordOccurrences
from vmrag_link.index.view import IndexedCollection
from vmrag_link.models import SOURCE, Chunking, Collection
from vmrag_link.retrieval import bm25
from vmrag_link.retrieval.array_scores import ArrayScores
from vmrag_link.retrieval.bm25 import BILLION, WordScores

CODE = Collection("code", kind=SOURCE, chunking=Chunking("code"))
Chunk = tuple[str, str, str]
Page = list[Chunk]

WORDS = ("owl", "fox", "get_owl", "unknown")
"""One of two terms, and one that no chunk has."""

FIELD = st.lists(st.sampled_from(["owl", "fox", "owls", "get", "stone", "rain"]), max_size=6).map(" ".join)
PAGES = st.lists(st.lists(st.tuples(FIELD, FIELD, FIELD), min_size=1, max_size=3), min_size=1, max_size=8)


class Code:
    """Pages of code in segments, which begin with the pages of these numbers."""

    def __init__(self, pages: Sequence[Page], starts: Sequence[int] = (0,)) -> None:
        self._pages = pages
        self._postings: list[Postings] = []
        self._numbers: dict[int, Sequence[int]] = {}
        self.rows: list[int] = []
        self.tokens: list[int] = []
        for segment, start in enumerate(starts):
            some = pages[start : [*starts, len(pages)][segment + 1]]
            writer = BlockWriter(CODE_FIELDS)
            counts = writer.add_chunks(chunk for page in some for chunk in page)
            self._postings.append(Postings(writer.end_block(), slots=len(counts)))
            remaining = iter(counts)
            lengths = flat_files.encode_lengths([[next(remaining) for _ in page] for page in some])
            self._numbers[segment] = flat_files.decode_lengths(lengths, slots=len(counts))
            self.rows += [segment << 40 | slot for slot in range(len(counts))]
            self.tokens += counts

    def scores(self, by: type[WordScores] = WordScores, weight: float = 0.6) -> WordScores:
        held = IndexedCollection(CODE, len(self._pages), len(self.rows), sum(self.tokens))
        words = [self._holdings(word.split("_")) for word in WORDS]
        return bm25.score_collection(held, words, self._numbers, document_weight=weight, by=by)

    def _holdings(self, terms: Sequence[str]) -> list[WordOccurrences]:
        return [
            WordOccurrences(segment, slots, frequencies, b"", field == NAMES)
            for segment, words in enumerate(self._postings)
            for field, slots, frequencies in words.find_lists(terms)
            if len(slots)
        ]


def frequency(word: str, field: str) -> int:
    stems = " ".join(token.removesuffix("s") for token in field.split())
    return f" {stems} ".replace(" ", "  ").count(f" {word.replace('_', '  ')} ")


@given(PAGES)
def test_score_is_that_of_two_fields(pages):
    code, chunks = Code(pages), [chunk for page in pages for chunk in page]
    expected = [0.0] * len(chunks)
    for word in WORDS:
        often = [(sum(frequency(word, field) for field in chunk[:2]), frequency(word, chunk[2])) for chunk in chunks]
        holding = sum(any(counts) for counts in often)
        weight = math.log(1 + (len(chunks) + 8 - holding + 0.5) / (holding + 0.5))
        for number, (others, names) in enumerate(often):
            norm = 0.25 + 0.75 * code.tokens[number] * len(chunks) / (sum(code.tokens) or 1)
            weighted = 6.3 * names + others / norm
            expected[number] += weight * 2.8 * weighted / (weighted + 1.8)
    scores = code.scores(weight=0.0)
    assert [scores.score_row(row) for row in code.rows] == [pytest.approx(score * BILLION, abs=2) for score in expected]


@given(PAGES, st.data())
def test_scores_have_same_bits_in_numpy_and_in_all_segments(pages, data):
    starts = [0, *sorted(data.draw(st.sets(st.integers(1, len(pages)), max_size=2)) - {len(pages)})]
    answers = []
    for code in (Code(pages), Code(pages, starts)):
        for by in (WordScores, ArrayScores):
            scores = code.scores(by)
            answers.append((scores.max_score, [scores.score_row(row) for row in code.rows]))
            assert scores.select_best(len(code.rows)) == {row: scores.score_row(row) for row in scores.rows}
    assert all(answer == answers[0] for answer in answers)


def test_piece_that_declares_name_goes_before_pieces_that_use_it():
    declares, uses = ("def owl stone", "", "owl"), ("owl fox owl rain owl", "owl", "fox")
    code = Code([[uses], [declares], [("rain stone", "", "rain")]])
    scores = code.scores()
    best = scores.select_best(3)
    assert max(best, key=lambda row: best[row]) == code.rows[0], "it also has the word fox"
    code = Code([[("owl rain owl rain owl", "owl", "rain")], [declares], [("rain stone", "", "rain")]])
    best = code.scores().select_best(3)
    assert max(best, key=lambda row: best[row]) == code.rows[1]
