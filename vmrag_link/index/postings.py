"""The words of a segment: which chunks contain a term, how often, and where.

    words-<collection id>.idx    blocks, one after the other

A block has the words of consecutive chunks. Its header (JSON) names the fields of the chunks, such
as the text and the names that code declares, and these arrays:

    terms, term_starts           the bytes of all terms, sorted, and the start of each term
    starts                       the start of the list of a term and a field in the next two arrays
    slots, frequencies           the chunks with the term in the field, and how often
    position_starts              the start of the list of a term and a field in the last array
    positions                    the positions of the term among the tokens of the field

Numbers are little-endian and as small as the largest value allows, so `memoryview` and numpy read
them in place. A block stores counts and no scores, because the statistics of BM25 belong to a view.
SQLite's FTS5 makes the terms (`keywords.find_terms`).
"""

from __future__ import annotations

import bisect
import contextlib
import importlib
import itertools
import mmap
import sys
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from vmrag_link.index import keywords
from vmrag_link.index.flat_files import TypeCode, read_numbers
from vmrag_link.models import Record

DOCUMENT_FIELDS = ("text",)
NAMES = "names"
CODE_FIELDS = ("text", "parts", NAMES)
"""Fields of code. `parts`: the parts of identifiers, and the words of the path. `names`: declared
names, and their parts.
"""

BLOCK_TOKENS = 3_000_000
"""Number of tokens from which a block is full. A writer needs up to 40 bytes of memory for each."""

MOST_WORDS = 200_000
"""Number of distinct words from which a block is full."""

NUMPY_TOKENS = 200_000
"""Number of tokens of a block that take as long without numpy as importing numpy takes."""

_CHUNKS_AT_ONCE = 1_000

_MOST_PARTS = 32
"""Maximum number of terms of a phrase that are compared."""

Numbers = Any
"""An array of 32-bit numbers, of `array` or numpy."""

_SHORT = 1 << 16
_ALIGNMENT = 8
_SIZES: dict[TypeCode, int] = {"B": 1, "H": 2, "I": 4}

# In UTF-8, letters and digits become lower case, and all other characters below U+0080 become
# spaces, because FTS5 separates words there. It may also separate words at other characters.
_ASCII = bytes(range(128))
_SEPARATED = bytes.maketrans(_ASCII, bytes(byte if chr(byte).isalnum() else 32 for byte in _ASCII.lower()))
_FINISHED = b" "
"""Prefix of a word that is already a term."""


def file_name(collection_id: int) -> str:
    return f"words-{collection_id}.idx"


class _Header(Record, frozen=True):
    """The header of a block."""

    fields: tuple[str, ...]
    slots: tuple[int, int]
    """The first slot of the block, and the slot after the last one."""

    arrays: dict[str, tuple[TypeCode, int, int]]
    """The type, the first byte after the header, and the length of each array, by name."""

    size: int
    """The bytes of all arrays together."""


class BlockWriter:
    """Collects the words of the chunks of one collection, in the order of their slots."""

    def __init__(self, fields: Sequence[str], first: int = 0) -> None:
        self._fields = tuple(fields)
        self._next = first
        self._begin_block()

    def _begin_block(self) -> None:
        self._first = self._next
        self._words: dict[bytes, int] = defaultdict(itertools.count().__next__)
        """ASCII words in lower case, and finished terms, with a number for each."""

        self._terms: dict[bytes, Sequence[bytes]] = {}
        """Words that are not ASCII, and the finished terms of each."""

        self._tokens = array("I")
        """Numbers of words, for each chunk and field in turn."""

        self._sizes = array("I")
        """Number of tokens of each chunk and field."""

    @property
    def is_empty(self) -> bool:
        return self._next == self._first

    @property
    def is_full(self) -> bool:
        return len(self._tokens) >= BLOCK_TOKENS or len(self._words) + len(self._terms) >= MOST_WORDS

    def add_chunks(self, chunks: Iterable[Sequence[str]]) -> list[int]:
        """Add chunks, each given as the texts of its fields, and return their numbers of tokens."""
        remaining, counts = iter(chunks), []
        while batch := list(itertools.islice(remaining, _CHUNKS_AT_ONCE)):
            split = [[text.encode().translate(_SEPARATED).split() for text in chunk] for chunk in batch]
            self._split_other_words(split, batch)
            for texts, chunk in zip(batch, split, strict=True):
                counts.append(sum(map(self._add_words, texts, chunk)))
            self._next += len(batch)
        return counts

    def _split_other_words(self, split: Sequence[Sequence[Sequence[bytes]]], batch: Sequence[Sequence[str]]) -> None:
        """Store the terms of words that are not ASCII, including ASCII words in them."""
        texts = zip(itertools.chain(*batch), itertools.chain(*split), strict=True)
        other_words = {word for text, words in texts if not text.isascii() for word in words if not word.isascii()}
        for word in other_words - self._terms.keys():
            from vmrag_link.index import letters

            parts = map(str.encode, letters.split_words(word.decode()))
            self._terms[word] = [part if part.isascii() else _FINISHED + part for part in parts]

    def _add_words(self, text: str, words: Sequence[bytes]) -> int:
        if not text.isascii():
            words = [term for word in words for term in self._terms.get(word, (word,))]
        self._tokens.extend(map(self._words.__getitem__, words))
        self._sizes.append(len(words))
        return len(words)

    def end_block(self) -> bytes:
        """Return the block of the chunks that were added, and begin the next block."""
        stems = iter(keywords.stem_words([word.decode() for word in self._words if not word.startswith(_FINISHED)]))
        words = [word[1:] if word.startswith(_FINISHED) else next(stems) for word in self._words]
        terms = sorted(set(words))
        numbers = {term: number for number, term in enumerate(terms)}
        tokens = _Tokens([numbers[word] for word in words], self._tokens, self._sizes, len(self._fields), self._first)
        lists = (_invert_by_numpy if _has_many(self._tokens) else _invert_tokens)(tokens, len(terms))
        term_starts = array("I", itertools.accumulate(map(len, terms), initial=0))
        block = _encode_block(
            self._fields,
            (self._first, self._next),
            {
                "terms": ("B", b"".join(terms)),
                "term_starts": _shrink_numbers(term_starts, term_starts[-1]),
                "starts": _shrink_numbers(lists.starts, len(lists.slots)),
                "slots": _shrink_numbers(lists.slots, self._next),
                "frequencies": _shrink_numbers(lists.frequencies, max(self._sizes, default=0)),
                "position_starts": _shrink_numbers(lists.position_starts, len(lists.positions)),
                "positions": _shrink_numbers(lists.positions, max(self._sizes, default=0)),
            },
        )
        self._begin_block()
        return block


class _Tokens(NamedTuple):
    """The tokens of some chunks, beginning with the slot `first`."""

    terms: Sequence[int]
    """The number of the term of each word."""

    words: array[int]
    sizes: array[int]
    """The number of tokens of each chunk and field."""

    fields: int
    first: int


class _Lists(NamedTuple):
    """The arrays of a block, with 32-bit numbers."""

    starts: Numbers
    slots: Numbers
    frequencies: Numbers
    position_starts: Numbers
    positions: Numbers


def _has_many(tokens: array[int]) -> bool:
    """Return whether numpy is faster for so many tokens."""
    if "numpy" in sys.modules or len(tokens) >= NUMPY_TOKENS:
        with contextlib.suppress(ImportError):
            importlib.import_module("vmrag_link.numpy_loading")
            return True
    return False


def _invert_tokens(tokens: _Tokens, terms: int) -> _Lists:
    lists, slots, positions = list[int](), list[int](), list[int]()
    begin = 0
    for number, size in enumerate(tokens.sizes):
        slot, field = divmod(number, tokens.fields)
        lists += [tokens.terms[word] * tokens.fields + field for word in tokens.words[begin : begin + size]]
        slots += [tokens.first + slot] * size
        positions += range(size)
        begin += size
    order = sorted(range(len(lists)), key=lists.__getitem__)
    frequencies = Counter((lists[token], slots[token]) for token in order)

    def starts(lengths: Counter[int]) -> array[int]:
        numbers = range(terms * tokens.fields)
        return array("I", itertools.accumulate(map(lengths.__getitem__, numbers), initial=0))

    return _Lists(
        starts(Counter(number for number, _ in frequencies)),
        array("I", [slot for _, slot in frequencies]),
        array("I", frequencies.values()),
        starts(Counter(lists)),
        array("I", [positions[token] for token in order]),
    )


def _invert_by_numpy(tokens: _Tokens, terms: int) -> _Lists:
    """Return the same as `_invert_tokens`."""
    from vmrag_link.numpy_loading import np

    sizes = np.asarray(tokens.sizes)
    lists = np.asarray(tokens.terms, np.uint32)[np.asarray(tokens.words)]
    texts = np.repeat(np.arange(len(sizes), dtype=np.uint32), sizes)
    if tokens.fields > 1:
        lists = lists * tokens.fields + texts % tokens.fields
    numbers = np.arange(terms * tokens.fields + 1, dtype=np.uint32)
    if len(numbers) <= _SHORT:  # numpy sorts them in a third of the time
        lists, numbers = lists.astype(np.uint16), numbers.astype(np.uint16)
    order = np.argsort(lists, kind="stable")
    lists, texts = lists[order], texts[order]
    positions = order - (np.cumsum(sizes) - sizes)[texts]
    changes = (lists[1:] != lists[:-1]) | (texts[1:] != texts[:-1])
    begins = np.append(0, np.flatnonzero(changes) + 1)[: len(texts)]
    return _Lists(
        np.searchsorted(lists[begins], numbers).astype(np.uint32),
        (texts[begins] // tokens.fields + tokens.first).astype(np.uint32),
        np.diff(begins, append=len(texts)).astype(np.uint32),
        np.searchsorted(lists, numbers).astype(np.uint32),
        positions.astype(np.uint32),
    )


def _shrink_numbers(values: Numbers, largest: int) -> tuple[TypeCode, bytes]:
    """Return the smallest type for the largest value, and all values in it, little-endian."""
    code = next(code for code, size in _SIZES.items() if largest < 1 << 8 * size)
    ratio = values.itemsize // _SIZES[code]
    first = 0 if sys.byteorder == "little" else ratio - 1
    small = array(code, memoryview(values).cast("B").cast(code)[first::ratio].tobytes())
    if sys.byteorder == "big":
        small.byteswap()
    return code, small.tobytes()


def _encode_block(fields: tuple[str, ...], slots: tuple[int, int], arrays: dict[str, tuple[TypeCode, bytes]]) -> bytes:
    places, parts, end = {}, [], 0
    for name, (code, content) in arrays.items():
        places[name] = (code, end, len(content) // _SIZES[code])
        padding = -len(content) % _ALIGNMENT
        parts += [content, bytes(padding)]
        end += len(content) + padding
    header = msgspec.json.encode(_Header(fields, slots, places, end))
    header += b" " * (-len(header) % _ALIGNMENT)
    return b"".join([len(header).to_bytes(_ALIGNMENT, "little"), header, *parts])


class WordOccurrences(NamedTuple):
    """The chunks of a piece (`keywords.unpack_piece`) that contain a word in one field."""

    piece: int
    slots: Sequence[int]
    """The slots of the chunks, ascending."""

    frequencies: Sequence[int]
    """How often each chunk contains the word."""

    alive: bytes
    """A byte for each slot of the piece: 1 if the view includes it. Empty if the view includes all
    slots.
    """

    names: bool = False
    """True if the field is that of declared names."""

    def alive_pairs(self) -> Iterable[tuple[int, int]]:
        """Return the slots that the view includes, and how often each contains the word."""
        pairs = zip(self.slots, self.frequencies, strict=True)
        return itertools.compress(pairs, map(self.alive.__getitem__, self.slots)) if self.alive else pairs


class Postings:
    """The words of one collection in a segment. Raises `ValueError` for a damaged file."""

    def __init__(self, content: mmap.mmap | bytes, *, slots: int) -> None:
        self._blocks: list[_Block] = []
        start = end = 0
        while start < len(content):
            block = _Block(content, start)
            if block.slots.start != end:
                raise ValueError(f"a block of words begins with slot {block.slots.start} instead of {end}")
            self._blocks.append(block)
            start, end = block.end, block.slots.stop
        if end != slots:
            raise ValueError(f"a file of words has {end} of {slots} slots")

    def list_blocks(self) -> Iterator[tuple[tuple[str, ...], range, bytes]]:
        """Return the fields, the slots and the bytes of each block."""
        return ((block.fields, block.slots, block.read_content()) for block in self._blocks)

    def find_lists(
        self, terms: Sequence[str], *, names: bool = False
    ) -> Iterator[tuple[str, Sequence[int], Sequence[int]]]:
        """Yield the slots that contain a word, ascending, and how often, for each field of each
        block.

        FTS5 splits some words (`snake_case`). The terms of such a word must follow each other.
        `names`: search only the names that code declares.
        """
        encoded = [term.encode() for term in terms[:_MOST_PARTS]]
        for block in self._blocks:
            numbers = [block.number_of(term) for term in encoded]
            if min(numbers) >= 0:
                for field, name in enumerate(block.fields):
                    if name == NAMES or not names:
                        lists = (
                            block.list_of(numbers[0], field) if len(numbers) == 1 else block.find_phrase(numbers, field)
                        )
                        yield name, *lists

    def find_compounds(self, part: str) -> Iterator[tuple[bytes, Sequence[int], Sequence[int]]]:
        """Yield the terms that are compounds with a part (`keywords.is_compound`), with their slots
        and counts in a field.
        """
        for block in self._blocks:
            for number in block.find_compounds(part.encode()):
                for field in range(len(block.fields)):
                    yield block.term(number), *block.list_of(number, field)


class _Block:
    def __init__(self, content: mmap.mmap | bytes, at: int) -> None:
        self._content, self._at = content, at
        first = at + _ALIGNMENT
        self._arrays = first + int.from_bytes(content[at:first], "little")
        header = msgspec.json.decode(content[first : self._arrays], type=_Header)
        self.fields = header.fields
        self.slots = range(*header.slots)
        self.end = self._arrays + header.size
        if not self._arrays <= self.end <= len(content):
            raise ValueError("a block of words is truncated")
        self._places = header.arrays
        _, self._terms, _ = header.arrays["terms"]
        self._term_starts = self._read_array("term_starts")
        self._starts = self._read_array("starts")
        self._slots = self._read_array("slots")
        self._frequencies = self._read_array("frequencies")

    def read_content(self) -> bytes:
        return self._content[self._at : self.end]

    def _read_array(self, name: str) -> Sequence[int]:
        code, first, length = self._places[name]
        first += self._arrays
        return read_numbers(memoryview(self._content)[first : first + length * _SIZES[code]], code)

    def number_of(self, term: bytes) -> int:
        """Return the number of a term; -1 if no chunk holds it."""
        terms = range(len(self._term_starts) - 1)
        number = bisect.bisect_left(terms, term, key=self.term)
        return number if number < len(terms) and self.term(number) == term else -1

    def term(self, number: int) -> bytes:
        first = self._arrays + self._terms
        return self._content[first + self._term_starts[number] : first + self._term_starts[number + 1]]

    def find_compounds(self, part: bytes) -> Iterator[int]:
        """Return the numbers of the terms that are compounds with a part."""
        first = self._arrays + self._terms
        end, at = first + self._term_starts[-1], first
        while (at := self._content.find(part, at, end)) >= 0:
            number = bisect.bisect_right(self._term_starts, at - first) - 1
            if keywords.is_compound(self.term(number), part):
                yield number
            at = max(at + 1, first + self._term_starts[number + 1])

    def list_of(self, number: int, field: int) -> tuple[Sequence[int], Sequence[int]]:
        """Return the slots that hold a term in a field, and how often."""
        at = number * len(self.fields) + field
        rows = slice(self._starts[at], self._starts[at + 1])
        return self._slots[rows], self._frequencies[rows]

    def find_phrase(self, numbers: Sequence[int], field: int) -> tuple[Sequence[int], Sequence[int]]:
        """Return the slots in which these terms follow each other in a field, and how often."""
        lists = [self.list_of(number, field) for number in numbers]
        common = set(lists[0][0]).intersection(*(slots for slots, _ in lists))
        begins: set[tuple[int, int]] = set()
        for offset, number in enumerate(numbers if common else ()):
            starts = {(slot, position - offset) for slot, position in self._list_positions(number, field, common)}
            begins = begins & starts if offset else starts
        counts = Counter(slot for slot, _ in sorted(begins))
        return list(counts), list(counts.values())

    def _list_positions(self, number: int, field: int, slots: set[int]) -> Iterator[tuple[int, int]]:
        """Yield the positions of a term in some slots."""
        positions = self._read_array("positions")
        at = self._read_array("position_starts")[number * len(self.fields) + field]
        for slot, frequency in zip(*self.list_of(number, field), strict=True):
            if slot in slots:
                for position in positions[at : at + frequency]:
                    yield slot, position
            at += frequency
