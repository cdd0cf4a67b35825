"""Whether a database that came from elsewhere has our tables, and nothing else in their place."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path


def problem_of(path: Path, made: str) -> str:
    """Why the database is not one that the statements `made` define; empty if it is.

    A view in the place of a table could go on for ever.
    """
    place = f"{path.absolute().as_uri()}?mode=ro&immutable=1"
    with contextlib.closing(sqlite3.connect(":memory:")) as own:
        own.executescript(made)
        try:
            with contextlib.closing(sqlite3.connect(place, uri=True)) as given:
                return "" if _definitions(given) == _definitions(own) else "has other tables than ours"
        except sqlite3.Error as error:
            return f"cannot be read ({error})"


def _definitions(connection: sqlite3.Connection) -> set[tuple[str, ...]]:
    return set(connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_master"))
