"""git operations: git behaves as without vmrag, and afterwards the knowledge is at the pin."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from tests.operations import document, world
from tests.operations.table import OPERATIONS, Follows, Operation
from tests.operations.world import CONTENTS, DRAFTS, WITHOUT_HOOKS, Copy, Stand, World
from tests.support.compare import assert_whole
from tests.support.long import one_of_each
from tests.support.repos import isolate
from tests.support.templates import build_once
from vmrag_link import clock
from vmrag_link.git import hook_config

ROOT = Path(__file__).parents[2]
REVISIONS = "revisions.json"


def outcome(operation: Operation) -> tuple[object, ...]:
    """Return the expected results as a key."""
    return operation.follows, operation.answers, bool(operation.aside)


def refused(operation: Operation) -> tuple[object, ...]:
    return any(operation.codes), operation.follows


REASONS = {"no pin": "this commit has no pin", "malformed": "the pin cannot be read"}


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> World:
    def build(folder: Path) -> None:
        (folder / REVISIONS).write_text(json.dumps(world.build(folder).revisions))

    folder = build_once(tmp_path_factory, "operations", build)
    return World(folder, json.loads((folder / REVISIONS).read_text()))


@pytest.fixture(autouse=True)
def _home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    isolate(monkeypatch, tmp_path / "home")
    tools = Path(sys.executable).parent  # a clone does not know yet which interpreter its hooks shall run
    monkeypatch.setenv("PATH", f"{tools}{os.pathsep}{os.environ['PATH']}")
    moment = clock.now()  # a decision has its time: with and without hooks it is made at the same one
    monkeypatch.setattr(clock, "now", lambda: moment)


@pytest.mark.parametrize(
    "operation",
    one_of_each(OPERATIONS, lambda operation: operation.hooks, outcome, refused),
    ids=lambda operation: operation.name,
)
@pytest.mark.sample(11)
def test_git_does_as_without_hooks_and_the_knowledge_follows(
    operation: Operation, prepared: World, tmp_path: Path
) -> None:
    ours = Copy.prepared(prepared, tmp_path / "with", operation)
    twin = ours.twin(tmp_path / "without")
    uncommitted = ours.uncommitted()

    follows = run_beside(ours, twin, tmp_path / "trace")
    assert ours.state() == twin.state()
    assert follows == operation.follows

    assert_answers(ours, prepared, tmp_path / "fresh")
    if operation.aside:
        assert uncommitted.pop(operation.start).items() <= ours.texts(ours.head(operation.aside)).items()
    assert ours.uncommitted() == uncommitted


def run_beside(ours: Copy, twin: Copy, trace: Path) -> Follows:
    """Run both: git prints and does the same in both, and runs the hooks of the table; return what
    followed the last command.
    """
    operation = ours.operation
    *leading, last = operation.commands
    with_hooks = {"GIT_TRACE2_EVENT": str(trace)}
    steps = ours.run(leading, with_hooks)
    before = ours.stand()
    steps += ours.run([last], with_hooks)
    after = ours.stand()

    for step, other in zip(steps, twin.run(operation.commands, WITHOUT_HOOKS), strict=True):
        assert (step.code, step.out, step.err) == (other.code, other.out, other.err)
        assert len(step.ours) <= 1
    assert tuple(step.code for step in steps) == (operation.codes or (0,) * len(steps))
    assert world.hooks_run(trace) == operation.hooks
    assert operation.said in "".join(line for step in steps for line in step.ours)
    assert not operation.said or steps[-1].ours
    return followed(before, after)


def followed(before: Stand | None, after: Stand | None) -> Follows:
    if after is None:
        return "nothing"
    if after.applied != after.trigger:
        return "query"
    return "nothing" if before and after.written == before.written else "hook"


def assert_answers(copy: Copy, prepared: World, scratch: Path) -> None:
    """Check that `vmrag query` answers from the pinned revision, with an index equal to a new one,
    or reports the reason.
    """
    operation, where = copy.operation, copy.where
    if operation.answers == "no work tree":
        assert where.vmrag("query", "winter", "--json", code=2).error["code"] == "GIT_REPO_NOT_FOUND"
        return
    answer = where.ask("query", "winter")
    assert answer["results"][0]["doc_id"] == "winter.md"
    if reason := REASONS.get(operation.answers):
        assert reason in answer["notes"][0]
        assert not answer["kb"]["in_sync"]
        return
    assert answer["kb"]["in_sync"]
    pinned = answer["kb"]["commit"]
    assert prepared.revisions.get(operation.pin, pinned) == pinned
    assert copy.texts(pinned) == CONTENTS[operation.pin]
    stand = copy.stand()
    assert stand
    assert json.loads(stand.trigger.pin or b"")["dolt_commit"] == pinned
    scratch.mkdir()
    assert_whole(where, scratch, built=prepared.built)


def test_prepared_repository_pins_the_contents_of_the_table(prepared: World) -> None:
    copy = Copy(prepared.root, OPERATIONS[0])
    for name, revision in prepared.revisions.items():
        assert copy.texts(revision) == CONTENTS[name]
    assert copy.uncommitted() == DRAFTS


def test_operations_have_unique_names_and_cover_all_installed_hooks() -> None:
    assert len({operation.name for operation in OPERATIONS}) == len(OPERATIONS)
    assert {hook for operation in OPERATIONS for hook in operation.hooks} == set(hook_config.HOOKS)


def test_page_about_hooks_is_up_to_date() -> None:
    written = (ROOT / "docs" / "git-operations.md").read_text()
    assert written == document.page(), "run: python -m tests.operations.document > docs/git-operations.md"


def test_page_about_hooks_describes_every_hook() -> None:
    for hook in hook_config.HOOKS:
        assert f"| `{hook}` |" in document.page()
