"""Words: one FTS5 table of the chunks' texts, ranked by BM25.

`rowid` is `row_id(collection, slot)`, so a collection is a range of rows and needs no join. BM25
depends on the contents, not on the order of insertion. Its last digits may differ between machines
and are rounded away.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

FILE = "keywords.sqlite"
SLOT_BITS = 40
DIGITS = 9

# English words that carry no topic: dropped from a query (never from the texts), unless nothing
# else is left.
STOP_WORDS = frozenset(
    (
        "a about all also an and any are as at be been but by can could did do does for from had has have how i if in into "
        "is it its me more my no not of on or our should so some such than that the their them then there these they this "
        "to was we were what when where which who why will with would you your"
    ).split()
)


def row_id(collection_id: int, slot: int) -> int:
    return (collection_id << SLOT_BITS) | slot


def collection_of(row: int) -> int:
    return row >> SLOT_BITS


def slot_of(row: int) -> int:
    return row & ((1 << SLOT_BITS) - 1)


def connect(folder: Path, *, frozen: bool = False) -> sqlite3.Connection:
    """A connection to the words of an index, made if absent. `frozen`: nobody changes the file
    meanwhile.
    """
    if frozen:
        return sqlite3.connect(f"{(folder / FILE).absolute().as_uri()}?mode=ro&immutable=1", uri=True)
    connection = sqlite3.connect(folder / FILE, isolation_level=None)
    try:
        connection.execute("PRAGMA synchronous = OFF")  # the index is derived: speed before durability
        connection.execute(
            "CREATE VIRTUAL TABLE IF NOT EXISTS keywords USING fts5(text, tokenize = 'porter unicode61')"
        )
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def add(connection: sqlite3.Connection, rows: Iterable[tuple[int, str]]) -> None:
    """One transaction."""
    connection.execute("BEGIN")
    connection.executemany("INSERT INTO keywords(rowid, text) VALUES (?, ?)", rows)
    connection.execute("COMMIT")


def remove(connection: sqlite3.Connection, ranges: Iterable[range]) -> None:
    """Remove the rows in these ranges, as one transaction."""
    connection.execute("BEGIN")
    # Row by row: FTS5 looks a single rowid up twenty times faster than it walks a range.
    connection.executemany("DELETE FROM keywords WHERE rowid = ?", ((row,) for each in ranges for row in each))
    connection.execute("COMMIT")


def count(connection: sqlite3.Connection, rows: range | None = None) -> int:
    """Number of rows: all, or those in a range."""
    low, high = (rows.start, rows.stop) if rows is not None else (0, 1 << 62)
    found = connection.execute("SELECT count(*) FROM keywords_docsize WHERE id >= ? AND id < ?", (low, high))
    return int(found.fetchone()[0])


def texts(connection: sqlite3.Connection, rows: Sequence[int]) -> dict[int, str]:
    """The texts of these rows."""
    found: dict[int, str] = {}
    for row in rows:
        for text in connection.execute("SELECT text FROM keywords WHERE rowid = ?", (row,)):
            found[row] = text[0]
    return found


def scan(connection: sqlite3.Connection, collection_id: int, slots: range) -> Iterator[tuple[int, str]]:
    """The slots in a range that hold a text, and their texts, ascending."""
    rows = row_id(collection_id, slots.start), row_id(collection_id, slots.stop)
    for row, text in connection.execute("SELECT rowid, text FROM keywords WHERE rowid >= ? AND rowid < ?", rows):
        yield slot_of(row), text


def search(connection: sqlite3.Connection, query: str, collection_id: int, depth: int) -> list[tuple[int, float]]:
    """The best `depth` rows of a collection by BM25 (higher is better, nine digits), and their
    ties.
    """
    words = match_expression(query)
    if not words:
        return []
    low, high = row_id(collection_id, 0), row_id(collection_id + 1, 0) - 1
    return [
        (int(row), float(score))
        for row, score in connection.execute(
            f"""
            WITH hits AS MATERIALIZED (
                SELECT rowid AS row, round(-bm25(keywords), {DIGITS}) AS score FROM keywords
                WHERE keywords MATCH ? AND rowid BETWEEN ? AND ?),
            cut AS (SELECT score FROM hits ORDER BY score DESC LIMIT 1 OFFSET ?)
            SELECT row, score FROM hits WHERE score >= coalesce((SELECT score FROM cut), -1e300)
            """,  # noqa: S608  the only thing pasted in is a constant
            (words, low, high, depth - 1),
        )
    ]


def match_expression(query: str) -> str:
    """An FTS5 expression that matches any of the query's words; empty when it has none."""
    words = list(dict.fromkeys(re.findall(r"\w+", query.lower())))
    telling = [word for word in words if word not in STOP_WORDS] or words
    return " OR ".join(f'"{word}"' for word in telling)
