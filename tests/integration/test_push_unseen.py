"""A push whose pins cannot be checked: it stops only if one of them is new."""

from __future__ import annotations

import shutil

import pytest

from tests.support import people
from tests.support.people import World

shared, world = people.shared, people.world

pytestmark = pytest.mark.hooks("on")


def typo(top, shared):
    top.joinpath(".vmrag.yaml").write_text("embeding:\n  model: hash\n")


def no_knowledge_base(top, shared):
    shutil.rmtree(shared / "kb")


def cut(top, shared):
    (shared / "kb" / "kb.doltlite").write_bytes(b"no database" * 999)


def broken_interpreter(top, shared):
    (shared / "interpreter").write_text(f"{shutil.which('false')}\n")


WAYS = [typo, no_knowledge_base, cut, broken_interpreter]


@pytest.mark.parametrize("damage", WAYS)
@pytest.mark.sample(2)
def test_unreadable_new_pins_stop_the_push_and_the_hint_works(world: World, damage):
    ada = world.ada
    ada.write_document("faq.md", "More.\n", message="more")
    damage(ada.top, ada.shared)
    before = world.hub.git("rev-parse", "main")
    pushed = ada.run("push", "-q", "origin", "main")
    assert pushed.returncode != 0, pushed
    assert "nothing was pushed: could not check the new pins of these commits" in pushed.stderr
    assert "git push --no-verify" in pushed.stderr
    assert world.hub.git("rev-parse", "main") == before
    ada.git("push", "-q", "--no-verify", "origin", "main")
    assert world.hub.git("rev-parse", "main") != before


@pytest.mark.parametrize("damage", WAYS)
@pytest.mark.sample(2)
def test_push_without_a_new_pin_is_not_stopped(world: World, damage):
    ada = world.ada
    damage(ada.top, ada.shared)
    ada.write("code.py", "1\n")
    ada.git("add", "code.py")
    ada.git("commit", "-q", "-m", "code")
    for ref in ("main", "main:refs/heads/elsewhere", ":refs/heads/elsewhere"):
        pushed = ada.run("push", "-q", "origin", ref)
        assert pushed.returncode == 0, pushed


def test_push_reports_a_pinned_revision_that_is_missing_everywhere(world: World):
    ada = world.ada
    nowhere = "f" * 40
    pin = (ada.top / ".dolt-version").read_text()
    ada.write(".dolt-version", pin.replace(ada.pinned, nowhere))
    error = ada.vmrag("push", "--json", code=None)
    assert error.code != 0
    assert error.error["code"] == "PIN_MISSING_REVISION"
    assert nowhere in error.error["message"]


def test_push_reports_an_unreadable_pin(world: World):
    world.ada.write(".dolt-version", "")
    assert world.ada.vmrag("push", "--json", code=None).error["code"] == "PIN_MALFORMED"
