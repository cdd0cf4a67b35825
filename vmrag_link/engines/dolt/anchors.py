"""The branch `vmrag_keep`, which reaches what no other branch does."""

from __future__ import annotations

from vmrag_link.engines.dolt import history, unfinished
from vmrag_link.engines.dolt.connection import SqlConnection
from vmrag_link.engines.dolt.literals import identifier
from vmrag_link.errors import EngineFailed

_AUTHOR = "vmrag <vmrag@localhost>"


def kept(connection: SqlConnection, head: str | None, revision: str, message: str) -> str:
    """The next head of a `vmrag_keep`, ours or a remote's, made to reach the revision too.

    No branch moves. A merge of the two would store content that nobody reads, and could conflict
    in tables. So both sides are commits without tables: a child of the revision, and a child of the
    old head unless that has no tables already. They are made on a branch of their own.

    The caller holds the write lock until something reaches the result.
    """
    if head is None:
        return revision
    if history.merge_base(connection, head, revision) is None:
        raise EngineFailed(
            f"The revision {revision[:12]} has no history in common with what is kept already.",
            hint="Give it a branch of its own.",
            revision=revision,
        )
    with unfinished.branch(connection, revision) as at:
        for row in connection.rows("SHOW TABLES", at=at):
            connection.change([f"DROP TABLE {identifier(str(name))}" for name in row.values()], at=at)
        emptied = _commit(connection, at, message)
        connection.call("dolt_reset", "--soft", head, at=at)
        _commit(connection, at, message)
        connection.call("dolt_merge", "--no-ff", "--author", _AUTHOR, "-m", message, emptied, at=at)
        return _head(connection, at)


def _commit(connection: SqlConnection, at: str, message: str) -> str:
    """The head afterwards; what is equal to its parent is not committed."""
    connection.call("dolt_commit", "-A", "--skip-empty", "--author", _AUTHOR, "-m", message, at=at)
    return _head(connection, at)


def _head(connection: SqlConnection, at: str) -> str:
    return str(connection.value("dolt_hashof('HEAD')", at=at))
