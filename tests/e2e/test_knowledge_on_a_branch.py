"""A host that takes branches and tags alone: `remote: git:refs/heads/vmrag/data`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support import people
from tests.support.people import DATA, SETTINGS, World
from tests.support.repos import isolate
from tests.support.templates import build_once

shared, world = people.shared, people.world

BRANCH = "refs/heads/vmrag/data"
REMOTE = f"git:{BRANCH}"
CLOSED = """#!/bin/sh
while read -r _ _ ref; do
    case $ref in refs/heads/* | refs/tags/*) ;; *) echo "no such refs here"; exit 1 ;; esac
done
"""


@pytest.fixture(scope="session")
def _moved(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_once(tmp_path_factory, "on-a-branch", lambda top: move(people.copy_world(shared, top)))


def move(world: World) -> None:
    """Ada follows the hint of the push that is refused."""
    world.hub.git("update-ref", "-d", DATA)
    world.hub.write("hooks/pre-receive", CLOSED).chmod(0o755)
    ada = world.ada
    ada.write_document("ada.md", "Ada keeps bees.")
    (line,) = ada.said("push", "-q", code=1)
    assert f"set 'remote: {REMOTE}' in .vmrag.yaml and run 'vmrag pin' to push to a branch instead" in line
    ada.write(".vmrag.yaml", f"{SETTINGS}remote: {REMOTE}\n")
    ada.vmrag("pin")
    assert json.loads((ada.top / ".dolt-version").read_text())["dolt_remote"] == REMOTE
    ada.git("commit", "-q", "-am", "The knowledge base travels on a branch")
    ada.git("push", "-q")


@pytest.fixture
def moved(_moved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    isolate(monkeypatch, tmp_path / "home")
    return people.copy_world(_moved, tmp_path / "world")


def test_knowledge_travels_as_on_its_default_ref(moved: World) -> None:
    ada, bob = moved.ada, moved.join("bob")
    assert moved.hub.git("for-each-ref", "--format=%(refname)").splitlines() == ["refs/heads/main", BRANCH]
    bob.vmrag("clone")  # no agreement is necessary: it is the remote of the code
    assert bob.answers() == ada.answers()
    bob.vmrag("install")
    new = bob.write_document("bob.md", "Bob keeps goats.")
    assert bob.said("push", "-q") == ["vmrag: pushed the documents that these commits pin to origin"]
    ada.git("pull", "-q")
    ada.vmrag("fetch", "origin")
    assert (ada.pinned, ada.answers()) == (new, bob.answers())
    assert "main" in json.loads(ada.vmrag("remote", "--json").out)["remotes"][0]["branches"]
    assert ada.vmrag("log", "origin/main", "-n", "1").code == 0
    ada.vmrag("verify", "--remote", "origin", "HEAD")
    ada.vmrag("gc", "--remote", "--apply")
    assert moved.hub.git("rev-list", "--count", BRANCH) == "1"
    assert moved.hub.git("for-each-ref", "--format=%(refname)").splitlines() == ["refs/heads/main", BRANCH]


def test_data_branch_rejects_removal_and_is_restored_by_doctor(moved: World) -> None:
    ada, tip = moved.ada, moved.hub.git("rev-parse", BRANCH)
    ada.vmrag("fetch")
    for push in (("origin", f":{BRANCH}"), ("origin", f"+main:{BRANCH}"), ("--mirror", "origin")):
        said = ada.said("push", "-q", *push, code=1)
        assert f"it deletes {BRANCH}, or moves it back" in said[0]
    moved.hub.git("update-ref", "-d", BRANCH)
    said = ada.vmrag("doctor", code=None).out
    assert f"origin no longer has the knowledge base, because {BRANCH} was deleted there." in said
    ada.vmrag("doctor", "--fix", code=None)
    assert moved.hub.git("rev-parse", BRANCH) == tip


def test_fork_with_a_data_branch_is_adopted(moved: World) -> None:
    fork = moved.bare("fork.git")
    fork.git("fetch", "-q", str(moved.hub.top), "refs/heads/*:refs/heads/*")
    bob = moved.join("bob", url=str(fork.top))
    bob.vmrag("install")
    bob.git("switch", "-q", "-c", "goats")
    new = bob.write_document("bob.md", "Bob keeps goats.")
    bob.git("push", "-q", "origin", "goats")
    moved.ada.vmrag("adopt", str(fork.top), "goats")
    assert moved.holds(new)


def test_code_branch_named_by_a_pin_is_never_replaced(world: World) -> None:
    ada = world.ada
    ada.git("push", "-q", "--no-verify", "origin", "HEAD:refs/heads/vmrag-setup")
    before = world.hub.git("for-each-ref")
    ada.write(".vmrag.yaml", f"{SETTINGS}remote: git:refs/heads/vmrag-setup\n")
    ada.vmrag("pin")
    assert "vmrag gc --remote --apply" in ada.vmrag("push", code=None).err
    result = ada.vmrag("gc", "--remote", "--apply", code=None)
    assert (result.code, "did not replace" in result.err) == (2, True)
    assert world.hub.git("for-each-ref") == before


@pytest.mark.parametrize("remote", ["git:refs/heads/main", "git:refs/heads/vmrag/../main", "git:refs/pull/7/head"])
def test_branch_of_code_is_never_named(remote: str, world: World) -> None:
    before = world.hub.git("for-each-ref")
    result = world.ada.vmrag("push", remote, code=None)
    assert (result.code, "a branch that no code is on" in result.err) == (2, True)
    world.ada.write(".vmrag.yaml", f"{SETTINGS}remote: {remote}\n")
    assert world.ada.vmrag("pin", "--json", code=2).error["code"] == "CONFIG_INVALID"
    assert world.hub.git("for-each-ref") == before
