"""The first search in a large repository: words and names answer until the index is built."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.mcp import Tools
from tests.support.repos import isolate
from tests.support.terminal import Project, new_project
from vmrag_link import proc
from vmrag_link.git import plumbing
from vmrag_link.locks import is_held
from vmrag_link.progress import BUILDING, INDEXING, QUIET
from vmrag_link.sync import background
from vmrag_link.toolsets.essential import index_build
from vmrag_link.workspace import Workspace, source_tree
from vmrag_mcp.options import ToolChoice

pytestmark = pytest.mark.hooks("off")

SECONDS = 120
SETTINGS = """\
embedding:
  model: hash
sources:
- collection: docs
  paths: [docs/]
- collection: code
  kind: code
  paths: [src/, web/]
"""
ANSWER = "The gateway drops a slow request after 30 seconds."
PAGE = f"# Setup\n\nInstall it.\n\n## Timeouts\n\n{ANSWER}\n\n## Colours\n\nBlue.\n"
CODE = '''class Session:
    """A login."""

    def refresh(self, token):
        raise ValueError("the session token has expired")


def unrelated():
    return 1
'''
FILES = {
    "docs/setup.md": PAGE,
    "docs/other.md": "# Other\n\nNothing about requests.\n",
    "src/session.py": CODE,
    "src/gateway.go": "package gateway\n\n// Drop ends a slow request.\nfunc Drop(seconds int) int {\n\treturn seconds\n}\n",
    "web/app.ts": "export function render(page: string) {\n  return page;\n}\n",
}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    isolate(monkeypatch, tmp_path / "home")
    monkeypatch.setattr(index_build, "MAX_OWN_WORK", {BUILDING: 1, INDEXING: 1})
    monkeypatch.setattr(index_build, "WAIT_SECONDS", 0.0)
    project = new_project(tmp_path / "project", settings=SETTINGS)
    for path, text in FILES.items():
        project.write(path, text)
    project.git("add", "-A")
    project.git("commit", "-q", "-m", "Begin")
    yield project
    assert background.wait_for_end(background.get_index_job(plumbing.locate_work_tree(project.top)), within=SECONDS)


def with_many_files(project: Project, count: int = 1_500) -> None:
    for number in range(count):
        project.write(f"docs/many/{number}.md", f"# Page {number}\n\n{'word ' * 200}\n")
    project.git("add", "-A")
    project.git("commit", "-q", "-m", "Many")


def tools_of(project: Project) -> Tools:
    return Tools(project.top, chosen=ToolChoice("essential"))


def search_text(tools: Tools, **arguments: object) -> str:
    text, failed = tools.run("search", arguments)
    assert not failed, text
    return text


def percent_indexed(project: Project) -> int:
    ws = Workspace.open(project.top, QUIET)
    tree = source_tree.read_work_tree(ws)
    assert tree
    return ws.source_index.percent_indexed(tree)


def test_search_answers_from_words_while_index_is_built(project):
    tools = tools_of(project)
    text = search_text(tools, query="when is a slow request dropped")
    assert text.startswith("Code:\n\nsrc/gateway.go:3-6 · Drop\n```\n// Drop ends a slow request.\n"), text
    assert "\n\nDocumentation:\n\ndocs/setup.md:5-7 · Setup > Timeouts\n```\n" in text
    assert "warning: the index is at 0 %: these results come from words and names only." in text
    assert background.wait_for_end(background.get_index_job(plumbing.locate_work_tree(project.top)), within=SECONDS)
    assert percent_indexed(project) == 100, "no further call was needed"
    text = search_text(tools, query="when is a slow request dropped")
    assert "the index is at" not in text
    assert ANSWER in text


def test_search_uses_index_that_is_ready_in_time(project, monkeypatch):
    monkeypatch.setattr(index_build, "WAIT_SECONDS", SECONDS)
    text = search_text(tools_of(project), query="when is a slow request dropped")
    assert ANSWER in text
    assert "the index is at" not in text


@pytest.mark.parametrize(
    ("narrowed", "place"),
    [
        ({"path": "src/"}, "src/gateway.go:3-6"),
        ({"lang": "go"}, "src/gateway.go:3-6"),
        ({"kind": "function"}, "src/gateway.go:3-6"),
        ({"kind": "document"}, "docs/setup.md:5-7"),
        ({"collection": "docs"}, "docs/setup.md:5-7"),
    ],
)
def test_search_without_index_respects_filters(project, narrowed, place):
    text = search_text(tools_of(project), query="slow request", **narrowed)
    assert "words and names only" in text
    heads = [line for line in text.splitlines() if " · " in line]
    assert heads[0].startswith(place)
    folder = place.partition("/")[0]
    assert all(head.startswith(f"{folder}/") for head in heads)


def test_search_without_index_finds_definitions_by_name(project):
    tools = tools_of(project)
    text = search_text(tools, symbol="Session.refresh")
    assert "src/session.py:4-5 · method Session.refresh · def refresh(self, token)" in text
    assert "words and names only" in text
    assert "web/app.ts:1-3 · function render" in search_text(tools, symbol="rend*")


def test_search_without_index_reads_edits_and_refs(project):
    project.git("tag", "v1")
    project.write("docs/setup.md", PAGE.replace("30 seconds", "5 fortnights"))
    tools = tools_of(project)
    text = search_text(tools, query="fortnights")
    assert "docs/setup.md:5-7 · Setup > Timeouts · modified, not committed" in text
    text = search_text(tools, query="slow request", ref="v1")
    assert "30 seconds" in text
    assert "the index at v1 is being built: these results come from words and names only." in text
    commit = project.git("rev-parse", "v1")
    assert background.wait_for_end(
        background.get_index_job(plumbing.locate_work_tree(project.top), commit), within=SECONDS
    )
    assert "words and names only" not in search_text(tools, query="slow request", ref="v1")


def test_search_without_index_of_files_uses_stored_documents(project, monkeypatch):
    monkeypatch.setattr(index_build, "MAX_OWN_WORK", {})
    project.vmrag("init", "--knowledge-base", "--no-sources")
    project.put("drop-policy", "We drop a slow request, because the vendor bills it.", collection="decisions")
    project.vmrag("query", "anything")
    monkeypatch.setattr(index_build, "MAX_OWN_WORK", {BUILDING: 1, INDEXING: 1})
    for number in range(3):
        project.write(f"docs/{number}.md", "# New\n\nA slow request again.\n")
    project.git("add", "-A")
    text = search_text(tools_of(project), query="slow request")
    assert "words and names only." in text
    assert "decisions/drop-policy" in text
    assert "docs/0.md" in text


def test_search_reports_stored_documents_without_index(project, monkeypatch):
    project.vmrag("init", "--knowledge-base", "--no-sources")
    for number in range(3):
        project.put(f"policy-{number}", "We drop a slow request.", collection="decisions")
    project.vmrag("commit", "-m", "Policies")
    shutil.rmtree(plumbing.locate_work_tree(project.top).views)
    monkeypatch.setattr(index_build, "MAX_OWN_WORK", {BUILDING: 0, INDEXING: 0})
    text = search_text(tools_of(project), query="slow request")
    assert "words and names only, and stored documents are not searched yet." in text


def test_searches_at_once_start_one_build(project, monkeypatch):
    started = []
    start = proc.start_companion
    monkeypatch.setattr(proc, "start_companion", lambda *given, **more: started.append(1) or start(*given, **more))
    tools = tools_of(project)
    with ThreadPoolExecutor(6) as threads:
        texts = list(threads.map(lambda _: search_text(tools, query="slow request"), range(6)))
    assert all(ANSWER in text for text in texts)
    assert len(started) == 1


def test_killed_build_keeps_finished_parts(project):
    with_many_files(project)
    tools = tools_of(project)
    assert "the index is at 0 %" in search_text(tools, query="slow request")
    job = background.get_index_job(plumbing.locate_work_tree(project.top))
    deadline = time.monotonic() + SECONDS
    while not (before := percent_indexed(project)):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.kill(background.read_report(job).pid, signal.SIGKILL)
    assert background.wait_for_end(job, within=SECONDS)
    assert percent_indexed(project) >= before
    if percent_indexed(project) < 100:
        assert "the index is at 0 %" not in search_text(tools, query="slow request")
    assert background.wait_for_end(job, within=SECONDS)
    assert percent_indexed(project) == 100


SERVER = """
import sys, time
from pathlib import Path
from vmrag_link.git import plumbing
from vmrag_link.sync import background
from vmrag_link.toolsets.essential import index_build
places = plumbing.locate_work_tree(Path(sys.argv[1]))
index_build.ensure_build(background.get_index_job(places), places, "")
print("started", flush=True)
time.sleep(600)
"""


def test_build_ends_with_its_server(project):
    with_many_files(project)
    job = background.get_index_job(plumbing.locate_work_tree(project.top))
    deadline = time.monotonic() + SECONDS
    command = [sys.executable, "-c", SERVER, str(project.top)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as server:
        assert server.stdout.readline() == b"started\n"
        while not is_held(job.lock):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        server.kill()
    while is_held(job.lock):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert percent_indexed(project) < 100
