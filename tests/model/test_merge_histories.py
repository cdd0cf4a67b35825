"""The results of git and the merge driver on random histories equal those of sets: eight of each
kind of merge.

`VMRAG_MERGE_HISTORIES=40` makes it forty, as `tests/check.py --long` does.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.model.driver import hook_killer, stock
from tests.model.merge_cases import Case, Histories
from tests.model.merging import Merging
from tests.model.model import Model
from tests.support.repos import isolate

EACH = int(os.environ.get("VMRAG_MERGE_HISTORIES") or 8)
CONFLICTS = EACH // 8  # at least

RUN: dict[str, tuple[Callable[[Histories], tuple[int, int]], Callable[[Merging, Case, str], None]]] = {
    "merge": (Histories.merge, lambda world, case, side: world.merge(case.other, side)),
    "merge of a reverted branch": (
        Histories.merge_of_reverted,
        lambda world, case, side: world.merge(case.other, side),
    ),
    "cherry-pick": (Histories.cherry_pick, lambda world, case, side: world.pick(case.other, side, revert=False)),
    "revert": (Histories.revert, lambda world, case, side: world.pick(case.other, side, revert=True)),
    "reorder": (Histories.rebase, lambda world, case, side: world.rebase(case.other, side, "reorder")),
    "squash": (Histories.rebase, lambda world, case, side: world.rebase(case.other, side, "squash")),
}


class Merges(Merging):
    """Looks into the knowledge base alone, where the result is: the sequences of `test_model` do
    the rest.
    """

    def look(self, said: str = "", *, killed: bool = False) -> None:
        pass

    def refused(self, *arguments: str, why: tuple[str, int] = ("GIT_BUSY", 3)) -> None:
        pass


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Merging:
    """One commit that pins a collection without documents; no hook runs."""
    isolate(monkeypatch, tmp_path / "home")
    real, model = stock(tmp_path / "project", hook_killer(tmp_path)), Model()
    model.revisions[real.pin] = {}
    world = Merges(real, model, tmp_path / "scratch", Counter())
    world.put(("guide", "a.txt"), "text")
    world.write(lambda _: {}, "rm", "a.txt", "--collection", "guide")
    real.git("add", "-A")
    world.commit_knowledge("an empty collection")
    world.record()
    monkeypatch.setenv("VMRAG", "0")
    return world


@pytest.mark.parametrize("kind", RUN)
@pytest.mark.sample(2)
def test_pin_of_git_and_the_driver_matches_set_operations(world, kind):
    draw, run = RUN[kind]
    dice = random.Random(kind)
    histories = Histories(dice)
    cases = histories.write(world.real, world.model, [draw(histories) for _ in range(EACH)])
    world.observe()
    for case in cases:
        world.real.git("checkout", "-q", "--detach", case.head)
        run(world, case, dice.choice(["ours", "theirs"]))
    print(dict(world.seen))
    assert world.seen.total() == EACH
    assert sum(count for name, count in world.seen.items() if name.endswith("in conflict")) >= CONFLICTS
