"""A repository whose collection `notes` holds three short documents, committed and pinned: what
tests of document tools start from.

A test module takes the fixtures with `template, project, tools = notes.template, notes.project,
notes.tools`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import terminal
from tests.support.mcp import Tools
from tests.support.templates import build_once
from tests.support.terminal import Project, new_project, opened
from vmrag_link.index.contents import read_rows
from vmrag_link.index.metadata import chunk_id

TEXTS = {"a": "alpha rivers", "b": "beta mountains", "c": "gamma rivers and mountains"}
LONG = "\n\n".join(f"Paragraph {number} speaks of owls and of the number {number}." for number in range(40))
"""A text of several chunks."""


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_once(tmp_path_factory, "notes", lambda folder: build(folder / "project")) / "project"


def build(top: Path) -> None:
    project = new_project(top)
    project.vmrag("init", "--knowledge-base", "--no-sources")
    call = Tools(project.top)
    call("chroma_create_collection", collection_name="notes", metadata={"hnsw:space": "cosine"})
    metadatas = [{"n": number} for number in range(1, 4)]
    call(
        "chroma_add_documents",
        collection_name="notes",
        documents=[*TEXTS.values()],
        ids=[*TEXTS],
        metadatas=metadatas,
    )
    project.vmrag("commit", "-m", "notes")
    project.git("add", "-A")
    project.git("commit", "-q", "--no-verify", "-m", "notes")


@pytest.fixture
def project(template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    return terminal.copied(template, tmp_path, monkeypatch)


@pytest.fixture
def tools(project: Project) -> Tools:
    return Tools(project.top)


def read_indexed_chunks(project: Project, *, collection: str = "notes") -> list[str]:
    """The names of all chunks that the index holds of a collection, once it has followed."""
    with opened(project) as ws, ws.reader.view() as view:
        rows = read_rows(view.folder, collection)
    return sorted(chunk_id(doc_id, number) for doc_id, held in rows.items() for number in range(len(held)))
