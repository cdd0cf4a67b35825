"""Two people whose knowledge base is one database of a Dolt sql-server."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import dolt_server as servers
from tests.support.dolt_server import DoltServer
from tests.support.repos import isolate, make_repo
from tests.support.terminal import Project, new_project
from vmrag_link import hints
from vmrag_link.engines.dolt.engine import DoltEngine

dolt_server = servers.dolt_server


@pytest.fixture
def ada(tmp_path: Path, dolt_server: DoltServer, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A repository whose person has named the server in the repository's git configuration."""
    isolate(monkeypatch, tmp_path / "home")
    monkeypatch.setenv("VMRAG_DOLT_PASSWORD", dolt_server.password)
    project = new_project(tmp_path / "ada")
    name_server(project, dolt_server, servers.database_for(tmp_path))
    return project


def name_server(project: Project, server: DoltServer, database: str) -> None:
    project.git("config", "vmrag.dolt.server", server.address)
    project.git("config", "vmrag.dolt.database", database)


def test_commit_on_a_shared_database_is_visible_to_other_users(
    ada: Project, dolt_server: DoltServer, tmp_path: Path
) -> None:
    ada.vmrag("init", "--knowledge-base", "--no-sources", "--engine", "dolt")
    first = ada.record("first", faq="A kettle boils water.")
    assert ada.status()["kb"]["engine"] == "dolt"
    assert not (ada.shared / "kb" / ".dolt").exists()

    ada.git("clone", "-q", str(ada.top), str(tmp_path / "bob"))
    bob = Project(tmp_path / "bob")
    name_server(bob, dolt_server, servers.database_for(tmp_path))
    assert f"Uses the knowledge base on the server {dolt_server.address}" in bob.vmrag("clone").out
    assert bob.texts() == {"faq.md": "A kettle boils water."}
    assert bob.vmrag("clone", code=2).err.startswith("error: the knowledge base already exists.")

    bob.git("switch", "-q", "-c", "bob")
    second = bob.record("second", more="An engine needs copper.")
    ada.git("fetch", "-q", str(bob.top), "bob")
    ada.git("switch", "-q", "--detach", "FETCH_HEAD")
    assert ada.status()["kb"]["revision"] == second
    assert set(ada.texts()) == {"faq.md", "more.md"}
    ada.git("switch", "-q", "main")
    assert (ada.pinned, set(ada.texts())) == (first, {"faq.md"})


def test_uncommitted_documents_of_other_users_are_ignored(
    ada: Project, dolt_server: DoltServer, tmp_path: Path
) -> None:
    """Their branch has no entry here, as one whose code branch is gone."""
    ada.vmrag("init", "--knowledge-base", "--no-sources", "--engine", "dolt", "--no-hooks")
    ada.record("first", faq="A kettle boils water.")
    ada.git("clone", "-q", str(ada.top), str(tmp_path / "bob"))
    bob = Project(tmp_path / "bob")
    name_server(bob, dolt_server, servers.database_for(tmp_path))
    bob.vmrag("clone")
    bob.git("switch", "-q", "-c", "bob")
    bob.put("draft.md", "Bob still writes this.")
    assert not [reason for reason in ada.status()["reasons"] if "bob" in reason]
    ada.vmrag("merge", "bob", code=None)
    assert set(ada.texts()) == {"faq.md"}
    assert bob.marks()["draft.md"] == "added"


def test_database_that_is_used_is_joined_not_begun(ada: Project, dolt_server: DoltServer, tmp_path: Path) -> None:
    ada.vmrag("init", "--knowledge-base", "--no-sources", "--engine", "dolt", "--no-hooks")
    ada.record("first", faq="A kettle boils water.")
    other = Project(make_repo(tmp_path / "other").top)
    name_server(other, dolt_server, servers.database_for(tmp_path))
    refused = other.vmrag("init", "--knowledge-base", "--no-sources", "--engine", "dolt", code=2).err
    assert "has a knowledge base in the database" in refused
    assert "vmrag clone" in refused


def test_server_that_only_the_clone_names_is_not_spoken_to(
    ada: Project, dolt_server: DoltServer, tmp_path: Path
) -> None:
    ada.vmrag("init", "--knowledge-base", "--no-sources", "--engine", "dolt", "--no-hooks")
    ada.record("first", faq="A kettle boils water.")
    ada.write(".vmrag.yaml", f"dolt:\n  server: {dolt_server.address}\n  database: {servers.database_for(tmp_path)}\n")
    ada.git("add", "-A")
    ada.git("commit", "-q", "-m", "name the server")
    ada.git("config", "--remove-section", "vmrag.dolt")
    refused = ada.vmrag("list", code=2).err
    assert "no trusted setting" in refused
    assert "vmrag trust" in refused
    ada.vmrag("trust", "--yes")
    kept = ada.vmrag("list", code=2).err
    assert "VMRAG_DOLT_PASSWORD was not sent" in kept
    assert f"git config vmrag.dolt.server {dolt_server.address}" in kept
    ada.git("config", "vmrag.dolt.server", dolt_server.address)
    assert set(ada.texts()) == {"faq.md"}


def test_server_that_is_down_is_an_error_that_names_it(ada: Project) -> None:
    ada.vmrag("init", "--knowledge-base", "--no-sources", "--engine", "dolt", "--no-hooks")
    ada.git("config", "vmrag.dolt.server", "127.0.0.1:1")
    said = ada.vmrag("list", code=3).err
    assert "127.0.0.1:1" in said


def test_doctor_names_the_users_who_can_inspect_a_damaged_database(
    ada: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which damage is seen depends on the bytes that are hit: the contract's tests hit some."""
    ada.vmrag("init", "--knowledge-base", "--no-sources", "--engine", "dolt", "--no-hooks")
    ada.record("first", faq="A kettle boils water.")
    monkeypatch.setattr(DoltEngine, "find_damage", lambda _: "A checksum differs.")
    report = ada.ask("doctor", code=1)
    findings_by_code = {finding["code"]: finding for topic in report["topics"] for finding in topic["findings"]}
    fix = findings_by_code["KB_DAMAGED"]["fix"]
    assert hints.list_commands(fix) == ["dolt fsck"]
    assert fix.endswith("on the server, in the folder of the database")
