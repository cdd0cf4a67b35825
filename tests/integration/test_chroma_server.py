"""A team's Chroma server: uploads, downloads, and which servers may be contacted.

The server is a real `chroma run`; the embedding service simulates a paid one.
"""

from __future__ import annotations

import contextlib
import json
import time
from pathlib import Path

import pytest

from tests.support import chroma_server, paid, people, terminal
from tests.support.chroma import needs_chroma
from tests.support.chroma_server import Network
from tests.support.mcp import Tools
from tests.support.paid import TEXTS, another_machine, paid_texts, remove_vouchers, share
from tests.support.services import KEY
from tests.support.terminal import opened
from vmrag_link.chroma.bindings import open_store
from vmrag_link.engines.own_branches import VECTORS_BRANCH
from vmrag_link.models import content_hash

pytestmark = pytest.mark.hooks("off")

template, project = terminal.template, terminal.project
chroma_run, database, network = chroma_server.chroma_run, chroma_server.database, chroma_server.network
services, paid_template, paid = paid.services, paid.paid_template, paid.paid
shared, world = people.shared, people.world


# -- what is put there


def test_sealed_index_is_uploaded_once_under_the_name_of_its_contents(paid, database, network):
    database.use(paid, network.url, share="wait")
    said = paid.vmrag("sync").out
    assert f"The index is on the Chroma server: 127.0.0.1:{network.port}, database {database.name}" in said
    names = database.sealed()
    collections = database.collections()
    assert {collections[name]["metadata"]["collection"] for name in names} == {"api", "handbook"}
    assert set(collections) == set(names), "nothing is left of building them"
    api = next(name for name in names if collections[name]["metadata"]["collection"] == "api")
    records = database.records(api)
    assert collections[api]["metadata"]["vmrag_count"] == len(records)
    assert all(len(one) == 32 for one in records)
    assert {record["metadata"]["source_id"] for record in records.values()} == set(TEXTS)
    assert TEXTS["river"] in {record["text"] for record in records.values()}

    network.requests.clear()
    paid.vmrag("sync", "--wait")
    assert network.count("POST", "/add") == network.count("POST", "/collections") == 0


def test_share_uploads_only_changed_collections(paid, database, network):
    share(paid)
    before = database.sealed()
    paid.record("more", more="Something new.")
    database.use(paid, network.url)
    share(paid)
    assert len(database.sealed()) == len(before) + 1
    assert network.count("POST", "/add") == 1, "of the collection that changed"


def test_texts_stay_off_the_server_if_configured(paid, database, tmp_path, services):
    paid.git("config", "vmrag.index.store-documents", "false")
    share(paid)
    assert {record["text"] for name in database.sealed() for record in database.records(name).values()} == {None}
    other = another_machine(paid, tmp_path / "other")
    other.vmrag("sync")
    assert paid_texts(services) == []


@needs_chroma
def test_files_reach_the_local_store_but_no_server(paid, database, network, monkeypatch):
    settings = (paid.top / ".vmrag.yaml").read_text()
    paid.write(".vmrag.yaml", f'{settings}\nsources:\n  - collection: pages\n    paths: ["pages/"]\n')
    paid.write("pages/secret.md", "# Secret\n\nNo server reads about pangolins.\n")
    paid.git("add", "-A")
    paid.git("commit", "-q", "-m", "pages")
    monkeypatch.setenv("VMRAG_INDEX_CHROMA", "wait")
    paid.git("config", "vmrag.chroma.sources", "all")
    database.use(paid, network.url, share="wait")
    paid.vmrag("sync")
    with contextlib.closing(open_store(Path(paid.ask("path", "chroma")["chroma"]))) as store:
        assert "pages" in store.list_collection_ids()
    assert len(database.sealed()) == 2
    records = [row for name in database.sealed() for row in database.records(name).values()]
    assert {"pages"}.isdisjoint(row["metadata"]["collection"] for row in records)
    assert not [request for request in network.requests if b"pangolins" in request.body]


def test_background_process_uploads_the_index(paid, database):
    database.use(paid, share="follow")
    paid.vmrag("sync")
    deadline = time.monotonic() + 30
    while paid.ask("status")["server"]["state"] != "ready":
        assert time.monotonic() < deadline, paid.ask("status")
        time.sleep(0.1)
    assert len(database.sealed()) == 2
    assert ", ready (127.0.0.1:" in paid.vmrag("status").out


# -- who gets it


def test_download_avoids_service_and_gives_equal_answers(paid, database, services, tmp_path):
    share(paid)
    other = another_machine(paid, tmp_path / "other")
    said = other.vmrag("sync")
    assert "(4 embedded)" in said.out, "of the local model"
    assert f" vectors of 'api' from the Chroma server ({database.url[7:]}, database {database.name})." in said.err
    assert paid_texts(services) == []
    alone = another_machine(paid, tmp_path / "alone")
    alone.git("config", "vmrag.chroma.mode", "embedded")
    alone.vmrag("sync")
    assert len(paid_texts(services)) > len(TEXTS)
    assert other.answers() == alone.answers() == paid.answers()
    assert other.vmrag("fingerprint", "--verify").out == paid.vmrag("fingerprint", "--verify").out


def test_only_records_that_are_lacking_are_downloaded(paid, database, services, network, tmp_path):
    share(paid)
    other = another_machine(paid, tmp_path / "other")
    other.vmrag("sync")
    tools = Tools(paid.top)
    tools("chroma_add_documents", collection_name="api", documents=["the sea is salty"], ids=["salt"])
    paid.vmrag("commit", "-m", "salt")
    paid.git("commit", "-q", "-a", "-m", "salt")
    share(paid)
    services.requests.clear()
    later = another_machine(paid, tmp_path / "later")
    (other.shared / "embeddings.sqlite").rename(later.shared / "embeddings.sqlite")
    database.use(later, network.url)
    later.vmrag("sync")
    assert [len(request.json["ids"]) for request in network.requests if request.is_("POST", "/get")] == [1]
    assert paid_texts(services) == []
    assert later.answers() == paid.answers()


def test_uncommitted_documents_stay_local_and_are_in_the_answer(paid, database, services, tmp_path):
    share(paid)
    other = another_machine(paid, tmp_path / "other")
    other.vmrag("sync")
    before = database.sealed()
    tools = Tools(other.top)
    tools("chroma_add_documents", collection_name="api", documents=["whales sing in the deep sea"], ids=["whale"])
    assert paid_texts(services) == ["whales sing in the deep sea"]
    answer = tools("chroma_query_documents", collection_name="api", query_texts=["whales sing"], n_results=2)
    assert answer["ids"][0][0].startswith("whale")
    assert len(answer["ids"][0]) == 2
    share(other)
    assert database.sealed() == before, "what no revision holds is nobody else's"


def test_server_is_not_contacted_without_a_voucher(paid, database, services, network, tmp_path):
    share(paid)
    remove_vouchers(paid)
    other = another_machine(paid, tmp_path / "other")
    database.use(other, network.url)
    other.vmrag("sync")
    assert network.requests == []
    assert len(paid_texts(services)) > len(TEXTS)


def test_locally_computable_vectors_are_never_requested(project, database, network):
    database.use(project, network.url)
    project.forget_indexes()
    (project.shared / "embeddings.sqlite").unlink()
    project.vmrag("sync", "--rebuild")
    assert network.requests == []


def test_vouchers_are_pushed_and_a_colleague_downloads_paid_vectors(world, database, services, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    ada = world.ada

    def joins(user) -> None:
        user.git("config", "vmrag.embedding.openai-url", services.base("openai"))
        user.git("config", "vmrag.trustedService", "openai")
        database.use(user)

    def publishes(**texts: str) -> None:
        with ada._here():
            tools = Tools(ada.top)
            if "river" in texts:
                tools("chroma_create_collection", collection_name="api", embedding_function="openai")
            tools("chroma_add_documents", collection_name="api", documents=[*texts.values()], ids=[*texts])
        ada.vmrag("commit", "-m", "api")
        ada.git("commit", "-q", "-a", "-m", "api")
        ada.git("push", "-q")
        ada.vmrag("push")
        share(ada)

    joins(ada)
    publishes(**TEXTS)
    services.requests.clear()
    bo = world.join("bo")
    joins(bo)
    bo.vmrag("sync")
    assert paid_texts(services) == []
    assert bo.answers() == ada.answers()

    services.requests.clear()
    publishes(salt="the sea is salty")
    assert [text for text in paid_texts(services) if text == "the sea is salty"] == ["the sea is salty"]
    services.requests.clear()
    bo.git("pull", "-q")
    bo.vmrag("sync")
    assert paid_texts(services) == []
    assert bo.answers() == ada.answers()
    branches = bo.vmrag("branch").out
    assert VECTORS_BRANCH not in branches, "nobody sees it"


def test_two_people_vouch_and_both_vouchers_arrive(world, database, services, monkeypatch):
    """The second one's push finds the first one's there."""
    from vmrag_link.sync import vouchers

    ada = world.ada
    bo = world.join("bo")
    for user, contents in ((ada, "a" * 32), (bo, "b" * 32)):
        database.use(user)
        user.vmrag("sync")
        with user._here(), opened(user) as ws:
            vouchers.vouch_digests(ws.engine, {contents: content_hash(contents)}, timeout=5)
        user.write_document(f"{contents[0]}.md", f"By {contents[0]}.")
        if user is bo:
            bo.git("pull", "-q", "--rebase", check=False)
        user.git("push", "-q", check=False)
        user.vmrag("push", "--force", code=None)  # the second one's pin is in conflict
    cy = world.join("cy")
    cy.vmrag("sync")
    with cy._here(), opened(cy) as ws:
        assert vouchers.read_digests(ws.engine, "a" * 32) == {content_hash("a" * 32)}
        assert vouchers.read_digests(ws.engine, "b" * 32) == {content_hash("b" * 32)}
        assert vouchers.read_digests(ws.engine, "c" * 32) == set()


# -- contacted servers


STRANGE = "embedding:\n  model: hash\nchroma:\n  mode: http\n  url: {url}\n  database: {database}\n  share: wait\n"


def test_untrusted_settings_send_nothing_before_an_agreement(project, database, network):
    project.write(".vmrag.yaml", STRANGE.format(url=network.url, database=database.name))
    project.vmrag("sync", "--rebuild")
    project.vmrag("query", "setup")
    assert "chroma.mode" in project.vmrag("status").out
    project.vmrag("doctor", code=None)
    assert network.requests == []
    project.vmrag("trust", "--yes")
    project.vmrag("sync")
    assert len(database.sealed()) == 1


def test_untrusted_settings_cannot_replace_the_trusted_server(project, database, network):
    project.write(".vmrag.yaml", STRANGE.format(url=database.url, database=database.name))
    project.vmrag("trust", "--yes")
    project.write(".vmrag.yaml", STRANGE.format(url=network.url, database=database.name))
    project.vmrag("sync", "--wait")
    assert network.requests == []


def keys(network: Network) -> set[tuple[str | None, str | None]]:
    return {
        (request.headers.get("X-Chroma-Token"), request.headers.get("Authorization")) for request in network.requests
    }


def test_environment_key_is_sent_only_to_addresses_of_this_machine(project, database, network):
    given = {"CHROMA_API_KEY": "ck-secret", "CHROMA_CLIENT_AUTH_CREDENTIALS": "ada:pw"}
    project.write(".vmrag.yaml", STRANGE.format(url=network.url, database=database.name))
    project.vmrag("trust", "--yes")
    project.vmrag("sync", env=given)
    assert keys(network) == {(None, None)}
    network.requests.clear()
    database.use(project, network.url)
    project.vmrag("sync", "--wait", env=given | {"VMRAG_CHROMA_SHARE": "wait"})
    assert keys(network) == {("ck-secret", "Basic YWRhOnB3")}
    assert "ck-secret" not in project.vmrag("status", "--json", env=given).out


def test_key_is_never_sent_unencrypted(project, database):
    database.use(project, "http://chroma.example.org:8000")
    with opened(project) as ws, pytest.MonkeyPatch.context() as patch:
        patch.setenv("CHROMA_API_KEY", "ck-secret")
        assert ws.chroma.server is not None
        assert (ws.chroma.server.headers, ws.chroma.server.secrets) == ({}, ())
        project.git("config", "vmrag.chroma.url", "https://chroma.example.org")
        ws.reload_settings()
        assert ws.chroma.server.headers == {"X-Chroma-Token": "ck-secret"}


def test_invalid_api_key_is_rejected_and_not_printed(project, database):
    database.use(project)
    env = {"CHROMA_API_KEY": "ck-se\x01cret", "VMRAG_CHROMA_SHARE": "wait"}
    result = project.vmrag("sync", "--wait", env=env, code=3)
    assert "value of CHROMA_API_KEY is not a key" in result.err
    assert "cret" not in result.err
    assert project.vmrag("query", "setup", env=env).code == 0


def test_no_services_setting_includes_the_chroma_server(paid, database, network):
    database.use(paid, network.url, share="wait")
    paid.vmrag("sync", env={"VMRAG_NO_SERVICES": "1"})
    assert network.requests == []


# -- status


def test_status_explains_a_missing_upload_and_waiting_retries(paid, database, network):
    network.rule = lambda _: chroma_server.Fault(status=403, said=b"{}")
    database.use(paid, network.url, share="wait")
    result = paid.vmrag("sync", code=3)
    assert f"the Chroma server (127.0.0.1:{network.port}, database {database.name}) answered 403" in result.err
    state = paid.ask("status")
    assert (state["in_sync"], state["server"]["state"]) == (True, "failed"), "answers do not depend on it"
    assert paid.vmrag("query", "rivers").code == 0
    network.rule = lambda _: None
    paid.vmrag("sync", "--wait")
    assert paid.ask("status")["server"]["state"] == "ready"
    assert "CHROMA_SERVER" not in paid.vmrag("doctor", "--json").out


def test_missing_database_is_reported_and_not_treated_as_empty(paid, database):
    database.use(paid, share="wait")
    paid.git("config", "vmrag.chroma.database", "another")
    result = paid.vmrag("sync", code=3)
    assert "has no database 'another' of tenant 'default_tenant'" in result.err
    assert paid.vmrag("gc", "--server", code=3).err.count("has no database 'another'") == 1


@pytest.mark.parametrize("what", ["text", "vector", "record", "collection"])
@pytest.mark.sample(2)
def test_doctor_finds_and_repairs_foreign_changes_on_the_server(paid, database, what):
    share(paid)
    name = next(
        sealed_name
        for sealed_name in database.sealed()
        if database.collections()[sealed_name]["metadata"]["collection"] == "api"
    )
    before = database.records(name)
    one = next(iter(before))
    if what == "text":
        database.update(name, ids=[one], documents=["lies"])
    elif what == "vector":
        database.update(name, ids=[one], embeddings=[[0.5] * 256])
    elif what == "record":
        database.remove(name, one)
    else:
        database.drop(name)
    env = {"VMRAG_CHROMA_SHARE": "wait"}
    topics = json.loads(paid.vmrag("doctor", "--json", env=env, code=None).out)["topics"]
    codes = [finding["code"] for topic in topics for finding in topic["findings"] if topic["name"] == "Chroma server"]
    assert set(codes) == {chroma_server.LACKS if what == "collection" else chroma_server.CHANGED}
    paid.vmrag("doctor", "--fix", env=env, code=None)
    assert {key: (record["vector"], record["text"]) for key, record in database.records(name).items()} == {
        key: (passage["vector"], passage["text"]) for key, passage in before.items()
    }
    assert "CHROMA_SERVER" not in paid.vmrag("doctor", "--json", env=env, code=None).out


# -- unused collections


def test_gc_drops_only_unreachable_collections_of_its_repository(paid, database):
    share(paid)
    kept = database.sealed()
    theirs = f"vmrag-{'0' * 12}-{'1' * 32}"
    mine = kept[0].rpartition("-")[0]
    gone, young, dead = f"{mine}-{'2' * 32}", f"{mine}-{'3' * 32}", f"{mine}-{'4' * 32}-xabcdef"
    building, abandoned = f"{mine}-{'5' * 32}-b", f"{mine}-{'6' * 32}-b"
    client = database.client()
    old = {"collection": "old", "vmrag_count": 0, "vmrag_records": "", "vmrag_made": 1_600_000_000, "vmrag_format": 1}
    for name, metadata in (
        (theirs, old),
        ("somebody-elses", {"a": 1}),
        (gone, old),
        (young, old | {"vmrag_made": int(time.time())}),
        (dead, {"a": 1}),
        (building, {"vmrag_holder": "x", "vmrag_until": int(time.time()) + 60}),
        (abandoned, {"vmrag_holder": "x", "vmrag_until": int(time.time()) - 60}),
    ):
        client.create_collection(name, metadata)
    before = set(database.collections())
    said = paid.vmrag("gc", "--server").out
    assert f"Would delete {gone} (old, 0 records)." in said
    assert "hint: run 'vmrag gc --server --apply'" in said
    assert set(database.collections()) == before
    paid.vmrag("gc", "--server", "--apply")
    assert set(database.collections()) == before - {gone, dead, abandoned}
    paid.vmrag("gc", "--server", "--days", "0", "--apply")
    assert set(database.collections()) == {*kept, theirs, "somebody-elses", building}


def test_gc_keeps_collections_of_old_pins_until_git_forgets_them(paid, database):
    share(paid)
    before = database.sealed()
    paid.record("more", more="Something new.")
    share(paid)
    paid.vmrag("gc", "--server", "--days", "0", "--apply")
    assert set(database.sealed()) > set(before)
    lost = set(database.sealed()) - set(before)
    paid.git("reset", "-q", "--hard", "HEAD~1")
    paid.vmrag("sync")
    paid.vmrag("gc", "--server", "--days", "0", "--apply")
    assert set(database.sealed()) >= lost, "git can still check it out"
    paid.git("reflog", "expire", "--expire=now", "--all")
    paid.git("update-ref", "-d", "ORIG_HEAD")
    paid.vmrag("gc", "--server", "--days", "0", "--apply")
    assert set(database.sealed()) & lost == set()
    assert set(database.sealed()) >= set(before)


def test_gc_drops_nothing_while_a_pinned_revision_is_missing(paid, database):
    share(paid)
    paid.write(".dolt-version", (paid.top / ".dolt-version").read_text().replace(paid.pinned, "f" * 40))
    paid.git("commit", "-q", "-a", "-m", "pins what is nowhere")
    paid.git("reset", "-q", "--hard", "HEAD~1")
    result = paid.vmrag("gc", "--server", "--apply", code=3)
    assert "Nothing was deleted" in result.err
    assert len(database.sealed()) == 2


def test_gc_of_a_server_wants_one_in_the_settings(project):
    assert project.vmrag("gc", "--server", "--json", code=2).error["code"] == "INVALID_PARAMETER"
    assert project.vmrag("gc", "--server", "--remote", code=2).code == 2
