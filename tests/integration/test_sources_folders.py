"""`vmrag sources` names the folders that no source reads: submodules and links to folders."""

from __future__ import annotations

import os
import shutil

import pytest

from tests.support.repos import Repo, isolate, make_repo
from tests.support.terminal import Project

pytestmark = pytest.mark.hooks("off")

_ALLOW = ("-c", "protocol.file.allow=always")


@pytest.fixture
def library(tmp_path, monkeypatch) -> Repo:
    isolate(monkeypatch, tmp_path / "home")
    monkeypatch.setenv("VMRAG_EMBEDDING_MODEL", "hash")
    made = make_repo(tmp_path / "library")
    made.commit("first", **{"a.md": "# A\n", "deep/b.md": "# B\n"})
    return made


@pytest.fixture
def project(library, tmp_path) -> Project:
    made = Project(make_repo(tmp_path / "project").top)
    made.commit("one", **{"README.md": "# Read me\n"})
    made.git(*_ALLOW, "submodule", "--quiet", "add", str(library.top), "vendor/lib")
    made.git("commit", "-qm", "submodule")
    return made


def counts(project: Project, *arguments: str) -> dict[str, int | None]:
    return {row["path"]: row.get("files") for row in project.ask("sources", *arguments)["submodules"]}


def test_submodule_is_named_with_the_files_of_its_commit(project, library):
    assert counts(project) == {"vendor/lib": 2}
    project.git("tag", "then")
    (project.top / "vendor/lib/new.md").write_text("# Not committed\n")
    library.commit("more", **{"c.md": "# C\n"})
    project.git("-C", "vendor/lib", "fetch", "-q")
    project.git("-C", "vendor/lib", "checkout", "-q", "FETCH_HEAD")
    project.git("add", "vendor/lib")
    project.git("commit", "-qm", "update")
    assert (counts(project), counts(project, "--at", "then")) == ({"vendor/lib": 3}, {"vendor/lib": 2})
    shown = project.vmrag("sources").out
    assert "submodule vendor/lib: 3 files" in shown
    assert "hint: write 'sources_submodules: true' into .vmrag.yaml to read submodules" in shown
    row = project.ask("sources", "--at", "then")["submodules"][0]
    assert row["commit"] == library.git("rev-parse", "HEAD~1")


def test_submodule_without_checkout_is_counted_if_its_commit_exists(project, tmp_path):
    project.git("submodule", "--quiet", "deinit", "--all", "--force")
    assert counts(project) == {"vendor/lib": 2}
    project.git("clone", "-q", ".", str(tmp_path / "clone"))
    clone = Project(tmp_path / "clone")
    assert counts(clone) == {"vendor/lib": None}
    assert "submodule vendor/lib: not in this clone" in clone.vmrag("sources").out


def test_submodule_in_a_worktree_is_counted_where_it_is_checked_out(project, tmp_path):
    project.git("worktree", "add", "-q", "--detach", str(tmp_path / "second"))
    second = Project(tmp_path / "second")
    assert counts(second) == {"vendor/lib": 2}
    shutil.rmtree(project.top / ".git/modules")
    second.git(*_ALLOW, "submodule", "--quiet", "update", "--init")
    assert counts(second) == {"vendor/lib": 2}


def test_configuration_of_a_submodule_starts_no_program(project, tmp_path):
    trace = tmp_path / "started"
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\ntouch {trace}\n")
    program.chmod(0o755)
    config = project.top / ".git/modules/vendor/lib/config"
    for key in ("core.fsmonitor", "core.sshCommand", "core.gitProxy", "core.pager"):
        project.git("config", "--file", str(config), key, str(program))
    assert counts(project) == {"vendor/lib": 2}
    assert not trace.exists()


@pytest.mark.parametrize("kind", ["elsewhere", "pipe", "link"])
def test_strange_git_file_of_a_submodule_is_not_followed(project, library, kind):
    shutil.rmtree(project.top / ".git/modules")
    git_file = project.top / "vendor/lib/.git"
    git_file.unlink()
    if kind == "elsewhere":
        git_file.write_text(f"gitdir: {library.top / '.git'}\n")
    elif kind == "pipe":
        os.mkfifo(git_file)
    else:
        git_file.symlink_to(library.top / ".git")
    assert counts(project) == {"vendor/lib": None}


def test_linked_folders_are_named_with_their_files(project, tmp_path):
    (tmp_path / "outside").mkdir()
    project.commit("docs", **{"docs/v2/a.md": "# A\n", "docs/v2/deep/b.md": "# B\n", "docs/c.md": "# C\n"})
    links = {"docs/latest": "v2", "root": ".", "shared": "../outside", "file.md": "docs/c.md", "nowhere": "docs/v9"}
    for path, target in links.items():
        (project.top / path).symlink_to(target)
    project.git("add", "-A")
    project.git("commit", "-qm", "links")
    number = len(project.git("ls-files", "-s").splitlines()) - len(links) - 1  # the submodule is not a file
    rows = {row["path"]: (row["target"], row.get("files")) for row in project.ask("sources")["linked_folders"]}
    assert rows == {"docs/latest": ("v2", 2), "root": (".", number), "shared": ("../outside", None)}
    shown = project.vmrag("sources").out
    assert "linked folder docs/latest -> v2: 2 files" in shown
    assert "linked folder shared -> ../outside: outside the repository" in shown
    at = {row["path"]: row.get("files") for row in project.ask("sources", "--at", "HEAD")["linked_folders"]}
    assert at == {"docs/latest": 2, "root": number}


def test_repository_without_sources_also_names_its_folders(project):
    project.commit("settings", **{".vmrag.yaml": "retrieval:\n  k: 7\n"})
    assert counts(project) == {"vendor/lib": 2}
    assert "Not read:" in project.vmrag("sources").out
