"""`dolt_link_git`: which commit of the knowledge base belongs to a commit of the code, as a row and
as a file.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support import terminal
from tests.support.mcp import Tools
from tests.support.repos import make_repo
from tests.support.terminal import Project

pytestmark = pytest.mark.hooks("off")

template, project = terminal.template, terminal.project


@pytest.fixture
def tools(project: Project) -> Tools:
    return Tools(project.top)


def rows(project: Project) -> dict[str, str]:
    return {link["git_commit"]: link["dolt_commit"] for link in project.ask("links")["links"]}


def test_repository_outside_work_tree_needs_a_root_set_by_the_person(project, tools, tmp_path):
    other = make_repo(project.top.parent / "other")
    (project.top / "way").symlink_to(other.top)
    (project.top / "ring").symlink_to("ring")
    other.commit("code")
    for path in ("../other", str(other.top), "way", ".git/.."):
        made, _ = tools.run("dolt_link_git", {"git_repo_path": path, "bidirectional": True})
        assert made.get("code") == (None if path == ".git/.." else "ACCESS_DENIED"), path
    tools.error("GIT_REPO_NOT_FOUND", "dolt_link_git", git_repo_path="ring")
    assert not (other.top / ".dolt-version").exists()


@pytest.mark.parametrize("within", ["a folder", "its common directory elsewhere"])
def test_repository_among_the_files_of_a_clone_starts_no_program(project, tools, tmp_path, within):
    carried = project.top / "vendor/carried"
    project.git("init", "-q", "--bare", str(carried))
    project.git("-C", str(carried), "update-ref", "HEAD", empty_commit(project, carried))
    (carried / "wt").mkdir()
    settings = f"[core]\n\tbare = false\n\tworktree = {carried}/wt\n\tfsmonitor = touch {tmp_path}/started; false\n"
    (carried / "config").write_text("[core]\n\trepositoryformatversion = 0\n" + settings)
    if within != "a folder":  # which a configuration for one work tree may add to
        project.git("config", "extensions.worktreeConfig", "true")
        (carried / "commondir").write_text("../../.git\n")
        (carried / "config.worktree").write_text(settings)
    for path in ("vendor/carried", "vendor/carried/refs"):
        tools.error("ACCESS_DENIED", "dolt_link_git", git_repo_path=path, bidirectional=True)
    assert not (tmp_path / "started").exists()


def empty_commit(project: Project, repository: Path) -> str:
    tree = project.git("-C", str(repository), "mktree")
    return project.git("-C", str(repository), "commit-tree", "-m", "x", tree)


def test_external_repository_is_named_from_the_worktree(project, tools):
    other = make_repo(project.top.parent / "other")
    project.git("config", "vmrag.fileRoot", str(other.top))
    commit = other.commit("code")
    made = tools("dolt_link_git", git_repo_path="../other", bidirectional=True)
    assert made["link"]["git_commit"] == commit
    assert made["link"]["git_repo"] == str(other.top)
    assert json.loads((other.top / ".dolt-version").read_text())["dolt_commit"] == project.pinned
    assert project.git("status", "--porcelain") == ""


OUTSIDE = (
    "../kb.dolt-version",
    "/tmp/kb.dolt-version",
    ".git/kb.dolt-version",
    ".GIT/hooks/kb.dolt-version",
    "git~1/kb.dolt-version",
    "\u200c.git/kb.dolt-version",
    "docs/../../kb.dolt-version",
    ".",
    "out/kb.dolt-version",
    "inner/kb.dolt-version",
    "ring/kb.dolt-version",
    "link.dolt-version",
    "a\0.dolt-version",
    ".github/workflows/x.yml",
    ".github/workflows/.dolt-version",
    "docs/.hidden/kb.dolt-version",
    "GITHUB~1/kb.dolt-version",
    ".dolt-version/kb.dolt-version",
    ".kb.dolt-version",
)


def test_link_file_outside_work_tree_or_in_dot_folders_is_refused(project, tools, tmp_path):
    (project.top / "out").symlink_to(tmp_path)
    (project.top / "folder").mkdir()
    (project.top / "inner").symlink_to("folder")
    (project.top / "ring").symlink_to("ring")
    (project.top / "link.dolt-version").symlink_to(tmp_path / "elsewhere")
    before = rows(project)
    for file in OUTSIDE:
        refused = tools.error("INVALID_PARAMETER", "dolt_link_git", bidirectional=True, link_file=file)
        assert refused["details"].items() >= {"parameter": "link_file"}.items()
    assert rows(project) == before
    assert project.git("diff", "--cached", "--name-only") == ""
    assert not (project.top / ".github").exists()


def test_new_link_file_has_a_name_that_no_other_program_reads(project, tools):
    for file in (
        "conftest.py",
        "Makefile",
        "package.json",
        "docs/link.json",
        "a.pth",
        "kb.dolt-version.py",
        "kb.dolt-version.",
        "dolt-version",
    ):
        for empty in (False, True):
            if empty:
                project.write(file, "")
            refused = tools.error("INVALID_PARAMETER", "dolt_link_git", bidirectional=True, link_file=file)
            assert "kb.dolt-version" in str(refused["suggestions"])
        assert (project.top / file).read_bytes() == b""
    assert project.git("diff", "--cached", "--name-only") == ""


def test_link_file_of_another_name_that_was_made_before_is_followed(project, tools):
    (project.top / "docs/link.json").write_bytes((project.top / ".dolt-version").read_bytes())
    revision = project.record("more", more="more")
    tools("dolt_link_git", bidirectional=True, link_file="docs/link.json")
    assert json.loads((project.top / "docs/link.json").read_text())["dolt_commit"] == revision


def test_file_that_holds_something_else_is_not_overwritten(project, tools):
    before = rows(project)
    for file in ("README.md", ".gitattributes", "notes.dolt-version", ".vmrag.yaml"):
        (project.top / file).write_text(text := "# An edit that is not committed\n")
        tools.error("INVALID_PARAMETER", "dolt_link_git", bidirectional=True, link_file=file)
        assert (project.top / file).read_text() == text
    assert rows(project) == before


def test_empty_file_becomes_the_link_file(project, tools):
    project.write("kb.dolt-version", "")
    assert tools("dolt_link_git", bidirectional=True, link_file="kb.dolt-version")["bidirectional"]["staged"]


def test_link_rejects_missing_commits_and_repositories(project, tools, tmp_path):
    tools.error("GIT_COMMIT_NOT_FOUND", "dolt_link_git", git_commit="absent")
    tools.error("GIT_COMMIT_NOT_FOUND", "dolt_link_git", git_commit="--all")
    (tmp_path / "plain").mkdir()
    project.git("config", "vmrag.fileRoot", str(tmp_path))
    tools.error("GIT_REPO_NOT_FOUND", "dolt_link_git", git_repo_path=str(tmp_path / "plain"))
    tools.error("GIT_REPO_NOT_FOUND", "dolt_link_git", git_repo_path="absent")


def test_file_in_place_of_a_folder_is_a_file_error(project, tools):
    project.write("folder", "a file")
    head, before = project.git("rev-parse", "first"), rows(project)
    tools.error(
        "FILE_SYSTEM_ERROR", "dolt_link_git", git_commit=head, bidirectional=True, link_file="folder/.dolt-version"
    )
    assert rows(project) == before
    made = tools("dolt_link_git", git_commit=head, bidirectional=True, link_file="new/folder/.dolt-version")
    assert made["bidirectional"]["file_created"]


def test_link_rejects_a_name_too_long_for_the_file_system(tools):
    for parameter in ("git_repo_path", "link_file"):
        refused = tools.error("FILE_SYSTEM_ERROR", "dolt_link_git", **{parameter: "x" * 300})
        assert "255" in str(refused["suggestions"])
