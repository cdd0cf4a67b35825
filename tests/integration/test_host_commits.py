"""Commits with another pin on a branch of the host, from checkouts as CI makes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.events import checkout
from tests.support.repos import Repo, isolate, make_repo
from vmrag_link.errors import GitFailed, RemoteMoved, RemoteRejected
from vmrag_link.git import merge_tree, plumbing
from vmrag_link.git.remotes import Peer
from vmrag_link.ops.pull_requests import update_branch
from vmrag_link.paths import Places

pytestmark = pytest.mark.hooks("off")

ORIGIN = Peer("origin")
PIN = b'{"a pin": "as it is written"}\n'


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repo:
    """A bare repository with all kinds of files in one commit on `main`."""
    isolate(monkeypatch, tmp_path / "home")
    author = make_repo(tmp_path / "author")
    author.write("bin/run", "#!/bin/sh\n").chmod(0o755)
    author.write("ümlaut\t and more.md", "text")
    (author.top / "link").symlink_to("bin/run")
    author.git("add", "-A")
    author.git("update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},submodule")
    author.commit("first", pin="old", **{"deep/er/file.txt": "text"})
    bare = make_repo(tmp_path / "made")
    hub = Repo(tmp_path / "hub.git")
    bare.git("clone", "-q", "--bare", str(author.top), str(hub.top))
    hub.git("config", "uploadpack.allowFilter", "true")
    hub.git("config", "uploadpack.allowAnySHA1InWant", "true")
    return hub


def job(hub: Repo, tmp_path: Path, *, depth: int | None = 1) -> tuple[Repo, Places]:
    repo = checkout(hub.top, tmp_path / "job", hub.git("rev-parse", "main"), depth=depth)
    return repo, plumbing.locate_work_tree(repo.top)


def others(hub: Repo, commit: str) -> list[str]:
    """All entries of the whole tree, but the pin."""
    lines = hub.git("ls-tree", "-r", "-z", commit).split("\0")
    return [line for line in lines if not line.endswith("\t.dolt-version")]


def work_state(repo: Repo) -> list[str]:
    """HEAD, the branches, and what is changed."""
    command = (("rev-parse", "HEAD"), ("for-each-ref", "refs/heads"), ("status", "--porcelain"))
    return [repo.git(*arguments) for arguments in command]


def moved(hub: Repo, name: str = "main") -> str:
    """Push another commit in between."""
    made = hub.git("commit-tree", f"{name}^{{tree}}", "-p", name, "-m", "another one")
    hub.git("update-ref", f"refs/heads/{name}", made)
    return made


def refuse(hub: Repo, name: str = "main") -> None:
    """A protected branch, as far as a bare repository has one."""
    hook = hub.write("hooks/update", f'#!/bin/sh\ntest "$1" != refs/heads/{name} || {{ echo GH006 >&2; exit 1; }}\n')
    hook.chmod(0o755)


@pytest.mark.parametrize("options", [(), ("--depth=1",), ("--filter=blob:none", "--no-checkout")])
def test_branch_gets_the_pin_and_keeps_every_other_entry(hub, tmp_path, options):
    make_repo(tmp_path / "any").git("clone", "-q", *options, f"file://{hub.top}", str(tmp_path / "job"))
    repo = Repo(tmp_path / "job")
    places = plumbing.locate_work_tree(repo.top)
    tip = update_branch.find_branch_tip(places, ORIGIN, "main")
    state = work_state(repo)
    made = update_branch.commit_with_pin(places, tip, PIN, parents=[tip], message="A pin\n\nSome-Trailer: x\n")
    update_branch.push_branch(places, ORIGIN, made, "main", expected=tip)
    assert hub.git("rev-parse", "main") == made
    assert hub.git("rev-parse", "main^") == tip
    assert hub.git("show", "main:.dolt-version").encode() == PIN.strip()
    assert others(hub, "main") == others(hub, tip)
    hub.git("fsck", "--strict")
    assert hub.git("log", "-1", "--format=%(trailers:key=Some-Trailer,valueonly)", "main").strip() == "x"
    assert work_state(repo) == state


@pytest.mark.parametrize("existing", ["nothing", "link", "folder"])
def test_commit_with_pin_replaces_links_and_folders(hub, tmp_path, existing):
    repo, places = job(hub, tmp_path)
    repo.git("rm", "-q", ".dolt-version")
    if existing == "link":
        (repo.top / ".dolt-version").symlink_to("bin/run")
    if existing == "folder":
        repo.write(".dolt-version/file", "x")
    repo.git("add", "-A")
    tip = repo.commit("other")
    made = update_branch.commit_with_pin(places, tip, PIN, parents=[tip], message="A pin")
    assert repo.git("ls-tree", made, ".dolt-version").startswith("100644 blob ")


def test_two_parents_are_those_of_a_merge(hub, tmp_path):
    repo, places = job(hub, tmp_path)
    base, head = repo.git("rev-parse", "HEAD"), repo.commit("head", **{"new.md": "new"})
    made = update_branch.commit_with_pin(places, head, PIN, parents=[head, base], message="Merge")
    assert repo.git("log", "-1", "--format=%P", made) == f"{head} {base}"


def test_concurrently_moved_branch_keeps_its_commits(hub, tmp_path):
    _, places = job(hub, tmp_path)
    tip = update_branch.find_branch_tip(places, ORIGIN, "main")
    theirs = moved(hub)
    made = update_branch.commit_with_pin(places, tip, PIN, parents=[tip], message="A pin")
    with pytest.raises(RemoteMoved):
        update_branch.push_branch(places, ORIGIN, made, "main", expected=tip)
    assert hub.git("rev-parse", "main") == theirs


def test_branch_that_is_expected_to_be_new_is_never_replaced(hub, tmp_path):
    repo, places = job(hub, tmp_path)
    hub.git("branch", "there", "main")
    theirs = moved(hub, "there")
    with pytest.raises(RemoteMoved):
        update_branch.push_branch(places, ORIGIN, repo.git("rev-parse", "HEAD"), "there", expected=None)
    assert hub.git("rev-parse", "there") == theirs


def test_protected_branch_rejection_quotes_the_host(hub, tmp_path):
    _, places = job(hub, tmp_path)
    refuse(hub)
    tip = update_branch.find_branch_tip(places, ORIGIN, "main")
    made = update_branch.commit_with_pin(places, tip, PIN, parents=[tip], message="A pin")
    with pytest.raises(RemoteRejected, match=r"does not take commits: .*GH006"):
        update_branch.push_branch(places, ORIGIN, made, "main", expected=tip)
    update_branch.push_branch(places, ORIGIN, made, "elsewhere", expected=None)
    assert hub.git("rev-parse", "elsewhere") == made


def test_author_is_configured_or_the_bot(hub, tmp_path, monkeypatch):
    repo, places = job(hub, tmp_path)
    tip = repo.git("rev-parse", "HEAD")

    def author() -> str:
        made = update_branch.commit_with_pin(places, tip, PIN, parents=[tip], message="A pin")
        return repo.git("log", "-1", "--format=%an <%ae> / %cn <%ce>", made)

    assert author() == "Ada Lovelace <ada@example.com> / Ada Lovelace <ada@example.com>"
    (tmp_path / "home" / "gitconfig").write_text("[user]\n\temail =\n")
    assert author() == f"{update_branch.BOT} / {update_branch.BOT}"
    monkeypatch.setenv("GIT_AUTHOR_NAME", "Bob")
    monkeypatch.setenv("GIT_AUTHOR_EMAIL", "bob@example.com")
    assert author() == "Bob <bob@example.com> / Bob <bob@example.com>"


def test_slow_merge_is_aborted(tmp_path, hub, monkeypatch):
    """Real git has a short time limit here; untrusted renames take it hours."""
    repo, places = job(hub, tmp_path)
    head = repo.git("rev-parse", "HEAD")
    monkeypatch.setattr(merge_tree, "_MAX_SECONDS", 0.0)
    with pytest.raises(GitFailed, match="git took more than 0 s"):
        merge_tree.merge_trees(places, head, head)
