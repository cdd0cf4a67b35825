"""Words and BM25 in SQLite's FTS5."""

from __future__ import annotations

import random
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


def found(connection: sqlite3.Connection, query: str, collection: int = 1, depth: int = 10) -> list[int]:
    hits = keywords.search(connection, query, collection, depth)
    return [keywords.slot_of(each) for each, _ in sorted(hits, key=lambda hit: (-hit[1], hit[0]))]


def test_a_row_names_its_collection_and_slot():
    assert (keywords.collection_of(row(7, 3)), keywords.slot_of(row(7, 3))) == (3, 7)
    assert row((1 << keywords.SLOT_BITS) - 1, 3) < row(0, 4)


@pytest.mark.parametrize(
    ("query", "expression"),
    [
        ("How is the owl?", '"owl"'),
        ("owl OWL Owl", '"owl"'),
        ("to be or not to be", '"to" OR "be" OR "or" OR "not"'),
        ("snake_case NEAR(x)", '"snake_case" OR "near" OR "x"'),
        ('"; DROP', '"drop"'),
        ("?! …", ""),
        ("", ""),
        ("Äpfel 🦉", '"äpfel"'),
    ],
)
def test_a_query_becomes_words_joined_by_or(query, expression):
    assert keywords.match_expression(query) == expression


def test_words_are_found_by_their_stem_and_without_accents(words):
    keywords.add(words, [(row(0), "Owls were hunting"), (row(1), "a café at night"), (row(2), "nothing")])
    assert found(words, "hunts") == [0]
    assert found(words, "cafe") == [1]
    assert found(words, "???") == []


def test_a_collection_sees_its_own_rows_only(words):
    keywords.add(words, [(row(0, 1), "owl"), (row(0, 2), "owl"), (row(5, 2), "owl")])
    assert keywords.search(words, "owl", 1, 10)[0][0] == row(0, 1)
    assert found(words, "owl", collection=2) == [0, 5]
    assert found(words, "owl", collection=3) == []


def test_the_best_come_with_all_that_tie_with_the_last(words):
    keywords.add(
        words,
        [(row(slot), "owl") for slot in range(5)] + [(row(9), "owl owl")] + [(row(20 + n), "fox") for n in range(30)],
    )
    assert found(words, "owl", depth=1) == [9]
    assert found(words, "owl", depth=2) == [9, 0, 1, 2, 3, 4]
    assert found(words, "owl", depth=1000) == [9, 0, 1, 2, 3, 4]


def test_rows_are_removed_by_ranges_and_counted(words):
    keywords.add(words, [(row(slot), f"owl number {slot}") for slot in range(10)])
    keywords.remove(words, [range(row(2), row(4)), range(row(7), row(8)), range(row(50), row(60))])
    assert keywords.count(words) == 7
    assert keywords.count(words, range(row(0), row(4))) == 2
    assert keywords.texts(words, [row(0), row(2)]) == {row(0): "owl number 0"}


def test_scores_depend_on_the_contents_only(tmp_path):
    dice = random.Random(5)
    texts = {
        slot: " ".join(dice.choices("owl fox river stone night".split(), k=dice.randint(1, 30))) for slot in range(200)
    }
    answers = []
    for number in range(3):
        (folder := tmp_path / str(number)).mkdir()
        connection = keywords.connect(folder)
        slots = list(texts)
        dice.shuffle(slots)
        for slot in slots:
            if number and slot % 3 == 0:
                keywords.add(connection, [(row(slot), "something else that goes away again owl")])
                keywords.remove(connection, [range(row(slot), row(slot + 1))])
            keywords.add(connection, [(row(slot), texts[slot])])
        answers.append(
            [sorted(keywords.search(connection, query, 1, 50)) for query in ("owl", "river fox", "night stone owl")]
        )
        connection.close()
    assert answers[0] == answers[1] == answers[2]


@given(st.text())
def test_any_text_is_an_expression_that_fts_takes(text):
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE VIRTUAL TABLE keywords USING fts5(text, tokenize = 'porter unicode61')")
    keywords.add(connection, [(row(0), "owl")])
    keywords.search(connection, text, 1, 5)
    connection.close()


def test_a_frozen_connection_needs_no_writable_folder_and_makes_nothing(tmp_path):
    connection = keywords.connect(tmp_path)
    keywords.add(connection, [(row(0), "owl")])
    connection.close()
    frozen = keywords.connect(tmp_path, frozen=True)
    assert found(frozen, "owl") == [0]
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        keywords.add(frozen, [(row(1), "fox")])
    frozen.close()
    (absent := tmp_path / "absent").mkdir()
    with pytest.raises(sqlite3.OperationalError):
        keywords.connect(absent, frozen=True)
    assert list(absent.iterdir()) == []
