import sys

import pytest
from vmrag_hooks import driver_command, installer, shims

from tests.support import hooks as support
from tests.support.hooks import foreign, tree
from tests.support.repos import Repo, isolate, make_repo
from tests.support.terminal import Project
from vmrag_link.errors import FileFailed, HooksRefused, UsageInvalid
from vmrag_link.git import plumbing

log = support.log


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
def test_uninstall_leaves_what_was_there_byte_for_byte(repo, places, hooks, tmp_path, mode):
    foreign(hooks, tmp_path, mode=mode)
    (hooks / "post-merge").symlink_to("../../elsewhere")
    before = tree(hooks)
    config = (repo.top / ".git" / "config").read_bytes()
    assert installer.install(places).chained == ("post-checkout", "post-merge")
    report = installer.uninstall(places)
    assert (report.removed, report.restored) == (shims.HOOKS, ("post-checkout", "post-merge"))
    assert tree(hooks) == before
    assert (repo.top / ".git" / "config").read_bytes() == config
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
    with pytest.raises(HooksRefused) as raised:
        installer.uninstall(places)
    assert "vmrag uninstall --force" in raised.value.hint
    assert installer.uninstall(places, force=True).removed == shims.HOOKS
    assert not list((tmp_path / "global").iterdir())


def test_hooks_that_a_hooks_path_set_later_hides_are_uninstalled_too(repo, places, hooks, tmp_path):
    before = tree(hooks)
    installer.install(places)
    (tmp_path / "global").mkdir()
    repo.git("config", "core.hooksPath", str(tmp_path / "global"))
    assert installer.uninstall(places).removed == shims.HOOKS
    assert tree(hooks) == before


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
    new = repo.git("rev-parse", "HEAD")
    assert log() == ["vmrag post-commit", f"other amend <{old} {new}>", "vmrag post-rewrite"]


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


# -- some hooks only


def test_only_the_named_hooks_are_written_and_others_of_ours_stay(places, hooks):
    report = installer.install(places, hooks=installer.named("pre-push, post-merge"))
    assert report.written == ("post-merge", "pre-push")
    assert {path.name for path in hooks.iterdir()} >= {"post-merge", "pre-push"}
    assert installer.install(places, hooks=installer.named("post-commit")).written == ("post-commit",)
    assert set(shims.HOOKS) & {path.name for path in hooks.iterdir()} == {"post-merge", "pre-push", "post-commit"}
    assert set(installer.install(places).unchanged) == {"post-merge", "pre-push", "post-commit"}


@pytest.mark.parametrize(
    ("text", "near"), [("post-chekout", "post-checkout"), ("pre-push,x", None), ("", None), ("a,,b", None)]
)
def test_a_name_that_is_no_hook_of_ours_is_refused_with_what_was_probably_meant(text, near):
    with pytest.raises(UsageInvalid) as raised:
        installer.named(text)
    assert (near or "post-rewrite") in raised.value.hint


def test_only_the_named_hooks_are_removed_and_the_rest_goes_with_the_last(repo, places, hooks, tmp_path):
    foreign(hooks, tmp_path, "pre-push")
    config, before = (repo.top / ".git" / "config").read_bytes(), tree(hooks)
    installer.install(places)
    report = installer.uninstall(places, hooks=["pre-push", "post-merge"])
    assert (report.removed, report.restored, report.driver) == (("pre-push", "post-merge"), ("pre-push",), False)
    assert places.interpreter.exists()
    assert repo.git("config", "merge.vmrag.driver")
    assert installer.uninstall(places, hooks=[hook for hook in shims.HOOKS if hook not in report.removed]).driver
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
    there = plumbing.locate(linked.top)
    assert installer.install(there, python=str(log.recorder), worktree=True).limited
    assert list(acting(log, repo, linked)) == ["linked"]
    assert installer.install(there, python=str(log.recorder), worktree=True).unchanged == shims.HOOKS
    assert installer.install(there, python=str(log.recorder)).limited  # as it was
    installer.install(places, python=str(log.recorder), worktree=True)
    assert list(acting(log, repo, linked)) == [repo.top.name, "linked"]
    assert installer.uninstall(places, worktree=True).elsewhere
    assert installer.uninstall(places, worktree=True).elsewhere
    assert list(acting(log, repo, linked)) == ["linked"]
    assert installer.uninstall(there, worktree=True).removed == shims.HOOKS
    assert tree(hooks) == before
    assert not list(repo.top.glob(".git/**/hooked"))
    assert not (places.shared / "some-work-trees").exists()


def test_a_plain_install_ends_what_was_for_some_work_trees(repo, places, linked, log):
    installer.install(plumbing.locate(linked.top), python=str(log.recorder), worktree=True)
    assert not installer.install(places, python=str(log.recorder), worktree=False).limited
    assert list(acting(log, repo, linked)) == [repo.top.name, "linked"]
    assert not installer.install(plumbing.locate(linked.top), python=str(log.recorder), worktree=True).limited
    assert list(acting(log, repo, linked)) == [repo.top.name, "linked"]  # they go on to act in all
    with pytest.raises(HooksRefused) as raised:
        installer.uninstall(places, worktree=True)
    assert raised.value.hint == "vmrag uninstall"


def test_a_plain_uninstall_takes_every_mark_away(repo, places, linked, hooks):
    before = tree(hooks)
    for each in (places, plumbing.locate(linked.top)):
        installer.install(each, worktree=True)
    assert installer.uninstall(places).removed == shims.HOOKS
    assert tree(hooks) == before
    assert not list(repo.top.glob(".git/**/hooked"))
    installer.install(places)
    assert not (places.shared / "some-work-trees").exists()


def test_a_work_tree_that_is_removed_takes_its_mark_along(repo, places, linked, log):
    installer.install(plumbing.locate(linked.top), worktree=True)
    repo.git("worktree", "remove", "--force", str(linked.top))
    assert installer.uninstall(places, worktree=True).removed == shims.HOOKS


# -- as a person types it


def test_the_commands_say_what_they_did(repo, linked):
    here, there = Project(repo.top), Project(linked.top)
    assert "Is it 'post-checkout'?" in here.vmrag("install", "--hooks", "post-chekout", code=2).err
    said = here.vmrag("install", "--worktree", "--hooks", "post-checkout").out
    assert "/hooks: post-checkout\n" in said
    assert "They act only in work trees in which `vmrag install --worktree` was run" in said
    assert here.ask("install", "--worktree")["limited"] is True
    there.vmrag("install", "--worktree")
    assert "others use them" in here.vmrag("uninstall", "--worktree").out
    here.vmrag("uninstall", "--worktree", "--hooks", "post-merge", code=2)
    assert "Removed from" in there.vmrag("uninstall", "--worktree").out
    assert "Nothing to remove." in there.vmrag("uninstall", "--worktree").out
    here.vmrag("install")
    assert "They act in all work trees, as before." in here.vmrag("install", "--worktree").out
    assert here.vmrag("uninstall", "--worktree", code=3).err
    assert "Removed from" in here.vmrag("uninstall").out
