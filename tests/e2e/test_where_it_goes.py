"""Destination of pushed knowledge, and refs that a push must not move: rejected pushes, hosts that
change, mirrors, several remotes.
"""

from __future__ import annotations

import pytest

from tests.support import people
from tests.support.people import DATA
from vmrag_link import hints

shared, world = people.shared, people.world

SENT = "vmrag: pushed the documents that these commits pin to {}"


def heads(user) -> dict[str, str]:
    """The remote's KB branches, asked now."""
    user.vmrag("fetch", "origin", code=None)
    return user.ask("remote")["remotes"][0]["branches"]


# -- what git rejects


def test_push_that_git_rejects_moves_nobodys_branch(world):
    bob = world.join("bob")
    bob.vmrag("install")
    accepted = bob.write_document("bob.md", "Bob was first.")
    bob.git("push", "-q", "origin", "main")
    mine = world.ada.write_document("ada.md", "Ada did not look.")
    assert world.ada.run("push", "origin", "main").returncode != 0
    assert heads(bob)["main"] == accepted
    assert world.holds(mine), "it harms nobody there, and need not be pushed again"


# -- a remote that is another host


@pytest.mark.parametrize("way", ["set-url", "rename"])
@pytest.mark.sample(1)
def test_new_host_gets_only_pushed_refs_of_the_old_one(world, way):
    ada, public = world.ada, world.bare("public.git")
    ada.git("switch", "-q", "-c", "secret")
    secret = ada.write_document("secret.md", "The secret plan.")
    ada.git("push", "-q", "origin", "secret")
    ada.git("switch", "-q", "main")
    if way == "set-url":
        ada.git("remote", "set-url", "origin", str(public.top))
    else:
        ada.git("remote", "rename", "origin", "internal")
        ada.git("remote", "add", "origin", str(public.top))
    pinned = ada.pinned
    ada.vmrag("doctor", "--fix", code=None)
    assert ada.said("push", "-q", "-u", "origin", "main") == [SENT.format("origin")]
    assert world.holds(pinned, at=public)
    ada.write_document("more.md", "More.")
    ada.git("push", "-q")
    assert not world.holds(secret, at=public)
    assert world.holds(ada.pinned, at=public)


def test_push_ignores_pull_requests_among_tracking_refs(world):
    ada = world.ada
    ada.git("config", "--add", "remote.origin.fetch", "+refs/pull/*/head:refs/remotes/origin/pr/*")
    ada.git("switch", "-q", "-c", "idea")
    revision = ada.write_document("idea.md", "From a pull request.")
    ada.git("push", "-q", "--no-verify", "origin", "idea:refs/pull/1/head")
    ada.git("fetch", "-q", "origin")
    ada.git("switch", "-q", "main")
    ada.git("merge", "-q", "--ff-only", "origin/pr/1")
    assert ada.said("push", "-q", "origin", "main") == [SENT.format("origin")]
    assert world.holds(revision)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, "origin"),
        ({"remote.pushDefault": "fork"}, "fork"),
        ({"remote.pushDefault": "origin", "branch.idea.pushRemote": "fork"}, "fork"),
        ({"remote.pushDefault": "fork", "vmrag.remote": "upstream"}, "upstream"),
    ],
)
@pytest.mark.sample(1)
def test_manual_push_goes_to_the_push_remote_of_git(world, settings, expected):
    ada = world.ada
    for name in ("fork", "upstream"):
        ada.git("remote", "add", name, str(world.bare(f"{name}.git").top))
    for key, value in settings.items():
        ada.git("config", key, value)
    ada.git("switch", "-q", "-c", "idea")
    ada.write_document("idea.md", "A private idea.")
    assert ada.ask("push")["remote"] == expected


# -- mirrors


def test_mirror_that_is_configured_is_refused_before_it_deletes_knowledge(world):
    ada, copy = world.ada, world.bare("copy.git")
    ada.git("remote", "add", "--mirror=push", "copy", str(copy.top))
    ada.git("push", "-q", "copy")
    (line,) = ada.said("push", "-q", "copy", code=1)
    assert "would delete documents from copy" in line
    assert copy.git("rev-parse", DATA)
    advice, *_ = hints.list_commands(line.partition("; ")[2])
    assert ada.run("-c", f"alias.advice=!{advice}", "advice").returncode == 0
    ada.write_document("more.md", "More.")
    ada.git("push", "-q", "copy", "--all")
    assert world.holds(ada.pinned, at=copy)


def test_mirror_from_another_clone_is_also_rejected(world):
    bob = world.join("bob")
    bob.vmrag("install")
    bob.git("remote", "add", "again", str(world.hub.top))
    (line,) = bob.said("push", "-q", "--mirror", "again", code=1)
    assert "would delete documents from again" in line
    assert world.hub.git("rev-parse", DATA)


def test_mirror_that_carries_an_old_state_is_refused(world):
    ada = world.ada
    ada.git("fetch", "-q", "origin", f"+{DATA}:{DATA}")
    ada.git("push", "-q", "--mirror", "origin")
    ada.write_document("more.md", "More.")
    ada.git("push", "-q", "origin", "main")
    tip = world.hub.git("rev-parse", DATA)
    (line,) = ada.said("push", "-q", "--mirror", "origin", code=1)
    assert "moves it back" in line
    assert world.hub.git("rev-parse", DATA) == tip


def test_mirror_push_includes_knowledge_for_new_repository(world):
    ada, copy = world.ada, world.bare("copy.git")
    assert ada.said("push", "-q", "--mirror", str(copy.top)) == [SENT.format(copy.top)]


def test_password_in_a_url_is_not_shown(world):
    ada = world.ada
    tip = ada.git("rev-parse", "HEAD")
    line = f"(delete) {'0' * 40} {DATA} {tip}\n"
    url = "https://user:s3cret@example.org/x.git"
    hook = ada.top / ".git" / "hooks" / "pre-push"
    result = ada.run("-c", f"alias.told=!{hook}", "told", url, url, stdin=line)
    assert result.returncode == 1
    assert "would delete documents" in result.stderr
    assert "s3cret" not in result.stderr
