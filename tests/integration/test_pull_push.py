"""Branches that `vmrag pull` imports, and branches that `vmrag push` moves and deletes on a remote.

A KB branch on a remote is only a name: several tests are about a name that another user has used,
or that is at discarded knowledge.
"""

from __future__ import annotations

import pytest

from tests.support import people
from tests.support.dolt import embedded
from tests.support.people import User, World

pytestmark = pytest.mark.hooks("off")

shared, world = people.shared, people.world

FIRST = {"setup.md", "rest.md", "deep/tls.txt"}


@pytest.fixture
def ada(world: World) -> User:
    return world.ada


@pytest.fixture
def bob(world: World) -> User:
    """He has cloned and fetched all that Ada pushed."""
    return joined(world, "bob")


def joined(world: World, name: str) -> User:
    user = world.join(name)
    user.vmrag("install", "-q")
    return user


def documents(user: User) -> set[str]:
    return set(user.texts())


def revert(user: User, commit: str = "HEAD") -> None:
    user.git("revert", "--no-edit", commit)


def topic(user: User, name: str, document: str) -> str:
    """A new code branch with one more document, pushed; returns the revision."""
    user.git("switch", "-q", "-c", name)
    revision = user.write_document(document, f"{document} of {name}")
    user.push("-u", "origin", name)
    return revision


def test_forced_push_over_an_unfetched_commit_includes_its_knowledge(world, ada, bob):
    bob.write_document("mine.md", "mine")
    bob.push()
    revision = ada.write_document("new.md", "news")
    ada.push("--force", "origin", "main")
    assert world.holds(revision)


# -- pull: what the upstream pins


def test_pull_merges_the_upstream_pin_and_reports_missing_code(ada, bob):
    theirs = ada.write_document("new.md", "news")
    ada.push()
    bob.write_document("mine.md", "mine")
    bob.git("fetch", "-q")
    result = bob.vmrag("pull")
    assert documents(bob) == {*FIRST, "new.md", "mine.md"}
    assert result.out.splitlines()[-1] == "hint: run 'git pull' to merge the commits of origin/main"
    bob.git("commit", "-q", "-m", "theirs, too")
    assert bob.vmrag("pull").out.splitlines() == [
        f"Nothing to merge: {bob.pinned[:7]} already contains origin/main.",
        "hint: run 'git pull' to merge the commits of origin/main",
    ]
    bob.git("pull", "-q", "--no-rebase", "--no-edit")
    report = bob.ask("pull")
    assert (report["code_behind"], report["merge"]["theirs"]) == (False, theirs)
    assert documents(bob) == {*FIRST, "new.md", "mine.md"}
    assert bob.consistent()


def test_vmrag_pull_does_not_disturb_a_fast_forward_git_pull(ada, bob):
    ada.write_document("new.md", "news")
    ada.push()
    bob.git("fetch", "-q")
    bob.vmrag("pull")
    bob.git("pull", "-q", "--ff-only")
    assert bob.pinned == ada.pinned
    assert bob.git("status", "--porcelain") == ""


def test_pull_merges_only_branches_that_git_fetched(ada, bob):
    ada.write_document("new.md", "news")
    ada.push()
    report = bob.ask("pull")
    assert [update["branch"] for update in report["updates"]] == ["main"]  # the knowledge is here by now
    assert report["merge"]["result"] == "already_up_to_date"
    assert documents(bob) == FIRST


def test_pull_does_not_bring_back_reverted_documents(ada):
    ada.write_document("bad.md", "bad")
    ada.push()
    revert(ada)
    ada.write_document("new.md", "news")
    ada.push()
    ada.vmrag("push")
    assert ada.ask("pull")["merge"]["result"] == "already_up_to_date"
    assert documents(ada) == {*FIRST, "new.md"}


def test_revert_of_the_upstream_is_merged_despite_later_changes(ada, bob):
    ada.write_document("bad.md", "bad")
    ada.push()
    bob.git("pull", "-q")
    bob.write_document("mine.md", "mine")
    revert(ada)
    ada.push()
    bob.git("fetch", "-q")
    bob.vmrag("pull")
    assert documents(bob) == {*FIRST, "mine.md"}


def test_reused_branch_name_brings_no_foreign_documents(world, ada, bob):
    topic(bob, "fix", "abandoned.md")
    bob.push("origin", "--delete", "fix")
    topic(ada, "fix", "fixed.md")
    ada.vmrag("push", code=1)  # `fix` there is Bob's
    ada.vmrag("pull")
    assert documents(ada) == {*FIRST, "fixed.md"}


def test_renamed_branches_keep_their_own_kb_branches(ada, bob):
    topic(bob, "x", "x.md")
    bob.git("branch", "-m", "y")
    bob.write_document("more.md", "more of y")
    bob.push("-u", "origin", "HEAD")
    bob.push("origin", "--delete", "x")
    topic(ada, "x", "other.md")
    ada.git("fetch", "-q")
    ada.vmrag("pull")
    assert documents(ada) == {*FIRST, "other.md"}
    ada.git("switch", "-q", "y")
    ada.vmrag("pull")
    assert documents(ada) == {*FIRST, "x.md", "more.md"}


@pytest.mark.hooks("on")
def test_pull_ignores_knowledge_of_a_rejected_push(world, ada, bob):
    hook = world.hub.top / "hooks" / "update"
    hook.write_text('#!/bin/sh\n[ "$1" != refs/heads/main ]\n')
    hook.chmod(0o755)
    refused = ada.write_document("refused.md", "refused")
    assert ada.run("push", "-q").returncode != 0
    assert world.holds(refused)
    bob.git("fetch", "-q")
    bob.vmrag("pull")
    assert documents(bob) == FIRST


def test_remote_branch_of_the_same_name_is_used_without_an_upstream(ada, bob):
    topic(ada, "fix", "fixed.md")
    bob.git("switch", "-q", "-c", "fix")
    bob.git("fetch", "-q")
    bob.vmrag("pull")
    assert documents(bob) == {*FIRST, "fixed.md"}


def test_local_upstream_counts_as_for_git_pull(ada):
    ada.git("switch", "-q", "-c", "side", "--track", "main")
    ada.git("switch", "-q", "main")
    ada.write_document("new.md", "news")
    ada.push()
    ada.git("switch", "-q", "side")
    assert ada.ask("pull")["merge"]["source"] == "main"
    assert documents(ada) == {*FIRST, "new.md"}


def test_named_remote_is_used_with_its_own_branch(world, ada, bob):
    fork = world.bare("fork.git")
    ada.git("remote", "add", "fork", str(fork.top))
    ada.push("fork", "main")
    bob.git("remote", "add", "fork", str(fork.top))
    bob.write_document("forked.md", "only there")
    bob.push("fork", "main")
    ada.git("fetch", "-q", "fork")
    assert ada.ask("pull")["merge"]["result"] == "already_up_to_date"
    assert ada.ask("pull", "fork")["merge"]["source"] == "fork/main"
    assert documents(ada) == {*FIRST, "forked.md"}


def test_pull_without_an_upstream_suggests_a_command(ada):
    ada.git("switch", "-q", "-c", "lone")
    error = ada.vmrag("pull", "--json", code=3).error
    assert error["code"] == "NO_UPSTREAM"
    assert "vmrag pull --branch NAME" in error["hint"]
    ada.git("branch", "-q", "--set-upstream-to", "origin/main")
    ada.git("update-ref", "-d", "refs/remotes/origin/main")
    error = ada.vmrag("pull", "--json", code=3).error
    assert (error["code"], error["message"]) == ("NO_UPSTREAM", "origin/main was not fetched yet.")
    ada.git("checkout", "-q", "--detach")
    assert ada.vmrag("pull", "--json", code=3).error["code"] == "GIT_BUSY"


# -- pull --branch: a KB branch by its name


def test_named_kb_branch_is_merged_despite_the_pin(ada, bob):
    topic(bob, "draft", "draft.md")
    ada.vmrag("pull", "--branch", "draft")
    assert documents(ada) == {*FIRST, "draft.md"}


@pytest.mark.parametrize("name", ["absent", "vmrag_keep", "vmrag_root"])
@pytest.mark.sample(2)
def test_missing_kb_branch_is_rejected_with_the_existing_ones(ada, name):
    error = ada.vmrag("pull", "--branch", name, "--json", code=3).error
    assert (error["code"], error["message"]) == (
        "BRANCH_NOT_FOUND",
        f"origin has no KB branch {name!r}; it has main.",
    )


# -- push: what moves there


def test_branch_with_another_remote_name_includes_its_kb_branch(ada, bob):
    ada.git("switch", "-q", "-c", "x")
    first = ada.write_document("x.md", "x")
    second = ada.write_document("x.md", "more of x")
    ada.push("origin", "x~1:refs/heads/x")
    assert bob.ask("fetch")["updates"] == [{"branch": "x", "old": None, "new": first}]
    ada.push("origin", "HEAD")
    assert bob.ask("fetch")["updates"] == [{"branch": "x", "old": first, "new": second}]


@pytest.mark.parametrize("by", ["git push", "vmrag push"])
def test_remote_branch_continues_after_a_revert(world, ada, bob, by):
    bad = ada.write_document("bad.md", "bad")
    ada.push()
    revert(ada)
    good = ada.write_document("new.md", "news")
    if by == "git push":
        ada.push()
        assert ada.ask("push")["branches"] == []
    else:
        ada.push("--no-verify")
        [moved] = ada.ask("push")["branches"]
        assert (moved["branch"], moved["old"], moved["new"]) == ("main", bad, good)
    assert bob.ask("pull", "--branch", "main")["merge"]["theirs"] == good
    assert world.holds(bad)


@pytest.mark.hooks("on")
def test_push_moves_remote_branch_back_to_reverted_pin(world, ada):
    first = ada.pinned
    later = ada.write_document("new.md", "news")
    ada.push()
    revert(ada)
    [moved] = ada.ask("push")["branches"]
    assert (moved["old"], moved["new"]) == (later, first)
    assert world.holds(later)


def test_push_supersedes_a_revision_reverted_by_a_colleague(ada, bob):
    bad = ada.write_document("bad.md", "bad")
    ada.push()
    revert(ada)
    ada.push("--no-verify")
    bob.git("pull", "-q")
    bob.write_document("new.md", "news")
    [moved] = bob.ask("push")["branches"]
    assert (moved["old"], moved["new"]) == (bad, bob.pinned)


def test_branch_of_which_others_hold_more_is_not_moved_back(ada, bob):
    ada.write_document("new.md", "news")
    ada.push()
    assert bob.ask("push")["branches"] == []


def test_push_all_skips_branch_that_is_merged_into_head(ada, bob):
    topic(ada, "fix", "one.md")
    bob.git("fetch", "-q")
    bob.git("switch", "-q", "fix")
    bob.write_document("two.md", "two")
    bob.push()
    ada.git("switch", "-q", "main")
    ada.git("fetch", "-q")
    ada.git("merge", "-q", "--no-edit", "origin/fix")
    assert "fix" not in {branch["branch"] for branch in ada.ask("push", "--all")["branches"]}


def test_rejected_push_hints_at_pull_and_force(world, ada, bob):
    theirs = topic(bob, "fix", "abandoned.md")
    bob.push("origin", "--delete", "fix")
    topic(ada, "fix", "fixed.md")
    error = ada.vmrag("push", "--json", code=1).error
    assert (error["code"], error["details"]["remote_head"]) == ("REMOTE_REJECTED", theirs)
    assert error["hint"] == (
        "run 'vmrag pull --branch fix' to merge the newer revision, or add --force to overwrite it for everyone instead"
    )
    named = ada.vmrag("push", "origin", "--json", code=1).error
    assert named["hint"] == error["hint"].replace("vmrag pull", "vmrag pull origin")
    ada.vmrag("push", "--branch", "fix", "--force")
    assert world.holds(theirs)
    assert ada.ask("push")["branches"] == []


# -- push --delete


def test_deleted_branch_is_removed_and_its_revisions_are_kept(world, ada, bob):
    draft = topic(bob, "draft", "draft.md")
    ada.vmrag("fetch")
    result = bob.vmrag("push", "--delete", "draft")
    assert result.out.splitlines() == ["To origin:", "  (deleted)  draft", "  1 revision that no branch there reaches"]
    assert ada.vmrag("pull", "--branch", "draft", "--json", code=3).error["code"] == "BRANCH_NOT_FOUND"
    assert world.holds(draft)
    assert documents(bob) == {*FIRST, "draft.md"}  # ours stays
    bob.vmrag("gc", "--apply")
    assert documents(bob) == {*FIRST, "draft.md"}


def test_name_is_free_again_once_it_is_deleted(ada, bob):
    topic(bob, "fix", "abandoned.md")
    bob.push("origin", "--delete", "fix")
    topic(ada, "fix", "fixed.md")
    ada.vmrag("push", "--delete", "fix")
    [moved] = ada.ask("push")["branches"]
    assert (moved["branch"], moved["old"]) == ("fix", None)


def test_branch_is_also_deleted_on_remotes_without_git(world, ada):
    folder = world.top / "kbs"
    folder.mkdir()
    url = f"file://{folder}/handbook"
    draft = topic(ada, "draft", "draft.md")
    ada.vmrag("push", url, "--all")
    ada.vmrag("push", url, "--delete", "draft")
    error = ada.vmrag("pull", url, "--branch", "draft", "--json", code=3).error
    assert (error["code"], error["message"]) == ("BRANCH_NOT_FOUND", f"{url} has no KB branch 'draft'; it has main.")
    [moved] = ada.ask("push", url, "--branch", "draft")["branches"]
    assert (moved["old"], moved["new"]) == (None, draft)


@pytest.mark.parametrize(
    ("arguments", "code", "error"),
    [
        (("--delete", "absent"), 3, "BRANCH_NOT_FOUND"),
        (("--delete", "vmrag_keep"), 2, "INVALID_NAME"),
        (("--delete", "vmrag_root"), 2, "INVALID_NAME"),
        # The first branch of the embedded engine's file stays; Dolt has no such branch.
        pytest.param(("--delete", "main"), 3, "REMOTE_REJECTED", marks=embedded),
        (("--delete", "draft", "--force"), 2, "INVALID_PARAMETER"),
        (("--delete", "draft", "--all"), 2, "INVALID_PARAMETER"),
    ],
)
def test_invalid_branch_deletion_is_rejected_and_changes_nothing(world, ada, arguments, code, error):
    before = world.hub.git("rev-parse", people.DATA)
    said = ada.vmrag("push", *arguments, "--json", code=code).error
    assert said["code"] == error
    assert str(world.top) not in said["message"]
    assert world.hub.git("rev-parse", people.DATA) == before


def test_push_delete_without_knowledge_base_creates_nothing(world, ada):
    empty = world.bare("empty.git")
    error = ada.vmrag("push", f"git+file://{empty.top}", "--delete", "main", "--json", code=3).error
    assert error["code"] == "REMOTE_NOT_FOUND"
    assert empty.git("for-each-ref") == ""
