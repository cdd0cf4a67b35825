"""Several tools together on one knowledge base, from adding a document to resolving a conflict."""

from __future__ import annotations

import shutil
from typing import Any

import pytest

from tests.support import contract_world
from tests.support.chroma import needs_chroma
from tests.support.contract_states import OFF, State, with_model
from tests.support.mcp import Tools, warned
from vmrag_link.embedding.hash_model import HashModel
from vmrag_link.errors import EmbeddingFailed, IndexFailed
from vmrag_link.index.draft import Draft

pytestmark = pytest.mark.hooks("off")

templates, world = contract_world.templates, contract_world.world

NOTES = {"collection_name": "notes"}
QUESTIONS = ["rivers", "mountains", "alpha beta gamma", "theirs", "delta"]


def answers(tools: Tools) -> list[Any]:
    """Ids, order, distances and texts of some queries."""
    answer = tools("chroma_query_documents", **NOTES, query_texts=QUESTIONS, n_results=100)
    return [
        [(match["id"], match["distance"], match["document"]) for match in result["matches"]]
        for result in answer["results"]
    ]


def ids(tools: Tools) -> list[str]:
    return [document["id"] for document in tools("chroma_get_documents", **NOTES)["documents"]]


def whole(state: State, tools: Tools) -> None:
    """In sync, and the index equals one that is built afresh."""
    result = answers(tools)
    assert tools("get_sync_status")["in_sync"]
    state.forget_indexes()
    assert answers(tools) == result


def test_added_document_is_found_committed_and_hidden_on_another_branch(world):
    state = world.state("topic")
    tools = Tools(state.top)
    tools("chroma_add_documents", **NOTES, ids=["d"], documents=["delta"])
    answer = tools("chroma_query_documents", **NOTES, query_texts=["delta"], n_results=1)
    assert (answer["ids"], answer["kb"]["dirty"]) == ([["d"]], True)
    status = tools("dolt_status", verbose=True)
    assert status["local_changes"]["summary"] == {"added": 1, "modified": 0, "deleted": 0, "total": 1}
    assert status["local_changes"]["documents"] == ["d"]
    result = tools("dolt_commit", message="delta")
    assert result["changes_committed"]["total"] == 1
    status = tools("dolt_status")
    assert not status["local_changes"]["has_changes"]
    assert (status["commit"]["hash"], status["link"]["state"]) == (result["commit"]["hash"], "in_sync")
    assert state.git("status", "--porcelain") == "M  .dolt-version"
    before = answers(tools)
    tools("dolt_checkout", target="topic")
    assert ids(tools) == ["a", "b", "c", "t"]
    assert "d" not in str(tools("chroma_query_documents", **NOTES, query_texts=["delta"], n_results=100)["ids"])
    tools("dolt_checkout", target="main")
    assert answers(tools) == before
    whole(state, tools)


def test_branches_that_differ_in_special_characters_have_separate_indexes(world):
    state = world.state("notes")
    tools = Tools(state.top)
    names = ["feature/x-1", "feature-x-1", "feature_x-1", "feature-x_1"]
    for number, name in enumerate(names):
        state.git("switch", "-q", "-c", name, "main", env=OFF)
        tools("chroma_add_documents", **NOTES, ids=[f"on{number}"], documents=[f"only {name}"])
        tools("dolt_commit", message=name)
        state.git("commit", "-q", "-a", "-m", name, env=OFF)
    for number, name in enumerate(names):
        state.git("switch", "-q", name, env=OFF)
        assert ids(tools) == ["a", "b", "c", f"on{number}"]
        assert tools("dolt_status")["branch"] == name
        result = tools("chroma_query_documents", **NOTES, query_texts=["only"], n_results=100)["ids"][0]
        assert sorted(result) == ["a", "b", "c", f"on{number}"]


@pytest.mark.parametrize("strategy", ["ours", "theirs"])
def test_pull_in_conflict_is_resolved_committed_and_found(world, strategy):
    state = world.state("diverged")
    tools = Tools(state.top)
    refused = tools.error("MERGE_CONFLICT", "dolt_pull")
    assert [conflict["doc_id"] for conflict in refused["details"]["conflicts"]] == ["a"]
    status = tools("dolt_status")
    assert status["merge_in_progress"]
    assert [conflict["doc_id"] for conflict in status["conflicts"]] == ["a"]
    tools.error("MERGE_CONFLICT", "dolt_commit", message="too early")
    resolved = tools("resolve_conflicts", table="notes", strategy=strategy)
    assert (resolved["resolved"], resolved["remaining"], resolved["commit"]) == (1, 0, None)
    tools("dolt_commit", message="merged")
    (document,) = tools("chroma_get_documents", **NOTES, ids=["a"])["documents"]
    assert document["document"] == strategy
    status = tools("dolt_status")
    assert not status["merge_in_progress"]
    assert not status["local_changes"]["has_changes"]
    whole(state, tools)
    state.git("commit", "-q", "-a", "-m", "merged", env=OFF)
    assert tools("dolt_push")["remote_state"]["remote_commit"] == status["commit"]["hash"]


def test_link_that_is_made_twice_changes_nothing(world):
    state = world.state("notes")
    tools = Tools(state.top)

    def seen() -> tuple[bytes, str, str]:
        pin = (state.top / ".dolt-version").read_bytes()
        return pin, state.git("status", "--porcelain"), tools("dolt_status")["commit"]["hash"]

    before = seen()
    tools("dolt_link_git", bidirectional=True)
    assert seen() == before
    tools("dolt_link_git", bidirectional=True)
    assert seen() == before


def test_write_with_failing_model_leaves_nothing_half_done(world, monkeypatch):
    state = world.state("notes")
    tools = Tools(state.top)
    real = HashModel.embed

    def failing(model, texts):
        if any("delta" in text for text in texts):
            raise EmbeddingFailed("The model fails.", hint="call again")
        return real(model, texts)

    batch = {"ids": ["d", "e"], "documents": ["epsilon", "delta"]}
    with monkeypatch.context() as patch:
        patch.setattr(HashModel, "embed", failing)
        tools.error("EMBEDDING_SERVICE_ERROR", "chroma_add_documents", **NOTES, **batch)
        assert ids(tools) == ["a", "b", "c"]
        assert tools("get_sync_status")["in_sync"]
        assert not tools("dolt_status")["local_changes"]["has_changes"]
    tools("chroma_add_documents", **NOTES, **batch)
    whole(state, tools)


def test_document_is_stored_as_pending_if_the_index_fails(world, monkeypatch):
    state = world.state("notes")
    tools = Tools(state.top)

    def failing(*_, **__):
        raise IndexFailed("The index cannot be written.", hint="run 'vmrag sync' to sync to the pin")

    with monkeypatch.context() as patch:
        patch.setattr(Draft, "add_documents", failing)
        added = tools("chroma_add_documents", **NOTES, ids=["d"], documents=["delta"])
        assert "INDEX_PENDING" in warned(added)
        assert ids(tools) == ["a", "b", "c", "d"]
        (row,) = tools("get_sync_status")["collections"]
        assert (row["sync_status"], row["pending_documents"]) == ("pending", 1)
        index = tools("dolt_status")["index"]
        assert (index["status"], index["pending_collections"]) == ("pending", ["notes"])
    assert tools("sync_all")["totals"]["added"] == 1
    assert tools("chroma_query_documents", **NOTES, query_texts=["delta"], n_results=1)["ids"] == [["d"]]
    whole(state, tools)


def test_restored_model_lets_sync_all_repair_pending_documents(world):
    state = world.state("pending")
    tools = Tools(state.top)
    failed = tools("sync_all")
    assert [collection["collection"] for collection in failed["failed"]] == ["notes"]
    assert "INDEX_PENDING" in warned(failed)
    (row,) = [
        collection for collection in tools("get_sync_status")["collections"] if collection["collection_name"] == "notes"
    ]
    assert (row["sync_status"], row["pending_documents"]) == ("error", 1)
    assert row["error_message"]
    with_model(state)
    tools = Tools(state.top)
    assert tools("sync_all")["totals"]["added"] == 1
    assert tools("chroma_query_documents", **NOTES, query_texts=["delta"], n_results=1)["ids"] == [["d"]]


def test_checkout_in_another_terminal_is_noticed_by_the_next_call(world):
    state = world.state("notes")
    tools = Tools(state.top)
    state.git("switch", "-q", "-c", "side", env=OFF)
    tools("chroma_add_documents", **NOTES, ids=["d"], documents=["delta"])
    tools("dolt_commit", message="delta")
    state.git("commit", "-q", "-a", "-m", "delta", env=OFF)
    for branch, expected in (("main", ["a", "b", "c"]), ("side", ["a", "b", "c", "d"]), ("main", ["a", "b", "c"])):
        state.git("switch", "-q", branch, env=OFF)
        result = tools("chroma_get_documents", **NOTES)
        assert [document["id"] for document in result["documents"]] == expected
        assert (result["kb"]["commit"], result["kb"]["in_sync"]) == (state.pinned, True)


@needs_chroma
def test_deleted_chroma_store_changes_no_answer(world):
    state = world.state("notes")
    tools = Tools(state.top)
    state.vmrag("sync", env={"VMRAG_INDEX_CHROMA": "wait"})
    before = answers(tools)
    stores = [path for path in (state.shared / "chroma").iterdir() if path.is_dir()]
    assert stores
    for path in stores:
        shutil.rmtree(path)
    assert answers(tools) == before
