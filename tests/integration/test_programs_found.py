"""Programs come from this machine: none is found in the work tree, however its folders got on
PATH.
"""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

import pytest

from tests.support import terminal
from tests.support.terminal import Project
from vmrag_link import proc

template, project = terminal.template, terminal.project

pytestmark = pytest.mark.hooks("off")

NAMES = "git dolt sh env cp cat less ssh gpg vmrag python python3".split()


@pytest.fixture
def started(project: Project, tmp_path: Path) -> Path:
    """Return a log with a line for each started program of the clone; the clone has programs at its
    top and in `tools`, one of them with a unique name.
    """
    log = tmp_path / "started"
    for folder in (project.top, project.top / "tools", project.top / ".venv" / "bin"):
        folder.mkdir(parents=True, exist_ok=True)
        for name in (*NAMES, "only-here"):
            path = folder / name
            path.write_text(f'#!/bin/sh\necho "$0 $*" >>{shlex.quote(str(log))}\nexit 1\n')
            path.chmod(0o755)
    return log


def folder_on_path(project: Project, tmp_path: Path, way: str) -> str:
    link = tmp_path / "link"
    link.symlink_to(project.top, target_is_directory=True)
    return {
        "empty": "",
        "dot": ".",
        "relative": "tools",
        "absolute": str(project.top / "tools"),
        "dotted": f"{project.top}/../{project.top.name}/tools",
        "through a link": str(link / "tools"),
        "virtual environment": str(project.top / ".venv" / "bin"),
    }[way]


WAYS = ("empty", "dot", "relative", "absolute", "dotted", "through a link", "virtual environment")
COMMANDS = (("status",), ("log",), ("query", "zebras"), ("doctor",), ("diff", "HEAD"), ("links",), ("sync", "--force"))


@pytest.mark.sample(3)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.sample(1)
def test_programs_of_the_clone_are_not_started(project, started, tmp_path, monkeypatch, way):
    monkeypatch.setenv("PATH", f"{folder_on_path(project, tmp_path, way)}:{os.environ['PATH']}")
    for command in COMMANDS:
        result = project.start(*command)
        assert "Traceback" not in result.err
        assert not started.exists(), f"vmrag {' '.join(command)} started {started.read_text()}"


def test_worktree_behind_a_link_starts_no_program(project, started, tmp_path, monkeypatch):
    link = tmp_path / "link"
    link.symlink_to(project.top, target_is_directory=True)
    monkeypatch.setenv("PATH", f"{project.top / 'tools'}:{os.environ['PATH']}")
    assert Project(link).start("status").code in (0, 1)
    assert not started.exists()


def test_linked_worktree_starts_no_program_of_the_first(project, started, tmp_path, monkeypatch):
    project.git("worktree", "add", "-q", "--detach", str(tmp_path / "linked"))
    monkeypatch.setenv("PATH", f"{project.top / 'tools'}:{os.environ['PATH']}")
    assert Project(tmp_path / "linked").start("status").code in (0, 1)
    assert not started.exists()


def test_programs_started_by_git_are_not_found_in_the_working_tree(project, started, monkeypatch):
    """ssh for a fetch, gpg for a signature: git looks them up on the PATH that it is given."""
    project.git("remote", "add", "origin", "ssh://git@kb.example/kb.git")
    monkeypatch.setenv("PATH", f"{os.environ['PATH']}:.:{project.top / 'tools'}")
    monkeypatch.setenv("GIT_SSH_COMMAND", "only-here")
    assert project.start("fetch").code != 0
    assert not started.exists()


def test_missing_git_outside_the_working_tree_is_reported(project, started, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(project.top / "tools"))
    result = project.start("status")
    assert "git was not found on PATH" in result.err
    assert "working tree" in result.err
    assert not started.exists()


def test_activated_environment_in_the_work_tree_is_its_persons_own(project, started, monkeypatch):
    """Programs that git starts are found, above all for hooks; git itself is not."""
    monkeypatch.setenv("VIRTUAL_ENV", str(project.top / ".venv"))
    monkeypatch.setenv("PATH", f"{project.top / '.venv' / 'bin'}:{os.environ['PATH']}")
    assert project.start("status").code in (0, 1)
    assert not started.exists()
    proc.run(["sh", "-c", "only-here"], cwd=project.top)
    assert "only-here" in started.read_text()


def test_repository_around_the_home_folder_hides_no_program(tmp_path, monkeypatch):
    """Programs of the person lie in their home; theirs is another work tree than the project's."""
    (tmp_path / ".git").mkdir()
    (tmp_path / "project" / ".git").mkdir(parents=True)
    program = tmp_path / "bin" / "own"
    program.parent.mkdir()
    program.symlink_to(sys.executable)
    monkeypatch.setenv("PATH", str(program.parent))
    assert proc.find_program("own", tmp_path / "project") == str(program)
    assert proc.find_program("own", tmp_path) is None
