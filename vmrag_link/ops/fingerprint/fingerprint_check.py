"""Verify that an index has exactly what documents and files make: chunks, texts,
vectors and files.
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
from vmrag_link.retrieval.fusion import Ranking
from vmrag_link.sync.plan import read_collections_at
from vmrag_link.workspace import Workspace, source_tree
from vmrag_link.workspace.answers.index_status import Holdings, count_differing, read_holdings
from vmrag_link.workspace.follow.provenance import RankedRevision, ranked_at
from vmrag_link.workspace.indexed_rows import IndexedRows
from vmrag_link.workspace.source_index import require_complete
from vmrag_link.workspace.source_tree import SourceTree
from vmrag_link.workspace.worktree import OpenSources

REBUILD = "vmrag sync --rebuild"
BATCH = 5000
"""Number of vectors per request to the cache."""

FILES_AT_ONCE = 500
"""Number of files whose texts are in memory at the same time."""

ATTEMPTS = 5
"""Number of attempts to compare the index while other processes write."""

SAMPLE = 32
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
    parts = list(_verify_here(ws, files=files) if ref is None else _verify_at(ws, ranked_at(ws, ref), files=files))
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
    for _ in range(ATTEMPTS):
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
    if problem := _find_damage(folder):
        return _Comparison((problem,), fix=fix)
    problems = []
    holdings = read_holdings(folder, "", current=True)
    for name, number in sorted(count_differing(ws, at, holdings).items()):
        subject = plural(number, "document") if number else "the definition"
        problems.append(f"{subject} of collection {name!r} in the index: not as in the knowledge base.")
    if problems:
        return _Comparison(tuple(problems), fix=fix)
    skipped = set(holdings.unembedded) | (set(holdings.definitions) if views.has_given_vectors(folder) else set())
    comparisons = [
        _compare_collection(
            ws, folder, row, ws.engine.read_documents(at, collection=row.name), with_vectors=row.name not in skipped
        )
        for row in read_collections_at(ws.engine, at, sorted(holdings.definitions), ws.models.load_for).values()
    ]
    return msgspec.structs.replace(_join_parts(comparisons), documents=len(holdings.headers), fix=fix)


def _compare_files(ws: Workspace, opened: OpenSources | None, tree: SourceTree | None) -> _Comparison:
    if opened is None or tree is None:
        return _Comparison(())
    require_complete(opened.unavailable, opened.missing, opened.failed)
    folder, fix = opened.folder, _form_removal(opened.folder)
    if problem := _find_damage(folder):
        return _Comparison((problem,), fix=fix)
    holdings, rows = read_holdings(folder, "", current=True), IndexedRows(folder)
    problems = tuple(
        f"{plural(number, 'file')} of collection {name!r}: not as in the index."
        for name, number in sorted(_count_differing_files(opened, tree, holdings).items())
    )
    if problems:
        return _Comparison(problems, fix=fix)
    try:
        comparisons = [
            _compare_collection(
                ws, folder, collection, rows.read_documents("", collection=collection.name), with_vectors=True
            )
            for collection in rows.list_collections("")
        ]
    except IndexFailed as error:  # the texts do not match the checksums of the index
        return _Comparison((error.message,), fix=fix)
    return msgspec.structs.replace(_join_parts(comparisons), indexed_files=len(holdings.headers), fix=fix)


def _count_differing_files(opened: OpenSources, tree: SourceTree, holdings: Holdings) -> Counter[str]:
    """Count the files of each collection that the index has in another state, or lacks."""
    numbers: Counter[str] = Counter()
    keys = iter(sorted(tree.files.keys() | holdings.headers.keys()))
    while batch := list(itertools.islice(keys, FILES_AT_ONCE)):
        documents = tree.read_documents(batch)
        for key in batch:
            document, header = documents.get(key), holdings.headers.get(key)
            if header is None and (not opened.is_complete or key[1] in opened.failed):
                continue  # each answer warns about it
            if (document and document.content_hash) != (header and header.content_hash):
                numbers[key[0]] += 1
    return numbers


def _find_damage(folder: Path) -> str:
    problem = views.find_mismatch(folder) or _find_damaged_words(folder)
    return f"{problem}." if problem else ""


def _find_damaged_words(folder: Path) -> str:
    return next(filter(None, map(find_word_problem, _list_segments(folder))), "")


def _compare_collection(
    ws: Workspace, folder: Path, collection: Collection, documents: Iterable[Document], *, with_vectors: bool
) -> _Comparison:
    """Cut each document into chunks again, and compare them with the chunks in the index.

    Code keeps its recorded cuts.
    """
    model, rows_by_document = ws.models.load_for(collection), read_rows(folder, collection.name)
    chunking = limit_chunking(collection.chunking, model)
    number = 0
    for document in documents:
        rows = rows_by_document[document.doc_id]
        if [chunk.text for chunk in split_document(document, chunking)] != [row.text for row in rows]:
            name = f"{collection.name}/{document.doc_id}"
            return _Comparison((f"The texts of {name} in the index are not those of the document.",))
        number += len(rows)
    if not with_vectors:
        return _Comparison((), number)
    vectors = 0
    rows_to_check = ((doc_id, row) for doc_id, rows in rows_by_document.items() for row in rows)
    while batch := list(itertools.islice(rows_to_check, BATCH)):
        equal = _compare_vectors(ws, model, [row for _, row in batch])
        if False in equal:
            name = f"{collection.name}/{batch[equal.index(False)][0]}"
            return _Comparison((f"The vectors of {name} in the index are not those of its texts.",))
        vectors += equal.count(True)
    recomputed = _recompute_sample(model, rows_by_document) if model.exact else 0
    if recomputed is None:
        return _Comparison((f"Vectors of collection {collection.name!r} are not what the model makes of their texts.",))
    return _Comparison((), number, vectors, recomputed)


def _compare_vectors(ws: Workspace, model: Model, rows: Sequence[IndexedRow]) -> list[bool | None]:
    """Return whether each vector equals the cached one; None if the cache does not have it."""
    hashes = [content_hash(row.text) for row in rows]
    cached = ws.embedding_cache.read_vectors(model.fingerprint, hashes, dimensions=model.dimensions)
    cached_hashes = [name for name in hashes if name in cached]
    # This is ten times as fast as one by one.
    whole = quantise(b"".join(cached[name] for name in cached_hashes))
    size = model.dimensions
    expected = {name: whole[number * size : (number + 1) * size] for number, name in enumerate(cached_hashes)}
    return [expected[name] == row.vector if name in expected else None for name, row in zip(hashes, rows, strict=True)]


def _recompute_sample(model: Model, rows_by_document: Mapping[str, Sequence[IndexedRow]]) -> int | None:
    """Return the number of vectors that were computed again; None if one differs.

    The sample is random, so that an attacker who changed index and cache cannot predict it.
    """
    rows = [row for document_rows in rows_by_document.values() for row in document_rows]
    chosen = random.SystemRandom().sample(rows, min(SAMPLE, len(rows)))
    vectors = model.embed([row.text for row in chosen]) if chosen else []
    equal = all(quantise(vector) == row.vector for vector, row in zip(vectors, chosen, strict=True))
    return len(chosen) if equal else None
