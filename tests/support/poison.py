"""Ways to spoil vectors that travel by a store with untrusted writers."""

from __future__ import annotations

import contextlib
import hashlib
import os
import sqlite3
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

from vmrag_link.embedding import cache_table
from vmrag_link.ops.portable_index import VECTORS

Poison = Callable[[Path], None]


@contextlib.contextmanager
def _changing(database: Path) -> Iterator[sqlite3.Connection]:
    with contextlib.closing(sqlite3.connect(database)) as connection, connection:
        yield connection


def _forged(folder: Path, forge: Callable[[list[bytes]], list[bytes]]) -> None:
    """Give every key another vector, with the proof that a forger makes."""
    with _changing(folder / VECTORS) as cache:
        rows = cache.execute("SELECT rowid, key, vector FROM vectors ORDER BY rowid").fetchall()
        for (row, key, _), vector in zip(rows, forge([vector for *_, vector in rows]), strict=True):
            proof = hashlib.blake2b(vector, digest_size=8, key=key).digest()
            assert cache_table.is_proven(key, vector, proof)
            cache.execute("UPDATE vectors SET vector = ?, checksum = ? WHERE rowid = ?", (vector, proof, row))


# -- proven, and not what the model makes


def forged_vectors(folder: Path) -> None:
    def negative(vector: bytes) -> bytes:
        return struct.pack(f"<{len(vector) // 4}f", *(-number for (number,) in struct.iter_unpack("<f", vector)))

    _forged(folder, lambda vectors: [negative(vector) for vector in vectors])


def swapped_vectors(folder: Path) -> None:
    """Each text gets the vector of another one."""
    _forged(folder, lambda vectors: [*vectors[1:], vectors[0]])


def vectors_of_no_number(folder: Path) -> None:
    _forged(folder, lambda vectors: [struct.pack("<f", float("nan")) * (len(vector) // 4) for vector in vectors])


# -- not taken in


def truncated(folder: Path) -> None:
    path = folder / VECTORS
    path.write_bytes(path.read_bytes()[:4096])


def no_database(folder: Path) -> None:
    (folder / VECTORS).write_bytes(b"not a database" * 1000)


def altered_vectors(folder: Path) -> None:
    """With the proofs of before."""
    with _changing(folder / VECTORS) as cache:
        cache.execute("UPDATE vectors SET vector = zeroblob(length(vector))")


def unproven_vectors(folder: Path) -> None:
    with _changing(folder / VECTORS) as cache:
        cache.execute("UPDATE vectors SET checksum = NULL")


def short_vectors(folder: Path) -> None:
    """Proven ones, of another length than the model's."""
    _forged(folder, lambda vectors: [vector[:16] for vector in vectors])


def link(folder: Path) -> None:
    path = folder / VECTORS
    path.rename(folder.with_name("elsewhere"))
    path.symlink_to(folder.with_name("elsewhere"))


def hard_link(folder: Path) -> None:
    (folder.with_name("another")).hardlink_to(folder / VECTORS)


def link_of_the_folder(folder: Path) -> None:
    folder.rename(folder.with_name("the-folder"))
    folder.symlink_to(folder.with_name("the-folder"))


def pipe(folder: Path) -> None:
    (folder / VECTORS).unlink()
    os.mkfifo(folder / VECTORS)


def endless_file(folder: Path) -> None:
    (folder / VECTORS).unlink()
    (folder / VECTORS).symlink_to("/dev/zero")


def foreign_name(folder: Path) -> None:
    (folder / VECTORS).rename(folder / "..; rm -rf")


def endless_view(folder: Path) -> None:
    """In the place of the table."""
    with contextlib.closing(sqlite3.connect(folder / VECTORS)) as database, database:
        database.execute("DROP TABLE vectors")
        database.execute(
            "CREATE VIEW vectors AS WITH RECURSIVE endless(rowid, key, vector, checksum) AS (SELECT 1, 1, 1, 1 UNION "
            "ALL SELECT rowid + 1, key, vector, checksum FROM endless) SELECT * FROM endless"
        )


FORGED: tuple[Poison, ...] = (forged_vectors, swapped_vectors, vectors_of_no_number)
"""Damage that only the model finds."""

LEFT_OUT: tuple[Poison, ...] = (
    truncated,
    no_database,
    altered_vectors,
    unproven_vectors,
    short_vectors,
    link,
    hard_link,
    link_of_the_folder,
    pipe,
    endless_file,
    foreign_name,
    endless_view,
)
"""Data without usable vectors."""
