"""Issue logs and documents about tools: written, changed, found, and kept apart from others."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support import notes
from tests.support.mcp import Tools
from tests.support.terminal import opened
from vmrag_link.engines.base import Write
from vmrag_link.models import Document, WorkingSet, content_hash, encode_canonical_json
from vmrag_link.workspace.documents import writing

pytestmark = pytest.mark.hooks("off")

template, project, tools = notes.template, notes.project, notes.tools

CAUSE = "# The cache\n\nTwo writers filled the cache at once, and rivers of rows were lost.\n"


def logged(tools: Tools, **arguments: Any) -> dict[str, Any]:
    return tools("add_issue_log", **{"project_id": "birds", "issue_number": 7, "content": CAUSE} | arguments)


def written(tools: Tools, **arguments: Any) -> dict[str, Any]:
    usual = {"tool_name": "git", "title": "Worktrees", "content": "One branch each.", "category": "tooling"}
    return tools("add_knowledge_doc", **usual | arguments)


def found(tools: Tools, name: str, query: str, **arguments: Any) -> list[str]:
    """Ids of the documents that answer, best first."""
    hits = tools(name, query=query, **arguments)["results"]
    return [hit.get("log_id") or hit["doc_id"] for hit in hits]


def test_log_is_found_changed_and_named_by_its_issue(tools, monkeypatch):
    times = iter(f"2026-01-0{day}T00:00:00Z" for day in range(1, 9))
    monkeypatch.setattr("vmrag_link.clock.now", lambda: next(times))
    first = logged(tools, metadata={"author": "Ada", "tags": ["cache", "rows"]})
    log_id = first["log_id"]
    assert (first["collection"], first["chunks_created"]) == ("issues_birds", 1)
    whole = tools("get_issue_log", log_id=log_id)
    assert (whole["title"], whole["content"], whole["log_type"]) == ("The cache", CAUSE, "implementation")
    assert whole["metadata"] == {"author": "Ada", "tags": ["cache", "rows"]}
    assert found(tools, "search_issues", "who filled the cache") == [log_id]

    same = tools("update_issue_log", log_id=log_id, content=CAUSE, title="The cache")
    assert (same["changed"], same["chunks_created"], same["updated_at"]) == (False, 0, whole["updated_at"])
    changed = tools("update_issue_log", log_id=f"{log_id}_chunk_0", content="# Deltas\n\nThe delta of owls.")
    assert (changed["changed"], changed["title"], changed["log_id"]) == (True, "Deltas", log_id)
    assert (changed["created_at"], changed["updated_at"] > whole["updated_at"]) == (whole["created_at"], True)
    assert tools("update_issue_log", log_id=log_id, title="A river")["content_hash"] == changed["content_hash"]
    assert tools("update_issue_log", log_id=log_id, content="Other words.")["title"] == "A river"
    assert tools("update_issue_log", log_id=log_id, metadata={})["metadata"] == {}
    tools.error("DOCUMENT_NOT_FOUND", "get_issue_log", log_id=f"{log_id}_chunk_1")


def test_issue_has_one_log_per_type_and_freed_type_is_reusable(tools):
    first = logged(tools)["log_id"]
    refused = tools.error("DUPLICATE_ID", "add_issue_log", project="birds", issue=7, content="again")
    assert refused["details"]["log_id"] == first
    assert "update_issue_log" in refused["suggestions"][0]
    resolved = logged(tools, log_type="resolution")["log_id"]
    tools.error("DUPLICATE_ID", "update_issue_log", log_id=resolved, log_type="implementation")
    assert tools("update_issue_log", log_id=first, type="investigation")["log_id"] == first
    second = logged(tools, content="again")["log_id"]
    assert len({first, resolved, second}) == 3
    listed = tools("list_issue_logs", filters={"issue_number": "7"})["logs"]
    assert sorted(tool["log_type"] for tool in listed) == ["implementation", "investigation", "resolution"]
    assert logged(tools, issue_number=8)["log_id"] != first
    assert logged(tools, project_id="fish")["log_id"] != first


def test_lists_and_searches_take_the_filters_and_come_in_their_order(tools, monkeypatch):
    ids = {}
    for day, (name, more) in enumerate(
        {
            "old": {"issue_number": 1, "title": "Owl caches", "metadata": {"author": "Ada", "tags": ["a", "b"]}},
            "mid": {"issue_number": 2, "log_type": "resolution", "metadata": {"author": "Bob", "tags": "a"}},
            "new": {"issue_number": 3, "project_id": "fish"},
        }.items(),
        start=1,
    ):
        monkeypatch.setattr("vmrag_link.clock.now", lambda day=day: f"2026-01-0{day}T12:00:00Z")
        ids[name] = logged(tools, **more)["log_id"]
    names = {log_id: name for name, log_id in ids.items()}

    def listed(**arguments: Any) -> list[str]:
        return [names[log["log_id"]] for log in tools("list_issue_logs", **arguments)["logs"]]

    assert listed() == ["new", "mid", "old"]
    assert listed(project_id="birds") == ["mid", "old"]
    assert listed(project_id="nobody") == []
    page = tools("list_issue_logs", limit=1, offset=1)
    assert ([names[log["log_id"]] for log in page["logs"]], page["total_count"], page["has_more"]) == (
        ["mid"],
        3,
        True,
    )
    filters: list[tuple[dict[str, Any], list[str]]] = [
        ({"issue_number": 2}, ["mid"]),
        ({"log_type": "resolution"}, ["mid"]),
        ({"since": "2026-01-02", "until": "2026-01-02"}, ["mid"]),
        ({"since": "2026-01-02T13:00:00+01:00"}, ["new", "mid"]),
        ({"until": "2026-01-02T11:59:59Z"}, ["old"]),
        ({"author": "Ada"}, ["old"]),
        ({"tag": "a"}, ["mid", "old"]),
        ({"title_contains": "OWL"}, ["old"]),
        ({"author": "Ada", "tag": "c"}, []),
    ]
    for given, expected in filters:
        assert listed(filters=given) == expected, given
        among = found(tools, "search_issues", "cache of rivers", filters=given)
        assert sorted(among) == sorted(ids[name] for name in expected), given
    for given in ({"colour": 1}, {"issue_number": "x"}, {"log_type": "x"}, {"since": "soon"}, {"author": 1}):
        tools.error("INVALID_FILTER", "list_issue_logs", filters=given)
        tools.error("INVALID_FILTER", "search_issues", query="x", filters=given)


def test_document_about_tool_moves_with_its_tool_and_keeps_id(tools, project):
    doc_id = written(tools, metadata={"tags": ["git"]})["doc_id"]
    assert written(tools, tool_version="2")["doc_id"] != doc_id, "a title is no key"
    tools("dolt_commit", message="two")
    moved = tools("update_knowledge_doc", doc_id=doc_id, tool="jj", tool_version="1")
    assert (moved["doc_id"], moved["tool_name"], moved["category"], moved["changed"]) == (doc_id, "jj", "tooling", True)
    assert found(tools, "search_knowledge", "branches", tool="jj") == [doc_id]
    assert doc_id not in found(tools, "search_knowledge", "branches", tool_name="git")
    assert tools("chroma_get_collection_count", collection_name="knowledge_git")["count"] == 1
    tools("dolt_commit", message="moved")
    assert found(tools, "search_knowledge", "branches", tool="jj", category="tooling") == [doc_id]
    assert found(tools, "search_knowledge", "branches", category="api") == []


def test_both_tables_are_searched_together_and_chunks_name_theirs(tools):
    tools("chroma_add_documents", collection_name="notes", documents=[CAUSE], ids=["n"])
    log_id, doc_id = logged(tools)["log_id"], written(tools, content="A cache of rows.")["doc_id"]
    both = tools("search_all", query="cache of rows")
    assert {result["source_table"]: result.get("log_id") or result["doc_id"] for result in both["results"]} == {
        "issue_logs": log_id,
        "knowledge_docs": doc_id,
    }
    assert both["searched"] == ["issues_birds", "knowledge_git"]
    assert [result["score"] for result in both["results"]] == sorted(
        (e["score"] for e in both["results"]), reverse=True
    )
    where = {"where": {"source_table": "issue_logs"}, "include": ["metadatas", "provenance"]}
    hits = tools("chroma_query_documents", collection_name="issues_birds", query_texts=["cache"], **where)
    [match] = hits["results"][0]["matches"]
    assert match["metadata"]["source_table"] == "issue_logs"
    assert match["metadata"]["issue_number"] == 7
    page = tools("chroma_get_documents", collection_name="issues_birds", where={"source_table": "documents"})
    assert page["documents"] == []


def test_collections_are_written_only_by_their_own_tools(tools, project):
    log_id = logged(tools)["log_id"]
    written(tools)
    project.write("docs/a.md", "words")
    before = tools("get_diff", include_content=True)["documents"]
    target = {"collection_name": "issues_birds"}
    refused = [
        tools.error("INVALID_PARAMETER", "chroma_add_documents", **target, documents=["x"]),
        tools.error("INVALID_PARAMETER", "chroma_update_documents", **target, ids=[log_id], documents=["x"]),
        tools.error("INVALID_PARAMETER", "chroma_modify_collection", **target, new_name="other-name"),
    ]
    assert all("add_issue_log" in str(answer["suggestions"]) for answer in refused)
    tools.error("INVALID_PARAMETER", "chroma_add_documents", collection_name="knowledge_git", documents=["x"])
    tools.error("COLLECTION_EXISTS", "chroma_create_collection", **target)
    for command in (
        ("add", "docs/a.md", "--collection", "issues_birds", "--id", "x", "--copy"),
        ("add", "docs/a.md", "--collection", "knowledge_git", "--copy"),
        ("import", "docs", "--collection", "issues_birds", "--copy"),
    ):
        assert project.vmrag(*command, "--json", code=2).error["code"] == "INVALID_PARAMETER"
    tools.error("COLLECTION_EXISTS", "ingest_file", path=str(project.top / "docs/a.md"), library="issues_birds")
    assert tools("get_diff", include_content=True)["documents"] == before
    project.vmrag("rm", log_id, "--collection", "issues_birds")
    assert tools("list_issue_logs")["logs"] == []
    logged(tools)
    assert tools("chroma_delete_documents", **target, where={"issue_number": 7})["documents_deleted"] == 1
    logged(tools)
    assert tools("chroma_delete_collection", **target, confirm=True)["documents_deleted"] == 1
    assert found(tools, "search_issues", "cache") == []
    logged(tools)
    assert len(found(tools, "search_issues", "cache")) == 1


def test_collection_of_other_documents_that_has_the_name_is_left_alone(tools):
    for name, call in (("issues_birds", logged), ("knowledge_git", written)):
        tools("chroma_create_collection", collection_name=name)
        tool = "add_issue_log" if call is logged else "add_knowledge_doc"
        usual = {"project_id": "birds", "issue_number": 1} if call is logged else {"tool_name": "git", "title": "t"}
        more = {} if call is logged else {"category": "api"}
        refused = tools.error("COLLECTION_EXISTS", tool, **usual, **more, content="x")
        assert refused["details"]["collection_name"] == name
        tools("chroma_modify_collection", collection_name=name, new_name=f"other-{name}")
        call(tools)


def test_invalid_names_and_metadata_are_refused_and_odd_names_stay_distinct(tools):
    for project_id in (" birds", "bi\nrds", "b" * 256):
        tools.error("INVALID_PARAMETER", "add_issue_log", project_id=project_id, issue_number=1, content="x")
    for key in ("project_id", "log_type", "content", "source_id", "collection", "title"):
        tools.error("INVALID_METADATA", "add_issue_log", project_id="p", issue_number=1, content="x", metadata={key: 1})
    names = {logged(tools, project_id=name)["collection"] for name in ("a/b", "a b", "a-b", "ä", "../x", "A-B")}
    assert len(names) == 6
    nested = {"files": [{"path": "a.py"}, 3], "deep": {"a": None}}
    log_id = logged(tools, project_id="a/b", issue_number=9, metadata=nested)["log_id"]
    assert tools("get_issue_log", log_id=log_id)["metadata"] == nested


def test_row_inserted_by_sql_without_collection_is_found(tools, project):
    """Other programs know the tables of issue logs, and nothing of collections."""
    stated = encode_canonical_json({"project_id": "sql", "issue_number": 4, "log_type": "resolution"})
    text = "Inserted by SQL, about herons."
    row = Document(
        "issues_sql", "by-sql", "Herons", text, content_hash(text), stated, updated_at="2026-01-01", table="issue_logs"
    )
    orphan = Document("nowhere", "o", "Orphan", "A lonely heron.", content_hash("A lonely heron."))
    with opened(project) as ws:
        branch = writing.require_writable(ws).kb_branch
        assert branch
        ws.engine.write(branch.name, Write(put_documents=[row, orphan]), expected=branch.head)
        assert [collection.name for collection in ws.engine.list_collections(WorkingSet(branch.name))] == ["notes"]
    assert found(tools, "search_issues", "herons") == ["by-sql"]
    assert tools("get_issue_log", log_id="by-sql")["content"] == text
    hits = project.ask("query", "lonely heron", "--collection", "nowhere")["results"]
    assert [hit["doc_id"] for hit in hits] == ["o"]
    tools("dolt_commit", message="herons")
    assert found(tools, "search_issues", "herons") == ["by-sql"]
    assert project.vmrag("sync", "--rebuild").code == 0
    assert found(tools, "search_issues", "herons") == ["by-sql"]
    second = logged(tools, project_id="sql", content="Herons again.")["log_id"]
    assert sorted(found(tools, "search_issues", "herons", project_id="sql")) == sorted(["by-sql", second])
    project.vmrag("rm", "o", "--collection", "nowhere")
    assert json.loads(project.vmrag("query", "lonely heron", "--json").out)["results"]
    assert project.vmrag("query", "heron", "--collection", "nowhere", code=3).err
