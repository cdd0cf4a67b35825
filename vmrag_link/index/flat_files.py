"""The files of a segment except its words: flat files, and the manifest of its documents.

A flat file has rows of equal size, one for each slot of a collection.

*Vectors* have one int8 for each dimension, so scores are exact on every CPU. A unit vector x
becomes rint(127 · 2.5 · x), clipped to ±127. Products of such rows stay below 2^24 up to 1,040
dimensions, so their sum is the same in any order, in float32 and in integers. A few vectors are
rounded without numpy, which a checkout does not import.

*Floats* are the float32 vectors that cannot be computed again: a service is paid for each vector
and may answer differently tomorrow, and a vector from a client is stored nowhere else. Only
collections with such vectors have this file. A row of zeros, and a row after the end of the file,
mean that the vector can be computed from its text. (No vector of length 1 consists of zeros.) So a
collection with a few given vectors takes the space of these vectors only.

*Lengths* are the numbers that BM25 needs for every chunk with a word: three integers of 32 bits,
little-endian. They are the tokens of the chunk, the tokens of all chunks of its document together,
and the number of the chunk in its document. The number leads to the first slot of the document.

*Texts* are the texts of the chunks in UTF-8, without separators. A second file has the end of each
text, as integers of 64 bits.

The *manifest* is a SQLite database. It is the part that can be compared with the knowledge base.
The chunks of a document have consecutive slots in the files of its collection, starting with
`first`. A segment may have several states of a document, and each view includes one of them.
"""

from __future__ import annotations

import array
import contextlib
import itertools
import mmap
import os
import sqlite3
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from vmrag_link.index import storage
from vmrag_link.index.keywords import unpack_piece, unpack_slot
from vmrag_link.models import DocumentHeader

MAPPED_BYTES = 1_000_000
"""Size in bytes from which a file is mapped into memory instead of read."""


def append_bytes(path: Path, rows: bytes) -> None:
    with storage.open_file(path, "a") as out:
        out.write(rows)


def read_size(path: Path) -> int:
    """Return the size of a file in bytes; 0 if it does not exist."""
    return storage.file_size(path)


def map_file(path: Path) -> mmap.mmap | bytes:
    """Return the bytes of a file, which stay readable after the file is removed. A large file is
    mapped.

    A mapping keeps a file descriptor open. A process may have only a thousand descriptors or fewer,
    and many collections are small.
    """
    if storage.is_in_memory(path.parent):
        return storage.read_file(path)
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_size < MAPPED_BYTES:
            return file.read()
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


FLOAT32 = 4
"""Bytes of a float32."""


def floats_name(collection_id: int) -> str:
    return f"floats-{collection_id}.f32"


def write_floats(folder: Path, collection_id: int, rows: Mapping[int, bytes]) -> None:
    """Write vectors (float32) by slot."""
    path = folder / floats_name(collection_id)
    with storage.open_file(path, "r+" if storage.file_size(path) else "w+") as out:
        for slot, row in rows.items():
            out.seek(slot * len(row))
            out.write(row)


def find_floats(content: mmap.mmap | bytes, slots: Iterable[int], *, dimensions: int) -> dict[int, bytes]:
    """Return the vectors that the content of a floats file has, by slot."""
    row_bytes, rows_view = dimensions * FLOAT32, memoryview(content)
    rows = ((slot, bytes(rows_view[slot * row_bytes : (slot + 1) * row_bytes])) for slot in slots)
    return {slot: row for slot, row in rows if row.strip(b"\0")}


NUMBERS = 3
"""Numbers in a row of lengths. The first one is the number of tokens of the chunk."""

DOCUMENT, NUMBER = 1, 2
"""Positions in a row of the tokens of the document, and of the number of the chunk."""

ROW_BYTES = 4 * NUMBERS
"""Bytes of a row of lengths."""


def lengths_name(collection_id: int) -> str:
    return f"lengths-{collection_id}.u32"


def count_slots(segment: Path) -> int:
    """Return the number of slots of a segment, by the size of its lengths. It includes dropped
    collections.
    """
    return sum(path.stat().st_size for path in segment.glob("lengths-*.u32")) // ROW_BYTES


def encode_lengths(documents: Iterable[Sequence[int]]) -> bytes:
    """Return the rows of lengths of documents. Each document is given as the numbers of tokens of
    its chunks.
    """
    rows = array.array("I")
    for tokens in documents:
        total = sum(tokens)
        for number, token in enumerate(tokens):
            rows.extend((token, total, number))
    if sys.byteorder == "big":
        rows.byteswap()
    return rows.tobytes()


def decode_lengths(content: mmap.mmap | bytes, *, slots: int) -> Sequence[int]:
    """Return all numbers of a lengths file, row by row. Raises `ValueError` for another size."""
    if len(content) != slots * ROW_BYTES:
        raise ValueError(f"a file of lengths has {len(content)} bytes for {slots} slots")
    return read_numbers(content, "I")


TypeCode = Literal["B", "H", "I", "Q"]
"""A type of integers, as in `array`."""


def read_numbers(content: mmap.mmap | memoryview | bytes, code: TypeCode) -> Sequence[int]:
    """Return little-endian numbers of this type without copying them."""
    if sys.byteorder == "big":
        swapped = array.array(code, memoryview(content).tobytes())
        swapped.byteswap()
        return swapped
    return memoryview(content).cast(code)


def find_first_row(lengths: Mapping[int, Sequence[int]], row: int) -> int:
    """Return the row of the first chunk of the document to which a chunk belongs.

    `lengths`: the result of `decode_lengths` for each piece.
    """
    return row - lengths[unpack_piece(row)][NUMBERS * unpack_slot(row) + NUMBER]


END_BYTES = 8
"""Bytes of the end of a text."""


def texts_names(collection_id: int) -> tuple[str, str]:
    """Return the names of the file of texts and of the file of their ends."""
    return f"texts-{collection_id}.utf8", f"texts-{collection_id}.u64"


def append_texts(folder: Path, collection_id: int, texts: Iterable[str]) -> None:
    file, ends_file = (folder / name for name in texts_names(collection_id))
    encoded = [text.encode() for text in texts]
    ends = array.array("Q", itertools.accumulate(map(len, encoded), initial=storage.file_size(file)))
    del ends[0]
    if sys.byteorder == "big":
        ends.byteswap()
    append_bytes(file, b"".join(encoded))
    append_bytes(ends_file, ends.tobytes())


class Texts(NamedTuple):
    """The texts of a collection's chunks: the content of a file of texts, and the ends of the
    texts.
    """

    content: mmap.mmap | bytes
    ends: Sequence[int]

    def text_at(self, slot: int) -> str:
        """Return the text in a slot. Raises `IndexError` for an unknown slot, and `ValueError` for
        damage.
        """
        first, end = self.ends[slot - 1] if slot else 0, self.ends[slot]
        if not first <= end <= len(self.content):
            raise ValueError("a file of texts is cut")
        return self.content[first:end].decode()


SCALE = 127 * 2.5
LIMIT = 127
STEP = 0.51
"""Maximum distance of a component from its rounded value."""

_UNCLIPPED = 0.4
"""Components below this value need no clipping."""

_WHOLE = 1.5 * 2**52
NUMPY_BYTES = 800_000
"""Bytes of vectors from which numpy is faster, although importing it takes 60 ms."""

_SIGN = bytes(128) + b"\xff" * 128
"""The second byte of an integer from -128 to 127, by its lowest byte."""


def quantise(vectors: bytes) -> bytes:
    """Return one int8 per dimension for one or more unit vectors in little-endian float32."""
    # Adding 1.5 · 2^52 rounds a number to an integer (ties to even, like `round`). The lowest bytes
    # of the sum are its two's complement. This is twice as fast as `round`.
    scaled = _scale_vectors(vectors)
    low, next_byte = (scaled[0::8], scaled[1::8]) if sys.byteorder == "little" else (scaled[7::8], scaled[6::8])
    if b"\x80" not in low and low.translate(_SIGN) == next_byte:
        return low
    # A component beyond 0.4 in a vector of length 1 is rare.
    row = array.array("b", low)
    for number, value in enumerate(array.array("f", vectors)):
        if not -_UNCLIPPED < value < _UNCLIPPED:  # also true if the value is NaN
            row[number] = max(-LIMIT, min(LIMIT, round(SCALE * value)))
    return row.tobytes()


def _scale_vectors(vectors: bytes) -> bytes:
    """Return each number times `SCALE` plus `_WHOLE`, as float64.

    Both ways to compute it give the same bits.
    """
    if len(vectors) >= NUMPY_BYTES:
        with contextlib.suppress(ImportError):
            from vmrag_link.numpy_loading import np

            return (np.frombuffer(vectors, np.float32).astype(np.float64) * SCALE + _WHOLE).tobytes()
    return array.array("d", [SCALE * value + _WHOLE for value in array.array("f", vectors)]).tobytes()


def matches_vector(row: bytes, vector: Sequence[float]) -> bool:
    """Return whether a row belongs to a vector, apart from the last digits, which a store may
    change.
    """
    if len(row) != len(vector):
        return False
    components = array.array("b", row)
    for component, value in zip(components, vector, strict=True):
        exact = max(-LIMIT, min(LIMIT, SCALE * value))
        if not abs(exact - component) <= STEP:  # also true if the value is NaN
            return False
    return True


def vectors_name(collection_id: int) -> str:
    return f"vectors-{collection_id}.i8"


def replace_vectors(folder: Path, collection_id: int, rows: Mapping[int, bytes]) -> None:
    """Overwrite the rows in some slots."""
    with storage.open_file(folder / vectors_name(collection_id), "r+") as out:
        for slot, row in rows.items():
            out.seek(slot * len(row))
            out.write(row)


def append_vectors(folder: Path, collection_id: int, rows: bytes) -> None:
    append_bytes(folder / vectors_name(collection_id), rows)


MANIFEST_FILE = "manifest.sqlite"

SCHEMA = """
CREATE TABLE documents (
    collection_id INTEGER NOT NULL, doc_id TEXT NOT NULL, title TEXT NOT NULL, content_hash TEXT NOT NULL,
    metadata TEXT NOT NULL, first INTEGER NOT NULL, chunks INTEGER NOT NULL,
    PRIMARY KEY (collection_id, first)) WITHOUT ROWID;
CREATE INDEX documents_by_id ON documents (collection_id, doc_id);
"""

PAGE_SIZE = 1024
"""Bytes. A segment with few documents takes half the space that it takes with SQLite's default of
4,096.
"""


PatternKind = Literal["LIKE", "GLOB"]
"""Operators of SQL. `LIKE` ignores the case of ASCII letters."""


class PlacedDocument(NamedTuple):
    """A document of a collection, and the slots of its chunks."""

    doc_id: str
    title: str
    content_hash: str
    metadata: str
    first: int
    """The slot of the first chunk."""

    chunks: int
    """The number of chunks."""


class Manifest:
    """The open manifest of a segment, either finished or being written."""

    def __init__(self, folder: Path, *, create: bool = False) -> None:
        self.connection = storage.connect_database(folder / MANIFEST_FILE, frozen=not create)
        try:
            if create:
                self.connection.execute(f"PRAGMA page_size = {PAGE_SIZE}")
                # An unfinished segment is deleted after a kill, so the journal need not survive it.
                self.connection.execute("PRAGMA synchronous = OFF")
                self.connection.execute("PRAGMA journal_mode = MEMORY")
                self.connection.executescript(SCHEMA)
        except sqlite3.Error:
            self.connection.close()
            raise

    def close(self) -> None:
        self.connection.close()

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        with self.connection:
            self.connection.execute("BEGIN")
            yield

    # -- making ------------------------------------------------------------------------------------

    def add_documents(self, number: int, documents: Iterable[tuple[DocumentHeader, range]]) -> None:
        """Store documents with the slots of their chunks."""
        self.connection.executemany(
            "INSERT INTO documents VALUES (?, ?, ?, ?, ?, ?, ?)",
            (
                (number, header.doc_id, header.title, header.content_hash, header.metadata, slots.start, len(slots))
                for header, slots in documents
            ),
        )

    # -- reading -----------------------------------------------------------------------------------

    def count_chunks(self) -> dict[int, int]:
        """Return the number of chunks of each collection."""
        rows = self.connection.execute("SELECT collection_id, sum(chunks) FROM documents GROUP BY collection_id")
        return {int(row[0]): int(row[1]) for row in rows}

    def find_document(self, number: int, slot: int) -> PlacedDocument:
        """Return the document to which a slot belongs."""
        row = self.connection.execute(
            "SELECT doc_id, title, content_hash, metadata, first, chunks FROM documents "
            "WHERE collection_id = ? AND first <= ? ORDER BY first DESC LIMIT 1",
            (number, slot),
        ).fetchone()
        return PlacedDocument(*row)

    def find_states(self, number: int, doc_ids: Iterable[str]) -> Iterator[PlacedDocument]:
        """Yield all states of these documents."""
        # CROSS makes SQLite look up each id in the index instead of scanning all documents.
        rows = self.connection.execute(
            "SELECT doc_id, title, content_hash, metadata, first, chunks FROM json_each(?) "
            "CROSS JOIN documents INDEXED BY documents_by_id ON collection_id = ? AND doc_id = value",
            (msgspec.json.encode([*doc_ids]).decode(), number),
        )
        return map(PlacedDocument._make, rows)

    def find_like(self, number: int, patterns: Sequence[str], by: PatternKind) -> Iterator[tuple[str, int, int]]:
        """Yield id, first slot and number of chunks of each document whose id matches an SQL
        pattern.
        """
        like = " OR ".join([f"doc_id {by} ?"] * len(patterns))
        ids = f"SELECT first FROM documents INDEXED BY documents_by_id WHERE collection_id = ? AND ({like})"  # noqa: S608  constants
        return self.connection.execute(
            f"SELECT doc_id, first, chunks FROM documents WHERE collection_id = ? AND first IN ({ids})",  # noqa: S608  constants
            (number, number, *patterns),
        )

    def list_documents(self, number: int, *, header: bool = True) -> Iterator[PlacedDocument]:
        """Yield every document of a collection.

        Without `header`, all texts except the metadata are empty. Reading them takes 50 % longer.
        """
        columns = "doc_id, title, content_hash" if header else "'', '', ''"
        rows = self.connection.execute(
            f"SELECT {columns}, metadata, first, chunks FROM documents WHERE collection_id = ? ORDER BY first",  # noqa: S608  constants
            (number,),
        )
        return map(PlacedDocument._make, rows)
