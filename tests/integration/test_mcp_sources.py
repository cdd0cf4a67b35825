"""Collections of sources in tools: read like others, read-only, and available before any setup."""

from __future__ import annotations

import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.support import notes
from tests.support.mcp import Tools, connected, warned
from tests.support.repos import isolate
from tests.support.terminal import Project, make_repo, opened
from vmrag_link.code import languages
from vmrag_mcp.call import Behaviour
from vmrag_mcp.options import ToolChoice, select_tools
from vmrag_mcp.results import MAX_PATHS
from vmrag_mcp.server import KnowledgeServer
from vmrag_mcp.session import Session

pytestmark = pytest.mark.hooks("off")

template, notes_project = notes.template, notes.project

SOURCES = """\
sources:
- collection: docs
  paths: [docs/]
- collection: code
  kind: code
  paths: [src/]
"""
DEPLOY = "---\ntitle: Deploying\n---\n# Deploying\n\nPush a tag.\n\n## Rollback\n\nThe rollback script runs twice.\n"
KEYS = 'DAYS = 3\n\n\nclass Keys:\n    """Keys that sign."""\n\n    def rotate(self, days):\n        """Rotate signing keys."""\n        return days\n'


def write_files(project: Project) -> None:
    project.write("docs/deploy.md", DEPLOY)
    project.write("src/keys.py", KEYS)


@pytest.fixture
def project(notes_project: Project) -> Project:
    write_files(notes_project)
    settings = notes_project.top / ".vmrag.yaml"
    settings.write_text(settings.read_text() + SOURCES)
    notes_project.git("add", "-A")
    notes_project.git("commit", "-qm", "sources")
    return notes_project


@pytest.fixture
def tools(project: Project) -> Tools:
    return Tools(project.top)


@pytest.fixture
def plain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A repository in which nothing is set up."""
    isolate(monkeypatch, tmp_path / "home")
    project = Project(make_repo(tmp_path / "plain").top)
    write_files(project)
    project.git("add", "-A")
    project.git("commit", "-qm", "begin")
    return project


def asked(tools: Tools, text: str, **arguments: Any) -> list[dict[str, Any]]:
    return tools("chroma_query_documents", query_texts=[text], **arguments)["results"][0]["matches"]


def only(matches: list[dict[str, Any]], path: str) -> dict[str, Any]:
    return next(match for match in matches if match.get("path") == path)


def placed(match: dict[str, Any]) -> dict[str, Any]:
    return {key: match[key] for key in ("path", "lines", "symbol", "heading", "uncommitted") if key in match}


# -- reading


def test_sources_are_listed_with_counts_and_kind(tools):
    listed = tools("chroma_list_collections")
    assert [
        (collection["name"], collection["kind"], collection["document_count"]) for collection in listed["collections"]
    ] == [
        ("code", "source", 1),
        ("docs", "source", 1),
        ("notes", "chroma", 3),
    ]
    assert [
        collection["name"] for collection in tools("chroma_list_collections", limit=1, offset=1)["collections"]
    ] == ["docs"]
    assert tools("chroma_list_collections", name_contains="DOC")["total_count"] == 1
    assert listed["kb"]["sources"]["collections"] == ["docs", "code"]


def test_question_without_a_collection_searches_both_kinds(tools, project):
    matches = asked(tools, "rollback script rivers rotate signing keys", n_results=20)
    assert {match["collection"] for match in matches} == {"code", "docs", "notes"}
    assert placed(only(matches, "docs/deploy.md")) == {
        "path": "docs/deploy.md",
        "lines": [8, 10],  # of the file, with its front matter
        "heading": "Deploying > Rollback",
    }
    result = [placed(match) for match in matches if match["collection"] == "code"]
    assert {"path": "src/keys.py", "lines": [4, 9], "symbol": "Keys"} in result
    lines = (project.top / "src/keys.py").read_text().splitlines(keepends=True)
    match = next(match for match in matches if match.get("symbol") == "Keys")
    assert match["document"] == "".join(lines[3:9])
    assert all(placed(match) == {} for match in matches if match["collection"] == "notes")


def test_front_matter_with_names_of_code_fields_stays_front_matter(tools, project):
    project.write("docs/odd.md", "---\nlast_line: 3\nsymbol: Odd\n---\n# Odd\n\nA pangolin sleeps.\n")
    project.git("add", "-A")
    match = only(asked(tools, "pangolin"), "docs/odd.md")
    assert placed(match) == {"path": "docs/odd.md", "lines": [5, 7], "heading": "Odd", "uncommitted": "added"}


def test_query_accepts_language_and_kind_aliases(tools):
    assert asked(tools, "keys", lang="py") == asked(tools, "keys", lang=["python"]) != []
    assert asked(tools, "keys", kind="Class") == asked(tools, "keys", kind="class") != []
    wrong = tools.error("INVALID_PARAMETER", "chroma_query_documents", query_texts=["x"], lang="pyhton")
    assert wrong["message"] == "unknown language 'pyhton'. Did you mean 'python'?"


def test_empty_result_names_the_filters(tools):
    narrowed = {"query_texts": ["keys"], "path": "no where", "lang": "python", "symbol": ["A.b", "*C"]}
    said = ' collections with path:"no where" lang:python symbol:A.b symbol:*C'
    assert said in tools("chroma_query_documents", **narrowed)["message"]
    assert said in tools("chroma_query_documents", **narrowed, max_tokens=500)["message"]
    assert "with" not in tools("chroma_query_documents", query_texts=["keys"], lang="python")["message"]


def test_file_with_a_byte_order_mark_has_lines(tools, project):
    project.write("docs/marked.md", "\ufeff# Marked\r\n\r\nA pangolin sleeps.\r\n")
    project.git("add", "-A")
    match = only(asked(tools, "pangolin"), "docs/marked.md")
    assert placed(match) == {"path": "docs/marked.md", "lines": [1, 3], "heading": "Marked", "uncommitted": "added"}


@pytest.mark.parametrize("name", ["docs", "docs_main"])
def test_every_tool_that_reads_one_collection_reads_them(tools, name):
    named = {"collection_name": name}
    answers = [
        tools("chroma_get_collection_info", **named),
        tools("chroma_get_collection_count", **named),
        tools("chroma_peek_collection", **named),
        tools("chroma_get_documents", **named),
        tools("chroma_query_documents", **named, query_texts=["rollback"]),
        tools("chroma_get_collection", **named),
        tools("chroma_get_documents_by_ids", **named, ids=["docs/deploy.md"]),
        tools("chroma_get_documents_with_where_filter", **named, where={"title": "Deploying"}),
        tools("chroma_get_documents_with_document_filter", **named, where_document={"$contains": "rollback"}),
        tools("chroma_get_all_documents", **named),
        tools(
            "chroma_query_documents_with_document_filter",
            **named,
            query_texts=["x"],
            where_document={"$contains": "tag"},
        ),
    ]
    text = DEPLOY.partition("---\n")[2].partition("---\n")[2]
    [whole] = answers[3]["documents"]
    assert (whole["id"], whole["document"]) == ("docs/deploy.md", text)
    assert (answers[0]["document_count"], answers[1]["count"], answers[9]["documents"]) == (1, 1, [text])
    assert [answer["total_matching"] for answer in answers[6:10]] == [1, 1, 1, 1]
    for answer in answers:
        assert (answer["kb"]["commit"], answer["kb"]["sources"]["collections"]) == ("", ["docs", "code"])


def test_get_documents_returns_file_chunk_by_id_and_filters_code_metadata(tools):
    [match] = asked(tools, "rotate keys", collection_name="code", n_results=1)
    [chunk] = tools("chroma_get_documents", collection_name="code", ids=[match["id"]])["documents"]
    assert chunk["document"] == match["document"]
    assert tools("chroma_get_documents", collection_name="code", where={"language": "python"})["total_matching"] == 1
    assert tools("chroma_get_documents", collection_name="code", ids=["src/none.py"])["missing_ids"] == ["src/none.py"]


def test_document_is_got_by_its_path_alone(tools):
    answer = tools("get_document", doc_id="src/keys.py")
    assert (answer["library"], answer["content"], answer["table"]) == ("code", KEYS, "documents")
    assert answer["kb"]["sources"]
    tools.error("DOCUMENT_NOT_FOUND", "get_document", doc_id="src/keys.py", table="issue_logs")
    tools.error("DOCUMENT_NOT_FOUND", "get_document", doc_id="src/none.py")


def test_tools_for_stored_documents_ignore_sources(tools):
    assert tools("list_documents", library="docs")["total"] == 0
    assert tools("search", query="rollback", library="docs")["results"] == []
    tools.error("TABLE_NOT_FOUND", "get_diff", table="docs")


def test_tools_for_stored_documents_report_missing_pin(project):
    project.git("checkout", "-q", "--orphan", "bare")
    project.git("rm", "-q", "--cached", ".dolt-version")
    project.git("commit", "-qm", "no pin")
    project.git("worktree", "add", "-q", "-b", "second", "../second", "bare")
    tools = Tools(project.top.parent / "second")
    assert {collection["name"] for collection in tools("chroma_list_collections")["collections"]} == {"docs", "code"}
    assert asked(tools, "rollback")[0]["path"] == "docs/deploy.md"
    for name in ("search", "search_all", "search_issues", "chroma_find_similar_thoughts"):
        tools.error("NO_PIN", name, query="x")
    tools.error("NO_PIN", "chroma_peek_collection", collection_name="notes")


# -- what was edited


def test_each_call_reads_the_files_as_they_are_then(tools, project):
    def text() -> tuple[str, Any, Any]:
        answer = tools("chroma_query_documents", collection_name="docs", query_texts=["how to roll back"])
        match = answer["results"][0]["matches"][0]
        return match["document"].strip(), match.get("uncommitted"), answer["kb"]["sources"].get("uncommitted")

    first = text()
    assert first[1:] == (None, None)
    project.write("docs/deploy.md", "Roll back by hand.\n")
    assert text() == ("Roll back by hand.", "modified", ["docs/docs/deploy.md"])
    project.git("commit", "-qam", "by hand", "--no-verify")
    assert text() == ("Roll back by hand.", None, None)
    project.git("checkout", "-q", "-b", "other", "HEAD~1")
    assert text() == first
    project.git("checkout", "-q", "main")
    assert text()[0] == "Roll back by hand."
    project.git("rm", "-q", "docs/deploy.md")
    assert tools("chroma_get_collection_count", collection_name="docs")["count"] == 0


def test_between_two_calls_no_file_of_an_index_is_held(tools):
    asked(tools, "keys")
    tools("chroma_peek_collection", collection_name="docs")
    [idle] = tools.session._idle.queue
    assert idle.workspace.files._opened is None


def test_kb_block_lists_a_few_files_and_their_count(tools, project):
    for number in range(MAX_PATHS + 5):
        project.write(f"docs/{number:02}.md", f"number {number}\n")
    project.git("add", "-N", "docs")
    project.write("docs/untracked.md", "nobody\n")
    sources = tools("chroma_get_documents", collection_name="docs", limit=1)["kb"]["sources"]
    assert (len(sources["uncommitted"]), sources["uncommitted_count"], sources["untracked"]) == (
        MAX_PATHS,
        MAX_PATHS + 5,
        1,
    )
    assert sources["commit"] == project.git("rev-parse", "HEAD")


# -- what is stored of the same files, and what cannot be read


@pytest.fixture
def imported(notes_project: Project) -> Tools:
    """A file was imported before it became a source's."""
    write_files(notes_project)
    notes_project.vmrag("import", "docs", "--collection", "handbook")
    settings = notes_project.top / ".vmrag.yaml"
    settings.write_text(settings.read_text() + SOURCES)
    notes_project.git("add", "-A")
    return Tools(notes_project.top)


def test_answer_with_a_stored_copy_warns(imported):
    answer = imported("chroma_query_documents", query_texts=["rollback script"], n_results=20)
    matches = answer["results"][0]["matches"]
    assert {match["collection"] for match in matches} == {"code", "docs", "handbook", "notes"}
    assert "STORED_COPIES" in warned(answer)
    [copy] = answer["kb"]["copies"]
    assert copy == "handbook/docs/deploy.md"
    [warning] = [warning for warning in answer["warnings"] if warning["code"] == "STORED_COPIES"]
    assert warning["message"] == "1 stored copy of a tracked file may be outdated."


def test_query_of_stored_collection_returns_stored_documents(imported):
    answer = imported("chroma_query_documents", collection_name="handbook", query_texts=["rollback script"])
    assert answer["results"][0]["matches"]
    assert "sources" not in answer["kb"]
    assert "sources" not in imported("chroma_get_collection_info", collection_name="notes")["kb"]
    assert "sources" not in imported("chroma_get_documents", collection_name="notes", include=["embeddings"])["kb"]


def test_unreadable_collection_is_named(tools, monkeypatch):
    monkeypatch.setattr(languages, "find_language_problem", lambda: "the extra is not installed")
    answer = tools("chroma_query_documents", query_texts=["rotate keys"])
    assert "SOURCES_INCOMPLETE" in warned(answer)
    assert answer["kb"]["sources"]["unavailable"] == {"code": "the extra is not installed"}
    refused = tools.error("COLLECTION_NOT_FOUND", "chroma_peek_collection", collection_name="code")
    assert "the extra is not installed" in refused["message"]
    tools.error("SOURCE_READ_ONLY", "chroma_add_documents", collection_name="code", documents=["x"])


# -- writing

REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("chroma_add_documents", {"documents": ["x"], "ids": ["docs/deploy.md"]}, "docs/deploy.md"),
    ("chroma_add_documents", {"documents": ["x"]}, ""),
    ("chroma_update_documents", {"ids": ["docs/deploy.md_chunk_0"], "documents": ["x"]}, "docs/deploy.md"),
    ("chroma_update_documents", {"ids": ["../../etc/passwd"], "documents": ["x"]}, ""),
    ("chroma_delete_documents", {"ids": ["docs/deploy.md"]}, "docs/deploy.md"),
    ("chroma_delete_documents", {"where": {"title": "Deploying"}}, ""),
    ("chroma_delete_collection", {"confirm": True}, ""),
    ("chroma_modify_collection", {"new_name": "other"}, ""),
    ("chroma_rename_collection", {"new_name": "other"}, ""),
    ("chroma_create_collection", {"get_or_create": True}, ""),
]


@pytest.mark.parametrize(("name", "arguments", "path"), REFUSED)
def test_tool_that_would_write_one_refuses_and_names_the_file(tools, project, name, arguments, path):
    before = (project.git("status", "--porcelain"), stored(project))
    refused = tools.error("SOURCE_READ_ONLY", name, collection_name="docs", **arguments)
    assert refused["details"]["path"] == path
    assert refused["suggestions"][-1].startswith(f"edit the file {path}" if path else "run 'vmrag list")
    assert (project.git("status", "--porcelain"), stored(project)) == before


def test_name_with_a_branch_suffix_is_also_rejected(tools):
    tools.error("SOURCE_READ_ONLY", "chroma_add_documents", collection_name="docs_main", documents=["x"])
    tools.error("SOURCE_READ_ONLY", "chroma_delete_collection", collection_name="docs_main", confirm=True)


def test_document_that_is_a_file_is_not_deleted_by_its_path(tools, project):
    refused = tools.error("SOURCE_READ_ONLY", "delete_document", doc_id="docs/deploy.md")
    assert refused["suggestions"][-1] == "edit the file docs/deploy.md"
    assert (project.top / "docs/deploy.md").exists()


@pytest.mark.parametrize("versioned", [True, False])
def test_stored_collection_with_the_name_of_a_source_is_rejected(project, versioned):
    if not versioned:
        settings = project.top / ".vmrag.yaml"
        settings.write_text(settings.read_text() + "system:\n  versioned: false\n")
    tools = Tools(project.top)
    before = stored(project)
    tools.error("SOURCE_READ_ONLY", "chroma_modify_collection", collection_name="notes", new_name="docs")
    tools.error("SOURCE_READ_ONLY", "ingest_file", path="docs/deploy.md", library="docs")
    chat = {"prompt_summary": "p", "response_summary": "r"}
    tools.error("SOURCE_READ_ONLY", "chroma_log_chat", collection_name="docs", **chat)
    assert stored(project) == before


def stored(project: Project) -> list[str]:
    with opened(project) as ws:
        return [collection.name for collection in ws.engine.list_collections(ws.locate_documents())]


# -- resources


def test_resources_and_their_completion_show_them(project):
    session = Session(project.top, Behaviour())
    with connected(KnowledgeServer(session, select_tools(ToolChoice()))) as client:
        listed = {str(resource.uri) for resource in client.list_resources().resources}
        assert {"vmrag://collections/docs", "vmrag://collections/code", "vmrag://collections/notes"} <= listed
        assert '"kind":"source"' in read(client, "vmrag://collections").replace(" ", "")
        assert "vmrag://documents/docs/docs/deploy.md" in read(client, "vmrag://collections/docs")
        assert read(client, "vmrag://documents/code/src/keys.py") == KEYS
        content = client.read_resource("vmrag://documents/code/src/keys.py").contents[0]
        assert content.mime_type == "text/plain"
        assert client.read_resource("vmrag://documents/docs/docs/deploy.md").contents[0].mime_type == "text/markdown"


def read(client: Any, uri: str) -> str:
    return client.read_resource(uri).contents[0].text


# -- before anything is set up


def test_before_anything_is_set_up_the_files_answer(plain):
    tools = Tools(plain.top)
    first = tools("chroma_query_documents", query_texts=["how to roll back"])
    assert first["results"][0]["matches"][0]["path"] == "docs/deploy.md"
    assert (first["kb"]["commit"], first["kb"]["in_sync"]) == ("", True)
    [warning] = [warning for warning in first["warnings"] if warning["code"] == "NOT_SET_UP"]
    assert "vmrag init" in warning["message"]
    listed = tools("chroma_list_collections")
    assert {collection["name"]: collection["document_count"] for collection in listed["collections"]} == {
        "docs": 1,
        "code": 1,
    }
    assert "warnings" not in listed
    assert tools("chroma_peek_collection", collection_name="docs")["total_in_collection"] == 1
    assert tools("get_document", doc_id="docs/deploy.md")["title"] == "Deploying"
    assert plain.git("status", "--porcelain", "--ignored") == ""
    assert not (plain.top / ".git/vmrag/kb").exists()


def test_before_anything_is_set_up_tools_of_stored_documents_refuse(plain):
    tools = Tools(plain.top)
    for name, arguments in (
        ("dolt_status", {}),
        ("search", {"query": "x"}),
        ("get_sync_status", {}),
        ("chroma_get_documents", {"collection_name": "notes"}),
        ("chroma_query_documents", {"collection_name": "notes", "query_texts": ["x"]}),
        ("chroma_add_documents", {"collection_name": "notes", "documents": ["x"]}),
        ("chroma_create_collection", {"collection_name": "notes"}),
    ):
        tools.error("NOT_INITIALIZED", name, **arguments)
    tools.error("SOURCE_READ_ONLY", "chroma_add_documents", collection_name="docs", documents=["x"])


def test_index_is_not_built_before_the_first_question(plain):
    tools = Tools(plain.top)
    tools.session.warm_up()
    tools.error("NOT_INITIALIZED", "dolt_status")
    assert not (plain.top / ".git/vmrag/sources").exists()
    asked(tools, "keys")
    assert (plain.top / ".git/vmrag/sources").exists()


def test_proposed_sources_follow_files_until_setup(plain):
    tools = Tools(plain.top)
    asked(tools, "keys")
    plain.write("notes.rst", "Tides\n=====\n\nThe tide turns twice a day.\n")
    plain.git("add", "notes.rst")
    assert asked(tools, "when does the tide turn")[0]["path"] == "notes.rst"
    plain.write(".vmrag.yaml", "sources:\n- collection: tides\n  paths: [notes.rst]\n")
    assert [collection["name"] for collection in tools("chroma_list_collections")["collections"]] == ["tides"]
    plain.write(".vmrag.yaml", "embedding:\n  model: hash\n")
    tools.error("NOT_INITIALIZED", "chroma_query_documents", query_texts=["x"])
    tools("dolt_init")
    assert tools("chroma_list_collections")["collections"] == []


def test_repository_without_such_files_has_nothing_to_answer_from(tmp_path, monkeypatch):
    isolate(monkeypatch, tmp_path / "home")
    subprocess.run(["git", "init", "-q", tmp_path / "none"], check=True)
    Tools(tmp_path / "none").error("NOT_INITIALIZED", "chroma_query_documents", query_texts=["x"])


def test_client_reads_resources_before_anything_is_set_up(plain):
    session = Session(plain.top, Behaviour())
    with connected(KnowledgeServer(session, select_tools(ToolChoice()))) as client:
        assert read(client, "vmrag://documents/code/src/keys.py") == KEYS
        assert {"docs", "code"} <= {resource.name for resource in client.list_resources().resources}


def test_questions_at_the_same_time_are_all_answered(plain):
    tools = Tools(plain.top)
    with ThreadPoolExecutor(4) as pool:
        result = [*pool.map(lambda text: asked(tools, text), ["how to roll back", "rotate keys"] * 4)]
    assert [matches[0]["path"] for matches in result] == ["docs/deploy.md", "src/keys.py"] * 4
