"""Update an index to the content of the knowledge base at some place."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING

import msgspec

from vmrag_link.embedding.base import Model
from vmrag_link.embedding.cache import EmbeddingCache
from vmrag_link.engines.base import RowSource
from vmrag_link.engines.records import read_documents_by_key
from vmrag_link.errors import unusable
from vmrag_link.index.draft import Draft
from vmrag_link.models import (
    At,
    ChangeCounts,
    ChunkCounts,
    Collection,
    Document,
    DocumentHeader,
    Record,
    WorkingSet,
)
from vmrag_link.progress import BUILDING, Progress
from vmrag_link.sync import plan as planning
from vmrag_link.sync.adding import DocumentIndexer, Elsewhere
from vmrag_link.sync.plan import Key, Plan, assume_collection, read_collections_at, read_rows_at

if TYPE_CHECKING:
    from vmrag_link.sync.shared_vectors import SharedVectors

STREAM_ABOVE = 200
"""Maximum number of documents that are read one by one. More are selected from a stream of their
collection.
"""


class IndexUpdate(Record, frozen=True):
    """The plan of an update and the number of its chunks."""

    plan: Plan
    chunks: ChunkCounts


class Indexer(DocumentIndexer):
    """Update indexes of one source of rows.

    `shared`: vectors of a revision that others computed. The other arguments are those of
    `DocumentIndexer`.
    """

    def __init__(
        self,
        engine: RowSource,
        cache: EmbeddingCache,
        model_for: Callable[[Collection], Model],
        progress: Progress,
        shared: SharedVectors | None = None,
    ) -> None:
        super().__init__(cache, model_for, progress)
        self._shared = shared
        self._engine = engine

    def update_index(
        self, draft: Draft, at: At, *, base: str | None, changed: frozenset[Key] | None = None
    ) -> IndexUpdate:
        """Update a draft to the content of the knowledge base at `at`.

        `base`: the draft's revision, apart from its touched documents. With None, all rows are
        compared. `changed`: the only documents that differ from the index, if the caller knows
        them. Their collections must be in the index. Texts that a service does not embed now are
        indexed by words only. They are embedded when a revision is indexed, not with every write.
        Raises `MassDeletion`, `EmbeddingMismatch`, `IndexFailed` (the numbers of documents differ
        afterwards), and the errors of engine and model.
        """
        if base is None and not draft.list_collections():
            plan, counts = self._build_index(draft, at)
        else:
            plan, counts = self._change_index(draft, at, base, changed)
        if isinstance(at, WorkingSet):
            draft.mark_touched((*plan.remove, *plan.add))
        held, stored = draft.count_documents(), self._engine.count_documents(at)
        if held != stored:
            raise unusable(draft.root, f"it holds {held} documents, the knowledge base {stored}")
        return IndexUpdate(plan, counts)

    def _build_index(self, draft: Draft, at: At) -> tuple[Plan, ChunkCounts]:
        """Index everything into an empty draft. The documents are read once."""
        collections = read_rows_at(self._engine, at)
        added: list[Key] = []

        def read_all() -> Iterator[Document]:
            for document in self._engine.read_documents(at):
                added.append(document.key)
                yield document

        def by_collection() -> Iterator[tuple[str, Iterable[Document]]]:
            for name, documents in itertools.groupby(read_all(), key=attrgetter("collection")):
                if name not in collections:
                    collections[name] = assume_collection(name, self._model_for)
                    draft.create_collection(collections[name])
                yield name, documents

        with self._progress.task(BUILDING, self._engine.count_documents(at)) as task:
            for name in sorted(collections):
                draft.create_collection(collections[name])
            counts = self.add_documents(draft, by_collection(), task, lacking={}, shared=self._fetch_shared_at(at))
        create = tuple(collections[name] for name in sorted(collections))
        return Plan(
            drop=(), create=create, redefine=(), remove=(), add=tuple(added), changes=ChangeCounts(added=len(added))
        ), counts

    def _change_index(
        self, draft: Draft, at: At, base: str | None, changed: frozenset[Key] | None
    ) -> tuple[Plan, ChunkCounts]:
        """Index the differences."""
        if base is None or changed is None:
            plan, documents = self._plan_changes(draft, at, base)
        else:
            plan, documents = self._plan_known_changes(draft, at, changed)
        with self._progress.task(BUILDING, len(plan.remove) + len(plan.add)) as task:
            removed = sum(draft.drop_collection(name) for name in plan.drop)
            for collection in plan.create:
                draft.create_collection(collection)
            for collection in plan.redefine:
                draft.redefine_collection(collection)
            removed += sum(draft.remove_documents(name, ids) for name, ids in _group_by_collection(plan.remove))
            task.advance(len(plan.remove))
            kept = draft.list_collections().keys() - {collection.name for collection in plan.create}
            lacking = {name: why for name, why in draft.unembedded().items() if name in kept}
            read = (
                (name, self._read_documents(at, name, ids, documents)) for name, ids in _group_by_collection(plan.add)
            )
            counts = self.add_documents(draft, read, task, lacking=lacking, shared=self._fetch_shared_at(at))
        return plan, msgspec.structs.replace(counts, removed=removed)

    # -- planning ----------------------------------------------------------------------------------

    def _plan_changes(self, draft: Draft, at: At, base: str | None) -> tuple[Plan, dict[Key, Document]]:
        """Return the plan, and its documents whose text came with the diff."""
        held = draft.list_collections()
        for name in draft.unembedded():
            if name in held and not isinstance(at, WorkingSet):
                held[name] = msgspec.structs.replace(held[name], embedding_model="")
        collections = read_collections_at(self._engine, at, held, self._model_for)
        if base is None:
            target = {header.key: header for header in self._engine.read_headers(at)}
            collections |= {
                name: assume_collection(name, self._model_for)
                for name in {key[0] for key in target} - collections.keys()
            }
            plan = planning.make_plan(held, collections, draft.read_headers(), target)
            planning.refuse_mass_deletion(plan, draft.count_documents())
            return plan, {}
        difference = self._engine.diff(base, at).documents
        documents = {change.key: change.after for change in difference if change.after}
        collections |= {
            name: assume_collection(name, self._model_for)
            for name in {key[0] for key in documents} - collections.keys()
        }
        candidates = {change.key for change in difference}.union(draft.list_touched())
        fresh = planning.list_rebuilt(held, collections)
        target = self._read_headers(at, candidates, documents, fresh)
        present = draft.find_headers(candidates)
        if fresh or held.keys() - collections.keys():
            present |= {
                key: header
                for key, header in draft.read_headers().items()
                if key[0] in fresh or key[0] not in collections
            }
        return planning.make_plan(held, collections, present, target), documents

    def _plan_known_changes(self, draft: Draft, at: At, changed: frozenset[Key]) -> tuple[Plan, dict[Key, Document]]:
        """Return the plan if only these documents differ, and their texts. Its cost depends on
        their number only.
        """
        held = draft.list_collections()
        documents = read_documents_by_key(self._engine, at, sorted(changed))
        target = {key: document.header for key, document in documents.items()}
        return planning.make_plan(held, held, draft.find_headers(changed), target), documents

    def _read_headers(
        self, at: At, candidates: Iterable[Key], documents: dict[Key, Document], whole: Iterable[str]
    ) -> dict[Key, DocumentHeader]:
        target = {key: document.header for key, document in documents.items()}
        for key in candidates:
            if key not in target and (document := self._engine.find_document(at, *key)):
                target[key] = document.header
        for name in whole:
            target |= {header.key: header for header in self._engine.read_headers(at, collection=name)}
        return target

    def _fetch_shared_at(self, at: At) -> Elsewhere | None:
        """Return a function that fetches vectors that others computed, for a revision only."""
        shared = self._shared
        if shared is None or isinstance(at, WorkingSet):
            return None
        return lambda collection, model, chunking: shared.fetch_vectors(collection, at, model=model, chunking=chunking)

    def _read_documents(self, at: At, name: str, ids: list[str], documents: dict[Key, Document]) -> Iterator[Document]:
        unread = [doc_id for doc_id in ids if (name, doc_id) not in documents]
        yield from (documents[name, doc_id] for doc_id in ids if (name, doc_id) in documents)
        if len(unread) > STREAM_ABOVE:
            missing = set(unread)
            yield from (
                document for document in self._engine.read_documents(at, collection=name) if document.doc_id in missing
            )
        else:
            yield from filter(None, (self._engine.find_document(at, name, doc_id) for doc_id in unread))


def _group_by_collection(keys: Iterable[Key]) -> Iterator[tuple[str, list[str]]]:
    """Yield sorted keys as (collection, doc_ids)."""
    for name, group in itertools.groupby(keys, key=itemgetter(0)):
        yield name, [doc_id for _, doc_id in group]
