"""Effects of a damaged index on a project, and remains of removed texts."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.support import terminal
from tests.support.indexes import list_folders, segments_of, view_of
from tests.support.terminal import Project

template, project = terminal.template, terminal.project


def holding(folder: Path, text: bytes) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and text in path.read_bytes()]


@pytest.fixture
def many(project: Project) -> Project:
    """A commit with 260 documents, and one with one more."""
    for number in range(260):
        project.write(f"docs/t{number}.md", f"text number {number}")
    project.vmrag("import", "docs", "--collection", "many", "--copy")
    project.record("many")
    project.record("late", late="A page that came later.")
    return project


def test_damaged_segment_does_not_stop_a_much_smaller_revision(many):
    """All documents are compared then, and most of those that the base has are not there."""
    late = view_of(many)
    for other in list_folders(many.shared / "views"):
        if other != late:
            shutil.rmtree(other)
    small = segments_of(late)[-1]
    vectors = next(small.glob("vectors-*"))
    vectors.write_bytes(b"x" * vectors.stat().st_size)
    many.git("checkout", "-q", "HEAD~2", env={"VMRAG": "0"})
    assert many.vmrag("query", "text number 7", "--json").json["kb"]["in_sync"]
    assert many.consistent()


@pytest.mark.parametrize("damage", ["missing", "garbage"])
def test_gc_completes_despite_an_invalid_spare_view(many, damage):
    many.git("checkout", "-q", "HEAD~1")
    many.vmrag("sync")
    [late] = [
        folder
        for folder in list_folders(many.shared / "views")
        if folder != view_of(many) and len(segments_of(folder)) > 1
    ]
    small = segments_of(late)[-1]
    if damage == "missing":
        shutil.rmtree(small)
    else:
        (small / "manifest.sqlite").write_bytes(b"garbage" * 1000)
    report = many.vmrag("gc", "--apply", "--json").json
    assert report["applied"]
    assert report["undone"] == []
    assert many.consistent()


def test_text_that_was_taken_back_before_it_was_committed_is_nowhere(project):
    project.put("secret.md", "the password is swordfish")
    project.vmrag("query", "swordfish")
    project.put("other.md", "bats are not")
    project.drop("secret.md")
    project.record("without it")
    project.vmrag("gc", "--apply")
    assert holding(project.shared / "segments", b"swordfish") == []
    assert project.consistent()
