"""Output for a user who runs only git, in a repository with vmrag's hooks."""

from __future__ import annotations

import os
import re
import subprocess

import pytest

from tests.support import terminal
from tests.support.repos import DATABASE_FILE
from tests.support.terminal import Project

template, project = terminal.template, terminal.project


def said(project: Project, *arguments: str, env: dict[str, str] | None = None) -> list[str]:
    """Our lines on stderr; git itself must succeed."""
    result = project.run(*arguments, env=env)
    assert result.returncode == 0, result.stderr
    assert "vmrag" not in result.stdout
    return [line for line in result.stderr.splitlines() if "vmrag" in line]


@pytest.mark.parametrize("command", [["checkout", "feature"], ["switch", "feature"], ["checkout", "-f", "feature"]])
def test_checkout_that_moves_the_knowledge_prints_one_line(project, command):
    lines = said(project, *command)
    assert lines == [f"vmrag: the knowledge base is now at {project.pinned[:7]} (+1 ~1 -2 documents)"]
    assert said(project, "checkout", "-q", "main") == [
        f"vmrag: the knowledge base is now at {project.pinned[:7]} (+2 ~1 -1 documents)"
    ]


def test_hooks_print_nothing_if_no_knowledge_moves(project):
    project.write("code.py", "1")
    assert said(project, "add", "code.py") == []
    assert said(project, "commit", "-m", "code") == []
    assert said(project, "commit", "--amend", "-m", "code only") == []
    assert said(project, "switch", "-c", "same") == []
    assert said(project, "switch", "main") == []
    assert said(project, "checkout", "--", "code.py") == []
    assert said(project, "checkout", "HEAD~0") == []
    assert said(project, "switch", "-") == []
    assert said(project, "stash", "list") == []
    assert said(project, "merge", "main") == []
    assert project.status()["state"] == "in_sync"


def test_fast_forward_and_pull_print_one_line(project):
    project.git("switch", "-q", "-c", "behind", "first")
    assert len(said(project, "merge", "main")) == 1
    assert said(project, "merge", "main") == []
    project.git("switch", "-q", "-c", "other", "first")
    assert len(said(project, "pull", ".", "feature")) == 1
    assert project.pinned == project.status()["kb"]["revision"]


def test_rebase_of_many_commits_prints_at_most_one_line(project):
    project.git("switch", "-q", "-c", "side", "first")
    for number in range(6):
        project.commit(f"code {number}", **{f"code{number}.py": "1"})
    lines = said(project, "rebase", "feature")
    assert lines == [f"vmrag: the knowledge base is now at {project.pinned[:7]} (+1 ~1 -1 documents)"]
    assert project.status()["state"] == "in_sync"


def test_new_worktree_is_at_its_pin_before_the_first_query(project, tmp_path):
    lines = said(project, "worktree", "add", "-q", str(tmp_path / "side"), "feature")
    side = Project(tmp_path / "side")
    assert len(lines) == 1
    assert f"the knowledge base is now at {side.pinned[:7]}" in lines[0]
    assert side.status()["state"] == "in_sync"
    assert said(side, "switch", "-q", "--detach", "main")[0].startswith(
        f"vmrag: the knowledge base is now at {side.pinned[:7]}"
    )
    assert project.status()["state"] == "in_sync"


def test_moved_uncommitted_documents_are_named_in_the_line(project):
    project.git("switch", "-q", "-c", "behind", "first")
    project.put("draft.md", "A draft.")
    lines = said(project, "merge", "-q", "main")
    assert len(lines) == 1
    assert lines[0].endswith(f"1 uncommitted document of 'behind' moved to revision {project.pinned[:7]}.")
    assert project.marks()["draft.md"] == "added"


def test_merge_of_knowledge_prints_one_line_and_holds_both_sides(project):
    lines = said(project, "merge", "--no-edit", "feature")
    assert lines == [f"vmrag: the knowledge base is now at {project.pinned[:7]} (+1 ~1 -1 documents)"]
    assert project.marks().keys() == {"setup.md", "rest.md", "faq.md", "uv.md"}


def test_merge_conflict_prints_one_line_with_the_command_to_type(project):
    project.put("rest.md", "Rest on Sundays.")
    project.record("rest")
    result = project.run("merge", "--no-edit", "feature")
    assert result.returncode == 1
    assert [line for line in result.stderr.splitlines() if "vmrag" in line] == [
        "vmrag: the knowledge bases of the two sides have a conflict in handbook/rest.md; run 'vmrag resolve' to resolve the conflicts"
    ]
    assert "CONFLICT (content): Merge conflict in .dolt-version" in result.stdout
    assert said(project, "merge", "--abort") == []
    assert project.status()["state"] == "in_sync"


def test_quiet_hooks_work_without_output(project):
    project.git("config", "vmrag.hooks.quiet", "true")
    assert said(project, "switch", "feature") == []
    assert project.status()["state"] == "in_sync"


def test_quiet_hooks_still_report_commits_pushes_and_omissions(project, tmp_path):
    project.git("config", "vmrag.hooks.quiet", "true")
    project.git("init", "-q", "--bare", str(tmp_path / "hub.git"))
    project.git("remote", "add", "origin", str(tmp_path / "hub.git"))
    project.put("draft", "A draft.")
    (line,) = said(project, "commit", "-q", "--allow-empty", "-m", "without it")
    assert "are not committed, so this commit does not pin them" in line
    project.git("config", "vmrag.hooks.on-dirty", "commit")
    (line,) = said(project, "commit", "-q", "--allow-empty", "-m", "with it")
    assert line.startswith("vmrag: committed the documents as ")
    assert said(project, "push", "-q", "origin", "main") == [
        "vmrag: pushed the documents that these commits pin to origin"
    ]


def test_quiet_hooks_still_report_problems(project):
    project.git("config", "vmrag.hooks.quiet", "true")
    project.git("switch", "-q", "-c", "broken")
    project.write(".dolt-version", "{")
    project.git("commit", "-q", "-a", "--no-verify", "-m", "broken")
    project.git("switch", "-q", "main")
    lines = said(project, "switch", "broken")
    assert len(lines) == 1
    assert ".dolt-version, line 1" in lines[0]


@pytest.mark.parametrize("how", ["setting", "environment"])
def test_switched_off_hooks_do_nothing_and_the_next_query_catches_up(project, how):
    env = {"VMRAG": "0"} if how == "environment" else None
    if how == "setting":
        project.git("config", "vmrag.hooks.sync", "off")
    assert said(project, "switch", "feature", env=env) == []
    assert project.status()["state"] == "drift"
    assert project.ask("query", "uv")["kb"]["commit"] == project.pinned
    assert project.status()["state"] == "in_sync"


@pytest.mark.parametrize(
    ("pin", "words"),
    [
        ("{\n", ".dolt-version, line"),
        ("<<<<<<< HEAD\n", "conflict"),
        ('{"dolt_remote": "git:", "dolt_branch": "main", "dolt_commit": "%s", "linked_at": "2026-01-02T03:04:05Z"}' % ("0" * 40), "not in this knowledge base"),
    ],
    ids=["malformed", "conflict", "missing"],
)  # fmt: skip
@pytest.mark.sample(1)
def test_pin_that_cannot_be_followed_never_stops_git(project, pin, words):
    project.git("switch", "-q", "-c", "broken")
    project.write(".dolt-version", pin)
    project.git("commit", "-q", "-a", "--no-verify", "-m", "broken")
    project.git("switch", "-q", "main")
    lines = said(project, "switch", "broken")
    assert len(lines) == 1
    assert words in lines[0]
    assert re.search(r"; run '(git|vmrag) ", lines[0])
    assert said(project, "switch", "main") == []
    assert project.status()["state"] == "in_sync"


def test_damaged_knowledge_base_never_stops_git(project):
    database = project.shared / "kb" / DATABASE_FILE
    database.write_bytes(b"no database at all" * 100)
    lines = said(project, "switch", "feature")
    assert len(lines) == 1
    assert "Traceback" not in lines[0]
    assert project.git("symbolic-ref", "--short", "HEAD") == "feature"


def test_repository_without_knowledge_notices_nothing(project, tmp_path):
    project.git("clone", "-q", str(project.top), str(tmp_path / "clone"))
    clone = Project(tmp_path / "clone")
    clone.vmrag("install")
    assert said(clone, "switch", "feature") == []


def test_uninstall_restores_the_previous_hook(project, monkeypatch):
    monkeypatch.setenv("VMRAG_HOOKS_PLACE", "files")
    hooks = project.top / ".git/hooks"
    project.vmrag("uninstall")
    assert not (hooks / "post-checkout").exists()
    assert said(project, "switch", "feature") == []
    project.vmrag("sync")
    (hooks / "post-checkout").write_text("#!/bin/sh\necho mine >&2\n")
    (hooks / "post-checkout").chmod(0o755)
    assert "The existing post-checkout hook runs first." in project.vmrag("install").out
    both = project.run("switch", "-q", "main").stderr.splitlines()
    assert both[0] == "mine"
    assert both[1].startswith("vmrag: the knowledge base is now at")
    assert "Restored the earlier post-checkout hook." in project.vmrag("uninstall").out
    assert (hooks / "post-checkout").read_text() == "#!/bin/sh\necho mine >&2\n"
    assert project.run("switch", "-q", "feature").stderr.splitlines() == ["mine"]


def test_git_run_from_a_hook_moves_the_right_repository(project, tmp_path):
    """git gives its hooks GIT_DIR and GIT_INDEX_FILE; `git -C` from elsewhere gives neither."""
    result = subprocess.run(
        ["git", "--git-dir", project.top / ".git", "--work-tree", project.top, "switch", "feature"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0
    assert f"vmrag: the knowledge base is now at {project.pinned[:7]}" in result.stderr
    assert project.status()["state"] == "in_sync"


def test_lines_are_in_colour_only_on_a_terminal(project, monkeypatch):

    def shown(branch: str, **environ: str) -> str:
        monkeypatch.setenv("TERM", "xterm")
        main, far = os.openpty()
        result = subprocess.run(
            ["git", "switch", "-q", branch], cwd=project.top, env=os.environ | environ, stderr=far, check=True
        )
        assert result.returncode == 0
        os.close(far)
        said = os.read(main, 10_000).decode()
        os.close(main)
        return said

    assert shown("feature").startswith("\x1b[36mvmrag:\x1b[0m the knowledge base is now at")
    assert shown("main", NO_COLOR="1").startswith("vmrag: the knowledge base is now at")
    assert said(project, "switch", "feature")[0].startswith("vmrag: the knowledge base is now at")


NOTHING = """repos:
- repo: local
  hooks:
  - {id: nothing, name: nothing, language: system, entry: "true", always_run: true, pass_filenames: false}
"""


@pytest.mark.parametrize("first", ["ours", "theirs"])
def test_pre_commit_stashes_the_pin_and_no_document_moves(project, tmp_path, monkeypatch, first):
    """It checks what is unstaged out and puts it back; between the two the pin is another one."""
    monkeypatch.setenv("PRE_COMMIT_HOME", str(tmp_path / "pre-commit"))
    project.commit("config", **{".pre-commit-config.yaml": NOTHING})
    install = [terminal.SCRIPT.with_name("pre-commit"), "install"]
    if first == "theirs":
        project.vmrag("uninstall")
    subprocess.run(install, cwd=project.top, check=True, capture_output=True)
    project.vmrag("install")
    project.put("rest.md", "# Rest\n\nCommitted.\n")
    project.vmrag("commit", "-m", "rest")
    project.git("reset", "-q", ".dolt-version")
    project.put("rest.md", "# Rest\n\nNot committed.\n")
    pinned = project.pinned
    project.write("code.py", "1")
    project.git("add", "code.py")
    result = project.run("commit", "-m", "code")
    assert result.returncode == 0, result.stderr
    assert "Stashing unstaged files" in result.stderr
    assert project.pinned == pinned
    assert project.texts()["rest.md"] == "# Rest\n\nNot committed.\n"
    assert project.marks()["rest.md"] == "modified"
