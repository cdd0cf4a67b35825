"""The engine's own merge, of which a commit takes nothing but its second parent."""

from __future__ import annotations

from vmrag_link.engines.doltlite import history
from vmrag_link.engines.doltlite.connection import Connection
from vmrag_link.errors import EngineFailed


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

    Rows in conflict stay as they are on this side. Costs by what either changed.
    """
    try:
        connection.execute("SELECT dolt_merge('--no-ff', '--no-commit', ?)", (joining,))
    except EngineFailed:
        tables = connection.execute('SELECT "table" FROM dolt_conflicts')
        if not tables:
            raise
        for (table,) in tables:
            connection.execute("SELECT dolt_conflicts_resolve('--ours', ?)", (table,))
