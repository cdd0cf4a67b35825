"""The yardstick of a fresh build: its necessary parts in the fewest lines.

Documents are read, cut, and hashed; their cached vectors become rows of int8; words, manifest and
vectors are written: without names, checks or locks. It works on the knowledge base and the cache of
vectors of a repository that `bench.knowledge` made, and imports nothing of vmrag, so that whatever
slows vmrag down does not slow the yardstick as well.

`python bare_build.py KB REVISION VECTORS MODEL FOLDER`
"""

from __future__ import annotations

import array
import ctypes
import hashlib
import importlib.util
import itertools
import os
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path

PIECE = 512
AT_ONCE = 1_000
DOCUMENTS = "SELECT collection_name, doc_id, title, content, content_hash, metadata FROM {table} ORDER BY 1, 2"
WORDS = "CREATE VIRTUAL TABLE keywords USING fts5(text, tokenize = 'porter unicode61')"
MANIFEST = """CREATE TABLE documents (collection_id INTEGER, doc_id TEXT, title TEXT, content_hash TEXT, metadata TEXT,
              first INTEGER, chunks INTEGER, UNIQUE (collection_id, doc_id));
              CREATE INDEX documents_by_slot ON documents (collection_id, first);"""


def rows(database: Path, sql: str) -> Iterator[list[str]]:
    """Yield the rows of a statement whose columns are texts."""
    (path,) = Path(importlib.util.find_spec("doltlite").origin).parent.glob("_lib/libdoltlite.*")
    lib = ctypes.CDLL(str(path), mode=os.RTLD_NOW | getattr(os, "RTLD_DEEPBIND", 0))
    lib.sqlite3_column_text.restype = ctypes.c_char_p
    handle, statement = ctypes.c_void_p(), ctypes.c_void_p()
    lib.sqlite3_open(os.fsencode(database), ctypes.byref(handle))
    lib.sqlite3_prepare_v2(handle, sql.encode(), -1, ctypes.byref(statement), None)
    columns = range(lib.sqlite3_column_count(statement))
    while lib.sqlite3_step(statement) == 100:
        yield [lib.sqlite3_column_text(statement, column).decode() for column in columns]


def database(path: Path, script: str) -> sqlite3.Connection:
    made = sqlite3.connect(path, isolation_level=None)
    made.executescript(f"PRAGMA synchronous = OFF; {script}; BEGIN")
    return made


def rounded(floats: bytes) -> bytes:
    """float32 → int8, rounded by the addition itself: the lowest byte of x + 1.5 · 2^52."""
    values = array.array("f", floats)
    return array.array("d", [317.5 * value + 6755399441055744.0 for value in values]).tobytes()[::8]


def main(knowledge: Path, revision: str, cache: Path, model: str, folder: Path) -> None:
    folder.mkdir()
    vectors = sqlite3.connect(f"file:{cache}?mode=ro", uri=True)
    words, manifest = database(folder / "keywords.sqlite", WORDS), database(folder / "manifest.sqlite", MANIFEST)
    read = rows(knowledge, DOCUMENTS.format(table=f"dolt_at_documents('{revision}')"))
    slot = 0
    with (folder / "vectors.i8").open("wb") as out:
        while some := [*itertools.islice(read, AT_ONCE)]:
            listed, pieces, keys = [], [], []
            for _, doc_id, title, text, content_hash, metadata in some:
                cut = [text[at : at + PIECE] for at in range(0, len(text), PIECE)]
                listed.append((1, doc_id, title, content_hash, metadata, slot, len(cut)))
                pieces += [(slot + number, piece) for number, piece in enumerate(cut)]
                slot += len(cut)
            for _, piece in pieces:
                chunk = hashlib.sha256(piece.encode()).hexdigest()
                keys.append(hashlib.blake2b(f"{model}\0{chunk}".encode(), digest_size=16).digest())
            manifest.executemany("INSERT INTO documents VALUES (?, ?, ?, ?, ?, ?, ?)", listed)
            words.executemany("INSERT INTO keywords(rowid, text) VALUES (?, ?)", pieces)
            marks = ", ".join("?" * len(keys))
            vectors_by_key = dict(vectors.execute(f"SELECT key, vector FROM vectors WHERE key IN ({marks})", keys))
            out.write(rounded(b"".join(vectors_by_key[key] for key in keys)))
    for connection in (words, manifest):
        connection.execute("COMMIT")
    print(slot)


main(*map(Path, sys.argv[1:2]), sys.argv[2], Path(sys.argv[3]), sys.argv[4], Path(sys.argv[5]))
