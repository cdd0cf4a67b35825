"""Concurrent operations: a change planned for one branch never reaches another, and an answer names
its commit.
"""

from __future__ import annotations

import json
import subprocess

import pytest

from tests.support import terminal
from vmrag_link.index import view
from vmrag_link.index.flat_files import MANIFEST_FILE, PAGE_SIZE
from vmrag_link.index.view import segments_folder
from vmrag_link.ops.commit import commit as committing
from vmrag_link.ops.import_.import_files import import_files
from vmrag_link.progress import QUIET
from vmrag_link.retrieval.query import Query
from vmrag_link.retrieval.search import Searcher
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.answers import query
from vmrag_link.workspace.documents import put
from vmrag_link.workspace.pins import pinning

template, project = terminal.template, terminal.project


@pytest.fixture
def ws(project):
    opened = Workspace.open(project.top, QUIET)
    yield opened
    opened.close()


def test_checkout_between_plan_and_write_makes_the_write_plan_again(project, ws, monkeypatch):
    project.git("branch", "other")
    project.vmrag("commit", "-m", "nothing", code=1)
    (project.top / "new").mkdir()
    project.write("new/page.md", "# Page")
    planned = put._plan_put

    def interrupted(*args, **kwargs):
        made = planned(*args, **kwargs)
        if project.git("branch", "--show-current") == "main":
            project.git("switch", "-q", "other")
        return made

    monkeypatch.setattr(put, "_plan_put", interrupted)
    report = import_files(ws, [project.top / "new"], "fresh")
    assert report.branch == "other"
    assert "new/page.md" in project.texts()
    project.vmrag("commit", "-m", "other's")
    project.git("switch", "-q", "--force", "main")
    assert "fresh" not in project.vmrag("list").out


def test_answer_names_the_commit_of_its_knowledge(project, ws, monkeypatch):
    """HEAD moves during a search: the search is repeated at the current commit."""
    first = project.git("rev-parse", "first")
    pinned = json.loads(project.git("show", "first:.dolt-version"))["dolt_commit"]
    searched = Searcher.search

    def interrupted(self, queries):
        result = searched(self, queries)
        project.git("switch", "-q", "--detach", "first")
        return result

    monkeypatch.setattr(Searcher, "search", interrupted)
    report = query.answer_query(ws, Query("setup"))
    assert (report.kb.git_head, report.kb.commit, report.kb.in_sync) == (first, pinned, True)


def test_reset_prints_the_revision_that_the_branch_left(project):
    project.put("late.md", "Late news.")
    project.vmrag("commit", "-m", "late")
    pinned = project.pinned
    project.git("reset", "-q", "--hard", "HEAD")
    said = project.vmrag("query", "late").err
    assert f"vmrag pin {pinned}" in said
    project.vmrag("pin", pinned)
    assert "late.md" in project.texts()


def test_killed_commit_is_finished_after_its_code_branch_was_renamed(project, ws, monkeypatch):
    project.put("late.md", "Late news.")

    def killed(*args, **kwargs):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(pinning, "write_pin", killed)
        with pytest.raises(KeyboardInterrupt):
            committing.commit(ws, "late")
    project.git("branch", "-m", "main", "trunk")
    assert "Finished an interrupted commit" in project.vmrag("list").err
    assert "late.md" in project.texts()
    project.vmrag("sync")  # reading rows brings no index
    assert project.status()["in_sync"]


def test_damaged_index_is_built_again_by_the_next_query(project):
    [folder] = project.top.glob(f".git/vmrag/views/{project.pinned}-*/")
    [part] = view.read_view(folder).parts
    manifest = segments_folder(folder) / part.segment / MANIFEST_FILE
    before = project.answers()
    size, rest = manifest.stat().st_size, PAGE_SIZE
    assert size > rest
    manifest.write_bytes(manifest.read_bytes()[:rest] + b"\xff" * (size - rest))
    assert project.vmrag("list").code == 0
    assert project.answers() == before
    assert project.consistent()


def test_leaving_a_branch_prints_where_its_uncommitted_documents_are(project):
    project.put("draft.md", "A draft.")
    project.vmrag("install")
    said = subprocess.run(["git", "switch", "-c", "topic"], cwd=project.top, capture_output=True, text=True, check=True)
    assert "uncommitted documents stay with 'main'" in said.stderr
    result = project.vmrag("commit", "-m", "nothing", code=1)
    assert "Other branches have uncommitted documents: 'main'" in result.err


@pytest.mark.parametrize("command", [("query", "x", "--at", ""), ("log", ""), ("fingerprint", "--at", "")])
def test_empty_ref_is_rejected(project, command):
    assert project.vmrag(*command, "--json", code=3).error["code"] == "GIT_COMMIT_NOT_FOUND"
