"""Build Chroma's store of an index, from nothing or from a copy of the most similar store.

A store is built in a temporary folder, compared with the index, sealed and renamed, so it never
exists half-built under its name.
"""

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
from vmrag_link.chroma.open_index import DocumentRows, OpenIndex, VectorSource
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
"""How a store was built: an existing one was reused, a copy of another one was changed, or it is
new.
"""


class BuiltStore(Record, frozen=True):
    """The result of a build. `added` and `removed` are numbers of chunks."""

    path: Path
    how: BuildMethod
    added: int = 0
    removed: int = 0


class _Plan(NamedTuple):
    """The changes of a store, by collection."""

    drop: list[str]
    create: list[IndexedCollection]
    """Collections to create. They are filled with all their documents."""

    remove: Mapping[str, list[str]]
    add: Mapping[str, list[DocumentRows]]
    added: int
    removed: int
    dead: int
    """Number of removed rows in the store after the change."""

    boot: str = ""
    """The boot of the machine since which the other rows are verified. Empty if all rows have to be
    compared.
    """

    @property
    def changes(self) -> int:
        return self.added + self.removed


def build_store(
    stores: Stores,
    index: OpenIndex,
    target: Path,
    *,
    vectors: VectorSource,
    progress: Progress = QUIET,
    between: Callable[[], None] = lambda: None,
) -> BuiltStore:
    """Return a usable store of the index at `target`. If there is none, build, compare and rename
    one.

    `between` is called between batches. An error that it raises ends the build and leaves nothing
    behind. Raises `IndexFailed`, `IndexExtraMissing`, `LimitTooLow`, `FileFailed`, and the errors
    of `vectors`.
    """
    if not stores.find_problem(target, lambda: index.stand_ins):
        return BuiltStore(target, "reused")
    with stores.temporary_folder() as folder, _database_errors(folder):
        base, plan = _find_base(stores, index)
        build = _Build(stores=stores, source=index, folder=folder, vectors=vectors, progress=progress, between=between)
        if base:
            try:
                stores.copy_store(base, folder)
                build.carry_out(plan)
            except IndexFailed:  # the base is damaged or was removed: start from nothing
                directories.remove_path(folder)
                base = None
                plan = _plan_whole(index)
                build.carry_out(plan)
        else:
            build.carry_out(plan)
        stores.move_into_place(folder, target, problem=lambda: stores.find_problem(target, lambda: index.stand_ins))
        with stores.lock_for_reading(target):
            pass  # this creates the lock file, also for users who may not write
    return BuiltStore(target, "delta" if base else "fresh", plan.added, plan.removed)


@contextlib.contextmanager
def _database_errors(folder: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        if is_disk_full(error):
            raise no_space(folder) from error
        raise IndexFailed(f"cannot build Chroma's store: {error}.", hint="run 'vmrag sync --wait' again") from error


def _find_base(stores: Stores, index: OpenIndex) -> tuple[Path | None, _Plan]:
    """Return the store that needs the fewest changes, and its plan.

    Return None and the plan of a new store if a new store needs as little work.
    """
    best_base: Path | None = None
    best_plan = _plan_whole(index)
    if index.reader.view.given_vectors:
        return None, best_plan  # equal documents may have other vectors in another store
    for base in stores.list_bases():
        seal = read_seal(base)
        contents = read_contents(base)
        if seal is None or contents is None:
            continue
        plan = _plan_difference(contents, index, seal)
        if plan.dead < _count_live_chunks(index) and plan.changes < best_plan.changes:
            best_base = base
            best_plan = plan
    return best_base, best_plan


def _plan_whole(index: OpenIndex) -> _Plan:
    return _Plan(
        drop=[],
        create=[*index.collections.values()],
        remove={},
        add={},
        added=_count_live_chunks(index),
        removed=0,
        dead=0,
    )


def _count_live_chunks(index: OpenIndex) -> int:
    return sum(indexed.chunks for indexed in index.collections.values())


def _plan_difference(contents: ContentsByCollection, index: OpenIndex, sealed: Seal) -> _Plan:
    """Return the plan to turn a store with these contents into a store of the index."""
    same = {
        name: indexed
        for name, indexed in index.collections.items()
        if name in contents
        and _can_keep(contents[name].collection, indexed.collection)
        and (name in sealed.stand_ins) == (name in index.stand_ins)
    }
    new_collections = [indexed for name, indexed in index.collections.items() if name not in same]
    remove: dict[str, list[str]] = {}
    add: dict[str, list[DocumentRows]] = {}
    added = sum(indexed.chunks for indexed in new_collections)
    for name, indexed in same.items():
        old = {DocumentHeader(name, *header): chunks for *header, chunks in contents[name].documents}
        new = dict(index.list_documents(indexed))
        remove[name] = [
            chunk_id(header.doc_id, number)
            for header, chunks in old.items()
            if header not in new
            for number in range(chunks)
        ]
        add[name] = [DocumentRows(header, rows) for header, rows in new.items() if header not in old]
        added += sum(len(rows) for _, rows in add[name])
    removed = sum(map(len, remove.values()))
    drop = [name for name in contents if name not in same]
    boot = sealed.boot if sealed.boot == read_boot_id() else ""
    return _Plan(
        drop=drop,
        create=new_collections,
        remove=remove,
        add=add,
        added=added,
        removed=removed,
        dead=sealed.dead + removed,
        boot=boot,
    )


def _can_keep(one: Collection, other: Collection) -> bool:
    """Return whether Chroma's collection can stay for another definition."""
    return indexes_equally(one, other) and read_chroma_hnsw(one) == read_chroma_hnsw(other)


class _Build(NamedTuple):
    """A build in a temporary folder."""

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
            self._apply_plan(store, plan)
        permissions.apply_folder_mode(self.folder)
        problem = check.find_difference(
            self.folder,
            self.source,
            with_texts=self.stores.store_documents,
            only=_select_comparable(plan.add, self.source) if plan.boot else None,
            between=self.between,
        )
        if problem:
            raise IndexFailed(
                f"Chroma's store {self.source.revision[:7]} differs from the index: {problem}.",
                hint="run 'vmrag sync --wait' again",
            )
        _remove_dropped_folders(self.folder)
        self.stores.write_contents(self.folder, self._list_contents())
        self.stores.seal_store(
            self.folder,
            revision=self.source.revision,
            stand_ins=self.source.stand_ins,
            dead=plan.dead,
            boot=read_boot_id(),
        )

    def _apply_plan(self, store: ChromaStore, plan: _Plan) -> None:
        with self.progress.task(FOLLOWING, plan.changes) as task:
            for name in plan.drop:
                store.drop_collection(make_chroma_name(name))
            for indexed in plan.create:
                collection = indexed.collection
                store.create_collection(
                    make_chroma_name(collection.name),
                    space=collection.distance,
                    metadata=build_collection_metadata(collection),
                    hnsw=read_chroma_hnsw(collection),
                )
            ids_by_chroma_name = store.list_collection_ids()
            ids = {name: ids_by_chroma_name[make_chroma_name(name)] for name in self.source.collections}
            for name, chunk_ids in plan.remove.items():
                self.between()
                store.delete_rows(ids[name], chunk_ids)
                task.advance(len(chunk_ids))
            filled = {indexed.collection.name: self.source.list_documents(indexed) for indexed in plan.create}
            for name, documents in {**filled, **plan.add}.items():
                indexed = self.source.collections[name]
                for batch in _split_batches(documents):
                    self.between()
                    rows = self._make_rows(indexed, batch)
                    store.add_rows(ids[name], rows)
                    task.advance(len(rows.ids))
            for name, indexed in self.source.collections.items():
                revision = self.source.revisions[name]
                store.replace_metadata(
                    ids[name], {**build_collection_metadata(indexed.collection), "revision": revision}
                )

    def _list_contents(self) -> ContentsByCollection:
        return {
            name: StoreContents(
                indexed.collection,
                [
                    (header.doc_id, header.title, header.content_hash, header.metadata, len(rows))
                    for header, rows in self.source.list_documents(indexed)
                ],
            )
            for name, indexed in self.source.collections.items()
        }

    def _make_rows(self, indexed: IndexedCollection, documents: Iterable[DocumentRows]) -> RowBatch:
        chunks = self.source.list_chunks(indexed, documents)
        if indexed.collection.name in self.source.stand_ins:
            vectors = [make_uniform_vector(indexed.collection.embedding_dimensions)] * len(chunks)
        else:
            vectors_by_row = self.vectors(self.source.reader, indexed, {chunk.row: chunk.text for chunk in chunks})
            vectors = [vectors_by_row[chunk.row] for chunk in chunks]
        return RowBatch(
            [chunk.id for chunk in chunks],
            vectors,
            [chunk.metadata for chunk in chunks],
            [chunk.text for chunk in chunks] if self.stores.store_documents else None,
        )


def _select_comparable(add: Mapping[str, list[DocumentRows]], index: OpenIndex) -> Mapping[str, list[DocumentRows]]:
    """Return the collections of which only these documents have to be compared.

    Code is compared as a whole, because another version of a grammar cuts an equal text into other
    chunks.
    """
    collections = index.collections
    return {name: rows for name, rows in add.items() if not collections[name].collection.is_code}


def _split_batches(documents: Iterable[DocumentRows]) -> Iterator[list[DocumentRows]]:
    """Yield documents in batches of about `BATCH_CHUNKS` chunks."""
    batch: list[DocumentRows] = []
    size = 0
    for document in documents:
        batch.append(document)
        size += len(document.rows)
        if size >= BATCH_CHUNKS:
            yield batch
            batch = []
            size = 0
    if batch:
        yield batch


def _remove_dropped_folders(folder: Path) -> None:
    """Remove the HNSW folders of dropped collections, because Chroma never removes them."""
    with contextlib.closing(sqlite3.connect(folder / DATABASE_FILE)) as database:
        alive = {str(row[0]) for row in database.execute("SELECT id FROM segments")}
    for path in folder.iterdir():
        if path.is_dir() and path.name not in alive:
            shutil.rmtree(path)
