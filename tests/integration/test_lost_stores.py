"""The file of a knowledge base is missing, but other files show that it existed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.support import dolt, terminal
from tests.support.mcp import Tools
from tests.support.terminal import Project
from tests.support.unversioned import SETTING, read_texts, think
from vmrag_link.errors import EngineFailed, KnowledgeLost

pytestmark = pytest.mark.hooks("off")

template, project = terminal.template, terminal.project


@pytest.fixture
def pushed(project: Project) -> Project:
    """All revisions are on a remote; one document is not committed."""
    hub = project.top.parent / "hub.git"
    project.git("init", "-q", "--bare", str(hub))
    project.git("remote", "add", "origin", str(hub))
    project.git("push", "-q", "origin", "main", "feature")
    project.vmrag("push", "--all")
    project.put("draft.md", "A draft about sleep.")
    return project


def lose(project: Project) -> Path:
    file = project.shared / "kb" / "kb.doltlite"
    return file.rename(project.top.parent / "kept.doltlite")


@pytest.mark.parametrize(
    "command",
    [
        ("query", "rest"),
        ("list",),
        ("sync",),
        ("push",),
        ("fetch",),
        ("init", "--knowledge-base"),
        ("commit", "-m", "x"),
    ],
)
@pytest.mark.sample(3)
def test_command_fails_if_the_store_is_missing(pushed, command):
    lose(pushed)
    failed = pushed.vmrag(*command, "--json", code=3)
    assert failed.error["code"] == KnowledgeLost.code
    assert "vmrag clone" in failed.error["hint"]
    assert not (pushed.shared / "kb" / "kb.doltlite").exists()


def test_status_and_doctor_report_a_missing_store(pushed):
    lose(pushed)
    report = pushed.vmrag("status", "--json", code=1).json
    assert (report["state"], report["in_sync"]) == ("not_initialized", False)
    assert "is missing" in report["reasons"][0]
    for arguments in ((), ("--fix",)):
        assert "KB_LOST" in pushed.vmrag("doctor", *arguments, code=1).out


@pytest.mark.hooks("on")
def test_hook_does_not_fetch_again_if_the_store_is_missing(pushed):
    lose(pushed)
    switched = pushed.run("switch", "-q", "feature")
    assert switched.returncode == 0
    assert not (pushed.shared / "kb" / "kb.doltlite").exists()


def test_store_that_is_put_back_has_uncommitted_documents(pushed):
    lose(pushed).rename(pushed.shared / "kb" / "kb.doltlite")
    assert "draft.md" in pushed.texts()
    assert pushed.marks()["draft.md"] == "added"


def test_clone_starts_without_unpushed_knowledge(pushed):
    lose(pushed)
    pushed.vmrag("clone")
    assert "draft.md" not in pushed.texts()
    assert "UNCOMMITTED_NOTE" not in pushed.vmrag("doctor", code=None).out
    pushed.put("again.md", "Written after that.")


def test_hint_without_a_remote_starts_a_new_knowledge_base(project):
    lose(project)
    failed = project.vmrag("query", "rest", code=3)
    assert "vmrag init --new" in failed.err
    project.git("rm", "-q", "--cached", ".dolt-version")
    (project.top / ".dolt-version").unlink()
    project.git("commit", "-q", "-m", "Start a new knowledge base")
    project.vmrag("init", "--new", "--no-sources")
    assert project.texts() == {}


def test_command_fails_if_the_dolt_repository_is_missing(tmp_path, monkeypatch):
    dolt.require()
    terminal.isolate(monkeypatch, tmp_path / "home")
    project = terminal.new_project(tmp_path / "project")
    project.vmrag("init", "--knowledge-base", "--engine", "dolt", "--no-sources")
    project.record("first", one="The first text.")
    shutil.rmtree(project.shared / "kb" / ".dolt")
    assert project.vmrag("query", "text", "--json", code=3).error["code"] == KnowledgeLost.code


@pytest.fixture
def thoughts(project: Project) -> tuple[Project, Tools]:
    project.git("config", SETTING, "false")
    tools = Tools(project.top)
    think(tools, "A thought of rest.", 1)
    return project, tools


def test_local_store_is_not_started_again_if_its_file_is_missing(thoughts):
    project, tools = thoughts
    file = project.shared / "local" / "kb" / "kb.doltlite"
    aside = file.rename(project.top.parent / "kept.doltlite")
    with pytest.raises(EngineFailed):
        read_texts(project)
    tools.error(EngineFailed.code, "chroma_find_similar_thoughts", query="rest", threshold=0)
    assert "DATABASE_ERROR" in project.vmrag("doctor", code=1).out
    aside.rename(file)
    assert [*read_texts(project).values()] == ["A thought of rest."]
