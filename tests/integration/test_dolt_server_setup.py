"""A knowledge base on a Dolt server is made, joined, and reached encrypted."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import threading
import time

import msgspec
import pytest

from tests.support.certificates import signed_certificate
from tests.support.dolt_server import DoltServer, database_for
from tests.support.engines import AUTHOR, DATE, document, head, root, store
from tests.support.repos import isolate
from tests.support.terminal import Project, new_project
from vmrag_link import hints
from vmrag_link.engines.dolt import server_database, server_session
from vmrag_link.engines.dolt.engine import DoltEngine
from vmrag_link.engines.dolt.server_session import ServerSession
from vmrag_link.engines.folder import SERVER_FILE
from vmrag_link.engines.own_branches import ROOT_BRANCH
from vmrag_link.errors import AlreadyInitialized, ConfigInvalid, EngineFailed, KnowledgeMissing, ServerUnreachable
from vmrag_link.models import WorkingSet
from vmrag_link.ops.hook_checks import push_check
from vmrag_link.progress import QUIET
from vmrag_link.workspace import Workspace


def create(folder, access):
    return DoltEngine.create(folder, author=AUTHOR, date=DATE, access=access)


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "kb"


@pytest.fixture
def access(dolt_server, folder):
    return dolt_server.access(database_for(folder))


# -- creating


def test_new_knowledge_base_is_a_database_with_root_as_default_branch(dolt_server, folder, access):
    engine = create(folder, access)
    assert json.loads((folder / SERVER_FILE).read_bytes()) == {"format": 1, "database": access.database}
    assert [branch.name for branch in engine.list_branches()] == [ROOT_BRANCH]
    assert dolt_server.sql(f"USE `{access.database}`", "SELECT active_branch()") == [(ROOT_BRANCH,)]
    assert engine.read_revision(root(engine)).author == AUTHOR
    engine.close()
    dolt_server.restart()
    assert dolt_server.sql(f"USE `{access.database}`", "SELECT active_branch()") == [(ROOT_BRANCH,)]


def test_database_that_its_owner_made_for_it_is_taken(dolt_server, folder, access):
    dolt_server.sql(f"CREATE DATABASE `{access.database}`")
    engine = create(folder, access)
    assert [branch.name for branch in engine.list_branches()] == [ROOT_BRANCH]
    engine.close()


@pytest.mark.parametrize(
    "held",
    [
        "CREATE TABLE theirs (a int primary key)",
        "CALL dolt_branch('theirs')",
        "CALL dolt_commit('--allow-empty', '-m', 'theirs')",
    ],
)
def test_database_that_holds_something_else_is_not_touched(dolt_server, folder, access, held):
    dolt_server.sql(f"CREATE DATABASE `{access.database}`", f"USE `{access.database}`", held)
    before = dolt_server.sql(f"USE `{access.database}`", "SELECT name, hash, dirty FROM dolt_branches")
    with pytest.raises(AlreadyInitialized) as refused:
        create(folder, access)
    assert "dolt.database" in refused.value.hint
    assert dolt_server.sql(f"USE `{access.database}`", "SELECT name, hash, dirty FROM dolt_branches") == before
    assert not DoltEngine.exists(folder)


def test_knowledge_base_that_is_used_is_not_begun_again_but_joined(tmp_path, folder, access):
    engine = create(folder, access)
    store(engine, "main", document("a"))
    with pytest.raises(AlreadyInitialized) as refused:
        create(tmp_path / "other", access)
    assert "vmrag clone" in refused.value.hint
    server_database.join_database(tmp_path / "other", access)
    joined = DoltEngine.open(tmp_path / "other", access=access)
    assert [document.doc_id for document in joined.read_documents(WorkingSet("main"))] == ["a"]
    for member in (engine, joined):
        member.close()


def test_join_without_a_knowledge_base_fails(tmp_path, dolt_server, access):
    with pytest.raises(KnowledgeMissing):
        server_database.join_database(tmp_path / "other", access)
    assert not DoltEngine.exists(tmp_path / "other")


class _Killed(BaseException):
    pass


def test_creation_that_is_killed_anywhere_is_finished_by_the_next_one(dolt_server, tmp_path, monkeypatch):
    """After every statement that changes something."""
    run, remaining = ServerSession.run_statement, 0

    def counted(session, statement):
        nonlocal remaining
        rows = run(session, statement)
        if statement.startswith(("CREATE", "CALL", "INSERT", "SET GLOBAL")):
            remaining -= 1
            if remaining == 0:
                session.close()
                raise _Killed
        return rows

    monkeypatch.setattr(ServerSession, "run_statement", counted)
    number, killed = 0, True
    while killed:
        number += 1
        folder = tmp_path / f"kb{number}"
        access = dolt_server.access(database_for(folder))
        remaining = number
        try:
            create(folder, access)
            killed = False
        except _Killed:
            assert not DoltEngine.exists(folder)
            remaining = 0
            engine = create(folder, access)
            assert [(branch.name, branch.dirty) for branch in engine.list_branches()] == [(ROOT_BRANCH, False)]
            assert len(list(engine.log(root(engine)))) == 2
            store(engine, "main", document("a"))
            assert dolt_server.sql(f"USE `{access.database}`", "SELECT active_branch()") == [(ROOT_BRANCH,)]
            engine.close()
    assert number > 10


def test_dropped_database_can_be_created_again(dolt_server, tmp_path, folder, access):
    create(folder, access).close()
    dolt_server.sql(f"DROP DATABASE `{access.database}`")
    engine = create(tmp_path / "again", access)
    store(engine, "main", document("a"))
    engine.close()


# -- the note


@pytest.mark.parametrize(
    ("note", "error"),
    [
        ("{}", EngineFailed),
        ("", EngineFailed),
        ('{"format": 1, "database": "kb`; DROP DATABASE x"}', ConfigInvalid),
        ('{"format": 1, "database": ""}', ConfigInvalid),
        ('{"format": 2, "database": "kb"}', Exception),
    ],
)
def test_note_that_cannot_be_meant_is_refused(dolt_server, folder, note, error):
    folder.mkdir()
    (folder / SERVER_FILE).write_text(note)
    with pytest.raises(error) as raised:
        DoltEngine.open(folder, access=dolt_server.access())
    assert raised.value.hint


def test_settings_that_name_another_database_than_the_note_are_refused(folder, access, dolt_server):
    create(folder, access).close()
    with pytest.raises(ConfigInvalid, match=access.database):
        DoltEngine.open(folder, access=dolt_server.access("another"))
    DoltEngine.open(folder, access=dolt_server.access(access.database.upper())).close()


@pytest.mark.parametrize(
    "server", ["", "localhost", "localhost:", ":3306", "localhost:0", "a b:1", "x:70000", "::1:3306"]
)
def test_address_is_a_host_and_a_port(folder, server, dolt_server):
    folder.mkdir()
    (folder / SERVER_FILE).write_text('{"format": 1, "database": "kb"}')
    with pytest.raises(ConfigInvalid):
        DoltEngine.open(folder, access=dolt_server.access("kb", server=server))


# -- encryption


@pytest.fixture(scope="module")
def encrypted(tmp_path_factory):
    """Start a server that requires encryption; return it with the file of its authority."""
    folder = tmp_path_factory.mktemp("encrypted")
    authority, certificate, key = signed_certificate(folder, "server", "127.0.0.1")
    server = DoltServer(
        folder / "databases",
        settings=f"  tls_cert: {certificate}\n  tls_key: {key}\n  require_secure_transport: true\n",
    )
    server.start()
    yield server, authority
    server.stop()


def test_encrypted_server_is_used_when_its_certificate_is_sound(encrypted, folder):
    server, authority = encrypted
    engine = create(folder, server.access("sound", tls=True, authorities=str(authority)))
    store(engine, "main", document("a", "x" * 100_000))
    assert [document.content for document in engine.read_documents(head(engine, "main"))] == ["x" * 100_000]
    engine.close()


def test_server_with_an_untrusted_certificate_gets_nothing(encrypted, folder, tmp_path):
    server, _ = encrypted
    stranger, *_ = signed_certificate(tmp_path, "stranger", "127.0.0.1")
    for authorities in ("", str(stranger)):
        with pytest.raises(ServerUnreachable, match=r"(?i)certificate") as refused:
            create(folder, server.access("unsound", tls=True, authorities=authorities))
        assert "git config vmrag.dolt.authorities" in refused.value.hint


def test_certificate_for_another_address_is_not_this_servers(tmp_path, folder):
    authority, certificate, key = signed_certificate(tmp_path, "elsewhere", "127.0.0.2")
    server = DoltServer(tmp_path / "databases", settings=f"  tls_cert: {certificate}\n  tls_key: {key}\n")
    server.start()
    with pytest.raises(ServerUnreachable, match=r"(?i)certificate") as refused:
        create(folder, server.access("kb", tls=True, authorities=str(authority)))
    assert hints.list_commands(refused.value.hint) == ["git config vmrag.dolt.server HOST:PORT"]
    assert refused.value.hint.endswith("with a host name that the server's certificate has")
    server.stop()


def test_server_requiring_encryption_leads_to_tls_hint(encrypted, folder):
    server, _ = encrypted
    with pytest.raises(EngineFailed) as refused:
        create(folder, server.access("plain"))
    assert server.password not in str(refused.value.to_dict())
    assert "git config vmrag.dolt.tls true" in refused.value.hint


def test_hint_names_settings_of_server_without_encryption(dolt_server, folder):
    with pytest.raises(ServerUnreachable) as refused:
        create(folder, dolt_server.access("kb", tls=True))
    assert "listener.tls_cert" in refused.value.hint


def test_hint_names_read_only_server(tmp_path, folder):
    databases = tmp_path / "databases"
    server = DoltServer(databases)
    server.start()
    create(folder, server.access("kb")).close()
    server.stop()
    server.settings = "behavior:\n  read_only: true\n"
    server.start()
    engine = DoltEngine.open(folder, access=server.access())
    with pytest.raises(EngineFailed) as refused:
        engine.create_branch("main", root(engine))
    engine.close()
    server.stop()
    assert hints.list_commands(refused.value.hint) == ["git config vmrag.dolt.server HOST:PORT"]
    assert refused.value.hint.endswith("to use a server that can be written")


def test_file_without_certificates_is_named(encrypted, folder, tmp_path):
    server, _ = encrypted
    (tmp_path / "empty.pem").touch()
    for authorities in (tmp_path / "empty.pem", tmp_path / "missing.pem"):
        with pytest.raises(ConfigInvalid, match=authorities.name):
            create(folder, server.access("kb", tls=True, authorities=str(authorities)))


# -- vmrag


def test_two_clones_of_the_code_work_on_one_server(dolt_server, tmp_path, monkeypatch):
    isolate(monkeypatch, tmp_path / "home")
    database = database_for(tmp_path)
    monkeypatch.setenv("VMRAG_DOLT_SERVER", dolt_server.address)
    monkeypatch.setenv("VMRAG_DOLT_DATABASE", database)
    monkeypatch.setenv("VMRAG_DOLT_PASSWORD", dolt_server.password)
    ada = new_project(tmp_path / "ada")
    ada.vmrag("init", "--knowledge-base", "--no-sources", "--engine", "dolt", "--no-hooks")
    ada.put("backup", "Backups run nightly.")
    ada.vmrag("commit", "-m", "backups")
    ada.git("add", "-A")
    ada.git("commit", "-q", "-m", "backups")

    ada.git("clone", "-q", str(ada.top), str(tmp_path / "bob"))
    bob = Project(tmp_path / "bob")
    assert bob.ask("clone")["remote"] == dolt_server.address
    assert bob.status()["kb"]["engine"] == "dolt"
    bob.put("restore", "A restore takes an hour.")
    bob.vmrag("commit", "-m", "restore")
    [name] = [branch["name"] for branch in bob.ask("branch")["branches"] if branch["current"]]
    assert name != "main", "that one is Ada's"
    assert bob.ask("gc")["pruned"] == []

    ada.put("draft", "Not yet committed.")
    assert sorted(ada.texts()) == ["backup", "draft"]
    assert sorted(bob.texts()) == ["backup", "restore"]
    bob.vmrag("commit", "-m", "nothing", code=1)
    assert bob.vmrag("init", "--knowledge-base", "--no-sources", "--engine", "doltlite", code=2).err

    bob.git("commit", "-q", "-a", "-m", "restore")
    tip, before = bob.git("rev-parse", "HEAD", "origin/main").split()
    pushed = push_check.Push((push_check.PushedRef("refs/heads/main", tip, "refs/heads/main", before),), "origin")
    with contextlib.closing(Workspace.open(bob.top, QUIET)) as ws:
        assert push_check.check_push(ws, pushed) == push_check.PushCheckReport(()), "the server has it"


def test_stopped_server_is_reported_without_the_password(tmp_path, monkeypatch):
    isolate(monkeypatch, tmp_path / "home")
    server = DoltServer(tmp_path / "databases")
    server.start()
    monkeypatch.setenv("VMRAG_DOLT_SERVER", server.address)
    monkeypatch.setenv("VMRAG_DOLT_DATABASE", "kb")
    monkeypatch.setenv("VMRAG_DOLT_PASSWORD", server.password)
    project = new_project(tmp_path / "project")
    project.vmrag("init", "--knowledge-base", "--no-sources", "--engine", "dolt", "--no-hooks")
    server.stop()
    said = project.vmrag("list", "--json", code=3).error
    assert said["code"] == "DATABASE_ERROR"
    assert f"cannot reach the server {server.address}" in said["message"]
    assert server.password not in str(said)


@pytest.fixture
def on_own_server(tmp_path, monkeypatch):
    """A project whose knowledge base is on a server that the test may stop."""
    isolate(monkeypatch, tmp_path / "home")
    server = DoltServer(tmp_path / "databases")
    server.start()
    monkeypatch.setenv("VMRAG_DOLT_SERVER", server.address)
    monkeypatch.setenv("VMRAG_DOLT_DATABASE", "kb")
    monkeypatch.setenv("VMRAG_DOLT_PASSWORD", server.password)
    project = new_project(tmp_path / "project")
    project.vmrag("init", "--knowledge-base", "--no-sources", "--engine", "dolt", "--no-hooks")
    long = "".join(f"Line {number} of a text that is cut into many pieces.\n" for number in range(200))
    project.record("backups", backup="Backups run nightly.", long=long)
    yield project, server
    server.stop()


ASKED = [
    ("query", "nightly backup"),
    ("query", "nightly backup", "--at", "HEAD"),
    ("grep", "(nightly|Line 1.0)"),
    ("grep", "(nightly|Line 1.0)", "--at", "HEAD"),
]


def test_index_answers_for_the_same_pin_while_server_is_down(on_own_server):
    project, server = on_own_server

    def answers(report):
        """Return answers without the place of a hit in its document, which is not in the index."""
        hits = [(result["doc_id"], result["score"], result["text"]) for result in report.get("results", ())]
        return hits, report.get("documents")

    before = [answers(project.ask(*command)) for command in ASKED]
    assert [len(documents) for _, documents in before[2:]] == [2, 2]
    server.stop()
    for arguments, was in zip(ASKED, before, strict=True):
        now = project.ask(*arguments)
        assert answers(now) == was, arguments
        if "--at" not in arguments:
            assert "cannot reach" in now["notes"][0]
            assert not now["kb"]["in_sync"], "what is not committed is not known"
    project.vmrag("add", "-", "--collection", "handbook", "--id", "new", stdin="New.", code=3)
    project.vmrag("commit", "-m", "nothing", code=3)
    project.vmrag("status", code=3)


def hanging_proxy(stack, port, statements, *, delay=0.0):
    """Serve a port that forwards to another one, and stops answering after so many messages of a
    client. `delay`: seconds before each message.
    """
    listening = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
    made = []

    def forward(source, target, most):
        count = 0
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                count += 1
                time.sleep(delay)
                if most is None or count <= most:
                    target.sendall(data)
            target.shutdown(socket.SHUT_WR)

    def accept():
        with contextlib.suppress(OSError):
            while True:
                client, server = listening.accept()[0], socket.create_connection(("127.0.0.1", port))
                made.extend((client, server))
                threading.Thread(target=forward, args=(client, server, statements), daemon=True).start()
                threading.Thread(target=forward, args=(server, client, None), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    stack.callback(lambda: [engine.close() for engine in made])
    return listening.getsockname()[1]


def test_hook_gives_up_when_all_answers_together_are_slow(dolt_server, folder):
    create(folder, dolt_server.access("kb")).close()
    with contextlib.ExitStack() as stack:
        port = hanging_proxy(stack, dolt_server.port, None, delay=0.15)
        access = msgspec.structs.replace(dolt_server.access(), server=f"127.0.0.1:{port}", answer_seconds=1.0)
        engine = DoltEngine.open(folder, access=access)
        stack.callback(engine.close)
        begun = time.monotonic()
        with pytest.raises(ServerUnreachable, match="no answer within 5 seconds in all"):
            [engine.list_branches() for _ in range(100)]
        assert time.monotonic() - begun < 10


@pytest.mark.hooks("on")
@pytest.mark.parametrize("statements", [0, 1, 6, 12], ids=lambda number: f"after-{number}")
def test_hook_gives_up_when_server_hangs(on_own_server, monkeypatch, statements):
    """It reports that, and the next hook does not ask the server again."""
    project, server = on_own_server
    project.git("switch", "-q", "-c", "feature")
    project.record("more", more="More.")
    project.vmrag("install")
    with contextlib.ExitStack() as stack:
        port = hanging_proxy(stack, server.port, statements)
        monkeypatch.setenv("VMRAG_DOLT_SERVER", f"127.0.0.1:{port}")
        begun = time.monotonic()
        switched = subprocess.run(
            ["git", "switch", "main"], cwd=project.top, check=True, capture_output=True, text=True
        )
        assert "no answer within 2 seconds" in switched.stderr
        assert time.monotonic() - begun < 8  # a busy machine starts the hook slowly
        begun = time.monotonic()
        committed = subprocess.run(
            ["git", "commit", "-q", "--allow-empty", "-m", "more"],
            cwd=project.top,
            check=True,
            capture_output=True,
            text=True,
        )
        assert "contacts it again" in committed.stderr
        assert time.monotonic() - begun < 6
    assert project.git("log", "-1", "--format=%s").strip() == "more"


def test_server_that_is_silent_is_waited_for_once_a_minute(on_own_server, monkeypatch):
    """The server accepts connections and does not answer."""
    project, server = on_own_server
    server.stop()
    monkeypatch.setattr(server_session, "LOGIN_SECONDS", 2.5)
    with socket.create_server(("127.0.0.1", server.port), backlog=50) as silent:
        first = project.vmrag("log", "--json", code=3).error
        assert "no answer within" in first["message"]
        for _ in range(3):
            later = project.vmrag("log", "--json", code=3).error
            assert "contacts it again 60 s after" in later["message"]
        assert project.ask(*ASKED[0])["results"]
        silent.accept()[0].close()
        silent.settimeout(0)
        with pytest.raises(BlockingIOError):
            silent.accept()
    server.start()
    note = project.shared / "kb" / "unreached.json"
    assert str(note) in later["hint"]
    note.unlink()
    project.vmrag("log")
