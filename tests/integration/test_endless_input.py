"""Input without end, special files and processes that die: a clear error, quickly, and nothing is
stored.
"""

from __future__ import annotations

import os
import resource
import socket
import subprocess
import time
from pathlib import Path

import pytest

from tests.support import terminal
from tests.support.mcp import Tools
from tests.support.terminal import SCRIPT, Project
from vmrag_link import proc
from vmrag_link.documents.importing import MAX_BYTES
from vmrag_link.errors import FileFailed, GitFailed, GitReferenceMissing, LimitExceeded
from vmrag_link.git import plumbing, repository, run, staging
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
        result = subprocess.run(command, cwd=project.top, stdin=endless, capture_output=True, text=True, check=False)
    assert (result.returncode, "more than 64 MiB" in result.stderr) == (3, True)


def test_resolution_comes_from_a_file_that_has_an_end(project: Project) -> None:
    error = project.vmrag("resolve", "handbook/rest.md", "--file", "/dev/zero", "--json", code=3).error
    assert "is a device" in error["message"]


@pytest.fixture
def killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Put a program on PATH that is killed by a signal before it prints anything."""

    def put(name: str, signal: str) -> None:
        folder = tmp_path / "bin"
        folder.mkdir()
        (folder / name).write_text(f"#!/bin/sh\nkill -{signal} $$\n")
        (folder / name).chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")

    return put


def test_copy_of_a_folder_that_is_killed_names_program_and_signal(project: Project, tmp_path: Path, killed) -> None:
    source = next(path for path in (project.shared / "views").iterdir() if path.is_dir())
    killed("cp", "KILL")
    with pytest.raises(FileFailed, match="cp was killed by SIGKILL") as failed:
        directories.copy_tree(source, tmp_path / "copy")
    assert failed.value.hint


def test_killed_git_raises_git_failed(project: Project, killed) -> None:
    places = plumbing.locate_work_tree(project.top)
    killed("git", "SEGV")
    with pytest.raises(GitFailed, match="git was killed by SIGSEGV"):
        plumbing.locate_work_tree(project.top)
    with pytest.raises(GitFailed, match="git was killed by SIGSEGV"):
        staging.stage_path(places, places.pin)
    error = project.vmrag("status", "--json", code=3).error
    assert error["message"] == "git was killed by SIGSEGV."


def test_program_that_fails_without_a_word_is_named() -> None:
    assert proc.run(["sh", "-c", "exit 7"]).failure == "sh ended with exit code 7"
    assert proc.run(["sh", "-c", "kill -TERM $$"]).failure == "sh was killed by SIGTERM"


GREEDY = "HEAD^{/(((a{1,255}){1,255}){1,255}}"
"""A search for which git's regular expressions want more than a gigabyte."""


@pytest.mark.parametrize("name", [":" * 300, "a:" * 150, "HEAD:" * 60, "{:}" * 100, "{" * 1000 + ":x"])
@pytest.mark.sample(2)
def test_names_of_many_colons_start_few_git_processes(project: Project, git_log: Path, name: str) -> None:
    tools = Tools(project.top)
    for ask in (
        lambda: tools.run("read", {"name": name}),
        lambda: tools.run("history", {"name": name}),
        lambda: project.vmrag("show", name, code=None),
        lambda: project.vmrag("history", name, code=None),
        lambda: project.vmrag("blame", name, code=None),
        lambda: project.vmrag("diff", name, code=None),
    ):
        git_log.write_text("")
        ask()
        assert len(git_log.read_text().splitlines()) < 40


def test_ref_ends_at_the_first_colon_outside_of_braces(project: Project) -> None:
    time_of_head = "HEAD@{2100-01-01 10:00:00}"
    shown = project.vmrag("show", f"{time_of_head}:handbook/setup.md").out
    assert shown == project.vmrag("show", "HEAD:handbook/setup.md").out


@pytest.mark.parametrize("ref", [GREEDY, "HEAD^{/fix}", ":/fix", "HEAD~1^{/fix}", "HEAD^{}^{/fix}"])
def test_agent_cannot_search_messages_by_a_ref(project: Project, git_log: Path, ref: str) -> None:
    tools = Tools(project.top)
    for name, arguments in (
        ("read", {"name": "handbook/setup.md", "ref": ref}),
        ("search_documents", {"query": "tea", "ref": ref}),
        ("grep", {"pattern": "tea", "ref": ref}),
        ("history", {"since": ref}),
        ("dolt_link_git", {"git_commit": ref}),
    ):
        parameter = next(key for key, value in arguments.items() if value == ref)
        error = tools.error("INVALID_PARAMETER", name, **arguments)
        assert error["details"]["parameter"] == parameter
    for name, arguments in (
        ("read", {"name": f"{ref}:handbook/setup.md"}),
        ("history", {"name": f"{ref}:handbook/setup.md"}),
        ("get_diff", {"from_ref": ref}),
        ("dolt_show", {"commit": ref}),
        ("dolt_checkout", {"target": ref}),
        ("create_branch", {"name": "new", "from": ref}),
        ("merge_branch", {"source": ref}),
    ):
        assert tools.run(name, arguments)[1]
    without_paths = [line.partition(" -- ")[0] for line in git_log.read_text().splitlines()]
    assert not [line for line in without_paths if "/fix" in line or "{1,255}" in line]


def test_git_that_reads_a_name_has_limits_of_memory_and_time(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = plumbing.locate_work_tree(project.top)
    monkeypatch.setattr(run, "MAX_MEMORY_BYTES", 64 << 20)
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss  # of earlier tests in this process
    for resolve in (
        lambda: plumbing.resolve_commit(places, GREEDY),
        lambda: repository.find_commit(project.top, GREEDY),
    ):
        with pytest.raises(GitReferenceMissing):
            resolve()
        assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss <= max(before, 400 << 10)  # it takes 1.5 GB
    assert plumbing.resolve_commit(places, "HEAD~0^{commit}")
    folder = tmp_path / "hanging"
    folder.mkdir()
    (folder / "git").write_text("#!/bin/sh\nexec sleep 60\n")
    (folder / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setattr(run, "MAX_SECONDS", 0.3)
    for ask in (
        lambda: plumbing.resolve_commit(places, "main"),
        lambda: plumbing.read_blob(places, "HEAD:docs"),
        lambda: plumbing.is_ref_name(places, "refs/heads/main"),
    ):
        with pytest.raises(LimitExceeded):
            ask()
    with run.answering_agent(), pytest.raises(LimitExceeded):
        plumbing.locate_work_tree(project.top)


def test_query_is_refused_above_32_kb(project: Project) -> None:
    long = "tea " * 8193
    before = time.process_time()
    for command in ("query", "ask"):
        error = project.vmrag(command, long, "--json", code=2).error
        assert "at most 32,768" in error["message"]
    Tools(project.top).error("INVALID_PARAMETER", "search_documents", query="x" * 5_000_000)
    Tools(project.top).error("INVALID_PARAMETER", "read", name="x" * 3_000_000)
    assert time.process_time() - before < 5
