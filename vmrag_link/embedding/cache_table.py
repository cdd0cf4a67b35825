"""The tables of the cache of vectors, on an open connection: rows with checksums, and their last
use.

A checksum covers the key of a row (which identifies model and text) and its vector.

`uses` has the day of the last use of each block of 64 adjacent rows, because rows that are stored
together are usually used together. A day per vector would make reading 10,000 vectors a third
slower. A day in the rows of the vectors would rewrite all of them once a day.
"""

from __future__ import annotations

import array
import contextlib
import hashlib
import itertools
import math
import sqlite3
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from vmrag_link.embedding.base import Vector
from vmrag_link.models import Record

APPLICATION_ID = 0x766D6563
"""`vmec` in the header of the file identifies a database as this cache in this format."""

FLOAT32 = 4
KEY_BYTES = 16
BLOCK = 64
MEGABYTE = 1_000_000
DAY_SECONDS = 86_400

# A rowid table: WITHOUT ROWID is four times as slow.
_VECTORS = "vectors (key BLOB NOT NULL UNIQUE, vector BLOB NOT NULL, checksum BLOB)"
STORE = "INSERT OR REPLACE INTO vectors (key, vector, checksum) VALUES (?, ?, ?)"
_USES = "uses (block INTEGER PRIMARY KEY, day INTEGER NOT NULL)"
# A block without an entry was last used on the day on which this file was created.
_DAY = "CAST(coalesce(uses.day, (SELECT user_version FROM pragma_user_version)) AS INTEGER)"
_BLOCKS = f"FROM vectors LEFT JOIN uses ON uses.block = vectors.rowid / {BLOCK}"


class Row(NamedTuple):
    """A row of the table of vectors."""

    id: int
    key: bytes
    vector: Vector
    checksum: bytes

    @property
    def is_sound(self) -> bool:
        """See `is_proven`."""
        return is_proven(self.key, self.vector, self.checksum)


class Boundary(Record, frozen=True):
    """The last block to remove: the first `number` vectors in the order of (day, block) exceed the
    limits.
    """

    number: int = 0
    day: int = 0
    block: int = 0


def create_tables(connection: sqlite3.Connection) -> None:
    with transaction(connection):
        connection.execute(f"CREATE TABLE {_VECTORS}")
        connection.execute(f"CREATE TABLE {_USES}")
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {_count_days()}")


def is_proven(key: object, vector: object, checksum: object) -> bool:
    """Return whether a row is what was stored. A damaged row may have values of any type."""
    if not isinstance(key, bytes) or not isinstance(vector, bytes) or not 0 < len(key) <= KEY_BYTES:
        return False
    return checksum == _compute_digest(key, vector)


def compute_checksum(key: bytes, vector: Vector) -> bytes:
    """Return the checksum of a row; empty for a vector with NaN or infinity, so that it is never
    valid.
    """
    numbers = array.array("f", vector[: len(vector) - len(vector) % FLOAT32])
    return _compute_digest(key, vector) if math.isfinite(sum(numbers)) else b""


def _compute_digest(key: bytes, vector: Vector) -> bytes:
    """Return a digest of a row. Another row has the same digest with a probability of 2^-64."""
    return hashlib.blake2b(vector, digest_size=8, key=key).digest()


def open_connection(path: Path, timeout: float) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=timeout, isolation_level=None)
    connection.text_factory = lambda text: text.decode(errors="replace")  # a damaged blob may be read as text
    return connection


def read_rows(connection: sqlite3.Connection, *, backwards: bool = False) -> Iterator[Row]:
    """Yield every row of the table, without using its index. Raises `sqlite3.Error` for a damaged
    file.
    """
    order = "DESC" if backwards else "ASC"
    rows = connection.execute(
        f"SELECT rowid, key, vector, checksum FROM vectors NOT INDEXED ORDER BY rowid {order}"  # noqa: S608
    )
    return map(Row._make, rows)


def find_damaged_rows(connection: sqlite3.Connection) -> list[int]:
    """Return the ids of damaged rows."""
    return [row.id for row in read_rows(connection) if not row.is_sound]


def has_cache_table(file: Path) -> bool:
    """Return whether a file of unknown origin has the cache's table. A view in its place could be
    endless.
    """
    with contextlib.closing(open_connection(file, 0)) as connection, contextlib.suppress(sqlite3.Error):
        tables = connection.execute("SELECT type, sql FROM sqlite_master WHERE name = 'vectors'").fetchall()
        return tables == [("table", f"CREATE TABLE {_VECTORS}")]
    return False


def salvage_rows(connection: sqlite3.Connection, damaged: Path) -> int:
    """Copy the undamaged rows of another file, from both ends up to the damage, and return their
    number.
    """
    keys: set[bytes] = set()
    row_limit = damaged.stat().st_size // KEY_BYTES  # pages that refer to each other could yield endless rows
    with contextlib.closing(open_connection(damaged, 0)) as source, transaction(connection):
        for backwards in (False, True):
            with contextlib.suppress(sqlite3.Error):
                for row in itertools.islice(read_rows(source, backwards=backwards), row_limit):
                    if row.key in keys and backwards:
                        break
                    if row.is_sound:
                        connection.execute(STORE, row[1:])
                        keys.add(row.key)
        mark_used(connection, range(find_last_block(connection) + 1))
    return len(keys)


def _count_days() -> int:
    """Return the number of days since 1970, UTC."""
    return int(time.time() // DAY_SECONDS)


def note_use(connection: sqlite3.Connection, used: set[int]) -> None:
    """Record that these blocks were used today, unless it is already recorded."""
    if not used:
        return
    bounds = (_count_days(), min(used), max(used))
    noted = connection.execute("SELECT block FROM uses WHERE day >= ? AND block BETWEEN ? AND ?", bounds)
    new_blocks = used.difference(block for (block,) in noted)
    if new_blocks:
        connection.execute("PRAGMA busy_timeout = 0")
        # If the file is busy or read-only, or the disk is full, a later call records the use.
        with contextlib.suppress(sqlite3.OperationalError), transaction(connection):
            mark_used(connection, new_blocks)


def mark_used(connection: sqlite3.Connection, blocks: Iterable[int]) -> None:
    """Record that these blocks were used today."""
    today = _count_days()
    rows = [(block, today) for block in sorted(blocks)]
    connection.executemany("INSERT OR REPLACE INTO uses (block, day) VALUES (?, ?)", rows)


def find_last_block(connection: sqlite3.Connection) -> int:
    last: int = connection.execute("SELECT coalesce(max(rowid), 0) FROM vectors").fetchone()[0]
    return last // BLOCK


def find_boundary(connection: sqlite3.Connection, megabytes: int, days: int) -> Boundary:
    """Return the last block to remove for these limits."""
    rows = connection.execute(
        f"SELECT {_DAY} AS day, vectors.rowid / {BLOCK} AS block, count(*) {_BLOCKS} GROUP BY 1, 2 ORDER BY 1, 2"
    ).fetchall()
    total = sum(count for _, _, count in rows)
    allowed = math.floor(megabytes * MEGABYTE / measure_vector_bytes(connection)) if megabytes and total else total
    oldest = _count_days() - days if days else 0
    boundary = Boundary()
    for day, block, count in rows:
        if day >= oldest and total - boundary.number <= allowed:
            break
        boundary = Boundary(boundary.number + count, day, block)
    return boundary


def measure_vector_bytes(connection: sqlite3.Connection) -> float:
    """Return the bytes of the file for each vector."""
    pages, size, number = connection.execute(
        "SELECT page_count, page_size, (SELECT count(*) FROM vectors) FROM pragma_page_count, pragma_page_size"
    ).fetchone()
    return float(pages * size / max(number, 1))


def copy_rows(connection: sqlite3.Connection, target: Path, megabytes: int, days: int) -> int:
    """Write the rows within the limits to a new file, and return the number of the other rows.

    This does not wait for the disk.
    """
    boundary = find_boundary(connection, megabytes, days)
    last_removed = boundary.day, boundary.block
    connection.execute("ATTACH ? AS kept", (str(target),))
    connection.execute("PRAGMA kept.journal_mode = OFF")
    connection.execute("PRAGMA kept.synchronous = OFF")
    created = connection.execute("PRAGMA user_version").fetchone()[0]
    with transaction(connection):
        connection.execute(f"CREATE TABLE kept.{_VECTORS}")
        connection.execute(f"CREATE TABLE kept.{_USES}")
        within = f"WHERE ({_DAY}, vectors.rowid / {BLOCK}) > (?, ?)"
        connection.execute(
            # A row that a damaged index has lost was stored again, so the newer row wins.
            f"INSERT OR REPLACE INTO kept.vectors (rowid, key, vector, checksum) "
            f"SELECT vectors.rowid, key, vector, checksum {_BLOCKS} {within} ORDER BY vectors.rowid",
            last_removed,
        )
        connection.execute("INSERT INTO kept.uses SELECT * FROM main.uses WHERE (day, block) > (?, ?)", last_removed)
        connection.execute(f"PRAGMA kept.application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA kept.user_version = {created}")
    connection.execute("DETACH kept")
    return boundary.number


@contextlib.contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        connection.rollback()
        raise
