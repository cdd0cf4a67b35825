"""Lines that the shims write about commits, for the table of links."""

import subprocess

import pytest

from tests.support import hooks
from tests.support.hooks import SHELLS
from tests.support.repos import Repo, make_repo
from vmrag_hooks import installer
from vmrag_link.git import plumbing

stage = hooks.stage


def commit_of(repo, ref="HEAD"):
    return repo.git("rev-parse", ref)


def test_every_commit_is_queued_with_its_branch(stage):
    first = stage.repo.commit("one", code="2")
    stage.repo.git("switch", "-q", "-c", "topic/ünï")
    second = stage.repo.commit("two", pin="x")
    assert stage.queue() == [f"commit {first} main", f"commit {second} topic/ünï"]


def test_amended_commit_is_queued_and_then_that_it_replaced_another(stage):
    old = commit_of(stage.repo)
    stage.repo.git("commit", "-q", "--amend", "-m", "x")
    new = commit_of(stage.repo)
    assert stage.queue() == [f"commit {new} main", f"rewrite {old} {new}"]


def test_detached_head_has_no_branch(stage):
    stage.repo.git("checkout", "-q", "--detach")
    assert [f"commit {stage.repo.commit('x', code='2')} "] == stage.queue()


@pytest.mark.parametrize("how", [["merge", "-q", "side"], ["merge", "-q", "--no-ff", "-m", "m", "side"]])
def test_finished_merge_is_queued(stage, how):
    stage.repo.git(*how)
    assert stage.queue() == [f"commit {commit_of(stage.repo)} main"]


@pytest.mark.parametrize("backend", ["--merge", "--apply"])
def test_rebase_queues_each_commit_with_its_original(stage, backend):
    stage.repo.git("checkout", "-q", "-b", "work", "twin")
    old = [stage.repo.commit(name, **{name: "1"}) for name in ("a", "b", "c")]
    stage.queue()
    stage.repo.git("rebase", "-q", backend, "side")
    new = stage.repo.git("rev-list", "--reverse", "side..work").split()
    lines = stage.queue()
    assert [line for line in lines if line.startswith("commit")] == [f"commit {commit} " for commit in new]
    assert [line for line in lines if line.startswith("rewrite")] == [
        f"rewrite {was} {now}" for was, now in zip(old, new, strict=True)
    ]


def test_picked_and_a_reverted_commit_are_queued(stage):
    stage.repo.git("cherry-pick", "side~1", "side")
    picked = stage.repo.git("rev-list", "--reverse", "twin..main").split()
    stage.repo.git("revert", "--no-edit", "HEAD")
    assert stage.queue() == [f"commit {commit_id} main" for commit_id in [*picked, commit_of(stage.repo)]]


def test_checkout_queues_nothing(stage):
    stage.repo.git("checkout", "-q", "side")
    assert stage.queue() == []


def test_queue_is_not_written_without_a_knowledge_base(stage):
    (stage.repo.top / ".git" / "vmrag" / "kb").rmdir()
    stage.repo.git("commit", "-q", "--amend", "-m", "x")
    assert stage.queue() == []


def test_queue_that_cannot_be_written_fails_nothing_and_is_not_mentioned(stage):
    (stage.repo.top / ".git" / "vmrag" / "links.queue").mkdir()
    result = stage.repo.run("commit", "-q", "--amend", "-m", "x")
    assert (result.returncode, result.stderr) == (0, "")


def test_work_trees_that_commit_at_the_same_time_lose_no_line(stage, tmp_path):
    linked = [stage.repo.top]
    for number in range(3):
        stage.repo.git("worktree", "add", "-q", f"../w{number}", "-b", f"w{number}")
        linked.append(tmp_path / f"w{number}")
    script = 'for i in 1 2 3 4; do git commit -q --allow-empty -m "$0 $i"; done'
    running = [subprocess.Popen(["sh", "-c", script, str(number)], cwd=top) for number, top in enumerate(linked)]
    assert [process.wait() for process in running] == [0] * 4
    made = stage.repo.git("rev-list", "--all", "--not", "side", "twin").split()
    assert sorted(line.split()[1] for line in stage.queue()) == sorted(made)
    assert len(made) == 16


# -- where HEAD's commit is written down


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("kind", ["loose", "packed", "detached", "linked", "linked detached", "submodule", "symbolic"])
@pytest.mark.sample(5)
def test_all_shells_find_the_commit_wherever_git_keeps_it(stage, shell, kind, tmp_path):
    repo = stage.repo
    if kind == "packed":
        repo.git("pack-refs", "--all")
    elif kind == "detached":
        repo.git("checkout", "-q", "--detach", "side")
    elif kind.startswith("linked"):
        repo.git("worktree", "add", "-q", *(["--detach"] if "detached" in kind else []), "../linked", "side")
        repo = Repo(tmp_path / "linked")
    elif kind == "submodule":
        outer = make_repo(tmp_path / "outer")
        outer.git("submodule", "--quiet", "add", str(repo.top), "inner")
        repo = Repo(outer.top / "inner")
        plumbing.locate_work_tree(repo.top).kb.mkdir(parents=True)
    elif kind == "symbolic":
        repo.git("symbolic-ref", "refs/heads/alias", "refs/heads/side")
        repo.git("symbolic-ref", "HEAD", "refs/heads/alias")
    stage.queue()
    result = stage.run(shell, "post-commit", repo=repo)
    assert (result.returncode, result.stdout) == (0, "")
    branch = {"linked": "side", "symbolic": "alias"}.get(kind, "" if "detached" in kind else "main")
    assert stage.queue(repo) == [f"commit {commit_of(repo)} {branch}"]


@pytest.mark.parametrize("shell", SHELLS)
def test_all_shells_record_rewritten_commits(stage, shell):
    stage.run(shell, "post-rewrite", "amend", stdin="a b\nc d extra\n")
    assert stage.queue() == ["rewrite a b", "rewrite c d"]
    stage.run(shell, "post-rewrite", "amend", stdin="")
    assert stage.queue() == []


@pytest.mark.parametrize("shell", SHELLS)
def test_chained_post_rewrite_and_the_queue_both_get_the_whole_list(stage, shell, tmp_path):
    folder = stage.repo.top / ".git" / "hooks"
    hooks.add_foreign_hook(folder, tmp_path, "post-rewrite.vmrag-chained")
    stage.lines()
    pairs = [f"{number:040x} {number + 1:040x}" for number in range(3000)]
    assert stage.run(shell, "post-rewrite", "rebase", stdin="\n".join(pairs) + "\n").returncode == 0
    assert stage.queue() == [f"rewrite {pair}" for pair in pairs]
    assert stage.lines() == [f"other rebase <{pairs[0]}", *pairs[1:-1], f"{pairs[-1]}>"]


def test_commits_in_reftable_repository_are_queued(stage, tmp_path):
    if stage.repo.run("init", "-q", "--ref-format=reftable", str(tmp_path / "table")).returncode:
        pytest.skip("this git knows no reftable")
    repo = Repo(tmp_path / "table")
    repo.commit("first", pin="x")
    stage.install(repo)
    (repo.top / ".git" / "vmrag" / "kb").mkdir()
    repo.git("switch", "-q", "-c", "topic")
    made = repo.commit("second", code="1")
    repo.git("checkout", "-q", "--detach")
    detached = repo.commit("third", code="2")
    assert stage.queue(repo) == [f"commit {made} topic", f"commit {detached} "]


def test_uninstalled_hooks_queue_nothing(stage):
    installer.uninstall_hooks(plumbing.locate_work_tree(stage.repo.top))
    stage.repo.commit("x", code="2")
    assert stage.queue() == []
