"""A project's documents: the files decide, the rows follow, and answers come from them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.support import chat as language_model
from tests.support import compounding, notes
from tests.support.chat import KEY, Chat
from tests.support.compounding import DOCS
from tests.support.mcp import ALL, Tools, warned
from tests.support.repos import ON
from tests.support.terminal import Project, opened
from vmrag_link.toolsets.compounding import mirror
from vmrag_mcp.options import ToolChoice

pytestmark = pytest.mark.hooks("off")

template, project, chat = notes.template, notes.project, language_model.chat

QUESTION = "why did the flood gauge report nothing"


@pytest.fixture
def tools(project: Project, monkeypatch: pytest.MonkeyPatch) -> Tools:
    """A server in which the project `rivers` is active, its documents committed."""
    monkeypatch.setattr(mirror, "DEBOUNCE_SECONDS", 0)
    compounding.write(project.top)
    made = activated(project)
    project.vmrag("commit", "-m", "rivers")
    project.git("add", "-A")
    project.git("commit", "-q", "-m", "rivers")
    return made


def activated(project: Project, *, read_only: bool = False) -> Tools:
    tools = Tools(project.top, chosen=ToolChoice(toolsets="all", read_only=read_only) if read_only else ALL)
    tools("activate_project", config_path=str(project.top / compounding.CONFIG), branch_name="main")
    return tools


def rows(project: Project, at: str = "") -> dict[str, str]:
    """The mirrored documents and their texts, at a branch of the knowledge base or here."""
    with opened(project) as ws:
        place = (branch.head if (branch := ws.engine.find_branch(at)) else at) if at else ws.locate_documents()
        return {
            document.doc_id: document.content
            for document in ws.engine.read_documents(place, collection="compounding_rivers")
        }


def paths(answer: dict[str, Any], key: str = "results") -> list[str]:
    return [file["path"].removeprefix(f"./{DOCS}/") for file in answer[key]]


def test_files_decide_on_every_branch_and_checkout_changes_no_row(tools, project):
    assert not tools("list_doc_types")["kb"]["dirty"]
    project.git("switch", "-q", "-c", "drought", env=ON)
    project.write(f"{DOCS}/problems/drought.md", "# Drought\n\nThe drought left the ferries on dry ground.\n")
    (project.top / DOCS / "insights" / "ferry.md").unlink()
    project.write(f"{DOCS}/codebase/box.md", "# The box\n\nThe box is made of steel, and painted blue.\n")
    query = {"query": "ferries in the drought", "min_relevance_score": 0.0}
    assert paths(tools("semantic_search", **query))[0] == "problems/drought.md"
    assert "insights/ferry.md" not in rows(project)
    assert rows(project)["codebase/box.md"] == "# The box\n\nThe box is made of steel, and painted blue.\n"
    tools("dolt_commit", message="drought")
    project.git("add", "-A")
    project.git("commit", "-q", "-m", "drought", env=ON)
    answer = tools("semantic_search", **query)

    project.git("switch", "-q", "main", env=ON)
    back = tools("semantic_search", **query)
    assert "problems/drought.md" not in paths(back)
    assert "insights/ferry.md" in paths(back)
    assert (back["kb"]["dirty"], back["kb"]["in_sync"]) == (False, True), "rows and files moved together"
    project.git("switch", "-q", "drought", env=ON)
    again = tools("semantic_search", **query)
    assert (again["results"], again["kb"]) == (answer["results"], answer["kb"])
    assert [doc_type["doc_count"] for doc_type in tools("list_doc_types")["doc_types"]] == [2, 0, 1, 1, 0, 1]


def test_answer_without_model_quotes_passages_and_its_citations_resolve(tools, project):
    answer = tools("rag_query", query=QUESTION)
    assert warned(answer) == {"LLM_NOT_CONFIGURED"}
    assert (answer["synthesis"], answer["model"]) == ("extractive", None)
    assert [(source["citation"], source["included_as"]) for source in answer["sources"]] == [
        (1, "critical"),
        (2, "match"),
    ]
    assert paths(answer, "sources") == ["tools/gauge.md", "problems/flood.md"]
    assert [(doc["path"], doc["linked_from"]) for doc in answer["linked_docs"]] == [
        (f"./{DOCS}/codebase/box.md", f"./{DOCS}/problems/flood.md")
    ]
    texts, [opening, *parts] = rows(project), answer["answer"].split("\n\n")
    assert "No language model is configured" in opening
    quotes, listed = [line for part in parts[:-1] for line in part.splitlines()], parts[-1].splitlines()
    for number, (source, path) in enumerate(zip(answer["sources"], paths(answer, "sources"), strict=True), start=1):
        assert listed[number - 1] == f"[{number}] {source['title']} — {source['path']}"
        assert source["char_count"] == len(texts[path])
        quoted = [quote.removesuffix(f" [{number}]") for quote in quotes if quote.endswith(f"[{number}]")]
        assert 1 <= len(quoted) <= 3
        assert all(quote.startswith("> ") and quote.removeprefix("> ") in texts[path] for quote in quoted)
    assert activated(project)("rag_query", query=QUESTION) == answer

    alone = tools("rag_query", query=QUESTION, include_critical=False, doc_types=["problem"], max_sources=1)
    assert paths(alone, "sources") == ["problems/flood.md"]
    assert paths(alone, "linked_docs") == ["tools/gauge.md", "codebase/box.md"], "related_docs, then the text's links"
    level = tools("rag_query", query=QUESTION, include_critical=False, min_promotion_level="important")
    assert set(paths(level, "sources")) <= {"tools/gauge.md"}
    none = tools("rag_query", query=QUESTION, include_critical=False, min_relevance_score=1)
    best = max(source["relevance_score"] for source in answer["sources"])
    assert (none["synthesis"], none["sources"], warned(none)) == ("none", [], {"BELOW_THRESHOLD"})
    assert str(best) in none["answer"]


@pytest.mark.parametrize(("provider", "path"), [("openai", "/v1/chat/completions"), ("ollama", "/api/chat")])
def test_model_that_a_person_configured_gets_numbered_passages(tools, project, chat: Chat, provider, path):
    base = f"{chat.url}/v1" if provider == "openai" else chat.url
    for name, value in {"provider": provider, "base-url": base, "model": "river-1"}.items():
        project.git("config", f"vmrag.llm.{name}", value)
    answer = tools("rag_query", query=QUESTION)
    assert (answer["answer"], answer["synthesis"], answer["model"]) == ("The battery froze [2].", "llm", "river-1")
    assert "warnings" not in answer
    [(model_url, key, body)] = chat.requests
    assert (model_url, key, body["model"]) == (path, KEY if provider == "openai" else None, "river-1")
    assert (body.get("temperature", 1) == 0) or body["options"] == {"temperature": 0}
    system, question = (message["content"] for message in body["messages"])
    assert "[1]" in system
    for number, file in enumerate((*answer["sources"], *answer["linked_docs"]), start=1):
        assert f"[{number}] {file['title']} ({file['path']})\n> " in question
    passages = question.partition("\n\n")[2].rpartition("\n\nQuestion: ")[0]
    assert all(line.startswith(("> ", "[")) or line in (">", "") for line in passages.split("\n"))
    assert question.endswith(f"Question: {QUESTION}")
    assert tools("rag_query_external", query="how is the pump switched on")["synthesis"] == "llm"


def test_failing_model_gives_quoted_answer_and_warning_without_key(tools, project, chat, monkeypatch):
    quoted = tools("rag_query", query=QUESTION)["answer"].split("\n\n", 1)[1]
    for name, value in {"provider": "openai", "base-url": f"{chat.url}/v1", "model": "river-1"}.items():
        project.git("config", f"vmrag.llm.{name}", value)
    project.git("config", "vmrag.llm.api-key-env", "RIVER_KEY")

    def failure() -> str:
        answer = tools("rag_query", query=QUESTION)
        assert (answer["synthesis"], answer["model"]) == ("extractive", None)
        assert answer["answer"].split("\n\n", 1)[1] == quoted
        assert "did not answer" in answer["answer"]
        [warning] = answer["warnings"]
        assert warning["code"] == "LLM_ERROR"
        assert "sk-" not in json.dumps(answer)
        return warning["message"]

    monkeypatch.setenv("RIVER_KEY", "sk-wrong")
    assert "refuses the key in RIVER_KEY" in failure()
    monkeypatch.setenv("RIVER_KEY", KEY)
    for status, said, expected in (
        (200, "no JSON", "something else than a message"),
        (200, {"choices": []}, "something else than a message"),
        (200, {"choices": [{"message": {"content": " "}}]}, "answered with nothing"),
        (404, {"error": {"message": f"no model for {KEY}"}}, "404 Not Found: no model for …"),
    ):
        chat.script = [(status, said)]
        assert expected in failure()
    chat.script = [(500, {"error": "later"})] * 3
    assert "500" in failure()
    assert "is not contacted for" in failure(), "a silent address is left alone for a moment"
    project.git("config", "vmrag.llm.base-url", "http://127.0.0.1:9/v1")
    assert "cannot be reached" in failure()


def test_untrusted_settings_send_nothing(tools, project, chat, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("AWS_SECRET", "sk-another")
    stated = f"llm:\n  provider: openai\n  model: m\n  base_url: {chat.url}/v1\n  api_key_env: AWS_SECRET\n"
    before = (project.top / ".vmrag.yaml").read_text()
    project.write(".vmrag.yaml", before + stated)
    assert tools("rag_query", query=QUESTION)["synthesis"] == "extractive"
    assert chat.requests == []
    project.vmrag("trust", "--yes")
    assert tools("rag_query", query=QUESTION)["synthesis"] == "llm"
    assert [key for _, key, _ in chat.requests] == [None], "an agreed address gets texts, and no key"
    monkeypatch.setenv("VMRAG_NO_SERVICES", "1")
    assert tools("rag_query", query=QUESTION)["synthesis"] == "extractive"


def test_level_is_written_into_the_file_and_the_row_or_nowhere(tools, project):
    path = project.top / DOCS / "problems" / "flood.md"
    path.chmod(0o640)
    before = path.read_bytes()
    crlf = before.replace(b"\n", b"\r\n")
    path.write_bytes(crlf)
    answer = tools("update_promotion_level", document_path=f"./{DOCS}/problems/flood.md", promotion_level="critical")
    assert (answer["document_path"], answer["previous_level"], answer["new_level"]) == (
        "problems/flood.md",
        "standard",
        "critical",
    )
    assert path.read_bytes() == crlf.replace(b"winter]\r\n", b"winter]\r\npromotion_level: critical\r\n")
    assert path.stat().st_mode & 0o777 == 0o640
    assert paths(tools("semantic_search", query="battery", promotion_levels=["critical"])) == [
        "tools/gauge.md",
        "problems/flood.md",
    ]
    marks = project.marks()
    again = tools("update_promotion_level", document_path=str(path), promotion_level="critical")
    assert (again["previous_level"], project.marks()) == ("critical", marks)
    tools("update_promotion_level", document_path="problems/flood.md", promotion_level="standard")
    assert path.read_bytes() == crlf.replace(b"winter]\r\n", b"winter]\r\npromotion_level: standard\r\n")

    project.git("switch", "-q", "--detach", env=ON)
    held = path.read_bytes()
    tools.error("GIT_BUSY", "update_promotion_level", document_path="problems/flood.md", promotion_level="important")
    assert path.read_bytes() == held
    assert [file.name for file in path.parent.iterdir()] == ["flood.md"], "no temporary file stays"


def test_search_uses_existing_rows_if_rows_cannot_be_written(tools, project):
    project.write(f"{DOCS}/problems/ice.md", "# Ice\n\nIce closed the lock for a week.\n")
    project.git("switch", "-q", "--detach", env=ON)
    answer = tools("semantic_search", query="gauge battery")
    assert warned(answer) == {"FILES_PENDING"}
    assert "problems/ice.md" not in paths(tools("semantic_search", query="ice", min_relevance_score=0))
    assert "FILES_PENDING" in warned(
        tools("activate_project", config_path=str(project.top / compounding.CONFIG), branch_name="main")
    )
    project.git("switch", "-q", "main", env=ON)

    reading = activated(project, read_only=True)
    marks = project.marks()
    assert warned(reading("rag_query", query=QUESTION)) == {"FILES_PENDING", "LLM_NOT_CONFIGURED"}
    assert reading("search_external_docs", query="the green button")["total_matches"] == 1
    assert project.marks() == marks
    assert "index_document" not in reading.enabled.selection.tools
    assert "problems/ice.md" in paths(tools("semantic_search", query="ice", min_relevance_score=0))


def test_external_documentation_is_indexed_and_never_stored(tools, project):
    result = tools("search_external_docs", query="switch on the pump", min_relevance_score=0)
    assert [result["path"] for result in result["results"]] == ["./manual/setup.md"], "drafts are left out"
    assert result["external_docs_path"] == "./manual"
    project.write("manual/deep/oil.md", "---\nsummary: Which oil\n---\n# Oil\n\nThe pump wants oil of the thin kind.\n")
    oil = tools("search_external_docs", query="thin oil of the pump")
    assert (oil["results"][0]["path"], oil["results"][0]["summary"]) == ("./manual/deep/oil.md", "Which oil")
    answer = tools("rag_query_external", query="which oil does the pump want", max_sources=1)
    assert "The pump wants oil of the thin kind. [1]" in answer["answer"]
    (project.top / "manual" / "setup.md").unlink()
    remaining = tools("search_external_docs", query="pump", min_relevance_score=0)
    assert [result["path"] for result in remaining["results"]] == ["./manual/deep/oil.md"]
    external = project.own / "external"
    [_], [segment] = ([*external.glob(f"*/{kind}/*-*/seal.json")] for kind in ("views", "segments"))  # the former go
    segment.with_name("words-1.idx").write_bytes(b"\1" * 5000)
    assert tools("search_external_docs", query="pump", min_relevance_score=0)["results"] == remaining["results"]
    [vectors] = external.glob("*/segments/*-*/vectors-1.i8")
    vectors.write_bytes(bytes(-byte & 255 for byte in vectors.read_bytes()))  # what was near is far
    assert tools("search_external_docs", query="pump", min_relevance_score=0)["results"] == remaining["results"]
    assert not tools("list_doc_types")["kb"]["dirty"]
    assert not any("oil" in text for text in rows(project).values())


def test_deleting_a_project_reaches_every_local_branch_and_no_file(tools, project):
    project.git("switch", "-q", "-c", "shelf", env=ON)
    project.record("shelf", faq="a question")
    project.git("switch", "-q", "main", env=ON)
    project.git("branch", "-q", "-D", "shelf")  # its branch of the knowledge base stays
    project.git("switch", "-q", "-c", "topic", env=ON)
    project.write(f"{DOCS}/problems/mud.md", "# Mud\n\nMud filled the harbour.\n")
    tools("semantic_search", query="mud")
    tools("dolt_commit", message="mud")
    project.git("add", "-A")
    project.git("commit", "-q", "-m", "mud", env=ON)
    project.git("switch", "-q", "main", env=ON)

    preview = tools("delete_documents", project_name="rivers", dry_run=True)
    by_branch = {branch["branch"]: branch["documents"] for branch in preview["per_branch"]}
    assert by_branch == {"main": 5, "shelf": 5, "topic": 6}
    assert (preview["would_delete_count"], preview["deleted_count"], preview["status"]) == (16, 16, "preview")
    project.git("switch", "-q", "topic", env=ON)
    project.put("x.md", "mine", collection="notes")
    project.git("switch", "-q", "main", env=ON)
    tools.error("UNCOMMITTED_CHANGES", "delete_documents", project_name="rivers")
    assert len(rows(project)) == 5, "nothing was deleted"
    project.git("switch", "-q", "topic", env=ON)
    project.vmrag("commit", "-m", "mine")
    project.git("commit", "-q", "-a", "-m", "mine", env=ON)
    project.git("switch", "-q", "main", env=ON)

    answer = tools("delete_documents", project_name="rivers")
    assert [(branch["branch"], bool(branch["commit"])) for branch in answer["per_branch"]] == [
        ("main", False),
        ("shelf", True),
        ("topic", False),
    ]
    assert (rows(project), rows(project, "shelf")) == ({}, {})
    assert (project.top / DOCS / "problems" / "flood.md").exists()
    project.git("stash", "-q", "-u", env=ON)
    project.git("switch", "-q", "topic", env=ON)
    assert rows(project) == {}, "the deletion stays with its branch"
    again = tools("list_doc_types")
    assert sum(doc_type["doc_count"] for doc_type in again["doc_types"]) == 6, "the files bring them back"
    assert tools("delete_documents", project_name="rivers", path_hash="0" * 16)["deleted_count"] == 0


def hostile(project: Project, **changes: Any) -> dict[str, Any]:
    path = compounding.write(project.top, **changes)
    tools = Tools(project.top)
    result, failed = tools.run("activate_project", {"config_path": str(path), "branch_name": "main"})
    assert failed, result
    return result


def test_untrusted_project_stays_in_its_folder(tools, project, tmp_path):
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "key.md").write_text("# Key\n\nThe secret key is opensesame.\n")
    docs = project.top / DOCS
    (docs / "problems" / "key.md").symlink_to(secret / "key.md")
    (docs / "styles").symlink_to(secret)
    os.mkfifo(docs / "insights" / "pipe.md")
    (docs / "insights" / "bomb.md").write_text("---\na: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n---\nText\n")
    (docs / "insights" / "bytes.md").write_bytes(b"\xff\xfe\0")
    (docs / "insights" / "reserved.md").write_text("---\nsource_id: x\n---\nText\n")
    answer = tools("activate_project", config_path=str(project.top / compounding.CONFIG), branch_name="main")
    reasons = {skipped_file["path"]: skipped_file["reason"] for skipped_file in answer["skipped"]}
    assert {
        "problems/key.md",
        "insights/pipe.md",
        "insights/bomb.md",
        "insights/bytes.md",
        "insights/reserved.md",
    } <= reasons.keys()
    assert not any("opensesame" in text for text in rows(project).values())
    tools.error("FILE_SYSTEM_ERROR", "index_document", path="problems/key.md")
    tools.error("FILE_SYSTEM_ERROR", "index_document", path="styles/key.md")
    tools.error(
        "FILE_SYSTEM_ERROR", "update_promotion_level", document_path="styles/key.md", promotion_level="critical"
    )
    for path in ("../../secret/key.md", str(secret / "key.md"), "x\0.md", "../README", ".."):
        tools.error("INVALID_PARAMETER", "index_document", path=path)
    assert (secret / "key.md").read_text().startswith("# Key")

    (project.top / "out").symlink_to(secret)
    for changes in (
        {"docs_path": "../other"},
        {"docs_path": "/etc"},
        {"docs_path": "out"},
        {"docs_path": ".GIT"},
        {"docs_path": ".Git/vmrag"},
        {"docs_path": ".git "},
        {"docs_path": ".git."},
        {"docs_path": "GIT~1"},
        {"docs_path": ".git::$INDEX_ALLOCATION"},
        {"docs_path": ".g\u200cit"},
        {"docs_path": "\uff0egit"},
        {"external_docs": {"path": "git~1"}},
        {"external_docs": {"path": "out"}},
        {"external_docs": {"path": ".git"}},
        {"external_docs": {"path": "manual", "include_patterns": ["../**/*.md"]}},
        {"external_docs": {"path": "manual", "exclude_patterns": ["/etc/*"]}},
        {"custom_doc_types": [{"name": "a", "folder": "a", "schema_file": "../../../../etc/passwd"}]},
        {"custom_doc_types": [{"name": "problem", "folder": "a"}]},
        {"project_name": "../x"},
    ):
        assert hostile(project, **changes)["error"] == "INVALID_PARAMETER", changes
    for path in (secret / "config.json", project.top / "config.json", project.top / ".git" / "config"):
        call = {"config_path": str(path), "branch_name": "main"}
        assert Tools(project.top).run("activate_project", call)[0]["error"] in ("ACCESS_DENIED", "FILE_SYSTEM_ERROR")


def test_ignored_files_are_not_documents_of_a_project(tools, project):
    """Stored documents are pushed with the knowledge base, so one line of an untrusted
    configuration would publish the file.
    """
    project.write("private/problems/key.md", "# Key\n\nThe key is opensesame.\n")
    project.write("private/deep/more.md", "# More\n\nThe other key is opensesame.\n")
    project.write(f"{DOCS}/styles/own.md", "# Own\n\nMy own style is opensesame.\n")
    project.write("manual/own.md", "# Own\n\nThe manual says opensesame.\n")
    project.write("private/clone/docs/key.md", "# Key\n\nThe key of another clone is opensesame.\n")
    project.git("init", "-q", "private/clone")
    project.write(".gitignore", "private/\nown.md\n")
    for folder in ("private", "private/deep", "private/clone", "private/clone/docs"):
        said = hostile(project, docs_path=folder)
        assert said["error"] == "ACCESS_DENIED"
        assert f"{project.top / folder} was not imported: git ignores it" in said["message"]
    compounding.write(project.top, external_docs={"path": "private"})
    activated(project).error("ACCESS_DENIED", "search_external_docs", query="key")
    compounding.write(project.top)
    tools = activated(project)
    assert tools("list_doc_types")["kb"]["dirty"] is False
    assert "styles/own.md" not in rows(project)
    tools.error("ACCESS_DENIED", "index_document", path="styles/own.md")
    answer = tools("search_external_docs", query="opensesame", min_relevance_score=0)
    assert "./manual/own.md" not in [result["path"] for result in answer["results"]]
    assert "opensesame" not in project.vmrag("grep", "opensesame", code=1).out
    project.git("add", "--force", "private/problems/key.md", f"{DOCS}/styles/own.md")
    assert "styles/own.md" in paths(activated(project)("semantic_search", query="own style", min_relevance_score=0.0))
    compounding.write(project.top, project_name="keys", docs_path="private")
    activated(project)
    with opened(project) as ws:
        answer = [
            header.doc_id for header in ws.engine.read_headers(ws.locate_documents(), collection="compounding_keys")
        ]
    assert answer == ["problems/key.md"], "what git tracks is taken, whatever is ignored beside it"


def test_existing_collection_of_that_name_is_not_reused(tools, project):
    tools.error("INVALID_PARAMETER", "chroma_add_documents", collection_name="compounding_rivers", documents=["x"])
    tools("chroma_create_collection", collection_name="compounding_lakes")
    assert hostile(project, project_name="lakes")["error"] == "COLLECTION_EXISTS"


def test_configuration_is_read_again_when_a_checkout_has_changed_it(tools, project):
    compounding.write(
        project.top, semantic_search={"default_limit": 1, "min_relevance_score": 0}, docs_path="river-docs"
    )
    assert len(tools("semantic_search", query="battery")["results"]) == 1
    (project.top / compounding.CONFIG).unlink()
    tools.error("FILE_SYSTEM_ERROR", "semantic_search", query="battery")


def test_recently_scanned_folder_is_not_scanned_again(tools, project, monkeypatch):
    monkeypatch.setattr(mirror, "DEBOUNCE_SECONDS", 60)
    query = {"query": "ice", "min_relevance_score": 0}
    tools("semantic_search", **query)
    project.write(f"{DOCS}/problems/ice.md", "# Ice\n\nIce closed the lock for a week.\n")
    assert "problems/ice.md" not in paths(tools("semantic_search", **query))
    answer = tools("index_document", path="problems/ice.md")
    assert (answer["changed"], answer["chunk_count"], answer["embedding_dimensions"]) == (True, 1, 256)
    assert "problems/ice.md" in paths(tools("semantic_search", **query)), "what was indexed by name stays"


def test_long_document_is_found_by_its_section(tools, project):
    lines = "".join(f"Line {number} speaks of nothing.\n\n" for number in range(260))
    text = f"# Long\n\n{lines}## Locks\n\n### Gates\n\nThe gates of the locks are made of oak.\n"
    path: Path = project.top / DOCS / "codebase" / "long.md"
    path.write_text(text)
    [best] = tools("semantic_search", query="gates of the locks made of oak", limit=1)["results"]
    assert (best["path"], best["char_count"]) == (f"./{DOCS}/codebase/long.md", len(text))
    assert best["best_chunk"]["header_path"] == "Long > Locks > Gates"
    assert "oak" in best["best_chunk"]["excerpt"]


def test_user_queries_the_project_or_the_collections(tools, project):
    config = f"./{compounding.CONFIG}"
    project.write(f"{DOCS}/problems/ice.md", "# Ice\n\nIce closed the lock for a week.\n")
    report = project.ask("ask", "what closed the lock", "--project", config, "--sources", "1")
    assert [source["path"] for source in report["sources"]] == [f"./{DOCS}/tools/gauge.md", f"./{DOCS}/problems/ice.md"]
    assert "Ice closed the lock for a week. [2]" in report["answer"]
    other = project.vmrag("ask", "how is the pump switched on", "--project", config, "--external").out
    assert "The pump is switched on by the green button. [1]" in other
    assert "[1] Setup — ./manual/setup.md" in other
    project.put("long.md", "Mountains are higher than rivers are long.", collection="notes")
    both = project.ask("ask", "mountains and rivers", "--collection", "notes", "--sources", "2")
    assert [source["path"].partition("/")[0] for source in both["sources"]] == ["notes", "notes"]
    assert "Mountains are higher than rivers are long." in both["answer"]
    assert {source["path"].partition("/")[0] for source in project.ask("ask", "gauge battery")["sources"]} == {
        "compounding_rivers"
    }
    project.vmrag("ask", "x", "--external", code=2)
    project.vmrag("ask", "x", "--collection", "absent", code=3)
