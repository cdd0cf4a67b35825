"""The tools that add, get, change and delete documents, on a writable source.

The tests of stored documents run here as well, each with files alone and with a knowledge base.
`DIFFERENT` names those in which notes differ by design.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.integration import test_mcp_documents as stored
from tests.support import written_notes
from tests.support.mcp import Tools
from tests.support.mcp_process import serve
from tests.support.notes import LONG, TEXTS
from tests.support.terminal import Project
from tests.support.written_notes import FOLDER

pytestmark = [pytest.mark.hooks("off"), pytest.mark.sample(1)]  # each tool with one of the two kinds

template, project, tools = written_notes.template, written_notes.project, written_notes.tools

NOTES = {"collection_name": "notes"}

DIFFERENT = {
    "embedding": "notes have no vectors of clients",
    "before_any_commit": "the knowledge base is not dirty",
    "rejects_the_batch": "without a knowledge base, an unknown collection is NOT_INITIALIZED",
    "update_that_is_refused": "likewise",
    "title_comes": "a note is titled by its first line",
    "five_megabytes": "sources have a limit of bytes",
    "get_without_embeddings": "the rows are in another index",
    "reading_does_not_write": "there may be no knowledge base",
    "names_an_available_tool": "git commit keeps notes",
    "concurrent_writes_of_another_process": "a lock orders the writers of notes",
}
"""Parts of names of tests, and why they are not about notes."""

SHARED = {
    name: test
    for name, test in vars(stored).items()
    if name.startswith("test_") and not any(part in name for part in DIFFERENT)
}
globals().update(SHARED)


def test_most_tests_of_stored_documents_are_of_notes_as_well():
    assert len(SHARED) > 20
    assert [part for part in DIFFERENT if not any(part in name for name in vars(stored))] == []


def test_invalid_note_rejects_the_batch(project, tools):
    for code, wrong in (
        ("DUPLICATE_ID", {"ids": ["fresh", "a"]}),
        ("DUPLICATE_ID", {"ids": ["same", "same"]}),
        ("LENGTH_MISMATCH", {"ids": ["one"]}),
        ("INVALID_METADATA", {"metadatas": [{}, {"id": "z"}]}),
        ("INVALID_METADATA", {"metadatas": [{}, {"tags": ["x"]}]}),
        ("INVALID_METADATA", {"metadatas": [{}, {"deep": {"x": 1}}]}),
        ("INVALID_METADATA", {"metadatas": [{}, {"n": "\ud800"}]}),
        ("INVALID_METADATA", {"documents": ["fine", "x" * 1_000_001]}),
        ("INVALID_METADATA", {"documents": ["fine", f"ghp_{'a' * 36}"]}),
        ("INVALID_NAME", {"ids": ["fine", "\n"]}),
        ("INVALID_PARAMETER", {"documents": ["fine", ""]}),
    ):
        tools.error(code, "chroma_add_documents", **(NOTES | {"documents": ["x", "y"]} | wrong))
    assert stored.got(tools) == TEXTS
    assert project.git("status", "--porcelain") == ""


def test_update_that_is_refused_writes_no_note(project, tools):
    for code, wrong, ids in (
        ("DOCUMENT_NOT_FOUND", {"ids": ["a", "absent"]}, ["absent"]),
        ("DOCUMENT_NOT_FOUND", {"ids": ["one", "two"]}, ["one", "two"]),
        ("DOCUMENT_NOT_FOUND", {"ids": ["a", "a_chunk_1"]}, ["a_chunk_1"]),
        ("INVALID_METADATA", {"metadatas": [{}, {"tags": ["x"]}]}, None),
        ("INVALID_PARAMETER", {"embeddings": [[1.0], None]}, None),
    ):
        given = NOTES | {"ids": ["a", "b"], "documents": ["x", "y"]} | wrong
        error = tools.error(code, "chroma_update_documents", **given)
        assert error["details"].get("ids") == ids
    assert stored.got(tools) == TEXTS
    assert project.git("status", "--porcelain") == ""


def test_added_note_is_a_file_that_queries_find(project, tools):
    added = tools("chroma_add_documents", **NOTES, documents=["owls hunt at night", LONG], ids=["owl", "long"])
    assert (added["documents_added"], added["ids"]) == (2, ["owl", "long"])
    rows = tools("chroma_get_documents", **NOTES, ids=["owl", "long"], include=["embeddings"])["documents"]
    assert added["chunks_created"] == sum(len(row["embedding"]) for row in rows)
    assert "git commit" in added["message"]
    assert stored.found(tools, "owls hunt at night")[0] == "owl"
    assert project.git("status", "--porcelain").split() == ["A", f"{FOLDER}/long.md", "A", f"{FOLDER}/owl.md"]


def test_deleted_note_is_back_on_the_commit_that_had_it(project, tools):
    tools("chroma_delete_documents", **NOTES, ids=["a"])
    project.git("commit", "-q", "-m", "without a")
    assert list(stored.got(tools)) == ["b", "c"]
    project.git("checkout", "-q", "HEAD~1")
    assert list(stored.got(tools)) == ["a", "b", "c"]


def call(tool: str, **arguments: Any) -> tuple[str, dict[str, Any]]:
    return tool, NOTES | arguments


ONE_BY_ONE = [
    call("chroma_add_document", document="one"),
    call("chroma_add_document_with_id", document="two", id="x"),
    call("chroma_add_document_with_metadata", document="three", metadata={"n": 7}),
    call("chroma_add_document_with_id_and_metadata", document="four", id="y", metadata={"n": 8}),
    call("chroma_update_document_content", id="x", document="five"),
    call("chroma_update_document_metadata", id="x", metadata={"n": 9}),
    call("chroma_delete_document_by_id", id="a"),
    call("chroma_delete_documents_by_where_filter", where={"n": 2}),
    call("chroma_delete_documents_by_document_filter", where_document={"$contains": "gamma"}),
    ("delete_document", {"id": "y"}),
]


def test_tools_for_one_document_write_notes(project, tools):
    for tool, arguments in ONE_BY_ONE:
        answer = tools(tool, **arguments)
        assert "dolt_commit" not in answer["message"], tool
    assert sorted(stored.got(tools).values()) == ["five", "one", "three"]
    assert stored.metadata_of(tools, "x") == {"n": 9}
    assert sorted(path.read_text().splitlines()[-1] for path in (project.top / FOLDER).iterdir()) == [
        "five",
        "one",
        "three",
    ]


@pytest.mark.sample(1)
def test_notes_are_written_through_a_server_process(project: Project):
    with serve(project.top, "--toolsets", "all") as server:
        ids = ["x", "decisions/y", "con"]
        added = server.call("chroma_add_documents", **NOTES, documents=["owls hunt", LONG, "devices"], ids=ids)
        assert added["ids"] == ids, added
        refused = server.call("chroma_add_documents", **NOTES, documents=["other"], ids=["con"])
        assert refused["code"] == "DUPLICATE_ID"
        outcome = server.call("chroma_update_documents", **NOTES, ids=["x"], metadatas=[{"team": "core"}])
        assert outcome["ids"] == ["x"], outcome
        results = server.call("chroma_query_documents", **NOTES, query_texts=["owls hunt"], where={"team": "core"})
        assert [match["id"] for match in results["results"][0]["matches"]] == ["x"]
        assert server.call("chroma_delete_documents", **NOTES, ids=["con"])["ids_deleted"] == ["con"]
        rows = server.call("chroma_get_documents", **NOTES)["documents"]
        assert [row["id"] for row in rows] == ["a", "b", "c", "decisions/y", "x"]

        answer = server.call("remember", name="search", text="# Search\n\nWe chose Pagefind.")
        assert answer.startswith(f"added notes/search ({FOLDER}/search.md)\n")
        assert server.call("remember", name="search", text="No.").startswith("error DOCUMENT_EXISTS: ")
        answer = server.call("remember", name="notes/search", text="It is fast.", mode="append")
        assert answer.startswith("extended notes/search ")
        assert "\nWe chose Pagefind.\nIt is fast.\n" in server.call("read", name="notes/search")
        answer = server.call("forget", name="notes/search")
        assert "\nto restore it: vmrag restore --undo notes/search\n" in answer
        assert server.call("read", name="notes/search").startswith("error DOCUMENT_NOT_FOUND: ")
    project.vmrag("restore", "--undo", "notes/search")
    assert (project.top / FOLDER / "search.md").read_text().endswith("It is fast.\n")


def test_id_in_two_sources_does_not_delete_a_note(project: Project, tools: Tools):
    project.vmrag("sources", "add", "--write", "docs/adr")
    tools("chroma_add_documents", collection_name="adr", documents=["another"], ids=["b"])
    assert "adr" in tools.error("INVALID_PARAMETER", "delete_document", id="b")["details"]["collections"]
    assert stored.got(tools) == TEXTS


def test_document_that_is_called_like_a_chunk_is_changed_itself(tools: Tools):
    tools("chroma_add_documents", **NOTES, documents=[LONG, "own"], ids=["long", "long_chunk_1"])
    outcome = tools(
        "chroma_update_documents", **NOTES, ids=["long_chunk_1", "long_chunk_2"], metadatas=[{"x": 1}, None]
    )
    assert (outcome["ids"], outcome["unchanged_ids"]) == (["long_chunk_1"], ["long"])
