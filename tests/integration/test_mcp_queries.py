"""Asking a collection by meaning."""

from __future__ import annotations

import operator
import subprocess
from typing import Any

import pytest

from tests.support import notes
from tests.support.mcp import Tools
from tests.support.notes import LONG, TEXTS
from vmrag_link.engines.doltlite.connection import Connection
from vmrag_link.progress import QUIET
from vmrag_link.retrieval.query import Mode, Query
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.answers import query

pytestmark = pytest.mark.hooks("off")

template, project, tools = notes.template, notes.project, notes.tools

NOTES = {"collection_name": "notes"}


def asked(tools: Tools, text: str, **arguments: Any) -> list[dict[str, Any]]:
    """The matches for one text."""
    given = NOTES | {"query_texts": [text]} | arguments
    return tools("chroma_query_documents", **given)["results"][0]["matches"]


def dot(one: list[float], other: list[float]) -> float:
    return sum(map(operator.mul, one, other))


def test_matches_come_best_first_for_every_text(tools):
    answer = tools("chroma_query_documents", **NOTES, query_texts=["alpha rivers", "beta mountains"])
    assert [result["query"] for result in answer["results"]] == ["alpha rivers", "beta mountains"]
    assert [[match["id"] for match in result["matches"]] for result in answer["results"]] == answer["ids"]
    assert [[match["distance"] for match in result["matches"]] for result in answer["results"]] == answer["distances"]
    assert [ids[0] for ids in answer["ids"]] == ["a", "b"]
    assert all(distances == sorted(distances) for distances in answer["distances"])
    assert (len(answer["ids"][0]), answer["kb"]["in_sync"]) == (3, True)


def test_match_names_its_origin(tools):
    tools("chroma_add_documents", **NOTES, documents=["# Owls\n\nOwls hunt at night."], ids=["owl"])
    [match] = asked(tools, "owls at night", n_results=1)
    assert match["id"] == "owl"
    assert match["document"] == "# Owls\n\nOwls hunt at night."
    assert "truncated" not in match
    assert match["metadata"] == {"title": "Owls", "source_id": "owl", "chunk_index": 0, "total_chunks": 1}
    assert "collection" not in match
    [match] = asked(tools, "owls at night", n_results=1, include=["metadatas", "provenance"])
    about = match["metadata"]
    assert len(about.pop("content_hash")) == 64
    assert {"source_table": "documents", "collection": "notes"}.items() <= about.items()


def test_chunk_of_several_has_a_name_of_its_own(tools):
    tools("chroma_add_documents", **NOTES, documents=[LONG], ids=["long"])
    match = next(request for request in asked(tools, "owls", n_results=10) if request["metadata"]["chunk_index"] == 1)
    assert (match["id"], match["metadata"]["source_id"]) == ("long_chunk_1", "long")
    [chunk] = tools("chroma_get_documents", **NOTES, ids=[match["id"]])["documents"]
    assert chunk["document"] == match["document"]
    assert match["metadata"].items() <= chunk["metadata"].items()


def test_distances_are_those_of_the_collections_space(tools):
    texts = [*TEXTS.values(), "rivers of gold", "alpha"]
    for space, factor in (("cosine", 1), ("ip", 1), ("l2", 2)):
        tools("chroma_create_collection", collection_name=space, metadata={"hnsw:space": space})
        tools("chroma_add_documents", collection_name=space, documents=texts)
        rows = asked(tools, "alpha rivers", collection_name=space, include=["distances", "embeddings"])
        [first, *_] = rows
        for row in rows:
            cosine = dot(row["embedding"], first["embedding"])  # the first row is the text of the query
            assert row["distance"] == pytest.approx(factor * (1 - cosine), abs=0.03 * factor)
            assert row["similarity"] == pytest.approx(1 - row["distance"] / factor, abs=1e-4)
            assert 0 <= row["similarity"] <= 1
        assert first["distance"] == pytest.approx(0, abs=0.01)
        assert first["distance"] >= 0


def test_only_included_fields_are_shown(tools):
    answer = tools("chroma_query_documents", **NOTES, query_texts="rivers", include=["metadatas"], n_results=1)
    [match] = answer["results"][0]["matches"]
    assert match.keys() == {"id", "metadata"}
    assert "distances" not in answer
    [match] = asked(tools, "rivers", include=["embeddings"], n_results=1)
    assert match.keys() == {"id", "embedding"}
    assert dot(match["embedding"], match["embedding"]) == pytest.approx(1)


def test_long_chunks_are_cut(tools):
    tools("chroma_create_collection", collection_name="large", chunking={"size": 5000, "overlap": 0})
    tools("chroma_add_documents", collection_name="large", documents=["owl " * 1000], ids=["owl"])
    [match] = asked(tools, "owl", collection_name="large")
    assert (len(match["document"]), match["truncated"]) == (2000, True)


def test_filters_limit_the_results(tools):
    for filters, expected in (
        ({"where": {"n": {"$gte": 2}}}, {"b", "c"}),
        ({"where": {"n": {"$gte": 2}, "source_id": "c"}}, {"c"}),
        ({"where": {"$or": [{"n": 1}]}}, {"a"}),
        ({"where_document": {"$contains": "rivers"}}, {"a", "c"}),
        ({"where": {"n": 3}, "where_document": '{"$contains": "rivers"}'}, {"c"}),
        ({"where": {"n": 9}}, set()),
        ({"where": {}}, {"a", "b", "c"}),
    ):
        answer = tools("chroma_query_documents", **NOTES, query_texts=["rivers", "mountains"], **filters)
        assert [set(ids) for ids in answer["ids"]] == [expected, expected]


def test_strings_are_compared_by_queries_gets_and_deletes_alike(tools):
    dates = {"old": "2024-12-31", "new": "2025-01-02", "number": 20250102}
    given = {"documents": [*dates], "ids": [*dates], "metadatas": [{"created_date": date} for date in dates.values()]}
    tools("chroma_add_documents", **NOTES, **given)
    later = {"where": {"created_date": {"$gt": "2025-01-01"}}}
    assert [request["id"] for request in asked(tools, "new", **later)] == ["new"]
    assert [document["id"] for document in tools("chroma_get_documents", **NOTES, **later)["documents"]] == ["new"]
    assert tools("chroma_delete_documents", **NOTES, **later)["ids_deleted"] == ["new"]


def test_filters_apply_to_chunks(tools):
    tools("chroma_add_documents", **NOTES, documents=[LONG], ids=["long"])
    rows = asked(tools, "owls", n_results=50, where={"source_id": "long"}, where_document={"$contains": "number 39"})
    assert len(rows) == 1
    rest = asked(
        tools, "owls", n_results=50, where={"source_id": "long"}, where_document={"$not_contains": "number 39"}
    )
    assert len(rest) == rest[0]["metadata"]["total_chunks"] - 1


def test_matches_come_from_the_named_collection_only(tools):
    tools("chroma_create_collection", collection_name="other")
    tools("chroma_add_documents", collection_name="other", documents=["alpha rivers"], ids=["other"])
    assert [request["id"] for request in asked(tools, "alpha rivers", collection_name="other")] == ["other"]
    assert "other" not in [request["id"] for request in asked(tools, "alpha rivers")]


def test_query_without_a_collection_ranks_all_together(tools):
    everywhere = {"query_texts": ["alpha rivers", "owls at night"], "n_results": 3}
    tools("chroma_create_collection", collection_name="birds", metadata={"hnsw:space": "cosine"})
    tools("chroma_add_documents", collection_name="birds", documents=["Owls hunt at night.", "rivers"], ids=["a", "b"])
    answer = tools("chroma_query_documents", **everywhere)
    rivers, owls = (result["matches"] for result in answer["results"])
    assert (rivers[0]["collection"], rivers[0]["id"]) == ("notes", "a")
    assert (owls[0]["collection"], owls[0]["id"]) == ("birds", "a")
    assert {"notes", "birds"} == {river["collection"] for river in rivers}
    for name, matches in (("alpha rivers", rivers), ("owls at night", owls)):
        alone = [
            request | {"collection": collection}
            for collection in ("notes", "birds")
            for request in asked(tools, name, collection_name=collection, n_results=10)
        ]
        order = sorted(alone, key=lambda match: (-match["similarity"], match["collection"] != "birds", match["id"]))
        assert matches == order[:3], "as each collection answers alone, distances in its own space"
    assert answer["collection_name"] is None


def test_query_without_a_collection_filters_and_embeds_for_each(tools):
    tools("chroma_create_collection", collection_name="birds")
    tools("chroma_add_documents", collection_name="birds", documents=["rivers"], ids=["a"], metadatas=[{"n": 2}])
    given = {"query_texts": ["rivers"], "where": {"n": {"$lte": 2}}, "include": ["embeddings"]}
    [result] = tools("chroma_query_documents", **given)["results"]
    assert {(match["collection"], match["id"]) for match in result["matches"]} == {
        ("birds", "a"),
        ("notes", "a"),
        ("notes", "b"),
    }
    for match in result["matches"]:
        [same] = tools(
            "chroma_get_documents", collection_name=match["collection"], ids=[match["id"]], include=["embeddings"]
        )["documents"]
        assert [match["embedding"]] == same["embedding"]


def test_system_collection_is_queried_only_by_name(tools):
    tools("chroma_sequential_thinking", thought="owls", thought_number=1, total_thoughts=1)
    [system] = [
        collection["name"]
        for collection in tools("chroma_list_collections")["collections"]
        if collection["kind"] == "system"
    ]
    [result] = tools("chroma_query_documents", query_texts=["owls"])["results"]
    assert {match["collection"] for match in result["matches"]} == {"notes"}
    assert asked(tools, "owls", collection_name=system)[0]["document"] == "owls"


def test_query_starts_hardly_more_than_one_of_the_library(tools, project, monkeypatch):
    """Processes are most of what a query costs. One more looks whether what the pin names has to be
    fetched.
    """
    started: list[Any] = []
    connected: list[Any] = []
    popen, connect = subprocess.Popen.__init__, Connection.__init__

    def counted(into: list[Any], original: Any) -> Any:
        def call(self: Any, *arguments: Any, **keywords: Any) -> None:
            into.append(arguments)
            original(self, *arguments, **keywords)

        return call

    asked(tools, "rivers")
    ws = Workspace.open(project.top, QUIET)
    query.answer_query(ws, Query("rivers"))
    monkeypatch.setattr(subprocess.Popen, "__init__", counted(started, popen))
    monkeypatch.setattr(Connection, "__init__", counted(connected, connect))
    query.answer_query(ws, Query("rivers", ("notes",), 5, Mode.VECTOR))
    library = len(started), len(connected)
    asked(tools, "rivers")
    server = len(started) - library[0], len(connected) - library[1]
    assert server[0] <= library[0] + 1
    assert server[1] <= library[1]
    ws.close()
