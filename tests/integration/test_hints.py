"""A sample of the rule: a hint helps in the state that printed it, and what cannot be undone is
never there to paste. With `VMRAG_WALK_HINTS=1` the rule holds for every command that a test types.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support import hints, terminal
from tests.support.terminal import Project

template, project = terminal.template, terminal.project

pytestmark = pytest.mark.hooks("off")


def merging(project: Project) -> None:
    """A merge of the knowledge alone is open, over one document."""
    project.record("ours", rest="# Rest\n\nAlways rest.\n")
    project.vmrag("merge", "feature", code=1)


def conflict(project: Project) -> None:
    project.record("ours", rest="# Rest\n\nAlways rest.\n")
    assert project.run("merge", "-q", "feature").returncode


def draft(project: Project) -> None:
    project.put("draft.md", "A draft.\n")


def detached(project: Project) -> None:
    project.git("switch", "-q", "--detach")


def broken_pin(project: Project) -> None:
    project.write(".dolt-version", "{")


def removed_pin(project: Project) -> None:
    (project.top / ".dolt-version").unlink()


def broken_settings(project: Project) -> None:
    project.write(".vmrag.yaml", "retrieval:\n  k: many\n")


def unpinned(project: Project) -> None:
    """Commit a revision and restore the earlier pin."""
    draft(project)
    project.vmrag("commit", "-m", "draft")
    project.git("checkout", "-q", "HEAD", "--", ".dolt-version")


def no_index(project: Project) -> None:
    project.forget_indexes()


def nothing(project: Project) -> None:
    pass


STATES: list[tuple[Callable[[Project], None], str]] = [
    (merging, "merge feature"),
    (merging, "commit -m x"),
    (merging, "switch feature"),
    (conflict, "commit -m x"),
    (conflict, "pin"),
    (conflict, "resolve nowhere --ours"),
    (draft, "merge feature"),
    (draft, "pull"),
    (detached, "add docs/rest.md --collection handbook"),
    (detached, "commit -m x"),
    (broken_pin, "sync"),
    (broken_pin, "commit -m x"),
    (broken_pin, "query rest"),
    (broken_settings, "status"),
    (broken_settings, "query rest"),
    (unpinned, "add docs/rest.md --collection handbook"),
    (unpinned, "status"),
    (no_index, "show nowhere.md"),
    (nothing, "init"),
    (nothing, "pull"),
    (nothing, "push"),
    (nothing, "fetch"),
    (nothing, "merge nowhere"),
    (nothing, "commit -m x"),
    (nothing, "resolve"),
    (nothing, "merge --continue"),
    (nothing, "merge --abort"),
    (nothing, "query rest --collection nowhere"),
    (nothing, "show nowhere.md"),
    (nothing, "rm nowhere.md --collection handbook"),
    (nothing, "diff nowhere"),
    (nothing, "log nowhere.md"),
    (nothing, "import nowhere --collection handbook"),
    (nothing, "switch nowhere"),
    (nothing, "restore nowhere.md"),
    (nothing, "check"),
]


@pytest.mark.parametrize(("state", "command"), STATES, ids=[f"{state.__name__}: {line}" for state, line in STATES])
@pytest.mark.sample(18)
def test_hint_helps_in_the_state_that_printed_it(project: Project, state: Callable[[Project], None], command: str):
    state(project)
    words = command.split()
    result = project.vmrag(*words, code=None)
    if result.code:
        project.walk(result, tuple(words))


@pytest.mark.parametrize(
    ("hint", "expected"),
    [
        ("run 'vmrag pull origin', or 'vmrag sync' to leave it", [["vmrag pull origin"], ["vmrag sync"]]),
        ("resolve it, then run 'git add f && vmrag resolve'", [["git add f && vmrag resolve"]]),
        ("run 'vmrag sync' after git has finished", [["vmrag sync"]]),
        ("run 'git config vmrag.remote NAME', or 'git remote -v' to list the remotes", [["git remote -v"]]),
        ("run 'vmrag add \"a, or b\" --collection x'", [['vmrag add "a, or b" --collection x']]),
        ("run 'rm .git/index.lock' if no git runs", [["rm .git/index.lock"]]),
        ("run 'cd /a/b && mkdir -p c && vmrag check'", [["cd /a/b && mkdir -p c && vmrag check"]]),
        ("run 'vmrag merge --abort', then 'vmrag sync'", [["vmrag merge --abort", "vmrag sync"]]),
        ("write 'key: value', or pass '--base docs'", []),
    ],
)
def test_commands_of_a_hint_are_found_in_its_sentence(hint: str, expected: list[list[str]]):
    assert hints.list_ways(hint) == expected


@pytest.mark.parametrize("command", ["rm .git/index.lock", "vmrag push origin --force", "vmrag uninstall --force"])
def test_irreversible_commands_are_rejected_in_hints(command: str, tmp_path):
    assert "discards" in str(hints.find_problem([command], tmp_path, lambda: False))
