"""The tools that keep the index up."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from tests.support import terminal
from tests.support.mcp import Tools, warned
from tests.support.terminal import Project, opened
from vmrag_link.embedding.minilm import MiniLmModel
from vmrag_link.engines.base import Write
from vmrag_link.index.views import list_segments
from vmrag_link.models import Document, content_hash

pytestmark = pytest.mark.hooks("off")

template, project = terminal.template, terminal.project

NOTHING = {"added": 0, "modified": 0, "deleted": 0, "chunks": 0}


@pytest.fixture
def tools(project: Project) -> Tools:
    return Tools(project.top)


def numbers(row: dict[str, Any]) -> dict[str, int]:
    return {name: row[name] for name in NOTHING}


def only(rows: list[dict[str, Any]], name: str = "handbook") -> dict[str, Any]:
    key = "collection" if "collection" in rows[0] else "collection_name"
    return next(row for row in rows if row[key] == name)


def store_without_index(project: Project, *rows: Write) -> None:
    """Documents whose writer was killed before the index followed."""
    with opened(project) as ws:
        branch = ws.find_kb_branch()
        for row in rows:
            with ws.sync_context.without_copy(branch.name, branch.head):
                ws.engine.write(branch.name, row, expected=branch.head)


def note(doc_id: str, text: str, *, collection: str = "handbook") -> Document:
    return Document(collection, doc_id, "", text, content_hash(text))


def documents(project: Project) -> Any:
    with opened(project) as ws:
        return ws.find_kb_branch(), list(ws.engine.read_headers(ws.locate_documents()))


def add_unindexable(project: Project) -> None:
    """A second collection, whose model is not on this machine, with one document that was never
    embedded.
    """
    folder = project.top.parent / "models"
    folder.mkdir()
    project.git("config", "vmrag.embedding.model-path", str(folder))
    with opened(project) as ws:
        like = ws.engine.list_collections(ws.locate_documents())[0]
    row = type(like)(
        "mini", embedding_function="minilm", embedding_model=MiniLmModel.fingerprint, embedding_dimensions=384
    )
    text = note("a.md", "Never embedded.", collection="mini")
    store_without_index(project, Write(put_collections=[row], put_documents=[text]))


# -- bringing --------------------------------------------------------------------------------------


def test_sync_without_changes_reports_zeros(tools: Tools) -> None:
    answer = tools("sync_collection", source_table="documents", identifier="handbook")
    assert (numbers(answer), answer["collection"], answer["sync_status"]) == (NOTHING, "handbook", "synced")
    assert answer["commit"] == answer["kb"]["commit"]
    assert (answer["branch"], bool(answer["snapshot"])) == ("main", True)
    everything = tools("sync_all")
    assert (everything["totals"], everything["failed"]) == (NOTHING, [])
    assert numbers(only(everything["collections"])) == NOTHING


def test_sync_indexes_pending_documents_and_leaves_them_uncommitted(project: Project, tools: Tools) -> None:
    project.put("one.md", "One.")
    changed = [note("one.md", "Two."), note("new.md", "New.")]
    store_without_index(project, Write(put_documents=changed, remove_documents=[("handbook", "faq.md")]))
    status = tools("get_sync_status")
    row = only(status["collections"])
    assert (status["in_sync"], row["sync_status"], row["pending_documents"]) == (False, "pending", 3)
    assert row["document_count"] == 5
    stored = documents(project)
    assert tools("get_sync_status") == status

    answer = tools("sync_collection", source_table="documents", identifier="handbook_main")
    assert numbers(answer) == {"added": 2, "modified": 0, "deleted": 1, "chunks": 2}
    assert tools("get_sync_status")["in_sync"] is True
    assert tools("sync_all")["totals"] == NOTHING
    assert documents(project) == stored
    assert project.texts()["one.md"] == "Two."


def test_index_that_verifies_but_holds_something_else_is_found_out(project: Project, tools: Tools) -> None:
    project.put("one.md", "One.")
    with opened(project) as ws:
        branch = ws.find_kb_branch()
        ws.engine.write(branch.name, Write(put_documents=[note("past.md", "Past the tools.")]), expected=branch.head)
    assert only(tools("get_sync_status")["collections"])["pending_documents"] == 1
    assert tools("sync_all")["totals"]["added"] == 1
    assert tools("get_sync_status")["in_sync"] is True


def test_deleted_indexes_are_rebuilt_with_equal_answers(project: Project, tools: Tools) -> None:
    project.put("one.md", "One uncommitted frequent rest.")
    answers = project.answers()
    project.forget_indexes()
    row = only(tools("get_sync_status")["collections"])
    assert (row["sync_status"], row["snapshot"], row["last_sync_at"], row["pending_documents"]) == (
        "pending",
        None,
        None,
        5,
    )
    answer = tools("sync_all")
    assert numbers(answer["totals"]) == {"added": 5, "modified": 0, "deleted": 0, "chunks": 5}
    assert project.answers() == answers
    assert tools("sync_all")["totals"] == NOTHING


@pytest.mark.parametrize("name", ["segments/*/manifest.sqlite", "segments/*/vectors-1.i8", "views/*/view"])
def test_index_that_is_damaged_without_looking_so_is_made_again(project: Project, tools: Tools, name: str) -> None:
    answers = project.answers()
    damaged = list(project.shared.glob(name))
    assert damaged
    for path in damaged:
        path.write_bytes(b"\1" * path.stat().st_size)
    tools("get_sync_status")
    assert tools("sync_all")["failed"] == []
    assert tools("chroma_get_collection_info", collection_name="handbook")["document_count"] == 4
    assert tools("get_sync_status")["in_sync"] is True
    assert project.answers() == answers


def test_collection_without_a_row_goes_from_the_index(project: Project, tools: Tools) -> None:
    tools("chroma_create_collection", collection_name="notes")
    project.put("a.md", "A.", collection="notes")
    project.record("notes")
    store_without_index(project, Write(remove_collections=["notes"]))
    answer = tools("sync_all")
    assert answer["totals"]["deleted"] == 1
    with opened(project) as ws, ws.reader.view() as view:
        from vmrag_link.index.contents import read_collections

        assert list(read_collections(view.folder)) == ["handbook"]


def test_checkout_made_elsewhere_is_followed_and_counted(project: Project, tools: Tools) -> None:
    tools("sync_all")
    project.git("-c", "core.hooksPath=/dev/null", "switch", "-q", "feature")
    status = tools("get_sync_status")
    assert (status["in_sync"], status["kb"]["in_sync"]) == (False, False)
    assert only(status["collections"])["pending_documents"] == 4
    answer = tools("sync_all")
    assert numbers(answer["totals"]) == {"added": 1, "modified": 1, "deleted": 2, "chunks": 2}
    assert answer["kb"]["commit"] == project.pinned


# -- what cannot be brought ------------------------------------------------------------------------


def test_collection_with_a_missing_model_is_named_as_failed(project: Project, tools: Tools) -> None:
    add_unindexable(project)
    answer = tools("sync_all")
    assert [(collection["collection"], collection["error"]) for collection in answer["failed"]] == [
        ("mini", "EMBEDDING_SERVICE_ERROR")
    ]
    assert {collection["collection"]: collection["sync_status"] for collection in answer["collections"]} == {
        "handbook": "pending",
        "mini": "error",
    }
    assert warned(answer) == {"INDEX_PENDING"}
    status = tools("get_sync_status")
    mini = only(status["collections"], "mini")
    assert (mini["sync_status"], mini["pending_documents"], status["in_sync"]) == ("error", 1, False)
    assert mini["error_message"] == answer["failed"][0]["message"]
    tools.error("EMBEDDING_SERVICE_ERROR", "sync_collection", source_table="documents", identifier="mini")
    other = tools("sync_collection", source_table="documents", identifier="handbook")
    assert (other["sync_status"], warned(other)) == ("pending", {"INDEX_PENDING"})
    info = tools("chroma_get_collection_info", collection_name="mini")
    assert (info["index_status"], info["document_count"]) == ("error", 1)


# -- building again --------------------------------------------------------------------------------


def test_full_resync_builds_all_again_and_answers_are_the_same(project: Project, tools: Tools) -> None:
    project.put("one.md", "One uncommitted frequent rest.")
    answers, marks = project.answers(), project.marks()
    [before] = (project.shared / "views").glob(f"{project.pinned}-*/view")
    stood, held = before.stat().st_ino, list_segments(before.parent)
    answer = tools("force_full_resync", collection="all")
    assert (answer["collection"], answer["rebuilt"], answer["sync_status"]) == ("all", True, "synced")
    assert numbers(answer) == {"added": 5, "modified": 0, "deleted": 0, "chunks": 5}
    assert answer["seconds"] > 0
    assert answer["kb"]["dirty"] is True
    assert before.stat().st_ino != stood
    assert held
    assert held.keys().isdisjoint(list_segments(before.parent))
    assert (project.answers(), project.marks()) == (answers, marks)
    assert tools("force_full_resync", collection="handbook")["collection"] == "handbook"
    assert project.consistent()


def test_searches_continue_during_a_rebuild(project: Project, tools: Tools) -> None:
    texts = [note(f"{number}.md", f"Text {number}. " * 100) for number in range(30)]
    store_without_index(project, Write(put_documents=texts))
    project.record("many")
    expected = project.answers()
    result = threading.Event()
    found_values: list[Any] = []

    def ask() -> None:
        other = Project(project.top)
        while not result.is_set():
            found_values.append(other.run_quietly("query", "faq question", "--json").code)

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        tools("force_full_resync", collection="all")
    finally:
        result.set()
        asking.join()
    assert set(found_values) == {0}
    assert project.answers() == expected


def test_old_index_answers_after_a_failed_rebuild(project: Project, tools: Tools) -> None:
    project.put("one.md", "One uncommitted frequent rest.")
    answers = project.answers()
    with opened(project) as ws:
        branch, row = ws.find_kb_branch(), ws.engine.list_collections(ws.locate_documents())[0]
        other = type(row)("other", embedding_function="hash", embedding_model="hash v0", embedding_dimensions=256)
        text = note("a.md", "Text.", collection="other")
        ws.engine.write(branch.name, Write(put_collections=[other], put_documents=[text]), expected=branch.head)
    tools.error("EMBEDDING_MISMATCH", "force_full_resync", collection="all")
    assert project.answers() == answers
    tools("chroma_delete_collection", collection_name="other", confirm=True)
    assert project.answers() == answers
    assert project.consistent()


def test_resync_reports_busy_while_the_old_index_is_read(project: Project, tools: Tools) -> None:
    project.git("config", "vmrag.lock-timeout-s", "1")
    with opened(project) as ws, ws.reader.view():
        assert tools.error("BUSY", "force_full_resync", collection="all")["details"]["path"]
    tools("force_full_resync", collection="all")
