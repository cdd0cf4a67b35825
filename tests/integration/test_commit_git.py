"""`vmrag commit` with a message from git's editor, and `vmrag commit --git`."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from pathlib import Path

import pytest

from tests.support import editors, screen, terminal
from tests.support.cli import run_patched
from tests.support.editors import MakeEditor
from tests.support.repos import isolate
from tests.support.screen import Screen
from tests.support.terminal import SCRIPT, Done, Project
from vmrag_link import hints

template, project, screens, make_editor = terminal.template, terminal.project, screen.screens, editors.make_editor

WRITE = (
    'printf "Explain uv\\n\\n#1 is a comment.\\nBecause\\npip is slow.\\n\\n" | cat - "$1" > "$1.new"; mv "$1.new" "$1"'
)
MESSAGE = "Explain uv\n\nBecause\npip is slow."


@pytest.fixture(autouse=True)
def _in_edit(project: Project) -> None:
    project.put("uv.md", "Use uv.")


def read_drafts(project: Project) -> list[str]:
    return [path.read_text() for path in (project.own / "drafts").glob("*/*")]


def read_message(project: Project) -> str:
    """Return the message of the newest revision."""
    return project.ask("log", "-n", "1")["revisions"][0]["message"]


def run_hint(project: Project, failed: Done) -> None:
    """Run the command that the hint names, as a user who pastes it."""
    command = hints.list_commands(failed.err.split("hint: ", 1)[1])[0]
    subprocess.run(["sh", "-c", command], cwd=project.top, check=True, capture_output=True)


def refuse_commits(project: Project) -> Path:
    """Install a pre-commit hook that refuses each commit."""
    hook = project.top / "refuse" / "pre-commit"
    hook.parent.mkdir()
    hook.write_text("#!/bin/sh\necho 'the linter found 3 errors' >&2\nexit 1\n")
    hook.chmod(0o755)
    project.git("config", "core.hooksPath", str(hook.parent))
    return hook


# -- the editor


def test_commit_takes_message_from_editor(project: Project, make_editor: MakeEditor, tmp_path: Path) -> None:
    project.drop("rest.md")
    project.put("setup.md", "# Setup\n")
    result = project.vmrag(
        "commit", env=make_editor(f'cp "$1" {tmp_path}/shown; basename "$1" > {tmp_path}/name\n{WRITE}')
    )
    assert result.out.splitlines()[0].endswith("] Explain uv")
    assert read_message(project) == MESSAGE
    assert set(project.marks().values()) == {None}
    assert (tmp_path / "name").read_text() == "COMMIT_EDITMSG\n"
    assert (tmp_path / "shown").read_text().splitlines() == [
        "",
        "# Please enter the message for your changes. Lines that begin with",
        "# this character are ignored, and an empty message aborts the commit.",
        "#",
        "# Documents to be committed to the knowledge base, on main:",
        "#\tremoved: handbook/rest.md",
        "#\tmodified: handbook/setup.md",
        "#\tadded: handbook/uv.md",
    ]
    assert read_drafts(project) == []


@pytest.mark.parametrize("character", [";", "auto"])
def test_commit_uses_comment_character_of_git(project: Project, make_editor: MakeEditor, character: str) -> None:
    project.git("config", "core.commentChar", character)
    mark = "#" if character == "auto" else character
    body = f'grep -q "^{mark}.added: handbook/uv.md" "$1" || exit 5; printf "Title\\n\\n;a\\n#b\\n" >> "$1"'
    project.vmrag("commit", env=make_editor(body))
    assert read_message(project) == ("Title\n\n;a" if mark == "#" else "Title\n\n#b")


@pytest.mark.parametrize("body", ["true", ': > "$1"', 'printf "\\n  \\n# x\\n" > "$1"'])
def test_commit_aborts_if_message_is_empty(project: Project, make_editor: MakeEditor, body: str) -> None:
    before = project.pinned
    for options in ([], ["--git"]):
        failed = project.vmrag("commit", *options, code=2, env=make_editor(body)).err
        assert failed == (
            "error: the message is empty, so nothing was committed\n"
            "hint: run 'vmrag commit -m \"What changed in the documents\"' to commit the documents\n"
        )
    assert project.vmrag("commit", "--json", code=2, env=make_editor(body)).error["code"] == "MESSAGE_REQUIRED"
    assert (project.pinned, project.marks()["uv.md"], read_drafts(project)) == (before, "added", [])


def test_commit_keeps_message_if_editor_fails(project: Project, make_editor: MakeEditor) -> None:
    failed = project.vmrag("commit", code=2, env=make_editor(f"{WRITE}\nexit 1")).err
    assert "the editor failed with exit code 1" in failed
    (text,) = read_drafts(project)
    assert text.startswith("Explain uv\n")
    assert project.marks()["uv.md"] == "added"


def test_commit_without_terminal_needs_message(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GIT_EDITOR")
    for options in ([], ["--git"]):
        failed = project.start("commit", *options, env={"EDITOR": "vi", "VISUAL": "vi"})
        assert (failed.code, failed.out) == (2, "")
        assert failed.err == (
            "error: missing commit message, and cannot open an editor without a terminal\n"
            "hint: run 'vmrag commit -m \"What changed in the documents\"' to commit the documents\n"
        )
    assert project.marks()["uv.md"] == "added"


def test_commit_opens_editor_on_terminal(
    project: Project, make_editor: MakeEditor, monkeypatch: pytest.MonkeyPatch, screens: list[Screen]
) -> None:
    command = make_editor('test -t 0 && test -t 1 || exit 5; echo message:; read answer; echo "$answer" > "$1"')
    monkeypatch.delenv("GIT_EDITOR")
    screens.append(Screen(project, "commit", "--git", EDITOR=command["GIT_EDITOR"]))
    screens[-1].expect("message:")
    screens[-1].answer("Typed by hand\n")
    assert screens[-1].end() == 0
    assert read_message(project) == project.git("log", "-1", "--format=%B") == "Typed by hand"


def test_commit_opens_no_editor_if_nothing_changed(project: Project, make_editor: MakeEditor) -> None:
    project.vmrag("commit", "-m", "first")
    failed = project.vmrag("commit", "--json", code=1, env=make_editor("exit 9")).error
    assert failed["code"] == "NO_CHANGES"
    project.git("checkout", "-q", "--detach")
    assert project.vmrag("commit", "--json", code=3, env=make_editor("exit 9")).error["code"] == "GIT_BUSY"


def test_commit_refuses_if_head_moved_while_editor_was_open(project: Project, make_editor: MakeEditor) -> None:
    project.git("commit", "-q", "-a", "-m", "clean", "--allow-empty")
    failed = project.vmrag("commit", code=1, env=make_editor(f"git switch -q feature || exit 8\n{WRITE}")).err
    assert "error: HEAD moved to another branch while you wrote the message, so nothing was committed\n" in failed
    assert "hint: run 'git switch main && vmrag commit' to return to the branch\n" in failed
    assert read_drafts(project) == [f"{MESSAGE}\n"]
    project.git("switch", "-q", "main")
    assert project.marks()["uv.md"] == "added"


def test_commit_lists_documents_stored_while_editor_was_open(project: Project, make_editor: MakeEditor) -> None:
    other = shlex.join([str(SCRIPT), "add", "-m", "Later.", "--collection", "handbook", "--id", "later.md"])
    result = project.vmrag("commit", env=make_editor(f"{other} > /dev/null || exit 8\n{WRITE}"))
    assert " also added: handbook/later.md, stored while you wrote the message" in result.out.splitlines()
    assert set(project.marks().values()) == {None}


def test_commit_from_editor_closes_open_merge(project: Project, make_editor: MakeEditor, tmp_path: Path) -> None:
    project.vmrag("commit", "--git", "-m", "ours")
    project.vmrag("merge", "feature", "--no-commit", code=None)
    project.vmrag("resolve", "--ours", code=None)
    project.vmrag("commit", "--git", env=make_editor(f'cp "$1" {tmp_path}/shown\n{WRITE}'))
    assert "# This commit finishes the merge of feature." in (tmp_path / "shown").read_text().splitlines()
    revision = project.ask("log", "-n", "1")["revisions"][0]
    assert (revision["message"], len(revision["parents"])) == (MESSAGE, 2)
    assert project.git("log", "-1", "--format=%B") == MESSAGE


# -- --git


def test_commit_git_commits_pin_and_staged_files(project: Project) -> None:
    project.write("staged.txt", "staged\n")
    project.git("add", "staged.txt")
    project.write("docs/rest.md", "unstaged\n")
    project.write("untracked.txt", "untracked\n")
    result = project.vmrag("commit", "--git", "-m", "Explain uv")
    lines = result.out.splitlines()
    assert lines[0] == f"[main {project.pinned[:7]}] Explain uv"
    assert lines[-1] == f"Committed to git as {project.git('rev-parse', 'HEAD')[:7]}, with the pin."
    assert project.git("show", "--format=%s", "--name-only").split() == ["Explain", "uv", ".dolt-version", "staged.txt"]
    assert json.loads(project.git("show", "HEAD:.dolt-version"))["dolt_commit"] == project.pinned
    assert read_message(project) == "Explain uv"
    assert project.git("status", "--short").splitlines() == ["M docs/rest.md", "?? untracked.txt"]
    assert project.status()["in_sync"]


def test_commit_git_uses_one_message_from_one_editor(project: Project, make_editor: MakeEditor, tmp_path: Path) -> None:
    project.write("staged.txt", "staged\n")
    project.git("add", "staged.txt")
    report = project.ask("commit", "--git", env=make_editor(f'cat "$1" >> {tmp_path}/shown\n{WRITE}'))
    shown = (tmp_path / "shown").read_text()
    assert shown.count("Please enter") == 1
    assert shown.splitlines()[-4:] == ["#", "# Files to be committed to git:", "#\t.dolt-version", "#\tstaged.txt"]
    assert report["git_commit"] == project.git("rev-parse", "HEAD")
    assert (report["revision"], report["staged"]) == (project.pinned, True)
    assert read_message(project) == project.git("log", "-1", "--format=%B") == MESSAGE
    assert read_drafts(project) == []


@pytest.mark.parametrize("message", ["#12 is fixed", "Title\n\n# a heading\ntext"])
@pytest.mark.parametrize("cleanup", ["strip", "scissors", "default"])
def test_commit_git_keeps_lines_of_option_that_look_like_comments(project: Project, message: str, cleanup: str) -> None:
    project.git("config", "commit.cleanup", cleanup)
    project.vmrag("commit", "--git", "-m", message)
    assert read_message(project) == project.git("log", "-1", "--format=%B") == message


def test_commit_git_uses_one_author(project: Project) -> None:
    project.vmrag("commit", "--git", "-m", "Explain uv", "--author", "grace@example.com")
    assert project.ask("log", "-n", "1")["revisions"][0]["author"] == "grace <grace@example.com>"
    assert project.git("log", "-1", "--format=%an <%ae> %cn") == "grace <grace@example.com> Ada Lovelace"


@pytest.mark.parametrize("message", ["Explain 'uv' & $(touch x)", MESSAGE], ids=["one line", "several lines"])
def test_commit_git_names_command_that_finishes_if_hook_refuses(project: Project, message: str) -> None:
    hook = refuse_commits(project)
    project.write("staged.txt", "staged\n")
    project.git("add", "staged.txt")
    head = project.git("rev-parse", "HEAD")
    failed = project.vmrag("commit", "--git", "-m", message, code=3)
    revision = project.pinned
    assert f"error: revision {revision[:7]} is committed to the knowledge base and its pin is staged" in failed.err
    assert read_message(project) == message
    assert project.git("rev-parse", "HEAD") == head
    assert project.git("diff", "--cached", "--name-only").split() == [".dolt-version", "staged.txt"]
    again = project.vmrag("commit", "--git", "-m", message.splitlines()[0], "--json", code=1).error
    assert (again["code"], hints.list_commands(again["hint"])[0][:4]) == ("NO_CHANGES", "git ")
    hook.unlink()
    run_hint(project, failed)
    assert project.git("log", "-1", "--format=%B") == message
    assert project.git("show", "--format=", "--name-only").split() == [".dolt-version", "staged.txt"]
    assert project.pinned == revision
    assert not (project.top / "x").exists()


def test_commit_git_reports_hook_in_json(project: Project) -> None:
    refuse_commits(project)
    failed = project.vmrag("commit", "--git", "-m", "Explain uv", "--json", code=3).error
    assert failed["code"] == "GIT_FAILED"
    assert failed["message"].endswith("its pin is staged, but git commit failed: the linter found 3 errors")
    assert hints.list_commands(failed["hint"]) == ['git commit -m "Explain uv"']
    assert failed["details"]["revision"] == project.pinned


def test_commit_git_keeps_message_of_editor_if_hook_refuses(project: Project, make_editor: MakeEditor) -> None:
    hook = refuse_commits(project)
    failed = project.vmrag("commit", "--git", code=3, env=make_editor(WRITE))
    assert read_drafts(project) == [f"{MESSAGE}\n"]
    hook.unlink()
    run_hint(project, failed)
    assert project.git("log", "-1", "--format=%B") == MESSAGE


def test_commit_git_without_identity_names_command_that_finishes(project: Project) -> None:
    project.git("config", "--global", "--unset", "user.email")
    project.git("config", "--global", "user.useConfigOnly", "true")
    before = project.pinned
    failed = project.vmrag("commit", "--git", "-m", "Explain uv", "--json", code=3).error
    assert "user.email" in failed["hint"]
    assert (project.pinned, project.marks()["uv.md"]) == (before, "added")
    failed = project.vmrag("commit", "--git", "-m", "Explain uv", "--author", "Grace <g@example.com>", code=3)
    assert "its pin is staged, but git commit failed" in failed.err
    assert 'hint: run \'git commit -m "Explain uv" --author="Grace <g@example.com>"\' to finish it' in failed.err
    project.git("config", "--global", "user.email", "ada@example.com")
    run_hint(project, failed)
    assert project.git("log", "-1", "--format=%ae %ce") == "g@example.com ada@example.com"


def test_commit_git_names_both_commands_while_index_is_locked(project: Project) -> None:
    locked = "from vmrag_link.git import staging as m; m.stage_path = lambda *_, **__: False"
    failed = run_patched(project, locked, "commit", "--git", "-m", "Explain uv")
    assert failed.code == 3
    assert "another git command has locked the index" in failed.err
    run_hint(project, failed)
    assert json.loads(project.git("show", "HEAD:.dolt-version"))["dolt_commit"] == project.pinned


def test_commit_git_refuses_without_auto_pin(project: Project) -> None:
    project.write(".vmrag.yaml", "auto_pin: false\nembedding:\n  model: hash\n")
    failed = project.vmrag("commit", "--git", "-m", "Explain uv", code=2).err
    assert 'hint: run \'vmrag commit -m "Explain uv" && vmrag pin && git commit -m "Explain uv"\'' in failed
    assert project.marks()["uv.md"] == "added"


def test_commit_git_needs_changed_documents(project: Project) -> None:
    project.vmrag("commit", "--git", "-m", "first")
    failed = project.vmrag("commit", "--git", "-m", "again", "--json", code=1).error
    assert failed["hint"] == "run 'vmrag import DIR --collection NAME' to store documents"
    project.write("staged.txt", "staged\n")
    project.git("add", "staged.txt")
    failed = project.vmrag("commit", "--git", "-m", "again", "--json", code=1).error
    assert failed["hint"] == "run 'git commit -m again' to commit the staged files"


KILLS = {
    "before git commit": "import vmrag_link.git.programs as m; m.commit_index = die",
    "after git commit": (
        "import vmrag_link.git.programs as m\ncommit = m.commit_index\n"
        "m.commit_index = lambda *values, **named: die(commit(*values, **named))"
    ),
}


@pytest.mark.parametrize("step", KILLS)
def test_commit_git_loses_nothing_if_killed(project: Project, step: str) -> None:
    killed = run_patched(project, KILLS[step], "commit", "--git", "-m", "Explain uv")
    assert killed.code == -9
    assert read_message(project) == "Explain uv"
    assert set(project.marks().values()) == {None}
    if step == "before git commit":
        assert project.git("diff", "--cached", "--name-only") == ".dolt-version"
        project.git("commit", "-q", "-m", "Explain uv")
    assert json.loads(project.git("show", "HEAD:.dolt-version"))["dolt_commit"] == project.pinned
    assert project.consistent()


def test_commit_git_names_command_that_finishes_if_interrupted(
    project: Project, screens: list[Screen], tmp_path: Path
) -> None:
    hook = refuse_commits(project)
    hook.write_text("#!/bin/sh\necho linting\nsleep 60\n")
    screens.append(Screen(project, "commit", "--git", "-m", "Explain uv", columns=200))
    screens[-1].expect("linting")
    screens[-1].answer("\x03")
    assert screens[-1].end() == 130
    assert f"Revision {project.pinned[:7]} is committed, and its pin is staged." in screens[-1].said
    assert 'To finish: git commit -m "Explain uv"' in screens[-1].said


def test_commit_git_works_in_first_commit_of_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    isolate(monkeypatch, tmp_path / "other-home")
    fresh = terminal.new_project(tmp_path / "fresh")
    fresh.git("add", ".vmrag.yaml")
    fresh.vmrag("add", "-m", "Use uv.", "--collection", "notes", "--id", "uv")
    fresh.vmrag("commit", "--git", "-m", "Start")
    assert fresh.git("ls-files").split() == [".dolt-version", ".gitattributes", ".vmrag.yaml"]
    assert fresh.git("status", "--short") == ""


def test_commit_git_works_from_subfolder_and_with_variables_of_git(project: Project) -> None:
    environ = os.environ | {"GIT_DIR": "/nowhere", "GIT_INDEX_FILE": "/nowhere/index"}
    result = subprocess.run(
        [SCRIPT, "commit", "--git", "-m", "Explain uv"],
        cwd=project.top / "docs",
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert project.git("log", "-1", "--format=%s") == "Explain uv"
