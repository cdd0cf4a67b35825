"""What an index holds, and how that differs from the knowledge base."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path

from vmrag_link.errors import Busy, IndexFailed
from vmrag_link.index.contents import contents
from vmrag_link.index.store import indexes_equally
from vmrag_link.models import At, Collection, DocumentHeader, Record
from vmrag_link.workspace import Moment, Workspace

Key = tuple[str, str]


class Holdings(Record, frozen=True):
    """What an index holds.

    `current`: it is the one that answers for the workspace as it stands, and verifies.
    `unembedded`: collections that it finds by words alone, and why.
    """

    folder: Path | None = None
    revision: str | None = None
    current: bool = False
    definitions: Mapping[str, Collection] = {}
    headers: Mapping[Key, DocumentHeader] = {}
    chunks: Mapping[Key, int] = {}
    unembedded: Mapping[str, str] = {}


def held_now(ws: Workspace, seen: Moment) -> Holdings:
    """Read the index that answers for the workspace, or else the one that it would be made from."""
    if seen.branch and seen.dirty:
        copy = ws.sync_context._replace(lock_timeout=0).working_copy(seen.branch, seen.revision)
        with contextlib.suppress(Busy), copy.reading() as problem:
            if not copy.damage():  # though it may be behind
                with contextlib.suppress(IndexFailed):  # damaged since it was proven
                    return read(copy.path, seen.revision, current=not problem)
    path = ws.snapshots.path(seen.revision)
    with ws.snapshots.reading(path):
        if not ws.snapshots.problem(seen.revision):
            with contextlib.suppress(IndexFailed):
                return read(path, seen.revision, current=not seen.dirty)
    return Holdings()


def read(folder: Path, revision: str, *, current: bool) -> Holdings:
    found = contents(folder)
    definitions = {name: held.collection for name, held in found.collections.items()}
    return Holdings(folder, revision, current, definitions, found.headers, found.chunks, found.unembedded)


def differing(ws: Workspace, at: At, held: Holdings) -> dict[str, int]:
    """Collections that the index and the place hold differently, with the numbers of documents."""
    wanted = {each.name: each for each in ws.engine.collections(at)}
    anew = {name for name, each in wanted.items() if not held_equally(held, each)}
    numbers = dict.fromkeys((*anew, *(held.definitions.keys() - wanted.keys())), 0)
    headers = {each.key: each for each in ws.engine.headers(at)}
    for key in headers.keys() | held.headers.keys():
        if key[0] in anew or headers.get(key) != held.headers.get(key):
            numbers[key[0]] = numbers.get(key[0], 0) + 1
    return numbers


def held_equally(held: Holdings, collection: Collection) -> bool:
    there = held.definitions.get(collection.name)
    return there is not None and indexes_equally(there, collection)
