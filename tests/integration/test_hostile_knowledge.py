"""A knowledge base that came from somebody else may hold anything: nothing of it runs, fills the disk, or is read before it proved to be ours."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from vmrag_link.engines.doltlite.connection import Connection
from vmrag_link.errors import EngineFailed

ENDLESS = "WITH RECURSIVE r(x) AS (VALUES(1) UNION ALL SELECT x + 1 FROM r) SELECT max(x) FROM r"
REWRITES = "CREATE TRIGGER t AFTER INSERT ON documents BEGIN UPDATE documents SET title = 'rewritten'; END"
NEVER_ENDS = f"CREATE TRIGGER t AFTER INSERT ON documents BEGIN UPDATE documents SET title = ({ENDLESS}); END"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    file = tmp_path / "t"
    with Connection(file, access="create") as connection:
        connection.execute("CREATE TABLE documents(id, title)")
    return file


# -- one connection --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("trigger", [REWRITES, NEVER_ENDS])
def test_a_trigger_in_a_file_does_not_run(table, trigger):
    with Connection(table) as connection:
        connection.execute(trigger)
    with Connection(table, longest_step=5) as connection:
        connection.execute("INSERT INTO documents VALUES (1, 'mine')")
        assert connection.execute("SELECT * FROM documents") == [(1, "mine")]


def test_a_view_in_a_file_is_not_read(table):
    with Connection(table) as connection:
        connection.execute("CREATE VIEW seen AS SELECT * FROM documents")
    with Connection(table) as connection, pytest.raises(EngineFailed, match="prohibited"):
        connection.execute("SELECT * FROM seen")


def test_a_statement_without_end_is_given_up_and_leaves_nothing_locked(table):
    with Connection(table, longest_step=0.1) as connection:
        with pytest.raises(EngineFailed, match=r"given up after 0\.1 s"), connection.transaction():
            connection.execute("INSERT INTO documents VALUES (1, 'mine')")
            connection.execute(ENDLESS)
        with Connection(table, timeout=0) as other, other.transaction():
            other.execute("INSERT INTO documents VALUES (2, 'theirs')")
        assert connection.execute("SELECT id FROM documents") == [(2,)]


def test_rows_that_take_long_together_are_no_statement_without_end(table):
    with Connection(table, longest_step=0.2) as connection:
        for _ in connection.stream("VALUES (1), (2), (3)"):
            time.sleep(0.15)
