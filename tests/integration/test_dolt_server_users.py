"""A user of a Dolt server who has the rights that docs/sharing.md lists, and no others."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.dolt_server import DoltServer
from tests.support.repos import isolate
from tests.support.terminal import Project, new_project


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DoltServer]:
    made = DoltServer(tmp_path_factory.mktemp("users") / "databases")
    made.start()
    yield made
    made.stop()


@pytest.fixture
def database(server: DoltServer) -> str:
    """Create a database as the operator of the server does according to the docs.

    Its user has its name.
    """
    name = f"handbook_{secrets.token_hex(4)}"
    server.sql(
        f"CREATE DATABASE {name}",
        f"CREATE USER '{name}'@'%' IDENTIFIED BY 'secret'",
        f"GRANT ALL ON {name}.* TO '{name}'@'%'",
        f"GRANT EXECUTE ON PROCEDURE {name}.dolt_gc TO '{name}'@'%'",
    )
    return name


@pytest.fixture
def ada(tmp_path: Path, server: DoltServer, database: str, monkeypatch: pytest.MonkeyPatch) -> Project:
    isolate(monkeypatch, tmp_path / "home")
    monkeypatch.setenv("VMRAG_DOLT_PASSWORD", "secret")
    return named(new_project(tmp_path / "ada"), server, database)


def named(project: Project, server: DoltServer, database: str) -> Project:
    for name, value in {"server": server.address, "database": database, "user": database}.items():
        project.git("config", f"vmrag.dolt.{name}", value)
    return project


def test_documented_setup_suffices_for_the_first_user_and_all_others(
    ada: Project, server: DoltServer, database: str, tmp_path: Path
) -> None:
    ada.vmrag("init", "--knowledge-base", "--no-sources", "--engine", "dolt", "--no-hooks")
    ada.record("first", faq="A kettle boils water.")
    assert ada.status()["in_sync"]
    ada.git("clone", "-q", str(ada.top), str(tmp_path / "bob"))
    bob = named(Project(tmp_path / "bob"), server, database)
    bob.vmrag("clone")
    assert bob.texts() == {"faq.md": "A kettle boils water."}
    bob.vmrag("verify")
    bob.vmrag("doctor", code=None)
    bob.vmrag("gc", "--apply")
    assert server.sql(f"USE `{database}`", "SELECT active_branch()") == [("vmrag_root",)]
    server.restart()
    assert bob.texts() == {"faq.md": "A kettle boils water."}
    assert server.sql(f"USE `{database}`", "SELECT active_branch()") == [("vmrag_root",)]


def test_knowledge_base_is_moved_to_the_server_with_its_revisions(
    tmp_path: Path, server: DoltServer, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    isolate(monkeypatch, tmp_path / "home")
    monkeypatch.setenv("VMRAG_DOLT_PASSWORD", "secret")
    project = new_project(tmp_path / "ada")
    project.vmrag("init", "--knowledge-base", "--no-sources", "--no-hooks")
    project.record("first", faq="A kettle boils water.")
    named(project, server, database)
    project.vmrag("migrate", "--to", "dolt")
    assert project.texts() == {"faq.md": "A kettle boils water."}
    assert project.status()["in_sync"]


def test_missing_database_error_tells_unprivileged_users_to_request_it(
    ada: Project, server: DoltServer, database: str
) -> None:
    ada.git("config", "vmrag.dolt.database", f"{database}_other")
    refused = ada.vmrag(
        "init", "--knowledge-base", "--no-sources", "--engine", "dolt", "--no-hooks", "--json", code=3
    ).error
    assert f"{database}_other" in refused["message"]
    assert "CREATE DATABASE" in refused["hint"]
    server.sql(f"CREATE DATABASE `{database}_other`", f"GRANT ALL ON `{database}_other`.* TO '{database}'@'%'")
    ada.vmrag("init", "--knowledge-base", "--no-sources", "--engine", "dolt", "--no-hooks")
    ada.record("first", faq="A kettle boils water.")


def test_read_only_user_can_clone_and_query(ada: Project, server: DoltServer, database: str, tmp_path: Path) -> None:
    ada.vmrag("init", "--knowledge-base", "--no-sources", "--engine", "dolt", "--no-hooks")
    ada.record("first", faq="A kettle boils water.")
    reader = f"r{database[-8:]}"
    server.sql(f"CREATE USER '{reader}'@'%' IDENTIFIED BY 'secret'", f"GRANT SELECT ON {database}.* TO '{reader}'@'%'")
    ada.git("clone", "-q", str(ada.top), str(tmp_path / "bob"))
    bob = named(Project(tmp_path / "bob"), server, database)
    bob.git("config", "vmrag.dolt.user", reader)
    bob.vmrag("clone")
    assert bob.texts() == {"faq.md": "A kettle boils water."}
    assert bob.ask("query", "kettle")["results"]
    bob.vmrag("log")


def test_user_leaves_server_with_rights_from_hints(
    ada: Project, server: DoltServer, database: str, tmp_path: Path
) -> None:
    """Also what only other code branches pin is moved."""
    ada.vmrag("init", "--engine", "dolt", "--no-hooks")
    ada.record("first", faq="A kettle boils water.")
    ada.git("switch", "-q", "-c", "feature")
    ada.record("second", more="An engine needs copper.")
    ada.put("more.md", "An engine needs tin.")
    ada.vmrag("commit", "-m", "third")
    pinned = ada.git("show", "HEAD:.dolt-version")
    ada.git("commit", "-q", "-am", "third")
    ada.git("branch", "-q", "kept", "HEAD~1")
    ada.git("switch", "-q", "main")
    copy = f"file://{tmp_path}/copy"
    ada.vmrag("remote", "--trust", copy)
    refused = ada.vmrag("migrate", "--to", "doltlite", "--json", code=3).error
    assert "vmrag push --all REMOTE" in refused["hint"]
    for _ in range(2):
        refused = ada.vmrag("push", "--all", copy, "--json", code=3).error
        right = re.search(r"GRANT EXECUTE ON PROCEDURE \S+ TO [^\s']+", refused["hint"])
        assert right
        server.sql(right[0])
    ada.vmrag("push", "--all", copy)
    ada.git("clone", "-q", str(ada.top), str(tmp_path / "bob"))
    bob = Project(tmp_path / "bob")
    bob.git("fetch", "-q", "origin", "kept")
    bob.vmrag("remote", "--trust", copy)
    bob.vmrag("clone", copy)
    bob.vmrag("migrate", "--to", "doltlite")
    bob.git("commit", "-q", "-am", "moved")
    assert pinned
    for branch, text in {"kept": "An engine needs copper.", "feature": "An engine needs tin."}.items():
        bob.git("switch", "-q", branch)
        assert bob.texts()["more.md"] == text
