"""Random corruption: one flipped bit in any file below `.git/vmrag` is found, or mended, or
harmless; never another answer.

Six flips; `VMRAG_CORRUPTION_FLIPS=300` makes it 300, each looked at by more commands, and
`tests/check.py --long` twelve.
VMRAG_TEST_SEED repeats a run whose seed was printed.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from pathlib import Path

import pytest

from tests.support import corruption
from tests.support.repos import isolate
from tests.support.templates import build_once
from tests.support.terminal import Project

pytestmark = pytest.mark.hooks("off")

FLIPS = int(os.environ.get("VMRAG_CORRUPTION_FLIPS") or 6)
PARTS = 4 if FLIPS > 12 else 2
SHORT = 12
SEED = int(os.environ.get("VMRAG_TEST_SEED") or (1 if FLIPS <= SHORT else random.randrange(10**6)))


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_once(tmp_path_factory, "corruption", lambda folder: corruption.build(folder / "project")) / "project"


@pytest.mark.timeout(60 + 60 * FLIPS)
@pytest.mark.parametrize("part", range(PARTS))
def test_one_flipped_bit_is_found_or_mended_or_harmless(sound, tmp_path, monkeypatch, part):
    isolate(monkeypatch, tmp_path / "home")
    commands = corruption.COMMANDS if FLIPS > SHORT else corruption.FEW
    project, copy = Project(sound), tmp_path / "copy"
    places = [*corruption.flips(project, FLIPS, SEED)][part::PARTS]
    expected = corruption.unharmed(project, copy, commands)
    found: Counter[str] = Counter()
    wrong = []
    for place in places:
        verdict = corruption.tried(project, copy, place, expected)
        found[verdict.kind] += 1
        print(f"{verdict.kind:9} {place} {verdict.why[:300]!r}", flush=True)
        if verdict.kind == "wrong":
            wrong.append((place, verdict.why))
    print(f"seed {SEED}: {sum(found.values())} flips: {dict(found)}")
    assert not wrong, f"seed {SEED}: {wrong}"
