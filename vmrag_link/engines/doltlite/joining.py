"""The engine's own merge, of which a commit takes nothing but its second parent."""

from __future__ import annotations

from vmrag_link.engines.doltlite.connection import Connection
from vmrag_link.errors import EngineFailed


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
