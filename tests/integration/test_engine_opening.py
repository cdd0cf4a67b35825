"""Selection of the engine of a knowledge base, and messages on a machine without Dolt."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import dolt
from tests.support import engines as support
from tests.support.cli import start
from tests.support.engines import AUTHOR, DATE, document, root, store
from tests.support.repos import isolate
from tests.support.terminal import Done, Project, new_project
from vmrag_link import extras
from vmrag_link.engines import opening
from vmrag_link.engines.dolt import program
from vmrag_link.engines.dolt.access import DoltAccess
from vmrag_link.engines.folder import DOLT_FOLDER, DOLTLITE_FILE, SERVER_FILE
from vmrag_link.errors import ConfigInvalid, DoltMissing, NotInitialized

engines = support.engines

ROOT = Path(__file__).parents[2]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    isolate(monkeypatch, tmp_path / "home")
    return new_project(tmp_path / "project")


@pytest.fixture
def git_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    only_git(tmp_path / "programs", monkeypatch)


def only_git(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A PATH with git, and no dolt."""
    folder.mkdir()
    for name in ("git", "env", "sh"):
        result = subprocess.run(["/bin/sh", "-c", f"command -v {name}"], capture_output=True, text=True, check=True)
        (folder / name).symlink_to(result.stdout.strip())
    monkeypatch.setenv("PATH", str(folder))


@pytest.mark.parametrize(
    ("name", "engine"),
    [(DOLTLITE_FILE, "doltlite"), (DOLT_FOLDER, "dolt"), (SERVER_FILE, "dolt"), ("write.lock", None)],
)
def test_engine_is_recognized_by_the_files_of_the_folder(tmp_path, name, engine):
    (tmp_path / name).mkdir()
    assert opening.detect_engine(tmp_path) == engine
    assert opening.engine_exists(tmp_path) == (engine is not None)


def test_open_without_knowledge_base_raises_and_creates_nothing(tmp_path):
    with pytest.raises(NotInitialized):
        opening.open_engine(tmp_path / "kb")
    assert not (tmp_path / "kb").exists()


def test_embedded_engine_does_without_the_modules_of_dolts(tmp_path):
    script = (
        "import sys\nfrom pathlib import Path\nfrom vmrag_link.engines import opening\n"
        f"folder = Path({str(tmp_path / 'kb')!r})\n"
        f"opening.create_engine('doltlite', folder, author={AUTHOR!r}, date={DATE!r}).close()\n"
        "opening.open_engine(folder).close()\n"
        "print(*sorted(name for name in sys.modules if 'dolt.' in name or name in ('doltcli', 'pymysql')))"
    )
    result = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (result.stdout.split(), result.stderr) == ([], "")


def test_untrusted_database_server_is_not_opened(tmp_path):
    (tmp_path / SERVER_FILE).write_text('{"format": 1, "database": "kb"}')
    with pytest.raises(ConfigInvalid, match=r"is a database of a Dolt server, but no trusted setting") as raised:
        opening.open_engine(tmp_path)
    assert "vmrag trust" in raised.value.hint
    assert "vmrag.dolt.server" in raised.value.hint


@pytest.mark.parametrize("password", ["", "s3cret"])
@pytest.mark.parametrize("server", ["db.example:3306", "10.0.0.1:3306", "localhost.evil:1", "127.0.0.1.evil:1"])
def test_engine_refuses_to_send_documents_or_password_without_tls(tmp_path, server, password):
    access = DoltAccess(server=server, database="kb", password=password)
    with pytest.raises(ConfigInvalid) as raised:
        opening.create_engine("dolt", tmp_path / "kb", author=AUTHOR, date=DATE, access=access)
    assert "dolt.tls" in raised.value.hint
    assert "s3cret" not in str(raised.value.to_dict()) + repr(access)
    assert not (tmp_path / "kb").exists()


@pytest.mark.parametrize("server", ["localhost:3306", "127.0.0.1:3306", "[::1]:3306"])
def test_server_on_this_machine_needs_no_encryption(server):
    opening.require_runnable("dolt", DoltAccess(server=server, password="s3cret"))


def test_password_is_not_sent_to_server_named_only_by_repository_file(project, monkeypatch):
    """Agreement to a file includes its server; the password is only for the configured server."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        where = f"127.0.0.1:{server.getsockname()[1]}"
        project.write(".vmrag.yaml", f"dolt:\n  server: {where}\n  database: kb\n")
        project.vmrag("trust", "--yes")
        monkeypatch.setenv("VMRAG_DOLT_PASSWORD", "s3cret")
        refused = project.vmrag(
            "init", "--knowledge-base", "--no-sources", "--engine", "dolt", "--no-hooks", "--json", code=2
        ).error
        assert (refused["code"], "VMRAG_DOLT_PASSWORD" in refused["message"]) == ("CONFIG_INVALID", True)
        assert f"git config vmrag.dolt.server {where}" in refused["hint"]
        server.settimeout(0.1)
        with pytest.raises(TimeoutError):
            server.accept()
    project.git("config", "vmrag.dolt.server", where)
    said = project.vmrag(
        "init", "--knowledge-base", "--no-sources", "--engine", "dolt", "--no-hooks", "--json", code=None
    ).error
    assert said["code"] == "DATABASE_ERROR"


def test_write_changes_the_folders_stamp_and_reading_does_not(tmp_path, engines):
    engine = engines.create(tmp_path / "kb")
    before = opening.read_stamp(engine.folder)
    again = engines.open(tmp_path / "kb")
    assert again.list_collections(root(again)) == []
    again.close()
    assert opening.read_stamp(engine.folder) == before
    store(engine, "main", document("a"))
    after = opening.read_stamp(engine.folder)
    is_local = not (engine.folder / SERVER_FILE).exists()  # what a server stores changes nothing in the folder
    assert (after != before) is is_local
    engine.collect_garbage()
    assert (opening.read_stamp(engine.folder) != after) is is_local
    engine.close()


# -- vmrag init


def test_engine_is_not_created_without_dolt(project, git_alone):
    before = project.git("status", "--porcelain")
    said = project.vmrag("init", "--knowledge-base", "--no-sources", "--engine", "dolt", code=2)
    assert "error: the knowledge base needs the program dolt, which is not on PATH" in said.err
    assert "docs.dolthub.com" in said.err
    assert project.git("status", "--porcelain") == before
    assert not (project.shared / "kb").exists()
    assert project.ask("status")["state"] == "files"


def test_init_takes_the_engine_of_the_settings(project, git_alone):
    project.write(".vmrag.yaml", "engine: dolt\ndolt.binary: /nowhere/dolt\n")
    assert (
        project.vmrag("init", "--knowledge-base", "--no-sources", "--json", code=2).error["code"]
        == "DOLT_EXECUTABLE_NOT_FOUND"
    )
    project.vmrag("init", "--knowledge-base", "--no-sources", "--engine", "doltlite", "--no-hooks")
    assert project.status()["kb"]["engine"] == "doltlite"


def test_existing_knowledge_base_keeps_its_engine(project, git_alone):
    project.vmrag("init", "--knowledge-base", "--no-sources", "--no-hooks")
    project.write(".vmrag.yaml", "engine: dolt\n")
    assert project.status()["kb"]["engine"] == "doltlite"
    refused = project.vmrag("init", "--knowledge-base", "--no-sources", "--engine", "dolt", "--json", code=2).error
    assert refused["code"] == "ALREADY_INITIALIZED"
    assert "is already doltlite" in refused["message"]


def test_cloned_file_names_no_program_and_no_server(project, git_alone):
    """Settings without agreement are ignored."""
    project.write(".vmrag.yaml", "dolt:\n  binary: /evil/dolt\n  server: evil.example:3306\n")
    project.git("add", "-A")
    project.git("commit", "-q", "-m", "a stranger's")
    said = project.vmrag("init", "--knowledge-base", "--no-sources", "--engine", "dolt", code=2).err
    assert "dolt, which is not on PATH" in said


def test_configured_program_is_the_one_that_runs(project, git_alone, tmp_path, monkeypatch):
    old = tmp_path / "dolt"
    old.write_text("#!/bin/sh\necho dolt version 1.0.0\n")
    old.chmod(0o755)
    project.git("config", "vmrag.dolt.binary", str(old))
    assert (
        f"{old} is Dolt 1.0.0"
        in project.vmrag("init", "--knowledge-base", "--no-sources", "--engine", "dolt", code=2).err
    )


def test_doctor_notes_a_missing_doltcli(project, monkeypatch):
    (project.shared / "kb" / DOLT_FOLDER).mkdir(parents=True)
    monkeypatch.setitem(sys.modules, "doltcli", None)
    findings = [finding for topic in project.ask("doctor", code=1)["topics"] for finding in topic["findings"]]
    [note] = [result for result in findings if result["code"] == "DOLTCLI_MISSING"]
    assert note["level"] == "note"
    assert " -m pip install " in note["fix"]


@pytest.mark.parametrize(
    ("python", "command"),
    [
        ((3, 11), "pip install doltcli==0.2.2"),
        ((3, 12), "pip install --no-deps doltcli==0.2.2"),
        ((3, 13), "pip install --no-deps doltcli==0.2.2"),
    ],
)
def test_doltcli_is_installed_automatically_if_dependencies_have_wheels(python, command):
    assert program.how_to_install_doltcli(python) == command


def test_doctor_names_a_program_that_is_missing(project, git_alone):
    (project.shared / "kb" / DOLT_FOLDER).mkdir(parents=True)
    [topic] = [topic for topic in project.ask("doctor", code=1)["topics"] if topic["name"] == "programs"]
    assert "DOLT_EXECUTABLE_NOT_FOUND" in [finding["code"] for finding in topic["findings"]]
    with pytest.raises(DoltMissing):
        opening.require_runnable("dolt", DoltAccess())


# -- systems for which doltlite is not made


@pytest.fixture
def elsewhere(tmp_path: Path) -> str:
    """Make a process find the sdist package, which has no library.

    Another platform must be simulated.
    """
    (tmp_path / "site" / "doltlite").mkdir(parents=True)
    (tmp_path / "site" / "doltlite" / "__init__.py").touch()
    return (
        f"sys.path.insert(0, {str(tmp_path / 'site')!r})\n"
        "from vmrag_link.engines.doltlite import library\nlibrary.has_wheel_for = lambda *_, **__: False"
    )


def afresh(project: Project, body: str, *arguments: str) -> Done:
    """`vmrag` in a process that has loaded no library before `body`."""
    code = f"import sys\n{body}\nfrom vmrag_link.cli.main import run\nsys.exit(run(sys.argv[1:]))"
    return start(project, *arguments, program=(sys.executable, "-c", code)).done()


ONLY = "the embedded engine, doltlite, is made for Linux with glibc (x86-64 and arm64) and macOS on Apple silicon only."
INSTEAD = f"run '{extras.format_install_command('dolt')}', then 'vmrag init --engine dolt'"


def test_init_on_unsupported_platform_prints_alternatives(project, elsewhere):
    result = afresh(project, elsewhere, "init", "--knowledge-base")
    assert (result.code, result.out) == (3, "")
    assert result.err.startswith(f"error: {ONLY}\nhint: ")
    assert INSTEAD in result.err
    assert not (project.shared / "kb").exists()
    assert not (project.top / ".dolt-version").exists()


def test_query_of_repository_files_works_on_unsupported_platform(project, elsewhere):
    project.write(".vmrag.yaml", "embedding: {model: hash}\nsources:\n  - collection: docs\n    paths: ['*.md']\n")
    project.write("timeouts.md", "Requests time out after thirty seconds.")
    project.git("add", "-A")
    project.git("commit", "-q", "-m", "A document")
    assert "timeouts.md" in afresh(project, elsewhere, "query", "when do requests time out").out
    examined = afresh(project, elsewhere, "doctor")
    assert f"warning  {ONLY}" in examined.out
    assert INSTEAD in examined.out


def test_embedded_store_on_unsupported_platform_suggests_migration(project, elsewhere):
    project.vmrag("init", "--knowledge-base", "--no-sources")
    for command in ("status", "doctor"):
        said = afresh(project, elsewhere, command)
        assert (said.code, ONLY in said.out + said.err) == (3 if command == "status" else 1, True), said
        assert "vmrag migrate --to dolt" in said.out + said.err


def test_windows_is_rejected_before_imports():
    program = "import sys; sys.platform = 'win32'\nfrom vmrag_link.cli.{} import *"
    for module in ("main", "mcp"):
        result = subprocess.run(
            [sys.executable, "-c", program.format(module)], capture_output=True, text=True, check=False
        )
        assert (result.returncode, result.stdout) == (2, "")
        assert result.stderr.startswith("error: vmrag runs on Linux and macOS, not on Windows.\nhint: ")


def test_clone_of_a_dolt_knowledge_base_reports_missing_dolt(project, tmp_path, monkeypatch):
    dolt.require()
    project.vmrag("init", "--knowledge-base", "--no-sources", "--engine", "dolt")
    project.record("first", faq="A kettle boils water.")
    project.git("switch", "-q", "-c", "other")
    project.record("second", more="An engine needs copper.")
    project.git("init", "-q", "--bare", str(tmp_path / "hub"))
    project.git("remote", "add", "origin", str(tmp_path / "hub"))
    project.git("push", "-q", "origin", "main", "other")
    project.git("clone", "-q", "-b", "main", str(tmp_path / "hub"), str(tmp_path / "clone"))
    clone = Project(tmp_path / "clone")

    with monkeypatch.context() as patch:
        only_git(tmp_path / "programs", patch)
        clone.vmrag("install")
        for command in (["clone"], ["list"], ["query", "kettle"]):
            said = clone.vmrag(*command, code=None)
            assert said.code in (1, 2)
            assert "dolt, which is not on PATH" in said.err + said.out, command
        moved = clone.run("switch", "-q", "other")
        assert (moved.returncode, "Traceback" in moved.stderr) == (0, False)
        assert len(moved.stderr.splitlines()) <= 1
    assert clone.texts().keys() == {"faq.md", "more.md"}
