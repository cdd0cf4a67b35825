"""Read another program's Chroma store as documents and collections."""

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

SHORTEST_OVERLAP = 8
"""Fewer common characters of two neighbouring pieces are an accident."""


class ForeignRows(Record, frozen=True):
    """What can be imported; `left_out`: the number of rows without text, or with a bad id."""

    collections: tuple[Collection, ...] = ()
    documents: tuple[Document, ...] = ()
    left_out: int = 0


class _Piece(NamedTuple):
    number: int
    text: str
    metadata: dict[str, Any]


def read_store(folder: Path, *, model: Model, chunking: Chunking) -> ForeignRows:
    """Read all of the store in this folder. It is copied first, and never changed.

    The pieces of one `source_id` become one document; every other row is one by itself. The store's
    vectors are ignored: `model` makes others. Raises `IndexFailed` where there is no store,
    `IndexExtraMissing`, `NameInvalid`.
    """
    if not (folder / DATABASE_FILE).is_file():
        raise _no_store(folder, f"it has no {DATABASE_FILE}")
    now = clock.now()
    with tempfile.TemporaryDirectory(prefix="vmrag-import-") as copied:
        for path in folder.glob(f"{DATABASE_FILE}*"):  # the vectors stay where they are
            shutil.copy(path, copied)
        try:
            store = open_store(Path(copied))
        except IndexFailed as error:
            raise _no_store(folder, error.message) from error
        try:
            return _all(store, model, chunking, now)
        except IndexFailed as error:
            raise _no_store(folder, error.message) from error
        finally:
            store.close()


def _no_store(folder: Path, why: str) -> IndexFailed:
    return IndexFailed(
        f"{folder} holds no Chroma store that can be read: {why}",
        hint="import_existing=false starts without what it holds",
        folder=str(folder),
    )


def _all(store: ChromaStore, model: Model, chunking: Chunking, now: str) -> ForeignRows:
    collections, documents, left_out = [], [], 0
    for each in store.describe_collections():
        require_name(each.name)
        collections.append(_collection(each, model, chunking, now))
        found, without = _documents(each.name, store.read_texts(each.id), now)
        documents += found
        left_out += without
    return ForeignRows(tuple(collections), tuple(documents), left_out)


def _collection(found: ChromaCollection, model: Model, chunking: Chunking, now: str) -> Collection:
    return Collection(
        name=found.name,
        # `distance` says what these keys told Chroma.
        metadata=encode_canonical_json(
            {key: value for key, value in found.metadata.items() if not key.startswith(HNSW_PREFIX)}
        ),
        embedding_function=model.name,
        embedding_model=model.fingerprint,
        embedding_dimensions=model.dimensions,
        distance=found.space,
        chunking=chunking,
        created_at=now,
        import_base=ROOT,
    )


def _documents(
    collection: str, rows: Iterable[tuple[str, str | None, dict[str, Any]]], now: str
) -> tuple[list[Document], int]:
    """The documents of a collection's rows, and the number of rows that were left out."""
    whole: dict[str, _Piece] = {}
    pieces: dict[str, list[_Piece]] = {}
    left_out = 0
    for row, text, metadata in rows:
        source, number = metadata.get("source_id"), metadata.get("chunk_index", 0)
        chunked = isinstance(source, str) and source != "" and isinstance(number, int)
        name = str(source) if chunked else row
        if text is None or not _can_name(name):
            left_out += 1
        elif chunked:
            pieces.setdefault(name, []).append(_Piece(number, text, metadata))
        else:
            whole[name] = _Piece(0, text, metadata)
    left_out += len(whole.keys() & pieces.keys())
    joined = {}
    for name, piece in pieces.items():
        piece.sort(key=lambda each: each.number)
        joined[name] = _Piece(0, join_pieces(piece), piece[0].metadata)
    return [_document(collection, name, each, now) for name, each in (whole | joined).items()], left_out


def _can_name(name: str) -> bool:
    try:
        require_document_id(name)
    except NameInvalid:
        return False
    return True


def join_pieces(pieces: Sequence[_Piece]) -> str:
    """The text that these pieces were cut from: what two neighbours share stands there once.

    Where the metadata hold the hash of the whole text (ours do), it tells an overlap from an
    accident.
    """
    texts = [piece.text for piece in pieces]
    likely = _joined(texts, SHORTEST_OVERLAP)
    expected = pieces[0].metadata.get("content_hash")
    for text in (likely, _joined(texts, 1), "".join(texts)):
        if content_hash(text) == expected:
            return text
    return likely


def _joined(texts: Sequence[str], shortest: int) -> str:
    whole = texts[0]
    for before, text in pairwise(texts):
        whole += text[_overlap(before, text, shortest) :]
    return whole


def _overlap(before: str, after: str, shortest: int) -> int:
    """The number of characters that end one text and begin the next; 0 below `shortest`."""
    at = before.find(after[:shortest], max(0, len(before) - len(after) + 1))
    while at >= 0:
        if after.startswith(before[at:]):
            return len(before) - at
        at = before.find(after[:shortest], at + 1)
    return 0


def _document(collection: str, name: str, piece: _Piece, now: str) -> Document:
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
