"""Ways to spoil an index that travels by a store that anybody may write to."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

from vmrag_link.embedding import cache_table
from vmrag_link.index import seal
from vmrag_link.ops.index.portable import INDEXES, VECTORS

Poison = Callable[[Path], None]


def _index(folder: Path) -> Path:
    [found] = (folder / INDEXES).iterdir()
    return found


def _resealed(index: Path) -> None:
    """A forger seals what was changed."""
    known = seal.read(index)
    seal.write(index, format=known.format, revision=known.revision)


@contextlib.contextmanager
def _changing(database: Path) -> Iterator[sqlite3.Connection]:
    with contextlib.closing(sqlite3.connect(database)) as connection, connection:
        yield connection


def truncated(folder: Path) -> None:
    path = _index(folder) / "manifest.sqlite"
    path.write_bytes(path.read_bytes()[:4096])


def unsealed(folder: Path) -> None:
    (_index(folder) / seal.SEAL).unlink()


def forged_text(folder: Path) -> None:
    index = _index(folder)
    with _changing(index / "keywords.sqlite") as words:
        words.execute("UPDATE keywords SET text = text || ' forged'")
    _resealed(index)


def forged_words(folder: Path) -> None:
    """The texts stay, and the lists say that the words are elsewhere."""
    index = _index(folder)
    with _changing(index / "keywords.sqlite") as words:
        texts = words.execute("SELECT rowid, text FROM keywords").fetchall()
        words.executemany("UPDATE keywords SET text = 'certificates' WHERE rowid = ?", [(row,) for row, _ in texts])
        words.executemany("UPDATE keywords_content SET c0 = ? WHERE id = ?", [(text, row) for row, text in texts])
    _resealed(index)


def forged_document(folder: Path) -> None:
    index = _index(folder)
    with _changing(index / "manifest.sqlite") as manifest:
        manifest.execute("UPDATE documents SET content_hash = 'f00' WHERE rowid = 1")
    _resealed(index)


def forged_vectors(folder: Path) -> None:
    """In the index and in the cache of vectors, each with its proof."""
    index = _index(folder)
    for path in index.glob("vectors-*.i8"):
        path.write_bytes(bytes(-each % 256 for each in path.read_bytes()))
    _resealed(index)
    with _changing(folder / VECTORS) as cache:
        for row, key, vector in cache.execute("SELECT rowid, key, vector FROM vectors").fetchall():
            negative = struct.pack(f"<{len(vector) // 4}f", *(-each for (each,) in struct.iter_unpack("<f", vector)))
            proof = cache_table.checksum(key, negative)
            cache.execute("UPDATE vectors SET vector = ?, checksum = ? WHERE rowid = ?", (negative, proof, row))


def link(folder: Path) -> None:
    path = _index(folder) / "manifest.sqlite"
    path.unlink()
    path.symlink_to("/etc/passwd")


def pipe(folder: Path) -> None:
    os.mkfifo(_index(folder) / "more")


def endless_file(folder: Path) -> None:
    """A seal that wants a file proven which has no end."""
    path = _index(folder) / seal.SEAL
    path.write_text(path.read_text().replace('"files":{', '"files":{"../../../../../../../../../dev/zero":"00",'))


def foreign_name(folder: Path) -> None:
    index = _index(folder)
    index.rename(index.with_name("..; rm -rf"))


def endless_view(folder: Path) -> None:
    """In the place of a table, in the index and in the cache of vectors."""
    index = _index(folder)
    for path, table, columns in (
        (index / "manifest.sqlite", "documents", "collection_id, doc_id, title, content_hash, metadata, first, chunks"),
        (folder / VECTORS, "vectors", "rowid, key, vector, checksum"),
    ):
        names = columns.split(", ")
        first, more = ", ".join(["1"] * len(names)), ", ".join([f"{names[0]} + 1", *names[1:]])
        with contextlib.closing(sqlite3.connect(path)) as database, database:
            database.execute(f"DROP TABLE {table}")
            database.execute(
                f"CREATE VIEW {table} AS WITH RECURSIVE endless({columns}) AS (SELECT {first} UNION ALL "
                f"SELECT {more} FROM endless) SELECT * FROM endless"
            )
    _resealed(index)


def no_database(folder: Path) -> None:
    (folder / VECTORS).write_bytes(b"not a database" * 1000)


POISONS: tuple[Poison, ...] = (
    truncated,
    unsealed,
    forged_text,
    forged_words,
    forged_document,
    forged_vectors,
    link,
    pipe,
    endless_file,
    foreign_name,
    endless_view,
)
