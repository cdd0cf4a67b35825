"""Each line that `vmrag init` prints is what it did."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.repos import isolate
from tests.support.terminal import Project, new_project
from vmrag_link import hints


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    isolate(monkeypatch, tmp_path / "home")
    return new_project(tmp_path / "project")


def test_file_with_other_changes_is_not_reported_as_a_busy_git(project: Project) -> None:
    project.write(".gitattributes", "*.md text\n")
    said = project.vmrag("init", "--knowledge-base", "--no-sources", "--no-hooks").out
    assert "Wrote and staged .dolt-version\n" in said
    assert (
        "Wrote .gitattributes, which has your unstaged changes.\nhint: run 'git add .gitattributes' to stage all of them"
        in said
    )
    assert "busy" not in said
    assert project.git("diff", "--cached", "--name-only") == ".dolt-version"


def test_init_lists_only_installed_parts(project: Project) -> None:
    hooks = project.top / ".git" / "hooks"
    said = project.vmrag("init", "--knowledge-base", "--no-sources").out
    assert f"Installed the git hooks in {hooks} and the merge driver\n" in said
    assert "hint: run 'vmrag add FILE --collection NAME'" in said
    project.git("commit", "-q", "-m", "first")
    project.write(".gitattributes", "")
    project.git("add", "-A")
    again = project.vmrag("init", "--knowledge-base", "--no-sources").out
    assert again.startswith("Wrote and staged .gitattributes\nhint: ")
    project.git("config", "--remove-section", "merge.vmrag")
    shown = project.vmrag("init", "--knowledge-base", "--no-sources").out
    assert shown.startswith("Installed the merge driver\nhint: ")


def test_init_reuses_the_knowledge_base_of_another_branch(project: Project) -> None:
    project.vmrag("init", "--knowledge-base", "--no-sources", "--no-hooks")
    project.git("commit", "-q", "-m", "first")
    project.git("switch", "-q", "--orphan", "other")
    project.write("docs/a.md", "a")
    said = project.vmrag("init", "--knowledge-base", "--no-sources", "--no-hooks").out
    assert "Started" not in said
    assert f"Pinned revision {project.pinned[:7]} of the knowledge base in {project.shared / 'kb'}\n" in said


def test_copy_without_sources_is_removed_by_the_suggested_commands(project: Project) -> None:
    project.vmrag("init", "--knowledge-base", "--no-sources", "--no-hooks")
    project.write("docs/a.md", "a")
    project.git("add", "-A")
    project.vmrag("add", "docs/a.md", "--collection", "handbook", "--copy")
    project.vmrag("commit", "--git", "-m", "A copy")
    assert "run 'vmrag init && vmrag sources dedupe' to search the files instead" in project.vmrag("status").out
    assert "hint: run 'git commit -m" in project.vmrag("init").out
    assert "Removed 1 stored copy" in project.vmrag("sources", "dedupe").out


def test_hooks_outside_are_not_reported_as_active(project: Project, tmp_path: Path) -> None:
    project.vmrag("init", "--knowledge-base", "--no-sources", "--no-hooks")
    project.vmrag("install", "--worktree")
    project.git("add", "-A")
    project.git("commit", "-q", "-m", "first")
    project.git("worktree", "add", "-q", "-b", "other", str(tmp_path / "other"))
    other = Project(tmp_path / "other")
    other.write(".gitattributes", "")
    other.git("add", "-A")
    assert (
        "The git hooks act only in other worktrees; run 'vmrag install --worktree' to use them in this one too"
        in other.vmrag("init", "--knowledge-base", "--no-sources").out
    )


def test_init_reports_lock_of_killed_git_and_how_to_remove_it(project: Project) -> None:
    lock = project.top / ".git" / "config.lock"
    lock.touch()
    refused = project.vmrag("init", "--knowledge-base", "--no-sources", "--json", code=3).error
    assert refused["code"] == "GIT_FAILED"
    assert hints.list_commands(refused["hint"]) == ["pgrep -fl git"]
    assert f"remove {lock} if that command died" in refused["hint"]
    assert "rm " not in refused["hint"]
    lock.unlink()
    project.vmrag("init", "--knowledge-base", "--no-sources")
