"""Does an index hold what the documents make: chunks, texts, vectors, every byte of its files?"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from vmrag_link.documents.chunking import chunks
from vmrag_link.embedding.base import Model, within_window
from vmrag_link.errors import plural, quoted
from vmrag_link.index import keywords
from vmrag_link.index import verify as verifying
from vmrag_link.index import view as views
from vmrag_link.index.contents import HeldRow, rows_of
from vmrag_link.index.vectors import quantise
from vmrag_link.models import At, Collection, Record, content_hash
from vmrag_link.ops.follow import lazy_fetch
from vmrag_link.ops.history.fingerprint import fingerprint
from vmrag_link.ops.index.holdings import differing, read
from vmrag_link.retrieval.fusion import Ranking
from vmrag_link.workspace import Workspace

REBUILD = "vmrag sync --rebuild"
BATCH = 5000
"""Vectors that the cache is asked for at once."""

SAMPLE = 32
"""Vectors of each collection that are computed again. Of an index in which one vector in ten is
another one, a sample misses that 3 times in 100.
"""


class VerifiedIndex(Record, frozen=True):
    """`problems`: what is wrong, and `fix`, the command that mends it.

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


class _Comparison(Record, frozen=True):
    problems: tuple[str, ...]
    chunks: int = 0
    vectors: int = 0
    recomputed: int = 0


def verify(ws: Workspace, *, ref: str | None = None) -> VerifiedIndex:
    """Check the index that answers here, or that of a git ref's pin; build it if it is missing."""
    made = fingerprint(ws, ref=ref)
    if ref is None:
        with ws.reader.view() as view:
            found, documents, fix = _compare(ws, view.folder, view.at), ws.engine.count(view.at), REBUILD
    else:
        revision = lazy_fetch.pinned_at(ws, ref)
        with ws.reader.index_of(revision) as folder:
            found, documents, fix = (
                _compare(ws, folder, revision),
                ws.engine.count(revision),
                _remove(folder),
            )
    return VerifiedIndex(
        made.fingerprint,
        made.revision,
        made.ranking,
        made.dirty,
        documents,
        found.chunks,
        found.vectors,
        found.recomputed,
        found.problems,
        fix if found.problems else "",
    )


def _remove(view: Path) -> str:
    """The command after which a view and its segments are made again."""
    return f"rm -r {' '.join(quoted(each) for each in (view, *_segments(view)))}"


def _segments(view: Path) -> list[Path]:
    return [verifying.segments_beside(view) / part.segment for part in views.read(view).parts]


def _compare(ws: Workspace, folder: Path, at: At) -> _Comparison:
    if problem := verifying.mismatch(folder) or _damaged_words(folder):
        return _Comparison((f"{problem[0].upper()}{problem[1:]}.",))
    problems = []
    held = read(folder, "", current=True)
    for name, number in sorted(differing(ws, at, held).items()):
        what = plural(number, "document") if number else "The definition"
        problems.append(f"{what} of collection {name!r}: not as in the knowledge base.")
    if problems:
        return _Comparison(tuple(problems))
    skipped = set(held.unembedded) | (set(held.definitions) if views.has_given_vectors(folder) else set())
    looked = [
        _compare_collection(ws, folder, at, each, with_vectors=each.name not in skipped)
        for each in ws.engine.collections(at)
    ]
    return _Comparison(
        tuple(problem for each in looked for problem in each.problems),
        sum(each.chunks for each in looked),
        sum(each.vectors for each in looked),
        sum(each.recomputed for each in looked),
    )


def _damaged_words(folder: Path) -> str:
    return next(filter(None, map(keywords.damage, _segments(folder))), "")


def _compare_collection(
    ws: Workspace, folder: Path, at: At, collection: Collection, *, with_vectors: bool
) -> _Comparison:
    """Cut every document again, and compare the chunks with those of the index."""
    model, held = ws.models.of(collection), rows_of(folder, collection.name)
    chunking = within_window(collection.chunking, model)
    number = 0
    for document in ws.engine.documents(at, collection=collection.name):
        rows = held[document.doc_id]
        if [chunk.text for chunk in chunks(document.content, chunking)] != [row.text for row in rows]:
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


def _batches(rows: Iterator[tuple[str, HeldRow]]) -> Iterator[list[tuple[str, HeldRow]]]:
    while batch := list(itertools.islice(rows, BATCH)):
        yield batch


def _equal_vectors(ws: Workspace, model: Model, rows: Sequence[HeldRow]) -> list[bool | None]:
    """Whether each vector is the cache's; None where the cache has none."""
    hashes = [content_hash(row.text) for row in rows]
    cached = ws.embedding_cache.get(model.fingerprint, hashes, dimensions=model.dimensions, adopt=not model.local)
    known = [name for name in hashes if name in cached]
    whole = quantise(b"".join(cached[name] for name in known))  # together: ten times as fast as one by one
    size = model.dimensions
    wanted = {name: whole[number * size : (number + 1) * size] for number, name in enumerate(known)}
    return [wanted[name] == row.vector if name in wanted else None for name, row in zip(hashes, rows, strict=True)]


def _recompute(model: Model, held: Mapping[str, Sequence[HeldRow]]) -> int | None:
    """How many vectors were computed again; None if one differs.

    Nobody can foresee which: who has altered index and cache alike is found by chance only.
    """
    rows = [row for each in held.values() for row in each]
    chosen = random.SystemRandom().sample(rows, min(SAMPLE, len(rows)))
    made = model.embed([row.text for row in chosen]) if chosen else []
    equal = all(quantise(vector) == row.vector for vector, row in zip(made, chosen, strict=True))
    return len(chosen) if equal else None
