"""The branch on which a revision is made that no branch leads to yet. It counts as no branch."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from vmrag_link.engines.base import UNFINISHED_BRANCH
from vmrag_link.engines.dolt.connection import SqlConnection
from vmrag_link.engines.dolt.literals import literal


@contextlib.contextmanager
def branch(connection: SqlConnection, revision: str) -> Iterator[str]:
    """The branch, made at the revision and dropped at the end. Do not nest.

    The caller holds the write lock until the result is anchored.
    """
    # With -f: it is there after a kill, and where a session has proved by it that it may write.
    connection.call("dolt_branch", "-f", UNFINISHED_BRANCH, revision)
    try:
        yield UNFINISHED_BRANCH
    finally:
        drop(connection)


def drop(connection: SqlConnection) -> None:
    """Remove the branch, if it is there. The caller holds the write lock."""
    if connection.rows(f"SELECT 1 AS v FROM dolt_branches WHERE name = {literal(UNFINISHED_BRANCH)}"):
        connection.call("dolt_branch", "-D", UNFINISHED_BRANCH)
