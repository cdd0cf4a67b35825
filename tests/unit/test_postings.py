"""Which chunks hold a word: the file of a segment, compared with SQLite's FTS5."""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.fts_words import FtsWords
from tests.support.long import examples
from vmrag_link.index import keywords, postings
from vmrag_link.index.postings import CODE_FIELDS, DOCUMENT_FIELDS, BlockWriter, Postings, WordOccurrences

Chunk = Sequence[str]


def write(chunks: Sequence[Chunk], fields: Sequence[str] = DOCUMENT_FIELDS) -> Postings:
    writer = BlockWriter(fields)
    writer.add_chunks(chunks)
    return Postings(writer.end_block(), slots=len(chunks))


def write_texts(*texts: str) -> Postings:
    return write([(text,) for text in texts])


def find(words: Postings, terms: Sequence[str], *, names: bool = False) -> dict[int, int]:
    frequencies = Counter[int]()
    for _, slots, counts in words.find_lists(terms, names=names):
        assert list(slots) == sorted(set(slots))
        frequencies.update(dict(zip(slots, counts, strict=True)))
    return dict(frequencies)


def find_all(words: Postings, query: str) -> list[dict[int, int]]:
    return [find(words, terms) for terms in keywords.find_query_terms(query)]


def compare_with_fts(chunks: Sequence[Chunk], fields: Sequence[str], queries: Sequence[str]) -> None:
    writer = BlockWriter(fields)
    counts = writer.add_chunks(chunks)
    words = Postings(writer.end_block(), slots=len(chunks))
    with contextlib.closing(FtsWords(chunks)) as fts:
        assert counts == fts.token_counts()
        for terms in [terms for query in queries for terms in keywords.find_query_terms(query)]:
            for names in (False, True):
                if not names or len(fields) > 1:
                    assert find(words, terms, names=names) == Counter(fts.slots_with(terms, names=names))


TEXT = st.text(st.characters(max_codepoint=127)) | st.lists(
    st.sampled_from(["owl", "Owls", "the", "_", "é", "e\u0301", "\u201cowl\u201d", " ", "-", "\0", "x9", "Ñ"])
).map("".join)
"""`letters` takes other texts apart, and `test_letters.py` has its cases."""


@given(st.lists(TEXT, max_size=4))
def test_words_of_any_text_equal_those_of_fts(texts):
    compare_with_fts([(text,) for text in texts], DOCUMENT_FIELDS, [*texts, "owl", "e", "x9"])


@given(st.lists(st.tuples(TEXT, TEXT, TEXT), max_size=3))
def test_words_of_any_fields_equal_those_of_fts(chunks):
    compare_with_fts(chunks, CODE_FIELDS, [text for chunk in chunks for text in chunk])


def test_words_of_many_chunks_equal_those_of_fts():
    dice = random.Random(3)
    vocabulary = [
        f"{stem}{ending}" for stem in ("owl", "hunt", "get_close", "x", "Ä") for ending in ("", "s", "ing", "_a")
    ]
    texts = [" ".join(dice.choices(vocabulary, k=dice.randrange(300))) for _ in range(examples(1_500))]
    compare_with_fts([(text,) for text in texts], DOCUMENT_FIELDS, [" ".join(vocabulary), "unknown get_close_unknown"])


def test_words_are_found_by_their_stem_and_without_accents():
    words = write_texts("Owls were hunting", "a café at night", "nothing")
    assert find_all(words, "hunts cafe unknown") == [{0: 1}, {1: 1}, {}]


def test_phrase_finds_terms_that_follow_each_other():
    words = write_texts("get_close_matches(x)", "get matches, close", "close get close", "GET close match", "a_a a a")
    assert find_all(words, "get_close_matches get_close a_a close_unknown") == [
        {0: 1, 3: 1},
        {0: 1, 2: 1, 3: 1},
        {4: 3},
        {},
    ]


def test_phrase_compares_the_first_terms_of_many():
    words = write_texts("a_" * 500, "a_a b")
    assert find_all(words, "a_" * 40) == [{0: 500 - 31}]
    assert find_all(words, "b_" + "a_" * 40) == [{}]


def test_code_is_found_by_all_fields_and_by_names_alone():
    words = write([("def tickOwl(): owl", "tick owl", "src owls"), ("owl", "", "fox tick")], CODE_FIELDS)
    assert find_all(words, "owl tickowl") == [{0: 3, 1: 1}, {0: 1}]
    assert find(words, ["owl"], names=True) == {0: 1}
    assert find(words, ["fox", "tick"], names=True) == {1: 1}
    assert find(words, ["owl", "tick"]) == {}, "no phrase goes from one field to the next"


def test_blocks_follow_each_other(monkeypatch):
    monkeypatch.setattr(postings, "BLOCK_TOKENS", 5)
    writer, content = BlockWriter(DOCUMENT_FIELDS), b""
    for number in range(70_000):
        if number % 7_000 < 3:
            writer.add_chunks([("owl " * (number % 300),)])
        else:
            writer.add_chunks([("fox",)])
        if number % 30_000 == 29_999:
            assert writer.is_full
            content += writer.end_block()
    content += writer.end_block()
    assert writer.is_empty
    words = Postings(content, slots=70_000)
    assert [rows for _, rows, _ in words.list_blocks()] == [range(30_000), range(30_000, 60_000), range(60_000, 70_000)]
    assert find(words, ["owl"]) == {
        number: number % 300 for number in range(70_000) if number % 7_000 < 3 and number % 300
    }


@given(st.lists(st.tuples(TEXT, TEXT), max_size=5))
def test_block_is_equal_with_and_without_numpy(chunks):
    blocks = []
    for many in (True, False):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(postings, "_has_many", lambda _, many=many: many)
            writer = BlockWriter(("text", "names"), 3)
            writer.add_chunks(chunks)
            blocks.append(writer.end_block())
    assert blocks[0] == blocks[1]


@pytest.mark.parametrize("cut", [1, 20, 300])
def test_cut_file_is_refused(cut):
    writer = BlockWriter(DOCUMENT_FIELDS)
    writer.add_chunks([("the owl hunts",)] * 30)
    content = writer.end_block()
    with pytest.raises(ValueError, match=r"cut|JSON|malformed|truncated"):
        Postings(content[:-cut], slots=30)


def test_file_of_other_slots_is_refused():
    writer = BlockWriter(DOCUMENT_FIELDS)
    writer.add_chunks([("owl",)])
    content = writer.end_block()
    with pytest.raises(ValueError, match="1 of 2 slots"):
        Postings(content, slots=2)
    with pytest.raises(ValueError, match="begins with slot 0 instead of 1"):
        Postings(content + content, slots=2)
    assert find(Postings(b"", slots=0), ["owl"]) == {}


def test_edited_bytes_are_an_error_or_other_numbers():
    """No byte leads to another kind of error than those that `Searcher` expects."""
    writer = BlockWriter(CODE_FIELDS)
    writer.add_chunks([("the owl hunts owls get_close", "close", "owl")] * 30)
    content = writer.end_block()
    for at in range(len(content)):
        edited = content[:at] + bytes([content[at] ^ 0x55]) + content[at + 1 :]
        with contextlib.suppress(ArithmeticError, LookupError, TypeError, ValueError):
            words = Postings(edited, slots=30)
            for terms in (["owl"], ["get", "close"]):
                for _, slots, frequencies in words.find_lists(terms):
                    [*zip(slots, frequencies, strict=True)]


def test_holding_leaves_out_dead_slots():
    assert [*WordOccurrences(1, [0, 2, 3], [5, 6, 7], b"").alive_pairs()] == [(0, 5), (2, 6), (3, 7)]
    assert [*WordOccurrences(1, [0, 2, 3], [5, 6, 7], bytes([1, 1, 0, 1])).alive_pairs()] == [(0, 5), (3, 7)]
