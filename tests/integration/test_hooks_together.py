"""Hooks of other tools in any order of installation: each hook runs once, and uninstalling leaves
the others unchanged.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import hooks as support
from tests.support.hooks import add_foreign_hook, expect_each, run_all_events, tree
from tests.support.terminal import Project
from vmrag_hooks import installer, shims
from vmrag_link.errors import FileFailed
from vmrag_link.git import hook_config, plumbing
from vmrag_link.git import hooks as hooks_of_git

log = support.log

PRE_COMMIT = Path(sys.executable).with_name("pre-commit")
needs_pre_commit = pytest.mark.skipif(not PRE_COMMIT.exists(), reason="pre-commit is not installed")
needs_git_lfs = pytest.mark.skipif(not shutil.which("git-lfs"), reason="git-lfs is not installed")
FIRST_OR_LATER = pytest.mark.parametrize("first", [True, False], ids=["there first", "comes later"])


@pytest.fixture
def repo(monkeypatch, tmp_path):
    made = support.pinned_repo(monkeypatch, tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    (tmp_path / "bin").mkdir()
    return support.add_remote(made)


@pytest.fixture
def places(repo):
    return plumbing.locate_work_tree(repo.top)


@pytest.fixture
def hooks(repo):
    return repo.top / ".git" / "hooks"


def missing(repo):
    """Return the missing hooks that the next command reports."""
    return hooks_of_git.find_missing_hooks(plumbing.locate_work_tree(repo.top))


# -- husky, which sets core.hooksPath, and runs what people wrote into .husky/HOOK

HUSKY_9_1 = """#!/usr/bin/env sh
[ "$HUSKY" = "2" ] && set -x
n=$(basename "$0")
s=$(dirname "$(dirname "$0")")/$n

[ ! -f "$s" ] && exit 0

if [ -f "$HOME/.huskyrc" ]; then
	echo "husky - '~/.huskyrc' is DEPRECATED, please move your code to ~/.config/husky/init.sh"
fi
i="${XDG_CONFIG_HOME:-$HOME/.config}/husky/init.sh"
[ -f "$i" ] && . "$i"

[ "${HUSKY-}" = "0" ] && exit 0

export PATH="node_modules/.bin:$PATH"
sh -e "$s" "$@"
c=$?

[ $c != 0 ] && echo "husky - $n script failed (code $c)"
[ $c = 127 ] && echo "husky - command not found in PATH=$PATH"
exit $c
"""
HUSKY_9_0 = """#!/usr/bin/env sh
[ "$HUSKY" = "2" ] && set -x
h="${0##*/}"
s="${0%/*/*}/$h"

[ ! -f "$s" ] && exit 0

for f in "${XDG_CONFIG_HOME:-$HOME/.config}/husky/init.sh" "$HOME/.huskyrc"; do
	# shellcheck disable=SC1090
	[ -f "$f" ] && . "$f"
done

[ "${HUSKY-}" = "0" ] && exit 0

sh -e "$s" "$@"
c=$?

[ $c != 0 ] && echo "husky - $h script failed (code $c)"
[ $c = 127 ] && echo "husky - command not found in PATH=$PATH"
exit $c
"""
HUSKY_STUBS = {HUSKY_9_1: '#!/usr/bin/env sh\n. "$(dirname "$0")/h"', HUSKY_9_0: '#!/usr/bin/env sh\n. "${0%/*}/h"'}
HUSKY_HOOKS = (
    "pre-commit pre-merge-commit prepare-commit-msg commit-msg post-commit applypatch-msg pre-applypatch post-applypatch "
    "pre-rebase post-rewrite post-checkout post-merge pre-push pre-auto-gc"
).split()


def husky(repo, program=HUSKY_9_1):
    """Do the work of `npx husky`; return its folder."""
    repo.git("config", "core.hooksPath", ".husky/_")
    folder = repo.top / ".husky" / "_"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / ".gitignore").write_text("*")
    (folder / "h").write_text(program)
    for hook in HUSKY_HOOKS:
        (folder / hook).write_text(HUSKY_STUBS[program])
        (folder / hook).chmod(0o755)
    return folder


def husky_scripts(repo, log):
    for hook in ("pre-commit", "post-checkout", "post-merge", "pre-push"):
        repo.write(
            f".husky/{hook}", f'echo "husky {hook} <$(cat)>" >>"{log.path}"\necho "$*" >"{log.path}-arguments"\n'
        )
    repo.commit("husky's scripts", **{".husky/commit-msg": "exit 0\n"})


def short(written):
    """Return the lines without standard input, which only a push has and which must exist."""
    assert all(line.endswith("refs/heads/main " + line.split()[-1]) for line in written["pre-push"] if "<" in line)
    return {hook: [line.partition(" <")[0] for line in lines] for hook, lines in written.items()}


@pytest.mark.parametrize("program", HUSKY_STUBS, ids=["9.1", "9.0"])
def test_existing_husky_runs_its_scripts_before_vmrag(repo, places, log, program):
    folder = husky(repo, program)
    husky_scripts(repo, log)
    before = tree(folder.parent)
    report = installer.install_hooks(places, python=str(log.recorder))
    assert report.scripts == tuple(f".husky/{hook}" for hook in hook_config.HOOKS)
    assert set(report.chained) == set(hook_config.HOOKS)
    assert short(run_all_events(repo, log)) == expect_each("husky", "vmrag")
    assert Path(f"{log.path}-arguments").read_text() != "\n"
    assert repo.git("diff", "--name-only") == "", "nothing that is committed was changed"
    installer.uninstall_hooks(places)
    assert tree(folder.parent) == before


def test_script_of_husky_s_that_fails_stops_the_commit(repo, places, log):
    husky(repo)
    installer.install_hooks(places, python=str(log.recorder))
    repo.write(".husky/pre-commit", "exit 3\n")
    result = repo.run("commit", "--allow-empty", "-m", "x")
    assert result.returncode == 1
    assert "husky - pre-commit script failed (code 3)" in result.stdout + result.stderr
    assert repo.run("commit", "-q", "--allow-empty", "-m", "x", env={"HUSKY": "0"}).returncode == 0


def test_later_husky_hides_vmrag_hooks_until_reinstallation(repo, places, log, hooks):
    plain = tree(hooks)
    installer.install_hooks(places, python=str(log.recorder))
    folder = husky(repo)
    husky_scripts(repo, log)
    before = tree(folder)
    assert short(run_all_events(repo, log)) == expect_each("husky") | {"pre-push": ["husky pre-push"]}
    said = Project(repo.top).vmrag("install").out
    assert "The existing post-checkout hook runs first." in said
    assert "husky's scripts start them: .husky/post-checkout, " in said
    assert "hint: run 'git add .husky/post-checkout " in said
    installer.install_hooks(places, python=str(log.recorder))
    assert short(run_all_events(repo, log)) == expect_each("husky", "vmrag")
    installer.uninstall_hooks(places)
    assert (tree(folder), tree(hooks)) == (before, plain)


@pytest.mark.parametrize("newer", [HUSKY_9_0, HUSKY_9_1], ids=["same", "upgraded"])
def test_vmrag_hooks_run_after_husky_rewrites_its_folder(repo, places, log, newer):
    husky(repo, HUSKY_9_0)
    husky_scripts(repo, log)
    installer.install_hooks(places, python=str(log.recorder))
    folder = husky(repo, newer)
    assert missing(repo) is None
    assert short(run_all_events(repo, log)) == expect_each("vmrag", "husky")
    assert set(installer.install_hooks(places, python=str(log.recorder)).chained) == set(hook_config.HOOKS)
    assert short(run_all_events(repo, log)) == expect_each("husky", "vmrag")
    installer.uninstall_hooks(places)
    after = tree(folder)
    husky(repo, newer)
    assert tree(folder) == after


def test_husky_rewrite_on_a_branch_without_vmrag_lines_is_noticed(repo, places, log):
    husky(repo)
    installer.install_hooks(places, python=str(log.recorder))
    repo.git("add", ".husky")
    repo.git("commit", "-q", "-m", "vmrag's lines")
    husky(repo)
    repo.git("checkout", "-q", "--detach", "HEAD~1")
    gone = missing(repo)
    assert (gone.hooks, gone.why, gone.tool) == (hook_config.HOOKS, "replaced", "husky")
    report = installer.install_hooks(places, python=str(log.recorder))
    assert (report.husky, report.scripts) == (True, None), "they would stand in the way of the checkout back"
    assert missing(repo) is None
    repo.git("checkout", "-q", "main")
    assert repo.git("status", "--porcelain") == ""


def test_uninstall_keeps_committed_husky_lines_which_do_nothing_without_vmrag(repo, places, log):
    folder = husky(repo)
    husky_scripts(repo, log)
    installer.install_hooks(places, python=str(log.recorder))
    repo.git("add", ".husky")
    repo.git("commit", "-q", "-m", "vmrag's lines")
    report = installer.uninstall_hooks(places)
    assert report.kept == tuple(f".husky/{hook}" for hook in hook_config.HOOKS)
    assert repo.git("diff", "HEAD") == ""
    assert short(run_all_events(repo, log)) == expect_each("husky") | {"pre-push": ["husky pre-push"]}
    installer.uninstall_hooks(places, everything=True)
    assert not any(b"vmrag/shims" in path.read_bytes() for path in folder.parent.rglob("*") if path.is_file())


def test_husky_script_reads_all_of_a_push_with_vmrag(repo, places, log):
    husky(repo)
    repo.write(".husky/pre-push", f'cat >"{log.path}-told"\n')
    log.recorder.write_text(f'#!/bin/sh\necho "vmrag $5 <$(cat)>" >>"{log.path}"\n')
    installer.install_hooks(places, python=str(log.recorder))
    husky(repo)
    repo.write(".dolt-version", "2\n")
    repo.git("commit", "-q", "-a", "-m", "pin")
    repo.git("push", "-q", "origin", "main", "HEAD:other")
    text = Path(f"{log.path}-told").read_text()
    assert [line.split()[2] for line in text.splitlines()] == ["refs/heads/main", "refs/heads/other"]
    assert f"vmrag pre-push <{text.rstrip()}>" in "\n".join(log())


def test_uninstalling_after_npx_husky_removes_all_of_vmrag(repo, places):
    folder = husky(repo)
    before = tree(folder.parent)
    installer.install_hooks(places)
    husky(repo)
    assert installer.uninstall_hooks(places).removed == hook_config.HOOKS
    assert tree(folder.parent) == before
    assert not places.shims.exists()


def test_uninstall_reads_no_linked_script_and_accepts_any_encoding(repo, places):
    folder = husky(repo)
    (folder.parent / "pre-push").symlink_to("/dev/zero")
    repo.write("lefthook-local.toml", b"# caf\xe9\r\n")
    assert installer.uninstall_hooks(places).removed == ()
    assert (folder.parent / "pre-push").readlink() == Path("/dev/zero")
    with pytest.raises(FileFailed, match="a link to /dev/zero"):
        installer.install_hooks(places)


def test_lefthook_configuration_keeps_its_bytes_and_linked_folder_is_refused(repo, places, tmp_path):
    repo.write("lefthook.yml", "pre-push:\n  commands: {}\n")
    before = b"# caf\xe9\r\nskip: [merge]\r\n"
    repo.write("lefthook-local.yml", before)
    installer.install_hooks(places)
    assert before in (repo.top / "lefthook-local.yml").read_bytes()
    installer.uninstall_hooks(places)
    assert (repo.top / "lefthook-local.yml").read_bytes() == before
    (repo.top / "lefthook-local.yml").unlink()
    (tmp_path / "away").mkdir()
    (tmp_path / "away/lefthook-local.yml").write_bytes(before)
    (repo.top / ".config").symlink_to(tmp_path / "away")
    with pytest.raises(FileFailed):
        installer.install_hooks(places)
    assert (tmp_path / "away/lefthook-local.yml").read_bytes() == before


# -- husky 4, which claims each hook that contains "# husky"


def husky_4(hooks, log, when):
    for hook in ("pre-commit", "post-checkout", "post-merge", "pre-push"):
        path = hooks / hook
        if not path.exists() or b"# husky" in path.read_bytes():
            path.write_text(
                f'#!/bin/sh\n# husky\n\n# Created by Husky v4.3.8\n#   At: {when}\n\n. "$(dirname "$0")/husky.sh"\n'
            )
            path.chmod(0o755)
    (hooks / "husky.sh").write_text(f'echo "husky $(basename "$0") <$(cat)>" >>"{log.path}"\n')


def test_husky_4_chains_vmrag_hooks_and_is_recognized_again(repo, places, hooks, log):
    husky_4(hooks, log, "noon")
    installer.install_hooks(places, python=str(log.recorder))
    husky_4(hooks, log, "one")
    assert missing(repo) is None
    assert short(run_all_events(repo, log)) == expect_each("husky", "vmrag")
    (hooks / "pre-push").unlink()
    husky_4(hooks, log, "two")
    assert missing(repo).hooks == ("pre-push",)
    assert installer.install_hooks(places, python=str(log.recorder)).chained == ("pre-push",)
    assert short(run_all_events(repo, log)) == expect_each("husky", "vmrag")


# -- DVC, whose `install` refuses where there is a hook already


def dvc(hooks, log, *, name="{hook}"):
    """Write the hooks of `dvc install`; a recorder replaces dvc."""
    program = log.folder / "bin" / "dvc"
    program.write_text(f'#!/bin/sh\necho "dvc $2 <$(cat)>" >>"{log.path}"\n')
    program.chmod(0o755)
    for hook in ("post-checkout", "pre-commit", "pre-push"):
        path = hooks / name.format(hook=hook)
        path.write_text(f"#!/bin/sh\nexec dvc git-hook {hook} $@\n")
        path.chmod(0o777)


@FIRST_OR_LATER
def test_dvc_and_vmrag_hooks_run_once_each(repo, places, hooks, log, first):
    if first:
        dvc(hooks, log)
        before = tree(hooks)
        installer.install_hooks(places, python=str(log.recorder))
    else:
        installer.install_hooks(places, python=str(log.recorder))
        dvc(hooks, log, name="{hook}.vmrag-chained")  # manually, as the comment of the shim explains
    ran = run_all_events(repo, log)
    assert short(ran) == expect_each("dvc", "vmrag", hooks=("post-checkout", "pre-commit", "pre-push"))
    installer.uninstall_hooks(places)
    ran = run_all_events(repo, log)
    assert short(ran) == expect_each("dvc", hooks=("post-checkout", "pre-commit", "pre-push"))
    if first:
        assert tree(hooks) == before


# -- git-lfs


@pytest.fixture
def lfs(repo, log):
    """Return a function that runs `git lfs`; the log shows which of its hooks ran.

    A large file waits to be committed.
    """
    program = log.folder / "bin" / "git-lfs"
    real = shutil.which("git-lfs", path=os.environ["PATH"].partition(":")[2])
    program.write_text(
        f'#!/bin/sh\ncase $1 in post-*|pre-push) echo "lfs $1" >>"{log.path}" ;; esac\nexec "{real}" "$@"\n'
    )
    program.chmod(0o755)
    repo.write("big.bin", os.urandom(100_000))
    repo.write(".gitattributes", "*.bin filter=lfs diff=lfs merge=lfs -text\n")
    return lambda *arguments: repo.run("lfs", *arguments)


LFS_HOOKS = ("post-checkout", "post-merge", "pre-push")


@needs_git_lfs
@FIRST_OR_LATER
def test_git_lfs_and_vmrag_run_once_each_and_push_large_files(repo, places, log, lfs, first):
    hooks = places.common / "hooks"
    if not first:
        installer.install_hooks(places, python=str(log.recorder))
        ours = tree(hooks)
        assert lfs("install", "--local").returncode != 0  # it prints the existing hooks and does not change them
        assert tree(hooks) == ours
        installer.uninstall_hooks(places)
    assert lfs("install", "--local").returncode == 0
    config, before = (repo.top / ".git" / "config").read_bytes(), tree(hooks)
    installer.install_hooks(places, python=str(log.recorder))
    repo.git("add", "-A")
    assert run_all_events(repo, log) == expect_each("lfs", "vmrag", hooks=LFS_HOOKS)
    stored = [path for path in (log.folder / "remote.git" / "lfs" / "objects").rglob("*") if path.is_file()]
    assert [path.stat().st_size for path in stored] == [100_000]
    installer.uninstall_hooks(places)
    assert tree(hooks) == before
    assert (repo.top / ".git" / "config").read_bytes() == config
    assert run_all_events(repo, log) == expect_each("lfs", hooks=LFS_HOOKS)


@needs_git_lfs
def test_git_lfs_forced_over_vmrag_is_chained_by_the_next_install(repo, places, hooks, log, lfs):
    installer.install_hooks(places, python=str(log.recorder))
    assert lfs("install", "--local", "--force").returncode == 0
    repo.git("add", "-A")
    assert run_all_events(repo, log)["post-checkout"] == ["lfs post-checkout"]
    assert set(installer.install_hooks(places, python=str(log.recorder)).chained) == {*LFS_HOOKS, "post-commit"}
    assert run_all_events(repo, log) == expect_each("lfs", "vmrag", hooks=LFS_HOOKS)
    installer.uninstall_hooks(places)
    assert run_all_events(repo, log) == expect_each("lfs", hooks=LFS_HOOKS)


# -- pre-commit


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
    result = repo.run("checkout", "-q", "-b", branch, env={"PRE_COMMIT_HOME": str(log.folder / "cache")})
    assert result.returncode == 0, result.stderr + result.stdout


@needs_pre_commit
def test_earlier_pre_commit_is_chained(repo, places, framework, log, hooks):
    framework("install")
    before = tree(hooks)
    installer.install_hooks(places, python=str(log.recorder))
    checkout(repo, log, "x")
    assert log.names() == ["framework", "vmrag"]
    installer.uninstall_hooks(places)
    assert tree(hooks) == before


@needs_pre_commit
def test_later_pre_commit_runs_vmrag_and_chained_hook_once(repo, places, framework, log, hooks):
    add_foreign_hook(hooks, log.folder)
    before = tree(hooks)
    installer.install_hooks(places, python=str(log.recorder))
    framework("install")
    checkout(repo, log, "x")
    assert log.names() == ["framework", "other", "vmrag"]
    assert (
        installer.install_hooks(places, python=str(log.recorder)).unchanged == hook_config.HOOKS
    )  # never backed up: no recursion
    checkout(repo, log, "y")
    assert log.names() == ["framework", "other", "vmrag"]
    installer.uninstall_hooks(places)
    checkout(repo, log, "z")
    assert log.names() == ["framework", "other"]
    framework("uninstall")
    assert tree(hooks) == before


@needs_pre_commit
def test_pre_commit_installed_again_over_us_neither_recurses_nor_runs_twice(repo, places, framework, log, hooks):
    framework("install")
    before = tree(hooks)
    installer.install_hooks(places, python=str(log.recorder))
    framework("install")
    checkout(repo, log, "x")
    assert log.names() == ["framework", "vmrag"]
    installer.install_hooks(places, python=str(log.recorder))
    checkout(repo, log, "y")
    assert log.names() == ["framework", "vmrag"]
    installer.uninstall_hooks(places)
    assert tree(hooks) == before


@needs_pre_commit
def test_our_shim_in_both_places_does_its_work_once(repo, places, framework, log, hooks):
    framework("install")
    installer.install_hooks(places, python=str(log.recorder))
    (hooks / "post-checkout.legacy").write_bytes(shims.format_shim("post-checkout"))
    (hooks / "post-checkout.legacy").chmod(0o755)
    checkout(repo, log, "x")
    assert log.names() == ["framework", "vmrag"]


EVERY_TYPE = ("pre-commit", "post-checkout", "post-merge", "pre-push")


@needs_pre_commit
@FIRST_OR_LATER
@pytest.mark.sample(1)
def test_pre_commit_and_vmrag_run_once_in_every_hook_type(repo, places, hooks, log, first):
    config = "".join(
        f"  - id: {hook}\n    name: x\n    language: system\n    entry: sh -c 'echo framework {hook} >>{log.path}'\n"
        f"    stages: [{hook}]\n    always_run: true\n    pass_filenames: false\n"
        for hook in EVERY_TYPE
    )
    repo.commit("config", **{".pre-commit-config.yaml": f"repos:\n- repo: local\n  hooks:\n{config}"})
    cache = {"PRE_COMMIT_HOME": str(log.folder / "cache")}

    def framework(verb):
        types = [option for hook in EVERY_TYPE for option in ("-t", hook)]
        subprocess.run(
            [PRE_COMMIT, verb, *types], cwd=repo.top, env=os.environ | cache, capture_output=True, check=True
        )

    plain = tree(hooks)
    log.recorder.write_text(f'#!/bin/sh\necho "vmrag $5 <$(cat)>" >>"{log.path}"\n')
    if first:
        framework("install")
    before = tree(hooks)
    installer.install_hooks(places, python=str(log.recorder))
    if not first:
        framework("install")
    written = short(run_all_events(repo, log, **cache))
    assert {hook: sorted(lines) for hook, lines in written.items()} == expect_each("framework", "vmrag")
    installer.uninstall_hooks(places)
    assert run_all_events(repo, log, **cache) == expect_each("framework")
    if first:
        assert tree(hooks) == before
    framework("uninstall")
    assert tree(hooks) == plain
