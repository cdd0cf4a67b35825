"""docs/sharing.md: the file that starts both servers, and backups from which a team goes on."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.support import chroma_server, paid, terminal
from tests.support.chroma_server import ChromaServer, Database
from tests.support.dolt_server import DoltServer
from tests.support.paid import another_machine, paid_texts, share
from tests.support.repos import isolate
from tests.support.terminal import Project, new_project

DOCS = Path(__file__).parents[2] / "docs"
COMPOSE = DOCS / "compose.yaml"

chroma_run, database, network = chroma_server.chroma_run, chroma_server.database, chroma_server.network
services, paid_template, paid_project = paid.services, paid.paid_template, paid.paid
template = terminal.template


def test_compose_file_is_one_and_opens_nothing_to_others() -> None:
    check = [Path(sys.executable).with_name("check-jsonschema"), "--builtin-schema", "vendor.compose-spec", COMPOSE]
    result = subprocess.run(check, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout
    services = yaml.safe_load(COMPOSE.read_text())["services"]
    for service in services.values():
        assert re.fullmatch(r"[a-z]+/[a-z-]+:\d+\.\d+\.\d+", service["image"]), "a version, not whatever is the latest"
        assert all(port.startswith("127.0.0.1:") for port in service["ports"])
        assert service["volumes"], "what it holds outlives the container"
    page = (DOCS / "sharing.md").read_text()
    assert all(service["image"].rpartition(":")[2] in page for service in services.values())


def test_team_continues_after_a_restored_backup_of_the_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    isolate(monkeypatch, tmp_path / "home")
    server = DoltServer(tmp_path / "databases")
    server.start()
    try:
        monkeypatch.setenv("VMRAG_DOLT_PASSWORD", server.password)
        ada = new_project(tmp_path / "ada")
        ada.git("config", "vmrag.dolt.server", server.address)
        ada.git("config", "vmrag.dolt.database", "handbook")
        ada.vmrag("init", "--knowledge-base", "--no-sources", "--engine", "dolt", "--no-hooks")
        kept = ada.record("kept", faq="A kettle boils water.")
        backup = f"file://{tmp_path / 'backup'}"
        server.sql("USE handbook", f"CALL dolt_backup('sync-url', '{backup}')")
        lost = ada.record("lost", more="An engine needs copper.")

        server.stop()
        shutil.rmtree(server.folder)
        server.start()
        server.sql(f"CALL dolt_backup('restore', '{backup}', 'handbook')")
        ada.git("switch", "-q", "--detach", "HEAD~")
        ada.vmrag("sync")
        assert (ada.pinned, ada.texts()) == (kept, {"faq.md": "A kettle boils water."})
        ada.git("switch", "-q", "main")
        assert ada.vmrag("sync", "--json", code=None).error["code"] == "PIN_MISSING_REVISION"
        assert lost[:7] in ada.vmrag("status", code=None).out
    finally:
        server.stop()


def test_copied_folder_of_stopped_chroma_server_serves_the_same_vectors(
    paid_project: Project, tmp_path: Path, services: paid.Services
) -> None:
    first = ChromaServer(tmp_path / "first")
    first.start()
    second = ChromaServer(tmp_path / "second")
    try:
        Database(first.url, "default_database").use(paid_project, first.url)
        share(paid_project)
        sealed = Database(first.url, "default_database").sealed()
        first.stop()
        shutil.copytree(first.folder, second.folder)
        second.start()
        other = another_machine(paid_project, tmp_path / "other")
        Database(second.url, "default_database").use(other, second.url)
        services.requests.clear()
        other.vmrag("sync")
        assert paid_texts(services) == [], "the vectors came from the copy"
        assert Database(second.url, "default_database").sealed() == sealed != []
    finally:
        first.stop()
        second.stop()
