"""Repositories whose files are documents of sources."""

from __future__ import annotations

from pathlib import Path

from tests.support.terminal import Project, new_project

SETTINGS = """\
embedding:
  model: hash
sources:
  - collection: docs
    paths: [docs/, README.md]
  - collection: code
    kind: code
    paths: [src/]
"""

PAGE = "# Page\n\none\ntwo\nthree\nfour\n"


def sourced_project(top: Path) -> Project:
    """Without a knowledge base; one commit: `README.md`, `docs/page.md`, `src/a.py`."""
    project = new_project(top, settings=SETTINGS)
    commit(project, "begin", **{"README.md": "# Readme\n", "docs/page.md": PAGE, "src/a.py": "def f():\n    pass\n"})
    return project


def commit(project: Project, message: str, **files: str | None) -> str:
    """Write or (None) remove files, and commit everything; returns the commit."""
    for path, content in files.items():
        if content is None:
            (project.top / path).unlink()
        else:
            (project.top / path).parent.mkdir(parents=True, exist_ok=True)
            (project.top / path).write_text(content)
    project.git("add", "-A")
    project.git("commit", "-q", "-m", message)
    return project.git("rev-parse", "HEAD")


def change(project: Project, path: str, old: str, new: str) -> None:
    file = project.top / path
    file.write_text(file.read_text().replace(old, new))
