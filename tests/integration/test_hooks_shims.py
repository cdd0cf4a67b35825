"""When the shims of the post-* hooks start Python, and what it gets."""

import os
import shutil
import stat
import subprocess

import pytest

from tests.support import hooks
from tests.support.hooks import SHELLS
from tests.support.repos import Repo, make_repo
from vmrag_hooks import installer, shims
from vmrag_link.engines.folder import UNCOMMITTED_NAME
from vmrag_link.git import hook_config, plumbing
from vmrag_link.git import hooks as hooks_of_git

stage = hooks.stage


# -- when Python starts


def test_shim_does_nothing_if_neither_branch_nor_pin_changed(stage):
    for command in ("checkout -q main", "checkout -q HEAD -- code", "commit -q --amend -m x"):
        result = stage.repo.run(*command.split())
        assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    assert stage.starts() == []


OTHER_PIN = [["checkout", "side"], ["switch", "side"]]
OTHER_BRANCH = [["checkout", "-b", "new"], ["switch", "twin"], ["checkout", "--detach"]]


@pytest.mark.parametrize(
    ("command", "uncommitted"), [*((case, False) for case in OTHER_PIN), *((case, True) for case in OTHER_BRANCH)]
)
@pytest.mark.sample(2)
def test_other_pin_or_branch_with_uncommitted_documents_starts_python_once(stage, command, uncommitted):
    if uncommitted:
        dirty(stage)
    old = stage.repo.git("rev-parse", "HEAD")
    stage.repo.git(*command)
    new = stage.repo.git("rev-parse", "HEAD")
    assert stage.starts() == [f"post-checkout {old} {new} 1"]
    stage.apply()
    stage.repo.git("checkout", "-q", "-")
    stage.repo.git("checkout", "-q", "-")
    assert len(stage.starts()) == 1  # the way back is applied already


@pytest.mark.parametrize("command", OTHER_BRANCH)
def test_branch_with_the_same_pin_starts_no_python(stage, command):
    stage.repo.git(*command)
    assert stage.starts() == []
    stage.repo.git("checkout", "-q", "side")
    assert len(stage.starts()) == 1


def test_uncommitted_documents_of_another_worktree_start_python(stage, tmp_path):
    """The mark is shared: the branch that a work tree comes to may have them."""
    stage.repo.git("worktree", "add", "-q", "../linked", "side")
    linked = Repo(tmp_path / "linked")
    stage.apply(linked)
    stage.lines()
    linked.git("checkout", "-q", "--detach")
    assert stage.starts() == []
    dirty(stage)
    linked.git("checkout", "-q", "side")
    assert stage.starts() == []  # as it was applied
    linked.git("checkout", "-q", "--detach")
    assert len(stage.starts()) == 1


def test_pin_taken_out_of_another_commit_starts_python(stage):
    stage.repo.git("checkout", "-q", "side", "--", ".dolt-version")
    assert [start.split()[-1] for start in stage.starts()] == ["0"]


def test_amending_the_pin_starts_python(stage):
    stage.repo.write(".dolt-version", "amended")
    stage.repo.git("commit", "-q", "-a", "--amend", "-m", "x")
    index = stage.repo.top / ".git" / "index.lock"
    assert stage.starts() == [f"pre-commit {index}", "post-commit", "post-rewrite amend"]


def test_picked_commit_that_changes_the_pin_starts_python_once(stage):
    stage.repo.git("cherry-pick", "side~1")
    assert stage.starts() == ["post-commit"]


def test_series_of_picked_commits_starts_no_python(stage):
    stage.repo.git("cherry-pick", "side~1", "side")
    assert stage.starts() == []


def test_am_starts_no_python_while_more_patches_may_follow(stage):
    patch = stage.repo.git("format-patch", "--stdout", "side~2..side")
    stage.repo.git("am", "-q", stdin=patch + "\n")
    assert stage.starts() == []
    assert len(stage.queue()) == 2


def test_merge_starts_python_once(stage):
    stage.repo.git("merge", "-q", "side")
    assert stage.starts() == ["post-merge 0"]


@pytest.mark.parametrize("pins", [("{}\n", "{}"), ("{}", "{}\n"), ("{}\n", "{}\n\n"), ("a\\b\n", "a\\c\n"), ("", "x")])
def test_difference_of_one_byte_is_a_difference(stage, pins):
    applied, now = pins
    stage.repo.write(".dolt-version", applied)
    stage.apply()
    stage.repo.git("checkout", "-q", "main")
    assert stage.starts() == []
    stage.repo.write(".dolt-version", now)
    stage.repo.git("checkout", "-q", "main")
    assert len(stage.starts()) == 1


def test_pin_that_went_away_or_came_starts_python(stage):
    stage.repo.git("checkout", "-q", "--orphan", "empty")
    stage.repo.git("rm", "-q", "-rf", ".")
    stage.repo.commit("no pin", code="x")
    stage.apply()
    stage.lines()
    stage.repo.git("checkout", "-q", "empty")
    assert stage.starts() == []
    stage.repo.git("checkout", "-q", "main")
    assert len(stage.starts()) == 1
    stage.apply()
    stage.repo.git("checkout", "-q", "empty")
    assert len(stage.starts()) == 1


def test_sparse_worktree_reads_the_pin_from_the_index(stage):
    stage.repo.git("sparse-checkout", "set", "--no-cone", "/code")
    assert not (stage.repo.top / ".dolt-version").exists()
    stage.lines()
    stage.apply()
    stage.repo.git("checkout", "-q", "main")
    assert stage.starts() == []
    stage.repo.git("checkout", "-q", "-B", "main", "side")
    assert len(stage.starts()) == 1


def test_pin_that_is_a_symbolic_link_starts_python(stage):
    pin = stage.repo.top / ".dolt-version"
    pin.rename(pin.with_name("elsewhere"))
    pin.symlink_to("elsewhere")
    stage.repo.git("checkout", "-q", "main")
    assert len(stage.starts()) == 1


def test_python_runs_without_git_variables_or_input_and_prints_on_stderr(stage):
    result = stage.repo.run("checkout", "-q", "side")
    assert (result.stdout, result.stderr) == ("", "loud\n")
    assert stage.lines()[1:] == ["git: ", f"cwd: {stage.repo.top}", "stdin: "]


def test_vmrag_0_switches_the_hooks_off(stage):
    stage.repo.git("checkout", "-q", "side", env={"VMRAG": "0"})
    stage.repo.write(".dolt-version", "x")
    stage.repo.git("commit", "-q", "-a", "--amend", "-m", "x", env={"VMRAG": "0"})
    assert stage.starts() == []
    assert stage.queue() == []


def test_variables_with_names_of_the_shim_have_no_effect(stage, tmp_path):
    names = ("head", "line", "dir", "common", "chained", "second", "input", "status", "commit", "python", "pin", "more")
    environ = dict.fromkeys(names, "refs/heads/main")
    stage.repo.git("checkout", "-q", "main", env=environ)
    assert stage.starts() == []
    stage.repo.git("checkout", "-q", "side", env=environ)
    assert len(stage.starts()) == 1


@pytest.mark.parametrize("code", [1, 3, 137])
def test_failing_python_does_not_fail_a_checkout(stage, code):
    stage.fails(code)
    result = stage.repo.run("checkout", "-q", "side")
    assert result.returncode == 0
    assert result.stderr == (
        f"vmrag: the knowledge base was not updated, because {stage.recorder} failed; run 'vmrag install' to record another one\n"
    )


def test_missing_python_prints_one_line_with_a_hint(stage, tmp_path):
    stage.recorder.unlink()
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "git").symlink_to(shutil.which("git"))
    result = stage.repo.run("checkout", "-q", "side", env={"PATH": str(tmp_path / "bin")})
    assert (result.returncode, result.stdout) == (0, "")
    assert len(result.stderr.splitlines()) == 1
    assert "vmrag install" in result.stderr


def test_python_on_path_replaces_a_missing_recorded_one(stage, tmp_path):
    (tmp_path / "bin").mkdir()
    stage.recorder.rename(tmp_path / "bin" / "python3")
    stage.repo.git("checkout", "-q", "side", env={"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"})
    assert len(stage.starts()) == 1


def test_module_in_the_checked_out_code_is_not_imported(stage):
    stage.repo.commit(
        "trap", **{"vmrag_link/__init__.py": "print('trapped')", "vmrag_link/cli/main.py": "print('trapped')"}
    )
    stage.repo.git("checkout", "-q", "side")
    installer.install_hooks(plumbing.locate_work_tree(stage.repo.top))  # the real interpreter
    assert "trapped" not in stage.repo.run("checkout", "-q", "main").stderr


def test_shims_do_nothing_without_knowledge_base(stage, tmp_path):
    bare = make_repo(tmp_path / "plain")
    bare.commit("1", code="1")
    installer.install_hooks(plumbing.locate_work_tree(bare.top), python=str(stage.recorder))
    bare.git("checkout", "-q", "-b", "x")
    assert stage.starts() == []
    assert not (bare.top / ".git" / "vmrag" / "applied").exists()


# -- rebase and bisect


def dirty(stage):
    """Store an uncommitted document, as in an earlier state."""
    (plumbing.locate_work_tree(stage.repo.top).kb / UNCOMMITTED_NAME).touch()


def test_rebase_starts_python_once_at_its_end(stage):
    stage.repo.commit("main", code="2\n")
    stage.repo.git("checkout", "-q", "side")
    stage.apply()
    stage.lines()
    stage.repo.git("rebase", "-q", "main")
    assert stage.starts() == []  # same branch, same pin


def test_rebase_that_changes_the_pin_starts_python_at_its_end(stage):
    stage.repo.git("checkout", "-q", "-b", "work", "twin")
    stage.repo.commit("work", work="w")
    stage.apply()
    stage.lines()
    stage.repo.git("rebase", "-q", "side")
    assert stage.starts() == ["post-rewrite rebase"]


def test_rebase_by_patches_reports_its_end_before_head_is_restored(stage):
    """git's order of things: the pin is the final one then, the branch is not, and a query has to
    notice.
    """
    stage.repo.git("checkout", "-q", "-b", "work", "twin")
    stage.repo.commit("work", work="w")
    stage.apply()
    stage.lines()
    stage.recorder.write_text(f"#!/bin/sh\necho \"$5 $6 $(cat .git/HEAD)\" >>'{stage.log}'\n")
    stage.repo.git("rebase", "-q", "--apply", "side")
    side = stage.repo.git("rev-parse", "side")
    started = stage.lines()
    assert started[0].startswith("post-checkout")  # nothing tells yet that a rebase began
    assert [line.split()[:2] for line in started[1:]] == [["post-rewrite", "rebase"]]
    assert "refs/heads" not in started[1]
    assert side in stage.repo.git("rev-list", "HEAD")


def test_amending_inside_a_rebase_starts_no_python(stage):
    stage.repo.git("checkout", "-q", "side")
    stage.apply()
    stage.lines()
    stage.repo.git("rebase", "-q", "-i", "HEAD~2", env={"GIT_SEQUENCE_EDITOR": "sed -i 1s/pick/edit/"})
    stage.repo.write(".dolt-version", "amended")
    stage.repo.git("commit", "-q", "-a", "--amend", "-m", "x", "--no-verify")
    assert stage.starts() == []
    stage.repo.git("rebase", "--continue")
    assert stage.starts() == ["post-rewrite rebase"]


def test_bisect_starts_python_when_it_is_reset(stage):
    stage.repo.git("checkout", "-q", "side")
    stage.repo.commit("fourth", pin='{\n  "x": "4"\n}\n')
    stage.apply()
    stage.lines()
    stage.repo.git("bisect", "start", "side", "main")
    assert stage.starts() == []
    stage.apply()
    stage.repo.git("bisect", "reset")
    assert len(stage.starts()) == 1


# -- some work trees only


def test_installed_for_a_work_tree_the_hooks_act_in_no_other(stage, tmp_path):
    installer.uninstall_hooks(plumbing.locate_work_tree(stage.repo.top))
    stage.repo.git("worktree", "add", "-q", "../linked", "twin")
    linked = Repo(tmp_path / "linked")
    stage.install(linked, worktree=True)
    stage.repo.git("checkout", "-q", "side")
    stage.repo.commit("here", pin="x")
    assert (stage.starts(), stage.queue()) == ([], [])
    linked.git("checkout", "-q", "--detach", "side")
    assert len(stage.starts()) == 1


# -- linked work trees and submodules


def test_linked_work_tree_is_compared_with_its_own_state(stage, tmp_path):
    stage.repo.git("worktree", "add", "-q", "../linked", "side")
    assert stage.lines()[1:3] == ["git: ", f"cwd: {tmp_path / 'linked'}"]
    linked = Repo(tmp_path / "linked")
    stage.apply(linked)
    linked.git("checkout", "-q", "side")
    stage.repo.git("checkout", "-q", "main")
    assert stage.starts() == []
    linked.git("checkout", "-q", "twin")
    assert [line for line in stage.lines() if line.startswith(("git:", "cwd:"))] == ["git: ", f"cwd: {linked.top}"]


def test_submodule_uses_its_own_state(stage, tmp_path):
    outer = make_repo(tmp_path / "outer")
    outer.git("submodule", "--quiet", "add", str(stage.repo.top), "inner")
    inner = Repo(outer.top / "inner")
    installer.install_hooks(plumbing.locate_work_tree(inner.top), python=str(stage.recorder))
    (outer.top / ".git" / "modules" / "inner" / "vmrag" / "kb").mkdir(parents=True)
    stage.apply(inner)
    inner.git("checkout", "-q", "main")
    assert stage.starts() == []
    inner.git("checkout", "-q", "side")
    assert stage.lines()[1:3] == ["git: ", f"cwd: {inner.top}"]


@pytest.mark.parametrize("variable", ["GIT_INDEX_FILE", "_PRE_COMMIT_SKIP_POST_CHECKOUT"])
def test_checkout_in_a_hook_of_another_command_starts_no_python(stage, variable):
    """pre-commit takes unstaged changes away while it checks a commit, and puts them back."""
    stage.repo.git("checkout", "-q", "side", env={variable: str(stage.repo.top / ".git" / "index")})
    assert stage.starts() == []


def test_shims_do_nothing_for_another_repository(stage, tmp_path):
    other = make_repo(tmp_path / "other")
    other.commit("first", code="1")
    stage.install(other)
    (other.top / ".git" / "vmrag" / "kb").mkdir()
    elsewhere = ("--git-dir", str(other.top / ".git"), "--work-tree")
    assert stage.repo.run(*elsewhere, str(stage.repo.top), "commit", "-q", "--allow-empty", "-m", "x").stderr == ""
    (tmp_path / "plain").mkdir()
    assert stage.repo.run(*elsewhere, str(tmp_path / "plain"), "checkout", "-q", "-f", "main").stderr == ""
    assert stage.starts() == []


def test_modules_of_another_environment_are_not_imported(stage):
    """An empty entry of PYTHONPATH is the directory of the checked-out code."""
    stage.repo.commit("first", **{"msgspec.py": "raise SystemExit(77)", "vmrag_link.py": "raise SystemExit(77)"})
    installer.install_hooks(plumbing.locate_work_tree(stage.repo.top))
    result = stage.repo.run("checkout", "-q", "side", env={"PYTHONPATH": ":/nowhere", "PYTHONHOME": "/nowhere"})
    assert (result.returncode, "77" in result.stderr, "failed" in result.stderr) == (0, False, False)


# -- shells


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("existing", [True, False], ids=["", "no knowledge base"])
def test_shim_without_work_needs_no_program(stage, shell, existing, tmp_path):
    """Not even git, except for the checks of a commit or a push of new commits."""
    (tmp_path / "empty").mkdir()
    if not existing:
        (stage.repo.top / ".git" / "vmrag" / "kb").rmdir()
    for hook in hook_config.SYNCING if existing else [hook for hook in hook_config.HOOKS if hook != "pre-push"]:
        result = stage.run(shell, hook, "a", "b", "1", PATH=str(tmp_path / "empty"))
        assert (result.returncode, result.stdout, result.stderr) == (0, "", ""), hook
    assert stage.starts() == []


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("kind", ["work tree", "linked", "sparse", "other branch", "other pin", "detached", "busy"])
@pytest.mark.parametrize("uncommitted", [False, True], ids=["", "uncommitted"])
@pytest.mark.sample(8)
def test_all_shells_decide_alike(stage, shell, kind, uncommitted, tmp_path):
    repo = stage.repo
    if uncommitted:
        dirty(stage)
    if kind == "linked":
        repo.git("worktree", "add", "-q", "../linked", "side")
        repo = Repo(tmp_path / "linked")
        stage.apply(repo)
    elif kind == "sparse":
        repo.git("sparse-checkout", "set", "--no-cone", "/code")
    elif kind == "other branch":
        repo.git("symbolic-ref", "HEAD", "refs/heads/twin")
    elif kind == "other pin":
        repo.write(".dolt-version", '{\n  "x": "1"\n}')
    elif kind == "detached":
        repo.git("update-ref", "--no-deref", "HEAD", "main")
        repo.git("checkout", "-q", "--detach")
    elif kind == "busy":
        (repo.top / ".git" / "rebase-merge").mkdir()
        repo.write(".dolt-version", "x")
    stage.lines()
    result = stage.run(shell, "post-checkout", "a", "b", "1", repo=repo)
    assert (result.returncode, result.stdout) == (0, "")
    starting = ["other branch", "other pin", "detached"] if uncommitted else ["other pin"]
    assert stage.starts() == (["post-checkout a b 1"] if kind in starting else [])


@pytest.mark.parametrize("shell", SHELLS)
def test_every_shim_is_valid_in_every_shell(shell, tmp_path):
    for hook in hook_config.HOOKS:
        (tmp_path / hook).write_bytes(shims.format_shim(hook))
        subprocess.run([*SHELLS[shell], "-n", tmp_path / hook], check=True)


def test_shims_are_executable_and_carry_their_version(stage):
    for hook in hook_config.HOOKS:
        path = stage.repo.top / ".git" / "hooks" / hook
        assert stat.S_IMODE(path.stat().st_mode) == 0o755
        assert hooks_of_git.parse_shim_version(path.read_bytes()) == shims.VERSION
