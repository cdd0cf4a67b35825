"""A view: which documents of which segments an index has, and whether the index can be trusted.

    <views>/<name>/view        collections, segments with their dead slots, totals
    <views>/<name>/seal.json   see `seal`

The segments are two folders above, in `segments/`, and many views share one. Every document of an
index is alive in exactly one of its segments. A view of a million chunks has 125 kB for each
segment with dead slots.

A view is trusted if its format is the current one and its seal and the seals of its segments
verify. A checkout checks existing indexes, and loads only the modules that this check needs.
"""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Callable, Mapping, Sequence
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
    """A collection in a view, with the totals that ranking needs."""

    collection: Collection
    documents: int = 0
    chunks: int = 0
    tokens: int = 0
    """Number of tokens of all chunks together."""


class CollectionPiece(Record, frozen=True):
    """The part of one collection in one segment that a view includes."""

    id: int
    """The number of the collection in the segment."""

    slots: int
    """The number of slots of the collection in the segment."""

    documents: int
    chunks: int
    dead: bytes = b""
    """A bit for each slot, the lowest bit first. A slot with its bit set is not part of the view.
    Empty if the view includes all slots.
    """

    def is_alive(self, slot: int) -> bool:
        return not self.dead or not self.dead[slot >> 3] >> (slot & 7) & 1

    def list_alive_slots(self) -> bytes:
        """Return a byte for each slot, 1 if the view includes it; empty if the view includes all
        slots.
        """
        if not self.dead:
            return b""
        bits = f"{int.from_bytes(self.dead, 'little'):0{self.slots}b}"
        return bits[::-1].encode().translate(_ALIVE)


class ViewPart(Record, frozen=True):
    """A segment of a view by name, and its pieces by collection."""

    segment: str
    pieces: dict[str, CollectionPiece]

    @property
    def documents(self) -> int:
        return sum(piece.documents for piece in self.pieces.values())


class IndexView(Record, frozen=True):
    """The contents of a view."""

    revision: str = ""
    """The revision of the documents, except those in `touched`."""

    collections: Mapping[str, IndexedCollection] = {}
    parts: tuple[ViewPart, ...] = ()
    unembedded: Mapping[str, str] = {}
    """Reasons by collection why it has only placeholders for vectors: its service did not answer
    when it was indexed.
    """

    given_vectors: bool = False
    """True if some vectors cannot be computed again from their texts. Then no other view is derived
    from this one.
    """

    touched: tuple[tuple[str, str], ...] = ()
    """Documents that may differ from `revision`."""

    unsynced: tuple[str, ...] = ()
    """Segments that no other view uses, and that a power cut may destroy."""

    def count_totals(self) -> tuple[int, int]:
        """Return the numbers of documents and of chunks."""
        collections = self.collections.values()
        documents = sum(collection.documents for collection in collections)
        return documents, sum(collection.chunks for collection in collections)


def read_view(folder: Path) -> IndexView:
    """Read the view in a folder. Raises `IndexFailed`."""
    try:
        if folder in seal.MEMORY_FOLDERS:
            from vmrag_link.index import storage

            return msgspec.msgpack.decode(storage.read_file(folder / VIEW_FILE), type=IndexView)
        return msgspec.msgpack.decode((folder / VIEW_FILE).read_bytes(), type=IndexView)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise unusable(folder, "it does not exist") from error
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
        collections={name: indexed for name, indexed in view.collections.items() if name not in names},
        parts=tuple(parts),
        unembedded={name: reason for name, reason in view.unembedded.items() if name not in names},
    )


def join_views(views: Sequence[IndexView]) -> IndexView:
    """Return several views as one, with the revision of the first view.

    If two views have a collection of the same name, the later view wins.
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
        unembedded={name: reason for view in views for name, reason in view.unembedded.items()},
    )


def read_unembedded(folder: Path) -> Mapping[str, str]:
    """Return `IndexView.unembedded` of the view in a folder. Raises `IndexFailed`."""
    return read_view(folder).unembedded


def has_given_vectors(folder: Path) -> bool:
    """Return whether an index exists and has vectors that cannot be computed again from its
    texts.
    """
    with contextlib.suppress(IndexFailed):  # an unreadable index is built again, from texts
        return read_view(folder).given_vectors
    return False


def encode_view(view: IndexView) -> bytes:
    """Return the content of the file `VIEW_FILE`."""
    return msgspec.msgpack.encode(view)


def indexes_equally(one: Collection, other: Collection) -> bool:
    """Return whether the same documents give the same index under both definitions."""

    def decisive(collection: Collection) -> tuple[Any, ...]:
        model = (collection.embedding_function, collection.embedding_model, collection.embedding_dimensions)
        return (*model, collection.distance, collection.chunking)

    return decisive(one) == decisive(other)


FORMAT = "7"
"""The format of index folders. Increase it with every change of the files of an index, of how texts
are cut, and of a model that replaces another one.

If the change affects answers, also increase `retrieval.ranking.VERSION`.
"""


def directory_suffix(**decisive: object) -> str:
    """Return eight hex digits for the format and other `decisive` values.

    The documents name their models, chunk sizes and distances, so these are not included. A CRC is
    enough for the few possible values, and no checkout has to load a cryptographic module.
    """
    return f"{zlib.crc32(encode_canonical_json({'format': FORMAT, **decisive}).encode()):08x}"


SUFFIX = directory_suffix()
"""Suffix of the names of index folders."""


def segments_folder(view: Path) -> Path:
    """Return the folder of the segments of a view."""
    return view.parent.parent / "segments"


def find_index_problem(folder: Path, *, revision: str) -> str:
    """Return why a view must not be used; empty if it and its segments verify.

    This reads a few small files, and the contents of segments only if `seal` requires it.
    """
    if folder in seal.MEMORY_FOLDERS:
        return ""
    view, problem = _verify_view(folder, revision)
    if view is None:
        return problem
    return next(iter(_find_segment_problems(folder, view, seal.find_seal_problem).values()), "")


def find_view_problem(folder: Path, *, revision: str) -> str:
    """Return why a view must not be used, without checking its segments; empty if it verifies."""
    return _verify_view(folder, revision)[1]


def _verify_view(folder: Path, revision: str) -> tuple[IndexView | None, str]:
    """Return the view if it matches its seal, or else the problem."""
    sealed, problem = _read_sealed(folder, revision)
    if problem or (problem := seal.find_seal_problem(folder)):
        return None, problem
    try:
        view = read_view(folder)
    except IndexFailed as error:  # it is being removed
        return None, error.message.rstrip(".")
    if {part.segment for part in view.parts} != sealed.keys():  # no checksum covers this
        return None, f"{seal.SEAL} lists other segments than the view uses"
    return view, ""


def _read_sealed(folder: Path, revision: str) -> tuple[Mapping[str, int], str]:
    """Return the segments in the seal of a view, or else the problem of the seal."""
    if not folder.is_dir():
        return {}, "it does not exist"
    try:
        index_seal = seal.read_seal(folder)
    except FileNotFoundError:
        return {}, "it was never finished" if folder.is_dir() else "it is being removed"
    except (IsADirectoryError, UnicodeDecodeError, msgspec.DecodeError) as error:
        return {}, f"{seal.SEAL} cannot be read ({error})"
    if (index_seal.format, index_seal.revision) == (FORMAT, revision):
        return index_seal.segments, ""
    problem = f"it was sealed as revision {index_seal.revision} in format {index_seal.format}"
    return index_seal.segments, problem


def find_damaged_segments(folder: Path) -> dict[str, str]:
    """Return the problem of each damaged segment of a view by name. Raises `IndexFailed`."""
    return _find_segment_problems(folder, read_view(folder), seal.find_seal_problem)


def find_mismatch(folder: Path, checked: dict[str, str] | None = None) -> str:
    """Read every byte of a sealed view and its segments, and return why it must not be used.

    `checked`: the problems of segments that were checked before, by name (empty: no problem). The
    segments of this view are added.
    """
    problems = {} if checked is None else checked

    def check(segment: Path) -> str:
        if segment.name not in problems:
            problems[segment.name] = seal.find_mismatch(segment)
        return problems[segment.name]

    if problem := seal.find_mismatch(folder):
        return problem
    try:
        return next(iter(_find_segment_problems(folder, read_view(folder), check).values()), "")
    except IndexFailed as error:
        return error.message.rstrip(".")


def require_verification(folder: Path) -> None:
    """Require that every byte of a view and its segments is verified before they are used again."""
    seal.require_verification(folder)
    with contextlib.suppress(OSError, UnicodeDecodeError, msgspec.DecodeError):
        for name in seal.read_seal(folder).segments:
            seal.require_verification(segments_folder(folder) / name)


def _find_segment_problems(folder: Path, view: IndexView, check: Callable[[Path], str]) -> dict[str, str]:
    """Return the problem of each damaged segment of a view by name."""
    root = segments_folder(folder)
    problems = {part.segment: check(root / part.segment) for part in view.parts}
    return {name: problem for name, problem in problems.items() if problem}
