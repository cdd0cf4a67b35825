import os
import subprocess
import sys
from pathlib import Path

import pytest
from vmrag_hooks import driver_command, installer, shims

from tests.support.repos import isolate, make_repo
from vmrag_link.errors import FileFailed, HooksRefused
from vmrag_link.git import plumbing

PRE_COMMIT = Path(sys.executable).with_name("pre-commit")
needs_pre_commit = pytest.mark.skipif(not PRE_COMMIT.exists(), reason="pre-commit is not installed")


@pytest.fixture
def repo(monkeypatch, tmp_path):
    isolate(monkeypatch, tmp_path / "home")
    made = make_repo(tmp_path / 'it\'s a "ü" repo')
    made.commit("first", pin="one\n", code="1\n")
    return made


@pytest.fixture
def places(repo):
    return plumbing.locate(repo.top)


@pytest.fixture
def hooks(repo):
    return repo.top / ".git" / "hooks"


class Log:
    """What the hooks wrote, since the last call; `recorder` stands where Python does."""

    def __init__(self, folder):
        self.folder = folder
        self.path = folder / "log"
        self.recorder = folder / "recorder"
        self.recorder.write_text(f'#!/bin/sh\necho "vmrag $4" >>"{self.path}"\n')
        self.recorder.chmod(0o755)

    def __call__(self):
        lines = self.path.read_text().splitlines() if self.path.exists() else []
        self.path.unlink(missing_ok=True)
        return lines

    def names(self):
        return sorted(line.split()[0] for line in self())


@pytest.fixture
def log(tmp_path):
    return Log(tmp_path)


def foreign(hooks, folder, hook="post-checkout", *, name="other", code=0, mode=0o755):
    """A hook of another tool, which logs its arguments and its input."""
    path = hooks / hook
    path.write_text(f'#!/bin/sh\necho "{name} $* <$(cat)>" >>"{folder}/log"\nexit {code}\n')
    path.chmod(mode)
    return path


def tree(folder):
    """Name, mode and content of everything in it."""
    return {
        path.name: (path.lstat().st_mode, path.readlink() if path.is_symlink() else path.read_bytes())
        for path in folder.iterdir()
    }


# -- install and uninstall


def test_install_writes_every_hook_and_records_the_interpreter(places, hooks):
    report = installer.install(places)
    assert (report.written, report.unchanged, report.chained) == (shims.HOOKS, (), ())
    assert places.interpreter.read_text() == sys.executable + "\n"
    assert not list(hooks.glob("*.vmrag-*"))


def test_a_second_install_changes_nothing(places, hooks, tmp_path):
    foreign(hooks, tmp_path)
    installer.install(places)
    before = tree(hooks)
    assert installer.install(places).unchanged == shims.HOOKS
    assert tree(hooks) == before


@pytest.mark.parametrize("mode", [0o755, 0o700, 0o644])
def test_uninstall_leaves_what_was_there_byte_for_byte(places, hooks, tmp_path, mode):
    foreign(hooks, tmp_path, mode=mode)
    (hooks / "post-merge").symlink_to("../../elsewhere")
    before = tree(hooks)
    assert installer.install(places).chained == ("post-checkout", "post-merge")
    report = installer.uninstall(places)
    assert (report.removed, report.restored) == (shims.HOOKS, ("post-checkout", "post-merge"))
    assert tree(hooks) == before
    assert not places.interpreter.exists()


def test_uninstall_without_install_touches_nothing(places, hooks, tmp_path):
    foreign(hooks, tmp_path)
    before = tree(hooks)
    assert installer.uninstall(places).removed == ()
    assert tree(hooks) == before


def test_a_missing_hooks_folder_is_created(places, hooks):
    for sample in hooks.iterdir():
        sample.unlink()
    hooks.rmdir()
    installer.install(places)
    assert {path.name for path in hooks.iterdir()} == set(shims.HOOKS)


def test_a_damaged_or_older_shim_is_outdated_and_replaced_without_a_backup(places, hooks):
    installer.install(places)
    old = hooks / "post-merge"
    old.write_bytes(old.read_bytes().replace(b"vmrag-hook 1", b"vmrag-hook 0") + b"# more\n")
    (hooks / "post-checkout").chmod(0o644)
    assert installer.install(places).written == ("post-checkout", "post-merge")
    assert not list(hooks.glob("*.vmrag-*"))
    assert installer.install(places).unchanged == shims.HOOKS


def test_a_hooks_path_outside_of_the_repository_is_refused_without_force(repo, places, tmp_path):
    (tmp_path / "global").mkdir()
    repo.git("config", "core.hooksPath", str(tmp_path / "global"))
    with pytest.raises(HooksRefused) as raised:
        installer.install(places)
    assert "--force" in raised.value.hint
    assert not list((tmp_path / "global").iterdir())
    assert not places.interpreter.exists()
    installer.install(places, force=True)
    assert (tmp_path / "global" / "post-merge").exists()


def test_a_hooks_path_inside_the_work_tree_is_used(repo, places, log):
    repo.git("config", "core.hooksPath", ".githooks")
    installer.install(places, python=str(log.recorder))
    repo.git("checkout", "-q", "-b", "x")
    assert log() == ["vmrag post-checkout"]
    assert (repo.top / ".githooks" / "post-checkout").exists()


def test_in_a_linked_work_tree_the_shared_hooks_are_written(repo, hooks, tmp_path):
    repo.git("worktree", "add", "-q", "../linked")
    installer.install(plumbing.locate(tmp_path / "linked"))
    assert (hooks / "post-checkout").exists()


def test_a_hook_that_took_our_place_does_not_cost_the_chained_one(places, hooks, tmp_path):
    foreign(hooks, tmp_path, name="first")
    installer.install(places)
    foreign(hooks, tmp_path, name="second")
    before = tree(hooks)
    with pytest.raises(HooksRefused, match="only one can be chained"):
        installer.install(places)
    assert tree(hooks) == before
    (hooks / "post-checkout").write_bytes((hooks / "post-checkout.vmrag-chained").read_bytes())
    assert installer.install(places).chained == ("post-checkout",)


def test_what_the_system_refuses_is_an_error_with_the_file(places, hooks):
    (hooks / "post-checkout.vmrag-new").mkdir()
    with pytest.raises(FileFailed, match="post-checkout"):
        installer.install(places)


# -- the merge driver


def test_install_registers_the_merge_driver_once_and_again_where_the_interpreter_is_another(repo, places):
    assert installer.install(places).driver is True
    assert installer.install(places).driver is False
    assert repo.git("config", "merge.vmrag.driver") == driver_command.command(sys.executable)
    assert repo.git("config", "merge.vmrag.name")
    assert installer.install(places, python="/opt/100% mine/python").driver is True
    assert repo.git("config", "--get-all", "merge.vmrag.driver") == driver_command.command("/opt/100% mine/python")


def test_uninstall_takes_the_whole_section_of_the_driver_and_nothing_else(repo, places):
    repo.git("config", "merge.other.driver", "true")
    repo.git("config", "merge.conflictStyle", "diff3")
    installer.install(places)
    repo.git("config", "merge.vmrag.recursive", "text")  # by hand
    assert installer.uninstall(places).driver is True
    assert repo.git("config", "--get-regexp", "^merge") == "merge.other.driver true\nmerge.conflictstyle diff3"
    assert installer.uninstall(places).driver is False


def test_a_linked_work_tree_registers_the_driver_for_all(repo, tmp_path):
    repo.git("worktree", "add", "-q", "../linked")
    installer.install(plumbing.locate(tmp_path / "linked"))
    assert repo.git("config", "merge.vmrag.driver") == driver_command.command(sys.executable)


def test_install_says_whether_the_attributes_name_the_driver(repo, places):
    assert installer.install(places).attributed is False
    repo.commit("attributes", **{".gitattributes": ".dolt-version merge=vmrag\n"})
    assert installer.install(places).attributed is True


# -- chained hooks run as git would run them


def test_a_chained_hook_runs_once_before_ours_with_its_arguments(repo, places, hooks, log):
    foreign(hooks, log.folder)
    installer.install(places, python=str(log.recorder))
    head = repo.git("rev-parse", "HEAD")
    repo.git("checkout", "-q", "-b", "x")
    assert log() == [f"other {head} {head} 1 <>", "vmrag post-checkout"]


def test_a_chained_post_rewrite_gets_the_list_of_commits(repo, places, hooks, log):
    foreign(hooks, log.folder, "post-rewrite")
    installer.install(places, python=str(log.recorder))
    old = repo.git("rev-parse", "HEAD")
    repo.git("commit", "-q", "--amend", "-m", "reworded")
    assert log() == [f"other amend <{old} {repo.git('rev-parse', 'HEAD')}>", "vmrag post-rewrite"]


def test_the_exit_status_of_a_chained_hook_is_what_git_sees(repo, places, hooks, log):
    foreign(hooks, log.folder, code=7)
    plain = repo.run("checkout", "-q", "-b", "x").returncode
    log()
    installer.install(places, python=str(log.recorder))
    assert repo.run("checkout", "-q", "-b", "y").returncode == plain != 0
    assert [line.split()[0] for line in log()] == ["other", "vmrag"]
    assert repo.run("checkout", "-q", "-b", "z", env={"VMRAG": "0"}).returncode == plain
    assert [line.split()[0] for line in log()] == ["other"]


def test_a_hook_that_git_would_not_run_is_not_run(repo, places, hooks, log):
    foreign(hooks, log.folder, mode=0o644)
    installer.install(places, python=str(log.recorder))
    repo.git("checkout", "-q", "-b", "x")
    assert log() == ["vmrag post-checkout"]


# -- together with pre-commit


@pytest.fixture
def framework(repo, tmp_path):
    """`pre-commit install` and `uninstall` for post-checkout, with one hook that logs."""
    repo.commit(
        "config",
        **{
            ".pre-commit-config.yaml": "repos:\n- repo: local\n  hooks:\n  - id: x\n    name: x\n    language: system\n"
            f"    entry: sh -c 'echo framework >>{tmp_path}/log'\n    stages: [post-checkout]\n    always_run: true\n"
        },
    )

    def run(verb):
        subprocess.run(
            [PRE_COMMIT, verb, "-t", "post-checkout"],
            cwd=repo.top,
            env=os.environ | {"PRE_COMMIT_HOME": str(tmp_path / "cache")},
            capture_output=True,
            check=True,
        )

    return run


def checkout(repo, log, branch):
    done = repo.run("checkout", "-q", "-b", branch, env={"PRE_COMMIT_HOME": str(log.folder / "cache")})
    assert done.returncode == 0, done.stderr + done.stdout


@needs_pre_commit
def test_pre_commit_that_was_there_first_is_chained(repo, places, framework, log, hooks):
    framework("install")
    before = tree(hooks)
    installer.install(places, python=str(log.recorder))
    checkout(repo, log, "x")
    assert log.names() == ["framework", "vmrag"]
    installer.uninstall(places)
    assert tree(hooks) == before


@needs_pre_commit
def test_pre_commit_that_comes_later_runs_us_and_a_chained_hook_once(repo, places, framework, log, hooks):
    foreign(hooks, log.folder)
    before = tree(hooks)
    installer.install(places, python=str(log.recorder))
    framework("install")
    checkout(repo, log, "x")
    assert log.names() == ["framework", "other", "vmrag"]
    assert installer.install(places, python=str(log.recorder)).unchanged == shims.HOOKS  # never backed up: no recursion
    checkout(repo, log, "y")
    assert log.names() == ["framework", "other", "vmrag"]
    installer.uninstall(places)
    checkout(repo, log, "z")
    assert log.names() == ["framework", "other"]
    framework("uninstall")
    assert tree(hooks) == before


@needs_pre_commit
def test_pre_commit_installed_again_over_us_neither_recurses_nor_runs_twice(repo, places, framework, log, hooks):
    framework("install")
    before = tree(hooks)
    installer.install(places, python=str(log.recorder))
    framework("install")
    checkout(repo, log, "x")
    assert log.names() == ["framework", "vmrag"]
    installer.install(places, python=str(log.recorder))
    checkout(repo, log, "y")
    assert log.names() == ["framework", "vmrag"]
    installer.uninstall(places)
    assert tree(hooks) == before


@needs_pre_commit
def test_our_shim_in_both_places_does_its_work_once(repo, places, framework, log, hooks):
    framework("install")
    installer.install(places, python=str(log.recorder))
    (hooks / "post-checkout.legacy").write_bytes(shims.text("post-checkout"))
    (hooks / "post-checkout.legacy").chmod(0o755)
    checkout(repo, log, "x")
    assert log.names() == ["framework", "vmrag"]
