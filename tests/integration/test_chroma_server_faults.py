"""A Chroma server that is away, slow, broken or hostile; and clients that are killed.

A proxy between a real `chroma run` and its clients applies the faults of each test.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from tests.support import chroma_server, paid, terminal
from tests.support.chroma_server import Fault, Request, free_port
from tests.support.paid import TEXTS, another_machine, paid_texts, share
from tests.support.repos import ON
from tests.support.terminal import SCRIPT, Project, opened
from vmrag_link import endpoint
from vmrag_link.chroma_server import contents
from vmrag_link.chroma_server import share as sharing
from vmrag_link.chroma_server.client import SharedRow
from vmrag_link.errors import ChromaServerFailed
from vmrag_link.models import content_hash
from vmrag_link.sync import shared_vectors

pytestmark = pytest.mark.hooks("off")

template, project = terminal.template, terminal.project
chroma_run, database, network = chroma_server.chroma_run, chroma_server.database, chroma_server.network
services, paid_template, paid = paid.services, paid.paid_template, paid.paid

NUMBERS = 256


def answering(ending: str, fault: Fault, method: str = "POST") -> Callable[[Request], Fault | None]:
    return lambda request: fault if request.is_(method, ending) else None


def told(ending: str, change: Callable[[Any], Any], method: str = "POST") -> Callable[[Request], Fault | None]:
    return answering(ending, Fault(rewrite=change), method)


def vectors(page: dict[str, Any], change: Callable[[list[Any]], Any]) -> dict[str, Any]:
    return page | {"embeddings": [change(embedding) for embedding in page["embeddings"]]}


def last_only(page: dict[str, Any]) -> dict[str, Any]:
    return page | {key: page[key][1:] for key in ("ids", "embeddings", "documents")}


def sealed(metadata: dict[str, Any]) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda collection: collection | {"metadata": collection["metadata"] | metadata}


NAMED = "collections/vmrag-"

FAULTS: dict[str, Callable[[Request], Fault | None]] = {
    "nobody answers": lambda _: Fault(lost=True),
    "the answer is lost": answering("/get", Fault(unanswered=True)),
    "the answer breaks off": answering("/get", Fault(cut=100)),
    "it is too slow": answering("/get", Fault(slow=2.5)),
    "it drips": answering("/get", Fault(dripping=0.01)),
    "it fails": answering(
        "/get", Fault(status=500, said=b'{"error":"InternalError","message":"out of \\u001b[31mdisk"}')
    ),
    "it refuses": lambda _: Fault(status=401, said=b"who are you"),
    "it sends elsewhere": lambda _: Fault(status=302, said=b""),
    "a page comes": lambda _: Fault(status=200, said=b"<html>Sign in</html>"),
    "another JSON comes": answering("/get", Fault(status=200, said=b'{"ids": 7}')),
    "too much comes": answering("/get", Fault(status=200, said=b'{"ids":["' + b"x" * 30_000_000 + b'"]}')),
    "it nests": answering("/get", Fault(status=200, said=b"[" * 200_000)),
    "records are missing": told("/get", last_only),
    "a text is another": told("/get", lambda page: page | {"documents": ["lies", *page["documents"][1:]]}),
    "vectors are others": told("/get", lambda page: vectors(page, lambda vector: vector[::-1])),
    "one vector is another": told(
        "/get", lambda page: page | {"embeddings": [page["embeddings"][1], *page["embeddings"][1:]]}
    ),
    "vectors are shorter": told("/get", lambda page: vectors(page, lambda vector: vector[:-1])),
    "vectors are missing": told("/get", lambda page: vectors(page, lambda _: None)),
    "numbers are none": told("/get", lambda page: vectors(page, lambda vector: [1e300, *vector[1:]])),
    "the count is another": told("/count", lambda _: 3, "GET"),
    "the id leads elsewhere": lambda request: (
        Fault(rewrite=lambda collection: collection | {"id": "../../x"})
        if NAMED in request.path and request.method == "GET"
        else None
    ),
    "the seal is another's": lambda request: (
        Fault(rewrite=sealed({"vmrag_count": 1})) if NAMED in request.path and request.method == "GET" else None
    ),
    "nothing is sealed": lambda request: (
        Fault(rewrite=lambda collection: collection | {"metadata": None})
        if NAMED in request.path and request.method == "GET"
        else None
    ),
    "the name is another's": lambda request: (
        Fault(rewrite=lambda collection: collection | {"name": "other"})
        if NAMED in request.path and request.method == "GET"
        else None
    ),
}


@pytest.fixture
def shared(paid: Project, tmp_path, services) -> Project:
    """Another machine, whose index is on the server."""
    share(paid)
    services.requests.clear()
    return another_machine(paid, tmp_path / "other")


def only_sealed(rule: Callable[[Request], Fault | None]) -> Callable[[Request], Fault | None]:
    """The rule, except for requests about a collection that is being built."""
    return lambda request: None if request.path.endswith(contents.BUILDING) else rule(request)


@pytest.mark.sample(9)
@pytest.mark.parametrize("what", FAULTS)
@pytest.mark.sample(4)
def test_server_fault_leads_to_local_embedding_with_a_warning(paid, shared, network, services, what):
    network.database.use(shared, network.url)
    shared.git("config", "vmrag.chroma.timeout-s", "1")
    network.rule = only_sealed(FAULTS[what])
    result = shared.vmrag("sync")
    assert f"the Chroma server (127.0.0.1:{network.port}, database {network.database.name})" in result.err
    assert "The texts of 'api' are embedded here instead." in result.err
    assert "\x1b" not in result.err
    assert set(paid_texts(services)) > {*TEXTS.values()} - {TEXTS["long"]}
    assert shared.answers() == paid.answers()


@pytest.mark.parametrize("what", ["nobody answers", "vectors are others", "a page comes"])
def test_sync_fails_if_configured_and_the_old_index_answers(paid, shared, network, services, what):
    shared.git("switch", "-q", "--detach", "HEAD~1")
    shared.vmrag("sync")
    before = shared.answers()
    network.database.use(shared, network.url, fallback="fail")
    network.rule = only_sealed(FAULTS[what])
    shared.git("switch", "-q", "main")
    result = shared.vmrag("sync", "--json", code=3)
    assert result.error["code"] == "CHROMADB_ERROR"
    assert result.error["details"]["url"] == network.url
    assert shared.answers() == before
    assert shared.status()["in_sync"] is False
    assert paid_texts(services) == [] or all(text not in TEXTS.values() for text in paid_texts(services))
    network.rule = lambda _: None
    endpoint._open_until.clear()  # half a minute later
    shared.vmrag("sync")
    assert shared.answers() == paid.answers()


@pytest.mark.hooks("on")
def test_git_waits_for_no_server(paid, shared, network, services):
    shared.git("config", "vmrag.hooks.sync", "auto")
    shared.git("switch", "-q", "feature")
    revision = paid.pinned
    network.database.use(shared, network.url)
    network.rule = lambda _: Fault(slow=0.2)
    result = shared.run("switch", "-q", "main", env=ON)
    assert "syncing in the background" in result.stderr
    assert shared.ask("query", "sea", "--collection", "api")["kb"]["commit"] == revision
    assert paid_texts(services) == ["sea"]


def test_collection_lost_by_the_server_is_embedded_and_uploaded_again(paid, shared, database, services):
    for name in database.sealed():
        database.drop(name)
    shared.vmrag("sync")
    assert len(paid_texts(services)) >= len(TEXTS)
    share(shared)
    assert len(database.sealed()) == 2


def test_vouched_vectors_replace_different_local_vectors(paid, shared, database, network, services):
    """One text was embedded locally with a slightly different vector: the whole collection comes
    from the server, so that both clients answer alike.
    """
    with opened(shared) as ws:
        model = ws.models.load_for(
            next(
                collection
                for collection in ws.engine.list_collections(ws.resolve_target().revision)
                if collection.name == "api"
            )
        )
        odd = model.embed_queries(["something else"])[0]
        ws.embedding_cache.store_vectors(model.fingerprint, {content_hash(TEXTS["river"]): odd})
    services.requests.clear()
    database.use(shared, network.url)
    shared.vmrag("sync")
    assert paid_texts(services) == []
    assert shared.answers() == paid.answers()


def test_sync_waits_for_another_client_that_uploads(shared, network, services, monkeypatch):
    """Its name changes when it is complete."""
    monkeypatch.setattr(shared_vectors, "_POLL_SECONDS", 0.05)
    database = network.database
    client = database.client()
    api = next(
        sealed_name
        for sealed_name in database.sealed()
        if database.collections()[sealed_name]["metadata"]["collection"] == "api"
    )
    collection = client.find_collection(api)
    client.update_collection(
        collection, name=api + contents.BUILDING, metadata={"vmrag_holder": "x", "vmrag_until": int(time.time()) + 60}
    )

    def finishes(request: Request) -> None:
        if network.count("GET", api) == 3:
            client.update_collection(collection, name=api, metadata=collection.metadata)

    network.rule = finishes
    database.use(shared, network.url)
    shared.vmrag("sync")
    assert network.count("GET", api) >= 3
    assert paid_texts(services) == []


# -- putting it there


@pytest.mark.parametrize(
    ("method", "ending"),
    [("POST", "/collections"), ("POST", "/add"), ("POST", "/get"), ("GET", "/count"), ("PUT", "")],
)
@pytest.mark.parametrize(
    "fault", [Fault(lost=True), Fault(unanswered=True), Fault(cut=1)], ids=["lost", "unanswered", "cut"]
)
@pytest.mark.sample(2)
def test_sync_recovers_from_one_lost_request_or_answer(paid, network, method, ending, fault):
    database = network.database
    hit: list[Request] = []

    def once(request: Request) -> Fault | None:
        if request.method == method and request.path.partition("?")[0].endswith(ending) and not hit:
            hit.append(request)
            return fault
        return None

    network.rule = once
    database.use(paid, network.url)
    result = paid.vmrag("sync", "--wait", env={"VMRAG_CHROMA_SHARE": "wait"}, code=None)
    if result.code:  # the last step is not repeated blindly
        assert method == "PUT"
        paid.vmrag("sync", "--wait", env={"VMRAG_CHROMA_SHARE": "wait"})
    assert hit
    assert len(database.sealed()) == 2
    assert [name for name in database.collections() if not contents.is_sealed_name(name)] == []
    assert "CHROMA_SERVER" not in paid.vmrag("doctor", "--json", env={"VMRAG_CHROMA_SHARE": "wait"}).out


@pytest.mark.parametrize("what", ["it fails", "vectors are others", "records are missing", "a text is another"])
def test_server_that_loses_data_gets_no_sealed_collection(paid, database, network, what):
    network.rule = FAULTS[what]
    database.use(paid, network.url)
    result = paid.vmrag("sync", "--wait", env={"VMRAG_CHROMA_SHARE": "wait"}, code=3)
    assert "the Chroma server" in result.err
    assert database.sealed() == []
    assert database.collections() == {}, "what was begun is gone"
    assert paid.ask("status", env={"VMRAG_CHROMA_SHARE": "wait"})["server"]["state"] == "failed"
    assert paid.vmrag("query", "rivers").code == 0


def start(project: Project) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [SCRIPT, "sync", "--wait"],
        cwd=project.top,
        env={**os.environ, "VMRAG_CHROMA_SHARE": "wait"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def test_next_client_takes_over_after_the_lease_of_a_killed_one(paid, database, network, tmp_path, monkeypatch):
    network.rule = answering("/add", Fault(slow=30))
    database.use(paid, network.url)
    killed = start(paid)
    deadline = time.monotonic() + 30
    while network.count("POST", "/add") == 0:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    network.rule = lambda _: None
    (collections,) = database.collections()
    assert collections.endswith(contents.BUILDING)
    monkeypatch.setattr("vmrag_link.sync.chroma_sharing.ELSEWHERE_SECONDS", 0.0)
    monkeypatch.setattr("vmrag_link.sync.chroma_sharing._POLL_SECONDS", 0.0)
    assert (
        "another client has been building"
        in paid.vmrag("sync", "--wait", env={"VMRAG_CHROMA_SHARE": "wait"}, code=3).err
    )
    late = time.time() + sharing.LEASE_SECONDS + 1
    monkeypatch.setattr(sharing.time, "time", lambda: late)
    share(paid)
    assert len(database.sealed()) == 2
    assert set(database.collections()) == set(database.sealed())


def test_two_concurrent_clients_upload_once(paid, database, network, tmp_path):
    other = another_machine(paid, tmp_path / "other")
    other.git("config", "vmrag.chroma.mode", "embedded")
    other.vmrag("sync")
    for process in (paid, other):
        database.use(process, network.url)
    network.rule = answering("/add", Fault(slow=0.3))
    both = [start(user) for user in (paid, other)]
    assert [process.wait(60) for process in both] == [0, 0]
    assert len(database.sealed()) == 2
    assert set(database.collections()) == set(database.sealed())
    assert network.count("POST", "/add") == 2, "one request a collection"


def test_client_that_lost_its_lease_takes_nothing_away_from_the_next(database):
    """It comes back after a long sleep: the collection that it filled has another name by then."""
    client = database.client()
    name = contents.collection_name("0" * 12, "1" * 32)
    slow = sharing.take_lease(client, name)
    assert sharing.take_lease(database.client(), name) is None
    assert client.update_collection(
        slow.collection, metadata={"vmrag_holder": "x", "vmrag_until": int(time.time()) - 1}
    )
    quick = sharing.take_lease(database.client(), name)
    slow._renewed = 0.0
    with pytest.raises(sharing.LeaseLost):
        slow.renew()
    client.add_records(quick.collection, [SharedRow("a", b"\0" * 8, "text", {"n": 1})])
    assert client.count_records(quick.collection) == 1


def test_overlong_lease_blocks_no_client(database):
    client = database.client()
    name = contents.collection_name("0" * 12, "1" * 32)
    client.create_collection(name + contents.BUILDING, {"vmrag_holder": "x", "vmrag_until": 2**40})
    assert sharing.take_lease(client, name)


def test_silent_server_is_contacted_once_per_command(database, monkeypatch):
    monkeypatch.setattr(endpoint, "PAUSES", (0.0, 0.0))
    client = database.client(f"http://127.0.0.1:{free_port()}", seconds=1)
    with pytest.raises(ChromaServerFailed):
        client.find_collection("vmrag-x")
    with pytest.raises(ChromaServerFailed, match="is not contacted for 30 s"):
        client.list_collections()


def test_list_of_collections_that_never_ends_is_given_up(database, network):
    client = database.client(network.url)
    result = {"id": client.create_collection("vmrag-x", {"a": 1}).id, "name": "vmrag-x"}
    network.rule = lambda request: Fault(rewrite=lambda _: [result] * 100) if "?limit=" in request.path else None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("vmrag_link.chroma_server.client.MAX_COLLECTIONS", 500)
        with pytest.raises(ChromaServerFailed, match="lists more than 500 collections"):
            client.list_collections()


def test_client_ignores_collection_configuration_of_the_server(database, network):
    """Chroma's own client would make the embedding function that it names."""
    hostile = {"hnsw": None, "embedding_function": {"type": "known", "name": "default", "config": {"__import__": "os"}}}
    client = database.client(network.url)
    client.create_collection("vmrag-x", {"a": 1})
    network.rule = lambda _: Fault(
        rewrite=lambda collection: collection | {"configuration_json": hostile, "schema": [[]]}
    )
    collection = client.find_collection("vmrag-x")
    assert msgspec.to_builtins(collection) == {"id": collection.id, "name": "vmrag-x", "metadata": {"a": 1}}
