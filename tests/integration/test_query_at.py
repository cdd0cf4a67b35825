"""`--at REF`: the index of another revision is reused or built, and the limit of spare indexes
applies at once.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import terminal
from tests.support.terminal import Project
from vmrag_link.index.views import list_segments
from vmrag_link.progress import Quiet, Task
from vmrag_link.retrieval.query import Query
from vmrag_link.sync.context import SyncContext
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.answers.query import answer_query
from vmrag_link.workspace.follow.lazy_fetch import pinned_at
from vmrag_link.workspace.follow.search_scope import ranked_at

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
    """Open a copy of the template with a branch `other`: HEAD is on main, and only main's view
    exists.
    """
    prepared(project)
    opened = Workspace.open(project.top, tasks)
    assert built(opened) == {path_of(opened, "main")}
    yield opened
    opened.close()


def prepared(project: Project) -> None:
    project.git("switch", "-q", "-c", "other", "first")
    project.record("other", other="Something else.")
    project.git("switch", "-q", "main")
    project.vmrag("sync")
    project.git("config", "vmrag.index.keep-mb", "0")
    project.vmrag("gc", "--apply")
    project.git("config", "--unset", "vmrag.index.keep-mb")
    with terminal.opened(project) as opened:
        for path in built(opened):  # that of the empty knowledge base takes no room, so it stayed
            assert list_segments(path) or opened.views.remove_if_unused(path)


def keep(monkeypatch: pytest.MonkeyPatch, spares: int) -> None:
    """Limit the spare indexes to a number.

    Each index of this project takes a hundredth of a megabyte, the smallest value of the setting.
    """
    made = Workspace.sync_context.fget
    assert made is not None

    def limited(workspace: Workspace) -> SyncContext:
        sizes = [sum(list_segments(index_path).values()) for index_path in built(workspace)]
        return made(workspace)._replace(keep_bytes=spares * max(sizes))

    monkeypatch.setattr(Workspace, "sync_context", property(limited))


def built(workspace: Workspace) -> set[Path]:
    return {view.path for view in workspace.views.list_views()}


def path_of(workspace: Workspace, ref: str) -> Path:
    return workspace.views.view_path(pinned_at(workspace, ref))


def test_first_query_at_ref_builds_index_and_second_reuses_it(workspace, tasks):
    answer = answer_query(workspace, Query("uv"), at=ranked_at(workspace, "feature"))
    assert tasks.begun == ["building the index"]
    place = path_of(workspace, "feature")
    before = place.stat().st_ino, {path.name: path.stat().st_mtime_ns for path in place.iterdir()}
    assert answer_query(workspace, Query("uv"), at=ranked_at(workspace, "feature")) == answer
    assert tasks.begun == ["building the index"]
    assert (place.stat().st_ino, {path.name: path.stat().st_mtime_ns for path in place.iterdir()}) == before


def test_ref_with_known_vectors_embeds_nothing(project, workspace):
    before = cached(project)
    answer_query(workspace, Query("uv"), at=ranked_at(workspace, "feature"))
    assert cached(project) == before


def cached(project: Project) -> dict[str, list[tuple]]:
    """The rows of the cache of vectors, but for the days of their last use: midnight may pass."""
    with contextlib.closing(sqlite3.connect(project.shared / "embeddings.sqlite")) as connection:
        names = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        assert "uses" in names
        return {name: connection.execute(f"SELECT * FROM {name}").fetchall() for name in names if name != "uses"}


@pytest.mark.parametrize("spares", [0, 1, 2])
@pytest.mark.sample(1)
def test_spare_limit_applies_after_every_query_and_spares_bound_view(project, workspace, monkeypatch, spares):
    keep(monkeypatch, spares)
    bound = path_of(workspace, "main")
    refs = ("feature", "other", "feature", "other")
    for number, ref in enumerate(refs):
        answer_query(workspace, Query("uv"), at=ranked_at(workspace, ref))
        last = list(dict.fromkeys(reversed(refs[: number + 1])))[:spares]
        assert built(workspace) == {bound, *(path_of(workspace, name) for name in last)}
        counted = {part for view in built(workspace) for part in list_segments(view)}
        assert {path.name for path in workspace.views.segments.list_newest_first()} == counted


def test_by_its_setting_no_spare_stays_or_many_do(project, workspace):
    bound = path_of(workspace, "main")
    for megabytes, expected in (("0", {bound}), ("1", {bound, path_of(workspace, "feature")})):
        project.git("config", "vmrag.index.keep-mb", megabytes)
        opened = Workspace.open(project.top, Quiet())
        answer_query(opened, Query("uv"), at=ranked_at(opened, "feature"))
        assert built(opened) == expected
        opened.close()


def test_spare_that_was_not_used_for_longest_goes(project, workspace, monkeypatch):
    project.record("more", more="One more revision.")
    for ref in ("feature", "other", "feature"):
        answer_query(workspace, Query("uv"), at=ranked_at(workspace, ref))
    assert {path_of(workspace, "feature"), path_of(workspace, "other")} <= built(workspace)
    keep(monkeypatch, 2)
    project.record("most", most="And another one.")
    opened = Workspace.open(project.top, Quiet())
    answer_query(opened, Query("uv"), at=ranked_at(opened, "feature"))
    answer_query(opened, Query("uv"), at=ranked_at(opened, "main~2"))
    assert path_of(opened, "feature") in built(opened)
    assert path_of(opened, "other") not in built(opened)
    opened.close()


def test_open_index_is_never_evicted(project, workspace, tasks):
    project.git("config", "vmrag.index.keep-mb", "0")
    other = Workspace.open(project.top, tasks)
    with workspace.reader.open_index(pinned_at(workspace, "feature")) as read:
        answer_query(other, Query("uv"), at=ranked_at(other, "other"))
        assert built(other) == {read, path_of(other, "main")}
        assert other.views.find_problem(pinned_at(workspace, "feature")) == "", "its segments stay, too"
    answer_query(other, Query("uv"), at=ranked_at(other, "other"))
    assert built(other) == {path_of(other, "main")}
    other.close()
