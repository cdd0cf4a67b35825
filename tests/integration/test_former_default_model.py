"""A knowledge base whose collections name the default model of before goes on working: its
texts are embedded with the present one, in every revision.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from tests.support import formerly
from tests.support.repos import isolate
from tests.support.terminal import Project, new_project
from vmrag_link.embedding.static import StaticModel
from vmrag_link.index import view as views
from vmrag_link.progress import QUIET
from vmrag_link.sync.plan import FORMER_DEFAULTS
from vmrag_link.workspace import Workspace

pytestmark = pytest.mark.hooks("off")

TEXTS = {
    "sleep.md": "# Sleep\n\nRest at least seven hours, away from any screen.\n",
    "backup.md": "# Backup\n\nEvery night the archive is copied to another building.\n",
    "plants.md": "Water the plants on Mondays.\n",
    "owls.md": "Feed the owls at dusk.\n",
}


@pytest.fixture
def ada(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    isolate(monkeypatch, tmp_path / "home")
    return formerly.unpack_former_model(tmp_path / "world")


def models(project: Project) -> tuple[set[str], set[str]]:
    """Which the rows of collections name, and which the index does."""
    with contextlib.closing(Workspace.open(project.top, QUIET)) as ws, ws.reader.view() as view:
        rows = {collection.embedding_model for collection in ws.engine.list_collections(ws.locate_documents())}
        return rows, {
            collection.collection.embedding_model for collection in views.read_view(view.folder).collections.values()
        }


def test_every_revision_is_indexed_with_the_present_model(ada: Project) -> None:
    assert best(ada, "birds of the night") == ["owls.md"]
    assert models(ada) == (set(FORMER_DEFAULTS), {StaticModel.fingerprint})
    assert ada.status()["state"] == "in_sync"
    assert ada.consistent()
    ada.git("switch", "-q", "--detach", "first")
    assert best(ada, "a copy of all data") == ["backup.md"]
    ada.vmrag("sync", "--rebuild")
    ada.vmrag("fingerprint", "--verify")


def best(project: Project, text: str) -> list[str]:
    results = project.vmrag("query", text, "--mode", "vector", "-k", "1", "--json").json["results"]
    return [document["doc_id"] for document in results]


def test_old_default_model_answers_like_a_new_knowledge_base(ada: Project, tmp_path: Path) -> None:
    bob = new_project(tmp_path / "bob", settings='index:\n  chroma: "off"\n')
    bob.vmrag("init", "--knowledge-base", "--no-sources")
    for name, text in TEXTS.items():
        bob.vmrag("add", "-", "--collection", "handbook", "--id", name, stdin=text)
    assert bob.answers() == ada.answers()
    assert bob.vmrag("fingerprint").out == ada.vmrag("fingerprint").out
    former = (ada.top.parent / "fingerprint").read_text()
    assert ada.vmrag("fingerprint").out != former, "the program of before ranks otherwise"


def test_its_collections_take_documents_and_changes_as_before(ada: Project) -> None:
    ada.vmrag(
        "add",
        "-",
        "--collection",
        "handbook",
        "--id",
        "tea.md",
        stdin="Boil the water in a kettle, and wait for the tea.\n",
    )
    ada.vmrag("commit", "-m", "Tea")
    assert best(ada, "how to boil water") == ["tea.md"]
    assert ada.vmrag("diff", "first", "HEAD", "--stat").code == 0
    assert ada.consistent()
    assert models(ada) == (set(FORMER_DEFAULTS), {StaticModel.fingerprint})
