"""The limits of Chroma Cloud, for which the tests have no account.

The fake is a real `chroma run` behind a proxy that rejects requests which the cloud rejects
according to Chroma's documentation. It shows that requests stay within these numbers, but not how
the cloud itself answers.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support import chroma_server, paid, terminal
from tests.support.chroma_server import Fault, Network, Request
from tests.support.mcp import Tools
from tests.support.paid import another_machine, paid_texts, share
from vmrag_link import trust as trusted
from vmrag_link.chroma_server.client import ChromaClient
from vmrag_link.chroma_server.server import CLOUD, ServerLimits
from vmrag_link.settings import ChromaSettings

pytestmark = pytest.mark.hooks("off")

template, project = terminal.template, terminal.project
chroma_run, database, network = chroma_server.chroma_run, chroma_server.database, chroma_server.network
services, paid_template, paid = paid.services, paid.paid_template, paid.paid

RECORDS, NAME_BYTES, TEXT_BYTES, PREDICATES, AT_ONCE = 300, 128, 16_384, 8, 10


def refuse(why: str) -> Fault:
    return Fault(status=422, said=json.dumps({"error": "QuotaExceeded", "message": why}).encode())


def predicates(where: Any) -> int:
    if isinstance(where, list):
        return sum(map(predicates, where))
    return sum(1 if key[0] != "$" else predicates(value) for key, value in (where or {}).items())


def cloud(network: Network) -> None:
    """From here on the network refuses as the cloud does."""

    def rule(request: Request) -> Fault | None:
        body = json.loads(request.body) if request.body else {}
        ids, name = body.get("ids") or [], body.get("name") or body.get("new_name") or ""
        if request.headers.get("X-Chroma-Token") != "ck-1":
            return Fault(status=401, said=b"{}")
        flaws = {
            "more than 300 records": len(ids) > RECORDS or body.get("limit", 0) > RECORDS,
            "a page without a limit": request.is_("POST", "/get") and not ids and not body.get("limit"),
            "a name of more than 128 bytes": any(len(identifier.encode()) > NAME_BYTES for identifier in [*ids, name]),
            "a text of more than 16,384 bytes": any(
                len((document or "").encode()) > TEXT_BYTES for document in body.get("documents") or []
            ),
            "more than 8 predicates": predicates(body.get("where")) > PREDICATES,
            "more than 10 at once": network._now > AT_ONCE,
        }
        return next((refuse(why) for why, wrong in flaws.items() if wrong), None)

    network.rule = rule


def test_large_index_is_uploaded_to_the_cloud_and_downloaded(paid, network, services, tmp_path, monkeypatch):
    database = network.database
    many = {f"{'é' * 100}-{number}": f"Number {number} of many." for number in range(310)}
    tools = Tools(paid.top)
    tools("chroma_add_documents", collection_name="api", documents=[*many.values()], ids=[*many])
    paid.git("config", "vmrag.chunking.size", "40000")
    tools("chroma_create_collection", collection_name="big", embedding_function="hash")
    tools(
        "chroma_add_documents", collection_name="big", documents=["long words " * 2_000, "short"], ids=["big", "small"]
    )
    paid.vmrag("commit", "-m", "many")
    paid.git("commit", "-q", "-a", "-m", "many")

    cloud(network)
    monkeypatch.setenv("CHROMA_API_KEY", "ck-1")
    database.use(paid, network.url, mode="cloud")
    share(paid)
    collections = database.collections()
    assert {collections[name]["metadata"]["collection"] for name in database.sealed()} == {"api", "big", "handbook"}
    assert network.most_at_once == 1
    big = next(name for name in database.sealed() if collections[name]["metadata"]["collection"] == "big")
    texts = {record["metadata"]["source_id"]: record["text"] for record in database.records(big).values()}
    assert texts == {"big": None, "small": "short"}, "larger texts stay in the knowledge base"

    services.requests.clear()
    other = another_machine(paid, tmp_path / "other")
    other.vmrag("sync")
    assert paid_texts(services) == []
    assert other.answers() == paid.answers()
    assert "CHROMA_SERVER" not in other.vmrag("doctor", "--json", env={"VMRAG_CHROMA_SHARE": "wait"}, code=None).out


def test_fake_cloud_rejects_requests_above_the_limits(database, network):
    cloud(network)
    client = database.client(network.url, headers={"X-Chroma-Token": "ck-1"})
    with pytest.raises(Exception, match="a name of more than 128 bytes"):
        client.create_collection("x" * 129, {"a": 1})
    made = client.create_collection("xyz", {"a": 1})
    with pytest.raises(Exception, match="more than 300 records"):
        client.read_records(made, {f"{number:04}": 1 for number in range(301)}, dimensions=2)
    with pytest.raises(Exception, match="answered 401"):
        database.client(network.url).find_collection("xyz")
    assert predicates({"$and": [{"a": 1}, {"$or": [{"b": {"$gt": 1}}, {"c": 2}]}]}) == 3


def test_private_server_reports_its_own_limits(database, network):
    assert database.client(network.url).limits == ServerLimits(1000)
    network.rule = lambda _: Fault(status=200, said=b'{"max_batch_size": 7}')
    assert database.client(network.url).limits == ServerLimits(7)
    network.requests.clear()
    mine = database.client(network.url)
    in_the_cloud = ChromaClient(type(mine.address)("cloud", network.url, "t" * 3, "d" * 3, 5.0))
    assert in_the_cloud.limits == CLOUD
    assert network.requests == []


def test_cloud_key_goes_to_default_address_or_trusted_https_address(project, monkeypatch):
    from vmrag_link.config import LoadedSettings
    from vmrag_link.settings import Config

    monkeypatch.setenv("CHROMA_API_KEY", "ck-1")

    def headers(url: str = "", *, is_trusted: bool = False) -> Any:
        config = Config(chroma=ChromaSettings(mode="cloud", url=url))
        server = trusted.choose_server(LoadedSettings(config, [], frozenset({"chroma.url"} if is_trusted else ())))
        assert server is not None
        return server.headers

    assert headers() == {"X-Chroma-Token": "ck-1"}
    assert headers("https://elsewhere.example.org") == {}
    assert headers("https://elsewhere.example.org", is_trusted=True) == {"X-Chroma-Token": "ck-1"}
    assert headers("http://elsewhere.example.org", is_trusted=True) == {}
