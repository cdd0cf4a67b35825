"""`vmrag fingerprint --check`: verify that an index has exactly the chunks, texts and vectors that
documents and files make.

A fingerprint covers documents and settings, but not the index. So equal fingerprints give equal
answers only if the index is correct.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from vmrag_link import hints
from vmrag_link.documents.chunking import split_document
from vmrag_link.embedding.base import Model, limit_chunking
from vmrag_link.errors import Busy, IndexFailed, NotInitialized, PinMissing, plural, quoted
from vmrag_link.index import seal
from vmrag_link.index import view as views
from vmrag_link.index.contents import IndexedRow, read_rows
from vmrag_link.index.flat_files import quantise
from vmrag_link.index.segment import find_word_problem
from vmrag_link.models import At, Collection, Document, Record, content_hash
from vmrag_link.ops.fingerprint.fingerprint import CountedFiles, compute_fingerprint
from vmrag_link.retrieval.ranking import Ranking
from vmrag_link.sync.plan import read_collections_at
from vmrag_link.workspace import Workspace, source_tree
from vmrag_link.workspace.answers.index_status import Holdings, count_differing, read_holdings
from vmrag_link.workspace.follow.search_scope import RankedRevision, ranked_at
from vmrag_link.workspace.indexed_rows import IndexedRows
from vmrag_link.workspace.source_index import require_complete
from vmrag_link.workspace.source_tree import SourceTree
from vmrag_link.workspace.worktree import OpenSources

REBUILD = "vmrag sync --rebuild"
_BATCH_VECTORS = 5000
"""Number of vectors per request to the cache."""

_BATCH_FILES = 500
"""Number of files whose texts are in memory at the same time."""

_MAX_ATTEMPTS = 5
"""Number of attempts to compare the index while other processes write."""

_SAMPLE_VECTORS = 32
"""Number of vectors of each collection that are computed again. If one vector in ten is wrong, the
sample misses all of them 3 times in 100.
"""


class VerifiedIndex(Record, frozen=True, omit_defaults=True):
    """The result of a check."""

    fingerprint: str
    revision: str
    ranking: Ranking
    dirty: bool
    documents: int
    """Number of stored documents."""
    chunks: int
    vectors: int
    """Number of vectors that were compared with verified ones of the cache. The others are as they
    were written when the index was built.
    """
    recomputed: int
    """Number of vectors that were computed again from their texts, chosen at random."""
    problems: tuple[str, ...]
    """Problems; empty for a correct index."""
    fix: str
    """The hint that repairs it."""
    files: CountedFiles | None = None
    """The files in the fingerprint, without uncommitted changes."""
    indexed_files: int = 0
    """Number of files of sources in the index that answers. For the work tree it includes
    uncommitted ones.
    """


class _Comparison(Record, frozen=True):
    """The result for a part of the index. The fields are those of `VerifiedIndex`."""

    problems: tuple[str, ...]
    chunks: int = 0
    vectors: int = 0
    recomputed: int = 0
    documents: int = 0
    indexed_files: int = 0
    fix: str = ""


def verify_index(ws: Workspace, *, ref: str | None = None, files: bool = True) -> VerifiedIndex:
    """Check the index that answers here, or the index of a git ref's pin and files.

    A missing index is built. Without `files` the index of sources is not checked.
    """
    fingerprint = compute_fingerprint(ws, ref=ref)
    comparisons = _verify_here(ws, files=files) if ref is None else _verify_at(ws, ranked_at(ws, ref), files=files)
    parts = list(comparisons)
    commands = " && ".join(part.fix for part in parts if part.problems)
    hint = hints.suggest_command(commands, "build the index again") if commands else ""
    checked = msgspec.structs.replace(_join_parts(parts), fix=hint)
    return VerifiedIndex(**msgspec.structs.asdict(fingerprint), **msgspec.structs.asdict(checked))


def _verify_here(ws: Workspace, *, files: bool) -> Iterator[_Comparison]:
    try:
        yield _compare_working(ws)
    except (NotInitialized, PinMissing):
        if not ws.sources.configured:
            raise
    if files:  # unreadable files are an error, not an empty index
        with ws.source_index.open_work_tree(stored=ws.list_stored_collections()) as opened:
            yield _compare_files(ws, opened, source_tree.read_work_tree(ws))


def _compare_working(ws: Workspace) -> _Comparison:
    """Compare the index that answers here. Compare again if other processes write."""
    for _ in range(_MAX_ATTEMPTS):
        stamp = ws.engine.read_stamp()
        with ws.reader.view(files=False) as view:
            comparison = _compare_index(ws, view.folder, view.at, fix=REBUILD)
        if not comparison.problems or ws.engine.read_stamp() == stamp:
            return comparison
    raise Busy("other processes kept writing documents during the check.", hint="run the command again")


def _verify_at(ws: Workspace, place: RankedRevision, *, files: bool) -> Iterator[_Comparison]:
    if place.revision:
        with ws.reader.open_index(place.revision) as folder:
            yield _compare_index(ws, folder, place.revision, fix=_form_removal(folder))
    if files and place.commit and place.config:
        with ws.source_index.open_commit(place.commit, place.config) as opened:
            yield _compare_files(ws, opened, source_tree.read_commit(ws, place.commit, place.config))


def _join_parts(parts: Sequence[_Comparison]) -> _Comparison:
    return _Comparison(
        problems=tuple(problem for part in parts for problem in part.problems),
        chunks=sum(part.chunks for part in parts),
        vectors=sum(part.vectors for part in parts),
        recomputed=sum(part.recomputed for part in parts),
        documents=sum(part.documents for part in parts),
        indexed_files=sum(part.indexed_files for part in parts),
    )


def _form_removal(view: Path) -> str:
    """Return the command that removes a view and its segments, so that they are rebuilt."""
    paths = [path for path in (view, *_list_segments(view)) if path not in seal.MEMORY_FOLDERS]
    return f"rm -r {' '.join(map(quoted, paths))}" if paths else REBUILD


def _list_segments(view: Path) -> list[Path]:
    return [views.segments_folder(view) / part.segment for part in views.read_view(view).parts]


def _compare_index(ws: Workspace, folder: Path, at: At, *, fix: str) -> _Comparison:
    """Compare the index of stored documents. `fix` is the command that repairs it."""
    damage = _find_damage(folder)
    if damage:
        return _Comparison((damage,), fix=fix)
    problems = []
    holdings = read_holdings(folder, "", current=True)
    for name, number in sorted(count_differing(ws, at, holdings).items()):
        subject = plural(number, "document") if number else "the definition"
        problems.append(f"{subject} of collection {name!r} in the index: not as in the knowledge base.")
    if problems:
        return _Comparison(tuple(problems), fix=fix)
    without_vectors = set(holdings.unembedded)
    if views.has_given_vectors(folder):
        without_vectors |= set(holdings.definitions)
    comparisons = []
    for row in read_collections_at(ws.engine, at, sorted(holdings.definitions), ws.models.load_for).values():
        documents = ws.engine.read_documents(at, collection=row.name)
        with_vectors = row.name not in without_vectors
        comparisons.append(_compare_collection(ws, folder, row, documents, with_vectors=with_vectors))
    return msgspec.structs.replace(_join_parts(comparisons), documents=len(holdings.headers), fix=fix)


def _compare_files(ws: Workspace, opened: OpenSources | None, tree: SourceTree | None) -> _Comparison:
    if opened is None or tree is None:
        return _Comparison(())
    require_complete(opened.unavailable, opened.missing, opened.failed)
    folder = opened.folder
    fix = _form_removal(folder)
    damage = _find_damage(folder)
    if damage:
        return _Comparison((damage,), fix=fix)
    holdings = read_holdings(folder, "", current=True)
    problems = tuple(
        f"{plural(number, 'file')} of collection {name!r}: not as in the index."
        for name, number in sorted(_count_differing_files(opened, tree, holdings).items())
    )
    if problems:
        return _Comparison(problems, fix=fix)
    rows = IndexedRows(folder)
    comparisons = []
    try:
        for collection in rows.list_collections(""):
            documents = rows.read_documents("", collection=collection.name)
            comparisons.append(_compare_collection(ws, folder, collection, documents, with_vectors=True))
    except IndexFailed as error:  # the texts do not match the checksums of the index
        return _Comparison((error.message,), fix=fix)
    return msgspec.structs.replace(_join_parts(comparisons), indexed_files=len(holdings.headers), fix=fix)


def _count_differing_files(opened: OpenSources, tree: SourceTree, holdings: Holdings) -> Counter[str]:
    """Count the files of each collection that the index has in another state, or lacks."""
    numbers: Counter[str] = Counter()
    keys = iter(sorted(tree.files.keys() | holdings.headers.keys()))
    while batch := list(itertools.islice(keys, _BATCH_FILES)):
        documents = tree.read_documents(batch)
        for key in batch:
            collection, path = key
            document = documents.get(key)
            header = holdings.headers.get(key)
            if header is None and (not opened.is_complete or path in opened.failed):
                continue  # each answer warns about it
            if (document and document.content_hash) != (header and header.content_hash):
                numbers[collection] += 1
    return numbers


def _find_damage(folder: Path) -> str:
    problem = views.find_mismatch(folder)
    if not problem:  # otherwise the list of segments cannot be trusted
        problem = next(filter(None, map(find_word_problem, _list_segments(folder))), "")
    return f"{problem}." if problem else ""


def _compare_collection(
    ws: Workspace, folder: Path, collection: Collection, documents: Iterable[Document], *, with_vectors: bool
) -> _Comparison:
    """Cut each document into chunks again, and compare them with the chunks in the index.

    Code keeps its recorded cuts.
    """
    model = ws.models.load_for(collection)
    rows_by_document = read_rows(folder, collection.name)
    chunking = limit_chunking(collection.chunking, model)
    chunks = 0
    for document in documents:
        rows = rows_by_document[document.doc_id]
        if [chunk.text for chunk in split_document(document, chunking)] != [row.text for row in rows]:
            name = f"{collection.name}/{document.doc_id}"
            return _Comparison((f"The texts of {name} in the index are not those of the document.",))
        chunks += len(rows)
    if not with_vectors:
        return _Comparison((), chunks=chunks)
    vectors = 0
    rows_to_check = ((doc_id, row) for doc_id, rows in rows_by_document.items() for row in rows)
    while batch := list(itertools.islice(rows_to_check, _BATCH_VECTORS)):
        equal = _compare_vectors(ws, model, [row for _, row in batch])
        if False in equal:
            name = f"{collection.name}/{batch[equal.index(False)][0]}"
            return _Comparison((f"The vectors of {name} in the index are not those of its texts.",))
        vectors += equal.count(True)
    recomputed = _recompute_sample(model, rows_by_document) if model.exact else 0
    if recomputed is None:
        return _Comparison((f"Vectors of collection {collection.name!r} are not what the model makes of their texts.",))
    return _Comparison((), chunks=chunks, vectors=vectors, recomputed=recomputed)


def _compare_vectors(ws: Workspace, model: Model, rows: Sequence[IndexedRow]) -> list[bool | None]:
    """Return whether each vector equals the cached one; None if the cache does not have it."""
    hashes = [content_hash(row.text) for row in rows]
    cached = ws.embedding_cache.read_vectors(model.fingerprint, hashes, dimensions=model.dimensions)
    cached_hashes = [name for name in hashes if name in cached]
    # One call is ten times as fast as a call for each vector.
    quantised = quantise(b"".join(cached[name] for name in cached_hashes))
    size = model.dimensions
    expected = {name: quantised[number * size : (number + 1) * size] for number, name in enumerate(cached_hashes)}
    return [expected[name] == row.vector if name in expected else None for name, row in zip(hashes, rows, strict=True)]


def _recompute_sample(model: Model, rows_by_document: Mapping[str, Sequence[IndexedRow]]) -> int | None:
    """Return the number of vectors that were computed again; None if one differs.

    The sample is random, so that an attacker who changed index and cache cannot predict it.
    """
    rows = [row for document_rows in rows_by_document.values() for row in document_rows]
    sample = random.SystemRandom().sample(rows, min(_SAMPLE_VECTORS, len(rows)))
    vectors = model.embed([row.text for row in sample]) if sample else []
    are_equal = all(quantise(vector) == row.vector for vector, row in zip(vectors, sample, strict=True))
    return len(sample) if are_equal else None
