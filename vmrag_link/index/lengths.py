"""What BM25 asks of every chunk that holds a word, in one flat file a collection.

A row has three whole numbers of 32 bits, little-endian: the tokens of the chunk, the tokens of all
chunks of its document together, and the chunk's number in its document, by which its document's
first slot is found. FTS5 keeps lengths in a table, where each costs a search: nine tenths of a
query's time.
"""

from __future__ import annotations

import array
import mmap
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from vmrag_link.index import flat
from vmrag_link.index.keywords import piece_of, slot_of

NUMBERS = 3
"""Numbers in a row, the chunk's tokens first."""

DOCUMENT, NUMBER = 1, 2
"""Where the document's tokens and the chunk's number stand in a row."""

ROW = 4 * NUMBERS
"""Bytes of a row."""


def file_name(collection_id: int) -> str:
    return f"lengths-{collection_id}.u32"


def append(folder: Path, collection_id: int, documents: Iterable[Sequence[int]]) -> None:
    """Add documents. Each is given as the tokens of its chunks."""
    rows = array.array("I")
    for tokens in documents:
        total = sum(tokens)
        for number, own in enumerate(tokens):
            rows.extend((own, total, number))
    if sys.byteorder == "big":
        rows.byteswap()
    flat.append(folder / file_name(collection_id), rows.tobytes())


def numbers(content: mmap.mmap | bytes, *, slots: int) -> Sequence[int]:
    """All numbers of a file's content, row by row. Raises `ValueError` for another size."""
    found = memoryview(content)
    if len(found) != slots * ROW:
        raise ValueError(f"a file of lengths has {len(found)} bytes for {slots} slots")
    if sys.byteorder == "big":
        swapped = array.array("I", found)
        swapped.byteswap()
        return swapped
    return found.cast("I")


def first_row(lengths: Mapping[int, Sequence[int]], row: int) -> int:
    """The row of the first chunk of a chunk's document. `lengths`: as `numbers` has them, by
    piece.
    """
    return row - lengths[piece_of(row)][NUMBERS * slot_of(row) + NUMBER]
