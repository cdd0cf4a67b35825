"""The tools about collections."""

from __future__ import annotations

import json
import sqlite3
from typing import Any

import pytest

from tests.support import terminal
from tests.support.mcp import Tools, warned
from tests.support.terminal import Project, opened
from vmrag_link.errors import IndexFailed
from vmrag_link.index.contents import read_collections
from vmrag_link.index.draft import Draft
from vmrag_link.index.metadata import build_collection_metadata
from vmrag_mcp.call import Behaviour

pytestmark = pytest.mark.hooks("off")

template, project = terminal.template, terminal.project


@pytest.fixture
def tools(project: Project) -> Tools:
    return Tools(project.top)


def chroma_metadata(project: Project, name: str) -> dict[str, Any]:
    """Return the metadata that an outside client reads of a collection."""
    with opened(project) as ws, ws.reader.view() as view:
        return build_collection_metadata(read_collections(view.folder)[name].collection)


def written(project: Project) -> Any:
    """Return the state that a rejected call must not change."""
    with opened(project) as ws:
        at = ws.locate_documents()
        return ws.engine.list_collections(at), list(ws.engine.read_headers(at))


def minilm_without_weights(project: Project) -> None:
    (project.top.parent / "models").mkdir()
    project.git("config", "vmrag.embedding.model-path", str(project.top.parent / "models"))


# -- info and count --------------------------------------------------------------------------------


def test_info_shows_the_effective_settings_and_the_numbers(tools: Tools) -> None:
    tools("chroma_create_collection", collection_name="plain", metadata={"description": "What we know."})
    info = tools("chroma_get_collection_info", collection_name="plain")
    assert info["metadata"] == {
        "description": "What we know.",
        "embedding_model": "hash-words-triples-256 v1",
        "hnsw:space": "l2",
        "hnsw:M": 16,
        "hnsw:construction_ef": 100,
        "hnsw:search_ef": 100,
    }
    assert (info["document_count"], info["chunk_count"], info["embedding_dimensions"]) == (0, 0, 256)
    assert (info["tenant"], info["database"]) == ("default_tenant", "default_database")
    assert info["chunking"] == {"strategy": "characters", "size": 512, "overlap": 50}
    assert (info["embedding_function"], info["index_status"]) == ("hash", "synced")
    assert info["kb"]["dirty"] is True


def test_document_of_several_chunks_counts_once_and_uncommitted_ones_count(project: Project, tools: Tools) -> None:
    project.put("long.md", "word " * 400)
    counted = tools("chroma_get_collection_count", collection_name="handbook")
    info = tools("chroma_get_collection_info", collection_name="handbook")
    assert counted["count"] == info["document_count"] == 5
    assert counted["chunk_count"] == info["chunk_count"] > 7
    assert info["snapshot"]
    assert info["id"]


def test_missing_index_is_built_first(project: Project, tools: Tools) -> None:
    before = tools("chroma_get_collection_info", collection_name="handbook")
    project.forget_indexes()
    after = tools("chroma_get_collection_info", collection_name="handbook")
    assert after == before


# -- names -----------------------------------------------------------------------------------------


def test_branch_name_may_follow_a_collection_name(project: Project, tools: Tools) -> None:
    assert tools("chroma_get_collection_count", collection_name="handbook_main")["collection_name"] == "handbook"
    project.git("switch", "-q", "-c", "topic/new_one")
    for name in ("handbook_topic/new_one", "handbook_topic-new-one"):
        assert tools("chroma_get_collection_count", collection_name=name)["count"] == 4


def test_collection_of_the_whole_name_comes_first(tools: Tools) -> None:
    tools("chroma_create_collection", collection_name="handbook_main")
    assert tools("chroma_get_collection_count", collection_name="handbook_main")["count"] == 0


def test_branch_suffix_of_another_branch_hints_how_to_switch(tools: Tools) -> None:
    error = tools.error("COLLECTION_NOT_FOUND", "chroma_get_collection_count", collection_name="handbook_feature")
    assert "run 'git switch feature' to check it out" in error["suggestions"]
    assert (error["details"]["collection_name"], error["details"]["branch"]) == ("handbook_feature", "main")


# -- create ----------------------------------------------------------------------------------------


def test_created_collection_is_committed_and_survives_checkout_while_empty(project: Project, tools: Tools) -> None:
    made = tools("chroma_create_collection", collection_name="notes", metadata={})
    assert made["collection"] == {"name": "notes", "id": made["id"], "created": True}
    assert made["id"] == tools("chroma_get_collection_info", collection_name="notes")["id"]
    project.record("a collection")
    project.git("switch", "-q", "feature")
    listed = [collection["name"] for collection in tools("chroma_list_collections")["collections"]]
    assert listed == ["handbook"]
    project.git("switch", "-q", "main")
    counts = {
        collection["name"]: collection["document_count"]
        for collection in tools("chroma_list_collections")["collections"]
    }
    assert counts == {"handbook": 4, "notes": 0}


def test_settings_count_like_flat_keys_and_reach_chroma(project: Project, tools: Tools) -> None:
    metadata = {"owner": "us", "rank": 1, "open": True, "none": None, "hnsw:M": 32}
    settings = {"hnsw:space": "cosine", "hnsw:search_ef": 10, "hnsw:M": 32}
    given = json.dumps({**metadata, "settings": settings})
    made = tools("chroma_create_collection", collection_name="notes", metadata=given)
    assert made["metadata"] == {**metadata, **settings}
    info = tools("chroma_get_collection_info", collection_name="notes")
    assert {**settings, "hnsw:construction_ef": 100}.items() <= info["metadata"].items()
    seen = chroma_metadata(project, "notes")
    assert {"owner": "us", "rank": 1, "open": True, "embedding_function": "hash"}.items() <= seen.items()
    assert not any(key.startswith("hnsw") or key == "none" for key in seen)


def test_metadata_that_cannot_be_is_refused_and_nothing_is_written(project: Project, tools: Tools) -> None:
    before = written(project)
    for metadata in (
        {"tags": ["a", "b"]},
        {"nested": {"a": 1}},
        {"description": 5},
        {"hnsw:space": "taxicab"},
        {"hnsw:M": "16"},
        {"hnsw:M": 10**9},
        {"hnsw:M": 16, "settings": {"hnsw:M": 32}},
        {"settings": [1]},
        {"number": 2**70},
        {"half": "\ud800"},
        {"infinite": float("inf")},
    ):
        tools.error("INVALID_METADATA", "chroma_create_collection", collection_name="fresh", metadata=metadata)
    assert written(project) == before


def test_name_that_chroma_would_not_take_is_refused(tools: Tools) -> None:
    for name in ("", "a b", "a", "a..b", "-ab", "1.2.3.4", "x" * 256):
        refused = tools.error("INVALID_NAME", "chroma_create_collection", collection_name=name)
        proposed = refused["suggestions"][-1].rpartition(" ")[2].removesuffix("'")
        tools("chroma_create_collection", collection_name=proposed, get_or_create=True)


def test_existing_collection_is_refused_or_taken_as_it_is(project: Project, tools: Tools) -> None:
    before = written(project)
    taken = tools(
        "chroma_create_collection",
        collection_name="handbook",
        metadata={"a": "b"},
        get_or_create=True,
        embedding_function="cohere",
    )
    assert taken["collection"]["created"] is False
    assert taken["metadata"] == {"hnsw:space": "cosine"}
    assert warned(taken) == {"IGNORED_SETTING"}
    assert written(project) == before
    assert "warnings" not in tools("chroma_create_collection", collection_name="handbook", get_or_create=True)


def test_chunking_is_the_argument_or_the_setting(project: Project, tools: Tools) -> None:
    tools("chroma_create_collection", collection_name="short", chunking={"size": 60, "overlap": "5"})
    assert tools("chroma_get_collection_info", collection_name="short")["chunking"]["size"] == 60
    project.put("a.md", "word " * 100, collection="short")
    assert tools("chroma_get_collection_count", collection_name="short")["chunk_count"] > 8


def test_chunking_that_cannot_be_is_refused(project: Project, tools: Tools) -> None:
    before = written(project)
    for chunking in ({"size": 0}, {"size": 40}, {"overlap": 600}, {"strategy": "lines"}, {"sizes": 1}):
        tools.error("INVALID_PARAMETER", "chroma_create_collection", collection_name="fresh", chunking=chunking)
    assert written(project) == before


def test_unusable_model_fails_at_once_without_writing(
    project: Project, tools: Tools, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key in ("OPENAI_API_KEY", "CO_API_KEY", "COHERE_API_KEY"):
        monkeypatch.delenv(key, raising=False)
    minilm_without_weights(project)
    for name in ("openai", "cohere"):
        project.vmrag("trust", "--service", name)
    before = written(project)
    for name in ("openai", "cohere", "minilm"):
        arguments = {"collection_name": "fresh", "embedding_function": name}
        tools.error("EMBEDDING_SERVICE_ERROR", "chroma_create_collection", **arguments)
    tools.error("INVALID_PARAMETER", "chroma_create_collection", collection_name="fresh", embedding_function="nobodys")
    assert written(project) == before


# -- modify ----------------------------------------------------------------------------------------


def test_rename_keeps_documents_vectors_and_answers(project: Project, tools: Tools) -> None:
    project.put("new.md", "Not committed yet.")
    with opened(project) as ws:
        before = {
            document.doc_id: document
            for document in ws.engine.read_documents(ws.locate_documents(), collection="handbook")
        }
        created_at = ws.engine.list_collections(ws.locate_documents())[0].created_at
    rows = cached(project)
    answers = [hit for answer in project.answers() for hit in answer]
    result = tools("chroma_modify_collection", collection_name="handbook", new_name="guide")
    assert result["changes"] == {"name_changed": True, "metadata_changed": False}
    assert cached(project) == rows
    assert [("guide", *hit[1:]) for hit in answers] == [hit for answer in project.answers() for hit in answer]
    with opened(project) as ws:
        after = {
            document.doc_id: document
            for document in ws.engine.read_documents(ws.locate_documents(), collection="guide")
        }
        assert [
            (collection.name, collection.created_at) for collection in ws.engine.list_collections(ws.locate_documents())
        ] == [("guide", created_at)]
    assert [(value.doc_id, value.content, value.created_at) for value in after.values()] == [
        (value.doc_id, value.content, value.created_at) for value in before.values()
    ]
    tools.error("COLLECTION_NOT_FOUND", "chroma_get_collection_count", collection_name="handbook")
    assert project.consistent()


def cached(project: Project) -> int:
    """How many texts were ever embedded: what is not among them when it is indexed comes to
    them.
    """
    database = sqlite3.connect(project.shared / "embeddings.sqlite")
    table = database.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND sql LIKE '%vector%'").fetchone()
    count = database.execute(f"SELECT count(*) FROM {table[0]}").fetchone()[0]
    database.close()
    return int(count)


def test_new_metadata_replaces_the_users_and_is_a_change_to_commit(project: Project, tools: Tools) -> None:
    tools("chroma_create_collection", collection_name="notes", metadata={"owner": "us", "hnsw:M": 32})
    project.record("a collection")
    answer = tools("chroma_modify_collection", collection_name="notes", new_metadata={"team": "docs"})
    assert answer["collection"] == {"name": "notes", "metadata": {"team": "docs", "hnsw:M": 32, "hnsw:space": "l2"}}
    assert answer["changes"] == {"name_changed": False, "metadata_changed": True}
    assert "owner" not in chroma_metadata(project, "notes")
    assert chroma_metadata(project, "notes")["team"] == "docs"
    project.record("other metadata")
    answer = tools("chroma_modify_collection", collection_name="notes", new_metadata={})
    assert answer["collection"]["metadata"] == {"hnsw:M": 32, "hnsw:space": "l2"}
    assert tools("chroma_modify_collection", collection_name="notes", new_metadata={})["changes"] == {
        "name_changed": False,
        "metadata_changed": False,
    }
    tools.error("INVALID_PARAMETER", "chroma_modify_collection", collection_name="notes")


def test_index_keeps_its_distance_and_hnsw_settings_of_the_definition(
    tools: Tools,
) -> None:
    tools("chroma_create_collection", collection_name="notes")
    given = {"hnsw:space": "cosine", "hnsw:M": 32, "hnsw:search_ef": 100}
    answer = tools("chroma_modify_collection", collection_name="notes", new_metadata=given)
    assert warned(answer) == {"IGNORED_SETTING"}
    assert answer["collection"]["metadata"]["hnsw:M"] == 32
    info = tools("chroma_get_collection_info", collection_name="notes")["metadata"]
    assert (info["hnsw:space"], info["hnsw:M"]) == ("l2", 32)
    tools("force_full_resync", collection="notes")
    info = tools("chroma_get_collection_info", collection_name="notes")["metadata"]
    assert (info["hnsw:space"], info["hnsw:M"]) == ("l2", 32)


# -- delete ----------------------------------------------------------------------------------------


def test_deleting_requires_confirmation_and_reports_uncommitted_documents(project: Project, tools: Tools) -> None:
    project.put("new.md", "Not committed yet.")
    project.put("rest.md", "Another rest.")
    before = written(project)
    error = tools.error("CONFIRMATION_REQUIRED", "chroma_delete_collection", collection_name="handbook")
    assert (error["details"]["document_count"], error["details"]["uncommitted_count"]) == (5, 2)
    assert written(project) == before


def test_uncommitted_documents_of_deleted_collection_stay_reachable(project: Project, tools: Tools) -> None:
    project.put("new.md", "Not committed yet.")
    answer = tools("chroma_delete_collection", collection_name="handbook", confirm=True)
    assert (answer["deleted_collection"], answer["documents_deleted"], answer["status"]) == ("handbook", 5, "success")
    kept = answer["message"].split("revision ")[1].rstrip(".")
    assert project.ask("show", f"{kept}:handbook/new.md")["content"] == "Not committed yet."
    assert tools("chroma_list_collections")["collections"] == []
    assert project.ask("query", "committed")["results"] == []
    project.record("gone")
    project.git("switch", "-q", "feature")
    assert tools("chroma_get_collection_count", collection_name="handbook")["count"] > 0


def test_server_that_needs_no_confirmation_deletes_at_once(project: Project) -> None:
    tools = Tools(project.top, behaviour=Behaviour(require_confirm=False))
    assert tools("chroma_delete_collection", collection_name="handbook_main")["deleted_collection"] == "handbook"


def test_rows_stored_without_an_index_are_a_success_with_a_warning(
    project: Project, tools: Tools, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools("chroma_create_collection", collection_name="notes")

    def failing(*_: object) -> None:
        raise IndexFailed("The disk has other plans.")

    with monkeypatch.context() as patch:
        patch.setattr(Draft, "drop_collection", failing)
        answer = tools("chroma_delete_collection", collection_name="notes", confirm=True)
    assert warned(answer) == {"INDEX_PENDING"}
    tools.error("COLLECTION_NOT_FOUND", "chroma_get_collection_count", collection_name="notes")
    assert project.consistent()
