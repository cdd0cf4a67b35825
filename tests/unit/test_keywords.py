"""Words in SQLite's FTS5, and where they are."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmrag_link.index import keywords


@pytest.fixture
def words(tmp_path: Path):
    connection = keywords.connect(tmp_path)
    yield connection
    connection.close()


def row(slot: int, collection: int = 1) -> int:
    return keywords.row_id(collection, slot)


def found(connection: sqlite3.Connection, query: str, segment: int = 0) -> list[list[int]]:
    """The rows of each word, in the `segment`th segment of a view; its table is made anew."""
    connection.execute("DROP TABLE IF EXISTS temp.terms")
    postings = keywords.Postings(connection, segment)
    return [postings.of(terms) for terms in keywords.terms(query)]


def test_a_row_names_its_segment_its_collection_in_it_and_its_slot():
    named = keywords.row_id(3, 7, 5)
    assert (keywords.segment_of(named), keywords.slot_of(named)) == (5, 7)
    assert keywords.piece_of(named) == keywords.piece_of(keywords.row_id(3, keywords.LAST_SLOT, 5))
    others = [keywords.row_id(3, 7, 6), keywords.row_id(4, 7, 5), keywords.row_id(3, 7)]
    assert keywords.piece_of(named) not in {keywords.piece_of(each) for each in others}
    last = (1 << keywords.COLLECTION_BITS) - 1
    assert row(keywords.LAST_SLOT, 3) < row(0, 4)
    assert row(keywords.LAST_SLOT, last) == keywords.LAST_ROW < keywords.row_id(0, 0, 1)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("How is the owl?", ["owl"]),
        ("owl OWL Owl", ["owl"]),
        ("to be or not to be", ["to", "be", "or", "not"]),
        ("snake_case NEAR(x)", ["snake_case", "near", "x"]),
        ('"; DROP', ["drop"]),
        ("?! …", []),
        ("", []),
        ("Äpfel 🦉", ["äpfel"]),
    ],
)
def test_a_query_is_its_words_without_those_that_carry_no_topic(query, expected):
    assert keywords.words(query) == expected


def test_words_are_found_by_their_stem_and_without_accents(words):
    keywords.add(words, [(row(0), "Owls were hunting"), (row(1), "a café at night"), (row(2), "nothing")])
    assert found(words, "hunts") == [[row(0)]]
    assert found(words, "cafe") == [[row(1)]]
    assert found(words, "???") == []
    assert found(words, "unknown cafe") == [[], [row(1)]]


def test_every_occurrence_of_a_word_counts_in_the_order_of_the_rows(words):
    keywords.add(words, [(row(5, 2), "owl"), (row(0, 1), "owl and Owls, owl"), (row(0, 2), "fox owl")])
    assert found(words, "owl fox") == [[row(0, 1)] * 3 + [row(0, 2), row(5, 2)], [row(0, 2)]]


def test_the_parts_of_a_word_that_is_taken_apart_must_follow_each_other(words):
    texts = ["get_close_matches(x)", "get matches, close", "close get close", "GET close match", "a_a a a"]
    keywords.add(words, [(row(slot), text) for slot, text in enumerate(texts)])
    assert found(words, "get_close_matches") == [[row(0), row(3)]]
    assert found(words, "get_close") == [[row(0), row(2), row(3)]]
    assert found(words, "a_a") == [[row(4)] * 3]
    assert found(words, "close_unknown __") == [[]]


def test_code_is_found_by_all_its_columns_and_by_its_names_alone(words):
    keywords.add(words, [(row(0), "def tickOwl(): owl", "tick owl", "src owls"), (row(1), "owl", "", "fox tick")])
    assert found(words, "owl tickowl") == [[row(0)] * 3 + [row(1)], [row(0)]]
    postings = keywords.Postings(words, 0) if words.execute("DROP TABLE temp.terms") else None
    assert postings.of(["owl"], names=True) == [row(0)]
    assert postings.of(["fox", "tick"], names=True) == [row(1)]
    assert postings.of(["owl", "tick"]) == [], "no phrase goes from one column to the next"
    assert keywords.token_counts(words, range(row(0), row(2))) == [3 + 2 + 2, 1 + 0 + 2]
    assert keywords.texts(words, [row(0)]) == {row(0): "def tickOwl(): owl"}


def test_the_rows_of_a_segment_are_those_of_its_place_in_the_view(words):
    keywords.add(words, [(row(0), "owl"), (row(5, 2), "a snake_case owl")])
    for segment in (0, 1, 100):
        first, second = keywords.row_id(1, 0, segment), keywords.row_id(2, 5, segment)
        assert found(words, "owl snake_case fox", segment) == [[first, second], [second], []]
        assert {keywords.segment_of(each) for each in (first, second)} == {segment}


def test_what_a_word_of_a_query_is_taken_apart_into_is_told_in_its_order():
    assert keywords.terms("The owls get_close_matches Cafés") == [["owl"], ["get", "close", "match"], ["cafe"]]
    assert keywords.terms("__ owl ?!") == [["owl"]]
    assert keywords.terms("") == []


def test_a_query_has_so_many_words_and_none_without_end():
    many = " ".join(f"owl{number}" for number in range(keywords.MOST_WORDS + 5))
    assert len(keywords.words(f"the {many}")) == keywords.MOST_WORDS
    assert keywords.words(f"{'a_' * 600} owl {'x' * 1000}") == ["owl", "x" * 1000]


def test_of_a_word_of_very_many_parts_the_first_are_compared(words):
    keywords.add(words, [(row(0), "a_" * 500), (row(1), "a_a b")])
    assert found(words, "a_" * 40) == [[row(0)] * (500 - 31)]
    assert found(words, "b_" + "a_" * 40) == [[]]


def test_tokens_are_counted_as_fts_counts_them(words):
    texts = ["owl " * 200, "", "?!", "snake_case is two", "x " * 20_000]
    keywords.add(words, [(row(slot), text) for slot, text in enumerate(texts)])
    counts = [200, 0, 0, 4, 20_000]
    assert keywords.token_counts(words, range(row(0), row(5))) == counts
    assert keywords.token_counts(words, range(row(3), row(5))) == counts[3:]
    assert keywords.token_counts(words, range(row(5), row(9))) == []
    assert keywords.count(words) == 5, "a text without words counts, too"


def test_rows_are_counted_by_ranges_and_read(words):
    keywords.add(words, [(row(slot), f"owl number {slot}") for slot in (0, 1, 4, 5, 6, 8, 9)])
    assert keywords.count(words) == 7
    assert keywords.count(words, range(row(0), row(4))) == 2
    assert keywords.count(words, range(row(50), row(60))) == 0
    assert keywords.texts(words, [row(0), row(2)]) == {row(0): "owl number 0"}
    assert list(keywords.scan(words, range(row(1), row(5)))) == [(row(1), "owl number 1"), (row(4), "owl number 4")]


def test_many_rows_come_in_with_several_statements(words):
    keywords.add(words, ((row(slot), f"owl {slot}") for slot in range(2 * keywords.ROWS_AT_ONCE + 1)))
    assert found(words, "owl") == [[row(slot) for slot in range(2 * keywords.ROWS_AT_ONCE + 1)]]


@given(st.text())
def test_any_text_can_be_looked_up(text):
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.execute(keywords.TABLE)
    keywords.add(connection, [(row(0), "owl")])
    assert all(rows in ([], [row(0)]) for rows in found(connection, text))
    connection.close()


def test_a_frozen_connection_needs_no_writable_folder_and_makes_nothing(tmp_path):
    connection = keywords.connect(tmp_path)
    keywords.add(connection, [(row(0), "owl")])
    connection.close()
    frozen = keywords.connect(tmp_path, frozen=True)
    assert found(frozen, "owl") == [[row(0)]]
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        keywords.add(frozen, [(row(1), "fox")])
    frozen.close()
    (absent := tmp_path / "absent").mkdir()
    with pytest.raises(sqlite3.OperationalError):
        keywords.connect(absent, frozen=True)
    assert list(absent.iterdir()) == []
