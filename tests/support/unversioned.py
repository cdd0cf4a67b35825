"""A repository of notes in which `system.versioned` is false, and what its machine alone holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support import notes, terminal
from tests.support.mcp import Tools
from tests.support.terminal import Project, opened
from vmrag_link.workspace import local_store

SETTING = "vmrag.system.versioned"


@pytest.fixture
def project(template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    made = terminal.copied(template, tmp_path, monkeypatch)
    made.git("config", SETTING, "false")
    return made


template, tools = notes.template, notes.tools


def think(tools: Tools, text: str, number: int, **more: Any) -> dict[str, Any]:
    place = {"thought_number": number, "total_thoughts": 4, "session_id": "plan"}
    return tools("chroma_sequential_thinking", thought=text, **place | more)


def read_texts(project: Project) -> dict[str, str]:
    """The texts of this machine's own documents, by id, straight from their engine."""
    with opened(project) as ws:
        return {document.doc_id: document.content for document in ws.local.engine.read_documents(local_store.AT)}


def find_files_with(folder: Path, text: bytes) -> list[Path]:
    """List the files that contain a text."""
    return [path for path in folder.rglob("*") if path.is_file() and text in path.read_bytes()]
