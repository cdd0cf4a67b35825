"""Filters as people write them."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vmrag_link.errors import FilterInvalid
from vmrag_link.index.metadata import build_document_metadata
from vmrag_link.index.reader import IndexedColumns
from vmrag_link.models import ISSUES, Collection, DocumentHeader, encode_canonical_json
from vmrag_link.retrieval import filters
from vmrag_link.retrieval.chunk_filter import MetadataColumns
from vmrag_link.retrieval.filters import compile_where, compile_where_document


@pytest.mark.parametrize(
    ("given", "normal"),
    [
        (None, None),
        ({}, None),
        ({"a": 1}, {"a": {"$eq": 1}}),
        ({"a": {"$gt": 1}}, {"a": {"$gt": 1}}),
        ({"a": {"$gt": "2025"}}, {"a": {"$gt": "2025"}}),
        ({"a": 1, "b": "x"}, {"$and": [{"a": {"$eq": 1}}, {"b": {"$eq": "x"}}]}),
        ({"a": {"$gte": 1, "$lt": 3}}, {"$and": [{"a": {"$gte": 1}}, {"a": {"$lt": 3}}]}),
        ({"$or": [{"a": 1}]}, {"a": {"$eq": 1}}),
        ({"$or": [{"a": 1}, {"b": True}]}, {"$or": [{"a": {"$eq": 1}}, {"b": {"$eq": True}}]}),
        ({"a": {"$in": ["x", "y"]}}, {"a": {"$in": ["x", "y"]}}),
        ({"a": {"$contains": "x"}}, {"a": {"$contains": "x"}}),
    ],
)
def test_shorthand_becomes_a_chroma_filter(given, normal):
    assert filters.normalize_where(given) == normal


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
        {"a": {"$gt": True}},
        {"a": {"$gt": ["x"]}},
        {"a": [1]},
        {"a": float("nan")},
        {"a": float("inf")},
        {"a": 2**63},
        {"a": {"$in": [2**64, 1]}},
    ],
)
def test_filter_rejects_conditions_that_chroma_rejects(wrong):
    with pytest.raises(FilterInvalid):
        filters.normalize_where(wrong)


@pytest.mark.parametrize("wrong", [{"$like": "x"}, {"$contains": ""}, {"$contains": 1}, {"text": "x"}, {"$or": []}])
def test_filters_on_text_take_texts_only(wrong):
    assert filters.normalize_where_document({"$contains": "x"}) == {"$contains": "x"}
    assert filters.normalize_where_document({"$contains": "x", "$not_contains": "y"}) == {
        "$and": [{"$contains": "x"}, {"$not_contains": "y"}]
    }
    with pytest.raises(FilterInvalid):
        filters.normalize_where_document(wrong)


@pytest.mark.parametrize("text", ["", "{", "[1]", '"a"', "null", "[" * 100_000, '{"a": 1', "{'a': 1}"])
def test_filter_rejects_text_other_than_a_json_object(text):
    with pytest.raises(FilterInvalid) as refused:
        filters.parse_filter(text)
    assert "JSON object" in refused.value.hint


@pytest.mark.parametrize("read", [filters.normalize_where, filters.normalize_where_document])
def test_filter_with_excess_conditions_is_rejected(read):
    conditions = [{"$contains": str(number)} for number in range(1001)]
    if read is filters.normalize_where:
        conditions = [{"a": condition} for condition in conditions]
    with pytest.raises(FilterInvalid, match="1,001 conditions"):
        read({"$or": [{"$and": conditions[:500]}, *conditions[500:]]})
    assert read({"$or": conditions[1:]})


def test_filter_of_any_depth_is_answered_without_a_crash():
    deep: dict = {"a": 1}
    for _ in range(5_000):
        deep = {"$or": [deep, {"b": 2}]}
    with pytest.raises(FilterInvalid, match="deeper"):
        filters.normalize_where(deep)
    assert filters.parse_filter('{"a": 1}') == {"a": 1}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["$and", "$or", "$in", "$gt", "$eq", "a", "b"]), inner, max_size=3)
    ),
    max_leaves=12,
)


UNHURRIED = settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
"""A busy machine is not a problem of filters."""


@UNHURRIED
@given(JSON)
def test_anything_gives_a_filter_or_a_refusal(value):
    try:
        normal = filters.normalize_where(value)
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
        for condition in inner:
            assert_chroma_takes(condition)
    else:
        assert len(inner) == 1


# -- evaluated -------------------------------------------------------------------------------------
# Against Chroma: test_filters_against_chroma.py.


def test_regular_expressions_are_matched_quickly():
    assert not compile_where_document({"$regex": "^(a+)+$"})("a" * 100_000 + "b")


@pytest.mark.parametrize(
    ("bound", "value", "passes"),
    [
        ({"$gt": "2025-01-01"}, "2025-01-02", True),
        ({"$gt": "2025-01-01"}, "2025-01-01", False),
        ({"$gt": "Z"}, "a", True),
        ({"$lt": "ä"}, "z", True),
        ({"$lt": "\ufffd"}, "\U0001f600", False),  # in UTF-16 it would be less
        ({"$gte": "1"}, 2, False),
        ({"$lt": "1"}, 0, False),
        ({"$gte": 1}, "2", False),
        ({"$gte": 0}, True, False),
        ({"$lt": "b"}, ["a"], False),
    ],
)
def test_strings_are_ordered_and_a_mixed_pair_does_not_match(bound, value, passes):
    assert compile_where(filters.normalize_where({"k": bound}))({"k": [value, None]}) == [passes, False]


METADATA = JSON.filter(lambda value: "inf" not in repr(value) and "nan" not in repr(value))
KEYS = st.sampled_from(
    [
        "team",
        "title",
        "source_id",
        "content_hash",
        "$x",
        "source_table",
        "#document",
        "chroma:document",
        "",
        'q"k',
        "\\",
        "Ä",
    ]
)

GUIDE = Collection("issues_guide", kind=ISSUES)
HEADERS = st.builds(
    lambda metadata, title: DocumentHeader(GUIDE.name, "d", title, "0" * 64, encode_canonical_json(metadata)),
    st.dictionaries(KEYS, METADATA),
    st.sampled_from(["", "A title"]),
)


@UNHURRIED
@given(st.sets(KEYS), st.lists(HEADERS, min_size=1, max_size=4))
def test_filter_columns_match_the_metadata_in_chroma(keys, headers):
    columns, count = MetadataColumns(keys), len(headers)
    documents = IndexedColumns(
        range(count),
        [3] * count,
        [0] * count,
        [header.metadata for header in headers],
        *(
            [*column]
            for column in zip(*((header.title, header.doc_id, header.content_hash) for header in headers), strict=True)
        ),
    )
    held = [build_document_metadata(header, "issue_logs") for header in headers]
    expected = {key: [row.get(key) for row in held] for key in keys}
    assert {key: [*column] for key, column in columns.build_columns(documents, GUIDE).items()} == expected
    assert [columns.build_document_columns(header, GUIDE) for header in headers] == [
        {key: [row.get(key)] for key in keys} for row in held
    ]
