"""Functions of Chroma's library for tests only: whether it is installed, to evaluate filters, and
the settings of an HNSW index; and Chroma's public client, in a separate process.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from typing import Any

import msgspec
import pytest

from vmrag_link.chroma.bindings import DATABASE, TENANT, ChromaStore

MISSING = "" if find_spec("chromadb") else "chromadb is not installed"
needs_chroma = pytest.mark.skipif(bool(MISSING), reason=MISSING)
"""Mark of tests that make or open a store; others do not need Chroma's library."""

REFUSALS = frozenset({"InvalidArgumentError", "InvalidWhereError", "ValueError", "TypeError"})
"""Chroma's errors for an argument that it does not take, by name: importing them takes 2 s."""


class Refused(Exception):
    """Chroma does not take a filter."""


def list_passing_ids(
    store: ChromaStore,
    collection_id: str,
    where: Mapping[str, Any] | None = None,
    where_document: Mapping[str, Any] | None = None,
) -> set[str]:
    """The ids of the rows that pass, as Chroma decides. Raises `Refused`."""
    filters = [msgspec.json.encode(condition).decode() if condition else None for condition in (where, where_document)]
    try:
        rows = store._rust.get(collection_id, None, filters[0], None, 0, filters[1], [], TENANT, DATABASE)
    except Exception as error:  # its classes take two seconds to import: told by name
        if type(error).__name__ in REFUSALS:
            raise Refused(str(error)) from error
        raise
    return set(rows.ids)


def hnsw_of(store: ChromaStore, name: str) -> dict[str, Any]:
    """The settings that the collection's HNSW index was made with."""
    return dict(store._rust.get_collection(name, TENANT, DATABASE).configuration["hnsw"])


CLIENT = """
import json, os, sys
os.chdir("/")
import chromadb
from chromadb.api.client import SharedSystemClient
for line in sys.stdin:
    SharedSystemClient.clear_system_cache()  # a store that was not borrowed may be built again at its path
    path, tenant, database = json.loads(line)
    settings = chromadb.Settings(anonymized_telemetry=False)
    client = chromadb.PersistentClient(path, settings=settings, tenant=tenant, database=database)
    held = {each.name: each.get(include=["documents"]) for each in client.list_collections()}
    print(json.dumps({name: dict(zip(rows["ids"], rows["documents"])) for name, rows in held.items()}), flush=True)
"""


@pytest.fixture(scope="module")
def client() -> Iterator[subprocess.Popen[str]]:
    """Chroma's public client, in a process that reads one store after the other."""
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", CLIENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    yield process
    process.communicate()


def read_collections(client: subprocess.Popen[str], report: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Return what the public client reads: texts by collection and id."""
    assert client.stdin is not None
    assert client.stdout is not None
    client.stdin.write(json.dumps([report["chroma"], report["tenant"], report["database"]]) + "\n")
    client.stdin.flush()
    return json.loads(client.stdout.readline())
