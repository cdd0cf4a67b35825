"""Without chromadb everything except its store works, and commands for a store name the extra."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import chroma_server, paid, terminal
from tests.support.chroma import needs_chroma
from tests.support.mcp import Tools
from tests.support.paid import another_machine, paid_texts
from tests.support.terminal import Project
from vmrag_link.chroma import bindings
from vmrag_link.sync.chroma_state import ChromaStores

pytestmark = pytest.mark.hooks("off")

template = terminal.template
chroma_run, database = chroma_server.chroma_run, chroma_server.database
services, paid_template, paid = paid.services, paid.paid_template, paid.paid

MISSING = "Chroma's store needs chromadb, which the extra 'chroma' installs."
INSTALL = "run 'pip install \"vmrag-link[chroma]\"' to install it"


@pytest.fixture
def hide(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Lets this process, in which commands run, find no chromadb from here on; then none may be
    started besides.
    """

    def start(_: ChromaStores) -> int:
        pytest.fail("a process was started, which can make no store")

    def hidden() -> None:
        for name in ("chromadb", "chromadb_rust_bindings"):
            monkeypatch.setitem(sys.modules, name, None)
        monkeypatch.setattr(ChromaStores, "start_builder", start)

    return hidden


@pytest.fixture
def project(template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """With the setting's own default."""
    made = terminal.copied(template, tmp_path, monkeypatch)
    monkeypatch.delenv("VMRAG_INDEX_CHROMA")
    return made


@pytest.fixture
def without(project: Project, hide: Callable[[], None]) -> Project:
    hide()
    return project


def refused(project: Project, *command: str) -> None:
    error = project.vmrag(*command, "--json", code=2).error
    assert (error["code"], error["message"], error["hint"]) == ("INDEX_EXTRA_MISSING", MISSING, INSTALL)
    assert error["details"]["extra"] == "chroma"


def test_loop_works_and_leaves_nothing_of_chroma(without):
    without.record("more", zebra="A note about zebras.")
    assert without.ask("query", "zebras")["results"][0]["doc_id"] == "zebra.md"
    without.git("switch", "-q", "feature")
    synced = without.ask("sync")
    assert (synced["state"], synced["chroma"]["state"]) == ("pinned", "off")
    without.put("uncommitted.md", "Written nowhere else.")
    assert without.ask("query", "written nowhere")["results"]
    status = without.ask("status")
    assert (status["in_sync"], status["chroma"]["state"]) == (True, "off")
    assert "chroma" not in without.vmrag("status").out
    tools = Tools(without.top)
    assert tools("chroma_query_documents", collection_name="handbook", query_texts=["rest"])["results"]
    without.vmrag("gc", "--apply")
    without.vmrag("fingerprint", "--verify")
    assert not (without.shared / "chroma").exists()
    assert without.consistent()


def test_commands_for_a_store_name_the_missing_extra(without):
    refused(without, "path", "chroma")
    refused(without, "sync", "--wait")
    without.put("uncommitted.md", "Written nowhere else.")
    refused(without, "path", "chroma", "--working")


@pytest.mark.parametrize("setting", ["follow", "wait"])
def test_configured_store_fails_and_the_index_still_answers(without, setting):
    without.git("config", "vmrag.index.chroma", setting)
    without.git("switch", "-q", "feature")
    refused(without, "sync")
    status = without.ask("status")
    assert (status["in_sync"], status["chroma"]["state"]) == (True, "failed")
    assert (status["chroma"]["error"], status["chroma"]["hint"]) == (
        MISSING,
        f"{INSTALL}, then 'vmrag sync --wait' to build it again",
    )
    assert without.ask("query", "rest")["kb"]["in_sync"]
    assert "extra 'chroma'" in without.vmrag("status").out


def test_untrusted_settings_make_no_sync_fail(without):
    without.write(".vmrag.yaml", "embedding:\n  model: hash\nindex:\n  chroma: wait\n")
    without.vmrag("sync")


@needs_chroma
@pytest.mark.parametrize("setting", ["auto", "follow"])
def test_existing_store_is_kept_without_chromadb(project, hide, monkeypatch, setting):
    monkeypatch.setattr(ChromaStores, "start_builder", lambda _: 1)
    before = project.ask("path", "chroma")["chroma"]
    hide()
    project.git("config", "vmrag.index.chroma", setting)
    project.vmrag("sync")
    project.vmrag("gc", "--apply")
    assert project.ask("status")["chroma"]["state"] == ("off" if setting == "auto" else "ready")
    if setting == "follow":  # no process has to make it
        assert project.ask("path", "chroma")["chroma"] == before
    assert (Path(before) / "seal.json").exists()
    codes = {
        finding["code"]
        for topic in project.vmrag("doctor", "--json", code=None).json["topics"]
        for finding in topic["findings"]
    }
    assert not {code for code in codes if code.startswith("CHROMA")}


@needs_chroma
@pytest.mark.parametrize("setting", ["auto", "follow"])
def test_store_follows_automatically_once_the_extra_is_installed(project, monkeypatch, setting):
    started: list[str] = []
    monkeypatch.setattr(
        ChromaStores, "start_builder", lambda chroma: started.append(chroma.list_lacking()[0].revision) or 1
    )
    project.git("config", "vmrag.index.chroma", setting)
    with monkeypatch.context() as gone:
        gone.setitem(sys.modules, "chromadb", None)
        project.git("switch", "-q", "feature")
        project.vmrag("query", "rest")
        assert started == []
    project.vmrag("query", "rest")
    assert started == [project.pinned]


def test_another_version_of_chromadb_disables_the_store(project, hide, monkeypatch):
    hide()
    other = bindings.IndexExtraMissing(
        "Chroma's store needs another chromadb.", hint="run 'pip install \"chromadb>=1.5.4,<1.6\"' to install it"
    )
    monkeypatch.setattr("vmrag_link.chroma.bindings.find_unsupported", lambda: other)
    assert project.ask("sync")["chroma"]["state"] == "off"
    error = project.vmrag("path", "chroma", "--json", code=2).error
    assert error["hint"] == "run 'pip install \"chromadb>=1.5.4,<1.6\"' to install it"


@needs_chroma
def test_chroma_server_is_used_without_chromadb(paid, database, services, tmp_path, hide):
    """The server runs elsewhere; its protocol is spoken here."""
    hide()
    database.use(paid, share="wait")
    assert "The index is on the Chroma server" in paid.vmrag("sync").out
    assert len(database.sealed()) == 2
    other = another_machine(paid, tmp_path / "other")
    other.git("config", "vmrag.index.chroma", "auto")
    said = other.vmrag("sync", "--wait")
    assert " vectors of 'api' from the Chroma server" in said.err
    assert paid_texts(services) == []
    assert other.answers() == paid.answers()
