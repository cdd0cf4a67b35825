"""A pin that cannot be read: the hint is what brings back the newest whole one, and it works."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import terminal
from tests.support.terminal import Project
from vmrag_link import hints

template, project = terminal.template, terminal.project

pytestmark = pytest.mark.hooks("off")


def hint(project: Project) -> str:
    """Return the common hint of sync, status and doctor."""
    error = project.vmrag("sync", "--json", code=None).error
    assert project.ask("status", code=1)["hint"] == error["hint"]
    topics = project.vmrag("doctor", "--json", code=None).json["topics"]
    assert error["hint"] in {finding["fix"] for topic in topics for finding in topic["findings"]}
    return error["hint"]


def obey(project: Project, command: str) -> None:
    """Type a command."""
    vmrag = shlex.join([str(Path(sys.executable).parent / "vmrag")])
    line = command.replace("vmrag ", f"{vmrag} ")
    result = subprocess.run(["sh", "-c", line], cwd=project.top, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result


def newer(project: Project) -> str:
    """Stage a revision that no git commit pins."""
    project.put("newer.md", "Newer.\n")
    return project.ask("commit", "-m", "newer")["revision"]


@pytest.mark.parametrize("content", ["", "{", "<<<<<<< ours\n"], ids=["empty", "cut", "markers"])
def test_staged_pin_is_restored_rather_than_an_older_one(project, content):
    revision = newer(project)
    project.write(".dolt-version", content)
    obey(project, hints.list_commands(hint(project))[0])
    assert project.pinned == revision
    assert project.status()["state"] == "in_sync"


def test_hint_restores_pin_of_head_if_staged_pin_is_broken(project):
    before = project.pinned
    newer(project)
    project.write(".dolt-version", "")
    project.git("add", ".dolt-version")
    obey(project, hints.list_commands(hint(project))[0])
    assert project.pinned == before


def test_deleted_pin_file_that_is_staged_broken_brings_back_heads(project):
    before = project.pinned
    project.write(".dolt-version", "")
    project.git("add", ".dolt-version")
    (project.top / ".dolt-version").unlink()
    obey(project, hints.list_commands(hint(project))[0])
    assert project.pinned == before


def test_new_pin_is_suggested_if_git_has_no_valid_one(project):
    before = project.pinned
    project.write(".dolt-version", "{}")
    project.git("commit", "-qam", "broken", "--no-verify")
    obey(project, hints.list_commands(hint(project))[0])
    assert project.pinned == before


def conflict(project: Project) -> None:
    """git's merge stops over the pin: both sides changed a document's line."""
    project.record("ours", rest="# Rest\n\nAlways rest.\n")
    assert project.run("merge", "-q", "feature").returncode != 0


@pytest.mark.parametrize("added", [False, True], ids=["unmerged", "added"])
def test_broken_pin_in_a_merge_restores_the_conflict(project, added):
    conflict(project)
    project.write(".dolt-version", "<<<<<<< ours\n")
    if added:
        project.git("add", ".dolt-version")
    hint_text = hint(project) if added else "run 'vmrag resolve' to resolve the conflicts"
    assert "vmrag resolve" in hint_text
    assert "HEAD" not in hint_text
    [command] = hints.list_commands(hint_text)
    obey(project, f"{command} --ours")
    assert project.git("diff", "--name-only", "--diff-filter=U") == ""
    project.git("commit", "-q", "--no-edit", "--no-verify")
    assert project.vmrag("verify", code=None).code == 0


@pytest.mark.hooks("on")
def test_broken_staged_pin_is_replaced_by_the_sound_file(project):
    revision = newer(project)
    whole = (project.top / ".dolt-version").read_text()
    project.write(".dolt-version", "")
    project.git("add", ".dolt-version")
    project.write(".dolt-version", whole)
    refused = project.run("commit", "-m", "x")
    assert refused.returncode != 0
    assert "git add --force .dolt-version" in refused.stderr
    obey(project, "git add --force .dolt-version")
    project.git("commit", "-q", "-m", "x")
    assert revision in project.git("show", "HEAD:.dolt-version")
