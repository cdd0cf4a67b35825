"""Words of queries, and the names of rows."""

from __future__ import annotations

import pytest

from vmrag_link.index import keywords


def row(slot: int, collection: int = 1) -> int:
    return keywords.pack_row(collection, slot)


def test_row_names_its_segment_its_collection_in_it_and_its_slot():
    named = keywords.pack_row(3, 7, 5)
    assert (keywords.unpack_segment(named), keywords.unpack_slot(named)) == (5, 7)
    assert keywords.unpack_piece(named) == keywords.unpack_piece(keywords.pack_row(3, keywords.LAST_SLOT, 5))
    others = [keywords.pack_row(3, 7, 6), keywords.pack_row(4, 7, 5), keywords.pack_row(3, 7)]
    assert keywords.unpack_piece(named) not in {keywords.unpack_piece(other) for other in others}
    last = (1 << keywords.COLLECTION_BITS) - 1
    assert row(keywords.LAST_SLOT, 3) < row(0, 4)
    assert row(keywords.LAST_SLOT, last) < keywords.pack_row(0, 0, 1)


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
def test_query_is_its_words_without_those_that_carry_no_topic(query, expected):
    assert keywords.split_query(query) == expected


def test_query_terms_keep_the_order_of_words():
    assert keywords.find_query_terms("The owls get_close_matches Cafés") == [
        ["owl"],
        ["get", "close", "match"],
        ["cafe"],
    ]
    assert keywords.find_query_terms("__ owl ?!") == [["owl"]]
    assert keywords.find_query_terms("") == []


def test_query_has_so_many_words_and_none_without_end():
    many = " ".join(f"owl{number}" for number in range(keywords.MOST_WORDS + 5))
    assert len(keywords.split_query(f"the {many}")) == keywords.MOST_WORDS
    assert keywords.split_query(f"{'a_' * 600} owl {'x' * 1000}") == ["owl", "x" * 1000]


def test_find_terms_returns_terms_of_each_word_in_order():
    assert keywords.find_terms(["Owls", "?!", "b\u201ca", ""]) == [[b"owl"], [], [b"b", b"a"], []]
    assert keywords.find_terms([]) == []


@pytest.mark.parametrize(
    ("query", "english"),
    [
        ("send_task", True),
        ("How do I set up the café", True),
        ("…report a bug in beets?", True),
        ("RPC result backend", True),
        ("", True),
        ("Wie sichere ich die Datenbank", False),
        ("Papierkorb leeren", True),
        ("Papierkorb für Einträge", False),
        ("Eintra\u0308ge", False),
        ("comment configurer le serveur", False),
        ("設定を変更", False),
        ("Vue 컴포넌트", False),
    ],
)
def test_query_is_english_if_no_word_shows_another_language(query, english):
    assert keywords.is_english(query) is english
