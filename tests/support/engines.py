"""Every engine that the contract suite runs against, by name.

A test module takes the fixtures with `engine, engines = support.engine, support.engines`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pytest

from tests.support import dolt, dolt_server
from vmrag_link.engines.base import Engine, Write
from vmrag_link.engines.dolt.engine import DoltEngine
from vmrag_link.engines.doltlite.connection import Connection
from vmrag_link.engines.doltlite.engine import DoltliteEngine
from vmrag_link.engines.folder import DOLTLITE_FILE as FILE_NAME
from vmrag_link.engines.folder import SERVER_FILE
from vmrag_link.engines.own_branches import ROOT_BRANCH
from vmrag_link.models import Collection, Document, WorkingSet, content_hash, encode_canonical_json  # noqa: F401  Working is for `child`

ROOT = Path(__file__).parents[2]
AUTHOR = "Ada <ada@example.org>"
DATE = "2026-01-02T03:04:05Z"


class Maker(Protocol):
    def create(self, folder: Path, *, author: str, date: str) -> Engine: ...

    def open(self, folder: Path, *, lock_timeout: float = 30.0) -> Engine: ...


class _OnServer:
    """Knowledge bases in databases of the session's `dolt sql-server`."""

    def create(self, folder: Path, *, author: str, date: str) -> Engine:
        access = dolt_server.session_server().access(dolt_server.database_for(folder))
        return DoltEngine.create(folder, author=author, date=date, access=access)

    def open(self, folder: Path, *, lock_timeout: float = 30.0) -> Engine:
        return DoltEngine.open(folder, lock_timeout=lock_timeout, access=dolt_server.session_server().access())


MAKERS: dict[str, Maker] = {"doltlite": DoltliteEngine, "dolt": DoltEngine, "dolt-server": _OnServer()}


def _doltlite_forgets(folder: Path, branch: str, to: str) -> None:
    with Connection(folder / FILE_NAME, access="write") as connection:
        connection.execute("SELECT dolt_branch('-f', ?, ?)", (branch, to))


def _dolt_forgets(folder: Path, branch: str, to: str) -> None:
    dolt.run(folder, "branch", "-f", branch, to)


def _server_forgets(folder: Path, branch: str, to: str) -> None:
    database = database_of(folder)
    dolt_server.session_server().sql(f"USE `{database}/{ROOT_BRANCH}`", f"CALL dolt_branch('-f', '{branch}', '{to}')")


def database_of(folder: Path) -> str:
    """The database on the session's server that a folder names."""
    return str(json.loads((folder / SERVER_FILE).read_bytes())["database"])


FORGET: dict[str, Callable[[Path, str, str], None]] = {
    "doltlite": _doltlite_forgets,
    "dolt": _dolt_forgets,
    "dolt-server": _server_forgets,
}
"""How another program moves a branch behind our back: nothing anchors its old head, uncommitted
rows are discarded.
"""


def _doltlite_damage(folder: Path, text: str) -> None:
    _overwrite(folder / FILE_NAME, text.encode() * 2)


def _dolt_damage(folder: Path, _: str) -> None:
    """Texts are compressed, so the middle of the largest file is hit, wherever that is."""
    largest = max((folder / ".dolt/noms").rglob("*"), key=lambda path: path.stat().st_size if path.is_file() else 0)
    middle = largest.stat().st_size // 2
    _overwrite(largest, largest.read_bytes()[middle : middle + 8])


def _overwrite(file: Path, pattern: bytes) -> None:
    """Overwrite eight bytes at the last place of the pattern."""
    content = bytearray(file.read_bytes())
    place = content.rindex(pattern)
    content[place : place + 8] = bytes(8)
    file.chmod(0o600)
    file.write_bytes(content)


def _server_damage(folder: Path, text: str) -> None:
    server = dolt_server.session_server()
    _dolt_damage(server.folder / database_of(folder), text)
    server.restart()  # it keeps in memory what it has read


DAMAGE: dict[str, Callable[[Path, str], None]] = {
    "doltlite": _doltlite_damage,
    "dolt": _dolt_damage,
    "dolt-server": _server_damage,
}
"""How a disk damages a closed knowledge base; the text is in one of its documents."""

PACE = {"doltlite": 1.0, "dolt": 10.0, "dolt-server": 3.0}
"""How long an engine takes for a small write, beside the embedded one."""


@dataclass(frozen=True)
class Engines:
    """Makes and opens knowledge bases of one engine, in this process and (`child`) in another."""

    name: str

    def create(self, folder: Path) -> Engine:
        return MAKERS[self.name].create(folder, author=AUTHOR, date=DATE)

    def open(self, folder: Path, *, lock_timeout: float = 30.0) -> Engine:
        return MAKERS[self.name].open(folder, lock_timeout=lock_timeout)

    def size(self, folder: Path) -> int:
        """Bytes that the knowledge base takes up on its disk."""
        if self.name == "dolt-server":
            folder = dolt_server.session_server().folder / database_of(folder)
        return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())

    @property
    def pace(self) -> float:
        return PACE[self.name]

    def damage(self, folder: Path, text: str) -> None:
        DAMAGE[self.name](folder, text)

    def forget(self, engine: Engine, branch: str) -> str:
        """Reset the branch to the root with the raw engine; return the head that nothing reaches
        afterwards.
        """
        old = head(engine, branch)
        FORGET[self.name](engine.folder, branch, root(engine))
        return old

    def child(self, folder: Path, body: str) -> subprocess.Popen[str]:
        """A process that runs `body` with `engine` open and everything of this module at hand;
        stdin and stdout piped.
        """
        program = (
            "import sys, os, time\nfrom pathlib import Path\nfrom tests.support.engines import *\n"
            f"engine = Engines({self.name!r}).open(Path({str(folder)!r}))\n{body}"
        )
        return subprocess.Popen(
            [sys.executable, "-c", program], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )


@pytest.fixture(params=sorted(MAKERS))
def engines(request: pytest.FixtureRequest) -> Engines:
    if request.param == "dolt":
        dolt.require()
    if request.param == "dolt-server":
        request.getfixturevalue("dolt_server")
    return Engines(request.param)


@pytest.fixture
def engine(engines: Engines, tmp_path: Path) -> Iterator[Engine]:
    """A knowledge base that holds its root revision only."""
    made = engines.create(tmp_path / "kb")
    yield made
    made.close()


def root(engine: Engine) -> str:
    branch = engine.find_branch(ROOT_BRANCH)
    assert branch is not None
    return branch.head


def head(engine: Engine, branch: str) -> str:
    result = engine.find_branch(branch)
    assert result is not None
    return result.head


def log(name: str, text: str = "text", *, issue_number: int = 1, **fields: str) -> Document:
    """An issue log of the project `vmrag`."""
    stated = {"project_id": "vmrag", "issue_number": issue_number, "log_type": "resolution"}
    return _logical("issues_vmrag", name, text, stated, table="issue_logs", **fields)


def knowledge(name: str, text: str = "text", *, tool_name: str = "git", tool_version: str = "2", **fields) -> Document:
    """A knowledge doc."""
    stated = {"category": "api", "tool_name": tool_name, "tool_version": tool_version}
    return _logical(f"knowledge_{tool_name}", name, text, stated, table="knowledge_docs", **fields)


def _logical(collection: str, name: str, text: str, stated: dict, *, metadata: str = "{}", **fields) -> Document:
    both = encode_canonical_json(json.loads(metadata) | stated)
    return Document(collection, name, name, text, content_hash(text), both, **fields)


def document(doc_id: str, content: str = "text", *, collection: str = "guide", **fields: str) -> Document:
    return Document(collection, doc_id, fields.pop("title", doc_id), content, content_hash(content), **fields)


def put(engine: Engine, branch: str, *documents: Document) -> None:
    engine.write(branch, Write(put_documents=documents), expected=head(engine, branch))


def commit(engine: Engine, branch: str, message: str = "a change", *, date: str = DATE) -> str:
    return engine.commit(branch, message=message, author=AUTHOR, date=date, expected=head(engine, branch))


def store(engine: Engine, branch: str, *documents: Document) -> str:
    """Write and commit; the branch is made at the root where there is none. Returns the
    revision.
    """
    if engine.find_branch(branch) is None:
        engine.create_branch(branch, root(engine))
    put(engine, branch, *documents)
    return commit(engine, branch)


def guide(**fields: str) -> Collection:
    return Collection("guide", **fields)
