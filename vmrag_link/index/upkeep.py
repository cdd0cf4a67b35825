"""Rewrite segments that views hardly use, or that have the same documents as other segments.

The new segment has each state of a document that a view includes once, and the views use the new
segment instead. So 50 revisions take little more space than their changes.
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
from vmrag_link.index import flat_files, keywords, seal
from vmrag_link.index import view as views
from vmrag_link.index.draft import seal_view
from vmrag_link.index.reader import IndexReader
from vmrag_link.index.segment import DocumentTexts, SegmentWriter, is_disk_full
from vmrag_link.index.view import CollectionPiece, IndexedCollection, IndexView, ViewPart
from vmrag_link.index.views import Views
from vmrag_link.models import Collection as CollectionDefinition
from vmrag_link.models import DocumentHeader, encode_canonical_json

MIN_USED_SHARE = 0.7
"""Share of used rows below which a segment is rewritten."""


class _UsedPiece(NamedTuple):
    """The part of one collection in one segment that some views use. A slot is dead if no view uses
    it.
    """

    definition: CollectionDefinition
    piece: CollectionPiece

    @property
    def label(self) -> str:
        """A label that is equal for pieces whose rows may be in one piece: their collections have
        the same name, chunks, model and dimensions.
        """
        definition = self.definition
        model = [definition.embedding_function, definition.embedding_model, definition.embedding_dimensions]
        decisive = [*model, definition.chunking]
        return f"{definition.name}\n{hashlib.sha256(encode_canonical_json(decisive).encode()).hexdigest()[:16]}"


UsedPieces = dict[str, dict[int, _UsedPiece]]
"""Used pieces by segment and by the number of the piece in the segment. Views of different settings
have different pieces of one collection.
"""

MovedSlots = dict[tuple[str, int], dict[int, range]]
"""The slots of documents in the new segment, by the old segment and piece, and by the first old
slot.
"""


class _NewSegment(NamedTuple):
    """The new segment."""

    name: str
    pieces: Mapping[str, CollectionPiece]
    """Pieces by label."""

    moved: MovedSlots


def rewrite_segments(revision_views: Views) -> list[Path]:
    """Rewrite worn segments, and return the views that were changed.

    These keep their segments: views that are being read, views of uncommitted documents, and
    damaged views. The caller removes the segments that no view uses afterwards
    (`Segments.collect_garbage`). Raises `Busy` if another process rewrites segments, `FileFailed`,
    and `IndexFailed` for damage.
    """
    lock = revision_views.root.parent / "locks" / "rewriting.lock"
    with contextlib.ExitStack() as stack:
        stack.enter_context(_database_errors(revision_views.segments.root))
        stack.enter_context(locks.hold_exclusive(lock, purpose="rewrite segments", timeout=0))
        stack.enter_context(revision_views.segments.pause_collection())
        usable_views = dict(_read_usable_views(revision_views))
        used_pieces = _find_used_pieces(usable_views.values())
        worn = _choose_worn(revision_views.segments.root, used_pieces, usable_views.values())
        if not worn:
            return []
        folder = stack.enter_context(revision_views.segments.temporary_folder())
        new = _write_segment(revision_views, folder, used_pieces, worn)
        return [
            path
            for path, view in usable_views.items()
            if any(part.segment in worn for part in view.parts)
            and _replace_view(revision_views, path, view, _move_view(view, used_pieces, worn, new))
        ]


def _read_usable_views(revision_views: Views) -> Iterator[tuple[Path, IndexView]]:
    """Yield the path and the content of each undamaged view."""
    for revision_view in revision_views.list_views():
        with contextlib.suppress(IndexFailed):
            if not revision_views.find_problem(revision_view.revision):
                yield revision_view.path, views.read_view(revision_view.path)


def _find_used_pieces(usable_views: Collection[IndexView]) -> UsedPieces:
    """Return the pieces of segments that views use."""
    used: UsedPieces = {}
    for view in usable_views:
        for part in view.parts:
            pieces = used.setdefault(part.segment, {})
            for name, piece in part.pieces.items():
                other = pieces.get(piece.id)
                dead = _intersect_bits(other.piece.dead, piece.dead) if other else piece.dead
                pieces[piece.id] = _UsedPiece(
                    view.collections[name].collection, msgspec.structs.replace(piece, dead=dead)
                )
    return used


def _intersect_bits(one: bytes, other: bytes) -> bytes:
    """Return the bits that are set in both."""
    common = int.from_bytes(one, "little") & int.from_bytes(other, "little")
    return common.to_bytes(len(one), "little") if common else b""


def _choose_worn(root: Path, used: UsedPieces, usable_views: Collection[IndexView]) -> set[str]:
    """Return the segments to rewrite.

    A segment is rewritten if less than `MIN_USED_SHARE` of its rows are used. So is the largest set
    of segments in which less than `MIN_USED_SHARE` of each segment is unique in the set.
    """
    states = {name: _count_states(root, name, pieces) for name, pieces in used.items()}
    used_chunks = {name: sum(chunks.values()) for name, chunks in states.items()}
    worn = {name for name in used if used_chunks[name] < MIN_USED_SHARE * flat_files.count_slots(root / name)}
    shared = set(used)
    while True:
        segments_with = Counter(state for name in shared | worn for state in states[name])
        unique = {name: sum(n for state, n in states[name].items() if segments_with[state] == 1) for name in shared}
        fewer = {name for name in shared if unique[name] < MIN_USED_SHARE * used_chunks[name]}
        if fewer == shared:
            break
        shared = fewer
    groups = (worn | shared, worn, shared, *({name} for name in sorted(worn)))
    return next((group for group in groups if group and _are_worth_joining(group, states, usable_views)), set())


def _are_worth_joining(
    names: set[str], states: Mapping[str, Mapping[int, int]], usable_views: Collection[IndexView]
) -> bool:
    """Return whether these segments should be joined.

    They should not if a view would have more dead slots of the joined segment than it has chunks:
    the next view that is derived from it would split the segment again (`draft.choose_absorbed`).
    """
    joined = sum({state: chunks for name in names for state, chunks in states[name].items()}.values())
    for view in usable_views:
        used = [piece.chunks for part in view.parts if part.segment in names for piece in part.pieces.values()]
        if used and joined - sum(used) > view.count_totals()[1]:
            return False
    return True


def _count_states(root: Path, segment: str, pieces: Mapping[int, _UsedPiece]) -> dict[int, int]:
    """Return the number of chunks of each used state of a document in a segment, by a hash of the
    state.
    """
    return {
        hash((piece.label, header)): len(rows)
        for piece, reader in _open_pieces(root, segment, pieces)
        for header, rows in reader.list_documents(piece.definition.name)
    }


def _open_pieces(
    root: Path, segment: str, pieces: Mapping[int, _UsedPiece]
) -> Iterator[tuple[_UsedPiece, IndexReader]]:
    """Yield each piece of a segment, with a reader of this piece only."""
    for piece in pieces.values():
        name = piece.definition.name
        view = IndexView("", {name: IndexedCollection(piece.definition)}, (ViewPart(segment, {name: piece.piece}),))
        with IndexReader(view, root) as reader:
            yield piece, reader


def _write_segment(revision_views: Views, folder: Path, used: UsedPieces, worn: Collection[str]) -> _NewSegment:
    """Write a new segment with the used documents of worn segments."""
    root = revision_views.segments.root
    moved: MovedSlots = {}
    slots_by_hash: dict[bytes, range] = {}
    ends: Counter[str] = Counter()
    with contextlib.closing(SegmentWriter(folder)) as writer:
        for segment in sorted(worn):
            if problem := seal.find_mismatch(root / segment):
                raise IndexFailed(
                    f"the index segment {segment} is damaged: {problem}.", hint="run 'vmrag sync' to build it again"
                )
            for piece, reader in _open_pieces(root, segment, used[segment]):
                label, new_slots = piece.label, moved.setdefault((segment, piece.piece.id), {})
                for batch in reader.batch_documents(piece.definition.name):
                    new_documents: list[tuple[DocumentHeader, range]] = []
                    for header, rows in batch:
                        key = _hash_document(label, header, reader, rows)
                        if key not in slots_by_hash:
                            slots_by_hash[key] = range(ends[label], ends[label] + len(rows))
                            ends[label] += len(rows)
                            new_documents.append((header, rows))
                        new_slots[keywords.unpack_slot(rows.start)] = slots_by_hash[key]
                    _add_documents(writer, label, reader, new_documents, piece.definition)
        written = writer.finish()
    pieces = {label: collection.piece for label, collection in written.items()}
    return _NewSegment(revision_views.segments.publish(folder), pieces, moved)


def _hash_document(label: str, header: DocumentHeader, reader: IndexReader, rows: range) -> bytes:
    """Return a hash that is equal for documents that are the same in every byte.

    It includes the vectors, because vectors from clients or services may differ for equal texts.
    """
    vectors = reader.read_vectors(rows)
    fields = [label, header.doc_id, header.title, header.content_hash, header.metadata]
    return hashlib.sha256(encode_canonical_json(fields).encode() + vectors).digest()


def _add_documents(
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
        kept={number: floats[row] for number, row in enumerate(rows) if row in floats},
    )


def _move_view(view: IndexView, used: UsedPieces, worn: Collection[str], segment: _NewSegment) -> IndexView:
    """Return a view that uses the new segment instead of worn segments."""
    documents_by_name: dict[str, list[range]] = {}
    labels: dict[str, str] = {}
    for part in view.parts:
        for name, piece in part.pieces.items() if part.segment in worn else ():
            labels[name] = used[part.segment][piece.id].label
            moved = segment.moved[part.segment, piece.id].items()
            documents_by_name.setdefault(name, []).extend(slots for first, slots in moved if piece.is_alive(first))
    pieces = {
        name: _select_documents(segment.pieces[labels[name]], documents)
        for name, documents in documents_by_name.items()
    }
    parts = tuple(part for part in view.parts if part.segment not in worn)
    return msgspec.structs.replace(view, parts=(*parts, ViewPart(segment.name, pieces)))


def _select_documents(piece: CollectionPiece, documents: Sequence[range]) -> CollectionPiece:
    """Return a piece that includes only these documents."""
    dead = bytearray(((1 << piece.slots) - 1).to_bytes(-(-piece.slots // 8), "little"))
    for slots in documents:
        for slot in slots:
            dead[slot >> 3] &= ~(1 << (slot & 7))
    chunks = sum(map(len, documents))
    bits = bytes(dead) if chunks < piece.slots else b""
    return msgspec.structs.replace(piece, documents=len(documents), chunks=chunks, dead=bits)


def _replace_view(revision_views: Views, path: Path, old: IndexView, view: IndexView) -> bool:
    """Replace a view by an equal one with the same age, and return whether it was replaced.

    The view stays if it is being read, or if it changed or was removed in the meantime.
    """
    with revision_views.temporary_folder() as folder, contextlib.suppress(Busy, FileNotFoundError):
        seal_view(folder, view, revision_views.segments.root)
        ages = {name: (path / name).stat() for name in ("", views.VIEW_FILE)}
        for name, age in ages.items():
            os.utime(folder / name, ns=(age.st_atime_ns, age.st_mtime_ns))
        seal.require_verification(folder)  # because the record has the times of the files
        return revision_views.swap_view(folder, path, unless=lambda: not _is_same_view(path, old))
    return False


def _is_same_view(path: Path, view: IndexView) -> bool:
    with contextlib.suppress(IndexFailed):
        return views.read_view(path) == view
    return False


@contextlib.contextmanager
def _database_errors(folder: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise no_space(folder) if is_disk_full(error) else unusable(folder, str(error)) from error
