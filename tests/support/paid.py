"""A project with a collection whose vectors a service was paid for, and other machines with it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.support import services as support
from tests.support.chroma_server import Database
from tests.support.mcp import Tools
from tests.support.services import KEY, Services
from tests.support.terminal import Project, copied, derive_template, opened
from tests.support.terminal import template as template  # noqa: PLC0414  a vmrag fixture
from vmrag_link.engines.own_branches import VECTORS_BRANCH

services = support.services

TEXTS = {
    "river": "rivers flow to the sea",
    "bread": "bread is baked in an oven",
    "long": " ".join(f"Paragraph {number} tells of rivers, bread and setup." for number in range(40)),
}
ASKED = {"type": "openai"}


@pytest.fixture(scope="session")
def paid_template(tmp_path_factory: pytest.TempPathFactory, template: Path) -> Path:
    return derive_template(tmp_path_factory, "paid", template, build)


def build(project: Project) -> None:
    """The collection `api` of the service `openai`, committed."""
    with pytest.MonkeyPatch.context() as patch, support.running(patch) as services:
        patch.setenv("OPENAI_API_KEY", KEY)
        project.git("config", "vmrag.embedding.openai-url", services.base("openai"))
        project.git("config", "vmrag.trustedService", "openai")
        tools = Tools(project.top)
        tools("chroma_create_collection", collection_name="api", embedding_function="openai")
        tools("chroma_add_documents", collection_name="api", documents=list(TEXTS.values()), ids=list(TEXTS))
        project.vmrag("commit", "-m", "api")
        project.git("commit", "-q", "-a", "-m", "api")


@pytest.fixture
def paid(
    paid_template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, services: Services, database: Database
) -> Project:
    """Return a copy that uses the server of `database`; the service has no requests yet."""
    project = copied(paid_template, tmp_path, monkeypatch)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    project.git("config", "vmrag.embedding.openai-url", services.base("openai"))
    database.use(project)
    return project


def share(project: Project) -> None:
    """Put the index on the server, and vouch for it."""
    project.vmrag("sync", "--wait", env={"VMRAG_CHROMA_SHARE": "wait"})


def another_machine(project: Project, folder: Path) -> Project:
    """Return a clone on another machine: knowledge and settings, no index and no vectors."""
    shutil.copytree(project.top, folder, symlinks=True)
    other = Project(folder)
    other.forget_indexes()
    shutil.rmtree(other.shared / "builder", ignore_errors=True)
    for gone in (other.shared / "embeddings.sqlite", other.own / "workspace.json", other.own / "applied"):
        gone.unlink()
    return other


def remove_vouchers(project: Project) -> None:
    """Remove all vouchers of vectors."""
    with opened(project) as ws, ws.engine.write_lock("test"):
        branch = ws.engine.find_branch(VECTORS_BRANCH)
        assert branch is not None
        ws.engine.delete_branch(VECTORS_BRANCH, expected=branch.head)


def paid_texts(services: Services) -> list[str]:
    """List the texts that the service was requested to embed."""
    return [text for request in services.requests for text in request.texts]
