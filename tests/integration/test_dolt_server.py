"""Guarantees of a knowledge base on a running `dolt sql-server`: lost sessions, and other machines
that also write.

Here each machine is a separate folder.
"""

from __future__ import annotations

import signal
import threading
import time

import pytest

from tests.support.dolt_server import DoltServer, database_for
from tests.support.engines import AUTHOR, DATE, Engines, commit, document, head, put, root, store
from tests.support.pace import slack
from vmrag_link.engines.base import Write
from vmrag_link.engines.dolt import server_database
from vmrag_link.engines.dolt.engine import DoltEngine
from vmrag_link.errors import Busy, EngineUnwritable, KnowledgeMissing, LoginRefused, ServerUnreachable
from vmrag_link.models import WorkingSet


@pytest.fixture
def own_server(tmp_path):
    """A server that the test may kill."""
    server = DoltServer(tmp_path / "databases")
    server.start()
    yield server
    server.stop()


def create(server, folder):
    return DoltEngine.create(folder, author=AUTHOR, date=DATE, access=server.access(database_for(folder)))


def join(server, engine, folder):
    """The same knowledge base, used by another machine."""
    access = server.access(database_for(engine.folder))
    server_database.join_database(folder, access)
    return DoltEngine.open(folder, access=access, lock_timeout=0.3)


@pytest.fixture
def engine(dolt_server, tmp_path):
    made = create(dolt_server, tmp_path / "kb")
    yield made
    made.close()


@pytest.fixture
def other(dolt_server, engine, tmp_path):
    joined = join(dolt_server, engine, tmp_path / "other")
    yield joined
    joined.close()


def ids(engine, at):
    return [document.doc_id for document in engine.read_documents(at)]


# -- sessions that are lost


def test_next_statement_reconnects_after_a_restart_of_the_server(own_server, tmp_path):
    engine = create(own_server, tmp_path / "kb")
    store(engine, "main", document("a"))
    own_server.restart()
    assert ids(engine, WorkingSet("main")) == ["a"]
    own_server.restart()
    store(engine, "main", document("b"))
    assert ids(engine, WorkingSet("main")) == ["a", "b"]


def test_transaction_lost_with_the_server_is_not_repeated(own_server, tmp_path):
    engine = create(own_server, tmp_path / "kb")
    before = store(engine, "main", document("a"))

    def rows():
        yield from (document(f"b{number}") for number in range(2000))  # some are with the server by now
        own_server.stop(signal.SIGKILL)
        yield document("c")

    with pytest.raises(ServerUnreachable):
        engine.write("main", Write(put_documents=rows()), expected=before)
    own_server.start()
    assert ids(engine, WorkingSet("main")) == ["a"]
    assert not engine.find_branch("main").dirty
    store(engine, "main", document("d"))


def test_write_under_lost_lock_raises_server_unreachable(own_server, tmp_path):
    engine = create(own_server, tmp_path / "kb")
    store(engine, "main", document("a"))
    with engine.write_lock("do several things"):
        put(engine, "main", document("b"))
        own_server.restart()
        for _ in range(2):
            with pytest.raises(ServerUnreachable):
                put(engine, "main", document("c"))
    assert ids(engine, WorkingSet("main")) == ["a", "b"]
    put(engine, "main", document("c"))


def test_session_killed_on_the_server_is_opened_again(dolt_server, engine):
    store(engine, "main", document("a"))
    for number, *_ in dolt_server.sql("SHOW PROCESSLIST")[:-1]:
        dolt_server.sql(f"KILL {number}")
    assert ids(engine, WorkingSet("main")) == ["a"]


def test_garbage_collection_on_the_server_keeps_the_session_and_its_lock(engine, other):
    store(engine, "main", document("a"))
    with engine.write_lock("collect and go on"):
        engine.collect_garbage()
        put(engine, "main", document("b"))
        with pytest.raises(Busy):
            other.create_branch("other", root(other))
    assert ids(other, WorkingSet("main")) == ["a", "b"]


def test_garbage_collection_that_ends_all_sessions_ends_no_command(tmp_path):
    """Collect garbage as Dolt once did, and still does if configured."""
    server = DoltServer(
        tmp_path / "databases",
        settings="behavior:\n  auto_gc_behavior:\n    enable: false\n",
        variables={"DOLT_GC_SAFEPOINT_CONTROLLER_CHOICE": "kill_connections"},
    )
    server.start()
    engine = create(server, tmp_path / "kb")
    other = join(server, engine, tmp_path / "other")
    store(engine, "main", document("a"))
    assert ids(other, WorkingSet("main")) == ["a"]
    before = {number for number, *_ in server.sql("SHOW PROCESSLIST")}
    engine.collect_garbage()
    assert ids(other, WorkingSet("main")) == ["a"]
    put(engine, "main", document("b"))
    put(other, "main", document("c"))
    assert ids(engine, WorkingSet("main")) == ["a", "b", "c"]
    assert not before & {number for number, *_ in server.sql("SHOW PROCESSLIST")}
    server.stop()


# -- others who write


def test_writer_on_another_machine_is_waited_for_and_named(engine, other):
    with engine.write_lock("import a library"):
        begun = time.monotonic()
        with pytest.raises(Busy, match=r"root on .* has locked the knowledge base kb_\w+ on 127.0.0.1:\d+") as busy:
            other.create_branch("main", root(other))
        assert 0.3 <= time.monotonic() - begun < 5 * slack()
        assert "KILL" in busy.value.hint
    other.create_branch("main", root(other))


KILLED = """
def rows():
    yield document('lost')
    print('writing', flush=True)
    input()
with engine.write_lock('hold on'):
    put(engine, 'main', document('kept'))
    engine.write('main', Write(put_documents=rows()), expected=head(engine, 'main'))
"""


def test_killed_writer_frees_the_lock_and_leaves_nothing_half_done(dolt_server, engine, other):
    store(engine, "main", document("a"))
    with Engines("dolt-server").child(engine.folder, KILLED) as child:
        assert child.stdout.readline() == "writing\n"
        with pytest.raises(Busy):
            put(other, "main", document("b"))
        child.kill()
    patient = DoltEngine.open(other.folder, access=dolt_server.access(), lock_timeout=10)
    put(patient, "main", document("b"))
    assert ids(patient, WorkingSet("main")) == ["a", "b", "kept"]
    patient.close()


def test_two_machines_write_at_once_and_lose_nothing(dolt_server, engine, tmp_path):
    failures = []

    def work(name):
        try:
            mine = join(dolt_server, engine, tmp_path / name)
            patient = DoltEngine.open(mine.folder, access=dolt_server.access(), lock_timeout=60)
            for number in range(5):
                store(patient, name, document(f"{name}-{number}"))
                patient.move_branch(name, root(patient), expected=head(patient, name))
                store(patient, name, document(f"{name}-{number}"), document("shared", name))
            patient.close()
        except Exception as error:
            failures.append(error)
            raise

    threads = [threading.Thread(target=work, args=(name,)) for name in ("ada", "bob")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    for name in ("ada", "bob"):
        assert ids(engine, WorkingSet(name)) == [f"{name}-4", "shared"]
    assert (
        engine.find_unreachable(
            [revision.revision for name in ("ada", "bob") for revision in engine.log(head(engine, name))]
        )
        == []
    )


def test_concurrent_change_of_another_client_raises_busy(dolt_server, engine):
    """The lock is ours alone: a person's client does not ask for it."""
    store(engine, "main", document("a", "before"))
    database = database_for(engine.folder)

    def rows():
        yield document("a", "ours")
        dolt_server.sql(f"USE `{database}/main`", "UPDATE documents SET content = 'theirs' WHERE doc_id = 'a'")

    with pytest.raises(Busy):
        engine.write("main", Write(put_documents=rows()), expected=head(engine, "main"))
    [kept] = engine.read_documents(WorkingSet("main"))
    assert kept.content == "theirs"
    put(engine, "main", document("a", "ours"))


def test_stamp_changes_with_each_write(dolt_server, engine, other):
    database = database_for(engine.folder)
    stamps = [engine.read_stamp()]
    assert other.read_stamp() == stamps[0]
    other.create_branch("main", root(other))
    stamps.append(engine.read_stamp())
    for doc_id in "ab":
        put(other, "main", document(doc_id))
        stamps.append(engine.read_stamp())
    dolt_server.sql(f"USE `{database}/main`", "UPDATE documents SET title = 'theirs' WHERE doc_id = 'a'")
    stamps.append(engine.read_stamp())
    commit(other, "main")
    stamps.append(engine.read_stamp())
    assert len(set(stamps)) == len(stamps)
    assert other.read_stamp() == engine.read_stamp() == stamps[-1]


# -- whom the server lets in


def test_wrong_password_is_reported_without_showing_passwords(dolt_server, tmp_path):
    folder = tmp_path / "kb"
    create(dolt_server, folder).close()
    access = dolt_server.access(password="wrong-guess")
    with pytest.raises(LoginRefused, match="refused the login of 'root'") as refused:
        DoltEngine.open(folder, access=access).list_branches()
    said = f"{refused.value.to_dict()} {access!r} {refused.value.__cause__!r}"
    assert "wrong-guess" not in said
    assert dolt_server.password not in said
    assert refused.value.code == "AUTHENTICATION_FAILED"
    assert "VMRAG_DOLT_PASSWORD" in refused.value.hint


def test_dropped_database_raises_knowledge_missing(dolt_server, engine):
    database = database_for(engine.folder)
    dolt_server.sql(f"DROP DATABASE `{database}`")
    with pytest.raises(KnowledgeMissing, match=database):
        engine.list_branches()
    with pytest.raises(KnowledgeMissing):
        engine.find_damage()


def test_read_only_user_can_read_and_gets_a_grant_hint(dolt_server, engine):
    database = database_for(engine.folder)
    store(engine, "main", document("a"))
    dolt_server.sql(
        "CREATE USER IF NOT EXISTS reader@localhost IDENTIFIED BY 'pw'",
        f"GRANT SELECT ON `{database}`.* TO reader@localhost",
    )
    reader = DoltEngine.open(engine.folder, access=dolt_server.access(user="reader", password="pw"))
    assert ids(reader, WorkingSet("main")) == ["a"]
    with pytest.raises(EngineUnwritable) as refused:
        put(reader, "main", document("b"))
    assert "GRANT ALL ON" in refused.value.hint
    assert ids(engine, WorkingSet("main")) == ["a"]
    reader.close()


def test_rights_to_one_database_are_enough_to_work_in_it(dolt_server, engine, tmp_path):
    """The rights are those in docs/sharing.md."""
    database = database_for(engine.folder)
    dolt_server.sql(
        "CREATE USER IF NOT EXISTS member@localhost IDENTIFIED BY 'pw'",
        f"GRANT ALL ON `{database}`.* TO member@localhost",
    )
    member = DoltEngine.open(engine.folder, access=dolt_server.access(user="member", password="pw"))
    first = store(member, "main", document("a"))
    assert member.find_damage() == ""
    member.move_branch("main", root(member), expected=first)
    member.commit_onto(
        first, [Write(put_documents=[document("b")])], joining=root(member), message="m", author=AUTHOR, date=DATE
    )
    member.delete_branch("main", expected=root(member))
    assert member.find_unreachable([first]) == []
    with pytest.raises(EngineUnwritable):
        member.collect_garbage()
    dolt_server.sql(f"GRANT EXECUTE ON PROCEDURE `{database}`.dolt_gc TO member@localhost")
    member.collect_garbage()
    member.close()
