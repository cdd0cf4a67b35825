"""Mistakes that an earlier implementation of these tools made, one test each. The number is its
place in the list of those traps.
"""

from __future__ import annotations

import threading
from typing import Any

import pytest

from tests.support import contract_world
from tests.support.contract_states import OFF, TEXTS, State, past_the_tools
from tests.support.contract_world import World
from tests.support.mcp import Tools, warned

pytestmark = pytest.mark.hooks("off")

templates, world = contract_world.templates, contract_world.world

NOTES = {"collection_name": "notes"}
ALL_NOTES = {"source_table": "documents", "identifier": "notes"}


def begun(world: World, name: str) -> tuple[State, Tools]:
    state = world.state(name)
    return state, Tools(state.top)


def texts(tools: Tools) -> dict[str, str]:
    return {document["id"]: document["document"] for document in tools("chroma_get_documents", **NOTES)["documents"]}


def found(tools: Tools, query: str) -> list[str]:
    """The documents whose chunks a query gives, best first."""
    return tools("chroma_query_documents", **NOTES, query_texts=[query], n_results=100)["ids"][0]


# -- the index does not limit the documents --------------------------------------------------------


def test_document_missing_in_index_does_not_become_deleted(world):
    """2"""
    state, tools = begun(world, "notes")
    past_the_tools(state, put={"e": "epsilon"})
    state.forget_indexes()
    assert tools("dolt_status")["local_changes"]["summary"] == {"added": 1, "modified": 0, "deleted": 0, "total": 1}
    assert tools("dolt_commit", message="kept")["changes_committed"]["deleted"] == 0
    assert texts(tools) == TEXTS | {"e": "epsilon"}
    state.forget_indexes()
    tools.error("NO_CHANGES", "dolt_commit", message="nothing")


def test_failure_is_an_error_and_never_an_empty_list(world):
    """3"""
    state, tools = begun(world, "notes")
    sound = state.file.read_bytes()
    state.file.write_bytes(b"garbage " * (len(sound) // 8))
    for name, arguments in {
        "chroma_list_collections": {},
        "chroma_get_documents": NOTES,
        "chroma_query_documents": NOTES | {"query_texts": ["rivers"]},
        "get_sync_status": {},
        "dolt_status": {},
        "dolt_commit": {"message": "nothing is here any more"},
        "sync_all": {},
    }.items():
        tools.error("DATABASE_ERROR", name, **arguments)
    state.file.write_bytes(sound)
    assert texts(tools) == TEXTS
    assert not tools("dolt_status")["local_changes"]["has_changes"]


def test_failed_rebuild_is_an_error_and_keeps_the_index(world):
    """4"""
    _, tools = begun(world, "pending")
    vectors = {"include": ["embeddings"], "ids": ["a", "b", "c"]}
    tools.error("EMBEDDING_SERVICE_ERROR", "force_full_resync", collection="notes")
    status = tools("get_sync_status")
    assert not status["in_sync"]
    assert status["collections"][0]["sync_status"] != "synced"
    kept = tools("dolt_reset", confirm_discard=True)
    assert "INDEX_PENDING" not in warned(kept)
    documents = tools("chroma_get_documents", **NOTES, **vectors)["documents"]
    assert [len(document["embedding"]) for document in documents] == [1, 1, 1]


def test_equally_many_documents_are_not_taken_for_the_same_ones(world):
    """10"""
    state, tools = begun(world, "notes")
    past_the_tools(state, put={"e": "epsilon words"}, remove=["a"])
    (status,) = tools("get_sync_status")["collections"]
    assert (status["document_count"], status["sync_status"]) == (3, "pending")
    answer = tools("sync_collection", **ALL_NOTES)
    assert (answer["added"], answer["deleted"]) == (1, 1)
    assert sorted(found(tools, "epsilon words")) == ["b", "c", "e"]
    assert tools("get_sync_status")["in_sync"]


def test_switch_of_branches_leaves_no_document_of_the_other_branch(world):
    """11"""
    _, tools = begun(world, "topic")
    assert sorted(found(tools, "tau")) == ["a", "b", "c"]
    tools("dolt_checkout", target="topic")
    assert found(tools, "tau")[0] == "t"
    assert tools("chroma_get_collection_info", **NOTES)["chunk_count"] == 4
    tools("dolt_checkout", target="main")
    assert sorted(found(tools, "tau")) == ["a", "b", "c"]
    assert tools("chroma_get_collection_info", **NOTES)["chunk_count"] == 3


# -- chunks and metadata ---------------------------------------------------------------------------


@pytest.mark.parametrize("by", ["id", "a chunk's id", "filter", "update"])
def test_removed_document_leaves_no_chunks(world, by):
    """12"""
    _, tools = begun(world, "notes")
    added = tools("chroma_add_documents", **NOTES, ids=["long"], documents=["zebra crossing. " * 700])
    assert added["chunks_created"] > 20
    assert tools("chroma_get_collection_count", **NOTES)["chunk_count"] == 3 + added["chunks_created"]
    match by:
        case "id":
            tools("chroma_delete_documents", **NOTES, ids=["long"])
        case "a chunk's id":
            assert tools("chroma_delete_documents", **NOTES, ids=["long_chunk_11"])["ids_deleted"] == ["long"]
        case "filter":
            tools("chroma_delete_documents", **NOTES, where_document={"$contains": "zebra"})
        case "update":
            tools("chroma_update_documents", **NOTES, ids=["long"], documents=["short"])
    answer = tools("chroma_get_collection_count", **NOTES)
    assert answer["chunk_count"] == answer["count"] == (4 if by == "update" else 3)
    matches = tools("chroma_query_documents", **NOTES, query_texts=["zebra"], n_results=100)["results"][0]["matches"]
    assert not any("zebra" in match["document"] for match in matches)


def test_new_text_keeps_the_metadata_and_each_document_gets_its_own(world):
    """13"""
    _, tools = begun(world, "notes")
    tools("chroma_update_documents", **NOTES, ids=["a"], documents=["new words"])
    tools("chroma_update_documents", **NOTES, ids=["b", "c"], metadatas=[{"n": 20}, {"n": 30}])
    documents = tools("chroma_get_documents", **NOTES)["documents"]
    assert [(document["id"], document["metadata"]["n"]) for document in documents] == [("a", 1), ("b", 20), ("c", 30)]
    for number, expected in ((1, "a"), (20, "b"), (30, "c")):
        answer = tools("chroma_query_documents", **NOTES, query_texts=["words"], where={"n": number})
        assert answer["ids"] == [[expected]]
    assert texts(tools) == TEXTS | {"a": "new words"}


@pytest.mark.parametrize("way", ["merge_branch", "dolt_checkout", "dolt_pull"])
def test_documents_that_come_from_elsewhere_keep_their_metadata(world, way):
    """14"""
    _, tools = begun(world, "behind" if way == "dolt_pull" else "topic")
    doc_id = "r" if way == "dolt_pull" else "t"
    arguments = {"merge_branch": {"source": "topic"}, "dolt_checkout": {"target": "topic"}, "dolt_pull": {}}
    tools(way, **arguments[way])
    number = ord(doc_id) - ord("a") + 1
    (document,) = tools("chroma_get_documents", **NOTES, ids=[doc_id])["documents"]
    assert document["metadata"] == {"n": number}
    answer = tools("chroma_query_documents", **NOTES, query_texts=["words"], where={"n": number})
    assert answer["ids"] == [[doc_id]]
    assert answer["results"][0]["matches"][0]["metadata"]["n"] == number


# -- bookkeeping, contents, hashes -----------------------------------------------------------------


def test_upkeep_of_the_index_changes_no_document_and_blocks_no_checkout(world):
    """15"""
    state, tools = begun(world, "topic")
    upkeep: dict[str, dict[str, Any]] = {
        "sync_collection": ALL_NOTES,
        "sync_all": {},
        "force_full_resync": {"collection": "all"},
        "get_sync_status": {},
        "chroma_query_documents": NOTES | {"query_texts": ["rivers"]},
    }
    for name, arguments in upkeep.items():
        tools(name, **arguments)
        assert not tools("dolt_status")["local_changes"]["has_changes"], name
    assert state.git("status", "--porcelain") == ""
    tools("dolt_checkout", target="topic")
    for name, arguments in upkeep.items():
        tools(name, **arguments)
    tools("dolt_checkout", target="main")
    assert tools("merge_branch", source="topic")["conflicts"] == []


def test_contents_are_stored_exactly_for_any_text(world):
    """16"""
    _, tools = begun(world, "notes")
    contents = {
        "path": "C:\\new\\table\\0 and C:\\\\server\\share",
        "quotes": 'it\'s "quoted"; DROP TABLE documents; -- %s {0} $HOME `id`\r\n\ttab',
        "long": "A line of a long document.\n" * 40_000,
        "unicode": "ñandú \U0001d518 日本語 \u200b \u2028 é e\u0301",
    }
    tools("chroma_add_documents", **NOTES, ids=list(contents), documents=list(contents.values()))
    message = "C:\\new 'quoted' \"twice\"\n\nand $HOME"
    answer = tools("dolt_commit", message=message)
    assert answer["commit"]["message"] == message
    assert tools("dolt_find", query="C:\\new")["total_found"] == 1
    for doc_id, text in contents.items():
        (document,) = tools("chroma_get_documents", **NOTES, ids=[doc_id])["documents"]
        assert document["document"] == text
    assert tools("chroma_get_documents", **NOTES, where_document={"$contains": "C:\\new"})["total_matching"] == 1


def test_hashes_are_accepted_as_printed_despite_git_colour_settings(world):
    """17"""
    state, tools = begun(world, "topic")
    for name in ("color.ui", "color.status", "color.branch"):
        state.git("config", name, "always")
    for commit in tools("dolt_commits", branch="topic")["commits"]:
        assert commit["short_hash"] == commit["hash"][:7]
        for name in (commit["hash"], commit["hash"][:12]):
            assert tools("dolt_show", commit=name)["commit"]["hash"] == commit["hash"]
        assert tools("dolt_find", query=commit["hash"], search_type="hash")["total_found"] == 1
    gone_to = tools("dolt_checkout", target=state.head("topic"))
    assert gone_to["checkout_result"]["to_commit"] == state.head("topic")
    linked = tools("dolt_link_git", bidirectional=True)["link"]
    assert linked["git_commit"] == state.git("rev-parse", "HEAD")
    assert "\x1b" not in str(tools("dolt_status", verbose=True)) + str(tools("dolt_branches"))


def test_two_links_of_one_revision_at_different_times_do_not_conflict(world):
    """21"""
    state, tools = begun(world, "notes")
    before = (state.top / ".dolt-version").read_bytes()
    tools("dolt_link_git", bidirectional=True)
    tools("dolt_link_git", bidirectional=True)
    assert (state.top / ".dolt-version").read_bytes() == before
    assert state.git("status", "--porcelain") == ""
    for branch, time in (("side", "2030-01-01T00:00:00Z"), ("main", "2031-01-01T00:00:00Z")):
        state.git("switch", "-q", *(["-c"] if branch == "side" else []), branch, env=OFF)
        state.pin(linked_at=time)
        state.git("commit", "-q", "-a", "-m", time, env=OFF)
    state.git("merge", "-q", "side", "-m", "merged")
    assert tools("dolt_status")["link"]["state"] == "in_sync"


# -- processes -------------------------------------------------------------------------------------


def test_two_concurrent_writers_wait_for_each_other_without_loss(world):
    """22"""
    state = world.state("notes")
    failures = []

    def write(who: str) -> None:
        tools = Tools(state.top)
        for number in range(4):
            result, failed = tools.run("chroma_add_documents", NOTES | {"ids": [f"{who}{number}"], "documents": [who]})
            if failed:
                failures.append(result)

    threads = [threading.Thread(target=write, args=(who,)) for who in ("x", "y")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    tools = Tools(state.top)
    expected = {f"{who}{number}" for who in ("x", "y") for number in range(4)}
    assert texts(tools).keys() == expected | TEXTS.keys()
    assert set(found(tools, "x")) == expected | TEXTS.keys()
    assert tools("get_sync_status")["in_sync"]


def test_calls_never_write_to_standard_output(world, capfd):
    """23; with the protocol on it, `test_mcp_stdio.py`"""
    _, tools = begun(world, "behind")
    capfd.readouterr()
    for name, arguments in {
        "dolt_status": {"verbose": True},
        "dolt_pull": {},
        "chroma_add_documents": NOTES | {"documents": ["one"]},
        "dolt_commit": {"message": "m", "auto_link_git": True},
        "force_full_resync": {"collection": "all"},
        "dolt_push": {},
        "dolt_checkout": {"target": "HEAD~1"},
    }.items():
        tools(name, **arguments)
        assert capfd.readouterr().out == "", name
    tools.error("COLLECTION_NOT_FOUND", "chroma_get_documents", collection_name="absent")
    assert capfd.readouterr().out == ""
