"""A foreign knowledge base may contain anything: none of it runs, fills the disk, or is read before
its schema is verified.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.test_travel_tampering import Data
from tests.support import people, travel
from tests.support.doltlite_server import doltlite_server
from tests.support.engines import AUTHOR, DATE, document, head, root, store
from tests.support.people import User
from tests.support.repos import Repo
from tests.support.travel import LONG, Clone, Pair, git_clone
from vmrag_link import hints
from vmrag_link import pin as pins
from vmrag_link.documents import chunking as chunking_of_documents
from vmrag_link.documents.chunking import split_text
from vmrag_link.engines.base import SCHEMA_VERSION, Write
from vmrag_link.engines.doltlite import history, schema
from vmrag_link.engines.doltlite.connection import Connection
from vmrag_link.engines.doltlite.engine import DoltliteEngine
from vmrag_link.engines.doltlite.schema import STATEMENTS
from vmrag_link.engines.folder import DOLTLITE_FILE as FILE_NAME
from vmrag_link.engines.limits import Limits
from vmrag_link.engines.own_branches import KEEP_BRANCH
from vmrag_link.errors import EngineFailed, KnowledgeRefused, LimitExceeded
from vmrag_link.models import Chunking, content_hash
from vmrag_link.pin import Pin
from vmrag_link.transport import connection

home, pair, _pair = travel.home, travel.pair, travel._pair
shared, world = people.shared, people.world

ENDLESS = "WITH RECURSIVE r(x) AS (VALUES(1) UNION ALL SELECT x + 1 FROM r) SELECT max(x) FROM r"
REWRITES = "CREATE TRIGGER t AFTER INSERT ON documents BEGIN UPDATE documents SET title = 'rewritten'; END"
NEVER_ENDS = f"CREATE TRIGGER t AFTER INSERT ON documents BEGIN UPDATE documents SET title = ({ENDLESS}); END"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    file = tmp_path / "t"
    with Connection(file, access="create") as connection:
        connection.execute("CREATE TABLE documents(id, title)")
    return file


# -- one connection --------------------------------------------------------------------------------


@pytest.mark.parametrize("trigger", [REWRITES, NEVER_ENDS])
def test_trigger_in_a_file_does_not_run(table, trigger):
    with Connection(table) as connection:
        connection.execute(trigger)
    with Connection(table, max_step_seconds=5) as connection:
        connection.execute("INSERT INTO documents VALUES (1, 'mine')")
        assert connection.execute("SELECT * FROM documents") == [(1, "mine")]


def test_view_in_a_file_is_not_read(table):
    with Connection(table) as connection:
        connection.execute("CREATE VIEW seen AS SELECT * FROM documents")
    with Connection(table) as connection, pytest.raises(EngineFailed, match="prohibited"):
        connection.execute("SELECT * FROM seen")


def test_statement_without_end_is_given_up_and_leaves_nothing_locked(table):
    def write(connection: Connection) -> None:
        with connection.transaction():
            connection.execute("INSERT INTO documents VALUES (1, 'mine')")
            connection.execute(ENDLESS)

    with Connection(table, max_step_seconds=0.1) as connection:
        with pytest.raises(EngineFailed, match=r"aborted after 0\.1 s"):
            write(connection)
        with Connection(table, timeout=0) as other, other.transaction():
            other.execute("INSERT INTO documents VALUES (2, 'theirs')")
        assert connection.execute("SELECT id FROM documents") == [(2,)]


def test_rows_slow_only_together_do_not_exceed_the_step_limit(table):
    with Connection(table, max_step_seconds=0.2) as connection:
        for _ in connection.stream("VALUES (1), (2), (3)"):
            time.sleep(0.15)


def test_our_own_tables_are_known_as_the_engine_writes_them_down():
    with Connection(Path(":memory:"), access="create") as connection:
        schema.create_tables(connection)
        schema.require_known_schema(connection, "it")
        history.create_links_table(connection)
        with pytest.raises(KnowledgeRefused, match="git_links"):
            schema.require_known_schema(connection, "it")
        schema.require_known_schema(connection, "it", also=history.LINK_OBJECTS)


@pytest.mark.parametrize("blank", ["\u00a0", "\u2003", "\u0085"])
def test_column_with_an_invisible_prefix_is_a_different_column(blank):
    with Connection(Path(":memory:"), access="create") as connection:
        for statement in STATEMENTS[SCHEMA_VERSION]:
            connection.execute(statement.replace("content LONGTEXT", f"{blank}content LONGTEXT"))
        connection.execute("INSERT INTO vmrag_meta VALUES ('schema_version', ?)", (str(SCHEMA_VERSION),))
        with pytest.raises(KnowledgeRefused, match="documents"):
            schema.require_known_schema(connection, "it")


# -- what is fetched -------------------------------------------------------------------------------

HOSTILE = {
    "a trigger that rewrites documents": (REWRITES,),
    "a trigger that never ends": (NEVER_ENDS,),
    "a view under the name of our table": (
        "ALTER TABLE documents RENAME TO hidden",
        "CREATE VIEW documents AS SELECT * FROM hidden",
    ),
    "a virtual table": ("CREATE VIRTUAL TABLE words USING fts5(text)",),
    "one table more": ("CREATE TABLE extra(x)",),
    "an index on an expression": ("CREATE INDEX i ON documents(printf('%.*c', 10, title))",),
    "a table under the name of a function": ("CREATE TABLE json_each(key, value)",),
}


def evil(file: Path, base: str, *statements: str, name: str = "evil") -> str:
    """Create a revision that vmrag never makes, at the head of a separate branch."""
    with Connection(file) as connection:
        connection.execute("SELECT dolt_branch(?, ?)", (name, base))
    with Connection(file, at=name) as connection:
        for statement in statements:
            connection.execute(statement)
        return str(connection.execute("SELECT dolt_commit('-A', '-m', 'x', '--author', 'Eve <e@v.e>')")[0][0])


def of_ada(pair: Pair, *statements: str, name: str = "evil", base: str = "") -> str:
    engine = pair.ada.engine
    return evil(engine.folder / FILE_NAME, base or head(engine, "main"), *statements, name=name)


OTHER_TYPES = {
    "bytes for a text": ("UPDATE documents SET content = x'ff41'",),
    "nothing for metadata": ("UPDATE documents SET metadata = NULL",),
    "bytes for a name": ("UPDATE documents SET doc_id = CAST(doc_id AS BLOB)",),
    "a text for a number": ("UPDATE collections SET embedding_dimensions = 'x'",),
}


@pytest.mark.parametrize("rows", OTHER_TYPES)
@pytest.mark.sample(1)
def test_rows_with_something_else_than_texts_are_not_fetched(rows, pair):
    before, heads = pair.bob.state(), pair.bob.heads()
    of_ada(pair, *OTHER_TYPES[rows])
    pair.ada.push("origin", "evil")
    with pytest.raises(KnowledgeRefused):
        pair.bob.fetch()
    assert (pair.bob.state(), pair.bob.heads()) == (before, heads)


@pytest.mark.parametrize("value", ["x'ff41'", "CAST(x'ff41' AS TEXT)"])
def test_pin_at_invalid_rows_leaves_old_answers_with_a_note(world, value):
    ada, bob = world.ada, world.join("bob")
    old = bob.ask("query", "certificates")["kb"]["commit"]
    mended = f"UPDATE documents SET content = 'x', content_hash = '{content_hash('x')}'"
    pin_revision_below_head(ada, old, f"UPDATE documents SET content = {value}", mended)
    bob.git("pull", "-q")
    answer = bob.ask("query", "certificates")
    assert answer["kb"]["commit"] == old
    assert "syncing to it failed" in answer["notes"][0]
    assert bob.vmrag("sync", "--json", code=3).error["code"] == "DATABASE_ERROR"


NO_RECORDS = {
    "metadata that is no JSON": "UPDATE documents SET metadata = '[1'",
    "numbers that are none": """UPDATE documents SET metadata = '{"a":{"b":1e999}}'""",
    "metadata in other bytes": """UPDATE documents SET metadata = '{"a": 1}'""",
    "another hash": "UPDATE documents SET content_hash = '../../x'",
    "a distance that nobody knows": "UPDATE collections SET distance = 'x'",
    "code, whose pieces a stranger names": (
        """UPDATE collections SET chunking = '{"overlap":0,"size":1500,"strategy":"code"}'"""
    ),
    "what seems to be files": "UPDATE collections SET kind = 'source'",
    "what seems to be only indexed": "UPDATE collections SET kind = 'external'",
    "a collection's metadata": "UPDATE collections SET metadata = 'nope'",
    "an issue log's metadata, deep enough to end a parser": (
        "INSERT INTO issue_logs VALUES ('a', 'p', 1, 't', 'x', "
        f"'{content_hash('x')}', 'resolution', '', '', '{{\"a\":{'[' * 5000}{']' * 5000}}}')"
    ),
    "a text that is not UTF-8": "UPDATE documents SET title = CAST(x'ff41' AS TEXT)",
}


@pytest.mark.parametrize("rows", NO_RECORDS)
@pytest.mark.sample(1)
def test_rows_that_we_could_not_have_written_are_not_fetched(rows, pair):
    before, heads = pair.bob.state(), pair.bob.heads()
    bad = of_ada(pair, NO_RECORDS[rows])
    pair.ada.push("origin", "evil")
    with pytest.raises(KnowledgeRefused, match=f"refusing to fetch .*{bad[:12]}"):
        pair.bob.fetch()
    assert (pair.bob.state(), pair.bob.heads()) == (before, heads)


def stored(folder: Path) -> int:
    """Bytes of all files, but for the note of what was refused, logs and locks."""
    files = [path for path in folder.rglob("*") if path.is_file() and path.name != "refused.json"]
    return sum(file.stat().st_size for file in files)


@pytest.mark.parametrize("schema", HOSTILE)
@pytest.mark.sample(1)
def test_remote_with_anything_but_our_tables_is_refused_and_leaves_nothing(schema, pair):
    before, heads, size = pair.bob.state(), pair.bob.heads(), stored(pair.bob.places.shared)
    bad = of_ada(pair, *HOSTILE[schema])
    pair.ada.push("origin", "evil")
    with pytest.raises(KnowledgeRefused, match=bad[:12]) as caught:
        pair.bob.fetch()
    assert caught.value.hint
    assert not pair.bob.engine.has_revision(bad)
    assert stored(pair.bob.places.shared) == size
    assert (pair.bob.state(), pair.bob.heads()) == (before, heads)
    with pytest.raises(KnowledgeRefused, match=bad[:12]):
        pair.bob.push()
    assert pair.bob.state() == before


@pytest.mark.parametrize("schema", [*HOSTILE, "another version"])
@pytest.mark.parametrize("compare", ["count_changes", "diff", "diff_headers"])
def test_revision_with_anything_but_our_tables_is_compared_with_none(schema, compare, pair):
    """Revisions with the contents of the root are compared without opening them; others are
    rejected.
    """
    engine, good = pair.ada.engine, head(pair.ada.engine, "main")
    bad = of_ada(pair, *HOSTILE.get(schema, ("UPDATE vmrag_meta SET value = '1'",)))
    getattr(engine, compare)(good, good)
    for ends in ((good, bad), (bad, good)):
        with pytest.raises(KnowledgeRefused, match=bad[:12]):
            getattr(engine, compare)(*ends)


def test_fresh_clone_refuses_hostile_knowledge_and_accepts_later_sound_state(pair):
    of_ada(pair, REWRITES)
    good = pair.tip
    pair.ada.push("origin", "evil")
    fresh = git_clone(pair.hub.top, pair.folder / "fresh")
    with pytest.raises(KnowledgeRefused, match="trigger 't'"):
        fresh.clone_knowledge()
    assert not DoltliteEngine.exists(fresh.places.kb)
    assert stored(fresh.places.shared) < 20_000  # an empty git repository
    pair.hub.git("update-ref", travel.DATA_REF, good)
    assert fresh.clone_knowledge()
    fresh.close()


def put(pair: Pair, file: Path) -> None:
    """Everything of Ada's into a remote file."""
    with contextlib.closing(Clone(pair.ada.repo.top)) as ada:
        where = ada.at(f"file://{file}")
        ada.engine.push(where.key, where.url, {branch.name: branch.head for branch in ada.engine.list_branches()})


@contextlib.contextmanager
def reached(file: Path, kind: str) -> Iterator[str]:
    """A remote file, by itself or behind a server."""
    if kind == "file":
        yield f"file://{file}"
        return
    with doltlite_server(file.parent) as url:
        yield f"{url}/{file.name}"


@pytest.mark.parametrize("kind", ["file", "http"])
def test_engine_fetch_rejects_triggers_and_keeps_old_state(kind, pair):
    file = pair.folder / "served" / "kb"
    file.parent.mkdir(mode=0o700)
    sound = pair.ada.record("sound")
    put(pair, file)
    with reached(file, kind) as where:
        assert pair.bob.fetch(where)
        before = pair.bob.state()[0]
        bad = of_ada(pair, REWRITES)
        put(pair, file)
        with pytest.raises(KnowledgeRefused, match="trigger 't'"):
            pair.bob.fetch(where)
        fresh = git_clone(pair.hub.top, pair.folder / "fresh")
        with pytest.raises(KnowledgeRefused, match="trigger 't'"):
            fresh.clone_knowledge(where)
    assert [path.name for path in fresh.places.kb.iterdir()] == ["write.lock"]
    pair.bob.close()
    engine = pair.bob.engine
    assert not engine.has_revision(bad)
    assert engine.find_document(sound, "guide", "sound")
    assert [branch for branch in engine.list_branches() if branch.name != KEEP_BRANCH] == before
    assert engine.find_damage() == ""


@pytest.mark.parametrize("kind", ["file", "http"])
def test_oversized_remote_file_is_not_fetched(kind, pair):
    file = pair.folder / "served" / "kb"
    file.parent.mkdir(mode=0o700)
    revision = pair.ada.record("large", LONG)
    put(pair, file)
    with contextlib.closing(DoltliteEngine.open(pair.bob.places.kb, limits=Limits(file_bytes=200_000))) as engine:
        with reached(file, kind) as where, pytest.raises(KnowledgeRefused, match="limit of 0 MB"):
            engine.fetch("url-x", where)
        assert not engine.has_revision(revision)
        assert engine.remote_heads("url-x") == {}


def test_hostile_old_revision_of_sound_history_is_neither_read_nor_merged(pair):
    """The head has repaired the old revision, so the fetch includes it; a pin may name it."""
    bad = of_ada(pair, NEVER_ENDS)
    of_ada(pair, "DROP TRIGGER t", name="mended", base=bad)
    pair.ada.push("origin", "mended")
    assert pair.bob.fetch()
    engine = pair.bob.engine
    engine.create_branch("here", bad)
    ours = pair.bob.record("ours", branch="bob")
    sides = {"message": "m", "author": AUTHOR, "date": DATE}
    for action in (
        lambda: list(engine.read_documents(bad)),
        lambda: engine.count_changes(bad, ours),
        lambda: engine.diff(ours, bad),
        lambda: engine.diff_headers(ours, bad),
        lambda: engine.read_document_history(bad, "handbook", "x"),
        lambda: engine.write("here", Write(put_documents=[document("x")]), expected=bad),
        lambda: engine.commit_onto(bad, [], **sides),
        lambda: engine.commit_onto(ours, [], joining=bad, **sides),
    ):
        with pytest.raises(KnowledgeRefused, match="trigger 't'"):
            action()
    with engine.write_lock("see that nothing is locked", timeout=0):
        assert engine.find_refusal(bad)
    assert not engine.find_refusal(ours)


# -- how much --------------------------------------------------------------------------------------


def bomb(hub: Repo, listed: int) -> None:
    """One blob, listed many times."""
    data = Data.of(hub)
    size = 256 * 1024
    data.put("000000", bytes(size))
    blob = data.entries["000000"]
    data.entries = {f"{number:06d}": blob for number in range(listed)}
    digest = hashlib.sha256(bytes(size)).hexdigest()
    data.manifest = {"format": 1, "size": listed * size, "segment_size": size, "sha256": [digest] * listed}
    data.publish()


def test_compressed_bomb_is_refused_before_it_is_written(pair):
    before, size = pair.bob.state(), stored(pair.bob.places.shared)
    bomb(pair.hub, 3000)
    fresh = git_clone(pair.hub.top, pair.folder / "fresh")
    for action in (pair.bob.fetch, pair.bob.fetch, fresh.clone_knowledge):
        with pytest.raises(KnowledgeRefused, match="one segment 3,000 times"):
            action()
    assert (pair.bob.state(), stored(pair.bob.places.shared)) == (before, size)
    assert not fresh.copy.exists()


def test_rejected_data_is_not_fetched_again(pair):
    good = pair.tip
    bomb(pair.hub, 3000)
    with pytest.raises(KnowledgeRefused):
        pair.bob.fetch()
    blob = pair.hub.git("rev-parse", f"{travel.DATA_REF}:manifest.json")
    (pair.hub.top / "objects" / blob[:2] / blob[2:]).unlink()  # a fetch would notice
    with pytest.raises(KnowledgeRefused, match="one segment 3,000 times"):
        pair.bob.fetch()
    pair.hub.git("update-ref", travel.DATA_REF, good)
    revision = pair.ada.record("next")
    pair.ada.push()
    assert pair.bob.fetch()
    assert pair.bob.heads() == {"main": revision}


def test_replace_contents_restores_a_rejected_remote(pair):
    good = pair.bob.heads()
    bomb(pair.hub, 3000)

    def write(key: str, url: str) -> None:
        engine = pair.bob.engine
        engine.push(key, url, {"vmrag_root": root(engine)} | good)

    with connection.open_git_transport(pair.bob.places, pair.bob.engine, pair.bob.at(), timeout=0) as peer:
        with pytest.raises(KnowledgeRefused):
            peer.fetch()
        peer.replace_contents(write)
    assert pair.ada.fetch()
    assert pair.ada.heads() == good


def pinned(user: User, revision: str) -> None:
    """A commit of the code that pins it, by hand."""
    user.write(".dolt-version", pins.format_pin(Pin("git:", "main", revision, DATE)).decode())
    user.git("commit", "-q", "--no-verify", "-am", "a pin")
    user.git("push", "-q", "--no-verify")


def pin_revision_below_head(user: User, old: str, statement: str, repair: str) -> None:
    """Pin and push the result of the statement on a revision; then `repair` restores a sound head
    of the branch.
    """
    eve = Clone(user.top)
    bad = evil(eve.engine.folder / FILE_NAME, old, statement)
    evil(eve.engine.folder / FILE_NAME, bad, repair, name="mended")
    eve.push("origin", "mended")
    eve.close()
    pinned(user, bad)


@pytest.mark.parametrize(
    ("setting", "said"), [("knowledge-mb", "limit of 1 MB"), ("document-mb", "a document of more than 1 MB")]
)
@pytest.mark.sample(1)
def test_old_knowledge_answers_until_the_limit_is_raised(world, setting, said):
    bob = world.join("bob")
    bob.ask("query", "certificates")
    old = bob.pinned
    with contextlib.closing(Clone(world.ada.top)) as ada:
        ada.engine.create_branch("big", old)
        revision = store(ada.engine, "big", document("big", LONG * 2))
        ada.push("origin", "big")
    pinned(world.ada, revision)
    bob.git("config", f"vmrag.limits.{setting}", "1")
    bob.git("pull", "-q")
    answer = bob.ask("query", "certificates")
    assert answer["results"]
    assert answer["kb"]["commit"] == old
    assert said in answer["notes"][0]
    error = bob.vmrag("fetch", "--json", code=3).error
    assert error["code"] == "KNOWLEDGE_REFUSED"
    command = hints.list_commands(error["hint"])[0].split()
    assert command[:2] == ["git", "config"]
    bob.git(*command[1:])
    assert bob.ask("fetch")["here"]


def test_oversized_own_document_is_rejected_with_the_setting(world):
    ada = world.ada
    ada.git("config", "vmrag.limits.document-mb", "1")
    before = ada.ask("list")
    ada.write("docs/big.md", "x" * 1_100_000)
    error = ada.vmrag("import", "docs", "--collection", "handbook", "--copy", "--json", code=3).error
    assert "limits.document_mb" in error["message"]
    assert ada.ask("list") == before
    ada.git("config", "vmrag.limits.document-mb", "2")
    ada.vmrag("import", "docs", "--collection", "handbook", "--copy")


# -- what is pinned --------------------------------------------------------------------------------


def test_pin_at_hostile_revision_keeps_old_knowledge_answering_with_a_note(world):
    ada, bob = world.ada, world.join("bob")
    old = bob.ask("query", "certificates")["kb"]["commit"]
    pin_revision_below_head(ada, old, NEVER_ENDS, "DROP TRIGGER t")
    bob.git("pull", "-q")
    answer = bob.ask("query", "certificates")
    assert answer["kb"]["commit"] == old
    assert "trigger 't'" in answer["notes"][0]
    status = bob.ask("status", code=1)
    assert "trigger 't'" in json.dumps(status)
    bob.write("docs/new.md", "new")
    error = bob.vmrag("import", "docs", "--collection", "handbook", "--copy", "--json", code=3).error
    assert (error["code"], "trigger 't'" in error["message"]) == ("KNOWLEDGE_REFUSED", True)
    bob.vmrag("pin", old)
    bob.vmrag("import", "docs", "--collection", "handbook", "--copy")  # nothing is locked


# -- what a collection demands ---------------------------------------------------------------------


@pytest.mark.parametrize("chunking", [Chunking(size=1, overlap=0), Chunking(size=20_000, overlap=19_999)])
def test_collection_that_makes_too_many_chunks_is_stopped(chunking, monkeypatch):
    monkeypatch.setattr(chunking_of_documents, "MAX_CHUNKS", 10_000)
    with pytest.raises(LimitExceeded):
        split_text("x" * 120_000, chunking)


def test_small_texts_and_usual_sizes_meet_no_limit():
    assert len(split_text("x" * 3000, Chunking(size=1, overlap=0))) == 3000
    assert split_text("word " * 100_000, Chunking())
