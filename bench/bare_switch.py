"""The yardstick of a switch: the necessary work, without names, checks, locks or words.

Row diff, cached vectors, copy of the snapshot, delete, add, swap: `python bare_switch.py FOLDER`,
on a folder that `bench.switch.prepared` made. It imports nothing of vmrag, so that whatever slows
vmrag down does not slow the yardstick as well.
"""

from __future__ import annotations

import array
import ctypes
import importlib.util
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import chromadb_rust_bindings as rust

OWNER = ("default_tenant", "default_database")
CHANGES = """SELECT to_doc_id, to_content, to_content_hash, from_content_hash
             FROM dolt_diff_documents('main', 'feature')"""


def rows(database: Path, sql: str) -> list[list[str]]:
    """What a statement of texts answers."""
    (path,) = Path(importlib.util.find_spec("doltlite").origin).parent.glob("_lib/libdoltlite.*")
    lib = ctypes.CDLL(str(path), mode=os.RTLD_NOW | getattr(os, "RTLD_DEEPBIND", 0))
    lib.sqlite3_column_text.restype = ctypes.c_char_p
    handle, statement = ctypes.c_void_p(), ctypes.c_void_p()
    lib.sqlite3_open(os.fsencode(database), ctypes.byref(handle))
    lib.sqlite3_prepare_v2(handle, sql.encode(), -1, ctypes.byref(statement), None)
    found = []
    while lib.sqlite3_step(statement) == 100:
        columns = range(lib.sqlite3_column_count(statement))
        found.append([lib.sqlite3_column_text(statement, column).decode() for column in columns])
    return found


def main(folder: Path) -> None:
    changes = rows(folder / "kb.db", CHANGES)
    cache = sqlite3.connect(folder / "emb.sqlite")
    vectors = []
    for *_, key, _ in changes:
        ((blob,),) = cache.execute("SELECT v FROM v WHERE k = ?", (bytes.fromhex(key),))
        vectors.append(array.array("f", blob).tolist())
    copy = folder / "tmpB"
    subprocess.run(["cp", "-r", "--reflink=auto", folder / "snapA", copy], check=True)
    config = rust.SqliteDBConfig(
        hash_type=rust.MigrationHash.MD5, migration_mode=rust.MigrationMode.Apply, url=str(copy / "chroma.sqlite3")
    )
    chroma = rust.Bindings(allow_reset=False, sqlite_db_config=config, persist_path=str(copy), hnsw_cache_size=200)
    collection = (folder / "cid").read_text()
    chroma.delete(collection, [old[:32] for *_, old in changes], None, None, None, *OWNER)
    chroma.add(
        [new[:32] for *_, new, _ in changes],
        collection,
        vectors,
        [{"source_id": name, "chunk_index": 0} for name, *_ in changes],
        [text for _, text, *_ in changes],
        None,
        *OWNER,
    )
    print(len(changes), chroma.count(collection, *OWNER))
    copy.rename(folder / "snapB")


main(Path(sys.argv[1]).absolute())
