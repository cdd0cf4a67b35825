"""Random sequences of git and `vmrag` commands, compared with the model.

tests/README.md explains how to run many of them.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.model import machine
from tests.model.driver import Real, hook_killer, stock
from tests.model.machine import SEEN, Sequences
from tests.model.model import Model
from tests.model.world import World
from tests.support.cli import measure_duration
from tests.support.repos import isolate

SEQUENCES = int(os.environ.get("VMRAG_MODEL_SEQUENCES") or 0)
STEPS = int(os.environ.get("VMRAG_MODEL_STEPS") or 15)
SEED = int(os.environ.get("VMRAG_MODEL_SEED") or random.SystemRandom().randrange(10**6))
PARTS = 4
SHORT = 2  # sequences of each part in the suite


def build(folder: Path) -> tuple[Real, Model]:
    """Two code branches that have come apart: `main` and `other`."""
    real = stock(folder / "project", hook_killer(folder))
    model = Model()
    model.revisions[real.pin] = {}
    world = World(real, model, folder / "scratch", machine.Counter())

    def put(name: str, text: str) -> None:
        world.put(("guide", f"{name}.txt"), text)

    def commit() -> None:
        world.commit_knowledge(f"revision {world.next()}")
        world.record()

    for name, text in zip("abc", machine.TEXTS, strict=False):
        put(name, text)
    real.git("add", "-A")
    commit()
    real.git("switch", "-q", "-c", "other")
    put("a", "other words")
    commit()
    world.look(real.git("switch", "-q", "main").err)
    put("b", "main words")
    commit()
    return real, model


@pytest.fixture(scope="session")
def start(tmp_path_factory: pytest.TempPathFactory) -> tuple[Real, Model, float]:
    """Return the start of each sequence, and the seconds of an undisturbed `vmrag sync`."""
    folder = tmp_path_factory.mktemp("model")
    with pytest.MonkeyPatch.context() as patch:
        isolate(patch, folder / "home")
        real, model = build(folder)
        measure_duration(real.main, "sync", "--rebuild")
        return real, model, measure_duration(real.main, "sync", "--rebuild")


def run(start: tuple[Real, Model, float], folder: Path, *, number: int, sequences: int, steps: int) -> None:
    real, model, duration = start
    kind = type("Sequences", (Sequences,), {"template": real, "model": model, "folder": folder, "duration": duration})
    before = SEEN.copy()
    try:
        run_state_machine_as_test(
            seed(number)(kind),
            settings=settings(
                max_examples=sequences,
                stateful_step_count=steps,
                database=None,
                phases=[Phase.generate] + ([Phase.shrink] if os.environ.get("VMRAG_MODEL_SHRINK") else []),
                suppress_health_check=list(HealthCheck),
                print_blob=False,
            ),
        )
    finally:
        ran = SEEN - before
        print(f"\nseed {number}: {ran.pop('sequences')} sequences, {ran.pop('steps', 0)} steps")
        print(", ".join(f"{name} {count}" for name, count in sorted(ran.items())))


@pytest.mark.timeout(0)
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.sample(1)
def test_documents_match_the_model_after_git_operations_and_kills(start, tmp_path, monkeypatch, part):
    isolate(monkeypatch, tmp_path / "home")
    if SEQUENCES:
        run(start, tmp_path, number=SEED + part, sequences=SEQUENCES // PARTS, steps=STEPS)
    else:
        run(start, tmp_path, number=part, sequences=SHORT, steps=12)
