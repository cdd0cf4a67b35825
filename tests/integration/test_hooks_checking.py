"""The shims of pre-commit, pre-merge-commit and pre-push: when they ask Python, and what stops
git.
"""

import shutil

import pytest

from tests.support import hooks
from tests.support.hooks import SHELLS
from tests.support.repos import Repo, make_repo
from vmrag_hooks import shims
from vmrag_link.git import hook_config

stage = hooks.stage
REFUSED = f"#!/bin/sh\nexit {shims.REFUSAL_EXIT_CODE}\n"
ZERO = "0" * 40


@pytest.fixture
def remote(stage, tmp_path):
    """`origin` has `main`."""
    stage.repo.git("init", "-q", "--bare", str(tmp_path / "remote.git"))
    stage.repo.git("remote", "add", "origin", str(tmp_path / "remote.git"))
    stage.repo.git("push", "-q", "origin", "main")
    stage.lines()
    return tmp_path / "remote.git"


def asked(stage):
    """The hooks that asked Python whether git may go on."""
    return [line for line in stage.starts() if line.startswith("pre-")]


def answers(stage, line):
    """Return the input of Python: `git`, `cwd` or `stdin`."""
    return [text.partition(": ")[2] for text in stage.lines() if text.startswith(f"{line}: ")]


# -- commits


WAYS = {
    "plain": ("commit", "-m", "x"),
    "-a": ("commit", "-a", "-m", "x"),
    "-p": ("commit", "-p", "-m", "x"),
    "amend": ("commit", "--amend", "-m", "x"),
    "amend -a": ("commit", "--amend", "-a", "-m", "x"),
    "fixup": ("commit", "--fixup", "HEAD"),
    "empty": ("commit", "--allow-empty", "--only", "-m", "x"),
    "code": ("commit", "-m", "x", "--", "code"),
    "-i code": ("commit", "-m", "x", "-i", "code"),
    "pin": ("commit", "-m", "x", "--", ".dolt-version"),
    "folder": ("-C", "folder", "commit", "-m", "x", "../code"),
    "index": ("commit", "-m", "x"),
}
"""Ways to commit; `index` is one of another index file."""

PINS = {
    "same": (),
    "written again": ("write 1",),
    "edited": ("write x",),
    "staged": ("write x", "add"),
    "staged and edited back": ("write x", "add", "write 1"),
    "staged and edited": ("write x", "add", "write y"),
    "removed": ("rm -q",),
    "removed from the index": ("rm -q --cached",),
    "deleted": ("delete",),
    "executable": ("update-index --chmod=+x",),
}


@pytest.fixture
def place(stage, request, tmp_path):
    """A work tree on a branch of its own, with `folder/`."""
    repo = stage.repo
    repo.git("switch", "-q", "-c", "own")
    if request.param == "worktree":
        repo.git("switch", "-q", "main")
        repo.git("worktree", "add", "-q", "../linked", "own")
        repo = Repo(tmp_path / "linked")
    elif request.param == "submodule":
        outer = make_repo(tmp_path / "outer")
        outer.git("submodule", "--quiet", "add", str(repo.top), "inner")
        repo = Repo(outer.top / "inner")
        stage.install(repo)
        (outer.top / ".git" / "modules" / "inner" / "vmrag" / "kb").mkdir(parents=True)
    repo.commit("folder", **{"folder/file": "1", "code": "1"})
    stage.apply(repo)
    stage.lines()
    return repo


@pytest.mark.parametrize("place", ["", "worktree", "submodule"], indirect=True)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("pin", PINS)
@pytest.mark.sample(6)
def test_every_commit_that_changes_the_pin_starts_python(stage, place, way, pin):
    same = place.git("show", "HEAD:.dolt-version") + "\n"
    index = {"GIT_INDEX_FILE": str(place.top.parent / "index")} if way == "index" else {}
    if index:
        place.git("read-tree", "HEAD", env=index)
    for step in PINS[pin]:
        name, _, rest = step.partition(" ")
        if name == "write":
            place.write(".dolt-version", same if rest == "1" else rest)
        elif name == "delete":
            (place.top / ".dolt-version").unlink()
        else:
            place.git(name, *rest.split(), ".dolt-version", env=index)
    place.write("code", "2")
    if way != "empty":
        place.git("add", "code", env=index)
    before = place.git("rev-parse", "HEAD")
    result = place.run("-c", "core.quotePath=false", *WAYS[way], env=index, stdin="y\n" * 9)
    committed = place.git("diff", "--name-only", before, "HEAD").split()
    starts = asked(stage)
    if ".dolt-version" in committed:
        assert len(starts) == 1, result
    if pin in ("same", "written again"):
        assert starts == [], result
        assert committed == ["code"] or way in ("empty", "pin", "-p"), result


def test_commit_starts_python_if_an_earlier_index_stages_another_pin(stage):
    """git compares the pin in the index that it commits, whatever the work tree's file is."""
    blob = stage.repo.git("rev-parse", "side:.dolt-version")
    stage.repo.git("update-index", "--cacheinfo", f"100644,{blob},.dolt-version")
    stage.repo.git("commit", "-q", "-m", "x")
    assert len(asked(stage)) == 1
    assert stage.repo.git("rev-parse", "HEAD:.dolt-version") == blob


@pytest.mark.parametrize("state", ["sparse", "assume unchanged", "untracked", "line ends", "no pin"])
def test_commit_of_code_starts_no_python(stage, state):
    repo = stage.repo
    if state == "sparse":
        repo.git("sparse-checkout", "set", "--no-cone", "/code")
        assert not (repo.top / ".dolt-version").exists()
    elif state == "assume unchanged":
        repo.git("update-index", "--assume-unchanged", ".dolt-version")
        repo.write(".dolt-version", "x")
    elif state == "line ends":
        repo.git("config", "core.autocrlf", "true")
        (repo.top / ".dolt-version").unlink()
        repo.git("checkout", "-q", "--", ".dolt-version")
        assert b"\r\n" in (repo.top / ".dolt-version").read_bytes()
    else:
        repo.git("rm", "-q", ".dolt-version")
        repo.git("commit", "-q", "--no-verify", "-m", "no pin")
        if state == "untracked":
            repo.write(".dolt-version", "x")
    stage.lines()
    for way in (("-m", "x"), ("-a", "-m", "x"), ("-m", "x", "--", "code")):
        repo.write("code", " ".join(way))
        repo.git("add", "code")
        repo.git("commit", "-q", *way)
    assert asked(stage) == []


def test_first_commit_starts_python_only_to_check_its_pin(stage):
    stage.repo.git("checkout", "-q", "--orphan", "new")
    stage.lines()
    stage.repo.git("commit", "-q", "-m", "x")
    assert asked(stage) == ["pre-commit .git/index"]


@pytest.mark.parametrize("how", ["staged", "unstaged", "uncommitted documents", "open merge", "removed"])
def test_commit_starts_python_if_pin_or_documents_differ(stage, how):
    repo, git_folder = stage.repo, stage.repo.top / ".git"
    repo.write("code", "2")
    repo.git("add", "code")
    if how == "staged":
        repo.write(".dolt-version", "x")
        repo.git("add", ".dolt-version")
    elif how == "unstaged":
        repo.write(".dolt-version", "x")
    elif how == "removed":
        repo.git("rm", "-q", ".dolt-version")
    elif how == "uncommitted documents":
        (git_folder / "vmrag" / "kb" / "uncommitted").touch()
    else:
        (git_folder / "MERGE_HEAD").write_text(repo.git("rev-parse", "side") + "\n")
    repo.git("commit", "-q", "-m", "x")
    assert asked(stage) == ["pre-commit .git/index"]


@pytest.mark.parametrize(
    ("options", "index"),
    [((), "index"), (("-a",), "index.lock"), (("--", ".dolt-version"), "next-index-"), (("-i", "code"), "index.lock")],
    ids=["plain", "-a", "paths", "-i"],
)
def test_python_gets_the_committed_index_without_git_variables(stage, options, index):
    stage.repo.write(".dolt-version", "x")
    stage.repo.write("code", "2")
    if not options:
        stage.repo.git("add", "-A")
    stage.repo.git("commit", "-q", "-m", "x", *options)
    lines = stage.lines()
    assert lines[0].startswith("-P -E -m vmrag_hooks pre-commit ")
    assert lines[0].rpartition("/")[2].startswith(index)
    assert lines[1:4] == ["git: ", f"cwd: {stage.repo.top}", "stdin: "]


def test_merge_runs_its_check_before_the_commit(stage):
    stage.repo.git("merge", "-q", "--no-ff", "-m", "m", "side")
    assert asked(stage) == ["pre-merge-commit"]


@pytest.mark.parametrize("command", [["commit", "-q", "-a", "-m", "x"], ["merge", "-q", "--no-ff", "-m", "m", "side"]])
def test_refusal_stops_git_and_no_verify_goes_past_it(stage, command):
    before = stage.repo.git("rev-parse", "HEAD")
    if command[0] == "commit":
        stage.repo.write(".dolt-version", "x")
    stage.recorder.write_text(REFUSED)
    assert stage.repo.run(*command).returncode != 0
    assert stage.repo.git("rev-parse", "HEAD") == before
    if command[0] == "merge":
        stage.repo.git("merge", "--abort")
    assert stage.repo.run(*command, "--no-verify").returncode == 0
    assert stage.repo.git("rev-parse", "HEAD") != before


@pytest.mark.parametrize("code", [1, 2, 127, 137])
def test_failing_python_does_not_stop_a_commit(stage, code):
    stage.fails(code)
    stage.repo.write(".dolt-version", "x")
    result = stage.repo.run("commit", "-q", "-a", "-m", "x")
    assert result.returncode == 0
    assert "vmrag: the pin was not checked, because" in result.stderr.splitlines()[0]


@pytest.mark.parametrize("hook", hook_config.HOOKS)
@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.sample(5)
def test_missing_python_stops_only_a_push_with_new_pin(stage, shell, hook, remote, tmp_path):
    stage.recorder.unlink()
    (tmp_path / "bin").mkdir()
    for program in ("git", "cat"):
        (tmp_path / "bin" / program).symlink_to(shutil.which(program))
    stage.repo.git("symbolic-ref", "HEAD", "refs/heads/side")
    stage.repo.write(".dolt-version", "x")
    side = stage.repo.git("rev-parse", "side")
    stdin = f"refs/heads/side {side} refs/heads/side {ZERO}\n" if hook == "pre-push" else ""
    result = stage.run(shell, hook, "origin", "b", "1", stdin=stdin, PATH=str(tmp_path / "bin"))
    said = result.stderr.splitlines()
    assert said[0].endswith("because no Python with vmrag-link was found; run 'vmrag install' to record one")
    assert said[1:] == ([f"vmrag: {shims.UNCHECKED_PUSH}"] if hook == "pre-push" else [])
    assert (result.returncode, result.stdout) == (int(hook == "pre-push"), "")


@pytest.mark.parametrize("shell", SHELLS)
def test_push_without_a_new_pin_continues_after_failures(stage, shell, remote):
    stage.fails(1)
    main = stage.repo.git("rev-parse", "main")
    result = stage.run(shell, "pre-push", "origin", "b", stdin=f"refs/heads/main {main} refs/heads/new {ZERO}\n")
    assert result.returncode == 0
    assert [line for line in result.stderr.splitlines() if "were not checked" in line]
    shutil.rmtree(stage.repo.top / ".git" / "vmrag" / "kb")
    result = stage.run(shell, "pre-push", "origin", "b", stdin=f"refs/heads/main {main} refs/heads/new {ZERO}\n")
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_vmrag_0_runs_only_the_chained_hook(stage, tmp_path):
    hooks.add_foreign_hook(stage.repo.top / ".git" / "hooks", tmp_path, "pre-commit.vmrag-chained", code=1)
    stage.recorder.write_text(REFUSED)
    stage.repo.write(".dolt-version", "x")
    assert stage.repo.run("commit", "-q", "-a", "-m", "x", env={"VMRAG": "0"}).returncode == 1
    assert stage.lines() == ["other  <>"]


@pytest.mark.parametrize("hook", hook_config.CHECKING)
def test_vmrag_hook_is_skipped_if_the_chained_hook_rejects(stage, hook, remote, tmp_path):
    hooks.add_foreign_hook(stage.repo.top / ".git" / "hooks", tmp_path, f"{hook}.vmrag-chained", code=3)
    stage.repo.write(".dolt-version", "x")
    command = {
        "pre-commit": ["commit", "-q", "-a", "-m", "x"],
        "pre-merge-commit": ["merge", "-q", "--no-ff", "-m", "m", "-X", "theirs", "side"],
        "pre-push": ["push", "-q", "origin", "side"],
    }[hook]
    if hook != "pre-commit":
        stage.repo.git("checkout", "-q", "--", ".")
        stage.lines()
    assert stage.repo.run(*command).returncode != 0
    assert [line.split()[0] for line in stage.lines()][:1] == ["other"]
    assert asked(stage) == []


def test_linked_worktree_uses_its_own_index_and_state(stage, tmp_path):
    stage.repo.git("worktree", "add", "-q", "../linked", "side")
    linked = Repo(tmp_path / "linked")
    stage.apply(linked)
    stage.lines()
    linked.commit("code", code="3")
    assert asked(stage) == []
    linked.write(".dolt-version", "x")
    linked.git("commit", "-q", "-a", "-m", "x")
    lines = stage.lines()
    assert lines[0].endswith("/worktrees/linked/index.lock")
    assert lines[1:3] == ["git: ", f"cwd: {linked.top}"]


def test_submodule_uses_its_own_pin(stage, tmp_path):
    outer = make_repo(tmp_path / "outer")
    outer.git("submodule", "--quiet", "add", str(stage.repo.top), "inner")
    inner = Repo(outer.top / "inner")
    stage.install(inner)
    (outer.top / ".git" / "modules" / "inner" / "vmrag" / "kb").mkdir(parents=True)
    stage.apply(inner)
    inner.commit("code", code="3")
    assert asked(stage) == []
    inner.write(".dolt-version", "x")
    inner.git("add", ".dolt-version")
    inner.git("commit", "-q", "-m", "pin")
    assert asked(stage)[0].endswith("/modules/inner/index")


# -- pushes


def test_push_without_a_new_pin_starts_no_python(stage, remote):
    stage.repo.commit("code", code="2")
    stage.repo.git("push", "-q", "origin", "main")
    stage.repo.git("push", "-q", "origin", "main")  # up to date: empty standard input
    assert asked(stage) == []


def test_push_of_a_new_ref_cannot_assume_commits_of_the_remote(stage, remote):
    """The last known branches may come from another host, or contain commits of other users."""
    stage.repo.git("push", "-q", "origin", "twin:new")
    assert len(asked(stage)) == 1
    stage.repo.git("push", "-q", "origin", "--delete", "new")
    assert asked(stage) == []
    stage.repo.git("tag", "-a", "v1", "-m", "v1")
    stage.repo.git("push", "-q", "origin", "v1")
    assert len(asked(stage)) == 1


def test_push_of_a_new_pin_hands_on_git_s_lines(stage, remote):
    side, twin = stage.repo.git("rev-parse", "side"), stage.repo.git("rev-parse", "twin")
    stage.repo.git("push", "-q", "origin", "side", "twin")
    lines = stage.lines()
    assert lines[0] == f"-P -E -m vmrag_hooks pre-push origin {remote}"
    assert lines[1] == "git: "
    assert sorted([lines[3].removeprefix("stdin: "), lines[4]]) == [
        f"refs/heads/side {side} refs/heads/side {ZERO}",
        f"refs/heads/twin {twin} refs/heads/twin {ZERO}",
    ]


def test_new_pin_in_one_of_several_refs_is_enough(stage, remote):
    stage.repo.git("push", "-q", "origin", "twin:old")
    stage.lines()
    stage.repo.git("push", "-q", "origin", ":old", "side")
    assert len(asked(stage)) == 1


def test_forced_push_that_takes_a_pin_back_starts_python(stage, remote):
    stage.repo.git("push", "-q", "origin", "side:old")
    stage.lines()
    stage.repo.git("push", "-q", "--force", "origin", "main:old")
    assert len(asked(stage)) == 1


def test_pin_dropped_by_a_merge_is_still_pushed(stage, remote):
    stage.repo.commit("code", code="2")
    stage.repo.git("merge", "-q", "--no-ff", "-s", "ours", "-m", "m", "side")
    stage.lines()
    stage.repo.git("push", "-q", "origin", "main")
    assert len(asked(stage)) == 1


def test_push_of_local_names_with_spaces_asks_python_once(stage, remote):
    stage.repo.git("push", "-q", "origin", "twin^{/fir}:refs/heads/a", "side^{/sec on|seco}:refs/heads/b")
    assert len(asked(stage)) == 1


def test_push_to_a_url_knows_only_its_own_refs(stage, remote):
    stage.repo.git("push", "-q", str(remote), "main:refs/heads/other")
    assert asked(stage) == [f"pre-push {remote} {remote}"]
    stage.repo.commit("code", code="2")
    stage.repo.git("push", "-q", str(remote), "main:refs/heads/other")
    assert asked(stage) == []


@pytest.mark.parametrize("ref", ["refs/vmrag/data", "refs/heads/vmrag/data"])
def test_ref_of_vmrag_is_not_part_of_a_code_push(ref, stage, remote):
    stage.repo.git("push", "-q", "origin", f"main:{ref}")
    assert len(asked(stage)) == 1
    stage.repo.git("push", "-q", "origin", "--delete", ref)
    assert len(asked(stage)) == 1


def test_mirror_push_always_starts_python(stage, remote, tmp_path):
    for _ in range(2):
        stage.repo.git("push", "-q", "--mirror", "origin")
        assert asked(stage) == [f"pre-push origin {remote} mirror"]
    stage.repo.git("push", "-q", "origin", "main")
    assert asked(stage) == []
    stage.repo.git("remote", "add", "--mirror=push", "copy", str(remote))
    stage.repo.git("push", "-q", "copy")
    assert asked(stage) == [f"pre-push copy {remote}"]


def test_refused_push_pushes_nothing(stage, remote):
    stage.recorder.write_text(REFUSED)
    assert stage.repo.run("push", "-q", "origin", "side").returncode != 0
    assert "side" not in stage.repo.git("ls-remote", "origin")
    assert stage.repo.run("push", "-q", "--no-verify", "origin", "side").returncode == 0


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(
    ("lines", "asks"),
    [
        ([], False),
        (["(delete) 0 refs/heads/x {twin}"], False),
        (["refs/heads/twin {twin} refs/heads/twin {twin}"], False),
        (["refs/heads/twin {twin} refs/heads/twin 0"], True),
        (["refs/heads/side {side} refs/heads/side 0"], True),
        (["(delete) 0 refs/heads/x {twin}", "HEAD^{{/a b c}} {side} refs/heads/side {twin}"], True),
        (["refs/heads/twin {twin} refs/heads/twin 0", "refs/heads/side {side} refs/heads/side 0"], True),
    ],
    ids=["empty", "delete", "old", "branch", "new", "spaces", "several"],
)
@pytest.mark.sample(5)
def test_all_shells_read_a_push_alike(stage, remote, shell, lines, asks):
    names = {"twin": stage.repo.git("rev-parse", "twin"), "side": stage.repo.git("rev-parse", "side")}
    stdin = "".join(f"{line.format(**names).replace(' 0', f' {ZERO}')}\n" for line in lines)
    result = stage.run(shell, "pre-push", "origin", str(remote), stdin=stdin)
    assert (result.returncode, result.stdout) == (0, "")
    logged = stage.lines()
    assert bool(logged) == asks
    if asks:
        assert "\n".join(logged[3:]) == f"stdin: {stdin}".rstrip()


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("number", [63, 64, 65, 200])
@pytest.mark.sample(1)
def test_push_of_many_refs_starts_python_for_one_new_pin(stage, remote, shell, number):
    twin, side = (stage.repo.git("rev-parse", name) for name in ("twin", "side"))
    old = [f"refs/heads/b{index} {twin} refs/heads/b{index} {twin}\n" for index in range(number)]
    stage.run(shell, "pre-push", "origin", str(remote), stdin="".join(old))
    assert stage.starts() == []
    pushed = "".join([*old[1:], f"refs/heads/side {side} refs/heads/side {twin}\n"])
    stage.run(shell, "pre-push", "origin", str(remote), stdin=pushed)
    logged = stage.lines()
    assert logged[0].endswith(f"pre-push origin {remote}")
    assert "\n".join(logged[3:]) == f"stdin: {pushed}".rstrip()


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("reads", [True, False], ids=["reads", "does not read"])
@pytest.mark.sample(1)
def test_chained_pre_push_and_vmrag_get_arguments_and_lines(stage, remote, shell, reads, tmp_path):
    folder = stage.repo.top / ".git" / "hooks"
    chained = hooks.add_foreign_hook(folder, tmp_path, "pre-push.vmrag-chained")
    if not reads:
        chained.write_text("#!/bin/sh\nexit 0\n")
    side = stage.repo.git("rev-parse", "side")
    pushed = [f"refs/heads/b{number} {side} refs/heads/b{number} {ZERO}" for number in range(2000)]
    result = stage.run(shell, "pre-push", "origin", "url", stdin="\n".join(pushed) + "\n")
    assert (result.returncode, result.stderr) == (0, "loud\n")
    logged = stage.lines()
    if reads:
        assert logged[:2000] == [f"other origin url <{pushed[0]}", *pushed[1:-1], f"{pushed[-1]}>"]
    assert logged[-2000:] == [f"stdin: {pushed[0]}", *pushed[1:]]
