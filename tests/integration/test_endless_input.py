"""What has no end, is no file, or dies half-way: a clear error, quickly, and nothing is stored."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from pathlib import Path

import pytest

from tests.support import terminal
from tests.support.terminal import SCRIPT, Project
from vmrag_link import proc
from vmrag_link.documents.importing import MAX_BYTES
from vmrag_link.errors import FileFailed, GitFailed
from vmrag_link.git import plumbing
from vmrag_link.index import directories

template, project = terminal.template, terminal.project


def test_add_takes_a_file_and_nothing_without_an_end(project: Project, tmp_path: Path) -> None:
    pipe, large, address = tmp_path / "pipe", tmp_path / "large.md", tmp_path / "socket"
    os.mkfifo(pipe)
    with large.open("wb") as file:
        file.truncate(MAX_BYTES + 1)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(address))
        before = time.process_time()
        for path, said in (
            (Path("/dev/zero"), "is a device"),
            (pipe, "is a pipe"),
            (tmp_path, "is a folder"),
            (address, "is a socket"),
            (large, "larger than 64 MiB"),
        ):
            error = project.vmrag("add", str(path), "--collection", "handbook", "--json", code=3).error
            assert said in error["message"], error
            assert error["hint"]
        assert time.process_time() - before < 20
    assert project.status()["kb"]["dirty"] is False
    with Path("/dev/zero").open("rb") as endless:
        command = [SCRIPT, "add", "-", "--collection", "handbook", "--id", "x"]
        done = subprocess.run(command, cwd=project.top, stdin=endless, capture_output=True, text=True, check=False)
    assert (done.returncode, "more than 64 MiB" in done.stderr) == (3, True)


def test_a_resolution_comes_from_a_file_that_has_an_end(project: Project) -> None:
    error = project.vmrag("resolve", "handbook/rest.md", "--file", "/dev/zero", "--json", code=3).error
    assert "is a device" in error["message"]


@pytest.fixture
def killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Put a program on PATH that a signal ends before it says a word."""

    def put(name: str, signal: str) -> None:
        folder = tmp_path / "bin"
        folder.mkdir()
        (folder / name).write_text(f"#!/bin/sh\nkill -{signal} $$\n")
        (folder / name).chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")

    return put


def test_a_copy_of_a_folder_that_is_killed_names_program_and_signal(project: Project, tmp_path: Path, killed) -> None:
    source = next(each for each in (project.shared / "views").iterdir() if each.is_dir())
    killed("cp", "KILL")
    with pytest.raises(FileFailed, match="cp was killed by SIGKILL") as failed:
        directories.copy_tree(source, tmp_path / "copy")
    assert failed.value.hint


def test_a_git_that_is_killed_is_no_answer(project: Project, killed) -> None:
    places = plumbing.locate(project.top)
    killed("git", "SEGV")
    with pytest.raises(GitFailed, match="git was killed by SIGSEGV"):
        plumbing.locate(project.top)
    with pytest.raises(GitFailed, match="git was killed by SIGSEGV"):
        plumbing.stage(places, places.pin)
    error = project.vmrag("status", "--json", code=3).error
    assert error["message"] == "git was killed by SIGSEGV."


def test_a_program_that_fails_without_a_word_is_named() -> None:
    assert proc.run(["sh", "-c", "exit 7"]).failure == "sh ended with exit code 7"
    assert proc.run(["sh", "-c", "kill -TERM $$"]).failure == "sh was killed by SIGTERM"
