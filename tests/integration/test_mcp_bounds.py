"""`mcp.page_chars` applies to each tool: an answer about a large knowledge base is truncated and
counts the omitted items.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support import terminal
from tests.support.mcp import Tools, warned
from tests.support.terminal import Project, copied, derive_template, opened
from vmrag_mcp.call import Behaviour
from vmrag_mcp.cutting import SLACK_CHARACTERS, cut_lists
from vmrag_mcp.registry import load_catalogue

pytestmark = pytest.mark.hooks("off")

base = terminal.template

PAGE = 2_000
MANY = 120
COLLECTIONS, RECORDS, FILES = 45, 16, 24
"""Made one by one: a list of so many is longer than a page with its slack."""

IDS = [f"document-{number:03}" for number in range(MANY)]
QUESTIONS = [f"Who crosses river {number}?" for number in range(40)]
ALL: dict[str, Any] = {"collection_name": "large"}


@pytest.fixture(scope="session")
def template(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Many of everything, committed on many branches, and as many changes that are not."""

    return derive_template(tmp_path_factory, "large", base, _fill)


def _fill(project: Project) -> None:
    tools = Tools(project.top)
    texts = [f"Expedition {number} crosses river {number}. {'It takes a day. ' * 20}" for number in range(MANY)]
    metadatas = [{"number": number, "team": "core" * 20} for number in range(MANY)]
    for number in range(COLLECTIONS):
        tools("chroma_create_collection", collection_name=f"collection-{number:03}")
    tools("chroma_create_collection", **ALL)
    tools("chroma_add_documents", **ALL, documents=texts, ids=IDS, metadatas=metadatas)
    for number in range(RECORDS):
        tools("add_issue_log", project_id="rivers", issue_number=number, content=texts[number], title=f"Issue {number}")
        tools("add_knowledge_doc", tool_name="raft", title=f"Raft {number}", content=texts[number], category="how-to")
        tools(
            "chroma_sequential_thinking",
            thought=texts[number],
            thought_number=number + 1,
            total_thoughts=RECORDS,
            session_id="s",
        )
    for number in range(FILES):
        project.write(f"files/{number}.md", f"# File {number}\n\n{texts[number]}")
        tools("ingest_file", path=f"files/{number}.md", library=f"library-{number:03}")
    tools("dolt_commit", message="All of it, river by river")
    with opened(project) as ws:
        head = ws.require_revision()
        for number in range(MANY):
            ws.engine.create_branch(f"branch-{number:03}", head)
    tools("chroma_update_documents", **ALL, ids=IDS, documents=[f"{text} Changed." for text in texts])


@pytest.fixture
def tools(template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tools:
    project = copied(template, tmp_path, monkeypatch)
    return Tools(project.top, behaviour=Behaviour(page_chars=PAGE))


READ: dict[str, list[dict[str, Any]]] = {
    "chroma_list_collections": [{"limit": 0}],
    "chroma_get_collection_info": [ALL],
    "chroma_get_collection_count": [ALL],
    "chroma_get_collection": [ALL],
    "chroma_peek_collection": [{**ALL, "limit": 20}],
    "chroma_query_documents": [
        {"query_texts": QUESTIONS},
        {**ALL, "query_texts": QUESTIONS[:1], "n_results": 100},
        {**ALL, "query_texts": QUESTIONS, "n_results": 3, "include": ["embeddings"]},
    ],
    "chroma_get_documents": [
        {**ALL, "limit": 1000},
        {**ALL, "limit": 1000, "include": ["metadatas"]},
        {**ALL, "limit": 1000, "include": ["embeddings"]},
        {**ALL, "ids": [f"absent-{number}" for number in range(1000)]},
    ],
    "chroma_query_documents_with_where_filter": [{**ALL, "query_texts": QUESTIONS, "where": {"number": {"$gte": 0}}}],
    "chroma_query_documents_with_document_filter": [
        {**ALL, "query_texts": QUESTIONS, "where_document": {"$contains": "river"}}
    ],
    "chroma_get_documents_by_ids": [{**ALL, "ids": IDS}],
    "chroma_get_documents_with_where_filter": [{**ALL, "where": {"number": {"$gte": 0}}, "limit": 0}],
    "chroma_get_documents_with_document_filter": [{**ALL, "where_document": {"$contains": "river"}, "limit": 0}],
    "chroma_get_all_documents": [{**ALL, "limit": 0}],
    "dolt_status": [{}, {"verbose": True}],
    "dolt_branches": [{}],
    "dolt_commits": [{"limit": 100}],
    "dolt_show": [{"commit": "HEAD"}, {"commit": "HEAD", "include_diff": True, "diff_limit": 100}],
    "dolt_find": [{"query": "river"}],
    "get_diff": [
        {"limit": 1000},
        {"limit": 1000, "include_content": True},
        {"from_ref": "HEAD~1", "to_ref": "HEAD", "limit": 1000},
    ],
    "get_sync_status": [{}],
    "get_branch_status": [{}],
    "get_log": [{"limit": 100}],
    "list_issue_logs": [{"limit": 100}],
    "search_issues": [{"query": "river", "limit": 100}],
    "search_knowledge": [{"query": "river", "limit": 100}],
    "search_all": [{"query": "river", "limit": 100}],
    "list_documents": [{"limit": 100}, {"table": "documents", "limit": 100}],
    "list_libraries": [{}],
    "search": [{"query": "river", "top_k": 100}],
    "chroma_find_similar_thoughts": [{"query": "river", "n_results": 100, "threshold": -1}],
    "chroma_get_session_summary": [{"session_id": "s"}],
    "chroma_find_similar_sessions": [{"query": "river", "n_results": 100, "threshold": -1}],
    "search_documents": [{"query": "river", "max_tokens": 20_000}],
    "read": [{"name": f"{ALL['collection_name']}/{IDS[0]}"}],
    "grep": [{"pattern": ".", "limit": 1000}],
    "history": [{"limit": 100}, {"since": "HEAD"}, {"name": ALL["collection_name"]}],
    "status": [{}],
}
OTHERS = {
    "list_toolsets": "the tools of this server are as many as they are",
    "enable_toolset": "as above",
    "get_issue_log": "one document",
    "get_document": "one document",
    "rag_query": "max_sources",
    "rag_query_external": "max_sources",
    "semantic_search": "of a project that is not active here",
    "list_doc_types": "as above",
    "search_external_docs": "as above",
}


def test_every_reading_tool_is_tested():
    assert READ.keys() | OTHERS.keys() == {
        tool.name for tool in load_catalogue().values() if tool.reads or tool.name in OTHERS
    }


def _length(answer: dict[str, Any]) -> int:
    return len(json.dumps(answer, ensure_ascii=False, separators=(",", ":")))


def test_answer_is_never_longer_than_a_page(tools):
    long = []
    for name, calls in READ.items():
        for arguments in calls:
            answer, _ = tools.run(name, arguments)
            if _length(answer) > PAGE + SLACK_CHARACTERS:
                long.append((name, sorted(arguments), _length(answer)))
    assert long == []


def test_neither_is_one_of_a_tool_that_writes_or_fails(tools):
    many = [f"new-{number:04}" for number in range(600)]
    answer = tools("chroma_add_documents", **ALL, documents=["x"] * 600, ids=many)
    assert (_length(answer) <= PAGE + SLACK_CHARACTERS, answer["documents_added"]) == (True, 600)
    assert len(answer["ids"]) + answer["left_out"]["ids"] == 600
    answer = tools("chroma_delete_documents", **ALL, ids=[*many, *(f"absent-{number}" for number in range(600))])
    assert (_length(answer) <= PAGE + SLACK_CHARACTERS, answer["documents_deleted"]) == (True, 600)
    assert _length(tools("sync_all")) <= PAGE + SLACK_CHARACTERS
    refused = tools.error("UNCOMMITTED_CHANGES", "dolt_checkout", target="branch-000")
    assert _length(refused) <= PAGE + SLACK_CHARACTERS


def test_truncated_answer_counts_left_out_items_and_names_offset(tools):
    answer = tools("chroma_list_collections", limit=0)
    assert answer["has_more"]
    assert "LEFT_OUT" in warned(answer)
    kept = len(answer["collections"])
    assert answer["left_out"] == {"collections": answer["total_count"] - kept}
    (warning,) = (warning["message"] for warning in answer["warnings"] if warning["code"] == "LEFT_OUT")
    assert f"continue with offset={kept}" in warning
    rest = tools("chroma_list_collections", limit=0, offset=kept)
    assert rest["collections"][0]["name"] > answer["collections"][-1]["name"]


def test_pages_of_diff_and_documents_return_every_row_once(tools):
    for name, arguments, key in (
        ("get_diff", {"limit": 1000, "include_content": True}, "doc_id"),
        ("chroma_get_documents", {**ALL, "limit": 1000}, "id"),
    ):
        seen: list[str] = []
        more = True
        while more:
            page = tools(name, **arguments, offset=len(seen))
            assert page["documents"]
            seen += [document[key] for document in page["documents"]]
            more = page["has_more"]
        assert seen == IDS, name


def test_matches_of_a_query_and_its_columns_are_cut_alike(tools):
    answer = tools("chroma_query_documents", query_texts=QUESTIONS)
    assert "LEFT_OUT" in warned(answer)
    for result, ids, distances in zip(answer["results"], answer["ids"], answer["distances"], strict=True):
        assert [match["id"] for match in result["matches"]] == ids
        assert len(ids) == len(distances)


def test_lists_of_equal_length_are_cut_together_and_the_heaviest_first():
    answer = {
        "rows": [{"text": "x" * 100}] * 90,
        "names": ["n"] * 90,
        "other": ["o" * 90] * 10,
        "numbers": [1.5] * 3000,
    }
    chunks = cut_lists(answer, 17_000)
    assert chunks.keys() == {"rows", "names"}
    assert len(answer["rows"]) == len(answer["names"]) == 90 - chunks["rows"]
    assert (len(answer["other"]), len(answer["numbers"])) == (10, 3000)
    small = {"rows": [1, 2]}
    assert (cut_lists(small, 10), small) == ({}, {"rows": [1, 2]})
