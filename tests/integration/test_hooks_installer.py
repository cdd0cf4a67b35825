import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import hooks as support
from tests.support.hooks import add_foreign_hook, tree
from tests.support.repos import Repo, make_repo
from tests.support.terminal import Project, new_project
from vmrag_hooks import installer, shims
from vmrag_link import hints
from vmrag_link.errors import FileFailed, HooksRefused, UsageInvalid
from vmrag_link.git import hook_choice, hook_config, plumbing
from vmrag_link.ops import buglog

log = support.log


@pytest.fixture
def repo(monkeypatch, tmp_path):
    return support.pinned_repo(monkeypatch, tmp_path)


@pytest.fixture
def places(repo):
    return plumbing.locate_work_tree(repo.top)


@pytest.fixture
def hooks(repo):
    return repo.top / ".git" / "hooks"


# -- install and uninstall


def test_install_writes_every_hook_and_records_the_interpreter(places, hooks):
    report = installer.install_hooks(places)
    assert (report.written, report.unchanged, report.chained) == (hook_config.HOOKS, (), ())
    assert places.interpreter.read_text() == sys.executable + "\n"
    assert not list(hooks.glob("*.vmrag-*"))


def test_second_install_changes_nothing(places, hooks, tmp_path):
    add_foreign_hook(hooks, tmp_path)
    installer.install_hooks(places)
    before = tree(hooks)
    assert installer.install_hooks(places).unchanged == hook_config.HOOKS
    assert tree(hooks) == before


@pytest.mark.parametrize("mode", [0o755, 0o700, 0o644])
def test_uninstall_keeps_earlier_files_byte_for_byte(repo, places, hooks, tmp_path, mode):
    add_foreign_hook(hooks, tmp_path, mode=mode)
    (hooks / "post-merge").symlink_to("../../elsewhere")
    before = tree(hooks)
    config = (repo.top / ".git" / "config").read_bytes()
    assert installer.install_hooks(places).chained == ("post-checkout", "post-merge")
    report = installer.uninstall_hooks(places)
    assert (report.removed, report.restored) == (hook_config.HOOKS, ("post-checkout", "post-merge"))
    assert tree(hooks) == before
    assert (repo.top / ".git" / "config").read_bytes() == config
    assert not places.interpreter.exists()


def test_uninstall_without_install_touches_nothing(places, hooks, tmp_path):
    add_foreign_hook(hooks, tmp_path)
    before = tree(hooks)
    assert installer.uninstall_hooks(places).removed == ()
    assert tree(hooks) == before


def test_missing_hooks_folder_is_created(places, hooks):
    for sample in hooks.iterdir():
        sample.unlink()
    hooks.rmdir()
    installer.install_hooks(places)
    assert {path.name for path in hooks.iterdir()} == set(hook_config.HOOKS)


def test_damaged_or_older_shim_is_outdated_and_replaced_without_a_backup(places, hooks):
    installer.install_hooks(places)
    old = hooks / "post-merge"
    old.write_bytes(old.read_bytes().replace(b"vmrag-hook 1", b"vmrag-hook 0") + b"# more\n")
    (hooks / "post-checkout").chmod(0o644)
    assert installer.install_hooks(places).written == ("post-checkout", "post-merge")
    assert not list(hooks.glob("*.vmrag-*"))
    assert installer.install_hooks(places).unchanged == hook_config.HOOKS


def test_hooks_path_outside_of_the_repository_is_refused_without_force(repo, places, tmp_path):
    (tmp_path / "global").mkdir()
    repo.git("config", "core.hooksPath", str(tmp_path / "global"))
    with pytest.raises(HooksRefused) as raised:
        installer.install_hooks(places)
    assert "--force" in raised.value.hint
    assert not list((tmp_path / "global").iterdir())
    assert not places.interpreter.exists()
    installer.install_hooks(places, force=True)
    assert (tmp_path / "global" / "post-merge").exists()
    with pytest.raises(HooksRefused) as raised:
        installer.uninstall_hooks(places)
    assert hints.list_commands(raised.value.hint) == [f"ls {tmp_path}/global", "vmrag uninstall"]
    assert "with --force to remove the hooks" in raised.value.hint
    assert installer.uninstall_hooks(places, force=True).removed == hook_config.HOOKS
    assert not list((tmp_path / "global").iterdir())


def test_hooks_hidden_by_a_later_hooks_path_are_uninstalled(repo, places, hooks, tmp_path):
    before = tree(hooks)
    installer.install_hooks(places)
    (tmp_path / "global").mkdir()
    repo.git("config", "core.hooksPath", str(tmp_path / "global"))
    assert installer.uninstall_hooks(places).removed == hook_config.HOOKS
    assert tree(hooks) == before


def test_hooks_path_inside_the_work_tree_is_used(repo, places, log):
    repo.git("config", "core.hooksPath", ".githooks")
    installer.install_hooks(places, python=str(log.recorder))
    repo.git("checkout", "-q", "-b", "x")
    assert log() == ["vmrag post-checkout"]
    assert (repo.top / ".githooks" / "post-checkout").exists()


def test_linked_worktree_writes_the_shared_hooks(repo, hooks, tmp_path):
    repo.git("worktree", "add", "-q", "../linked")
    installer.install_hooks(plumbing.locate_work_tree(tmp_path / "linked"))
    assert (hooks / "post-checkout").exists()


def test_hook_that_took_our_place_does_not_cost_the_chained_one(places, hooks, tmp_path):
    add_foreign_hook(hooks, tmp_path, name="first")
    installer.install_hooks(places)
    add_foreign_hook(hooks, tmp_path, name="second")
    before = tree(hooks)
    with pytest.raises(HooksRefused):
        installer.install_hooks(places)
    assert tree(hooks) == before
    (hooks / "post-checkout").write_bytes((hooks / "post-checkout.vmrag-chained").read_bytes())
    assert installer.install_hooks(places).chained == ("post-checkout",)


def test_install_reports_the_file_that_cannot_be_written(places, hooks):
    (hooks / "post-checkout.vmrag-new").mkdir()
    with pytest.raises(FileFailed, match="post-checkout"):
        installer.install_hooks(places)


# -- a hooks directory that others have, too


def obeyed(repo, hint):
    """Type the first command of a hint."""
    bin_first = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    subprocess.run(
        ["sh", "-ec", hints.list_commands(hint)[0]], cwd=repo.top, env=os.environ | {"PATH": bin_first}, check=True
    )


@pytest.fixture
def team(repo, log):
    """Install hooks that git tracks, one of which prints its own path."""
    folder = repo.top / ".githooks"
    folder.mkdir()
    (folder / "lib.sh").write_text(f'say() {{ echo "team $1" >>"{log.path}"; }}\n')
    (folder / "post-checkout").write_text('#!/bin/sh\n. "$(dirname "$0")/lib.sh"\nsay post-checkout\n')
    (folder / "post-checkout").chmod(0o755)
    repo.git("add", "-A")
    repo.git("commit", "-q", "-m", "hooks")
    return folder


@pytest.mark.parametrize("how", ["setting", "link"])
@pytest.mark.usefixtures("team")
def test_installer_refuses_tracked_hooks_and_its_hint_keeps_them_running(repo, places, hooks, log, how):
    if how == "setting":
        repo.git("config", "core.hooksPath", ".githooks")
    else:
        for sample in hooks.iterdir():
            sample.unlink()
        hooks.rmdir()
        hooks.symlink_to("../.githooks")
    with pytest.raises(HooksRefused) as raised:
        installer.install_hooks(places)
    assert repo.git("status", "--porcelain") == ""
    assert not places.interpreter.exists()
    obeyed(repo, raised.value.hint)
    installer.install_hooks(places, python=str(log.recorder))
    repo.git("checkout", "-q", "-b", "x")
    assert log() == ["team post-checkout", "vmrag post-checkout"]
    assert repo.git("status", "--porcelain") == ""
    assert repo.git("ls-files", ".githooks") == ".githooks/lib.sh\n.githooks/post-checkout"


def test_force_changes_tracked_hooks_and_uninstall_restores_them(repo, places, team):
    repo.git("config", "core.hooksPath", ".githooks")
    before = tree(team)
    assert installer.install_hooks(places, force=True).chained == ("post-checkout",)
    assert installer.runs_here(places, "post-checkout")
    installer.uninstall_hooks(places)
    assert tree(team) == before


def test_hooks_tracked_by_a_submodule_are_rejected(repo, places, tmp_path):
    other = make_repo(tmp_path / "other")
    other.commit("hooks", **{"hooks/pre-commit": "#!/bin/sh\n"})
    repo.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(other.top), "shared")
    repo.git("config", "core.hooksPath", "shared/hooks")
    with pytest.raises(HooksRefused):
        installer.install_hooks(places)


def test_untracked_hooks_in_the_work_tree_belong_to_the_user(repo, places):
    repo.git("config", "core.hooksPath", "mine")
    repo.write("mine/commit-msg", "#!/bin/sh\n")
    assert installer.install_hooks(places).written == hook_config.HOOKS


def test_hint_for_a_company_s_hooks_keeps_them_running(repo, places, log, tmp_path):
    (tmp_path / "our company").mkdir()
    add_foreign_hook(tmp_path / "our company", tmp_path, "commit-msg", name="company")
    repo.git("config", "--global", "core.hooksPath", str(tmp_path / "our company"))
    with pytest.raises(HooksRefused) as raised:
        installer.install_hooks(places)
    obeyed(repo, raised.value.hint)
    repo.git("commit", "-q", "--allow-empty", "-m", "x")
    assert [line.split()[0] for line in log()] == ["company"]
    assert installer.runs_here(places, "post-commit")


def test_unusable_hooks_path_is_rejected_with_a_working_hint(repo, places):
    repo.git("config", "core.hooksPath", "/dev/null")
    with pytest.raises(HooksRefused) as raised:
        installer.install_hooks(places)
    with pytest.raises(FileFailed):
        installer.install_hooks(places, force=True)
    assert installer.uninstall_hooks(places, force=True).removed == ()
    assert not installer.runs_here(places, "post-checkout")
    obeyed(repo, raised.value.hint)
    assert installer.install_hooks(places).unchanged == hook_config.HOOKS


# -- hooks that go by their name

DISPATCH = 'case ${0##*/} in post-checkout) echo checkout >>"LOG" ;; pre-commit) echo commit >>"LOG" ;; esac\n'
PYTHON = 'import os, sys\nprint(os.path.basename(sys.argv[0]).replace("pre-", "").replace("post-", ""), file=open("LOG", "a"))\n'
PARTS = 'for each in "$(dirname "$0")/$(basename "$0").d"/*; do "$each"; done\n'


def dispatching(hooks, log, text, *, link):
    """Install one script for two hooks; `link`: the target of the links."""
    text = text.replace("LOG", str(log.path))
    names = ["dispatch"] if link else ["post-checkout", "pre-commit"]
    for name in names:
        (hooks / name).write_text(text)
        (hooks / name).chmod(0o755)
    if link:
        for hook in ("post-checkout", "pre-commit"):
            (hooks / hook).symlink_to(link)
    for hook in ("post-checkout", "pre-commit"):
        (hooks / f"{hook}.d").mkdir()
        path = hooks / f"{hook}.d" / "1"
        path.write_text(f'#!/bin/sh\necho {hook.partition("-")[2]} >>"{log.path}"\n')
        path.chmod(0o755)


@pytest.mark.parametrize("link", ["dispatch", "../hooks/dispatch", "./dispatch", None])
@pytest.mark.parametrize(
    "text",
    [f"#!/bin/sh\n{DISPATCH}", f"#!{sys.executable}\n{PYTHON}", f"#!/bin/sh\n{PARTS}"],
    ids=["sh", "python", "folders"],
)
@pytest.mark.sample(4)
def test_chained_hook_that_reads_its_name_works_unchanged(repo, hooks, log, text, link):
    places = plumbing.locate_work_tree(repo.top)
    dispatching(hooks, log, text, link=link)
    before = everything(hooks)
    repo.git("checkout", "-q", "-b", "x")
    repo.git("commit", "-q", "--allow-empty", "-m", "x")
    assert log() == ["checkout", "commit"]
    installer.install_hooks(places, python=str(log.recorder))
    installed = everything(hooks)
    assert installer.install_hooks(places, python=str(log.recorder)).unchanged == hook_config.HOOKS
    assert everything(hooks) == installed
    repo.git("checkout", "-q", "-b", "y")
    repo.git("commit", "-q", "--allow-empty", "-m", "x")
    assert [line for line in log() if not line.startswith("vmrag")] == ["checkout", "commit"]
    installer.uninstall_hooks(places)
    assert everything(hooks) == before


def everything(folder):
    """Also what is in folders."""
    return {
        str(path.relative_to(folder)): (
            path.lstat().st_mode,
            os.readlink(path) if path.is_symlink() else path.is_file() and path.read_bytes(),  # noqa: PTH115  not tidied up
        )
        for path in folder.rglob("*")
    }


def test_chained_hook_that_reads_its_name_still_decides(repo, places, hooks):
    (hooks / "pre-commit").write_text('#!/bin/sh\n[ "${0##*/}" != pre-commit ]\n')
    (hooks / "pre-commit").chmod(0o755)
    installer.install_hooks(places)
    assert repo.run("commit", "--allow-empty", "-m", "x").returncode == 1
    (hooks / ".vmrag" / "pre-commit").chmod(0o644)
    assert repo.run("commit", "--allow-empty", "-m", "x").returncode == 0
    installer.uninstall_hooks(places)
    assert stat.S_IMODE((hooks / "pre-commit").stat().st_mode) == 0o644
    assert not (hooks / ".vmrag").exists()


@pytest.mark.parametrize(
    "over", ["#!/bin/sh\nexit 0\n", '#!/bin/sh\n. "${0%/*}/lib.sh"\n', '#!/bin/sh\ncd "$(dirname "$0")/.."\n']
)
def test_chained_hook_that_reads_only_its_folder_stays_in_it(places, hooks, over):
    (hooks / "pre-commit").write_text(over)
    (hooks / "pre-commit").chmod(0o755)
    installer.install_hooks(places)
    assert (hooks / "pre-commit.vmrag-chained").read_text() == over
    assert not (hooks / ".vmrag").exists()


def test_rewritten_hook_that_reads_its_name_is_chained_once(repo, places, hooks, log):
    dispatching(hooks, log, f"#!/bin/sh\n{DISPATCH}", link=None)
    before, text = everything(hooks), (hooks / "pre-commit").read_bytes()
    installer.install_hooks(places, python=str(log.recorder))
    (hooks / "pre-commit").write_bytes(text)
    assert installer.install_hooks(places, python=str(log.recorder)).chained == ("pre-commit",)
    repo.git("commit", "-q", "--allow-empty", "-m", "x")
    assert log()[0] == "commit"
    (hooks / "pre-commit").write_bytes(text)
    installer.uninstall_hooks(places)
    assert everything(hooks) == before


# -- the merge driver


def test_install_registers_the_merge_driver_again_for_another_interpreter(repo, places):
    assert installer.install_hooks(places).driver is True
    assert installer.install_hooks(places).driver is False
    assert repo.git("config", "merge.vmrag.driver") == shims.format_driver_command(sys.executable)
    assert repo.git("config", "merge.vmrag.name")
    assert installer.install_hooks(places, python="/opt/100% mine/python").driver is True
    assert repo.git("config", "--get-all", "merge.vmrag.driver") == shims.format_driver_command("/opt/100% mine/python")


def test_uninstall_takes_the_whole_section_of_the_driver_and_nothing_else(repo, places):
    repo.git("config", "merge.other.driver", "true")
    repo.git("config", "merge.conflictStyle", "diff3")
    installer.install_hooks(places)
    repo.git("config", "merge.vmrag.recursive", "text")  # by hand
    assert installer.uninstall_hooks(places).driver is True
    assert repo.git("config", "--get-regexp", "^merge") == "merge.other.driver true\nmerge.conflictstyle diff3"
    assert installer.uninstall_hooks(places).driver is False


def test_linked_work_tree_registers_the_driver_for_all(repo, tmp_path):
    repo.git("worktree", "add", "-q", "../linked")
    installer.install_hooks(plumbing.locate_work_tree(tmp_path / "linked"))
    assert repo.git("config", "merge.vmrag.driver") == shims.format_driver_command(sys.executable)


def test_install_reports_whether_the_attributes_name_the_driver(repo, places):
    assert installer.install_hooks(places).attributed is False
    repo.commit("attributes", **{".gitattributes": ".dolt-version merge=vmrag\n"})
    assert installer.install_hooks(places).attributed is True


# -- chained hooks run as git would run them


def test_chained_hook_runs_once_before_vmrag_with_its_arguments(repo, places, hooks, log):
    add_foreign_hook(hooks, log.folder)
    installer.install_hooks(places, python=str(log.recorder))
    head = repo.git("rev-parse", "HEAD")
    repo.git("checkout", "-q", "-b", "x")
    assert log() == [f"other {head} {head} 1 <>", "vmrag post-checkout"]


def test_chained_post_rewrite_gets_the_list_of_commits(repo, places, hooks, log):
    add_foreign_hook(hooks, log.folder, "post-rewrite")
    installer.install_hooks(places, python=str(log.recorder))
    old = repo.git("rev-parse", "HEAD")
    repo.git("commit", "-q", "--amend", "-m", "reworded")
    new = repo.git("rev-parse", "HEAD")
    assert log() == ["vmrag post-commit", f"other amend <{old} {new}>", "vmrag post-rewrite"]


def test_exit_status_of_a_chained_hook_reaches_git(repo, places, hooks, log):
    add_foreign_hook(hooks, log.folder, code=7)
    plain = repo.run("checkout", "-q", "-b", "x").returncode
    log()
    installer.install_hooks(places, python=str(log.recorder))
    assert repo.run("checkout", "-q", "-b", "y").returncode == plain != 0
    assert [line.split()[0] for line in log()] == ["other", "vmrag"]
    assert repo.run("checkout", "-q", "-b", "z", env={"VMRAG": "0"}).returncode == plain
    assert [line.split()[0] for line in log()] == ["other"]


def test_hook_that_git_would_not_run_is_not_run(repo, places, hooks, log):
    add_foreign_hook(hooks, log.folder, mode=0o644)
    installer.install_hooks(places, python=str(log.recorder))
    repo.git("checkout", "-q", "-b", "x")
    assert log() == ["vmrag post-checkout"]


# -- some hooks only


def test_only_the_named_hooks_are_written(places, hooks):
    report = installer.install_hooks(places, hooks=installer.parse_hooks("pre-push, post-merge"))
    assert report.written == ("post-merge", "pre-push")
    assert {path.name for path in hooks.iterdir()} >= {"post-merge", "pre-push"}
    assert installer.install_hooks(places, hooks=installer.parse_hooks("post-commit")).written == ("post-commit",)
    assert set(hook_config.HOOKS) & {path.name for path in hooks.iterdir()} == {"post-merge", "pre-push", "post-commit"}
    assert set(installer.install_hooks(places, hooks=hook_config.HOOKS).unchanged) == {
        "post-merge",
        "pre-push",
        "post-commit",
    }


def test_chosen_hooks_are_remembered_until_all_are_installed_or_removed(places, hooks):
    installer.install_hooks(places, hooks=["pre-push", "post-merge"])
    installer.install_hooks(places, hooks=["post-commit"])
    assert hook_choice.list_chosen_hooks(places) == ("post-merge", "post-commit", "pre-push")
    (hooks / "pre-push").unlink()
    assert installer.install_hooks(places).written == ("pre-push",)
    installer.uninstall_hooks(places, hooks=["post-commit"])
    assert hook_choice.list_chosen_hooks(places) == ("post-merge", "pre-push")
    installer.install_hooks(places, hooks=hook_config.HOOKS)
    assert hook_choice.list_chosen_hooks(places) == hook_config.HOOKS
    installer.uninstall_hooks(places, hooks=["post-commit"])
    installer.install_hooks(places, hooks=["pre-push"])  # already installed
    assert hook_choice.list_chosen_hooks(places) == tuple(hook for hook in hook_config.HOOKS if hook != "post-commit")
    installer.uninstall_hooks(places)
    assert hook_choice.list_chosen_hooks(places) == (), "none is missed"
    assert installer.install_hooks(places).written == hook_config.HOOKS


@pytest.mark.parametrize(
    ("text", "near"), [("post-chekout", "post-checkout"), ("pre-push,x", None), ("", None), ("a,,b", None)]
)
def test_unknown_hook_name_is_rejected_with_a_suggestion(text, near):
    with pytest.raises(UsageInvalid) as raised:
        installer.parse_hooks(text)
    assert (near or "post-rewrite") in raised.value.hint


def test_uninstall_removes_named_hooks_and_the_driver_with_the_last(repo, places, hooks, tmp_path):
    add_foreign_hook(hooks, tmp_path, "pre-push")
    config, before = (repo.top / ".git" / "config").read_bytes(), tree(hooks)
    installer.install_hooks(places)
    report = installer.uninstall_hooks(places, hooks=["pre-push", "post-merge"])
    assert (report.removed, report.restored, report.driver) == (("pre-push", "post-merge"), ("pre-push",), False)
    assert places.interpreter.exists()
    assert repo.git("config", "merge.vmrag.driver")
    assert installer.uninstall_hooks(
        places, hooks=[hook for hook in hook_config.HOOKS if hook not in report.removed]
    ).driver
    assert tree(hooks) == before
    assert (repo.top / ".git" / "config").read_bytes() == config
    assert not places.interpreter.exists()


# -- some work trees only


@pytest.fixture
def linked(repo, tmp_path):
    repo.git("worktree", "add", "-q", "../linked")
    return Repo(tmp_path / "linked")


def acting(log, *repos):
    """In which work trees a checkout starts Python."""
    log()
    for repo in repos:
        repo.git("checkout", "-q", "--detach")
        if log():
            yield repo.top.name


def test_hooks_for_one_work_tree_leave_the_others_alone(repo, places, linked, log, hooks):
    before = tree(hooks)
    linked_places = plumbing.locate_work_tree(linked.top)
    assert installer.install_hooks(linked_places, python=str(log.recorder), worktree=True).limited
    assert list(acting(log, repo, linked)) == ["linked"]
    assert (
        installer.install_hooks(linked_places, python=str(log.recorder), worktree=True).unchanged == hook_config.HOOKS
    )
    assert installer.install_hooks(linked_places, python=str(log.recorder)).limited  # as it was
    installer.install_hooks(places, python=str(log.recorder), worktree=True)
    assert list(acting(log, repo, linked)) == [repo.top.name, "linked"]
    assert installer.uninstall_hooks(places, worktree=True).elsewhere
    assert installer.uninstall_hooks(places, worktree=True).elsewhere
    assert list(acting(log, repo, linked)) == ["linked"]
    assert installer.uninstall_hooks(linked_places, worktree=True).removed == hook_config.HOOKS
    assert tree(hooks) == before
    assert not list(repo.top.glob(".git/**/hooked"))
    assert not (places.shared / "some-work-trees").exists()


def test_plain_install_replaces_an_installation_for_some_worktrees(repo, places, linked, log):
    installer.install_hooks(plumbing.locate_work_tree(linked.top), python=str(log.recorder), worktree=True)
    assert not installer.install_hooks(places, python=str(log.recorder), worktree=False).limited
    assert list(acting(log, repo, linked)) == [repo.top.name, "linked"]
    assert not installer.install_hooks(
        plumbing.locate_work_tree(linked.top), python=str(log.recorder), worktree=True
    ).limited
    assert list(acting(log, repo, linked)) == [repo.top.name, "linked"]  # they go on to act in all
    with pytest.raises(HooksRefused) as raised:
        installer.uninstall_hooks(places, worktree=True)
    assert raised.value.hint == "run 'vmrag uninstall' to remove them everywhere"


def test_plain_uninstall_takes_every_mark_away(repo, places, linked, hooks):
    before = tree(hooks)
    for worktree in (places, plumbing.locate_work_tree(linked.top)):
        installer.install_hooks(worktree, worktree=True)
    assert installer.uninstall_hooks(places).removed == hook_config.HOOKS
    assert tree(hooks) == before
    assert not list(repo.top.glob(".git/**/hooked"))
    installer.install_hooks(places)
    assert not (places.shared / "some-work-trees").exists()


def test_removed_worktree_loses_its_mark(repo, places, linked, log):
    installer.install_hooks(plumbing.locate_work_tree(linked.top), worktree=True)
    repo.git("worktree", "remove", "--force", str(linked.top))
    assert installer.uninstall_hooks(places, worktree=True).removed == hook_config.HOOKS


# -- as a person types it


def test_commands_print_their_changes(repo, linked):
    project, linked_project = Project(repo.top), Project(linked.top)
    assert "'post-checkout'" in project.vmrag("install", "--hooks", "post-chekout", code=2).err
    said = project.vmrag("install", "--worktree", "--hooks", "post-checkout").out
    assert "/hooks: post-checkout\n" in said
    assert "They act only in worktrees in which `vmrag install --worktree` was run" in said
    assert project.ask("install", "--worktree")["limited"] is True
    linked_project.vmrag("install", "--worktree")
    assert "Other worktrees still use them." in project.vmrag("uninstall", "--worktree").out
    project.vmrag("uninstall", "--worktree", "--hooks", "post-merge", code=2)
    assert "Removed from" in linked_project.vmrag("uninstall", "--worktree").out
    assert "Nothing to remove." in linked_project.vmrag("uninstall", "--worktree").out
    project.vmrag("install")
    assert "They still act in all worktrees." in project.vmrag("install", "--worktree").out
    assert project.vmrag("uninstall", "--worktree", code=3).err
    assert "Removed from" in project.vmrag("uninstall").out


@pytest.fixture
def new(repo):
    """Without pin and knowledge base."""
    made = new_project(repo.top.with_name("new"))
    made.write("code.py", "1\n")
    made.git("add", "-A")
    made.git("commit", "-q", "-m", "code")
    return made


def test_init_skips_hooks_tracked_by_git(new):
    new.write(".githooks/pre-commit", "#!/bin/sh\n")
    new.git("add", ".githooks")
    new.git("config", "core.hooksPath", ".githooks")
    assert (
        "Did not install the git hooks: git tracks the hooks in "
        in new.vmrag("init", "--knowledge-base", "--no-sources").out
    )
    assert [path.name for path in (new.top / ".githooks").iterdir()] == ["pre-commit"]
    assert new.ask("status")["in_sync"]


def test_init_leaves_out_the_hooks_that_were_not_chosen(new):
    new.vmrag("install", "--hooks", "post-merge")
    new.vmrag("init", "--knowledge-base", "--no-sources")
    assert (new.top / ".git" / "hooks" / "post-merge").exists()
    assert not (new.top / ".git" / "hooks" / "pre-push").exists()


def test_log_of_a_bug_is_in_the_given_repository(repo, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = buglog.write_log(ValueError("x"), ["-C", repo.top.name, "status"])
    assert path.parent == repo.top / ".git" / "vmrag" / "logs"
