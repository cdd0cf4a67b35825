"""Filters as people write them."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmrag_link.chroma.bindings import Rows, open_store
from vmrag_link.errors import FilterInvalid
from vmrag_link.retrieval import filters


@pytest.mark.parametrize(
    ("given", "normal"),
    [
        (None, None),
        ({}, None),
        ({"a": 1}, {"a": {"$eq": 1}}),
        ({"a": {"$gt": 1}}, {"a": {"$gt": 1}}),
        ({"a": 1, "b": "x"}, {"$and": [{"a": {"$eq": 1}}, {"b": {"$eq": "x"}}]}),
        ({"a": {"$gte": 1, "$lt": 3}}, {"$and": [{"a": {"$gte": 1}}, {"a": {"$lt": 3}}]}),
        ({"$or": [{"a": 1}]}, {"a": {"$eq": 1}}),
        ({"$or": [{"a": 1}, {"b": True}]}, {"$or": [{"a": {"$eq": 1}}, {"b": {"$eq": True}}]}),
        ({"a": {"$in": ["x", "y"]}}, {"a": {"$in": ["x", "y"]}}),
        ({"a": {"$contains": "x"}}, {"a": {"$contains": "x"}}),
    ],
)
def test_shorthand_becomes_what_chroma_takes(given, normal):
    assert filters.where(given) == normal


@pytest.mark.parametrize(
    "wrong",
    [
        {"a": None},
        {"a": {}},
        {"a": {"$like": "x"}},
        {"$not": [{"a": 1}]},
        {"$and": []},
        {"$and": {"a": 1}},
        {"$or": [{}]},
        {"$or": ["a"]},
        {"a": {"$in": []}},
        {"a": {"$in": "x"}},
        {"a": {"$in": ["x", 1]}},
        {"a": {"$in": [1, True]}},
        {"a": {"$gt": "x"}},
        {"a": {"$gt": True}},
        {"a": [1]},
        {"a": float("nan")},
        {"a": float("inf")},
        {"a": 2**63},
        {"a": {"$in": [2**64, 1]}},
    ],
)
def test_what_chroma_would_not_take_is_refused(wrong):
    with pytest.raises(FilterInvalid, match="The filter"):
        filters.where(wrong)


@pytest.mark.parametrize("wrong", [{"$like": "x"}, {"$contains": ""}, {"$contains": 1}, {"text": "x"}, {"$or": []}])
def test_filters_on_text_take_texts_only(wrong):
    assert filters.where_document({"$contains": "x"}) == {"$contains": "x"}
    assert filters.where_document({"$contains": "x", "$not_contains": "y"}) == {
        "$and": [{"$contains": "x"}, {"$not_contains": "y"}]
    }
    with pytest.raises(FilterInvalid):
        filters.where_document(wrong)


@pytest.mark.parametrize("text", ["", "{", "[1]", '"a"', "null", "[" * 100_000, '{"a": 1', "{'a': 1}"])
def test_what_is_not_one_json_object_is_refused(text):
    with pytest.raises(FilterInvalid) as refused:
        filters.parse(text)
    assert "JSON object" in refused.value.hint


def test_a_filter_of_any_depth_is_answered_without_a_crash():
    deep: dict = {"a": 1}
    for _ in range(5_000):
        deep = {"$or": [deep, {"b": 2}]}
    with pytest.raises(FilterInvalid, match="deeper"):
        filters.where(deep)
    assert filters.parse('{"a": 1}') == {"a": 1}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["$and", "$or", "$in", "$gt", "$eq", "a", "b"]), inner, max_size=3)
    ),
    max_leaves=12,
)


@given(JSON)
def test_anything_gives_a_filter_or_a_refusal(value):
    try:
        normal = filters.where(value)
    except FilterInvalid:
        return
    if value:
        assert normal is not None
        assert_chroma_takes(normal)
        json.dumps(normal, allow_nan=False)


def assert_chroma_takes(normal):
    [(key, inner)] = normal.items()
    if key in ("$and", "$or"):
        assert len(inner) > 1
        for each in inner:
            assert_chroma_takes(each)
    else:
        assert len(inner) == 1


# -- applied to whole documents -----------------------------------------------------------------------------------------

HELD: list[dict[str, Any]] = [
    {"n": 1, "s": "1"},
    {"n": 1.0, "s": "a"},
    {"n": -3, "s": "Ä", "flag": True},
    {"n": 2.5, "flag": False},
    {"n": True, "s": "a%b"},
    {"n": "1", "tags": ["a", "b"]},
    {"s": "", "tags": ["1"]},
    {"n": 0, "numbers": [1, 2]},
    {"n": 2**40, "numbers": [1.0, 2.5]},
    {"flag": True, "flags": [True, False]},
]
TEXTS = [
    "Alpha Rivers",
    "alpha rivers",
    "50% off_sale",
    "a%b a_b",
    "ÄPFEL äpfel",
    "line\nbreak",
    "日本語",
    "",
    "\\",
    "é",
]

NUMBERS = st.sampled_from([1, 1.0, 0, -3, 2, 3.0, 2**40, 1.5, 2.5, 0.5, -0.5, -2.5, -3.5, 0.1, 1e-300])
VALUES = st.one_of(NUMBERS, st.sampled_from([True, False, "1", "a", "b", "", "Ä", "a%b"]))
KEYS = st.sampled_from(["n", "s", "flag", "tags", "numbers", "flags", "absent"])
LISTS = st.sampled_from([[1], [1, 2], [1.0], [1.5, 2.5], [2.5], [-0.5, 1.0], ["1", "a"], ["b"], [True], [True, False]])
CONDITIONS = st.one_of(
    st.tuples(st.sampled_from(["$eq", "$ne", "$contains", "$not_contains"]), VALUES.filter(lambda value: value != "")),
    st.tuples(st.sampled_from(["$eq", "$ne"]), VALUES),
    st.tuples(st.sampled_from(["$gt", "$gte", "$lt", "$lte"]), NUMBERS),
    st.tuples(st.sampled_from(["$in", "$nin"]), LISTS),
)
COMPARED = st.builds(lambda key, pair: {key: {pair[0]: pair[1]}}, KEYS, CONDITIONS)
PIECES = st.sampled_from(["alpha", "Alpha", "a", "%", "_", "a_b", "0%", "äpfel", "ÄPFEL", "\n", "日本", "\\", "é", " "])
PATTERNS = st.sampled_from(
    [
        "alpha",
        "(?i)ALPHA",
        "^a",
        "s$",
        r"\d+",
        "[[:alpha:]]+",
        r"\p{L}",
        "^line$",
        "(?m)^line$",
        "a.b",
        r"\bb",
        "x*",
        r"\z",
    ]
)
READ = st.one_of(
    st.builds(lambda name, piece: {name: piece}, st.sampled_from(["$contains", "$not_contains"]), PIECES),
    st.builds(lambda name, pattern: {name: pattern}, st.sampled_from(["$regex", "$not_regex"]), PATTERNS),
)


def nested(leaves):
    return st.recursive(
        leaves,
        lambda inner: st.builds(
            lambda name, parts: {name: parts}, st.sampled_from(["$and", "$or"]), st.lists(inner, min_size=1, max_size=3)
        ),
        max_leaves=5,
    )


@pytest.fixture(scope="module")
def held(tmp_path_factory):
    """Chroma with the rows that the tests apply filters to."""
    store = open_store(tmp_path_factory.mktemp("chroma"))
    made = store.create("guide", space="cosine", metadata={"embedding_model": "m"})
    vectors = [struct.pack("<2f", 1.0, number) for number in range(len(HELD))]
    store.add(made, Rows([str(number) for number in range(len(HELD))], vectors, [*HELD], TEXTS))
    yield lambda **asked: {int(each) for each in store.ids(made, **asked)}
    store.close()


@given(nested(COMPARED))
def test_a_document_passes_where_chroma_lets_its_only_chunk_pass(held, asked):
    matches = filters.matching(asked)
    assert {number for number, each in enumerate(HELD) if matches(each)} == held(where=filters.where(asked))


@given(nested(READ))
def test_a_text_passes_where_chroma_lets_it_pass(held, asked):
    matches = filters.matching_text(asked)
    assert {number for number, each in enumerate(TEXTS) if matches(each)} == held(
        where_document=filters.where_document(asked)
    )


@pytest.mark.parametrize("pattern", ["(", r"(a)\1", "a(?=l)", r"\Z", "a{2,1}"])
def test_what_is_no_regular_expression_for_chroma_is_none_here(held, pattern):
    with pytest.raises(FilterInvalid):
        held(where_document={"$regex": pattern})
    with pytest.raises(FilterInvalid, match="regular expression"):
        filters.matching_text({"$regex": pattern})


def test_no_regular_expression_takes_long():
    assert not filters.matching_text({"$regex": "^(a+)+$"})("a" * 100_000 + "b")


@pytest.mark.parametrize(
    ("asked", "expected"),
    [({"$gte": 1.5}, {2, 3}), ({"$lt": 2.5}, {-1, 1, 2}), ({"$eq": 1.5}, set()), ({"$lte": -0.5}, {-1})],
)
def test_a_fraction_is_compared_with_whole_numbers_as_a_number(tmp_path, asked, expected):
    """Chroma alone takes 1.5 for 1 there."""
    store, numbers = open_store(tmp_path), [-1, 1, 2, 3]
    made = store.create("guide", space="cosine", metadata={"embedding_model": "m"})
    vectors = [struct.pack("<2f", 1.0, number) for number in numbers]
    store.add(made, Rows([str(number) for number in numbers], vectors, [{"n": each} for each in numbers], None))
    assert {int(each) for each in store.ids(made, where=filters.where({"n": asked}))} == expected
    assert {each for each in numbers if filters.matching({"n": asked})({"n": each})} == expected
    store.close()


def test_without_a_filter_everything_passes():
    assert filters.matching(None) is filters.matching({}) is filters.matching_text({}) is None
