"""A view: which documents of which segments one place holds, and whether it can be trusted.

    <views>/<name>/view        collections, segments with the slots that do not count, totals
    <views>/<name>/seal.json   see `seal`

Segments lie two folders above, in `segments/`; many views share one. Every document of a place is
alive in exactly one of them. A view of a million chunks has 125 kB for each segment with dead ones.

A view is trusted by its format and by the seals of it and its segments. A checkout checks indexes
that are there, and loads no more than this needs.
"""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any

import msgspec

from vmrag_link.errors import IndexFailed, unusable
from vmrag_link.index import seal
from vmrag_link.models import Collection, Record, encode_canonical_json

VIEW_FILE = "view"


_ALIVE = bytes.maketrans(b"01", b"\1\0")


class IndexedCollection(Record, frozen=True):
    """A collection in a view, with what ranking counts of it: `documents`, `chunks`, and their
    `tokens` together.
    """

    collection: Collection
    documents: int = 0
    chunks: int = 0
    tokens: int = 0


class CollectionPiece(Record, frozen=True):
    """What a view counts of one collection in one segment.

    `id`: the collection's number there. Of its `slots`, those with a bit in `dead` (the lowest
    first; empty: none) do not count; the others are the `chunks` of `documents`.
    """

    id: int
    slots: int
    documents: int
    chunks: int
    dead: bytes = b""

    def is_alive(self, slot: int) -> bool:
        return not self.dead or not self.dead[slot >> 3] >> (slot & 7) & 1

    def list_alive_slots(self) -> bytes:
        """Return a byte for each slot, 1 if it counts; empty if all count."""
        if not self.dead:
            return b""
        bits = f"{int.from_bytes(self.dead, 'little'):0{self.slots}b}"
        return bits[::-1].encode().translate(_ALIVE)

    def mark_dead(self, slots: Iterable[int]) -> CollectionPiece:
        """Without a document, which has these slots."""
        dead, gone = bytearray(self.dead or bytes(-(-self.slots // 8))), 0
        for slot in slots:
            dead[slot >> 3] |= 1 << (slot & 7)
            gone += 1
        return msgspec.structs.replace(self, documents=self.documents - 1, chunks=self.chunks - gone, dead=bytes(dead))


class ViewPart(Record, frozen=True):
    """A segment by name, and its pieces by collection."""

    segment: str
    pieces: dict[str, CollectionPiece]

    @property
    def documents(self) -> int:
        return sum(piece.documents for piece in self.pieces.values())


class IndexView(Record, frozen=True):
    """`revision`: where it stands, apart from its `touched` documents, which may differ from it.

    `unembedded`: why collections have only stand-ins for vectors: their service did not answer
    when they were indexed. `given_vectors`: some cannot be made again from their texts; no other
    view is derived from it. `unsynced`: segments that no other view has, and that a power cut may
    take.
    """

    revision: str = ""
    collections: Mapping[str, IndexedCollection] = {}
    parts: tuple[ViewPart, ...] = ()
    unembedded: Mapping[str, str] = {}
    given_vectors: bool = False
    touched: tuple[tuple[str, str], ...] = ()
    unsynced: tuple[str, ...] = ()

    def count_totals(self) -> tuple[int, int]:
        """Numbers of documents and of chunks."""
        held = self.collections.values()
        return sum(each.documents for each in held), sum(each.chunks for each in held)


def read_view(folder: Path) -> IndexView:
    """Raises `IndexFailed`."""
    try:
        if folder in seal.MEMORY_FOLDERS:
            from vmrag_link.index import storage

            return msgspec.msgpack.decode(storage.read_file(folder / VIEW_FILE), type=IndexView)
        return msgspec.msgpack.decode((folder / VIEW_FILE).read_bytes(), type=IndexView)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise unusable(folder, "it is not there") from error
    except (UnicodeDecodeError, msgspec.DecodeError) as error:
        raise unusable(folder, f"{VIEW_FILE} cannot be read ({error})") from error


def drop_collections(view: IndexView, names: AbstractSet[str]) -> IndexView:
    """Return the view without these collections."""
    if view.collections.keys().isdisjoint(names):
        return view
    parts = (
        ViewPart(part.segment, {name: piece for name, piece in part.pieces.items() if name not in names})
        for part in view.parts
    )
    return msgspec.structs.replace(
        view,
        collections={name: held for name, held in view.collections.items() if name not in names},
        parts=tuple(parts),
        unembedded={name: why for name, why in view.unembedded.items() if name not in names},
    )


def join_views(views: Sequence[IndexView]) -> IndexView:
    """Return several views as one, which is where the first is.

    If two have a collection of one name, that of the later one hides the other.
    """
    if len(views) == 1:
        return views[0]
    hidden = {name for view in views[1:] for name in view.collections}.intersection(views[0].collections)
    if hidden:
        views = [drop_collections(views[0], hidden), *views[1:]]
    return msgspec.structs.replace(
        views[0],
        collections={name: collection for view in views for name, collection in view.collections.items()},
        parts=tuple(part for view in views for part in view.parts),
        unembedded={name: why for view in views for name, why in view.unembedded.items()},
    )


def read_unembedded(folder: Path) -> Mapping[str, str]:
    """As `IndexView.unembedded`. Raises `IndexFailed`."""
    return read_view(folder).unembedded


def has_given_vectors(folder: Path) -> bool:
    """Whether an index exists and holds vectors that cannot be made again from its texts."""
    with contextlib.suppress(IndexFailed):  # else it will be made again, from texts
        return read_view(folder).given_vectors
    return False


def encode_view(view: IndexView) -> bytes:
    """The content of its `FILE`."""
    return msgspec.msgpack.encode(view)


def indexes_equally(one: Collection, other: Collection) -> bool:
    """Whether the same documents give the same index under both definitions."""

    def decisive(each: Collection) -> tuple[Any, ...]:
        model = (each.embedding_function, each.embedding_model, each.embedding_dimensions)
        return (*model, each.distance, each.chunking)

    return decisive(one) == decisive(other)


FORMAT = "7"
"""Rises with every change of what lies in an index directory, of how texts are cut, and of a model
that takes a former one's place (`embedding.successors`).

Where answers change with it, `retrieval.fusion.VERSION` rises, too.
"""


def directory_suffix(**decisive: object) -> str:
    """Eight hex digits of what decides a directory besides a revision's own rows: the format, and
    `decisive` values.

    The rows name models, chunking and distances. A checksum suffices for the few possible values,
    and saves every checkout from loading cryptography.
    """
    return f"{zlib.crc32(encode_canonical_json({'format': FORMAT, **decisive}).encode()):08x}"


SUFFIX = directory_suffix()
"""Of the directories of indexes."""


def segments_folder(view: Path) -> Path:
    """The folder of the segments that a view counts."""
    return view.parent.parent / "segments"


def find_index_problem(folder: Path, *, revision: str) -> str:
    """Why a view must not be served; empty if it and its segments verify.

    Reads a few small files, and contents of segments only where `seal` says that this is due.
    """
    if folder in seal.MEMORY_FOLDERS:
        return ""
    view, problem = _view(folder, revision)
    if view is None:
        return problem
    return next(iter(_problems(folder, view, seal.find_seal_problem).values()), "")


def find_view_problem(folder: Path, *, revision: str) -> str:
    """As `problem_of`, of the view alone."""
    return _view(folder, revision)[1]


def _view(folder: Path, revision: str) -> tuple[IndexView | None, str]:
    """The view, if it is as it was sealed, or what is wrong with it."""
    sealed, problem = _sealed(folder, revision)
    if problem or (problem := seal.find_seal_problem(folder)):
        return None, problem
    try:
        view = read_view(folder)
    except IndexFailed as error:  # it is being removed
        return None, error.message.rstrip(".")
    if {part.segment for part in view.parts} != sealed.keys():  # which no checksum covers
        return None, f"{seal.SEAL} names other segments than it counts"
    return view, ""


def _sealed(folder: Path, revision: str) -> tuple[Mapping[str, int], str]:
    """The segments that a view's seal names, or what is wrong with it."""
    if not folder.is_dir():
        return {}, "it is not there"
    try:
        found = seal.read_seal(folder)
    except FileNotFoundError:
        return {}, "it was never finished" if folder.is_dir() else "it is being removed"
    except (IsADirectoryError, UnicodeDecodeError, msgspec.DecodeError) as error:
        return {}, f"{seal.SEAL} cannot be read ({error})"
    wanted = (found.format, found.revision) == (FORMAT, revision)
    return found.segments, "" if wanted else f"it was sealed as revision {found.revision} in format {found.format}"


def find_damaged_segments(folder: Path) -> dict[str, str]:
    """What is wrong with the segments that a view counts, by name. Raises `IndexFailed`."""
    return _problems(folder, read_view(folder), seal.find_seal_problem)


def find_mismatch(folder: Path, looked: dict[str, str] | None = None) -> str:
    """Why a view that has a seal must not be served, with every byte of its segments read.

    `looked`: what is known of segments by now, and found here, by name.
    """
    known = {} if looked is None else looked

    def look(segment: Path) -> str:
        if segment.name not in known:
            known[segment.name] = seal.find_mismatch(segment)
        return known[segment.name]

    if problem := seal.find_mismatch(folder):
        return problem
    try:
        return next(iter(_problems(folder, read_view(folder), look).values()), "")
    except IndexFailed as error:
        return error.message.rstrip(".")


def require_verification(folder: Path) -> None:
    """Look at every byte of a view before it is served, from now on."""
    seal.require_verification(folder)
    with contextlib.suppress(OSError, UnicodeDecodeError, msgspec.DecodeError):
        for name in seal.read_seal(folder).segments:
            seal.require_verification(segments_folder(folder) / name)


def _problems(folder: Path, view: IndexView, look: Callable[[Path], str]) -> dict[str, str]:
    root = segments_folder(folder)
    problems = {part.segment: look(root / part.segment) for part in view.parts}
    return {name: problem for name, problem in problems.items() if problem}
