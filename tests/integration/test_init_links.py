"""`vmrag init` and `vmrag install` follow no link and wait for no pipe: what they would write over
is a file, or is not there.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.repos import isolate
from tests.support.terminal import Project, new_project
from vmrag_link import hints

SECRET = "-----BEGIN OPENSSH PRIVATE KEY-----\nc2VjcmV0\n"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    isolate(monkeypatch, tmp_path / "home")
    project = new_project(tmp_path / "project")
    (tmp_path / "key").write_text(SECRET)
    (tmp_path / "folder").mkdir()
    (tmp_path / "key").chmod(0o600)
    return project


STRANGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "a link": (lambda path: path.symlink_to(outside(path) / "key"), "a link to {outside}/key"),
    "a link to a folder": (lambda path: path.symlink_to(outside(path) / "folder"), "a link to {outside}/folder"),
    "a dangling link": (lambda path: path.symlink_to("nowhere"), "a link to nowhere"),
    "a pipe": (os.mkfifo, "a named pipe"),
    "a folder": (Path.mkdir, "a folder"),
}


def outside(path: Path) -> Path:
    return next(parent for parent in path.parents if (parent / "key").exists())


def state(project: Project) -> tuple[object, ...]:
    files = sorted((str(path), path.lstat().st_mode) for path in project.top.rglob("*"))
    return files, project.git("status", "--porcelain"), project.git("config", "--local", "--list")


@pytest.mark.parametrize("name", [".gitattributes", ".vmrag.yaml", ".dolt-version", ".git/vmrag"])
def test_init_changes_nothing_if_a_path_is_not_a_file(project: Project, tmp_path: Path, name: str) -> None:
    path = project.top / name
    path.unlink(missing_ok=True)
    for make, named in STRANGE.values():
        if (name, named) == (".git/vmrag", "a folder"):
            continue
        make(path)
        before = state(project)
        refused = project.vmrag("init", "--knowledge-base", "--no-sources", "--json", code=None).error
        assert f"{name} is {named.format(outside=tmp_path)}" in refused["message"]
        assert state(project) == before
        [command] = hints.list_commands(refused["hint"])
        subprocess.run(["sh", "-c", command], check=True)
        assert not path.is_symlink()
        aside = path.with_name(f"{path.name}.before")
        aside.rmdir() if named == "a folder" else aside.unlink()
    assert (tmp_path / "key").read_text() == SECRET
    assert list((tmp_path / "folder").iterdir()) == []
    project.vmrag("init", "--knowledge-base", "--no-sources", "--no-hooks")


@pytest.mark.parametrize("kind", ["a link to a folder", "a dangling link"])
def test_hooks_are_not_installed_behind_a_link(project: Project, tmp_path: Path, kind: str) -> None:
    hooks = project.top / ".git" / "hooks"
    hooks.rename(tmp_path / "hooks-before")
    make, named = STRANGE[kind]
    make(hooks)
    refused = project.vmrag("install", "--json", code=3).error
    assert named.format(outside=tmp_path) in refused["message"]
    assert "core.hooksPath" not in refused["message"]
    said = project.vmrag("init", "--knowledge-base", "--no-sources").out
    assert "Did not install the git hooks" in said
    assert "Installed the git hooks" not in said
    assert list((tmp_path / "folder").iterdir()) == []


def test_pipe_in_the_place_of_a_hook_is_refused(project: Project) -> None:
    pipe = project.top / ".git" / "hooks" / "post-commit"
    os.mkfifo(pipe)
    refused = project.vmrag("install", "--json", code=3).error
    subprocess.run(["sh", "-c", hints.list_commands(refused["hint"])[0]], check=True)
    project.vmrag("install")
    project.vmrag("uninstall")


def test_hooks_that_are_kept_are_not_moved_behind_a_link(project: Project, tmp_path: Path) -> None:
    hooks = project.top / ".git" / "hooks"
    (hooks / "post-commit").write_text("#!/bin/sh\ncase $0 in *post-commit) echo mine ;; esac\n")
    (hooks / ".vmrag").symlink_to(tmp_path / "folder")
    refused = project.vmrag("install", "--json", code=3).error
    assert f"a link to {tmp_path / 'folder'}" in refused["message"]
    assert list((tmp_path / "folder").iterdir()) == []
