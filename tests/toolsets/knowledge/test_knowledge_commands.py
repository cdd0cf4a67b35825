"""`vmrag issue` and `vmrag doc`, as a person types them and their page shows them."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tests.support import notes
from tests.support.cli import ROOT
from tests.support.mcp import Tools
from tests.support.terminal import Project

pytestmark = pytest.mark.hooks("off")

template, project, tools = notes.template, notes.project, notes.tools

PAGE = ROOT / "docs" / "toolsets.md"
CHANGING = re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b|\b[0-9a-f]{7,8}\b|\b20\d\d-\d\d-\d\d\b")
"""Ids, revisions and dates."""


def test_page_shows_the_output_of_the_commands(project):
    section = PAGE.read_text().partition("## Issue logs and tool documents\n")[2].partition("\n## ")[0]
    shown = re.findall(r"```console\n(.*?)```", section, re.DOTALL)
    assert shown
    for command, expected in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", "".join(shown), re.MULTILINE):
        printed = project.vmrag(*shlex.split(command.removeprefix("vmrag "))).out
        assert CHANGING.sub("…", printed).rstrip("\n") == CHANGING.sub("…", expected).rstrip("\n"), command


def test_log_is_named_by_issue_or_by_beginning_of_id(project, tools):
    assert "birds" not in project.vmrag("issue", "add", "7", "-m", "x", code=2).out
    added = project.ask("issue", "add", "birds#7", "-m", "# Nests\n\nOwls.", "--metadata", '{"author": "Ada"}')
    log_id = added["log_id"]
    for name in (log_id, log_id[:8], "birds#7", "7", "7:implementation"):
        assert project.ask("issue", "show", name) == {
            key: value
            for key, value in tools("get_issue_log", log_id=log_id).items()
            if key not in ("success", "message", "kb")
        }
    assert project.vmrag("issue", "show", "7").out == "# Nests\n\nOwls."
    project.vmrag("issue", "add", "7", "--type", "resolution", "-F", "-", stdin="Owls again.")
    several = project.vmrag("issue", "show", "7", code=2).err
    assert "implementation, resolution" in several
    assert "birds#7:implementation" in several
    for name in ("8", "7:postmortem", "abcdef", "fish#7", log_id[:2]):
        assert project.vmrag("issue", "show", name, code=None).code in (2, 3), name
    project.vmrag("issue", "add", "fish#1", "-m", "Pike.")
    assert project.vmrag("issue", "show", "1", "--json", code=2).error["code"] == "INVALID_PARAMETER"
    assert [log["issue_number"] for log in project.ask("issue", "list", "--project", "fish")["logs"]] == [1]
    assert project.ask("--json", "issue", "search", "pike")["results"][0]["metadata"]["project_id"] == "fish"


def test_missing_texts_are_written_in_the_editor(project, monkeypatch):
    monkeypatch.setenv("GIT_EDITOR", "printf 'Herons nest.' >")
    project.vmrag("issue", "add", "birds#1")
    assert project.vmrag("issue", "show", "1").out == "Herons nest."
    monkeypatch.setenv("GIT_EDITOR", "sed -i s/nest/fly/")
    assert project.ask("issue", "edit", "1")["changed"]
    assert project.vmrag("issue", "show", "1").out == "Herons fly."
    monkeypatch.setenv("GIT_EDITOR", "true")
    assert not project.ask("issue", "edit", "1")["changed"]
    assert (
        project.vmrag("doc", "add", "git", "--category", "api", "--json", code=2).error["code"] == "INVALID_PARAMETER"
    )
    project.vmrag("issue", "add", "2", "-m", "x", "-F", "y", code=2)
    project.vmrag("issue", "add", "2", "-F", "absent", code=3)


def test_document_about_a_tool_is_named_by_how_its_id_begins(project, tmp_path: Path):
    text = tmp_path / "text.md"
    text.write_text("# Worktrees\n\nOne branch each.\n")
    doc_id = project.ask("doc", "add", "git", "--category", "tooling", "-F", str(text))["doc_id"]
    assert project.vmrag("doc", "show", doc_id[:6]).out == text.read_text()
    edited = project.ask("doc", "edit", doc_id[:6], "--tool", "jj", "--tool-version", "0.9")
    assert (edited["tool_name"], edited["title"], edited["doc_id"]) == ("jj", "Worktrees", doc_id)
    assert [doc["doc_id"] for doc in project.ask("doc", "list", "--tool", "jj")["docs"]] == [doc_id]
    assert project.ask("doc", "list", "--category", "api")["docs"] == []
    assert project.ask("doc", "search", "branch", "--category", "tooling")["results"][0]["doc_id"] == doc_id
    project.vmrag("doc", "show", "ffffffff-0000", code=3)


def test_duplicate_log_name_after_a_merge_is_rejected_with_both(project: Project, tools: Tools):
    """A type that is changed on one branch, and added on the other."""
    first = project.ask("issue", "add", "birds#7", "-m", "Owls.")["log_id"]
    project.vmrag("commit", "-m", "one")
    project.git("commit", "-q", "-a", "-m", "one")
    project.git("switch", "-q", "-c", "side")
    project.vmrag("issue", "add", "7", "--type", "resolution", "-m", "Herons.")
    project.vmrag("commit", "-m", "side")
    project.git("commit", "-q", "-a", "-m", "side")
    project.git("switch", "-q", "main")
    project.vmrag("issue", "edit", first, "--type", "resolution")
    project.vmrag("commit", "-m", "main")
    project.git("commit", "-q", "-a", "-m", "main")
    tools("merge_branch", source_branch="side")
    logs = tools("list_issue_logs", project="birds")["logs"]
    assert [(log["issue_number"], log["log_type"]) for log in logs] == [(7, "resolution")] * 2
    assert project.vmrag("issue", "show", "7:resolution", "--json", code=2).error["code"] == "INVALID_PARAMETER"
    tools.error("DUPLICATE_ID", "add_issue_log", project="birds", issue=7, type="resolution", content="x")
