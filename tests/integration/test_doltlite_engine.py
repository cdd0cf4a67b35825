"""Behaviour of the embedded engine alone: its library, its one file, and damage to it."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sqlite3
import string
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.dolt import await_next_second
from tests.support.engines import AUTHOR, DATE, ROOT, Engines, commit, document, head, put, root, store
from tests.support.long import LONG, examples
from tests.support.pace import slack
from vmrag_link.engines.base import SCHEMA_VERSION
from vmrag_link.engines.doltlite import extent
from vmrag_link.engines.doltlite.connection import Connection
from vmrag_link.engines.doltlite.engine import DoltliteEngine
from vmrag_link.engines.doltlite.session import COMPACTED_NAME
from vmrag_link.engines.folder import DOLTLITE_FILE as FILE_NAME
from vmrag_link.engines.own_branches import KEEP_BRANCH, UNFINISHED_BRANCH
from vmrag_link.errors import (
    Busy,
    ContentRefused,
    EngineFailed,
    FileFailed,
    NameInvalid,
    NotInitialized,
    SchemaTooNew,
)
from vmrag_link.models import WorkingSet

DOLTLITE = Engines("doltlite")


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[DoltliteEngine]:
    made = DOLTLITE.create(tmp_path / "kb")
    yield made
    made.close()


# -- connections


def test_texts_pass_exactly_and_to_their_end(tmp_path: Path) -> None:
    with Connection(tmp_path / "t", access="create") as connection:
        for text in ("", "a\0b\0", "\0", "🙂" * 1000, "\ufeff\r\n"):
            assert connection.execute("SELECT ?, ?, ?, 1.5, x'00ff'", (text, None, -(2**63))) == [
                (text, None, -(2**63), 1.5, b"\0\xff")
            ]
        with pytest.raises(ContentRefused):
            connection.execute("SELECT ?", ("\ud800",))


def test_uncommitted_rows_are_read_on_one_connection_until_a_write(engine: DoltliteEngine) -> None:
    opened: list[str | None] = []
    connection = engine._session.open_connection
    engine._session.open_connection = lambda at: opened.append(at) or connection(at)  # type: ignore[method-assign]
    engine.create_branch("main", root(engine))
    put(engine, "main", document("a"), document("b"))

    def read() -> list[str]:
        opened.clear()
        first = next(headers := engine.read_headers(WorkingSet("main")))  # one that is left before its end
        headers.close()
        assert engine.find_document(WorkingSet("main"), first.collection, first.doc_id)
        return [document.doc_id for document in engine.read_documents(WorkingSet("main"))]

    assert read() == ["a", "b"]
    assert opened == ["main"]
    assert read() == ["a", "b"]
    assert not opened
    with contextlib.closing(DOLTLITE.open(engine.folder)) as other:
        put(other, "main", document("c"))
        assert read() == ["a", "b", "c"]
        before = commit(other, "main")
        store(other, "main", document("d"))
        assert read() == ["a", "b", "c", "d"]
        other.move_branch("main", before, expected=head(other, "main"))
    assert read() == ["a", "b", "c"]


def test_text_that_is_not_utf8_is_a_failure_not_a_replacement(tmp_path: Path) -> None:
    with Connection(tmp_path / "t", access="create") as connection, pytest.raises(EngineFailed, match="UTF-8"):
        connection.execute("SELECT CAST(x'ff' AS TEXT)")


def test_transaction_that_fails_leaves_nothing_and_the_connection_usable(tmp_path: Path) -> None:
    with Connection(tmp_path / "t", access="create") as connection:
        connection.execute("CREATE TABLE t(a PRIMARY KEY)")
        with pytest.raises(EngineFailed) as failed, connection.transaction():
            connection.executemany("INSERT INTO t VALUES (?)", [("a",), ("b",), ("a",)])
        assert failed.value.details["sqlite_code"] & 0xFF == 19
        with contextlib.suppress(KeyboardInterrupt), connection.transaction():
            connection.execute("INSERT INTO t VALUES ('c')")
            raise KeyboardInterrupt
        with connection.transaction():
            connection.execute("INSERT INTO t VALUES ('d')")
        assert connection.execute("SELECT a FROM t") == [("d",)]


def test_closed_connection_raises_engine_failed(tmp_path: Path) -> None:
    connection = Connection(tmp_path / "t", access="create")
    stream = connection.stream("VALUES (1), (2)")
    next(stream)
    connection.close()
    connection.close()
    with pytest.raises(EngineFailed, match="closed"):
        next(stream)
    with pytest.raises(EngineFailed, match="closed"):
        connection.execute("SELECT 1")


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="descriptors are listed by Linux")
def test_unused_connection_keeps_no_descriptor(tmp_path: Path) -> None:
    file = tmp_path / FILE_NAME
    connection = Connection(file, access="create")
    connection.execute("CREATE TABLE t (x)")
    assert file in held(tmp_path)
    del connection
    assert held(tmp_path) == []


def held(folder: Path) -> list[Path]:
    """The files of this folder that this process has open."""
    links = [Path(path.readlink()) for path in Path("/proc/self/fd").iterdir() if path.is_symlink()]
    return [link for link in links if link.is_relative_to(folder)]


def test_engine_waits_for_foreign_writer_and_then_reports_busy(engine: DoltliteEngine) -> None:
    engine.create_branch("main", root(engine))
    impatient = DOLTLITE.open(engine.folder, lock_timeout=0.3)
    with Connection(engine.folder / FILE_NAME) as foreign, foreign.transaction():
        foreign.execute("INSERT INTO vmrag_meta VALUES ('k', 'v')")
        started = time.monotonic()
        with pytest.raises(Busy):
            put(impatient, "main", document("a"))
        assert 0.2 < time.monotonic() - started < 2 * slack()
    impatient.close()


INTERRUPTED = """
import sys
from pathlib import Path
from vmrag_link.engines.doltlite import extent
from vmrag_link.engines.doltlite.connection import Connection
connection = Connection(Path(sys.argv[1]), access='create')
NEVER = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT {} FROM n"
print("ready", flush=True)
try:
    {call}
except KeyboardInterrupt:
    print("interrupted", connection.execute("SELECT 1"), flush=True)
"""


@pytest.mark.parametrize(
    "call",
    ["connection.execute_long(NEVER.format('count(*)'))", "for row in connection.stream(NEVER.format('x')): pass"],
)
def test_ctrl_c_ends_a_long_statement_and_leaves_the_connection_usable(tmp_path: Path, call: str) -> None:
    program = INTERRUPTED.replace("{call}", call)
    with subprocess.Popen(
        [sys.executable, "-c", program, tmp_path / "t"], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout.readline() == "ready\n"
        time.sleep(0.2)
        child.send_signal(signal.SIGINT)
        assert child.stdout.readline() == "interrupted [(1,)]\n"
        assert child.wait(10) == 0


def test_failure_in_a_long_statement_is_raised(tmp_path: Path) -> None:
    with Connection(tmp_path / "t", access="create") as connection:
        with pytest.raises(EngineFailed, match="absent"):
            connection.execute_long("SELECT * FROM absent")
        with pytest.raises(ContentRefused):
            connection.execute_long("SELECT ?", ("\ud800",))


# -- the file


@pytest.mark.parametrize(
    "content",
    [b"", b"garbage " * 5000, b"\0" * 100_000, b"x"],
    ids=["empty", "garbage", "zeros", "one byte"],
)
def test_open_rejects_other_files_and_keeps_them(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / FILE_NAME
    path.write_bytes(content)
    with pytest.raises(EngineFailed) as refused:
        DOLTLITE.open(tmp_path)
    assert str(path) in refused.value.message
    assert refused.value.hint
    assert path.read_bytes() == content


def test_databases_of_others_and_directories_are_refused(tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    with contextlib.closing(sqlite3.connect(tmp_path / "plain" / FILE_NAME)) as plain:
        plain.execute("CREATE TABLE documents(a)")
    (tmp_path / "foreign").mkdir()
    Connection(tmp_path / "foreign" / FILE_NAME, access="create").close()
    (tmp_path / "directory" / FILE_NAME).mkdir(parents=True)
    for name in ("plain", "foreign", "directory"):
        with pytest.raises(EngineFailed):
            DOLTLITE.open(tmp_path / name)


def test_truncated_file_shows_a_state_that_was_committed_or_is_refused(engine: DoltliteEngine, tmp_path: Path) -> None:
    revisions = [store(engine, "main", document(f"d{number}", "x" * 3000)) for number in range(10)]
    engine.close()
    whole = (engine.folder / FILE_NAME).read_bytes()
    for share in (0.01, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99, 0.999):
        folder = tmp_path / str(share)
        folder.mkdir()
        (folder / FILE_NAME).write_bytes(whole[: int(len(whole) * share)])
        try:
            cut = DOLTLITE.open(folder)
        except EngineFailed:
            continue
        branch = cut.find_branch("main")
        if branch is not None:
            assert branch.head in (root(cut), *revisions)
            assert [d.content for d in cut.read_documents(branch.head)] == ["x" * 3000] * cut.count_documents(
                branch.head
            )
        cut.close()


def test_deleted_file_is_not_created_again(engine: DoltliteEngine) -> None:
    engine.create_branch("main", root(engine))
    engine.close()
    (engine.folder / FILE_NAME).unlink()
    with pytest.raises(NotInitialized):
        DOLTLITE.open(engine.folder)
    with pytest.raises(EngineFailed):
        Connection(engine.folder / FILE_NAME, at="main")
    assert not (engine.folder / FILE_NAME).exists()


def test_disk_that_takes_no_more_is_a_failure_that_loses_nothing(engine: DoltliteEngine) -> None:
    store(engine, "main", document("a"))
    body = """
import resource, signal
from vmrag_link.errors import EngineFailed
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
limit = (engine.folder / 'kb.doltlite').stat().st_size + 100_000
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
try:
    put(engine, 'main', *(document(f'{i}', os.urandom(5000).hex()) for i in range(200)))
except EngineFailed as error:
    print('refused', error.message, bool(error.hint), engine.count_documents(WorkingSet('main')), flush=True)
"""
    with DOLTLITE.child(engine.folder, body) as child:
        said = child.stdout.read()
    assert said.startswith("refused the "), said
    assert said.endswith("True 1\n"), said
    assert store(engine, "main", document("b"))
    assert engine.count_documents(WorkingSet("main")) == 2


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere: a read-only directory means nothing")
def test_read_only_directory_refuses_writes_with_a_hint(engine: DoltliteEngine) -> None:
    engine.create_branch("main", root(engine))
    engine.close()
    (engine.folder / FILE_NAME).chmod(0o444)
    engine.folder.chmod(0o555)
    try:
        with pytest.raises(FileFailed):
            put(DOLTLITE.open(engine.folder), "main", document("a"))
    finally:
        engine.folder.chmod(0o755)


def test_folder_that_cannot_be_made_is_a_failure_with_a_hint(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(FileFailed) as failed:
        DOLTLITE.create(tmp_path / "file" / "kb")
    assert failed.value.hint


@pytest.mark.parametrize("name", ["kb@main", "a@b@c", "with space", "ü🙂", "q?mode=ro", "h#x%20y", "'quote'"])
def test_folder_can_have_any_name(tmp_path: Path, name: str) -> None:
    engine = DOLTLITE.create(tmp_path / name / "kb")
    revision = store(engine, "x@y", document("a"))
    put(engine, "x@y", document("b"))
    assert (engine.count_documents(revision), engine.count_documents(WorkingSet("x@y"))) == (1, 2)
    engine.close()
    again = DOLTLITE.open(tmp_path / name / "kb")
    assert again.has_revision(revision)
    again.close()
    assert [path.name for path in tmp_path.iterdir()] == [name]


# -- creating


def test_kill_while_creating_leaves_nothing_half_made(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from tests.support.engines import *\n"
        "print('ready', flush=True)\nEngines('doltlite').create(Path(sys.argv[1]))"
    )
    chance, complete = random.Random(2), 0
    for attempt in range(examples(12)):
        folder = tmp_path / str(attempt)
        with subprocess.Popen([sys.executable, "-c", program, folder], cwd=ROOT, stdout=subprocess.PIPE) as child:
            child.stdout.readline()
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(chance.uniform(0.0, 0.06))
            child.kill()
        try:
            engine = DOLTLITE.open(folder)
            complete += 1
        except NotInitialized:
            engine = DOLTLITE.create(folder)
        assert engine.count_documents(root(engine)) == 0
        assert store(engine, "main", document("a"))
        assert sorted(p.name for p in folder.iterdir() if not p.name.startswith(".")) == [
            extent.EXTENT_NAME,
            FILE_NAME,
            "write.lock",
        ]
        assert not list(folder.glob(".creating/*"))
        engine.close()


def test_readers_of_one_revision_do_not_disturb_each_other(engine: DoltliteEngine) -> None:
    revision = store(engine, "b", *(document(f"d{number}") for number in range(5)))
    slow, documents = engine.read_documents(revision), engine.read_documents(revision)
    first, _ = next(slow), next(documents)
    assert [document.doc_id for document in engine.read_documents(revision)] == [f"d{number}" for number in range(5)]
    documents.close()
    engine.collect_garbage()
    assert engine.count_documents(revision) == 5
    assert [document.doc_id for document in (first, *slow)] == [f"d{number}" for number in range(5)]


def test_everything_works_without_a_branch_main(engine: DoltliteEngine) -> None:
    assert [branch.name for branch in engine.list_branches()] == ["vmrag_root"]
    kept = store(engine, "topic", document("a"))
    engine.move_branch("topic", root(engine), expected=kept)
    engine.anchor_revision(kept, reason="moved away from")
    engine.collect_garbage()
    engine.close()
    again = DOLTLITE.open(engine.folder)
    assert [branch.name for branch in again.list_branches()] == ["topic", KEEP_BRANCH, "vmrag_root"]
    assert again.count_documents(kept) == 1
    again.create_branch("main", kept)
    again.delete_branch("main", expected=kept)
    again.close()


# -- schema


def test_knowledge_base_of_newer_program_is_refused_with_both_versions(engine: DoltliteEngine) -> None:
    old = store(engine, "main", document("a"))
    with Connection(engine.folder / FILE_NAME, at="main") as connection, connection.transaction():
        connection.execute("UPDATE vmrag_meta SET value = '7' WHERE key = 'schema_version'")
    for ask in (
        lambda: engine.count_documents(WorkingSet("main")),
        lambda: put(engine, "main", document("b")),
        lambda: engine.diff(old, WorkingSet("main")),
        lambda: commit(engine, "main"),
    ):
        with pytest.raises(SchemaTooNew, match=rf"version 7.* {SCHEMA_VERSION}\."):
            ask()
    assert engine.count_documents(old) == 1, "older revisions can still be read"
    with Connection(engine.folder / FILE_NAME) as connection, connection.transaction():
        connection.execute("UPDATE vmrag_meta SET value = '7' WHERE key = 'schema_version'")
    with pytest.raises(SchemaTooNew):
        DOLTLITE.open(engine.folder)


@pytest.mark.parametrize(
    ("column", "value"), [("distance", "manhattan"), ("chunking", "{"), ("chunking", '{"strategy":"x"}')]
)
def test_invalid_foreign_collection_is_rejected_by_name(engine: DoltliteEngine, column: str, value: str) -> None:
    with Connection(engine.folder / FILE_NAME) as connection, connection.transaction():
        row = {"distance": "cosine", "chunking": "{}", column: value}
        connection.execute(
            "INSERT INTO collections VALUES ('odd', '', '{}', '', '', 0, ?, ?, '', '')",
            (row["distance"], row["chunking"]),
        )
    with pytest.raises(EngineFailed, match="'odd'"):
        engine.list_collections(WorkingSet("vmrag_root"))


# -- branch names


def test_rule_for_branch_names_is_the_engines_own(engine: DoltliteEngine) -> None:
    """The library accepts and a connection reaches each name that the rule allows; few other names
    are accepted.
    """
    chance = random.Random(9)
    alphabet = string.printable + "éß🙂" + "@./-{~^:*[\\" * 4 + "abc" * 12
    names = {"".join(chance.choices(alphabet, k=chance.randrange(1, 7))) for _ in range(examples(600))}
    names |= {
        "a.lock",
        "a.lock/b",
        "lock",
        "@",
        "@@",
        "a@{",
        "0" * 40,
        "0" * 39,
        "A" * 40,
        "-",
        "a-",
        "Working",
        "staged",
    }
    assert not engine.is_legal_branch_name("v" * 32), "to Dolt it is a revision"
    legal = 0
    for name in sorted(names):
        if engine.is_legal_branch_name(name):
            legal += 1
            store(engine, name, document("a", name))
            assert next(engine.read_documents(WorkingSet(name))).content == name
            engine.delete_branch(name, expected=head(engine, name))
        else:
            with pytest.raises(NameInvalid):
                engine.create_branch(name, root(engine))
            with pytest.raises(EngineFailed):
                engine._session.writer.execute("SELECT dolt_branch(?, ?)", (name, root(engine)))
    assert legal > examples(600) // 4


# -- anchors and garbage


def test_unfinished_branch_of_a_killed_process_is_dropped(engine: DoltliteEngine) -> None:
    revision = store(engine, "main", document("a"))
    before = engine.list_branches()
    engine.create_branch(UNFINISHED_BRANCH, revision)
    assert (engine.list_branches(), engine.find_branch(UNFINISHED_BRANCH)) == (before, None)
    engine.move_branch("main", root(engine), expected=revision)
    assert head(engine, KEEP_BRANCH) == revision
    engine.collect_garbage()
    assert engine._session.main.execute("SELECT 1 FROM dolt_branches WHERE name = ?", (UNFINISHED_BRANCH,)) == []
    assert engine.has_revision(revision)


KILLED_AT = """
import signal
left = {statements}
prepared = Connection._prepare_statement
def counted(self, sql):
    global left
    left -= 1
    if left < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return prepared(self, sql)
Connection._prepare_statement = counted
revision, theirs = {revision!r}, {theirs!r}
{what}
"""
KILLED_IN = {
    "commit_onto": "engine.commit_onto(revision, [Write(put_documents=[document('m', str({statements}))])],\n"
    "    joining=theirs, message='m', author=AUTHOR, date=DATE)",
    "an anchor": "engine.move_branch('main', root(engine), expected=revision)",
}


@pytest.mark.parametrize("what", KILLED_IN.values(), ids=list(KILLED_IN))
@pytest.mark.sample(1)
def test_kill_between_two_statements_of_an_operation_lets_no_revision_go(engine: DoltliteEngine, what: str) -> None:
    theirs = store(engine, "theirs", document("t"))
    store(engine, "main", document("first"))
    engine.move_branch("main", root(engine), expected=head(engine, "main"))  # something is kept already
    revisions = []
    for statements in range(1, 200, 3 if LONG else 12):
        revisions.append(store(engine, "main", document("a", str(statements))))
        values = {"statements": statements, "revision": revisions[-1], "theirs": theirs}
        body = KILLED_AT.format(what=what.format(statements=statements), **values)
        with DOLTLITE.child(engine.folder, body) as child:
            code = child.wait(30)
        if head(engine, "main") == revisions[-1]:
            engine.move_branch("main", root(engine), expected=revisions[-1])
        assert engine.find_unreachable(revisions) == []
        if code == 0:
            break
        assert code == -signal.SIGKILL
    assert (code, len(revisions) > 5) == (0, True)
    engine.commit_onto(root(engine), [], joining=theirs, message="the next merge", author=AUTHOR, date=DATE)
    engine.collect_garbage()
    assert [engine.count_documents(revision) for revision in revisions] == [1] * len(revisions)


def test_anchor_costs_a_few_kilobytes_with_any_contents(engine: DoltliteEngine) -> None:
    base = store(engine, "main", *(document(f"d{number:03}", "x" * 2000 + str(number)) for number in range(500)))
    path, grown = engine.folder / FILE_NAME, []
    for number in range(5):
        revision = store(engine, "main", *(document(f"d{place:03}", f"{number}") for place in range(200)))
        before = path.stat().st_size
        engine.move_branch("main", base, expected=revision)
        grown.append(path.stat().st_size - before)
    assert max(grown) < 12_000, grown  # the first pays for letting go of the tables


def test_revision_of_unrelated_history_can_be_read_but_is_not_reachable(engine: DoltliteEngine, tmp_path: Path) -> None:
    mine = store(engine, "main", document("same"), document("mine"))
    engine.create_branch(KEEP_BRANCH, mine)
    await_next_second()  # the engine's own initial commit carries the one in which it was made
    other = DOLTLITE.create(tmp_path / "other")
    theirs = store(other, "topic", document("same"), document("theirs"))
    (tmp_path / "remote").mkdir()
    url = f"file://{tmp_path}/remote/r.db"
    for kb, call in ((other, "dolt_push('r', 'topic')"), (engine, "dolt_fetch('r')")):
        kb._session.writer.execute("SELECT dolt_remote('add', 'r', ?)", (url,))
        kb._session.writer.execute(f"SELECT {call}")
    other.close()
    assert engine.has_revision(theirs)
    assert engine.merge_base(mine, theirs) is None
    assert not engine.is_ancestor(root(engine), theirs)
    assert engine.find_unreachable([theirs, mine]) == [theirs]
    assert [(c.kind, c.key[1]) for c in engine.diff(mine, theirs).documents] == [
        ("removed", "mine"),
        ("added", "theirs"),
    ]
    before = engine.list_branches()
    with pytest.raises(EngineFailed):
        engine.anchor_revision(theirs, reason="pinned")
    assert engine.list_branches() == before


def test_interrupted_collection_changes_nothing(engine: DoltliteEngine) -> None:
    put_all = [document(f"d{number:05}", os.urandom(1000).hex()) for number in range(3000)]
    store(engine, "main", *put_all)
    put(engine, "main", document("uncommitted"))
    with DOLTLITE.child(engine.folder, "print('ready', flush=True)\nengine.collect_garbage()") as child:
        child.stdout.readline()
        time.sleep(0.02)
        child.send_signal(signal.SIGINT)
        child.wait(30)
    assert engine.count_documents(WorkingSet("main")) == 3001
    put(engine, "main", document("after"))


def test_large_commit_is_compacted_and_everything_stays(engine: DoltliteEngine) -> None:
    noise = random.Random(3)
    texts = [noise.randbytes(3000).hex() for _ in range(1200)]
    first = store(engine, "main", *(document(f"d{n:04}", text) for n, text in enumerate(texts)))
    compacted = engine.folder / COMPACTED_NAME
    size = int(compacted.read_text())
    assert size == (engine.folder / FILE_NAME).stat().st_size
    put(engine, "main", document("uncommitted"))
    other = store(engine, "other", document("small"))
    assert int(compacted.read_text()) == size, "a small commit is not worth it"
    engine.move_branch("other", root(engine), expected=other)
    store(engine, "third", *(document(f"e{n:04}", text[::-1]) for n, text in enumerate(texts)))
    assert int(compacted.read_text()) > size
    assert [d.content for d in engine.read_documents(first)] == texts
    assert engine.count_documents(WorkingSet("main")) == len(texts) + 1
    assert engine.has_revision(other)
