"""Write segments anew whose rows few views count, or that hold the same documents as others.

Views that are kept go on counting what they counted, in the new segment: it holds every state of a
document that one of them counts, once. So fifty revisions take little more than their changes do.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sqlite3
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from vmrag_link import locks
from vmrag_link.errors import Busy, IndexFailed, no_space, unusable
from vmrag_link.index import keywords, seal
from vmrag_link.index import view as views
from vmrag_link.index.draft import seal_view
from vmrag_link.index.reader import IndexReader
from vmrag_link.index.segment import DocumentTexts, SegmentWriter, is_disk_full
from vmrag_link.index.view import CollectionPiece, IndexedCollection, IndexView, ViewPart
from vmrag_link.index.views import Views
from vmrag_link.models import Collection as CollectionDefinition
from vmrag_link.models import DocumentHeader, encode_canonical_json

WORN = 0.7
"""The share of a segment's rows below which it is written anew."""


class _Used(NamedTuple):
    """What some views count of one collection in one segment: dead there is what none does."""

    definition: CollectionDefinition
    piece: CollectionPiece

    @property
    def label(self) -> str:
        """Equal for pieces whose rows may lie in one: cut, embedded and measured alike."""
        each = self.definition
        decisive = [each.embedding_function, each.embedding_model, each.embedding_dimensions, each.chunking]
        return f"{each.name}\n{hashlib.sha256(encode_canonical_json(decisive).encode()).hexdigest()[:16]}"


Use = dict[str, dict[int, _Used]]
"""By segment and the number of a piece in it: to views of different settings, the pieces of one
collection are different ones.
"""

Moved = dict[tuple[str, int], dict[int, range]]
"""The slots of documents in the new segment, by the segment and piece that they were in, and by
their first slot there.
"""


class _New(NamedTuple):
    """The new segment; `pieces` by label."""

    name: str
    pieces: Mapping[str, CollectionPiece]
    moved: Moved


def rewrite_segments(kept: Views) -> list[Path]:
    """Write worn segments anew; returns the views that were changed.

    A view that is being read keeps its segments, as do those of uncommitted documents, and views
    that do not verify. The caller removes what no view counts any more (`Segments.collect`). Raises
    `Busy` where another process is at it, `FileFailed`, and `IndexFailed` for damage.
    """
    rewriting = kept.root.parent / "locks" / "rewriting.lock"
    with contextlib.ExitStack() as held:
        held.enter_context(_database_errors(kept.segments.root))
        held.enter_context(locks.hold_exclusive(rewriting, purpose="rewrite segments", timeout=0))
        held.enter_context(kept.segments.pause_collection())
        there = dict(_views(kept))
        used = _use(there.values())
        worn = _worn(kept.segments.root, used, there.values())
        if not worn:
            return []
        folder = held.enter_context(kept.segments.temporary_folder())
        new = _written(kept, folder, used, worn)
        return [
            path
            for path, view in there.items()
            if any(part.segment in worn for part in view.parts)
            and _replace(kept, path, view, _moved_view(view, used, worn, new))
        ]


def _views(kept: Views) -> Iterator[tuple[Path, IndexView]]:
    for each in kept.list_views():
        with contextlib.suppress(IndexFailed):
            if not kept.find_problem(each.revision):
                yield each.path, views.read_view(each.path)


def _use(there: Collection[IndexView]) -> Use:
    """What of each segment some view counts."""
    used: Use = {}
    for view in there:
        for part in view.parts:
            pieces = used.setdefault(part.segment, {})
            for name, piece in part.pieces.items():
                before = pieces.get(piece.id)
                dead = _both(before.piece.dead, piece.dead) if before else piece.dead
                pieces[piece.id] = _Used(view.collections[name].collection, msgspec.structs.replace(piece, dead=dead))
    return used


def _both(one: bytes, other: bytes) -> bytes:
    """The bits that are in both."""
    both = int.from_bytes(one, "little") & int.from_bytes(other, "little")
    return both.to_bytes(len(one), "little") if both else b""


def _worn(root: Path, used: Use, there: Collection[IndexView]) -> set[str]:
    """The segments to write anew: those of which less than `WORN` is counted, and the largest set
    of those of which others of the set hold so much that less than `WORN` is left.
    """
    states = {name: _states(root, name, pieces) for name, pieces in used.items()}
    counted = {name: sum(each.values()) for name, each in states.items()}
    worn = {name for name in used if counted[name] < WORN * _slots_of(root / name)}
    shared = set(used)
    while True:
        holding = Counter(state for name in shared | worn for state in states[name])
        alone = {name: sum(n for state, n in states[name].items() if holding[state] == 1) for name in shared}
        fewer = {name for name in shared if alone[name] < WORN * counted[name]}
        if fewer == shared:
            break
        shared = fewer
    groups = (worn | shared, worn, shared, *({name} for name in sorted(worn)))
    return next((group for group in groups if group and _are_worth_joining(group, states, there)), set())


def _are_worth_joining(names: set[str], states: Mapping[str, Mapping[int, int]], there: Collection[IndexView]) -> bool:
    """Whether no view would have more dead slots of these segments joined than it has chunks: the
    next one that is derived from it would take them apart again (`draft.absorbed`).
    """
    joined = sum({state: chunks for name in names for state, chunks in states[name].items()}.values())
    for view in there:
        of_these = [piece.chunks for part in view.parts if part.segment in names for piece in part.pieces.values()]
        if of_these and joined - sum(of_these) > view.count_totals()[1]:
            return False
    return True


def _slots_of(segment: Path) -> int:
    """All slots, those of dropped collections too, by the bytes of the file of lengths."""
    return sum(path.stat().st_size for path in segment.glob("lengths-*.u32")) // 12


def _states(root: Path, segment: str, pieces: Mapping[int, _Used]) -> dict[int, int]:
    """The states of documents that are counted in a segment, each by a hash, with its chunks."""
    return {
        hash((each.label, header)): len(rows)
        for each, reader in _readers(root, segment, pieces)
        for header, rows in reader.list_documents(each.definition.name)
    }


def _readers(root: Path, segment: str, pieces: Mapping[int, _Used]) -> Iterator[tuple[_Used, IndexReader]]:
    """Each piece of a segment alone."""
    for piece in pieces.values():
        name = piece.definition.name
        alone = IndexView("", {name: IndexedCollection(piece.definition)}, (ViewPart(segment, {name: piece.piece}),))
        with IndexReader(alone, root) as reader:
            yield piece, reader


def _written(kept: Views, folder: Path, used: Use, worn: Collection[str]) -> _New:
    root = kept.segments.root
    moved: Moved = {}
    known: dict[bytes, range] = {}
    ends: Counter[str] = Counter()
    with contextlib.closing(SegmentWriter(folder)) as writer:
        for segment in sorted(worn):
            if problem := seal.find_mismatch(root / segment):
                raise IndexFailed(f"The segment {segment} does not verify: {problem}.", hint="vmrag sync")
            for each, reader in _readers(root, segment, used[segment]):
                label, places = each.label, moved.setdefault((segment, each.piece.id), {})
                for batch in reader.batch_documents(each.definition.name):
                    new: list[tuple[DocumentHeader, range]] = []
                    for header, rows in batch:
                        key = _key(label, header, reader, rows)
                        if key not in known:
                            known[key] = range(ends[label], ends[label] + len(rows))
                            ends[label] += len(rows)
                            new.append((header, rows))
                        places[keywords.unpack_slot(rows.start)] = known[key]
                    _add(writer, label, reader, new, each.definition)
        written = writer.finish()
    pieces = {label: held.piece for label, held in written.items()}
    return _New(kept.segments.publish(folder), pieces, moved)


def _key(label: str, header: DocumentHeader, reader: IndexReader, rows: range) -> bytes:
    """Equal for documents that are the same in every byte: vectors that clients or services gave
    may differ for equal texts.
    """
    vectors = reader.read_vectors(rows)
    what = [label, header.doc_id, header.title, header.content_hash, header.metadata]
    return hashlib.sha256(encode_canonical_json(what).encode() + vectors).digest()


def _add(
    writer: SegmentWriter,
    label: str,
    reader: IndexReader,
    documents: Sequence[tuple[DocumentHeader, range]],
    definition: CollectionDefinition,
) -> None:
    if not documents:
        return
    rows = [row for _, document in documents for row in document]
    texts, floats = reader.read_texts(rows), reader.read_floats(rows)
    writer.add_documents(
        label,
        [DocumentTexts(header, [texts[row] for row in document]) for header, document in documents],
        b"".join(reader.read_vectors(document) for _, document in documents),
        dimensions=definition.embedding_dimensions,
        code=definition.is_code,
        kept={at: floats[row] for at, row in enumerate(rows) if row in floats},
    )


def _moved_view(view: IndexView, used: Use, worn: Collection[str], new: _New) -> IndexView:
    """The same view with the new segment in the place of worn ones."""
    places: dict[str, list[range]] = {}
    labels: dict[str, str] = {}
    for part in view.parts:
        for name, piece in part.pieces.items() if part.segment in worn else ():
            labels[name] = used[part.segment][piece.id].label
            moved = new.moved[part.segment, piece.id].items()
            places.setdefault(name, []).extend(slots for first, slots in moved if piece.is_alive(first))
    pieces = {name: _counting(new.pieces[labels[name]], documents) for name, documents in places.items()}
    parts = tuple(part for part in view.parts if part.segment not in worn)
    return msgspec.structs.replace(view, parts=(*parts, ViewPart(new.name, pieces)))


def _counting(piece: CollectionPiece, documents: Sequence[range]) -> CollectionPiece:
    """A piece of which these documents count, and no others."""
    dead = bytearray(((1 << piece.slots) - 1).to_bytes(-(-piece.slots // 8), "little"))
    for slots in documents:
        for slot in slots:
            dead[slot >> 3] &= ~(1 << (slot & 7))
    chunks = sum(map(len, documents))
    bits = bytes(dead) if chunks < piece.slots else b""
    return msgspec.structs.replace(piece, documents=len(documents), chunks=chunks, dead=bits)


def _replace(kept: Views, path: Path, before: IndexView, view: IndexView) -> bool:
    """Put a view in the place of an equal one, unless that is being read, or is another one or
    gone by now. Its age stays.
    """
    with kept.temporary_folder() as folder, contextlib.suppress(Busy, FileNotFoundError):
        seal_view(folder, view, kept.segments.root)
        ages = {name: (path / name).stat() for name in ("", views.VIEW_FILE)}
        for name, age in ages.items():
            os.utime(folder / name, ns=(age.st_atime_ns, age.st_mtime_ns))
        seal.require_verification(folder)  # it notes the files' times
        return kept.swap_view(folder, path, unless=lambda: not _is(path, before))
    return False


def _is(path: Path, view: IndexView) -> bool:
    with contextlib.suppress(IndexFailed):
        return views.read_view(path) == view
    return False


@contextlib.contextmanager
def _database_errors(folder: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise no_space(folder) if is_disk_full(error) else unusable(folder, str(error)) from error
