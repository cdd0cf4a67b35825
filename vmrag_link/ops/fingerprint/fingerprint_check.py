"""Does an index hold what documents and files make: chunks, texts, vectors, every byte of it?"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

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
from vmrag_link.workspace.source_tree import SourceTree
from vmrag_link.workspace.sources import require_complete
from vmrag_link.workspace.worktree import OpenSources

REBUILD = "vmrag sync --rebuild"
BATCH = 5000
"""Vectors that the cache is asked for at once."""

FILES_AT_ONCE = 500
"""Whose texts are in memory."""

ATTEMPTS = 5
"""How often the index is compared again because other processes write."""

WHOLE = 100
"""Percent of the files."""

SAMPLE = 32
"""Vectors of each collection that are computed again. Of an index in which one vector in ten is
another one, a sample misses that 3 times in 100.
"""


class VerifiedIndex(Record, frozen=True, omit_defaults=True):
    """`problems`: what is wrong, and `fix`, the command that mends it. `documents`: stored ones;
    `indexed_files`: of sources, as they lie where the index answers, which for the work tree is not
    what the fingerprint counts (`files`), if some are uncommitted.

    `vectors` of the `chunks` were compared with proven ones of the cache; the others are what was
    written when the index was made. `recomputed` of them, chosen at random, are what an exact
    model makes of their texts.
    """

    fingerprint: str
    revision: str
    ranking: Ranking
    dirty: bool
    documents: int
    chunks: int
    vectors: int
    recomputed: int
    problems: tuple[str, ...]
    fix: str
    files: CountedFiles | None = None
    indexed_files: int = 0


class _Comparison(Record, frozen=True):
    problems: tuple[str, ...]
    chunks: int = 0
    vectors: int = 0
    recomputed: int = 0
    documents: int = 0
    indexed_files: int = 0
    fix: str = ""


def verify_index(ws: Workspace, *, ref: str | None = None, files: bool = True) -> VerifiedIndex:
    """Check the index that answers here, or that of a git ref's pin and files; build it if it is
    missing. Without `files` that of sources is not looked at.
    """
    made = compute_fingerprint(ws, ref=ref)
    looked = list(_verified_here(ws, files=files) if ref is None else _verified_at(ws, ranked_at(ws, ref), files=files))
    fixes = " && ".join(each.fix for each in looked if each.problems)
    found = msgspec.structs.replace(_together(looked), fix=fixes)
    return VerifiedIndex(**msgspec.structs.asdict(made), **msgspec.structs.asdict(found))


def _verified_here(ws: Workspace, *, files: bool) -> Iterator[_Comparison]:
    try:
        yield _compare_working(ws)
    except (NotInitialized, PinMissing):
        if not ws.sources.configured:
            raise
    if files:  # what cannot be read is an error, not an empty index
        with ws.sources.open_work_tree(stored=ws.list_stored_collections()) as opened:
            yield _compare_files(ws, opened, source_tree.read_work_tree(ws))


def _compare_working(ws: Workspace) -> _Comparison:
    """Compare the index that answers here. While other processes write, look again."""
    for _ in range(ATTEMPTS):
        stamp = ws.engine.read_stamp()
        with ws.reader.view(files=False) as view:
            comparison = _compare(ws, view.folder, view.at, fix=REBUILD)
        if not comparison.problems or ws.engine.read_stamp() == stamp:
            return comparison
    raise Busy("Other processes write documents while they are compared.", hint="Run the command again.")


def _verified_at(ws: Workspace, place: RankedRevision, *, files: bool) -> Iterator[_Comparison]:
    if place.revision:
        with ws.reader.open_index(place.revision) as folder:
            yield _compare(ws, folder, place.revision, fix=_remove(folder))
    if files and place.commit and place.config:
        with ws.sources.open_commit(place.commit, place.config) as opened:
            yield _compare_files(ws, opened, source_tree.read_commit(ws, place.commit, place.config))


def _together(looked: Sequence[_Comparison]) -> _Comparison:
    return _Comparison(
        tuple(problem for each in looked for problem in each.problems),
        sum(each.chunks for each in looked),
        sum(each.vectors for each in looked),
        sum(each.recomputed for each in looked),
        sum(each.documents for each in looked),
        sum(each.indexed_files for each in looked),
    )


def _remove(view: Path) -> str:
    """The command after which a view and its segments are made again."""
    paths = [path for path in (view, *_segments(view)) if path not in seal.MEMORY_FOLDERS]
    return f"rm -r {' '.join(map(quoted, paths))}" if paths else REBUILD


def _segments(view: Path) -> list[Path]:
    return [views.segments_folder(view) / part.segment for part in views.read_view(view).parts]


def _compare(ws: Workspace, folder: Path, at: At, *, fix: str) -> _Comparison:
    if problem := _damage(folder):
        return _Comparison((problem,), fix=fix)
    problems = []
    held = read_holdings(folder, "", current=True)
    for name, number in sorted(count_differing(ws, at, held).items()):
        what = plural(number, "document") if number else "The definition"
        problems.append(f"{what} of collection {name!r}: not as in the knowledge base.")
    if problems:
        return _Comparison(tuple(problems), fix=fix)
    skipped = set(held.unembedded) | (set(held.definitions) if views.has_given_vectors(folder) else set())
    looked = [
        _compare_collection(
            ws, folder, each, ws.engine.read_documents(at, collection=each.name), with_vectors=each.name not in skipped
        )
        for each in read_collections_at(ws.engine, at, sorted(held.definitions), ws.models.load_for).values()
    ]
    return msgspec.structs.replace(_together(looked), documents=len(held.headers), fix=fix)


def _compare_files(ws: Workspace, opened: OpenSources | None, tree: SourceTree | None) -> _Comparison:
    if opened is None or tree is None:
        return _Comparison(())
    require_complete(opened.unavailable, opened.missing, opened.failed)
    folder, fix = opened.folder, _remove(opened.folder)
    if problem := _damage(folder):
        return _Comparison((problem,), fix=fix)
    held, rows = read_holdings(folder, "", current=True), IndexedRows(folder)
    problems = tuple(
        f"{plural(number, 'file')} of collection {name!r}: not as in the index."
        for name, number in sorted(_differing_files(opened, tree, held).items())
    )
    if problems:
        return _Comparison(problems, fix=fix)
    try:
        looked = [
            _compare_collection(
                ws, folder, collection, rows.read_documents("", collection=collection.name), with_vectors=True
            )
            for collection in rows.list_collections("")
        ]
    except IndexFailed as error:  # the texts together are not those of its own list
        return _Comparison((error.message,), fix=fix)
    return msgspec.structs.replace(_together(looked), indexed_files=len(held.headers), fix=fix)


def _differing_files(opened: OpenSources, tree: SourceTree, held: Holdings) -> Counter[str]:
    """How many files of each collection the index holds otherwise, or not though it should."""
    numbers: Counter[str] = Counter()
    keys = iter(sorted(tree.files.keys() | held.headers.keys()))
    while batch := list(itertools.islice(keys, FILES_AT_ONCE)):
        there = tree.read_documents(batch)
        for key in batch:
            document, header = there.get(key), held.headers.get(key)
            if header is None and (opened.indexed < WHOLE or key[1] in opened.failed):
                continue  # it is said with each answer
            if (document and document.content_hash) != (header and header.content_hash):
                numbers[key[0]] += 1
    return numbers


def _damage(folder: Path) -> str:
    problem = views.find_mismatch(folder) or _damaged_words(folder)
    return f"{problem[0].upper()}{problem[1:]}." if problem else ""


def _damaged_words(folder: Path) -> str:
    return next(filter(None, map(find_word_problem, _segments(folder))), "")


def _compare_collection(
    ws: Workspace, folder: Path, collection: Collection, documents: Iterable[Document], *, with_vectors: bool
) -> _Comparison:
    """Cut every document again (code where it was cut), and compare the chunks with those of the
    index.
    """
    model, held = ws.models.load_for(collection), read_rows(folder, collection.name)
    chunking = limit_chunking(collection.chunking, model)
    number = 0
    for document in documents:
        rows = held[document.doc_id]
        if [chunk.text for chunk in split_document(document, chunking)] != [row.text for row in rows]:
            name = f"{collection.name}/{document.doc_id}"
            return _Comparison((f"The texts of {name} in the index are not those of the document.",))
        number += len(rows)
    if not with_vectors:
        return _Comparison((), number)
    vectors = 0
    for batch in _batches((doc_id, row) for doc_id, rows in held.items() for row in rows):
        equal = _equal_vectors(ws, model, [row for _, row in batch])
        if False in equal:
            name = f"{collection.name}/{batch[equal.index(False)][0]}"
            return _Comparison((f"The vectors of {name} in the index are not those of its texts.",))
        vectors += equal.count(True)
    recomputed = _recompute(model, held) if model.exact else 0
    if recomputed is None:
        return _Comparison((f"Vectors of collection {collection.name!r} are not what the model makes of their texts.",))
    return _Comparison((), number, vectors, recomputed)


def _batches(rows: Iterator[tuple[str, IndexedRow]]) -> Iterator[list[tuple[str, IndexedRow]]]:
    while batch := list(itertools.islice(rows, BATCH)):
        yield batch


def _equal_vectors(ws: Workspace, model: Model, rows: Sequence[IndexedRow]) -> list[bool | None]:
    """Whether each vector is the cache's; None where the cache has none."""
    hashes = [content_hash(row.text) for row in rows]
    cached = ws.embedding_cache.read_vectors(model.fingerprint, hashes, dimensions=model.dimensions)
    known = [name for name in hashes if name in cached]
    whole = quantise(b"".join(cached[name] for name in known))  # together: ten times as fast as one by one
    size = model.dimensions
    wanted = {name: whole[number * size : (number + 1) * size] for number, name in enumerate(known)}
    return [wanted[name] == row.vector if name in wanted else None for name, row in zip(hashes, rows, strict=True)]


def _recompute(model: Model, held: Mapping[str, Sequence[IndexedRow]]) -> int | None:
    """How many vectors were computed again; None if one differs.

    Nobody can foresee which: who has altered index and cache alike is found by chance only.
    """
    rows = [row for each in held.values() for row in each]
    chosen = random.SystemRandom().sample(rows, min(SAMPLE, len(rows)))
    made = model.embed([row.text for row in chosen]) if chosen else []
    equal = all(quantise(vector) == row.vector for vector, row in zip(made, chosen, strict=True))
    return len(chosen) if equal else None
