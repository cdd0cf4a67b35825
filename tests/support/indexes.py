"""Paths of the index of a project on disk."""

from __future__ import annotations

from pathlib import Path

from tests.support.terminal import Project
from vmrag_link.index import views
from vmrag_link.index.view import segments_folder


def view_of(project: Project, revision: str | None = None) -> Path:
    """Return the view of a revision, by default of the pinned one."""
    [path] = [
        folder
        for folder in list_folders(project.shared / "views")
        if folder.name.startswith(revision or project.pinned)
    ]
    return path


def segments_of(view: Path) -> list[Path]:
    """The segments that a view counts, the largest first."""
    sizes = views.list_segments(view)
    return [segments_folder(view) / name for name in sorted(sizes, key=lambda name: -sizes[name])]


def copy_of(project: Project) -> Path:
    """The view of uncommitted documents, of which there is one."""
    [path] = list_folders(project.shared / "uncommitted")
    return path


def list_folders(root: Path) -> list[Path]:
    """List the finished directories in an existing folder."""
    return [path for path in root.iterdir() if path.is_dir() and not path.name.startswith(".")]


def list_unfinished(project: Project) -> list[Path]:
    """List unfinished views and segments, of running or killed processes."""
    roots = [project.shared / "views", project.shared / "segments"]
    return [path for root in roots for path in root.iterdir() if path.name.startswith(".") and path.is_dir()]
