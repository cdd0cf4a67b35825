"""Make Chroma's store of a sealed index: from nothing, or from a copy of another store."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Literal, NamedTuple

from vmrag_link import permissions
from vmrag_link.chroma import DATABASE_FILE, check
from vmrag_link.chroma.bindings import ChromaStore, RowBatch, open_store
from vmrag_link.chroma.check import DocumentRows, OpenIndex, VectorSource
from vmrag_link.chroma.stores import ContentsByCollection, Seal, StoreContents, Stores, read_contents, read_seal
from vmrag_link.embedding.base import make_uniform_vector
from vmrag_link.errors import IndexFailed, no_space
from vmrag_link.index import directories
from vmrag_link.index.metadata import build_collection_metadata, chunk_id, make_chroma_name, read_chroma_hnsw
from vmrag_link.index.seal import read_boot_id
from vmrag_link.index.segment import is_disk_full
from vmrag_link.index.view import IndexedCollection, indexes_equally
from vmrag_link.models import Collection, DocumentHeader, Record
from vmrag_link.progress import FOLLOWING, QUIET, Progress

BATCH_CHUNKS = 1_000

BuildMethod = Literal["reused", "delta", "fresh"]


class BuiltStore(Record, frozen=True):
    """`added` and `removed` count chunks."""

    path: Path
    how: BuildMethod
    added: int = 0
    removed: int = 0


class _Plan(NamedTuple):
    """What to change in a store, by collection; new collections are filled.

    `dead`: rows that will have been removed. `boot`: since when the other rows are known; empty:
    all have to be compared.
    """

    drop: list[str]
    create: list[IndexedCollection]
    remove: Mapping[str, list[str]]
    add: Mapping[str, list[DocumentRows]]
    added: int
    removed: int
    dead: int
    boot: str = ""


def build_store(
    stores: Stores,
    index: OpenIndex,
    target: Path,
    *,
    vectors: VectorSource,
    progress: Progress = QUIET,
    between: Callable[[], None] = lambda: None,
) -> BuiltStore:
    """A usable store of the index at `target`, made aside, compared with the index and renamed.

    `between` is called between batches; what it raises ends the work and leaves nothing. Raises
    `IndexFailed`, `IndexExtraMissing`, `LimitTooLow`, `FileFailed`, and what `vectors` raises.
    """
    if not stores.find_problem(target, lambda: index.stand_ins):
        return BuiltStore(target, "reused")
    with stores.temporary_folder() as folder, _database_errors(folder):
        base, plan = _nearest(stores, index)
        made = _Making(stores, index, folder, vectors, progress, between)
        if base:
            try:
                stores.copy_store(base, folder)
                made.carry_out(plan)
            except IndexFailed:  # the base is not what its seal says, or was removed: start from nothing
                directories.remove_path(folder)
                base, plan = None, _whole(index)
                made.carry_out(plan)
        else:
            made.carry_out(plan)
        stores.move_into_place(folder, target, problem=lambda: stores.find_problem(target, lambda: index.stand_ins))
        with stores.lock_for_reading(target):
            pass  # from now on it has a lock file, also for those who may write nothing
    return BuiltStore(target, "delta" if base else "fresh", plan.added, plan.removed)


@contextlib.contextmanager
def _database_errors(folder: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        if is_disk_full(error):
            raise no_space(folder) from error
        raise IndexFailed(f"Chroma's store cannot be made: {error}.", hint="Run it again: vmrag sync --wait") from error


# -- planning --------------------------------------------------------------------------------------


def _nearest(stores: Stores, index: OpenIndex) -> tuple[Path | None, _Plan]:
    """The store from which least has to change, and what; None where a new one is no more work."""
    best: tuple[Path | None, _Plan] = None, _whole(index)
    if index.reader.view.given_vectors:
        return best  # documents that are equal have other vectors there
    for base in stores.list_bases():
        seal, before = read_seal(base), read_contents(base)
        if seal and before is not None:
            plan = _difference(before, index, seal)
            if plan.dead < _live(index) and plan.added + plan.removed < best[1].added + best[1].removed:
                best = base, plan
    return best


def _whole(index: OpenIndex) -> _Plan:
    return _Plan([], [*index.collections.values()], {}, {}, _live(index), 0, 0)


def _live(index: OpenIndex) -> int:
    return sum(held.chunks for held in index.collections.values())


def _difference(there: ContentsByCollection, index: OpenIndex, sealed: Seal) -> _Plan:
    """What to change in a store that holds something else."""
    kept = {
        name: held
        for name, held in index.collections.items()
        if name in there
        and _stays(there[name].collection, held.collection)
        and (name in sealed.stand_ins) == (name in index.stand_ins)
    }
    anew = [held for name, held in index.collections.items() if name not in kept]
    remove: dict[str, list[str]] = {}
    add: dict[str, list[DocumentRows]] = {}
    added = sum(held.chunks for held in anew)
    for name, held in kept.items():
        old = {DocumentHeader(name, *header): chunks for *header, chunks in there[name].documents}
        new = dict(index.list_documents(held))
        remove[name] = [
            chunk_id(header.doc_id, number)
            for header, chunks in old.items()
            if header not in new
            for number in range(chunks)
        ]
        add[name] = [DocumentRows(header, rows) for header, rows in new.items() if header not in old]
        added += sum(len(rows) for _, rows in add[name])
    removed = sum(map(len, remove.values()))
    drop = [name for name in there if name not in kept]
    known = sealed.boot if sealed.boot == read_boot_id() else ""
    return _Plan(drop, anew, remove, add, added, removed, sealed.dead + removed, known)


def _stays(one: Collection, other: Collection) -> bool:
    """Whether a collection of Chroma need not be made anew."""
    return indexes_equally(one, other) and read_chroma_hnsw(one) == read_chroma_hnsw(other)


# -- carrying out ----------------------------------------------------------------------------------


class _Making(NamedTuple):
    stores: Stores
    source: OpenIndex
    folder: Path
    vectors: VectorSource
    progress: Progress
    between: Callable[[], None]

    def carry_out(self, plan: _Plan) -> None:
        """Change the store in the folder, compare it with the index, and seal it."""
        permissions.make_folder(self.folder)
        with contextlib.closing(open_store(self.folder)) as store:
            self._change(store, plan)
        permissions.apply_folder_mode(self.folder)
        problem = check.find_difference(
            self.folder,
            self.source,
            with_texts=self.stores.store_documents,
            only=_by_documents(plan.add, self.source) if plan.boot else None,
            between=self.between,
        )
        if problem:
            raise IndexFailed(
                f"Chroma's store {self.source.revision[:7]} is not what the index holds: {problem}.",
                hint="Run it again: vmrag sync --wait",
            )
        _sweep_segments(self.folder)
        self.stores.write_contents(self.folder, self._held())
        self.stores.seal_store(
            self.folder,
            revision=self.source.revision,
            stand_ins=self.source.stand_ins,
            dead=plan.dead,
            boot=read_boot_id(),
        )

    def _change(self, store: ChromaStore, plan: _Plan) -> None:
        with self.progress.task(FOLLOWING, plan.added + plan.removed) as task:
            for name in plan.drop:
                store.drop_collection(make_chroma_name(name))
            for held in plan.create:
                each = held.collection
                settings = read_chroma_hnsw(each)
                store.create_collection(
                    make_chroma_name(each.name),
                    space=each.distance,
                    metadata=build_collection_metadata(each),
                    hnsw=settings,
                )
            there = store.list_collection_ids()
            ids = {name: there[make_chroma_name(name)] for name in self.source.collections}
            for name, gone in plan.remove.items():
                self.between()
                store.delete_rows(ids[name], gone)
                task.advance(len(gone))
            filled = {held.collection.name: self.source.list_documents(held) for held in plan.create}
            for name, documents in {**filled, **plan.add}.items():
                held = self.source.collections[name]
                for batch in _batches(documents):
                    self.between()
                    rows = self._rows(held, batch)
                    store.add_rows(ids[name], rows)
                    task.advance(len(rows.ids))
            for name, held in self.source.collections.items():
                revision = self.source.revisions[name]
                store.replace_metadata(ids[name], {**build_collection_metadata(held.collection), "revision": revision})

    def _held(self) -> ContentsByCollection:
        return {
            name: StoreContents(
                held.collection,
                [
                    (h.doc_id, h.title, h.content_hash, h.metadata, len(rows))
                    for h, rows in self.source.list_documents(held)
                ],
            )
            for name, held in self.source.collections.items()
        }

    def _rows(self, held: IndexedCollection, documents: Iterable[DocumentRows]) -> RowBatch:
        chunks = self.source.list_chunks(held, documents)
        if held.collection.name in self.source.stand_ins:
            vectors = [make_uniform_vector(held.collection.embedding_dimensions)] * len(chunks)
        else:
            found = self.vectors(self.source.reader, held, {chunk.row: chunk.text for chunk in chunks})
            vectors = [found[chunk.row] for chunk in chunks]
        return RowBatch(
            [chunk.id for chunk in chunks],
            vectors,
            [chunk.metadata for chunk in chunks],
            [chunk.text for chunk in chunks] if self.stores.store_documents else None,
        )


def _by_documents(add: Mapping[str, list[DocumentRows]], index: OpenIndex) -> Mapping[str, list[DocumentRows]]:
    """Return the collections of which only these documents have to be compared.

    Code is compared whole: another version of a grammar cuts an equal text into other chunks.
    """
    collections = index.collections
    return {name: rows for name, rows in add.items() if not collections[name].collection.is_code}


def _batches(documents: Iterable[DocumentRows]) -> Iterator[list[DocumentRows]]:
    """Documents with about `BATCH_CHUNKS` chunks at a time."""
    batch: list[DocumentRows] = []
    size = 0
    for document in documents:
        batch.append(document)
        size += len(document.rows)
        if size >= BATCH_CHUNKS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _sweep_segments(folder: Path) -> None:
    """Chroma never removes the HNSW directories of collections that it dropped."""
    with contextlib.closing(sqlite3.connect(folder / DATABASE_FILE)) as database:
        alive = {str(row[0]) for row in database.execute("SELECT id FROM segments")}
    for path in folder.iterdir():
        if path.is_dir() and path.name not in alive:
            shutil.rmtree(path)
