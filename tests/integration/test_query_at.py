"""`--at REF`: the index of another revision is taken from the spares or built, and the limit of
spares holds at once.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import terminal
from tests.support.terminal import Project
from vmrag_link.ops.follow.lazy_fetch import pinned_at
from vmrag_link.ops.index.query import query, ranked_at
from vmrag_link.progress import Quiet, Task
from vmrag_link.retrieval.query import Query
from vmrag_link.workspace import Workspace

pytestmark = pytest.mark.hooks("off")

template, project = terminal.template, terminal.project


class Tasks(Quiet):
    """Keeps the descriptions of tasks that had something to do."""

    def __init__(self) -> None:
        self.begun: list[str] = []

    @contextlib.contextmanager
    def task(self, description: str, total: int) -> Iterator[Task]:
        if total:
            self.begun.append(description)
        with super().task(description, total) as task:
            yield task


@pytest.fixture
def tasks() -> Tasks:
    return Tasks()


@pytest.fixture
def workspace(project: Project, tasks: Tasks) -> Iterator[Workspace]:
    """Of the template: HEAD on main, whose snapshot alone is there."""
    project.git("config", "vmrag.index.keep", "0")
    project.vmrag("gc", "--apply")
    project.git("config", "vmrag.index.keep", "4")
    opened = Workspace.open(project.top, tasks)
    yield opened
    opened.close()


def built(workspace: Workspace) -> set[Path]:
    return {each.path for each in workspace.snapshots.all()}


def path_of(workspace: Workspace, ref: str) -> Path:
    return workspace.snapshots.path(pinned_at(workspace, ref))


def test_the_first_query_at_a_ref_builds_with_progress_and_the_second_builds_nothing(workspace, tasks):
    answer = query(workspace, Query("uv"), at=ranked_at(workspace, "feature"))
    assert tasks.begun == ["building the index"]
    place = path_of(workspace, "feature")
    before = place.stat().st_ino, {path.name: path.stat().st_mtime_ns for path in place.iterdir()}
    assert query(workspace, Query("uv"), at=ranked_at(workspace, "feature")) == answer
    assert tasks.begun == ["building the index"]
    assert (place.stat().st_ino, {path.name: path.stat().st_mtime_ns for path in place.iterdir()}) == before


def test_a_ref_whose_vectors_are_known_embeds_nothing(project, workspace):
    before = cached(project)
    query(workspace, Query("uv"), at=ranked_at(workspace, "feature"))
    assert cached(project) == before


def cached(project: Project) -> dict[str, list[tuple]]:
    """The rows of the cache of vectors, but for the days of their last use: midnight may pass."""
    with contextlib.closing(sqlite3.connect(project.shared / "embeddings.sqlite")) as connection:
        names = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        assert "uses" in names
        return {name: connection.execute(f"SELECT * FROM {name}").fetchall() for name in names if name != "uses"}


@pytest.mark.parametrize("keep", [0, 1, 2])
def test_the_limit_of_spares_holds_after_every_query_and_the_bound_snapshot_stays(project, tasks, keep):
    project.git("config", "vmrag.index.keep", str(keep))
    project.vmrag("gc", "--apply")
    opened = Workspace.open(project.top, tasks)
    bound = path_of(opened, "main")
    refs = ("feature", "first", "feature", "first")
    for number, ref in enumerate(refs):
        query(opened, Query("uv"), at=ranked_at(opened, ref))
        last = list(dict.fromkeys(reversed(refs[: number + 1])))[:keep]
        assert {bound, *(path_of(opened, each) for each in last)} <= built(opened)
        assert len(built(opened)) <= keep + 1
    opened.close()


def test_the_spare_that_was_not_used_for_longest_goes(project, workspace):
    project.record("more", more="One more revision.")
    for ref in ("feature", "first", "feature"):
        query(workspace, Query("uv"), at=ranked_at(workspace, ref))
    project.git("config", "vmrag.index.keep", "2")
    project.record("most", most="And another one.")
    opened = Workspace.open(project.top, Quiet())
    query(opened, Query("uv"), at=ranked_at(opened, "feature"))
    query(opened, Query("uv"), at=ranked_at(opened, "main~2"))
    assert path_of(opened, "feature") in built(opened)
    assert path_of(opened, "first") not in built(opened)
    opened.close()


def test_what_is_being_read_is_never_evicted(project, workspace, tasks):
    project.git("config", "vmrag.index.keep", "0")
    other = Workspace.open(project.top, tasks)
    with workspace.reader.snapshot(pinned_at(workspace, "first")) as read:
        query(other, Query("uv"), at=ranked_at(other, "feature"))
        assert built(other) == {read, path_of(other, "main")}
    query(other, Query("uv"), at=ranked_at(other, "feature"))
    assert path_of(other, "main") in built(other)
    other.close()
