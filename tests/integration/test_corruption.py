"""Random corruption: one flipped bit in any file below `.git/vmrag` is found, repaired or harmless,
and never changes an answer.

Six flips; `VMRAG_CORRUPTION_FLIPS=300` makes it 300, each checked by more commands, and
`tests/check.py --long` twelve. `VMRAG_DAMAGED_FILES` files are flipped, emptied or deleted: eight,
and all of them in a long run. VMRAG_TEST_SEED repeats a run whose seed was printed.
"""

from __future__ import annotations

import os
import random
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import corruption
from tests.support.corruption import DamagedFile
from tests.support.repos import isolate
from tests.support.templates import build_once
from tests.support.terminal import Project

pytestmark = pytest.mark.hooks("off")

FILES = int(os.environ.get("VMRAG_DAMAGED_FILES") or 8)
FLIPS = int(os.environ.get("VMRAG_CORRUPTION_FLIPS") or 6)
PARTS = 4 if FLIPS > 12 else 2
SHORT = 12
SEED = int(os.environ.get("VMRAG_TEST_SEED") or (1 if FLIPS <= SHORT else random.randrange(10**6)))


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_once(tmp_path_factory, "corruption", lambda folder: corruption.build(folder / "project")) / "project"


@pytest.mark.timeout(60 + 60 * FLIPS)
@pytest.mark.parametrize("part", range(PARTS))
def test_flipped_bit_is_found_repaired_or_harmless(sound, tmp_path, monkeypatch, part):
    isolate(monkeypatch, tmp_path / "home")
    commands = corruption.COMMANDS if FLIPS > SHORT else corruption.FEW
    project, copy = Project(sound), tmp_path / "copy"
    places = [*corruption.choose_flips(project, FLIPS, SEED)][part::PARTS]
    expected = corruption.run_unharmed(project, copy, commands)
    result: Counter[str] = Counter()
    wrong = []
    for place in places:
        verdict = corruption.try_flip(project, copy, place, expected)
        result[verdict.kind] += 1
        print(f"{verdict.kind:9} {place} {verdict.why[:300]!r}", flush=True)
        if verdict.kind == "wrong":
            wrong.append((place, verdict.why))
    print(f"seed {SEED}: {sum(result.values())} flips: {dict(result)}")
    assert not wrong, f"seed {SEED}: {wrong}"


@pytest.fixture(scope="module")
def pushed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_once(tmp_path_factory, "pushed", corruption.build_pushed)


def damaged_copies(pushed: Path, scratch: Path) -> Iterator[tuple[DamagedFile, Project]]:
    """Damage one file of a copy after the other; `VMRAG_DAMAGED_FILES` of them."""
    for case in corruption.list_damages(Project(pushed / "project"), SEED)[:FILES]:
        corruption.copy_folder(pushed, scratch)
        project = Project(scratch / "project")
        case.apply(project, random.Random(f"{SEED} {case}"))
        print(case, flush=True)
        yield case, project


def expected_work(pushed: Path, scratch: Path) -> list[tuple[str, int, Any]]:
    corruption.copy_folder(pushed, scratch)
    assert corruption.read_findings(Project(scratch / "project")) == []
    return corruption.work(Project(scratch / "project"))


@pytest.fixture
def on_path(tmp_path, monkeypatch) -> Path:
    """Return a folder for copies. The program is on PATH, so that nothing is reported of that."""
    isolate(monkeypatch, tmp_path / "home")
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    return tmp_path / "copy"


@pytest.mark.timeout(60 + 20 * FILES)
def test_doctor_reports_damage_that_makes_a_command_fail(pushed, on_path):
    expected = expected_work(pushed, on_path)
    wrong = []
    for case, project in damaged_copies(pushed, on_path):
        findings = corruption.read_findings(project)
        if findings and case.is_derived:
            findings = corruption.read_findings(project, "--fix")
            if findings:
                wrong.append((case, f"--fix leaves {findings}"))
        elif findings:
            continue
        if problem := corruption.first_difference(corruption.work(project), expected):
            wrong.append((case, problem))
    assert not wrong, f"seed {SEED}: {wrong}"


@pytest.mark.timeout(60 + 20 * FILES)
def test_command_rebuilds_a_damaged_derived_file(pushed, on_path):
    expected = expected_work(pushed, on_path)
    wrong = []
    for case, project in damaged_copies(pushed, on_path):
        if not case.is_derived:
            continue
        if problem := corruption.first_difference(corruption.work(project), expected):
            wrong.append((case, problem))
    assert not wrong, f"seed {SEED}: {wrong}"
