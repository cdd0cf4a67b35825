"""Invalid input and exhausted resources: a clear error, the documented exit code, and no lost
data.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support import cli, terminal
from tests.support.cli import WITHOUT_RIGHTS, error_of, pages, read_only, small_disk, start
from tests.support.compare import assert_whole
from tests.support.indexes import segments_of, view_of
from tests.support.repos import isolate
from tests.support.terminal import SCRIPT, Done, Project, new_project
from vmrag_link import hints

pytestmark = pytest.mark.hooks("off")

library, stocked = cli.library, cli.stocked
template, project = terminal.template, terminal.project

ADD = ("add", "docs/setup.md", "--collection", "handbook", "--copy", "--id", "new.md")
WRITES = [ADD, ("commit", "-m", "x")]


def refused(project: Project, *command: str, code: int, error: str) -> dict[str, Any]:
    """The error of a command that fails the way it should: in JSON and in words, with a hint."""
    said = project.run_quietly(*command, "--json")
    result = error_of(said)
    assert (said.code, result["code"]) == (code, error), result
    words = project.run_quietly(*command)
    assert words.code == code
    assert words.out == ""
    assert f"error: {result['message']}" in words.err
    assert "Traceback" not in words.err
    if error != "INVALID_PARAMETER":
        assert result["hint"]
        assert f"hint: {result['hint']}" in words.err
    return result


def follow(project: Project, hint: str) -> None:
    """Type the first command of a hint."""
    path = f"{SCRIPT.parent}{os.pathsep}{os.environ['PATH']}"
    command = hints.list_commands(hint)[0]
    subprocess.run(command, shell=True, cwd=project.top, check=True, env=os.environ | {"PATH": path})


# -- the pin ---------------------------------------------------------------------------------------


def with_members(**members: Any) -> Callable[[str], bytes]:
    return lambda pin: json.dumps(json.loads(pin) | members, indent=2).encode()


BAD_PINS: dict[str, tuple[Callable[[str], bytes], str]] = {
    "a conflict marker": (
        lambda pin: f"<<<<<<< ours\n{pin}=======\n{pin}>>>>>>> theirs\n".encode(),
        "line 1: an unresolved merge conflict",
    ),
    "a byte order mark": (lambda pin: b"\xef\xbb\xbf" + pin.encode(), "line 1: begins with a byte order mark"),
    "5 KB": (lambda pin: pin.replace("{", "{" + " " * 5000).encode(), "at most 4096"),
    "a key twice": (
        lambda pin: pin.replace("{\n", '{\n  "dolt_branch": "main",\n').encode(),
        "line 4: the key 'dolt_branch' occurs twice",
    ),
    "a wrong type": (with_members(dolt_branch=3), "line 3: dolt_branch must be a text"),
    "nothing": (lambda _: b"", "line 1: is not JSON"),
    "a reserved branch": (with_members(dolt_branch="vmrag_keep"), "line 3: dolt_branch"),
    "not UTF-8": (lambda pin: pin.replace("main", "m\xe4in").encode("latin-1"), "line 3"),
}


@pytest.mark.parametrize("what", BAD_PINS)
@pytest.mark.sample(3)
def test_malformed_pin_names_line_and_fix_and_the_old_revision_answers(project, tmp_path, what):
    broken, says = BAD_PINS[what]
    (project.top / ".dolt-version").write_bytes(broken((project.top / ".dolt-version").read_text()))
    for command in [("sync",), *WRITES]:
        error = refused(project, *command, code=1, error="PIN_MALFORMED")
        assert says in error["message"]
    report = project.status()
    assert report["state"] == "malformed"
    assert report["reasons"] == [error["message"]]
    assert report["hint"] == error["hint"]
    answer = project.vmrag("query", "faq")
    assert "faq.md" in answer.out
    assert "the pin cannot be read, so this answer comes from revision" in answer.out.splitlines()[0]
    if what != "a conflict marker":  # there is no merge to take a side of
        follow(project, error["hint"])
        (tmp_path / "scratch").mkdir()
        assert_whole(project, tmp_path / "scratch")


def test_pin_with_conflict_markers_is_repaired_by_choosing_a_side(project, tmp_path):
    project.write(".git/info/attributes", ".dolt-version merge\n")  # as text: git's own merge, not our driver
    assert project.run("merge", "feature").returncode == 1
    assert "<<<<<<<" in (project.top / ".dolt-version").read_text()
    error = refused(project, "sync", code=1, error="PIN_MALFORMED")
    follow(project, error["hint"])
    (tmp_path / "scratch").mkdir()
    assert_whole(project, tmp_path / "scratch")


def test_pin_of_unknown_revision_is_missing_and_old_revision_answers(project):
    pin = json.loads((project.top / ".dolt-version").read_text())
    (project.top / ".dolt-version").write_text(json.dumps(pin | {"dolt_commit": "0" * 40}))
    for command in [("sync",), *WRITES]:
        error = refused(project, *command, code=1, error="PIN_MISSING_REVISION")
        assert error["details"]["revision"] == "0" * 40
    assert project.status()["state"] == "missing"
    assert "faq.md" in project.vmrag("query", "faq").out
    assert len(project.texts()) == 4


@pytest.mark.parametrize("what", ["a folder", "a link", "a pipe"])
def test_sync_rejects_pin_other_than_a_regular_file(project, what):
    path = project.top / ".dolt-version"
    path.unlink()
    {"a folder": path.mkdir, "a link": lambda: path.symlink_to("/dev/zero"), "a pipe": lambda: os.mkfifo(path)}[what]()
    refused(project, "sync", code=1, error="PIN_MALFORMED")


# -- what is under .git/vmrag ----------------------------------------------------------------------


@pytest.mark.hooks("on")
def test_missing_knowledge_base_hints_where_to_get_it(project):
    shutil.rmtree(project.shared / "kb")
    looking = [("sync",), ("query", "faq"), ("list",), ("log",)]
    for command in [*looking, ("pin",), *WRITES]:
        error = refused(project, *command, code=2, error="NOT_INITIALIZED")
        assert f"{project.shared / 'kb'} is missing" in error["message"]
        assert (
            error["hint"].endswith("to start a new one")
            if command in looking
            else error["hint"] == "run 'vmrag clone' to fetch the knowledge base"
        )
    error = refused(project, "query", "faq", code=2, error="NOT_INITIALIZED")
    assert "git remote add origin URL" in error["hint"]
    assert refused(project, "init", "--knowledge-base", code=2, error="ALREADY_INITIALIZED")["hint"] == error["hint"]
    assert project.status()["state"] == "not_initialized"
    assert project.status()["hint"] == "run 'vmrag clone' to fetch the knowledge base"
    assert project.run("switch", "-q", "feature").returncode == 0
    follow(project, hints.list_alternatives(error["hint"])[1])
    assert project.status()["state"] == "in_sync"


def test_restored_knowledge_base_continues_at_its_old_state(project, tmp_path):
    project.put("note.md", "An uncommitted note.")
    (project.shared / "kb").rename(tmp_path / "kb")
    refused(project, "sync", code=2, error="NOT_INITIALIZED")
    (tmp_path / "kb").rename(project.shared / "kb")
    assert project.texts()["note.md"] == "An uncommitted note."


@pytest.mark.parametrize("content", [b"", b"garbage " * 4000, bytes(20_000)])
@pytest.mark.hooks("on")
def test_invalid_knowledge_base_is_kept_and_the_error_has_a_hint(project, content):
    file = project.shared / "kb" / "kb.doltlite"
    file.write_bytes(content)
    for command in [("status",), ("sync",), ("query", "faq"), ("list",), *WRITES]:
        error = refused(project, *command, code=3, error="DATABASE_ERROR")
        assert str(file) in error["message"]
        assert "vmrag clone" in error["hint"]
    assert file.read_bytes() == content
    assert project.run("switch", "-q", "feature").returncode == 0


def test_knowledge_base_of_which_hardly_anything_is_left_is_refused(project):
    file = project.shared / "kb" / "kb.doltlite"
    os.truncate(file, int(file.stat().st_size * 0.1))
    for command in [("status",), ("sync",), ("query", "faq"), ("list",), *WRITES]:
        refused(project, *command, code=3, error="DATABASE_ERROR")


@pytest.mark.parametrize("part", [0.7, 0.9])
def test_truncated_knowledge_base_is_rejected_until_the_user_continues(project, part):
    file = project.shared / "kb" / "kb.doltlite"
    os.truncate(file, int(file.stat().st_size * part))
    for command in [("status",), ("sync",), ("query", "faq"), ("list",), *WRITES]:
        error = refused(project, *command, code=3, error="DATABASE_ERROR")
    follow(project, error["hint"])
    report = project.run_quietly("status", "--json")
    assert (report.code, report.json["state"]) == (1, "missing")
    assert "faq.md" in project.vmrag("query", "faq").out
    for command in [("sync",), ("list",), ("show", "handbook/faq.md"), ("log",), *WRITES]:
        refused(project, *command, code=1, error="PIN_MISSING_REVISION")


def a_segment(damage: Callable[[Path], None]) -> Callable[[Path], None]:
    return lambda view: damage(segments_of(view)[0])


def truncated_vectors(segment: Path) -> None:
    os.truncate(next(segment.glob("*.i8")), 10)


FOLDERS: dict[str, Callable[[Path], None]] = {
    "a deleted seal": lambda folder: (folder / "seal.json").unlink(),
    "no directory": shutil.rmtree,
    "an empty directory": lambda folder: (shutil.rmtree(folder), folder.mkdir()),
    "a file in its place": lambda folder: (shutil.rmtree(folder), folder.write_bytes(b"garbage")),
}

DAMAGES: dict[str, Callable[[Path], None]] = {
    "a deleted file of a segment": a_segment(lambda segment: (segment / "words-1.idx").unlink()),
    "truncated vectors": a_segment(truncated_vectors),
    "a garbage manifest": a_segment(lambda segment: (segment / "manifest.sqlite").write_bytes(b"garbage" * 1000)),
    **{f"{name}, of a segment": a_segment(damage) for name, damage in FOLDERS.items()},
    "a deleted file of the view": lambda view: (view / "view").unlink(),
    "a truncated view": lambda view: os.truncate(view / "view", 10),
    "a garbage view": lambda view: (view / "view").write_bytes(b"garbage" * 1000),
    **{f"{name}, of the view": damage for name, damage in FOLDERS.items()},
}


@pytest.mark.parametrize("pin", ["sound", "malformed"])
@pytest.mark.parametrize("command", ["query faq", "sync"])
@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.sample(6)
def test_damaged_index_is_built_again_and_never_served(project, tmp_path, damage, command, pin):
    DAMAGES[damage](view_of(project))
    pinned = (project.top / ".dolt-version").read_bytes()
    if pin == "malformed":
        (project.top / ".dolt-version").write_text("garbage")
    else:
        report = project.status()
        assert (report["state"], report["hint"]) == ("drift", "run 'vmrag sync' to sync to the pin")
    result = project.run_quietly(*command.split())
    assert result.code == int((pin, command) == ("malformed", "sync"))
    if pin == "malformed":
        (project.top / ".dolt-version").write_bytes(pinned)
        project.vmrag("sync")
    (tmp_path / "scratch").mkdir()
    assert_whole(project, tmp_path / "scratch")


@pytest.mark.parametrize("name", ["words-1.idx", "seal.json", "manifest.sqlite", "*"])
@pytest.mark.parametrize("of", ["a segment", "the view"])
@pytest.mark.sample(4)
def test_index_files_with_other_bytes_of_same_size_are_rebuilt(project, tmp_path, of, name):
    if of == "a segment":
        [folder] = segments_of(view_of(project))
    else:
        folder, name = (
            view_of(project),
            name.replace("words-1.idx", "view").replace("manifest.sqlite", "proven.json"),
        )
    paths = [path for path in folder.rglob(name) if path.is_file()]
    assert paths
    for path in paths:
        path.write_bytes(b"\1" * path.stat().st_size)
    for command in [("query", "faq"), ADD, ("query", "install")]:
        result = project.run_quietly(*command, "--json")
        assert result.code == 0, result
        assert command == ADD or result.json["results"]
    (tmp_path / "scratch").mkdir()
    assert ("handbook", "new.md") in assert_whole(project, tmp_path / "scratch")


@pytest.mark.hooks("on")
def test_checkout_builds_index_despite_damaged_base_index(project, tmp_path):
    project.git("switch", "-q", "feature")
    shutil.rmtree(view_of(project))
    project.git("switch", "-q", "main")
    damaged = [path for segment in segments_of(view_of(project)) for path in segment.glob("words-*.idx")]
    assert damaged
    for path in damaged:
        path.write_bytes(b"\1" * path.stat().st_size)
    project.git("switch", "-q", "feature")
    (tmp_path / "scratch").mkdir()
    assert_whole(project, tmp_path / "scratch")


@pytest.mark.parametrize("content", [b"", b"\0garbage", b"[]", b'{"revision": 1, "view": null}', b"{}"])
@pytest.mark.parametrize("name", ["workspace.json", "applied"])
@pytest.mark.sample(4)
def test_garbage_workspace_file_is_written_again(project, tmp_path, name, content):
    project.put("note.md", "An uncommitted note.")
    (project.own / name).write_bytes(content)
    assert project.status()["state"] == "drift"
    assert project.texts()["note.md"] == "An uncommitted note."
    (tmp_path / "scratch").mkdir()
    assert_whole(project, tmp_path / "scratch")


def test_garbage_embedding_cache_is_set_aside_and_filled_again(project, tmp_path):
    (project.shared / "embeddings.sqlite").write_bytes(b"garbage" * 1000)
    said = project.vmrag(*ADD).err
    assert "renamed to embeddings.sqlite.corrupt-1" in said
    assert project.vmrag("sync", "--rebuild").err == ""
    (tmp_path / "scratch").mkdir()
    assert_whole(project, tmp_path / "scratch")


# -- machines --------------------------------------------------------------------------------------


def without_rights(project: Project, *command: str) -> Done:
    return start(project, *command, program=(*WITHOUT_RIGHTS, *cli.VMRAG)).done()


def test_read_only_folder_answers_queries_and_rejects_writes(project, tmp_path):
    project.put("note.md", "A note about zebras.")
    with read_only(project.shared):
        for command in [("status",), ("query", "zebras"), ("list",), ("show", "handbook/note.md"), ("log",), ("diff",)]:
            result = without_rights(project, *command)
            assert result.code == 0, (command, result)
        assert "note.md" in without_rights(project, "query", "zebras").out
        for command in WRITES:
            result = without_rights(project, *command, "--json")
            assert result.code == 3
            assert error_of(result)["code"] in ("FILE_SYSTEM_ERROR", "DATABASE_ERROR")
            assert str(project.shared) in error_of(result)["message"]
        git = ("git", "switch", "-q", "feature")
        moved = start(project, program=(*WITHOUT_RIGHTS, *git)).done()
        assert moved.code == 0
        assert len(moved.err.splitlines()) <= 1
    project.git("switch", "-q", "main")
    assert project.marks()["note.md"] == "added"
    (tmp_path / "scratch").mkdir()
    assert_whole(project, tmp_path / "scratch")


def test_commit_in_a_read_only_worktree_is_kept_and_pinned_later(project, tmp_path):
    project.put("note.md", "A note about zebras.")
    before = project.pinned
    project.top.chmod(0o555)
    try:
        result = without_rights(project, "commit", "-m", "note", "--json")
        assert (result.code, error_of(result)["code"]) == (1, "UNPINNED_REVISION")
        answer = without_rights(project, "query", "zebras")
        assert answer.code == 0
        assert "UNPINNED_REVISION" in answer.err
    finally:
        project.top.chmod(0o755)
    assert project.pinned == before
    assert "Finished an interrupted commit" in project.vmrag("sync").err
    assert project.pinned == error_of(result)["details"]["revision"]
    (tmp_path / "scratch").mkdir()
    assert ("handbook", "note.md") in assert_whole(project, tmp_path / "scratch")


@pytest.mark.parametrize(
    ("free", "imports", "commits"),
    [
        (0, "DATABASE_ERROR", "FILE_SYSTEM_ERROR"),
        (40_000, "DATABASE_ERROR", ""),
        (200_000, "", ""),
        pytest.param(600_000, "", "", marks=pytest.mark.long),
        pytest.param(1_200_000, "", "", marks=pytest.mark.long),
    ],
)
@pytest.mark.sample(2)
@pytest.mark.hooks("on")
def test_full_disk_loses_nothing_and_work_continues_with_room(stocked, tmp_path, free, imports, commits):
    stocked.put("note.md", "A note about zebras.")
    pages(stocked, range(500, 540), folder="more")
    expected = stocked.texts()
    with small_disk(stocked.shared, kilobytes=16_000) as fill:
        fill(free)
        result = stocked.run_quietly("import", "more", "--collection", "handbook", "--base", "more", "--json")
        if imports:
            _says_that_the_disk_is_full(result, imports)
        else:
            assert result.code == 0, result
            expected |= {path.name: path.read_text() for path in (stocked.top / "more").iterdir()}
        committed = stocked.run_quietly("commit", "-m", "on a full disk", "--json")
        if commits:
            _says_that_the_disk_is_full(committed, commits)
        else:
            assert committed.code == 0, committed
        assert stocked.ask("query", "zebras")["results"]
        stocked.git("stash", "-q") if committed.code == 0 else None
        moved = stocked.run("switch", "-q", "other")
        assert moved.returncode == 0
        assert len(moved.stderr.splitlines()) <= 1
        stocked.git("switch", "-q", "main", env={"VMRAG": "0"})
        stocked.git("stash", "pop", "-q", "--index") if committed.code == 0 else None
        (stocked.shared / "filler").unlink()
        stocked.vmrag("sync")
        assert stocked.texts() == expected
        (tmp_path / "scratch").mkdir()
        assert_whole(stocked, tmp_path / "scratch")
        if committed.code:
            stocked.vmrag("commit", "-m", "with room")
        assert stocked.status()["kb"]["dirty"] is False


def _says_that_the_disk_is_full(result: Done, code: str) -> None:
    error = error_of(result)
    assert (result.code, error["code"]) == (3, code)
    assert "full" in error["message"] or "No space" in error["message"]


def test_commit_without_room_for_the_journal_is_rejected(project, tmp_path):
    project.put("note.md", "A note about zebras.")
    before = project.pinned
    (project.shared / "journal").mkdir(exist_ok=True)
    with small_disk(project.shared / "journal", kilobytes=64) as fill:
        fill(0)
        error = refused(project, "commit", "-m", "note", code=3, error="FILE_SYSTEM_ERROR")
        assert hints.list_commands(error["hint"]) == ["vmrag gc --apply"]
        assert "make room" in error["hint"]
        report = project.status()
        assert (report["state"], report["kb"]["dirty"], project.pinned) == ("in_sync", True, before)
        assert [path.name for path in (project.shared / "journal").iterdir()] == ["filler"]
        (project.shared / "journal" / "filler").unlink()
        project.vmrag("commit", "-m", "note")
    (tmp_path / "scratch").mkdir()
    assert ("handbook", "note.md") in assert_whole(project, tmp_path / "scratch")


# -- repositories ----------------------------------------------------------------------------------

EVERYTHING = [
    ("status",),
    ("sync",),
    ("query", "x"),
    ("list",),
    ("init",),
    ("commit", "-m", "x"),
    ("install",),
    ("gc",),
]


def test_commands_outside_a_repository_report_no_repository(tmp_path, monkeypatch):
    isolate(monkeypatch, tmp_path / "home")
    (tmp_path / "nothing").mkdir()
    for command in EVERYTHING:
        error = refused(Project(tmp_path / "nothing"), *command, code=2, error="GIT_REPO_NOT_FOUND")
        assert error["hint"] == "change to a folder of your repository, or run 'git init' to create one"
        refused(Project(tmp_path / "absent"), *command, code=2, error="GIT_REPO_NOT_FOUND")
    assert list((tmp_path / "nothing").iterdir()) == []


def test_commands_in_a_bare_repository_suggest_a_worktree(tmp_path, monkeypatch):
    isolate(monkeypatch, tmp_path / "home")
    subprocess.run(["git", "init", "-q", "--bare", tmp_path / "bare"], check=True)
    for command in EVERYTHING:
        error = refused(Project(tmp_path / "bare"), *command, code=2, error="GIT_REPO_NOT_FOUND")
        assert "git worktree add" in error["hint"]
    assert not (tmp_path / "bare" / "vmrag").exists()


def test_loop_works_before_the_first_git_commit(tmp_path, monkeypatch):
    isolate(monkeypatch, tmp_path / "home")
    project = new_project(tmp_path / "unborn")
    refused(project, "query", "x", code=2, error="NOT_INITIALIZED")
    project.vmrag("init", "--knowledge-base", "--no-sources")
    project.put("note.md", "A note about zebras.")
    project.vmrag("commit", "-m", "note")
    assert "note.md" in project.vmrag("query", "zebras").out
    (tmp_path / "scratch").mkdir()
    assert_whole(project, tmp_path / "scratch")
    project.git("commit", "-q", "-m", "first")
    assert project.status()["state"] == "in_sync"


def conflict(project: Project) -> None:
    """Two branches that cannot be merged: `main`, where HEAD is, and `side`."""
    project.git("switch", "-q", "-c", "side")
    project.commit("side", **{"code.py": "1\n"})
    project.git("switch", "-q", "main")
    project.commit("main", **{"code.py": "2\n"})


UNFINISHED: dict[str, tuple[str, ...]] = {
    "merge": ("merge", "side"),
    "rebase": ("rebase", "side"),
    "cherry-pick": ("cherry-pick", "side"),
    "bisect": ("bisect", "start", "HEAD", "first"),
    "detached": ("switch", "-q", "--detach"),
}
WAYS_OUT = {"bisect": "git bisect reset", "detached": "git switch -c NAME", "merge": "git commit"}


@pytest.mark.parametrize("what", UNFINISHED)
@pytest.mark.sample(2)
def test_writes_during_a_git_operation_are_rejected_with_a_way_out(project, what):
    conflict(project)
    project.put("note.md", "An uncommitted note.")
    project.run(*UNFINISHED[what])
    for command in WRITES:
        error = refused(project, *command, code=3, error="GIT_BUSY")
        assert error["details"]["operation"] == what
        finish, *others = hints.list_commands(error["hint"])
        assert finish == WAYS_OUT.get(what, f"git {what} --continue")
        assert others == ([] if what in ("bisect", "detached") else ["git status"])  # it names the command to abort
    assert project.vmrag("query", "faq").code == 0
    project.run(
        *(("switch", "-q", "main") if what == "detached" else (what, "reset" if what == "bisect" else "--abort"))
    )
    assert project.marks()["note.md"] == "added"
    project.vmrag("commit", "-m", "note")


NAMES = [
    "größe/ü",
    "日本",
    "head",
    "Main",
    "MAIN",
    "0" * 40,
    "abcdefghijklmnopqrstuv0123456789",
    "vmrag-x",
    "vmrag_keep",
    "WORKING",
    "STAGED",
    "x" * 200,
    "@",
    b"latin-\xe9",
]


FEW_NAMES = ("größe/ü", "MAIN", "0" * 40, "vmrag_keep", "WORKING", "x" * 200, b"latin-\xe9")
"""One of each reason why an engine does not take a name: letters, case, a hash, ours, its own,
length, bytes.
"""


@pytest.mark.parametrize(
    "name", [name if name in FEW_NAMES else pytest.param(name, marks=pytest.mark.long) for name in NAMES]
)
@pytest.mark.sample(3)
def test_branch_name_that_no_engine_takes_works_like_any_other(project, tmp_path, name):
    made = subprocess.run(["git", "checkout", "-q", "-b", name], cwd=project.top, capture_output=True, check=False)
    if made.returncode:
        pytest.skip("git refuses the name")
    project.put("note.md", f"A note on {os.fsdecode(name)!r}.")
    project.ask("commit", "-m", "note")
    project.git("commit", "-q", "-m", "note")
    assert project.status()["state"] == "in_sync"
    project.ask("branch")
    project.git("switch", "-q", "main")
    assert "note.md" not in project.texts()
    project.git("switch", "-q", "-")
    assert "note.md" in project.texts()
    (tmp_path / "scratch").mkdir()
    assert_whole(project, tmp_path / "scratch")


def test_branches_that_differ_only_in_case_have_separate_documents(project):
    for name in ("topic", "Topic", "TOPIC"):
        project.git("switch", "-q", "-c", name, "main")
        project.put(f"{name}.md", f"On {name}.")
    for name in ("topic", "Topic", "TOPIC"):
        project.git("switch", "-q", name)
        assert [text for text in project.texts() if text.lower() == "topic.md"] == [f"{name}.md"]


# -- documents -------------------------------------------------------------------------------------

IDS = [
    "two words",
    "größe/日本",
    "a_chunk_0",
    "a",
    "x" * 255,
    "../up",
    "/root",
    "a:b",
    "-x",
    " ",
    "'\"",
    "\U0001f600",
    "%s",
    "$HOME",
]


def test_odd_document_ids_are_kept_exactly(project, tmp_path):
    for number, doc_id in enumerate(IDS):
        project.put(doc_id, f"Text number {number}. " * 60)
    project.vmrag("commit", "-m", "odd ids")
    texts = project.texts()
    for number, doc_id in enumerate(IDS):
        assert texts[doc_id] == f"Text number {number}. " * 60
    (tmp_path / "scratch").mkdir()
    assert {("handbook", doc_id) for doc_id in IDS} <= assert_whole(project, tmp_path / "scratch")
    for doc_id in IDS:
        project.vmrag("rm", "--collection", "handbook", "--", doc_id)
    (tmp_path / "again").mkdir()
    assert not {("handbook", doc_id) for doc_id in IDS} & assert_whole(project, tmp_path / "again")


@pytest.mark.parametrize("doc_id", ["", "x" * 256, "a\nb", "a\tb", "a\x7fb", "a\udce9b"])
def test_impossible_document_id_is_refused(project, doc_id):
    before = project.texts()
    project.write("docs/setup.md", "text")
    refused(project, *ADD[:-1], doc_id, code=2, error="INVALID_NAME")
    assert project.texts() == before


@pytest.mark.parametrize("name", ["", "x", "a b", "größe", ".hidden", "a..b", "127.0.0.1", "x" * 256])
def test_impossible_collection_name_is_refused_with_one_that_works(project, name):
    error = refused(project, "import", "docs", "--collection", name, code=2, error="INVALID_NAME")
    assert "--collection " in error["hint"]


# -- settings --------------------------------------------------------------------------------------

SETTINGS = {
    "embedding:\n  model: [\n": 2,
    "embedding:\n\tmodel: hash\n": 2,
    "embeding:\n  model: hash\n": 1,
    "index:\n  keep_mb: many\n": 2,
    "embedding:\n  model: gpt\n": 2,
    "# a comment\nengine: &x doltlite\n": 2,
    "embedding:\n  model: hash\n  model: hash\n": 3,
    "- a\n": 1,
}


@pytest.mark.parametrize("text", SETTINGS)
@pytest.mark.sample(3)
@pytest.mark.hooks("on")
def test_malformed_settings_name_file_and_line_and_stop_everything(project, text):
    project.write(".vmrag.yaml", text)
    for command in [("status",), ("query", "faq"), *WRITES]:
        error = refused(project, *command, code=2, error="CONFIG_INVALID")
        assert error["message"].startswith(f".vmrag.yaml, line {SETTINGS[text]}: ")
        assert error["details"]["line"] == SETTINGS[text]
    assert project.run("switch", "-q", "feature").returncode != 128  # git's own business goes on


@pytest.mark.parametrize("what", ["a folder", "a link to a device", "a pipe"])
def test_settings_other_than_a_regular_file_are_rejected(project, what):
    path = project.top / ".vmrag.yaml"
    path.unlink()
    make = {
        "a folder": path.mkdir,
        "a link to a device": lambda: path.symlink_to("/dev/zero"),
        "a pipe": lambda: os.mkfifo(path),
    }
    make[what]()
    error = refused(project, "query", "faq", code=2, error="CONFIG_INVALID")
    assert error["message"].endswith(", not a file.")


def test_new_embedding_model_applies_to_new_collections_only(project, tmp_path):
    project.write(".vmrag.yaml", "embedding:\n  model: default\n")
    project.put("more.md", "The automobile needs fuel.")
    project.put("car.md", "The automobile needs fuel.", collection="vehicles")
    collections = {result["collection"] for result in project.ask("query", "car", "--mode", "vector")["results"]}
    assert collections == {"handbook", "vehicles"}
    (tmp_path / "scratch").mkdir()
    assert_whole(project, tmp_path / "scratch")


# -- the command line ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (["frob"], "no such command: 'frob'"),
        (["qery", "x"], "Did you mean 'query'?"),
        (["search", "x"], "Did you mean 'query'?"),
        (["query", "two", "words"], "unexpected extra argument"),
        (["query"], "missing argument"),
        (["query", "x", "--nope"], "no such option"),
        (["query", "x", "-k", "0"], "0 is not in the range"),
        (["query", "x", "--mode", "q"], "'q' is not one of"),
        (["add", "a.md"], "no --collection is given"),
        (["log", "-n", "-1"], "-1 is not in the range"),
        (["completion", "tcsh"], "'tcsh' is not one of"),
    ],
)
def test_command_line_that_cannot_be_meant_is_a_usage_error(project, line, says):
    words = project.run_quietly(*line)
    assert words.code == 2
    assert words.out == ""
    assert says in words.err
    assert re.search(r"(?m)^error: ", words.err)
    assert "Error:" not in words.err
    error = error_of(project.run_quietly(*line, "--json"))
    assert error["code"] == "INVALID_PARAMETER"
    assert says in error["message"]
    assert ("in quotes" in error["hint"]) == ("extra argument" in says)
    assert "vmrag" in error["hint"]


def test_option_without_its_value_names_the_help_of_the_command(project):
    assert project.run_quietly("commit", "-m").err.endswith("hint: run 'vmrag commit --help' to see its options\n")


def test_vmrag_without_a_command_prints_the_help_once(project):
    said = project.vmrag(code=2)
    assert said.out == ""
    assert said.err.count("Usage:") == 1
    assert "error:" not in said.err


def test_commit_without_words_is_refused(project):
    refused(project, "commit", "-m", " ", code=2, error="MESSAGE_REQUIRED")


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (["query", "x", "--at", "nope"], "GIT_COMMIT_NOT_FOUND"),
        (["query", "x", "--collection", "nope"], "COLLECTION_NOT_FOUND"),
        (["list", "--collection", "handbok"], "COLLECTION_NOT_FOUND"),
        (["show", "handbook/nope"], "DOCUMENT_NOT_FOUND"),
        (["show", "nope"], "DOCUMENT_NOT_FOUND"),
        (["rm", "nope", "--collection", "handbook"], "DOCUMENT_NOT_FOUND"),
        (["add", "nope.md", "--collection", "handbook"], "FILE_SYSTEM_ERROR"),
        (["pin", "nope"], "BRANCH_NOT_FOUND"),
    ],
)
def test_missing_objects_are_reported_with_a_hint(project, line, code):
    refused(project, *line, code=3, error=code)


# -- Ctrl-C ----------------------------------------------------------------------------------------


def interrupted(project: Project, moment: float, *command: str) -> Done:
    """Ctrl-C in a terminal: git and cp get it, too."""
    running = start(project, *command)
    time.sleep(moment)
    running.signal(signal.SIGINT)
    return running.done()


_EARLY = r"Interrupted\. No stored data was lost\."  # while the program itself was loaded
_STORED = r"Interrupted\. (The knowledge base did not change|Everything stored before the interruption is kept \(vmrag status\))\."
_LATER = r" The next vmrag command updates the index\."
INTERRUPTED = {
    "import": rf"{_EARLY}|{_STORED}({_LATER})?",
    "commit": rf"{_EARLY}|{_STORED}({_LATER}| The next vmrag command finishes the interrupted commit\.)?",
    "sync": rf"{_EARLY}|Interrupted\. The knowledge base did not change\.({_LATER})?",
}


@pytest.mark.parametrize(
    "moments", [(0.5, 0.8), pytest.param((0.35, 0.65), marks=pytest.mark.long)], ids=["some", "others"]
)
@pytest.mark.parametrize("command", ["commit", "import", "sync"])
@pytest.mark.sample(1)
def test_ctrl_c_prints_one_line_and_the_next_run_continues(stocked, tmp_path, command, moments):
    pages(stocked, range(2000, 2150), folder="more")
    new = {path.name: path.read_text() for path in (stocked.top / "more").iterdir()}
    line = {
        "import": ("import", "more", "--collection", "handbook", "--base", "more"),
        "commit": ("commit", "-m", "x"),
        "sync": ("sync", "--rebuild"),
    }[command]
    expected = stocked.texts()
    if command != "import":
        stocked.vmrag("import", "more", "--collection", "handbook", "--base", "more")
        expected |= new
    shutil.copytree(stocked.top, tmp_path / "measured", symlinks=True)
    duration = cli.measure_duration(Project(tmp_path / "measured"), *line)
    hits = 0
    earlier = (0.3, 0.2, 0.12, 0.07)  # a busy machine may have taken much longer when it was measured
    for number, part in enumerate((*moments, *earlier)):
        if hits and number >= len(moments):
            break
        shutil.copytree(stocked.top, tmp_path / f"copy-{number}", symlinks=True)
        copy = Project(tmp_path / f"copy-{number}")
        before, before_texts = copy.pinned, copy.texts()
        result = interrupted(copy, duration * part, *line)
        assert result.code in (0, 130) or (result.code == -signal.SIGINT and result.out), result  # or at the end
        if result.code == 130:
            hits += 1
            assert result.out == ""
            text = result.err.strip()
            assert re.fullmatch(INTERRUPTED[command], text), text
            if "did not change" in text:
                assert copy.texts() == before_texts
        copy.vmrag("sync")
        texts = copy.texts()
        assert texts in (expected, expected | new)
        (tmp_path / f"scratch-{number}").mkdir()
        assert_whole(copy, tmp_path / f"scratch-{number}")
        assert copy.status()["state"] == "in_sync"
        if command == "commit":
            assert copy.status()["kb"]["dirty"] == (copy.pinned == before)
    assert hits
