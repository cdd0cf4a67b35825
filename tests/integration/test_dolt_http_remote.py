"""A knowledge base of the engine dolt over the remotes API of a real `dolt sql-server`.

DoltHub speaks it, too. It cannot be reached from here: this server stands for it.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.dolt_server import HOST, DoltServer
from tests.support.engines import AUTHOR, DATE, document, head, root, store
from vmrag_link import env
from vmrag_link.engines import opening
from vmrag_link.engines.base import Engine
from vmrag_link.engines.dolt import remotes, server_database
from vmrag_link.engines.dolt.engine import DoltEngine
from vmrag_link.engines.own_branches import ROOT_BRANCH
from vmrag_link.errors import AuthenticationFailed, KnowledgeRefused, RemoteInvalid, RemoteMissing, RemoteMoved


@dataclass
class Served:
    """A knowledge base on a server, and where its remotes API has it."""

    server: DoltServer
    engine: Engine
    api: str

    @property
    def url(self) -> str:
        return f"{self.api}/kb"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("served")
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port = probe.getsockname()[1]
    server = DoltServer(folder / "databases", settings=f"remotesapi:\n  port: {port}\n")
    server.start()
    engine = opening.create_engine("dolt", folder / "kb", author=AUTHOR, date=DATE, access=server.access("kb"))
    store(engine, "main", document("one"))
    yield Served(server, engine, f"http://{HOST}:{port}")
    engine.close()
    server.stop()


@pytest.fixture
def bob(served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    monkeypatch.setenv(env.DOLT_REMOTE_PASSWORD, served.server.password)
    made = DoltEngine.clone(tmp_path / "kb", "there", served.url)
    yield made
    made.close()


def test_server_is_cloned_and_pushed_to(served: Served, bob: Engine) -> None:
    assert bob.remote_heads("there")["main"] == head(served.engine, "main")
    assert root(bob) == root(served.engine)
    assert bob.peek_heads(served.url) is None
    bob.create_branch("topic", head(served.engine, "main"))
    ours = store(bob, "topic", document("two"))
    bob.push("there", served.url, {"topic": ours})
    assert head(served.engine, "topic") == ours
    theirs = store(served.engine, "topic", document("three"))
    with pytest.raises(RemoteMoved):
        bob.push("there", served.url, {"topic": store(bob, "topic", document("four"))})
    bob.fetch("there", served.url)
    assert bob.remote_heads("there")["topic"] == theirs
    assert bob.count_documents(theirs) == 3
    bob.push("there", served.url, {"topic": ""})
    assert served.engine.find_branch("topic") is None


def test_rejected_login_does_not_reveal_or_store_the_password(
    served: Served, bob: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(env.DOLT_REMOTE_PASSWORD, "wrong-secret")
    with pytest.raises(AuthenticationFailed) as caught:
        bob.fetch("there", served.url)
    assert "wrong-secret" not in f"{caught.value!r} {caught.value.to_dict()}"
    monkeypatch.setenv(env.DOLT_REMOTE_PASSWORD, served.server.password)
    bob.fetch("there", served.url)
    bob.close()
    stored = b"".join(path.read_bytes() for path in bob.folder.rglob("*") if path.is_file())
    assert served.server.password.encode() not in stored


def test_missing_database_is_reported_as_missing(served: Served, bob: Engine) -> None:
    with pytest.raises(RemoteMissing):
        bob.fetch("elsewhere", f"{served.api}/nothing")


def test_fetched_branches_are_vetted_before_use(served: Served, bob: Engine) -> None:
    remote_heads = bob.remote_heads("there")
    served.server.sql(
        "USE `kb/main`",
        "CALL dolt_branch('strange')",
        "USE `kb/strange`",
        "CREATE TABLE theirs (k int primary key)",
        "CALL dolt_commit('-Am', 'strange')",
    )
    bob.fetch("there", served.url)
    assert bob.remote_heads("there").keys() == remote_heads.keys() | {ROOT_BRANCH}
    with pytest.raises(KnowledgeRefused, match="theirs"):
        bob.count_documents(bob.foreign_heads("there")["strange"])
    assert bob.count_documents(remote_heads["main"]) == 1
    served.server.sql("USE kb", "CALL dolt_branch('-D', 'strange')")
    bob.fetch("there", served.url)
    assert not bob.foreign_heads("there")


@pytest.mark.parametrize(
    ("url", "sent"),
    [
        ("https://dolt.example.org/kb", True),
        ("http://127.0.0.1:80/kb", True),
        ("http://[::1]/kb", True),
        ("http://dolt.example.org/kb", False),
        ("http://127.0.0.1.example.org/kb", False),
        ("http://localhost.example.org/kb", False),
        ("file:///kb", False),
        ("org/repo", False),
    ],
)
def test_password_is_sent_encrypted_or_stays_on_this_machine(
    url: str, sent: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(env.DOLT_REMOTE_PASSWORD, "secret")
    assert bool(remotes.login_options(url, "root")) is sent


def test_remote_unreachable_for_the_server_is_invalid(served: Served, tmp_path: Path) -> None:
    other = opening.open_engine(served.engine.folder, access=served.server.access("kb"))
    url = f"file://{tmp_path / 'place'}"
    other.push("there", url, {ROOT_BRANCH: root(other), "main": head(other, "main")})  # it is on this machine
    other.fetch("there", url)
    assert other.remote_heads("there")["main"] == head(other, "main")
    other.close()
    with pytest.raises(RemoteInvalid):
        server_database.require_reachable(served.server.access(server="dolt.example.org:3306"), url)
