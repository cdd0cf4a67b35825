"""Issue logs and knowledge docs as documents: their collections' names, and what survives."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.engines import knowledge, log
from vmrag_link.engines import logical
from vmrag_link.engines.tables import ISSUE_LOGS, KNOWLEDGE_DOCS, find_table
from vmrag_link.models import encode_canonical_json
from vmrag_link.workspace.documents import collections


@pytest.mark.parametrize(
    ("project", "collection"),
    [
        ("alpha", "issues_alpha"),
        ("a_b-C9.d", "issues_a_b-C9.d"),
        ("x", "issues_x"),
        ("a b", "issues_a-b-c8687a08"),
        ("a-b-c8687a08", "issues_a-b-c8687a08-315128a4"),
        ("a..b", "issues_a-b-f62b4241"),
        ("", "issues_e3b0c442"),
        ("日本", "issues_cf2abf0c"),
        ("cf2abf0c", "issues_cf2abf0c-465057d2"),
        ("-a", "issues_a-c2748917"),
    ],
)
def test_collection_name_replaces_characters_and_appends_a_hash(project: str, collection: str) -> None:
    assert logical.collection_name("issues", project) == collection


@given(st.text(max_size=300), st.text(max_size=300))
def test_two_projects_never_share_a_collection_and_every_name_is_legal(one: str, other: str) -> None:
    first, second = (logical.collection_name("issues", project_name) for project_name in (one, other))
    collections.require_name(first)
    assert (first == second) == (one == other)
    assert logical.implied_table(first) is ISSUE_LOGS


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc", max_size=2), inner, max_size=3),
    max_leaves=5,
)


@given(st.dictionaries(st.text("abc", max_size=3), JSON, max_size=4), st.integers(0, 2**31))
def test_row_holds_all_of_a_document(metadata: dict, number: int) -> None:
    given = json.dumps(metadata)
    for document in (log("i", "text", issue_number=number, metadata=given), knowledge("k", metadata=given)):
        table = find_table(document)
        row = logical.row_from_document(document)
        assert len(row) == len(table.columns)
        assert logical.document_from_row(table, row) == document == logical.normalize_document(document)
        stored = dict(zip(table.columns, row, strict=True))
        assert json.loads(str(stored["metadata"])) == metadata, "what is a column is not stored twice"


@pytest.mark.parametrize(("value", "stored"), [("7", -1), (-3, -1), (True, -1), (2**70, -1), (None, -1), (7, 7)])
def test_invalid_issue_number_is_stored_as_an_unused_number(value: object, stored: int) -> None:
    document = log("i")
    metadata = json.loads(document.metadata) | {"issue_number": value}
    row = logical.row_from_document(msgspec.structs.replace(document, metadata=json.dumps(metadata)))
    assert row[ISSUE_LOGS.columns.index("issue_number")] == stored


def test_value_other_than_text_is_stored_as_json() -> None:
    document = knowledge("k")
    odd = encode_canonical_json(json.loads(document.metadata) | {"tool_version": {"ours": "1", "theirs": "2"}})
    row = logical.row_from_document(msgspec.structs.replace(document, metadata=odd))
    assert row[KNOWLEDGE_DOCS.columns.index("tool_version")] == '{"ours":"1","theirs":"2"}'
