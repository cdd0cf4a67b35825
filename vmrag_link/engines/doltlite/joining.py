"""A commit with two parents, made on a branch of its own that nobody sees."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from vmrag_link.engines.doltlite import history
from vmrag_link.engines.doltlite.connection import Connection
from vmrag_link.errors import EngineFailed

_BRANCH = "vmrag_merge"


@contextlib.contextmanager
def hidden_branch(main: Connection, revision: str, connect: Callable[[str], Connection]) -> Iterator[Connection]:
    """A connection on a branch at the revision; the branch goes away, and what a kill leaves of it with the next one.

    The caller holds the write lock; `connect` opens a connection on a branch.
    """
    _drop(main)
    main.execute("SELECT dolt_branch(?, ?)", (_BRANCH, revision))
    try:
        with connect(_BRANCH) as connection:
            yield connection
    finally:
        _drop(main)


def _drop(main: Connection) -> None:
    if history.branch(main, _BRANCH):
        main.execute("SELECT dolt_branch('-D', ?)", (_BRANCH,))


def base(main: Connection, revision: str, joining: str) -> str:
    """The engine's merge base. Raises `EngineFailed` for unrelated histories."""
    found = history.merge_base(main, revision, joining)
    if found is None:
        raise EngineFailed(
            f"The revisions {revision[:12]} and {joining[:12]} have no history in common.",
            hint="They come from two knowledge bases; take the documents over by: vmrag show, vmrag import",
            revisions=[revision, joining],
        )
    return found


def begin(connection: Connection, joining: str) -> None:
    """Begin a merge in the open transaction: the next commit has `joining` as its second parent.

    Rows in conflict stay as they are on this side. Walks all rows, a microsecond each.
    """
    try:
        connection.execute("SELECT dolt_merge('--no-ff', '--no-commit', ?)", (joining,))
    except EngineFailed:
        tables = connection.execute('SELECT "table" FROM dolt_conflicts')
        if not tables:
            raise
        for (table,) in tables:
            connection.execute("SELECT dolt_conflicts_resolve('--ours', ?)", (table,))
