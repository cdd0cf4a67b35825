"""`mcp.auto_commit: write`: what a tool has written is committed and pinned before it answers."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.support import terminal
from tests.support.agent import run_story
from tests.support.mcp import Tools, warned
from tests.support.terminal import SCRIPT, Project

PLUGIN = Path(__file__).parents[2] / "clients" / "claude-code"

pytestmark = pytest.mark.hooks("off")

template, project = terminal.template, terminal.project


@pytest.fixture
def tools(project: Project) -> Tools:
    project.git("config", "vmrag.mcp.auto-commit", "write")
    return Tools(project.top)


def remembers(tools: Tools, name: str) -> dict:
    return tools("chroma_add_documents", collection_name="handbook", documents=[f"Text of {name}."], ids=[name])


def test_auto_commit_pins_a_write_for_the_next_code_commit(project, tools):
    before = project.pinned
    answer = remembers(tools, "memo.md")
    assert (answer["kb"]["dirty"], answer["kb"]["commit"]) == (False, project.pinned)
    assert project.pinned != before
    assert "COMMITTED" in warned(answer)
    assert project.git("diff", "--cached", "--name-only") == ".dolt-version"
    newest = project.ask("log")["revisions"][0]
    assert (newest["revision"], newest["message"]) == (project.pinned, "chroma_add_documents: handbook/memo.md")
    project.git("commit", "-q", "--no-verify", "-m", "code")
    assert project.git("status", "--porcelain") == ""
    project.git("switch", "-q", "feature")
    assert "memo.md" not in project.marks()
    project.git("switch", "-q", "main")
    assert project.marks()["memo.md"] is None


def test_every_kind_of_write_is_one(project, tools):
    for name, arguments in (
        ("chroma_update_documents", {"ids": ["setup.md"], "documents": ["Another setup."]}),
        ("chroma_delete_documents", {"ids": ["rest.md"]}),
    ):
        [doc_id] = arguments["ids"]
        before = project.pinned
        tools(name, collection_name="handbook", **arguments)
        assert project.pinned != before
        assert project.ask("log")["revisions"][0]["message"] == f"{name}: handbook/{doc_id}"
    before = project.pinned
    assert "COMMITTED" not in warned(tools("chroma_query_documents", query_texts=["setup"]))
    assert project.pinned == before


def test_auto_commit_leaves_documents_of_history_tools_uncommitted(project, tools):
    project.put("draft.md", "A draft.")
    tools("dolt_checkout", target="own", create_branch=True, if_uncommitted="carry")
    assert project.marks()["draft.md"] == "added"


def test_failed_auto_commit_keeps_the_document_with_a_warning(project, tools):
    project.git("config", "user.useConfigOnly", "true")
    for key in ("user.name", "user.email"):
        project.git("config", key, "")
    answer = remembers(tools, "memo.md")
    assert "NOT_COMMITTED" in warned(answer)
    assert project.marks()["memo.md"] == "added"
    for key in ("user.name", "user.email"):
        project.git("config", "--unset", key)
    remembers(tools, "next.md")
    assert (project.marks()["memo.md"], project.marks()["next.md"]) == (None, None)


def test_while_another_git_command_holds_the_index_nothing_is_acknowledged(project, tools):
    before, lock = project.pinned, project.top / ".git/index.lock"
    lock.touch()
    arguments = {"collection_name": "handbook", "documents": ["Text."], "ids": ["memo.md"]}
    tools.error("GIT_BUSY", "chroma_add_documents", **arguments)
    lock.unlink()
    assert (project.pinned, "memo.md" in project.marks()) == (before, False)


def test_message_names_the_agent(project):
    project.git("config", "vmrag.mcp.auto-commit", "write")

    async def story(call):
        await call("chroma_add_documents", collection_name="handbook", documents=["Text."], ids=["memo.md"])

    run_story(project, story, toolsets="default")
    assert project.ask("log")["revisions"][0]["message"] == "chroma_add_documents by mcp: handbook/memo.md"


def test_message_names_all_documents_of_a_large_write(project, tools):
    project.git("config", "vmrag.mcp.auto-commit", "write")
    ids = [f"memo-{number:02}.md" for number in range(60)]
    tools("chroma_add_documents", collection_name="handbook", documents=ids, ids=ids)
    subject, empty, *lines = project.ask("log")["revisions"][0]["message"].splitlines()
    assert (subject, empty) == ("chroma_add_documents: handbook/memo-00.md and 59 more", "")
    assert lines == [*(f"added handbook/{name}" for name in ids[:50]), "and 10 more"]


def test_cloned_settings_file_does_not_switch_it_on(project):
    project.write(".vmrag.yaml", "embedding:\n  model: hash\nmcp:\n  auto_commit: write\n")
    tools, before = Tools(project.top), project.pinned
    remembers(tools, "memo.md")
    assert (project.pinned, project.marks()["memo.md"]) == (before, "added")
    project.vmrag("trust", "--yes")
    remembers(tools, "next.md")
    assert (project.marks()["memo.md"], project.marks()["next.md"]) == (None, None)


def test_end_of_turn_commits_the_rest_if_agreed(project, tmp_path):
    hook = json.loads((PLUGIN / "hooks" / "hooks.json").read_text())["hooks"]["Stop"][0]["hooks"][0]["command"]
    environ = os.environ | {
        "CLAUDE_PROJECT_DIR": str(project.top),
        "PATH": f"{SCRIPT.parent}{os.pathsep}{os.environ['PATH']}",
    }

    def ends(**more: str) -> str:
        argv = ["sh", "-c", hook]
        result = subprocess.run(argv, cwd=tmp_path, env=environ | more, capture_output=True, text=True, check=True)
        return json.loads(result.stdout)["systemMessage"] if result.stdout else ""

    assert ends() == ""
    project.put("memo.md", "A memory.")
    assert ends() == "branch 'main' has uncommitted documents; run 'vmrag commit' to commit them"
    assert project.marks()["memo.md"] == "added"
    project.git("config", "vmrag.mcp.auto-commit", "write")
    assert ends().startswith("Committed as")
    assert (project.marks()["memo.md"], ends()) == (None, "")
    assert ends(CLAUDE_PROJECT_DIR=str(tmp_path)) == ""  # no repository
    assert ends(PATH="/usr/bin:/bin") == ""  # the server came by uvx, and nothing else is here
