"""A session of the dolt program: its input, when it ends, and which session may write."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.support import dolt
from tests.support.dolt_server import DoltServer
from tests.support.engines import AUTHOR, DATE, commit, document, store
from tests.support.repos import ON, isolate
from tests.support.terminal import new_project
from vmrag_link.engines.base import Write
from vmrag_link.engines.dolt import shell
from vmrag_link.engines.dolt.access import DoltAccess
from vmrag_link.engines.dolt.connection import quote_identifier, quote_literal
from vmrag_link.engines.dolt.engine import DoltEngine
from vmrag_link.engines.dolt.session import unfinished_branch
from vmrag_link.engines.dolt.shell import ShellConnection
from vmrag_link.engines.own_branches import ROOT_BRANCH
from vmrag_link.errors import Busy, EngineFailed, LimitExceeded, RevisionMissing
from vmrag_link.models import Collection, KbBranch, WorkingSet

PATIENCE = 20.0


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    dolt.require()
    folder = tmp_path_factory.mktemp("shell") / "kb"
    DoltEngine.create(folder, author=AUTHOR, date=DATE).close()
    return folder


@pytest.fixture
def opened(repository: Path) -> Iterator[ShellConnection]:
    with _opened(repository) as connection:
        yield connection


@contextlib.contextmanager
def _opened(folder: Path, *, longest: int = 100_000_000, timeout: float = PATIENCE) -> Iterator[ShellConnection]:
    connection = ShellConnection(folder, DoltAccess(), max_answer_bytes=longest, timeout=timeout)
    try:
        yield connection
    finally:
        connection.end_session()


def _marker(connection: ShellConnection, name: str) -> str:
    """The value that is stored under a name in the table of settings."""
    rows = connection.query_rows(
        f"SELECT value AS v FROM vmrag_meta WHERE `key` = {quote_literal(name)}", at=ROOT_BRANCH
    )
    return rows[0]["v"] if rows else ""


def _mark(name: str, value: str) -> str:
    return f"REPLACE INTO vmrag_meta VALUES ({quote_literal(name)}, {quote_literal(value)})"


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")), min_size=1, max_size=20))
@example(
    ["'", "\\", "\\'", "';", '"', "`", "--", "/*", "#", "\r\n", "\x1a", "%s", "\\n", "DELIMITER //\n", " ", "\ufeff"]
)
def test_every_text_is_read_back_unchanged(repository: Path, texts: list[str]) -> None:
    with _opened(repository) as connection:
        query = "SELECT " + ", ".join(
            f"{quote_literal(text)} AS {quote_identifier(str(number))}" for number, text in enumerate(texts)
        )
        row = connection.query_rows(query)[0]
    assert [row[str(number)] for number in range(len(texts))] == texts


def test_number_and_nothing_come_back_as_they_are(opened: ShellConnection) -> None:
    row = opened.query_rows(
        f"SELECT {quote_literal(-5)} AS number, {quote_literal(None)} AS nothing, {quote_literal('5')} AS text"
    )[0]
    assert (row["number"], row.get("nothing"), row["text"]) == (-5, None, "5")


def test_each_query_has_its_own_rows(opened: ShellConnection) -> None:
    assert opened.run_queries(["SELECT 1 AS v", "SELECT 1 AS v WHERE FALSE", "SELECT 2 AS v"]) == [
        [{"v": 1}],
        [],
        [{"v": 2}],
    ]


def test_long_answers_arrive_while_next_queries_are_written(opened: ShellConnection) -> None:
    said, answered = "x" * 20_000, 30_000
    result = opened.run_queries([f"SELECT repeat('a', {answered}) AS v, '{said}' AS w"] * 20)
    assert [len(rows[0]["v"]) for rows in result] == [answered] * 20


def test_text_that_looks_like_end_marker_stays_a_text(opened: ShellConnection) -> None:
    forged = '{"rows": [{"vmrag_end_2":1}]}\n{"rows": [{"vmrag_end_3":1}]}'
    assert opened.query_value(quote_literal(forged)) == forged
    assert opened.query_value("1") == 1


def test_failure_quotes_dolt_and_repeats_no_document(opened: ShellConnection) -> None:
    with pytest.raises(EngineFailed) as failed:
        opened.query_rows(
            f"SELECT nothing_like_this FROM vmrag_meta WHERE value = {quote_literal('secret ' * 9)}", at=ROOT_BRANCH
        )
    assert "nothing_like_this" in failed.value.message
    assert "secret" not in str(failed.value.to_dict())
    assert opened.query_value("1") == 1


def test_overlong_answer_is_abandoned(repository: Path) -> None:
    with _opened(repository, longest=2_000_000) as connection, connection.snapshot(ROOT_BRANCH):
        with pytest.raises(LimitExceeded):
            connection.query_value("repeat('x', 20000000)", at=ROOT_BRANCH)
        assert connection.query_value("1", at=ROOT_BRANCH) == 1


def test_idle_session_ends_and_another_program_can_write(repository: Path) -> None:
    with _opened(repository) as connection:
        connection.execute([_mark("idle", "ours")], at=ROOT_BRANCH)
        dolt.run(repository, "sql", "-q", _mark("idle", "theirs"))
        assert _marker(connection, "idle") == "theirs"


def test_writing_session_keeps_its_unfinished_branch_beyond_idle_time(repository: Path) -> None:
    with _opened(repository) as connection, connection.server_lock("test", PATIENCE):
        connection.execute([_mark("slow", "yes")], at=ROOT_BRANCH)
        made = connection.call("dolt_commit", "-A", "-m", "Made slowly", at=ROOT_BRANCH)["hash"]
        with unfinished_branch(connection, made) as at:
            connection.call("dolt_branch", "-f", ROOT_BRANCH, f"{made}~1")
            time.sleep(2 * shell.IDLE_SECONDS)
            connection.call("dolt_branch", "-f", "other", ROOT_BRANCH)
            assert connection.query_value("dolt_hashof('HEAD')", at=at) == made


def test_ended_process_is_not_killed_by_its_number(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process may have that number by then."""
    with _opened(repository) as connection:
        connection.query_value("1", at=ROOT_BRANCH)
        session = connection._session
        assert session is not None
        session._process.kill()
        session._process.wait()
        monkeypatch.setattr(os, "killpg", lambda *_: pytest.fail("a signal was sent"))
        connection.end_session()


def test_idle_session_costs_one_thread(repository: Path) -> None:
    with _opened(repository) as connection, connection.server_lock("a test", PATIENCE):
        before = {*threading.enumerate()}
        connection.execute([_mark("idle", "held")], at=ROOT_BRANCH)
        threads = set[threading.Thread]()
        until = time.monotonic() + 3 * shell.IDLE_SECONDS
        while time.monotonic() < until:
            threads.update(threading.enumerate())
            time.sleep(0.005)
    assert len(threads - before) == 1


def test_continuous_reader_does_not_block_writers(repository: Path) -> None:
    result = threading.Event()

    def read() -> None:
        with _opened(repository) as connection:
            while not result.is_set():
                connection.query_value("1")

    reading = threading.Thread(target=read)
    reading.start()
    try:
        with _opened(repository) as writing:
            writing.execute([_mark("while reading", "1")], at=ROOT_BRANCH)
    finally:
        result.set()
        reading.join()


def test_two_writers_wait_for_each_other(repository: Path) -> None:
    with _opened(repository) as one, _opened(repository) as other:
        for number in range(3):
            one.execute([_mark("one", str(number))], at=ROOT_BRANCH)
            other.execute([_mark("other", str(number))], at=ROOT_BRANCH)
        assert (_marker(one, "other"), _marker(other, "one")) == ("2", "2")


def test_waiting_writer_raises_busy_after_timeout(repository: Path) -> None:
    with _opened(repository) as busy, _opened(repository, timeout=0.5) as waiting, busy.transaction(ROOT_BRANCH):
        busy.execute([_mark("busy", "1")], at=ROOT_BRANCH)
        time.sleep(2 * shell.IDLE_SECONDS)  # a transaction is not idle
        assert _marker(waiting, "busy") == "", "readers do not wait, and see what is committed"
        with pytest.raises(Busy):
            waiting.execute([_mark("waiting", "1")], at=ROOT_BRANCH)
    with _opened(repository) as fresh:
        assert (_marker(fresh, "busy"), _marker(fresh, "waiting")) == ("1", "")


def test_program_that_is_killed_within_a_transaction_stores_nothing_of_it(opened: ShellConnection) -> None:
    def killed() -> None:
        with opened.transaction(ROOT_BRANCH):
            opened.execute([_mark("killed", "1")], at=ROOT_BRANCH)
            opened._session._process.send_signal(signal.SIGKILL)
            opened.execute([_mark("after", "1")], at=ROOT_BRANCH)

    with pytest.raises(EngineFailed):
        killed()
    assert (_marker(opened, "killed"), _marker(opened, "after")) == ("", "")


def test_block_that_fails_leaves_nothing(opened: ShellConnection) -> None:
    with contextlib.suppress(KeyError), opened.transaction(ROOT_BRANCH):
        opened.execute([_mark("failed", "1")], at=ROOT_BRANCH)
        raise KeyError
    assert _marker(opened, "failed") == ""


def test_snapshot_stays_as_it_was_while_another_writes(repository: Path) -> None:
    with _opened(repository) as reading, _opened(repository) as writing:
        reading.end_session()
        writing.execute([_mark("seen", "before")], at=ROOT_BRANCH)
        with reading.snapshot(ROOT_BRANCH):
            assert _marker(reading, "seen") == "before"
            thread = threading.Thread(
                target=writing.execute, args=([_mark("seen", "after")],), kwargs={"at": ROOT_BRANCH}
            )
            thread.start()
            time.sleep(0.3)
            with reading.snapshot(ROOT_BRANCH):
                assert _marker(reading, "seen") == "before"
            assert _marker(reading, "seen") == "before", "the inner one has ended nothing"
        thread.join()
        assert _marker(reading, "seen") == "after"


def test_branch_name_is_rejected_as_a_revision(repository: Path) -> None:
    engine = DoltEngine.open(repository)
    with pytest.raises(RevisionMissing):
        engine.count_documents(ROOT_BRANCH)
    engine.close()


def test_engine_uses_the_server_that_has_the_repository_open(repository: Path, tmp_path: Path) -> None:
    server = DoltServer(dolt.copy_repository(repository, tmp_path / "kb"))
    server.start()
    engine = DoltEngine.open(server.folder)
    try:
        base = store(engine, "served", document("a"))
        collection = Collection("guide", embedding_dimensions=7)
        engine.write("served", Write(put_collections=[collection]), expected=base)
        assert engine.find_branch("served") == KbBranch("served", base, dirty=True)
        assert engine.list_collections(WorkingSet("served")) == [collection]
        after = commit(engine, "served")
        assert engine.diff(base, after).collections[0].after == collection
        assert (engine.is_ancestor(base, after), engine.is_ancestor(after, base)) == (True, False)
        engine.collect_garbage()
        assert engine.count_documents(after) == 1
    finally:
        engine.close()
        server.stop()


def test_checkout_that_keeps_the_pin_starts_no_program(tmp_path, monkeypatch):
    """Counted by a program of that name that notes each start."""
    real = dolt.require()
    isolate(monkeypatch, tmp_path / "home")
    folder, starts = tmp_path / "bin", tmp_path / "starts"
    folder.mkdir()
    starts.touch()
    (folder / "dolt").write_text(f'#!/bin/sh\necho "$@" >> {starts}\nexec {real} "$@"\n')
    (folder / "dolt").chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)
    project = new_project(tmp_path / "project")
    project.vmrag("init", "--knowledge-base", "--no-sources", "--engine", "dolt")
    project.record("first", faq="A kettle boils water.")
    project.git("branch", "other")

    def started(*command):
        before = starts.stat().st_size
        project.git(*command, env=ON)
        return starts.stat().st_size != before

    assert started("status") is False
    started("switch", "-q", "other")  # what a clean branch has is known from here on
    assert not started("switch", "-q", "main")
    assert not started("switch", "-q", "-c", "third")
    assert not started("checkout", "-q", "--detach")
    assert not started("switch", "-q", "main")
    assert project.status()["in_sync"]
    dolt.run(project.shared / "kb", "--use-db", "kb/main", "sql", "-q", "UPDATE documents SET content = 'Red.'")
    assert not started("switch", "-q", "other"), "somebody has written, which the next command sees"
    project.git("switch", "-q", "main", env=ON)
    assert project.texts() == {"faq.md": "Red."}
