"""What an index holds, and how that differs from the knowledge base."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from vmrag_link.embedding.successors import with_present_model
from vmrag_link.errors import Busy, IndexFailed
from vmrag_link.index.contents import contents, held_collections
from vmrag_link.index.view import indexes_equally
from vmrag_link.models import At, Collection, DocumentHeader, Record, Working
from vmrag_link.ops.follow.provenance import Standing
from vmrag_link.workspace import Moment, Workspace

Key = tuple[str, str]
T = TypeVar("T")


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
    revision = seen.revision
    held = _of_index(ws, seen.at, revision, lambda folder, current: read(folder, revision, current=current))
    return held or Holdings()


def chunks_held_now(ws: Workspace, at: Standing, collection: str) -> int:
    """How many chunks the index holds of a collection that answers where the documents are read."""
    held = _of_index(ws, at.at, at.revision, lambda folder, _: held_collections(folder).get(collection))
    return held.chunks if held else 0


def _of_index(ws: Workspace, at: At, revision: str, look: Callable[[Path, bool], T]) -> T | None:
    """What `look` returns of the index's folder, and of whether it is current; None without one."""
    if isinstance(at, Working):
        copy = ws.sync_context._replace(lock_timeout=0).working_copy(at.branch, revision)
        with contextlib.suppress(Busy), copy.reading() as problem:
            if not copy.damage():  # though it may be behind
                with contextlib.suppress(IndexFailed):  # damaged since it was proven
                    return look(copy.path, not problem)
    path = ws.views.path(revision)
    with ws.views.reading(path):
        if not ws.views.problem(revision):
            with contextlib.suppress(IndexFailed):
                return look(path, isinstance(at, str))
    return None


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
    return there is not None and indexes_equally(there, with_present_model(collection))
