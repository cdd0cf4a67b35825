"""Notes on every surface, in a repository with a knowledge base and in one without."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import types
from mcp.client import Client
from mcp.shared.subscriptions import ResourceUpdated

from tests.support.chroma import needs_chroma
from tests.support.mcp import ALL, Tools, connected
from tests.support.repos import isolate
from tests.support.sources import change, commit
from tests.support.templates import build_once, copy_tree
from tests.support.terminal import Project, new_project
from vmrag_link import hints
from vmrag_mcp.call import Behaviour
from vmrag_mcp.options import ToolChoice, select_tools
from vmrag_mcp.server import KnowledgeServer
from vmrag_mcp.session import Session

pytestmark = [pytest.mark.hooks("off"), pytest.mark.sample(1)]

SETTINGS = """\
embedding:
  model: hash
sources:
  - collection: docs
    paths: ["**/*.md"]
  - collection: code
    kind: code
    paths: [src/]
  - collection: notes
    paths: [".vmrag/notes/"]
    write: true
"""
FOLDER = ".vmrag/notes"
LOGIN = "---\nprio: 3\nteam: core\ntitle: The login\n---\nThe login returns one, see src/auth.py:1-2.\n"
PROXY = "---\nid: 'proxy: mail'\nteam: web\n---\nThe proxy retries three times.\n"
CODE = "def login():\n    return 1\n\n\ndef leave():\n    return 2\n"
CHROMA_CLIENT = """
import json, sys
import chromadb
settings = chromadb.Settings(anonymized_telemetry=False)
rows = chromadb.PersistentClient(sys.argv[1], settings=settings).get_collection("notes", embedding_function=None).get()
print(json.dumps(dict(zip(rows["ids"], rows["metadatas"]))))
"""
SOON = 20


def set_up(top: Path, *, stored: bool) -> Project:
    """Return a project with two notes; if `stored`, its last commit pins a knowledge base."""
    project = new_project(top, settings=SETTINGS)
    commit(project, "begin", **{"docs/setup.md": "# Setup\n\nRun make.\n", "src/auth.py": CODE})
    project.vmrag("trust", "--yes")
    commit(project, "decide on the login", **note_file("decisions/login", LOGIN))
    if stored:
        project.vmrag("init", "--knowledge-base", "--no-sources", "--no-hooks")
        project.put("timeouts.md", "Requests time out after 30 seconds.\n", collection="handbook")
        project.vmrag("commit", "-m", "timeouts")
    commit(project, "find out about the proxy", **note_file("proxy", PROXY))
    return project


def copy_project(factory: pytest.TempPathFactory, top: Path, *, stored: bool) -> Project:
    """Return a copy of the project that `set_up` returns."""
    name = f"notes-{'stored' if stored else 'plain'}"
    built = build_once(factory, name, lambda folder: set_up(folder / "project", stored=stored), by=set_up)
    project = Project(copy_tree(built / "project", top))
    project.vmrag("trust", "--yes")  # it names the folder
    return project


def note_file(name: str, text: str | None) -> dict[str, str | None]:
    return {f"{FOLDER}/{name}.md": text}


@pytest.fixture(params=[False, True], ids=["files alone", "knowledge base"])
def project(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Project:
    isolate(monkeypatch, tmp_path / "home")
    return copy_project(tmp_path_factory, tmp_path / "repo", stored=request.param)


@pytest.fixture
def plain(tmp_path_factory: pytest.TempPathFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """Return a project without a knowledge base."""
    isolate(monkeypatch, tmp_path / "home")
    return copy_project(tmp_path_factory, tmp_path / "repo", stored=False)


def hits(answer: dict[str, Any]) -> list[str]:
    return [f"{hit['collection']}/{hit['doc_id']}" for hit in answer["results"]]


# -- the command line


def test_query_filters_notes_by_metadata(project):
    assert hits(project.ask("query", "login", "--where", '{"team": "core"}')) == ["notes/decisions/login"]
    assert hits(project.ask("query", "login", "--where", '{"prio": {"$gt": 2}}')) == ["notes/decisions/login"]
    assert hits(project.ask("query", "login", "--where", '{"team": "web"}')) == ["notes/proxy: mail"]


def test_log_blame_and_diff_follow_a_note(project):
    change(project, f"{FOLDER}/decisions/login.md", "one", "two")
    commit(project, "correct the login")
    for name in ("notes/decisions/login", "decisions/login", f"{FOLDER}/decisions/login.md"):
        logged = project.ask("log", name)["commits"]
        assert [(step["message"], step["kind"]) for step in logged] == [
            ("correct the login", "modified"),
            ("decide on the login", "added"),
        ]
        assert [step["message"] for step in project.ask("log", "HEAD~1..", name)["commits"]] == ["correct the login"]
        assert project.ask("blame", name)["lines"][-1]["name"] == "notes/decisions/login"
    (document,) = project.ask("diff", "HEAD~1")["documents"]
    assert (document["collection"], document["doc_id"]) == ("notes", "decisions/login")
    assert "A  notes/proxy: mail\n" in project.vmrag("diff", "HEAD~2", "HEAD~1").out


def test_log_of_a_note_includes_its_earlier_file_name(project):
    (step,) = project.ask("log", "notes/proxy: mail")["commits"]
    assert (step["name"], step["path"]) == ("notes/proxy: mail", f"{FOLDER}/proxy.md")
    project.vmrag("rm", "notes/proxy: mail")
    commit(project, "forget the proxy")
    assert [step["kind"] for step in project.ask("log", f"{FOLDER}/proxy.md")["commits"]] == ["removed", "added"]


def test_query_at_and_since_know_earlier_notes(project):
    at = project.ask("query", "proxy retries", "--at", "HEAD~1", "--collection", "notes")
    assert hits(at) == ["notes/decisions/login"]
    shown = project.vmrag("query", "proxy retries", "--since", "HEAD~1").out
    assert "notes/proxy: mail was added:" in shown
    assert "find out about the proxy" in shown
    assert project.vmrag("show", "HEAD~1:notes/decisions/login").out.startswith("The login returns one")


def test_query_is_narrowed_to_paths_and_languages_of_notes(project):
    login = "notes/decisions/login"
    for narrowed in ("path:.vmrag/notes", "path:decisions/", f"path:{FOLDER}/decisions/login.md", "path:*/login.md"):
        assert login in hits(project.ask("query", f"{narrowed} login returns")), narrowed
    assert login in hits(project.ask("query", "lang:markdown login returns"))
    assert hits(project.ask("query", "path:docs/ login returns")) == ["docs/docs/setup.md"]


@pytest.mark.sample(1)
def test_check_and_pytest_plugin_expect_notes(project):
    queries = "queries:\n  - query: what does the login return\n    expect: [notes/decisions/login]\n"
    commit(project, "queries", **{".vmrag/queries.yaml": queries})
    assert project.vmrag("check").out.startswith("1 query answered as expected")
    assert project.vmrag("check", "--at", "HEAD").out.startswith("1 query answered as expected")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", ".vmrag/queries.yaml"]
    passed = subprocess.run(command, cwd=project.top, capture_output=True, text=True, check=False)
    assert "1 passed" in passed.stdout, passed.stdout
    project.vmrag("rm", "notes/decisions/login")
    assert "notes/decisions/login" in project.vmrag("check", code=1).out


def test_report_lists_changed_notes_and_notes_that_cite_changes(project, tmp_path):
    change(project, f"{FOLDER}/proxy.md", "three", "four")
    (project.top / FOLDER / "new.md").write_text("A new finding.\n")
    change(project, "src/auth.py", "return 1", "return 11")
    commit(project, "change all")
    page, summary = tmp_path / "r.html", tmp_path / "r.md"
    project.vmrag("report", "HEAD~1", "--html", str(page), "--markdown", str(summary))
    report = project.ask("report", "HEAD~1")
    documents = {
        (document["kind"], f"{document['collection']}/{document['doc_id']}", document["file"])
        for document in report["documents"]
    }
    assert documents == {
        ("added", "notes/new", f"{FOLDER}/new.md"),
        ("changed", "notes/proxy: mail", f"{FOLDER}/proxy.md"),
    }
    for text in (page.read_text(), summary.read_text()):
        assert "notes/decisions/login" in text
        assert "src/auth.py:1-2" in text
    project.vmrag("rm", "notes/new", "notes/decisions/login")
    commit(project, "delete")
    removed = {(document["kind"], document["doc_id"]) for document in project.ask("report", "HEAD~1")["documents"]}
    assert removed == {("removed", "new"), ("removed", "decisions/login")}


def test_fingerprint_changes_with_a_note(project):
    before = project.vmrag("fingerprint").out
    change(project, f"{FOLDER}/proxy.md", "web", "core")
    assert project.vmrag("fingerprint").out == before  # it is that of the commit
    commit(project, "another team")
    assert project.vmrag("fingerprint").out != before
    project.vmrag("fingerprint", "--verify")


def test_list_grep_and_export_name_notes(project, tmp_path):
    rows = project.ask("list", "--collection", "notes")["documents"]
    assert [(row["doc_id"], row["title"]) for row in rows] == [
        ("decisions/login", "The login"),
        ("proxy: mail", "The proxy retries three times."),
    ]
    assert project.vmrag("grep", "three times").out == "notes/proxy: mail:5:The proxy retries three times.\n"
    assert project.ask("list", "--outdated")["notes"] == []
    change(project, "src/auth.py", "return 1", "return 11")
    commit(project, "change the login")
    outdated = project.vmrag("list", "--outdated").out
    assert outdated == "notes/decisions/login: cites src/auth.py:1-2, changed since in 1 commit\n"
    error = project.vmrag("export", str(tmp_path / "out"), "--collection", "notes", "--json", code=2).error
    assert error["code"] == "INVALID_PARAMETER"


def test_commands_take_the_path_of_a_note(project):
    path = f"{FOLDER}/proxy.md"
    assert "Changed notes/proxy: mail in" in project.vmrag("add", "-m", "More.", "--id", path, "--append").out
    assert (project.top / path).read_text() == f"{PROXY}More.\n"
    project.vmrag("edit", path, env={"GIT_EDITOR": "sed -i s/More/Less/"})
    assert (project.top / path).read_text() == f"{PROXY}Less.\n"
    assert project.vmrag("restore", "--undo", path).out.startswith("notes/proxy: mail: restored")
    assert (project.top / path).read_text() == f"{PROXY}More.\n"
    project.vmrag("restore", path)
    assert project.git("status", "--porcelain") == ""
    assert "notes/proxy: mail" in project.vmrag("rm", path).out
    assert not (project.top / path).exists()
    project.vmrag("restore", path)
    assert (project.top / path).read_text() == PROXY
    assert "Added notes/new in" in project.vmrag("add", "-m", "New.", "--id", f"{FOLDER}/new.md").out


def test_log_of_files_alone_names_the_command_for_a_note(plain):
    for arguments in ((), ("HEAD~1..",)):
        error = plain.vmrag("log", *arguments, "--json", code=2).error
        assert error["code"] == "NOT_INITIALIZED"
        [command] = hints.list_commands(error["hint"])
        assert shlex.split(command) == ["vmrag", "log", *arguments, "DOC"]


def test_commit_of_files_alone_suggests_git_commit(plain):
    error = plain.vmrag("commit", "-m", "notes", "--json", code=2).error
    assert (error["code"], hints.list_commands(error["hint"])) == ("NOT_INITIALIZED", ["git commit"])


@pytest.mark.sample(1)
@needs_chroma
def test_chroma_client_finds_notes(project, monkeypatch):
    monkeypatch.setenv("VMRAG_INDEX_CHROMA", "wait")
    project.vmrag("sync")
    report = project.ask("path", "chroma")
    command = [sys.executable, "-W", "ignore", "-c", CHROMA_CLIENT, report["chroma"]]
    rows = json.loads(subprocess.run(command, cwd="/", capture_output=True, text=True, check=True).stdout)
    login, proxy = rows["decisions/login_chunk_0"], rows["proxy: mail_chunk_0"]
    assert len(rows) == 2
    assert (login["source_id"], login["title"], login["team"], login["prio"]) == (
        "decisions/login",
        "The login",
        "core",
        3,
    )
    assert (proxy["source_id"], proxy["team"], "id" in proxy) == ("proxy: mail", "web", False)


# -- agents


@pytest.fixture
def tools(project: Project) -> Tools:
    return Tools(project.top, chosen=ToolChoice(toolsets="essential"))


def test_agents_search_read_and_grep_notes(project, tools):
    answer = tools("search_documents", query="what does the login return", collection="notes")
    assert answer.places[0] == "notes/decisions/login:6"
    for name in ("notes/decisions/login", "decisions/login", f"{FOLDER}/decisions/login.md", "notes/decisions/login:6"):
        (shown,) = tools("read", name=name).shown
        assert (shown.place, shown.text) == (f"{FOLDER}/decisions/login.md:6", LOGIN.splitlines()[-1])
    assert tools("grep", pattern="three times").body == ["notes/proxy: mail:5:The proxy retries three times."]
    assert tools("read", name="notes/proxy: mail:5").text == "The proxy retries three times."
    for path in (".vmrag/notes", "proxy: mail", f"{FOLDER}/", "**/*.md"):
        assert len(tools("grep", pattern="three times", path=path).body) == 1, path
        assert tools("search_documents", query="three times", path=path).shown, path
    assert len(tools("grep", pattern="three times", path=f"{FOLDER}/proxy.md").body) == 1
    assert tools("grep", pattern="three times", path="docs/").body == []
    assert tools("grep", pattern="three times", ref="HEAD~1", path=".vmrag/").body == []


def test_agents_read_the_history_of_notes(project, tools):
    for name in ("notes/decisions/login", "decisions/login", f"{FOLDER}/decisions/login.md"):
        (step,) = tools("history", name=name).body
        assert step.endswith(": decide on the login (added)")
    subjects = [line.rpartition(": ")[2] for line in tools("history", name="notes").body]
    assert subjects == ["find out about the proxy", "decide on the login"]
    added, _, step = tools("history", name="notes", since="HEAD~1").body
    assert (added, step.rpartition(": ")[2]) == (f"added {FOLDER}/proxy.md", "find out about the proxy")
    (step,) = tools("history", name="docs").body
    assert step.endswith(": begin")
    project.write(f"{FOLDER}/untracked.md", "Not yet tracked.\n")
    untracked = f"added {FOLDER}/untracked.md (uncommitted)"
    assert all(tools("history", name=name, since="HEAD").body == [untracked] for name in ("", "notes"))


def test_agents_read_the_history_of_files_alone(plain):
    tools = Tools(plain.top, chosen=ToolChoice(toolsets="essential"))
    subjects = [line.rpartition(": ")[2] for line in tools("history").body]
    assert subjects == ["find out about the proxy", "decide on the login", "begin"]
    assert len(tools("history", limit=1).body) == 1
    assert "2 commits. 2 changes since HEAD~2." in tools("history", since="HEAD~2").message
    tools.error("GIT_COMMIT_NOT_FOUND", "history", since="nothing")


def test_status_lists_notes_that_are_not_committed(project, tools):
    project.write(f"{FOLDER}/untracked.md", "Not yet tracked.\n")
    tools("remember", text="Staged finding.")
    change(project, f"{FOLDER}/proxy.md", "three", "four")
    lines = [line for line in tools("status").body if line.startswith("uncommitted")]
    assert lines == [
        f"uncommitted: modified notes/proxy: mail ({FOLDER}/proxy.md)",
        f"uncommitted: added notes/staged-finding ({FOLDER}/staged-finding.md)",
        f"uncommitted: added notes/untracked ({FOLDER}/untracked.md)",
    ]
    assert tools("status").message == f"next: git add {FOLDER}/proxy.md {FOLDER}/untracked.md, then git commit"


def test_agents_filter_notes_by_metadata(project):
    tools = Tools(project.top)
    answer = tools("chroma_query_documents", query_texts=["login"], collection_name="notes", where={"team": "core"})
    assert [match["id"] for match in answer["results"][0]["matches"]] == ["decisions/login"]
    got = tools("chroma_get_documents", collection_name="notes", where={"prio": {"$gte": 3}})
    assert [document["id"] for document in got["documents"]] == ["decisions/login"]
    document = tools("get_document", doc_id="decisions/login")
    assert (document["library"], Path(document["source"]).name) == ("notes", "login.md")
    for missing in ("notes/decisions/login", "none"):
        tools.error("DOCUMENT_NOT_FOUND", "get_document", doc_id=missing)


def test_remember_names_the_note(project, tools):
    for name, expected in (
        ("", "notes/we-use-uv-it-is-fast"),
        ("decisions/uv", "notes/decisions/uv"),
        ("notes/direct", "notes/direct"),
        ("alone", "notes/alone"),
    ):
        answer = tools("remember", text="We use uv: it is fast.", **({"name": name} if name else {}))
        assert answer.startswith(f"added {expected} (")
    refused = tools.error("DOCUMENT_EXISTS", "remember", text="Other.", name="decisions/uv")
    assert "\n    We use uv: it is fast." in refused["message"]
    path = f"{FOLDER}/decisions/uv.md"
    for name in (path, "decisions/uv", "notes/decisions/uv"):
        extended = tools("remember", text=f"More by {name}.", name=name, mode="append")
        assert extended.body[0] == f"extended notes/decisions/uv ({path})"
    assert tools("forget", name=path).body[0] == f"deleted notes/decisions/uv ({path})"
    assert not (project.top / path).exists()
    assert tools("remember", text="New.", name=f"{FOLDER}/new.md").body[0] == f"added notes/new ({FOLDER}/new.md)"
    tools.error("SOURCE_READ_ONLY", "remember", text="Text.", name="docs/setup.md")
    for name in ("docs/setup.md", "docs/docs/setup.md", "code/src/auth.py"):
        tools.error("SOURCE_READ_ONLY", "forget", name=name)


def test_remember_in_an_untrusted_clone_names_trust(plain, tmp_path):
    clone = Project(tmp_path / "clone")
    subprocess.run(["git", "clone", "-q", plain.top, clone.top], check=True)
    tools = Tools(clone.top, chosen=ToolChoice(toolsets="essential"))
    assert tools("search_documents", query="what does the login return").shown
    assert tools("read", name="notes/decisions/login").text
    for name, arguments in (("remember", {"text": "A finding."}), ("forget", {"name": "notes/decisions/login"})):
        refused = tools.error("SOURCE_READ_ONLY", name, **arguments)
        assert refused["suggestions"] == ["run 'vmrag trust' to trust the settings"]
    assert clone.git("status", "--porcelain") == ""


def remember_with_commit(project: Project, answer: bool | None) -> tuple[str, int]:
    """Return the answer of a call, and how many questions the user got. None: no questions."""
    questions: list[Any] = []

    async def person(_: Any, params: Any) -> types.ElicitResult:
        questions.append(params)
        return types.ElicitResult(action="accept" if answer else "decline", content={"confirm": bool(answer)})

    async def run() -> str:
        server = KnowledgeServer(Session(project.top, Behaviour()), select_tools(ALL))
        options = {} if answer is None else {"elicitation_callback": person}
        async with Client(server.sdk, **options) as client:
            arguments = {"text": "We use uv.", "name": "uv", "commit": True}
            [content] = (await client.call_tool("remember", arguments)).content
            return content.text

    return anyio.run(run), len(questions)


@pytest.mark.parametrize(
    ("setting", "answer", "is_asked", "committed"),
    [
        ("allow", None, 0, True),
        ("ask", True, 1, True),
        ("ask", False, 1, False),
        ("ask", None, 0, False),
        ("off", True, 0, False),
    ],
)
def test_remember_commits_if_the_user_allows_it(plain, setting, answer, is_asked, committed):
    plain.git("config", "vmrag.mcp.commit", setting)
    before = plain.git("rev-parse", "HEAD")
    result, questions = remember_with_commit(plain, answer)
    assert questions == is_asked
    assert result.startswith(f"added notes/uv ({FOLDER}/uv.md)\n")
    after = plain.git("rev-parse", "HEAD")
    assert after != before if committed else after == before
    if committed:
        assert result.endswith(f"\ncommitted as {after[:7]}.")
        assert plain.git("log", "-1", "--format=%s") == "Note notes/uv (remember)"
        assert plain.git("show", "--format=", "--name-only", "HEAD") == f"{FOLDER}/uv.md"
    else:
        assert result.endswith("\nnext: git commit")
        assert plain.git("diff", "--cached", "--name-only") == f"{FOLDER}/uv.md"


def test_resources_and_completions_name_notes(project):
    with connected(KnowledgeServer(Session(project.top, Behaviour()), select_tools(ToolChoice()))) as client:
        assert "vmrag://collections/notes" in {str(resource.uri) for resource in client.list_resources().resources}
        listed = client.read_resource("vmrag://collections/notes").contents[0].text
        uris = ("vmrag://documents/notes/decisions/login", "vmrag://documents/notes/proxy%3A%20mail")
        for uri, text in zip(uris, (LOGIN, PROXY), strict=True):
            assert uri in listed
            content = client.read_resource(uri).contents[0]
            assert (content.text, content.mime_type) == (
                text.partition("---\n")[2].partition("---\n")[2],
                "text/markdown",
            )
        template = types.ResourceTemplateReference(uri="vmrag://documents/{collection}/{+doc_id}")
        ids = client.complete(template, {"name": "doc_id", "value": "dec"}, {"collection": "notes"})
        assert ids.completion.values == ["decisions/login"]
        template = types.ResourceTemplateReference(uri="vmrag://collections/{collection}")
        assert client.complete(template, {"name": "collection", "value": "no"}).completion.values == ["notes"]


@pytest.mark.parametrize("change_note", ["edit", "add", "untracked", "rm"])
@pytest.mark.sample(2)
def test_subscriber_hears_of_a_changed_note(plain, change_note):
    uri = "vmrag://collections/notes"
    changes = {
        "edit": lambda: plain.write(f"{FOLDER}/decisions/login.md", "The login returns two.\n"),
        "add": lambda: plain.vmrag("add", "-m", "A new note."),
        "untracked": lambda: plain.write(f"{FOLDER}/new.md", "An untracked note.\n"),
        "rm": lambda: plain.vmrag("rm", "notes/decisions/login"),
    }

    async def run() -> None:
        server = KnowledgeServer(Session(plain.top, Behaviour()), select_tools(ALL))
        async with (
            Client(server.sdk) as client,
            client.listen(resource_subscriptions=[uri]) as events,
        ):
            await anyio.to_thread.run_sync(changes[change_note])
            with anyio.fail_after(SOON):
                async for event in events:
                    if isinstance(event, ResourceUpdated):
                        return

    anyio.run(run)
