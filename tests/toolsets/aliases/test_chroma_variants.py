"""The same storage in other shapes: a tool for each case."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from tests.support import notes
from tests.support.mcp import Tools, warned
from tests.support.notes import LONG, TEXTS
from vmrag_link.toolsets.aliases import chroma_variants

pytestmark = pytest.mark.hooks("off")

template, project, tools = notes.template, notes.project, notes.tools

NOTES = {"collection_name": "notes"}


def got(tools: Tools) -> dict[str, str]:
    answer = tools("chroma_get_all_documents", **NOTES)
    return dict(zip(answer["ids"], answer["documents"], strict=True))


def plain(answer: dict[str, Any], *but: str) -> dict[str, Any]:
    """An answer without what every answer has."""
    return {key: value for key, value in answer.items() if key not in ("success", "kb", "message", "warnings", *but)}


def test_collection_is_shown_with_its_settings_apart_and_a_sample(tools):
    tools("chroma_add_documents", **NOTES, documents=[LONG, "x", "y"], ids=["0", "x", "y"])
    shown = tools("chroma_get_collection", **NOTES)
    assert shown["metadata"]["settings"]["hnsw:space"] == "cosine"
    assert shown["metadata"]["settings"].keys() >= {"hnsw:M", "hnsw:construction_ef", "hnsw:search_ef"}
    assert not [key for key in shown["metadata"] if key.startswith("hnsw:")]
    assert (shown["name"], shown["count"]) == ("notes", 6)
    assert shown["sample_entries"]["ids"] == ["0", "a", "b", "c", "x"]
    assert shown["sample_entries"]["documents"][:2] == [LONG[:500], TEXTS["a"]]
    assert uuid.UUID(shown["id"])


def test_renamed_collection_keeps_its_documents_and_answers(tools):
    before = tools("chroma_query_documents", **NOTES, query_texts=["rivers"])
    renamed = tools("chroma_rename_collection", **NOTES, new_name="letters")
    assert (renamed["name"], renamed["count"]) == ("letters", 3)
    after = tools("chroma_query_documents", collection_name="letters", query_texts=["rivers"])
    assert (after["ids"], after["distances"]) == (before["ids"], before["distances"])
    tools.error("COLLECTION_NOT_FOUND", "chroma_get_collection", **NOTES)
    tools.error("INVALID_NAME", "chroma_rename_collection", collection_name="letters", new_name="")


@pytest.mark.parametrize(
    ("tool", "given"),
    [
        ("chroma_add_document", {}),
        ("chroma_add_document_with_id", {"id": "fresh"}),
        ("chroma_add_document_with_metadata", {"metadata": '{"n": 9}'}),
        ("chroma_add_document_with_id_and_metadata", {"id": "fresh", "metadata": {"n": 9}}),
    ],
)
def test_single_document_is_added(tools, tool, given):
    added = tools(tool, **NOTES, document="owls hunt at night", **given)
    doc_id = added["added_id"]
    assert plain(added) == {"status": "success", "documents_added": 1, "ids": [doc_id], "added_id": doc_id}
    assert doc_id == given.get("id") or uuid.UUID(doc_id).version == 4
    match = tools("chroma_query_documents", **NOTES, query_texts=["owls hunt at night"])["results"][0]["matches"][0]
    assert (match["id"], match["metadata"].get("n")) == (doc_id, 9 if "metadata" in given else None)


def test_add_tools_reject_invalid_documents(tools):
    tools.error("DUPLICATE_ID", "chroma_add_document_with_id", **NOTES, document="x", id="a")
    tools.error("INVALID_PARAMETER", "chroma_add_document_with_id", **NOTES, document="x", id="")
    tools.error("INVALID_PARAMETER", "chroma_add_document", **NOTES, document="")
    tools.error("INVALID_METADATA", "chroma_add_document_with_metadata", **NOTES, document="x", metadata={"t": [1]})
    tools.error("INVALID_JSON", "chroma_add_document_with_metadata", **NOTES, document="x", metadata="{broken")
    assert got(tools) == TEXTS


@pytest.mark.parametrize("copied", [False, True], ids=["first change", "further change"])
def test_index_without_increment_is_pending_until_the_next_query(tools, copied):
    if copied:
        tools("chroma_add_document_with_id", **NOTES, document="before", id="before")
    added = tools("chroma_add_document_with_id", **NOTES, document="owls hunt", id="owl", increment_index=False)
    assert warned(added) == {"INDEX_PENDING"}
    assert got(tools)["owl"] == "owls hunt"
    [status] = tools("get_sync_status")["collections"]
    assert status["sync_status"] == "pending"
    answer = tools("chroma_query_documents", **NOTES, query_texts=["owls hunt"])
    assert answer["ids"][0][0] == "owl"
    [status] = tools("get_sync_status")["collections"]
    assert status["sync_status"] == "synced"


def test_pending_document_is_committed_and_found(project, tools):
    tools("chroma_add_document_with_id", **NOTES, document="owls hunt", id="owl", increment_index=False)
    project.vmrag("commit", "-m", "owl")
    answer = tools("chroma_query_documents", **NOTES, query_texts=["owls hunt"])
    assert (answer["ids"][0][0], answer["kb"]["dirty"]) == ("owl", False)


def test_queries_with_one_filter_are_those_with_several(tools):
    whole = tools("chroma_query_documents", **NOTES, query_texts=["rivers", "x"], n_results=10, where={"n": {"$gt": 1}})
    part = tools(
        "chroma_query_documents_with_where_filter", **NOTES, query_texts=["rivers", "x"], where='{"n": {"$gt": 1}}'
    )
    assert plain(part) == plain(whole, "collection_name", "mode")
    text = {"$contains": "rivers"}
    whole = tools("chroma_query_documents", **NOTES, query_texts="rivers", n_results=1, where_document=text)
    part = tools(
        "chroma_query_documents_with_document_filter",
        **NOTES,
        query_texts="rivers",
        n_results=1,
        where_document=text,
    )
    assert plain(part) == plain(whole, "collection_name", "mode")


def test_documents_and_chunks_are_got_by_ids_as_parallel_lists(tools):
    tools("chroma_add_documents", **NOTES, documents=[LONG], ids=["long"])
    answer = tools("chroma_get_documents_by_ids", **NOTES, ids=["c", "nobody", "long_chunk_0", "a"])
    assert answer["ids"] == ["c", "long_chunk_0", "a"]
    assert answer["documents"][::2] == [TEXTS["c"], TEXTS["a"]]
    assert LONG.startswith(answer["documents"][1])
    assert answer["metadatas"][::2] == [{"n": 3}, {"n": 1}]
    assert (answer["total_matching"], answer["missing_ids"]) == (3, ["nobody"])


def test_filters_get_whole_documents_and_pages_of_them(tools):
    where = tools("chroma_get_documents_with_where_filter", **NOTES, where={"n": {"$gte": 2}})
    assert plain(where) == {
        "ids": ["b", "c"],
        "documents": [TEXTS["b"], TEXTS["c"]],
        "metadatas": [{"n": 2}, {"n": 3}],
        "total_matching": 2,
    }
    text = tools(
        "chroma_get_documents_with_document_filter",
        **NOTES,
        where_document={"$contains": "rivers"},
        limit=1,
        offset=1,
        include=["embeddings"],
    )
    assert plain(text, "embeddings") == {"ids": ["c"], "total_matching": 2}
    assert len(text["embeddings"][0]) == 1
    assert tools("chroma_get_documents_with_where_filter", **NOTES, where={})["total_matching"] == 3


def test_all_documents_are_returned_up_to_the_limit(tools, monkeypatch):
    assert plain(tools("chroma_get_all_documents", **NOTES)) == {
        "ids": ["a", "b", "c"],
        "documents": [*TEXTS.values()],
        "metadatas": [{"n": 1}, {"n": 2}, {"n": 3}],
        "total_matching": 3,
        "has_more": False,
    }
    page = tools("chroma_get_all_documents", **NOTES, limit=1, offset=1, include=["ids"])
    assert plain(page) == {"ids": ["b"], "total_matching": 3, "has_more": True}
    monkeypatch.setattr(chroma_variants, "ALL_DOCUMENTS", 2)
    page = tools("chroma_get_all_documents", **NOTES)
    assert (page["ids"], page["has_more"]) == (["a", "b"], True)
    monkeypatch.setattr(chroma_variants, "ALL_CHARACTERS", 5)
    page = tools("chroma_get_all_documents", **NOTES, offset=1)
    assert (page["ids"], page["has_more"]) == (["b"], True)
    assert len(tools("chroma_get_all_documents", **NOTES, limit=3)["ids"]) == 3


def test_single_document_is_changed(tools):
    result = tools("chroma_update_document_content", **NOTES, id="a", document="owls")
    assert plain(result) == {"status": "success", "documents_updated_request": 1, "updated_id": "a"}
    result = tools("chroma_update_document_metadata", **NOTES, id="b_chunk_0", metadata={"m": 1})
    assert result["updated_id"] == "b"
    answer = tools("chroma_get_documents_by_ids", **NOTES, ids=["a", "b"])
    assert answer["documents"] == ["owls", TEXTS["b"]]
    assert answer["metadatas"] == [{"n": 1}, {"m": 1}]
    assert tools("chroma_update_document_content", **NOTES, id="a", document="owls")["updated_id"] == "a"
    tools.error("DOCUMENT_NOT_FOUND", "chroma_update_document_content", **NOTES, id="x", document="y")


def test_documents_are_deleted_by_id_and_by_filters(tools):
    answer = tools("chroma_delete_document_by_id", **NOTES, id="nobody")
    assert plain(answer) == {"status": "success", "documents_deleted_request": 1, "documents_deleted": 0}
    assert tools("chroma_delete_document_by_id", **NOTES, id="a")["documents_deleted"] == 1
    answer = tools("chroma_delete_documents_by_where_filter", **NOTES, where='{"n": 2}')
    assert plain(answer) == {"status": "success", "filter_used": {"n": 2}, "documents_deleted": 1}
    tools.error("NO_SELECTION", "chroma_delete_documents_by_where_filter", **NOTES, where={})
    tools.error("NO_SELECTION", "chroma_delete_documents_by_document_filter", **NOTES, where_document={})
    answer = tools("chroma_delete_documents_by_document_filter", **NOTES, where_document={"$contains": "zebra"})
    assert answer["documents_deleted"] == 0
    assert list(got(tools)) == ["c"]
