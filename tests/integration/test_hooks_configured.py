"""Hooks in git's configuration, on a git that runs them: no file of the hooks directory is touched,
each event runs ours once, and other tools' hooks besides.
"""

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import hooks as support
from tests.support import terminal
from tests.support.hooks import add_foreign_hook, expect_each, run_all_events, tree
from tests.support.repos import Repo
from tests.support.terminal import Project
from vmrag_hooks import framework, installer, shims
from vmrag_link import hints
from vmrag_link.errors import GitFailed, HooksRefused
from vmrag_link.git import hook_config, hooks, installed_gits, plumbing

log, new_git = support.log, support.new_git
template = terminal.template

OLD_GIT = shutil.which("git")
OTHERS = ("pre-commit", "post-checkout", "post-merge", "pre-push")


@pytest.fixture
def repo(monkeypatch, tmp_path, new_git):
    made = support.pinned_repo(monkeypatch, tmp_path)
    monkeypatch.setenv("PATH", new_git)
    return support.add_remote(made)


@pytest.fixture
def places(repo):
    return plumbing.locate_work_tree(repo.top)


@pytest.fixture
def project(monkeypatch, tmp_path, template, new_git) -> Project:
    made = terminal.copied(template, tmp_path, monkeypatch)
    monkeypatch.setenv("PATH", new_git)
    monkeypatch.setenv("VMRAG_HOOKS_PLACE", "auto")
    return made


def install(repo, log, **options):
    places = plumbing.locate_work_tree(repo.top)
    return installer.install_hooks(places, python=str(log.recorder), **{"place": "auto", **options})


def everywhere(repo, log):
    """Other tools' hooks, in git's hooks directory."""
    for hook in OTHERS:
        add_foreign_hook(repo.top / ".git" / "hooks", log.folder, hook, name=f"other {hook}")


def short(written):
    """Without their arguments and input."""
    return {hook: [" ".join(line.split()[:2]) for line in lines] for hook, lines in written.items()}


# -- installed and taken away


def test_configured_hooks_leave_the_directory_and_run_first_once(repo, places, log):
    everywhere(repo, log)
    before, config = tree(repo.top / ".git" / "hooks"), (repo.top / ".git" / "config").read_bytes()
    report = install(repo, log)
    assert (report.configured, report.written, report.chained) == (True, hook_config.HOOKS, ())
    assert tree(repo.top / ".git" / "hooks") == before
    assert short(run_all_events(repo, log)) == expect_each("vmrag", "other")
    assert hooks.find_missing_hooks(places) is None
    assert install(repo, log).unchanged == hook_config.HOOKS
    assert installer.uninstall_hooks(places).removed == hook_config.HOOKS
    assert (repo.top / ".git" / "config").read_bytes() == config
    assert not places.configured_hooks.exists()
    assert short(run_all_events(repo, log)) == expect_each("other")


def test_shims_move_to_the_configuration_and_chained_hooks_return(repo, places, log):
    everywhere(repo, log)
    before = tree(repo.top / ".git" / "hooks")
    assert install(repo, log, place="files").chained
    assert install(repo, log).moved
    assert tree(repo.top / ".git" / "hooks") == before
    assert short(run_all_events(repo, log)) == expect_each("vmrag", "other")
    assert install(repo, log, place="files").moved
    assert not places.configured_hooks.exists()
    assert short(run_all_events(repo, log)) == expect_each("other", "vmrag")


def test_hooks_path_for_every_repository_is_left_alone(repo, log, tmp_path):
    (tmp_path / "global").mkdir()
    repo.git("config", "--global", "core.hooksPath", str(tmp_path / "global"))
    for hook in OTHERS:
        add_foreign_hook(tmp_path / "global", log.folder, hook, name=f"other {hook}")
    before = tree(tmp_path / "global")
    assert install(repo, log).configured
    assert tree(tmp_path / "global") == before
    assert short(run_all_events(repo, log)) == expect_each("vmrag", "other")


def test_some_hooks_are_added_and_taken_away(repo, places, log):
    install(repo, log, hooks=["post-merge"])
    assert hook_config.list_configured_hooks(places) == ("post-merge",)
    install(repo, log, hooks=["pre-push"])
    assert hook_config.find_running_hooks(places).hooks == ("post-merge", "pre-push")
    assert installer.uninstall_hooks(places, hooks=["post-merge"]).removed == ("post-merge",)
    assert hook_config.find_running_hooks(places).hooks == ("pre-push",)
    assert run_all_events(repo, log)["post-merge"] == []


def test_configured_hooks_have_the_permissions_of_git_configuration(repo, places, log):
    """git dies of an include that it may not read, and `.git/vmrag` is closed to others."""
    (repo.top / ".git" / "config").chmod(0o644)
    (repo.top / ".git").chmod(0o755)
    old = os.umask(0o077)
    try:
        install(repo, log)
    finally:
        os.umask(old)
    assert places.configured_hooks.stat().st_mode & 0o777 == 0o755
    assert {path.stat().st_mode & 0o777 for path in places.configured_hooks.iterdir()} == {0o644}


def test_git_continues_if_the_hooks_folder_is_deleted(repo, places, log):
    install(repo, log)
    shutil.rmtree(places.configured_hooks)
    assert repo.run("commit", "-q", "--allow-empty", "-m", "x").stderr == ""
    assert log() == []


def test_interrupted_move_leaves_no_hooks_and_continues_later(repo, places, log):
    everywhere(repo, log)
    before = tree(repo.top / ".git" / "hooks")
    install(repo, log, place="files")
    lock = repo.top / ".git" / "config.lock"
    lock.touch()
    with pytest.raises(GitFailed, match=r"could not lock config file"):
        install(repo, log)
    lock.unlink()
    assert tree(repo.top / ".git" / "hooks") == before
    assert hooks.find_missing_hooks(places).hooks == hook_config.HOOKS
    assert short(run_all_events(repo, log)) == expect_each("other")
    install(repo, log)
    assert short(run_all_events(repo, log)) == expect_each("vmrag", "other")


def test_hooks_that_act_in_one_work_tree_do_nothing_in_another(repo, log, tmp_path):
    repo.git("worktree", "add", "-q", "-b", "topic", "../linked tree")
    linked = Repo(tmp_path / "linked tree")
    install(linked, log, worktree=True)
    assert short(run_all_events(linked, log, branch="topic")) == expect_each("vmrag")
    assert short(run_all_events(repo, log)) == expect_each()


# -- which gits there are


needs_old_git = pytest.mark.skipif(
    OLD_GIT is None or support.runs_hooks(Path(OLD_GIT)), reason="needs a git before 2.54, first on PATH"
)


@needs_old_git
def test_files_stay_for_an_older_git_and_no_event_runs_twice(repo, places, log, new_git, monkeypatch):
    install(repo, log)
    monkeypatch.setenv("PATH", f"{new_git}:{Path(OLD_GIT).parent}")
    report = install(repo, log)
    assert (report.configured, report.moved) == (False, True)
    assert report.older[0].startswith(f"{OLD_GIT} (2.")
    assert short(run_all_events(repo, log)) == expect_each("vmrag")
    monkeypatch.setenv("PATH", f"{Path(OLD_GIT).parent}:{new_git}")
    assert short(run_all_events(repo, log)) == expect_each("vmrag")
    monkeypatch.setenv("PATH", new_git)
    assert install(repo, log).configured
    assert short(run_all_events(repo, log)) == expect_each("vmrag")


@needs_old_git
def test_older_git_leaves_a_folder_of_other_repositories(repo, log, tmp_path, new_git, monkeypatch):
    (tmp_path / "global").mkdir()
    repo.git("config", "core.hooksPath", str(tmp_path / "global"))
    monkeypatch.setenv("PATH", f"{new_git}:{Path(OLD_GIT).parent}")
    report = install(repo, log)
    assert report.configured
    assert report.older
    assert not list((tmp_path / "global").iterdir())


@needs_old_git
def test_install_rejects_configured_hooks_on_old_git(repo, places, log, monkeypatch):
    monkeypatch.setenv("PATH", os.pathsep.join([str(Path(OLD_GIT).parent), os.environ["PATH"]]))
    with pytest.raises(HooksRefused, match=r"hooks.place is config, but .* runs no hooks from its configuration"):
        install(repo, log, place="config")
    assert not places.configured_hooks.exists()


def test_git_programs_of_other_tools_are_checked(repo, places, tmp_path):
    root = tmp_path / "root"
    bundled = root / "usr/lib/github-desktop/resources/app/git/bin/git"
    bundled.parent.mkdir(parents=True)
    bundled.write_text("#!/bin/sh\necho git version 2.47.3.windows.1\n")
    bundled.chmod(0o755)
    gits = installed_gits.find_gits(places, root)
    assert gits[0].runs_hooks
    assert gits[-1] == (str(bundled), "2.47.3")
    assert not gits[-1].runs_hooks


# -- never twice


def test_shim_detects_that_the_configured_hook_ran(repo, places, log, tmp_path):
    """Another repository has put it into a folder that both use."""
    install(repo, log)
    (tmp_path / "global").mkdir()
    for hook in hook_config.HOOKS:
        (tmp_path / "global" / hook).write_bytes(shims.format_shim(hook))
        (tmp_path / "global" / hook).chmod(0o755)
    repo.git("config", "core.hooksPath", str(tmp_path / "global"))
    assert short(run_all_events(repo, log)) == expect_each("vmrag")
    assert install(repo, log).configured
    assert len(list((tmp_path / "global").iterdir())) == len(hook_config.HOOKS), "they serve other repositories"
    shim = tmp_path / "global" / "post-merge"
    shim.write_bytes(shim.read_bytes().replace(b"vmrag-hook 9 ", b"vmrag-hook 8 "))
    with pytest.raises(HooksRefused):
        install(repo, log, place="config")


@needs_old_git
def test_shims_work_on_old_git_despite_configured_hooks(repo, log, monkeypatch):
    install(repo, log)
    for hook in hook_config.HOOKS:
        (repo.top / ".git" / "hooks" / hook).write_bytes(shims.format_shim(hook))
        (repo.top / ".git" / "hooks" / hook).chmod(0o755)
    assert short(run_all_events(repo, log)) == expect_each("vmrag")
    monkeypatch.setenv("PATH", str(Path(OLD_GIT).parent))
    assert short(run_all_events(repo, log)) == expect_each("vmrag")


def test_committed_husky_lines_do_nothing_next_to_configured_hooks(repo, log):
    (repo.top / ".husky" / "_").mkdir(parents=True)
    (repo.top / ".husky" / "_" / "husky.sh").write_text("")
    repo.git("config", "core.hooksPath", ".husky")
    install(repo, log, place="files")
    repo.git("add", ".husky/post-checkout")
    repo.git("commit", "-q", "-m", "husky starts ours")
    assert short(run_all_events(repo, log)) == expect_each("vmrag")
    install(repo, log)
    assert "vmrag/shims" in (repo.top / ".husky" / "post-checkout").read_text()
    assert short(run_all_events(repo, log)) == expect_each("vmrag")


def test_hooks_of_the_framework_leave_the_work_to_the_configured_ones(repo, log, monkeypatch):
    install(repo, log)
    monkeypatch.chdir(repo.top)
    monkeypatch.setenv("GIT_INDEX_FILE", ".git/index")
    repo.write(".dolt-version", "no pin\n")
    repo.git("add", "-A")
    assert framework.check_staged_pin() is False, "git has run ours, which looks at the pin"


# -- what git gives them


def test_only_exit_code_of_gate_hook_stops_git(repo, log):
    install(repo, log)
    everywhere(repo, log)
    log.recorder.write_text(f'#!/bin/sh\necho "vmrag $5" >>"{log.path}"\nexit {shims.REFUSAL_EXIT_CODE}\n')
    repo.write(".dolt-version", "2\n")
    assert repo.run("commit", "-q", "-a", "-m", "x").returncode == 1
    assert [line.split()[0] for line in log()] == ["vmrag", "other"], "git runs all gates, also after a refusal"
    log.recorder.write_text("#!/bin/sh\nexit 3\n")
    assert repo.run("commit", "-q", "-a", "-m", "x").returncode == 0
    assert repo.run("checkout", "-q", "-b", "y").returncode == 0


def test_configured_hooks_get_arguments_and_input_of_directory_hooks(repo, tmp_path):
    stage = support.Stage(repo, tmp_path)
    stage.install(place="auto")
    repo.write(".dolt-version", "2\n")
    repo.git("commit", "-q", "-a", "-m", "pin")
    stage.lines()
    repo.git("push", "-q", "origin", "main", "main:other")
    parts = [word for line in stage.lines() for word in line.split() if word.startswith("refs/heads/")]
    assert parts == ["refs/heads/main"] * 3 + ["refs/heads/other"]
    repo.git("commit", "-q", "--amend", "--no-edit")
    assert [line.split()[0] for line in stage.queue()] == ["commit", "commit", "rewrite"]


def test_linked_work_trees_have_them_and_a_repository_may_be_moved(repo, log, tmp_path):
    install(repo, log)
    log()
    repo.git("worktree", "add", "-q", "-b", "topic", "../linked tree")
    linked = Repo(tmp_path / "linked tree")
    assert log() == ["vmrag post-checkout"]
    assert short(run_all_events(linked, log, branch="topic")) == expect_each("vmrag")
    repo.git("worktree", "remove", "--force", "../linked tree")
    moved = Repo(repo.top.rename(tmp_path / "elsewhere, $HOME"))
    assert short(run_all_events(moved, log)) == expect_each("vmrag")


def test_untrusted_folder_in_a_worktree_starts_nothing(repo, log, tmp_path):
    install(repo, log)
    (tmp_path / "files/.git/vmrag-hooks").mkdir(parents=True)
    (tmp_path / "files/.git/vmrag-hooks/pre-commit").write_text(f'echo stranger >>"{log.path}"\n')
    where = (f"--git-dir={repo.top / '.git'}", f"--work-tree={tmp_path / 'files'}")
    result = subprocess.run(["git", *where, "commit", "-q", "--allow-empty", "-m", "x"], cwd=tmp_path, check=False)
    assert result.returncode == 0
    assert log() == []


# -- asked for and told of


def doctor(project: Project) -> dict[str, dict]:
    report = json.loads(project.run_quietly("doctor", "--json").out)
    findings_by_code = {finding["code"]: finding for topic in report["topics"] for finding in topic["findings"]}
    findings_by_code.pop("PATH_WITHOUT_VMRAG", None)  # as the tests are run
    return findings_by_code


def test_doctor_runs_each_configured_event_but_no_foreign_hook(project, tmp_path):
    project.vmrag("install")
    for hook in hook_config.HOOKS:
        add_foreign_hook(project.top / ".git" / "hooks", tmp_path, hook)
    project.git("config", "hook.theirs.event", "pre-push")
    project.git("config", "hook.theirs.command", f"echo theirs >>'{tmp_path}/log'")
    assert doctor(project) == {}
    assert not (tmp_path / "log").exists()
    project.git("config", "hook.vmrag-pre-push.enabled", "false")
    finding = doctor(project)["HOOK_SILENT"]
    assert (finding["subject"], finding["level"]) == ("pre-push", "warning")
    assert finding["fix"] == "run 'git config hook.vmrag-pre-push.enabled true' to enable it"
    assert "git does not run these vmrag hooks: pre-push" in project.vmrag("status").out
    project.git(*shlex.split(hints.list_commands(finding["fix"])[0])[1:])
    assert doctor(project) == {}
    project.git("config", "--unset", "include.path")
    assert doctor(project)["HOOK_SILENT"]["fix"] == "run 'vmrag install' to install the hooks"
    project.vmrag("install")
    assert doctor(project) == {}


def test_doctor_verifies_files_and_reports_the_features_of_git(project, monkeypatch):
    monkeypatch.setenv("VMRAG_HOOKS_PLACE", "files")
    project.vmrag("install")
    assert doctor(project) == {}
    monkeypatch.setenv("VMRAG_HOOKS_PLACE", "auto")
    assert doctor(project).keys() == {"HOOKS_IN_FILES"}
    assert "git runs them from its configuration" in project.vmrag("install").out
    assert doctor(project) == {}


def test_doctor_repairs_a_changed_script(project):
    project.vmrag("install")
    script = project.top / ".git" / "vmrag-hooks" / "post-merge"
    script.write_bytes(script.read_bytes() + b"# more\n")
    assert doctor(project).keys() == {"HOOK_OUTDATED"}
    project.vmrag("doctor", "--fix")
    assert script.read_bytes() == shims.format_shim("post-merge", configured=True)
    assert not (project.top / ".git" / "hooks" / "post-merge").exists()


@needs_old_git
def test_old_git_is_reported_and_repaired_by_install(project, monkeypatch):
    project.vmrag("install")
    monkeypatch.setenv("PATH", str(Path(OLD_GIT).parent))
    said = project.vmrag("status").out
    assert f"vmrag's git hooks are in git's configuration, which {OLD_GIT} (" in said
    assert "; run 'vmrag install' to install them" in said
    assert doctor(project).keys() == {"HOOKS_MISPLACED"}
    project.vmrag("install")
    assert doctor(project) == {}
    assert "warning" not in project.vmrag("status").out


def test_loop_works_and_everything_can_be_taken_out(project):
    project.vmrag("install", code=0)
    project.git("switch", "-q", "feature")
    pinned = project.pinned
    assert project.status()["index"]["revision"] == pinned
    project.git("switch", "-q", "main")
    assert project.status()["index"]["revision"] == project.pinned != pinned
    project.vmrag("uninstall")
    assert not (project.top / ".git" / "vmrag-hooks").exists()
    assert sys.executable not in (project.top / ".git" / "config").read_text()
