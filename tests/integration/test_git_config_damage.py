"""A damaged configuration file, with which no git command works."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import terminal
from tests.support.terminal import Project
from vmrag_hooks import shims
from vmrag_link.git import hook_config, plumbing
from vmrag_link.git.hook_config import HOOKS

pytestmark = pytest.mark.hooks("off")

template = terminal.template

DAMAGES = {
    "zeros": lambda sound: bytes(len(sound)),
    "not text": lambda sound: b"\x00\xff[" + sound,
    "a missing quote": lambda sound: sound.replace(b'"', b"", 1),
}


@pytest.fixture
def project(template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """Its hooks are in git's configuration, as git 2.54 runs them; every git reads the file."""
    made = terminal.copied(template, tmp_path, monkeypatch)
    for hook in HOOKS:
        (made.top / ".git" / "hooks" / hook).unlink()
    hook_config.write_hooks(
        plumbing.locate_work_tree(made.top), {hook: shims.format_shim(hook, configured=True) for hook in HOOKS}
    )
    return made


def included(project: Project) -> Path:
    return project.top / ".git" / "vmrag-hooks" / "config"


def damage(project: Project, kind: str) -> bytes:
    """Return what the file held before."""
    sound = included(project).read_bytes()
    included(project).write_bytes(DAMAGES[kind](sound))
    assert project.run("status").returncode == 128
    return sound


@pytest.mark.parametrize("kind", DAMAGES)
def test_doctor_reports_the_hooks_file_that_stops_git(project, kind):
    damage(project, kind)
    report = project.vmrag("doctor", "--json", code=1).json
    [finding] = report["topics"][0]["findings"]
    assert (finding["code"], finding["level"], finding["fix"]) == (
        "GIT_CONFIG_DAMAGED",
        "error",
        "run 'vmrag doctor --fix' to repair it",
    )
    assert project.run("status").returncode == 128, "without --fix nothing is changed"


def test_doctor_repairs_the_hooks_file(project):
    damage(project, "zeros")
    report = project.vmrag("doctor", "--fix", "--json", code=None).json
    assert "GIT_CONFIG_DAMAGED" in {repair["finding"]["code"] for repair in report["mended"]}
    assert project.run("status").returncode == 0
    assert len(report["topics"]) > 1


@pytest.mark.parametrize("kind", DAMAGES)
@pytest.mark.parametrize("command", [("query", "rest"), ("status",)])
def test_command_repairs_the_hooks_file(project, kind, command):
    sound = damage(project, kind)
    project.vmrag(*command)
    assert included(project).read_bytes() == sound
    assert project.run("status").returncode == 0


def test_command_repairs_the_hooks_file_in_a_linked_worktree(project):
    project.git("worktree", "add", "-q", "../linked", "feature")
    sound = damage(project, "zeros")
    linked = Project(project.top.parent / "linked")
    (linked.top / "folder").mkdir()
    linked.vmrag("-C", "folder", "status", code=None)
    assert included(project).read_bytes() == sound


def test_install_works_with_a_damaged_hooks_file(project):
    damage(project, "zeros")
    project.vmrag("install")
    assert project.run("status").returncode == 0


@pytest.mark.parametrize("arguments", [(), ("--all",)])
def test_uninstall_works_with_a_damaged_hooks_file(project, arguments):
    damage(project, "zeros")
    project.vmrag("uninstall", *arguments, *(["--discard-knowledge"] if arguments else []))
    assert project.run("status").returncode == 0
    assert not included(project).exists()


def test_doctor_reports_a_changed_command_in_the_hooks_file(project):
    included(project).write_bytes(
        included(project).read_bytes().replace(b"vmrag-hooks/post-merge", b"vmrag-hooks/rost-merge")
    )
    assert "HOOK_OUTDATED" in project.vmrag("doctor", code=1).out


@pytest.mark.parametrize("command", [("doctor",), ("doctor", "--fix"), ("install",), ("uninstall",), ("query", "rest")])
@pytest.mark.parametrize("line", [b"\xff[", b"[core]\n\tbare = perhaps\n", b"[core]\n\trepositoryformatversion = 8\n"])
def test_command_names_the_damage_of_git_s_own_configuration(project, command, line):
    config = project.top / ".git" / "config"
    before = config.read_bytes() + line
    config.write_bytes(before)
    failed = project.vmrag(*command, code=None)
    assert failed.code in (1, 3)
    assert "git cannot read its configuration" in failed.out + failed.err
    assert config.read_bytes() == before
