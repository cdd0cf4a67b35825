"""A journal whose entries are damaged, or name what is not there, stops nothing; they are kept, and
doctor names them.
"""

from __future__ import annotations

import json
import os
import subprocess

import pytest

from tests.support import terminal
from tests.support.terminal import opened
from vmrag_link import errors, hints

template, project = terminal.template, terminal.project

ABSENT = "0" * 40


def entries(project) -> dict[str, bytes]:
    with opened(project) as ws:
        head = project.pinned
        mine = {"git_dir": str(ws.places.git_dir), "symbolic": "refs/heads/main", "pin": None}
    commit = {"type": "commit", **mine, "kb_branch": "main", "parent": head}
    replay = {"type": "replay", "kb_branch": "main", "head": head, "to": head, "aside": "vmrag/wip/main"}
    return {
        name: json.dumps(entry).encode()
        for name, entry in {
            "surrogate": commit | {"kb_branch": "\ud800"},
            "nul": commit | {"git_dir": "a\0b"},
            "foreign folder": commit | {"git_dir": str(project.top / "docs"), "kb_branch": "gone"},
            "long": commit | {"git_dir": "/" + "x" * 5000},
            "no such branch": commit | {"kb_branch": "gone"},
            "no such revision": commit | {"parent": ABSENT},
            "no revision at all": commit | {"parent": "'; DROP TABLE documents; --"},
            "replay from nowhere": replay | {"head": ABSENT},
            "replay to nowhere": replay | {"to": "HEAD"},
            "replay of a branch of ours": replay | {"aside": "feature", "to": head},
            "wrong types": commit | {"parent": 1},
            "huge": commit | {"pin": "x" * 2_000_000},
        }.items()
    } | {"bad Unicode": b'{"type": "commit", "git_dir": "\xff\xfe"}', "deep": b"[" * 100_000}


def findings(project) -> list[dict[str, str]]:
    topics = project.run_quietly("doctor", "--json").json["topics"]
    return [finding for topic in topics for finding in topic["findings"]]


def test_damaged_journal_entries_are_renamed_and_stop_nothing(project):
    project.put("note.md", "A note about zebras.")
    folder = project.shared / "journal"
    folder.mkdir(exist_ok=True)
    written = entries(project)
    for name, content in written.items():
        (folder / f"commit-{name}.json").write_bytes(content)
    (folder / "folder.json").mkdir()
    os.mkfifo(folder / "pipe.json")
    names = {*(f"commit-{name}" for name in written), "folder", "pipe"}
    subjects = {finding["subject"] for finding in findings(project)}
    assert {str(folder / f"{name}.json") for name in names} <= subjects
    result = project.vmrag("list")
    assert result.err.count("so it was moved to") == len(names)
    assert project.marks()["note.md"] == "added"
    assert {path.name for path in folder.iterdir()} == {f"{name}.damaged" for name in names}
    assert {(folder / f"commit-{name}.damaged").read_bytes() for name in written} == set(written.values())
    assert not (project.top / "docs" / "vmrag").exists()
    assert {finding["subject"] for finding in findings(project) if finding["code"] == "JOURNAL_SET_ASIDE"} == {
        str(folder / f"{name}.damaged") for name in names
    }
    project.record("note", last="The last one.")
    assert project.run("rev-parse", "--verify", "feature").returncode == 0
    assert project.consistent()


def test_renamed_journal_entries_are_never_overwritten(project):
    folder = project.shared / "journal"
    folder.mkdir(exist_ok=True)
    for content in (b"one", b"two"):
        (folder / "commit-a.json").write_bytes(content)
        project.vmrag("list")
    assert {path.read_bytes() for path in folder.iterdir()} == {b"one", b"two"}


@pytest.mark.parametrize("moved", ["main", "linked"])
def test_work_tree_without_its_repository_gets_worktree_repair_as_hint(project, tmp_path, moved):
    project.git("worktree", "add", "-q", str(tmp_path / "linked tree"), "feature")
    linked, main = tmp_path / "linked tree", project.top
    if moved == "main":
        main = main.rename(tmp_path / "moved away")
    else:
        linked = linked.rename(tmp_path / "moved tree")
        (linked / ".git").write_text(f"gitdir: {tmp_path / 'project'}/.git/worktrees/nothing\n")
    linked_project = terminal.Project(linked)
    error = linked_project.run_quietly("list", "--json").error
    assert error["code"] == "GIT_REPO_NOT_FOUND"
    assert (
        error["hint"] == f"run 'git -C PATH_OF_THE_REPOSITORY worktree repair {errors.quoted(linked)}' to link it again"
    )
    if moved == "main":
        [command] = hints.list_commands(error["hint"])
        subprocess.run(command.replace("PATH_OF_THE_REPOSITORY", f"'{main}'"), shell=True, check=True)
        linked_project.vmrag("list")
