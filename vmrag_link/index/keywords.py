"""Words: one FTS5 table of the texts of a segment's chunks, which says where a word is.

Code has two columns more: the parts of its identifiers (`HandlerStack` is also `handler` and
`stack`), and its names. A piece's place is its file's name, with the folders nearest to it.

`rowid` is `row_id(collection, slot)`, so a collection is a range of rows and needs no join. In a
view the segment's place among the others is added (`SEGMENT_BITS`). `retrieval.bm25` ranks.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import re
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from vmrag_link.index import storage
from vmrag_link.models import IndexedPiece

FILE = "keywords.sqlite"
SLOT_BITS = 40
LAST_SLOT = (1 << SLOT_BITS) - 1
COLLECTION_BITS = 16
SEGMENT_BITS = SLOT_BITS + COLLECTION_BITS
LAST_ROW = (1 << SEGMENT_BITS) - 1
MOST_COLLECTIONS = (1 << COLLECTION_BITS) - 1
ROWS_AT_ONCE = 1_000
PAGE_SIZE = 1024
"""As `manifest.PAGE_SIZE`."""

TOKENS = "tokenize = 'porter unicode61'"
TABLE = f"CREATE VIRTUAL TABLE keywords USING fts5(text, parts, names, {TOKENS})"

_COLUMNS = 3

MOST_WORDS, _LONGEST_WORD = 10_000, 1_000
"""Of a query: each word is looked up in each segment, and a longer one is in no text that people
read.
"""

_MOST_PARTS = 32
"""Of a word that FTS5 takes apart: the first ones are compared."""

# English words that carry no topic: dropped from a query (never from the texts), unless nothing
# else is left.
STOP_WORDS = frozenset(
    (
        "a about all also an and any are as at be been but by can could did do does for from had has have how i if in into "
        "is it its me more my no not of on or our should so some such than that the their them then there these they this "
        "to was we were what when where which who why will with would you your"
    ).split()
)


def damage(folder: Path) -> str:
    """Why the lists of words are not those of the texts; empty if they are.

    FTS5 makes them again, in memory. Reads the whole file.
    """
    with contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        try:
            connection.deserialize(storage.read_database(folder / FILE))
            found = connection.execute("SELECT sql FROM sqlite_master WHERE name = 'keywords'").fetchone()
            if found != (TABLE,):
                return f"{FILE} is no list of words"
            connection.execute("INSERT INTO keywords(keywords) VALUES ('integrity-check')")
        except (sqlite3.Error, OSError) as error:
            return f"the words in {FILE} are not those of the texts ({error})"
    return ""


def row_id(collection_id: int, slot: int, segment: int = 0) -> int:
    return (segment << SEGMENT_BITS) | (collection_id << SLOT_BITS) | slot


def piece_of(row: int) -> int:
    """What all rows of a collection in one segment have in common."""
    return row >> SLOT_BITS


def segment_of(row: int) -> int:
    return row >> SEGMENT_BITS


def slot_of(row: int) -> int:
    return row & LAST_SLOT


def connect(folder: Path, *, frozen: bool = False) -> sqlite3.Connection:
    """A connection to the words of a segment, made if absent, for one thread at a time. `frozen`:
    the segment is finished.
    """
    connection = storage.connect_database(folder / FILE, frozen=frozen)
    if frozen:
        return connection
    try:
        connection.execute(f"PRAGMA page_size = {PAGE_SIZE}")
        # A segment that a kill left half made is thrown away: no journal has to survive that.
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("PRAGMA journal_mode = MEMORY")
        connection.execute(TABLE.replace("TABLE", "TABLE IF NOT EXISTS"))
    except sqlite3.Error:
        connection.close()
        raise
    return connection


@contextlib.contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """What changes in the block is one transaction, which may be part of a larger one."""
    if connection.in_transaction:
        yield
        return
    with connection:
        connection.execute("BEGIN")
        yield


def add(connection: sqlite3.Connection, rows: Iterable[tuple[int, *tuple[str, ...]]]) -> None:
    """Add rows: a number, the text, and what else there is for the other columns. Many in one
    statement: it runs without the interpreter's lock.
    """
    left = iter(rows)
    with transaction(connection):
        while some := list(itertools.islice(left, ROWS_AT_ONCE)):
            connection.execute(
                "INSERT INTO keywords(rowid, text, parts, names) "
                "SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]'), "
                "json_extract(value, '$[3]') FROM json_each(?)",
                (msgspec.json.encode(some).decode(),),
            )


def count(connection: sqlite3.Connection, rows: range | None = None) -> int:
    """Number of rows: all, or those in a range."""
    where, within = ("", ()) if rows is None else ("WHERE id >= ? AND id < ?", (rows.start, rows.stop))
    found = connection.execute(f"SELECT count(*) FROM keywords_docsize {where}", within)  # noqa: S608  constants
    return int(found.fetchone()[0])


def token_counts(connection: sqlite3.Connection, rows: range) -> list[int]:
    """How many tokens FTS5 found in all columns of each row of a range, whose rows must all be
    there.
    """
    found = connection.execute(
        "SELECT sz FROM keywords_docsize WHERE id >= ? AND id < ? ORDER BY id", (rows.start, rows.stop)
    )
    return [sum(size) if len(size) == _COLUMNS else sum(_varints(size)) for (size,) in found]


def _varints(content: bytes) -> list[int]:
    """Numbers as SQLite's file format writes them: seven bits a byte, the highest first, and the
    eighth set in all bytes of a number but the last.
    """
    values, value = [], 0
    for byte in content:
        value = value << 7 | byte & 0x7F
        if not byte & 0x80:
            values.append(value)
            value = 0
    return values


def texts(connection: sqlite3.Connection, rows: Sequence[int]) -> dict[int, str]:
    """The texts of these rows."""
    found: dict[int, str] = {}
    for row in rows:
        for text in connection.execute("SELECT text FROM keywords WHERE rowid = ?", (row,)):
            found[row] = text[0]
    return found


def scan(connection: sqlite3.Connection, rows: range) -> Iterator[tuple[int, str]]:
    """The rows of a range, and their texts, ascending."""
    ends = rows.start, rows.stop
    yield from connection.execute("SELECT rowid, text FROM keywords WHERE rowid >= ? AND rowid < ?", ends)


def words(query: str) -> list[str]:
    """The words of a query, in small letters, each once. Stop words count only where there are no
    others, and no more than `MOST_WORDS` count.
    """
    found = list(dict.fromkeys(word for word in re.findall(r"\w+", query.lower()) if len(word) <= _LONGEST_WORD))
    return [word for word in found if word not in STOP_WORDS][:MOST_WORDS] or found


def matches(query: str, texts: Sequence[str]) -> list[list[tuple[int, int]]]:
    """Where each text has words of a query, as a ranking by words finds them: ranges of characters
    that share none, ascending.
    """
    phrases = " OR ".join(f'"{word}"' for word in words(query))
    found: list[list[tuple[int, int]]] = [[] for _ in texts]
    if not phrases:
        return found
    begin, end = os.urandom(8).hex(), os.urandom(8).hex()  # no text can hold them
    with contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        connection.execute(TABLE)
        connection.executemany("INSERT INTO keywords(rowid, text) VALUES (?, ?)", enumerate(texts))
        marked = connection.execute(
            "SELECT rowid, highlight(keywords, 0, ?, ?) FROM keywords WHERE keywords MATCH ?", (begin, end, phrases)
        )
        for number, text in marked:
            at = 0
            for part in re.split(f"({begin}.*?{end})", text, flags=re.DOTALL):
                match = part.removeprefix(begin).removesuffix(end)
                if match != part:
                    found[number].append((at, at + len(match)))
                at += len(match)
    return found


class Postings:
    """Where words are in one finished segment, the `segment`th of a view.

    Looks words up in FTS5's own lists (`fts5vocab`), as the stems that its tokenizer makes of them.
    One connection takes one of these.
    """

    def __init__(self, connection: sqlite3.Connection, segment: int) -> None:
        self._connection = connection
        self._offset = segment << SEGMENT_BITS
        connection.execute("PRAGMA temp_store = MEMORY")
        connection.execute("CREATE VIRTUAL TABLE temp.terms USING fts5vocab('main', 'keywords', 'instance')")

    def of(self, terms: Sequence[str], *, names: bool = False) -> list[int]:
        """The rows that hold a word, ascending, once an occurrence; `names`: among their names.

        A word that FTS5 takes apart (`snake_case`) is a phrase: its parts must follow each other.
        """
        where = "term = ? AND col = 'names'" if names else "term = ?"
        return self._rows(terms[0], where) if len(terms) == 1 else self._phrase(terms, where)

    def _rows(self, term: str, where: str) -> list[int]:
        # One text of many numbers: five times as fast as a row for each.
        asked = f"SELECT json_group_array(doc + ?) FROM temp.terms WHERE {where}"  # noqa: S608  constants
        found = self._connection.execute(asked, (self._offset, term)).fetchone()
        return msgspec.json.decode(found[0], type=list[int])

    def _phrase(self, terms: Sequence[str], where: str) -> list[int]:
        asked = f"SELECT doc + ?, col, offset - ? FROM temp.terms WHERE {where}"  # noqa: S608  constants
        starts: set[tuple[int, str, int]] = set()
        for number, term in enumerate(terms[:_MOST_PARTS]):
            found = self._connection.execute(asked, (self._offset, number, term))
            starts = starts.intersection(found) if number else set(found)
            if not starts:
                break
        return sorted(row for row, _, _ in starts)


def terms(query: str) -> list[list[str]]:
    """What the tokenizer makes of each word of a query."""
    return terms_of(words(query))


def terms_of(words: Iterable[str]) -> list[list[str]]:
    """What the tokenizer makes of each of these words."""
    found: dict[int, list[str]] = {}
    with contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        connection.execute(f"CREATE VIRTUAL TABLE asked USING fts5(text, {TOKENS})")
        connection.execute("CREATE VIRTUAL TABLE asked_terms USING fts5vocab('asked', 'instance')")
        connection.executemany("INSERT INTO asked(rowid, text) VALUES (?, ?)", enumerate(words))
        for number, term in connection.execute("SELECT doc, term FROM asked_terms ORDER BY doc, offset"):
            found.setdefault(number, []).append(term)
    return list(found.values())


_NEAR_FOLDERS = 3

# From the beginning of a word only: within words it would take the square of their length.
_MIXED = re.compile(r"(?<![A-Za-z0-9])(?:[A-Z]*[a-z0-9]+[A-Z][A-Za-z0-9]*|[A-Z]{2,}[a-z][A-Za-z0-9]*)")
_PART = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|[0-9]+")
_LONGEST = 100
"""Characters of an identifier that is taken apart; longer ones are data."""


def parts(text: str) -> str:
    """The parts of the identifiers in a text whose parts no character separates."""
    return " ".join(part for word in _MIXED.findall(text) if len(word) <= _LONGEST for part in _parts_of(word))


@functools.lru_cache(maxsize=16384)
def _parts_of(word: str) -> Sequence[str]:
    found = _PART.findall(word)
    return tuple(found) if len(found) > 1 else ()


def words_beside(path: str, piece: IndexedPiece, text: str) -> tuple[str, str]:
    """What else a piece of a file is found by: parts of identifiers, with the words of its place;
    and the names of its symbol and of those that it declares.
    """
    *folders, name = path.split("/")
    *parents, symbol = piece.symbol.split(".")
    declared = [symbol, *(each.rpartition(".")[2] for each, *_ in piece.declared)]
    place, named = " ".join([*folders[-_NEAR_FOLDERS:], stem(name), *parents]), " ".join(declared)
    return " ".join([parts(text), place, parts(f"{place} {named}")]), named


def stem(name: str) -> str:
    """A file's name without its ending: `session` of `session.test.ts` too."""
    return name.lstrip(".").partition(".")[0]


def words_of(names: Iterable[str]) -> set[str]:
    """The words of these names in small letters, those that are written as one taken apart, too."""
    text = " ".join(names).replace("_", " ")
    return set(re.findall(r"[^\W_]+", f"{text} {parts(text)}".lower()))
