"""Repositories and knowledge bases written by earlier versions; `tests/data/README.md` lists
them.
"""

from __future__ import annotations

import contextlib
import sys
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.repos import Repo
from tests.support.terminal import Project as Person
from vmrag_link.engines.base import Engine
from vmrag_link.engines.doltlite import schema
from vmrag_link.engines.doltlite.connection import Connection
from vmrag_link.engines.folder import DOLTLITE_FILE as FILE_NAME
from vmrag_link.models import At, Document, Project

DATA = Path(__file__).parents[1] / "data"
PLACE = b"@WORLD@"


@dataclass(frozen=True)
class Formerly:
    """Repositories of several people, which a former version wrote."""

    top: Path

    @property
    def hub(self) -> Repo:
        return Repo(self.top / "code.git")

    @property
    def shelf(self) -> str:
        """The URL of the `file://` remote."""
        return f"file://{self.top / 'shelf.doltlite'}"

    def person(self, name: str) -> Person:
        return Person(self.top / name)

    @property
    def ada(self) -> Person:
        return self.person("ada")

    @property
    def bob(self) -> Person:
        return self.person("bob")

    @property
    def carol(self) -> Person:
        return self.person("carol")

    @property
    def dan(self) -> Person:
        return self.person("dan")


def unpack(top: Path) -> Formerly:
    """Unpack it below `top`, which does not exist yet; call `repos.isolate` first."""
    top.mkdir()
    with tarfile.open(DATA / "formats-1.tar.xz") as archive:
        archive.extractall(top, filter="tar")
    for path in top.glob("*/.git/vmrag/journal/*.json"):
        path.write_bytes(path.read_bytes().replace(PLACE, bytes(top)))
    return Formerly(top)


def unpack_former_model(top: Path) -> Person:
    """A work tree with indexes of format 4, by the default model of before, below `top`, which does
    not exist yet.
    """
    top.mkdir()
    with tarfile.open(DATA / "formats-4.tar.xz") as archive:
        archive.extractall(top, filter="tar")
    return Person(top / "ada")


def unpack_setup(top: Path) -> Formerly:
    """Unpack what `setup-0.1.sh` made below `top`, which does not exist yet.

    The hooks run the Python of the tests: version 0.1.0 was upgraded in its environment.
    """
    top.mkdir()
    with tarfile.open(DATA / "setup-0.1.tar.xz") as archive:
        archive.extractall(top, filter="tar")
    for path in (*top.glob("*/.git/config"), *top.glob("*/.git/vmrag/interpreter")):
        path.write_text(path.read_text().replace("@PYTHON@", sys.executable))
    return Formerly(top)


@contextlib.contextmanager
def program(version: int) -> Iterator[None]:
    """A program that knows the schema up to this version, in this process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schema, "SCHEMA_VERSION", version)
        yield


def version(engine: Engine, at: str) -> int:
    """The version of the schema at a revision or on a branch."""
    with Connection(engine.folder / FILE_NAME, at=at, access="read") as connection:
        return schema.read_version(connection)


def entries(engine: Engine, at: At) -> list[Project | Document]:
    """The rows of all tables that version 2 has first."""
    return [
        *engine.read_projects(at),
        *(document for document in engine.read_documents(at) if document.table != "documents"),
    ]
