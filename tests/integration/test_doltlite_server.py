"""Knowledge on a doltlite server: fetched from there, and pushed elsewhere.

The server is the engine's own, without protection.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import people
from tests.support.certificates import signed_certificate
from tests.support.dolt import embedded
from tests.support.doltlite_server import Protection, doltlite_server
from tests.support.people import User, World
from vmrag_link import hints
from vmrag_link.engines.doltlite.connection import Connection

pytestmark = embedded
shared, world = people.shared, people.world

GIT = "vmrag push git:"


@pytest.fixture
def folder(world: World) -> Path:
    """Return the served folder: it has Ada's knowledge base."""
    made = world.top / "served"
    made.mkdir(mode=0o700)
    world.ada.vmrag("push", f"file://{made}/handbook", "--all")
    return made


@pytest.fixture
def url(folder: Path) -> Iterator[str]:
    with doltlite_server(folder) as where:
        yield f"{where}/handbook"


def names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if not path.name.startswith(".")]


def agreed(user: User, url: str) -> None:
    """The settings name it from now on, and this person agrees."""
    user.write(".vmrag.yaml", f"{people.SETTINGS}remote: {url}\n")
    user.vmrag("remote", "--trust", url)


def test_served_knowledge_base_is_cloned_and_fetched_by_http(world, folder, url):
    ada, bob = world.ada, world.join("bob")
    assert bob.vmrag("clone", url).out.startswith(f"Fetched the knowledge base from {url}: main.")
    assert bob.fingerprint() == ada.fingerprint()
    revision = ada.write_document("more.md", "More.")
    ada.vmrag("push", f"file://{folder}/handbook")
    assert bob.vmrag("fetch", url).code == 0
    assert revision[:12] in bob.vmrag("log", revision, "-n", "1").out
    nowhere = bob.vmrag("fetch", url.replace("handbook", "none"), "--json", code=None).error
    assert nowhere["code"] == "REMOTE_NOT_FOUND"


def test_push_is_rejected_and_the_hinted_command_sends_it(world, folder, url):
    ada = world.ada
    assert ada.vmrag("push", url).out == f"{url} has everything already.\n"
    revision = ada.write_document("more.md", "More.")
    before = (folder / "handbook").read_bytes()
    for arguments in ((), ("--force",), ("--branch", "main"), ("--delete", "main")):
        error = ada.vmrag("push", url, *arguments, "--json", code=None).error
        assert (error["code"], hints.list_commands(error["hint"])[0]) == ("INVALID_REMOTE_URL", GIT)
        assert error["message"] == f"vmrag cannot push to a doltlite server, only fetch from it: {url}."
    planted = ada.vmrag("push", url.replace("handbook", "planted"), "--json", code=None).error
    assert hints.list_commands(planted["hint"])[0] == GIT
    assert names(folder) == ["handbook"]
    assert (folder / "handbook").read_bytes() == before
    assert not world.holds(revision)
    ada.vmrag(*GIT.split()[1:])
    assert world.holds(revision)


def test_pins_of_read_only_remote_are_pushed_once_it_has_them(world, folder, url):
    ada, bob = world.ada, world.join("bob")
    agreed(ada, url)
    ada.write_document("where.md", "The knowledge lies elsewhere.")
    assert json.loads((ada.top / ".dolt-version").read_text())["dolt_remote"] == url
    result = ada.run("push", "-q", env=people.ON)
    assert result.returncode != 0
    assert f"only fetch from it: {url}" in result.stderr
    assert f"'{GIT}'" in result.stderr
    ada.vmrag("push", f"file://{folder}/handbook")  # a user of the folder
    ada.git("push", "-q")

    bob.git("pull", "-q")
    assert "did not contact the untrusted remote" in bob.vmrag("query", "where", code=2).err
    bob.vmrag("trust", "--yes")
    bob.vmrag("install")
    assert (bob.pinned, bob.fingerprint()) == (ada.pinned, ada.fingerprint())
    bob.write_document("bob.md", "Bob has no way into the folder.")
    assert bob.run("push", "-q", env=people.ON).returncode != 0
    bob.write(".vmrag.yaml", f'{people.SETTINGS}remote: "git:"\n')
    bob.vmrag("trust", "--yes")
    bob.vmrag("pin")
    bob.git("commit", "-q", "-am", "The knowledge travels with the code")
    bob.git("push", "-q")
    assert world.holds(bob.pinned)


# -- https, and keys -------------------------------------------------------------------------------


@pytest.fixture
def protected(world: World, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Behind TLS, for those whose keys it has; the certificate is trusted here."""
    authority, certificate, key = signed_certificate(tmp_path, "localhost", "localhost")
    key.chmod(0o600)
    monkeypatch.setenv("DOLTLITE_CA_FILE", str(authority))
    monkeypatch.delenv("DOLTLITE_CREDS_KID", raising=False)
    monkeypatch.setenv("DOLTLITE_CREDS_DIR", str(tmp_path / "own"))
    clients = tmp_path / "clients"
    for path in (tmp_path / "own", clients):
        path.mkdir(mode=0o700)
    with doltlite_server(folder, Protection("localhost", certificate, key, clients)) as where:
        yield f"{where}/handbook"


def let_in(tmp_path: Path) -> None:
    """Make a key, and give the server its public half."""
    with Connection(Path(":memory:"), access="create") as connection:
        connection.execute("SELECT dolt_creds_new()")
    (private,) = (tmp_path / "own").glob("*.jwk")
    public = {name: value for name, value in json.loads(private.read_text()).items() if name != "d"}
    (tmp_path / "clients" / private.name).write_text(json.dumps(public))


def test_https_server_admits_only_clients_with_a_key(world, protected, tmp_path, monkeypatch):
    bob = world.join("bob")
    error = bob.vmrag("clone", protected, "--json", code=None).error
    assert error["code"] == "AUTHENTICATION_FAILED"
    assert "ls ~/.doltlite/creds" in error["hint"]
    let_in(tmp_path)
    assert bob.vmrag("clone", protected).code == 0
    revision = world.ada.write_document("more.md", "More.")
    refused = world.ada.vmrag("push", protected, "--json", code=None).error
    assert refused["code"] == "INVALID_REMOTE_URL"
    world.ada.vmrag("push", f"file://{world.top}/served/handbook")
    bob.vmrag("fetch", protected)
    assert revision[:12] in bob.vmrag("log", revision, "-n", "1").out
    for untrusted in (protected.replace("https", "http"), protected.replace("localhost", "127.0.0.1")):
        assert bob.vmrag("fetch", untrusted, "--json", code=None).error["code"] in (
            "REMOTE_UNREACHABLE",
            "AUTHENTICATION_FAILED",
        )
    monkeypatch.delenv("DOLTLITE_CA_FILE")
    assert bob.vmrag("fetch", protected, "--json", code=None).error["code"] == "REMOTE_UNREACHABLE"
