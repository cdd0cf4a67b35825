"""The repository of `notes`, whose collection `notes` is a writable source: its documents are
files.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import terminal
from tests.support.mcp import Tools
from tests.support.notes import TEXTS
from tests.support.templates import build_once
from tests.support.terminal import Project, new_project

FOLDER = ".vmrag/notes"
SETTINGS = f"""\
embedding:
  model: hash
sources:
  - collection: notes
    paths: ["{FOLDER}/"]
    write: true
"""


def build(top: Path, *, stored: bool) -> None:
    """`stored`: with a knowledge base that has another collection, and one of the same name."""
    project = new_project(top)
    if stored:
        project.vmrag("init", "--knowledge-base", "--no-sources")
        project.put("setup.md", "# Setup\n\nInstall the program.\n")
        project.put("a", "a stored text that the note hides", collection="notes")
        project.vmrag("commit", "-m", "handbook")
    project.write(".vmrag.yaml", SETTINGS)
    project.vmrag("trust", "--yes", code=None)
    Tools(project.top)(
        "chroma_add_documents",
        collection_name="notes",
        documents=[*TEXTS.values()],
        ids=[*TEXTS],
        metadatas=[{"n": number} for number in range(1, 4)],
    )
    project.git("add", "-A")
    project.git("commit", "-q", "--no-verify", "-m", "notes")


@pytest.fixture(scope="session", params=[False, True], ids=["files alone", "with a knowledge base"])
def template(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    name = f"written-notes-{request.param}"
    return build_once(tmp_path_factory, name, lambda top: build(top / "project", stored=request.param)) / "project"


@pytest.fixture
def project(template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    project = terminal.copied(template, tmp_path, monkeypatch)
    project.vmrag("trust", "--yes", code=None)
    return project


@pytest.fixture
def tools(project: Project) -> Tools:
    return Tools(project.top)
