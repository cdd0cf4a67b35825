"""Read another program's Chroma store as documents and collections, for a new knowledge base.

Such programs often cut a text into several rows. This module joins these pieces again.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from vmrag_link import clock
from vmrag_link.chroma import DATABASE_FILE
from vmrag_link.chroma.bindings import ChromaCollection, ChromaStore, open_store
from vmrag_link.documents.import_base import ROOT
from vmrag_link.embedding.base import Model
from vmrag_link.errors import IndexFailed, NameInvalid
from vmrag_link.index.metadata import HNSW_PREFIX, RESERVED_METADATA
from vmrag_link.models import Chunking, Collection, Document, Record, content_hash, encode_canonical_json
from vmrag_link.workspace.documents.collections import require_document_id, require_name

MIN_OVERLAP_CHARACTERS = 8
"""Minimum number of common characters of two consecutive pieces that count as an overlap."""


class ForeignRows(Record, frozen=True):
    """The contents of a store, as rows of a knowledge base."""

    collections: tuple[Collection, ...] = ()
    documents: tuple[Document, ...] = ()
    left_out: int = 0
    """Number of rows without text, or with an invalid id."""


class _Piece(NamedTuple):
    """A row of the store: a whole text, or one of the pieces that a text was cut into."""

    number: int
    """The position among the pieces of the text, from 0."""
    text: str
    metadata: dict[str, Any]


def read_store(folder: Path, *, model: Model, chunking: Chunking) -> ForeignRows:
    """Read the whole store in this folder. The store is copied first, and never changed.

    The pieces of one `source_id` become one document. Every other row becomes a document. The
    store's vectors are ignored, because `model` makes new ones. Raises `IndexFailed` if there is no
    store, `IndexExtraMissing` and `NameInvalid`.
    """
    if not (folder / DATABASE_FILE).is_file():
        raise _unreadable_error(folder, f"it has no {DATABASE_FILE}")
    now = clock.now()
    with tempfile.TemporaryDirectory(prefix="vmrag-import-") as copied:
        for path in folder.glob(f"{DATABASE_FILE}*"):  # the vectors are not copied
            shutil.copy(path, copied)
        try:
            store = open_store(Path(copied))
        except IndexFailed as error:
            raise _unreadable_error(folder, error.message) from error
        try:
            return _read_rows(store, model, chunking, now)
        except IndexFailed as error:
            raise _unreadable_error(folder, error.message) from error
        finally:
            store.close()


def _unreadable_error(folder: Path, reason: str) -> IndexFailed:
    return IndexFailed(
        f"{folder} has no readable Chroma store: {reason}",
        hint="pass 'import_existing=false' to start without the store",
        folder=str(folder),
    )


def _read_rows(store: ChromaStore, model: Model, chunking: Chunking, now: str) -> ForeignRows:
    collections = []
    documents: list[Document] = []
    left_out = 0
    for described in store.describe_collections():
        require_name(described.name)
        collections.append(_build_collection(described, model, chunking, now))
        new_documents, skipped_rows = _build_documents(described.name, store.read_texts(described.id), now)
        documents += new_documents
        left_out += skipped_rows
    return ForeignRows(tuple(collections), tuple(documents), left_out)


def _build_collection(described: ChromaCollection, model: Model, chunking: Chunking, now: str) -> Collection:
    return Collection(
        name=described.name,
        # `distance` contains what these keys tell Chroma.
        metadata=encode_canonical_json(
            {key: value for key, value in described.metadata.items() if not key.startswith(HNSW_PREFIX)}
        ),
        embedding_function=model.name,
        embedding_model=model.fingerprint,
        embedding_dimensions=model.dimensions,
        distance=described.space,
        chunking=chunking,
        created_at=now,
        import_base=ROOT,
    )


def _build_documents(
    collection: str, rows: Iterable[tuple[str, str | None, dict[str, Any]]], now: str
) -> tuple[list[Document], int]:
    """Return the documents of a collection's rows, and the number of rows that were left out.

    A row with the metadata `source_id`, and possibly `chunk_index`, is a piece of the document with
    that id. A whole text with the same id is left out.
    """
    whole: dict[str, _Piece] = {}
    pieces: dict[str, list[_Piece]] = {}
    left_out = 0
    for row_id, text, metadata in rows:
        source = metadata.get("source_id")
        number = metadata.get("chunk_index", 0)
        is_piece = isinstance(source, str) and source != "" and isinstance(number, int)
        name = str(source) if is_piece else row_id
        if text is None or not _is_document_id(name):
            left_out += 1
        elif is_piece:
            pieces.setdefault(name, []).append(_Piece(number, text, metadata))
        else:
            whole[name] = _Piece(0, text, metadata)
    left_out += len(whole.keys() & pieces.keys())
    joined = {}
    for name, pieces_of_name in pieces.items():
        pieces_of_name.sort(key=lambda piece: piece.number)
        joined[name] = _Piece(0, join_pieces(pieces_of_name), pieces_of_name[0].metadata)
    return [_build_document(collection, name, piece, now) for name, piece in (whole | joined).items()], left_out


def _is_document_id(name: str) -> bool:
    try:
        require_document_id(name)
    except NameInvalid:
        return False
    return True


def join_pieces(pieces: Sequence[_Piece]) -> str:
    """Return the text that these pieces were cut from, without the overlaps.

    If the metadata contain the hash of the whole text, like vmrag's own do, the hash distinguishes
    an overlap from an accidental match.
    """
    texts = [piece.text for piece in pieces]
    likely = _join_without_overlaps(texts, MIN_OVERLAP_CHARACTERS)
    expected = pieces[0].metadata.get("content_hash")
    for text in (likely, _join_without_overlaps(texts, 1), "".join(texts)):
        if content_hash(text) == expected:
            return text
    return likely


def _join_without_overlaps(texts: Sequence[str], min_overlap: int) -> str:
    whole = texts[0]
    for before, text in pairwise(texts):
        whole += text[_measure_overlap(before, text, min_overlap) :]
    return whole


def _measure_overlap(before: str, after: str, min_overlap: int) -> int:
    """Return the number of characters that end one text and begin the next; 0 if fewer than
    `min_overlap`.
    """
    position = before.find(after[:min_overlap], max(0, len(before) - len(after) + 1))
    while position >= 0:
        if after.startswith(before[position:]):
            return len(before) - position
        position = before.find(after[:min_overlap], position + 1)
    return 0


def _build_document(collection: str, name: str, piece: _Piece, now: str) -> Document:
    title = piece.metadata.get("title")
    return Document(
        collection=collection,
        doc_id=name,
        title=title if isinstance(title, str) else "",
        content=piece.text,
        content_hash=content_hash(piece.text),
        metadata=encode_canonical_json(
            {key: value for key, value in piece.metadata.items() if key not in RESERVED_METADATA}
        ),
        created_at=now,
        updated_at=now,
    )
