"""Equal histories hold equal documents on every engine, and merge equally."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import dolt, terminal
from tests.support.engines import AUTHOR, DATE, MAKERS, document, guide, knowledge, log, root
from tests.support.long import examples
from tests.support.repos import isolate, make_repo
from tests.support.terminal import QUERIES
from vmrag_link.engines.base import Engine, Write
from vmrag_link.merging.choices import Choice, Decisions
from vmrag_link.merging.conflicts import decide_all
from vmrag_link.merging.revisions import merge_revisions
from vmrag_link.models import Difference, Project

NAMES = [f"d{number}" for number in range(12)]
LINES = ["one", "two", "three", "four", "five", "six"]

TEXTS = [f"# Page {number}\n\n{text}, and more of it.\n" for number, text in enumerate(QUERIES * 2)]

Pair = tuple[Engine, Engine]
"""The embedded engine's knowledge base, and Dolt's."""


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    dolt.require()
    folder = tmp_path_factory.mktemp("pair")
    made = [MAKERS[name].create(folder / name / "kb", author=AUTHOR, date=DATE) for name in ("doltlite", "dolt")]
    yield made[0], made[1]
    for engine in made:
        engine.close()


def _text(dice: random.Random) -> str:
    return "".join(f"{dice.choice(LINES)}\n" for _ in range(dice.randint(1, 6)))


def _edit(dice: random.Random, held: dict[str, str]) -> Write:
    """A few rows put, changed and removed; `held` is kept up to date."""
    put, removed = [], []
    for name in dice.sample(NAMES, dice.randint(1, 4)):
        if name in held and dice.random() < 0.3:
            del held[name]
            removed.append(("guide", name))
        else:
            lines = held.get(name, _text(dice)).splitlines(keepends=True)
            lines[dice.randrange(len(lines))] = f"{dice.choice(LINES)}\n"
            held[name] = "".join(lines)
            put.append(document(name, held[name], metadata=f'{{"n":{dice.randint(1, 3)}}}'))
    number = dice.randint(1, 3)
    projects = [Project("p", dice.choice(LINES))]
    put += [log(f"i{number}", issue_number=number), knowledge("k", tool_name=dice.choice("ab"))]
    collections = [guide(metadata=f'{{"n":{dice.randint(1, 3)}}}')] if dice.random() < 0.3 else []
    return Write(put_documents=put, remove_documents=removed, put_collections=collections, put_projects=projects)


def _onto(engine: Engine, revision: str, *rows: Write) -> str:
    return engine.commit_onto(revision, rows, message="m", author=AUTHOR, date=DATE)


def _rows(engine: Engine, revision: str) -> object:
    return (
        engine.list_collections(revision),
        list(engine.read_documents(revision)),
        list(engine.read_projects(revision)),
    )


def _merge(engine: Engine, base: str, ours: str, theirs: str, *, joins: bool) -> tuple[object, ...]:
    """The rows of the merge, and what was in conflict and decided for ours."""
    decisions: Decisions = {}
    while True:
        outcome = merge_revisions(engine, base=base, ours=ours, theirs=theirs, joins=joins, decisions=decisions)
        if outcome.revision is not None:
            break
        assert not decisions.keys() & {conflict.id for conflict in outcome.conflicts}
        decisions = {**decisions, **decide_all(outcome.conflicts, Choice("ours"))}  # a collection's come first
    conflicts = tuple(decisions)
    return _rows(engine, outcome.revision), conflicts, len(engine.read_revision(outcome.revision).parents)


def _differences(engine: Engine, *pairs: tuple[str, str]) -> list[tuple[Difference, object]]:
    return [(engine.diff(old, new), engine.count_changes(old, new)) for old, new in pairs]


@pytest.mark.parametrize("seed", range(examples(200)))
def test_random_histories_hold_differ_and_merge_equally(pair: Pair, seed: int) -> None:
    result = []
    for engine in pair:
        dice = random.Random(seed)
        held: dict[str, str] = {}
        base = _onto(engine, root(engine), Write(put_collections=[guide()]), _edit(dice, held))
        sides = []
        for _ in range(2):
            mine, revision = dict(held), base
            for _ in range(dice.randint(1, 3)):
                revision = _onto(engine, revision, _edit(dice, mine))
            sides.append(revision)
        ours, theirs = sides
        states = [_rows(engine, revision) for revision in (base, ours, theirs)]
        compared = _differences(engine, (base, ours), (ours, theirs), (theirs, root(engine)))
        merges = [_merge(engine, base, ours, theirs, joins=joins) for joins in (False, True)]
        picked = _merge(engine, ours, theirs, base, joins=False)  # any base will do
        result.append((states, compared, merges, picked))
    assert result[0] == result[1]


def test_equal_documents_have_one_fingerprint_and_are_ranked_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dolt.require()
    isolate(monkeypatch, tmp_path / "home")
    result = []
    for engine in ("doltlite", "dolt"):
        project = terminal.Project(make_repo(tmp_path / engine).top)
        project.vmrag("init", "--knowledge-base", "--no-sources", "--engine", engine)
        for number, text in enumerate(TEXTS):
            project.put(f"{number}.md", text)
        project.vmrag("commit", "-m", "texts")
        project.git("commit", "-q", "-m", "texts")
        project.drop("0.md")
        project.put("1.md", "Rest and sleep are uncommitted.")
        result.append((project.ask("fingerprint")["fingerprint"], project.answers(), project.marks(), project.texts()))
    assert result[0] == result[1]
