"""Code pushed by a program without hooks: the next command and the next tool call report that its
knowledge is missing; with `mcp.auto_push` the tool call sends it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time

import pygit2
import pytest

from tests.support import people
from tests.support.mcp import Tools, warned
from tests.support.people import User, World
from tests.support.terminal import SCRIPT
from vmrag_mcp import auto_commit
from vmrag_mcp.options import ToolChoice

pytestmark = pytest.mark.hooks("off")

shared, world = people.shared, people.world


@pytest.fixture
def bob(world: World) -> User:
    """He has installed nothing, works by tools, and pushes by libgit2."""
    bob = world.join("bob")
    bob.git("config", "vmrag.mcp.auto-commit", "write")
    return bob


def pushes(user: User, name: str, *, branch: str = "main") -> None:
    """A tool writes; libgit2 commits and pushes what is staged."""
    Tools(user.top)("chroma_add_documents", collection_name="handbook", documents=[f"Text of {name}."], ids=[name])
    user.git("commit", "-q", "--no-verify", "-m", name)
    remote = pygit2.Repository(user.top).remotes["origin"]
    remote.push([f"refs/heads/{branch}"])


def sentences(result: dict, code: str) -> list[str]:
    return [warning["message"] for warning in result.get("warnings", ()) if warning["code"] == code]


def test_commands_report_unpushed_knowledge_until_it_is_sent(world, bob):
    tools = Tools(bob.top)
    tools("chroma_list_collections")
    pushes(bob, "memo")
    said = f"origin/main: the pushed code pins revision {bob.pinned[:7]} of the knowledge base, which was not pushed to origin; run 'vmrag push' to push the revision"
    for command in (["list"], ["log"], ["query", "--symbols", "memo"], ["show", "handbook/memo"]):
        assert f"warning: {said}" in bob.vmrag(*command).err
        assert bob.vmrag(*command, "-q").err == ""
    assert sentences(tools("chroma_list_collections"), "KNOWLEDGE_NOT_PUSHED") == [said]
    assert "warnings" not in tools("chroma_list_collections"), "an agent is told once"
    assert "KNOWLEDGE_NOT_PUSHED" in warned(tools("dolt_status"))
    assert not world.holds(bob.pinned)
    bob.vmrag("push")
    assert said not in bob.vmrag("list").err
    assert world.holds(bob.pinned)


def test_next_call_pushes_if_agreed(world, bob):
    bob.git("config", "vmrag.mcp.auto-push", "true")
    tools = Tools(bob.top)
    pushes(bob, "memo")
    [sentence] = sentences(tools("chroma_list_collections"), "PUSHED")
    assert sentence == "Pushed the revisions that origin/main pins to origin, because the code was pushed without them."
    assert world.holds(bob.pinned)
    assert "warnings" not in tools("chroma_list_collections")


def test_three_clones_with_tools_alone_merge_their_writes(world, bob):
    clones = [bob, world.join("carol"), world.join("dave")]
    for user in clones:
        for key in ("auto-commit", "auto-push"):
            user.git("config", f"vmrag.mcp.{key}", "write" if key == "auto-commit" else "true")
        Tools(user.top)("chroma_list_collections")
        user.vmrag("install", "--hooks", "post-merge")  # for the merge driver alone
        user.git("switch", "-q", "-c", user.top.name)
        pushes(user, user.top.name, branch=user.top.name)
        assert "PUSHED" in warned(Tools(user.top)("dolt_status"))
    for user in clones[:2]:
        world.ada.git("fetch", "-q")
        world.ada.git("merge", "-q", "--no-edit", f"origin/{user.top.name}")
    assert {"bob", "carol"} <= world.ada.marks().keys()


def test_never_pushed_branches_stay_local(world, bob):
    bob.git("config", "vmrag.mcp.auto-push", "true")
    tools = Tools(bob.top)
    bob.git("switch", "-q", "-c", "secret")
    tools("chroma_add_documents", collection_name="handbook", documents=["A secret."], ids=["secret"])
    bob.git("commit", "-q", "-m", "secret")
    secret = bob.pinned
    bob.git("switch", "-q", "main")
    pushes(bob, "memo")
    assert "PUSHED" in warned(tools("dolt_status"))
    assert world.holds(bob.pinned)
    assert not world.holds(secret)


def test_cloned_settings_file_does_not_switch_it_on(world, bob):
    bob.write(".vmrag.yaml", "embedding:\n  model: hash\nmcp:\n  auto_push: true\n")
    tools = Tools(bob.top)
    pushes(bob, "memo")
    assert "KNOWLEDGE_NOT_PUSHED" in warned(tools("chroma_list_collections"))
    assert not world.holds(bob.pinned)
    bob.vmrag("trust", "--yes")
    assert "PUSHED" in warned(tools("chroma_list_collections"))


def test_server_that_changes_nothing_sends_nothing(world, bob):
    bob.git("config", "vmrag.mcp.auto-push", "true")
    pushes(bob, "memo")
    tools = Tools(bob.top, chosen=ToolChoice(toolsets="all", read_only=True))
    assert "KNOWLEDGE_NOT_PUSHED" in warned(tools("chroma_list_collections"))
    assert not world.holds(bob.pinned)


def test_failed_auto_push_is_reported_and_retried_after_a_minute(world, bob, monkeypatch):
    bob.git("config", "vmrag.mcp.auto-push", "true")
    tools = Tools(bob.top)
    pushes(bob, "memo")
    hub = world.hub.top
    hub.rename(hub.with_name("gone"))
    [sentence] = sentences(tools("chroma_list_collections"), "NOT_PUSHED")
    assert "The push failed: " in sentence
    hub.with_name("gone").rename(hub)
    assert sentences(tools("chroma_list_collections"), "NOT_PUSHED") == [sentence], "nobody was asked again"
    assert "which was not pushed to origin" in bob.vmrag("list").err
    monkeypatch.setattr(auto_commit, "_RETRY_SECONDS", 0.0)
    assert "PUSHED" in warned(tools("chroma_list_collections"))
    assert world.holds(bob.pinned)


def test_killed_push_is_still_reported_as_not_pushed(world, bob):
    Tools(bob.top)("chroma_list_collections")
    pushes(bob, "memo")
    slow, begun = world.hub.top / "hooks/pre-receive", world.top / "begun"
    slow.write_text(f"#!/bin/sh\ntouch '{begun}'\nsleep 60\n")
    slow.chmod(0o755)
    process = subprocess.Popen([SCRIPT, "push"], cwd=bob.top, start_new_session=True, stderr=subprocess.DEVNULL)
    while not begun.exists():
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    slow.unlink()
    assert "which was not pushed to origin" in bob.vmrag("list").err
    bob.vmrag("push")
    assert world.holds(bob.pinned)
    assert "which was not pushed to origin" not in bob.vmrag("list").err


def test_pin_with_an_untrusted_remote_sends_nothing(world, bob):
    bob.git("config", "vmrag.mcp.auto-push", "true")
    tools = Tools(bob.top)
    tools("chroma_list_collections")
    tools("chroma_add_documents", collection_name="handbook", documents=["Text."], ids=["memo"])
    stranger = world.bare("stranger.git")
    text = bob.top.joinpath(".dolt-version").read_text().replace('"git:"', f'"git+file://{stranger.top}"')
    bob.write(".dolt-version", text)
    bob.git("add", ".dolt-version")
    bob.git("commit", "-q", "-m", "memo")
    pygit2.Repository(bob.top).remotes["origin"].push(["refs/heads/main"])
    [sentence] = sentences(tools("chroma_list_collections"), "NOT_PUSHED")
    assert "untrusted remote" in sentence
    assert stranger.git("for-each-ref") == ""
