"""Words of texts, queries and code, and the numbers of rows.

SQLite's FTS5 turns words into terms: lower-case stems without accents. `postings` stores which
chunks contain a term, and `retrieval.bm25` ranks them.

Code is also found by the parts of its identifiers (`HandlerStack` is also `handler` and `stack`),
by its names, and by its path: the name of its file and the nearest folders.

A row (`pack_row`) identifies a chunk by collection and slot, so a collection is a range of rows. In
a view, a row also has the number of the segment (`SEGMENT_BITS`).
"""

from __future__ import annotations

import atexit
import functools
import re
import sqlite3
import threading
from collections.abc import Iterable, Mapping, Sequence

from vmrag_link.models import IndexedPiece

SLOT_BITS = 40
LAST_SLOT = (1 << SLOT_BITS) - 1
COLLECTION_BITS = 16
SEGMENT_BITS = SLOT_BITS + COLLECTION_BITS
MOST_COLLECTIONS = (1 << COLLECTION_BITS) - 1

TOKENS = "tokenize = 'porter unicode61'"
MOST_WORDS, _LONGEST_WORD = 10_000, 1_000
"""Maximum number of words of a query, and of characters of a word.

Each word is looked up in each segment. A longer word is not in any text that people read.
"""

# English words without a topic. They are removed from a query (never from texts) unless the query
# has no other words.
STOP_WORDS = frozenset(
    (
        "a about all also an and any are as at be been but by can could did do does for from had has have how i if in into "
        "is it its me more my no not of on or our should so some such than that the their them then there these they this "
        "to was we were what when where which who why will with would you your"
    ).split()
)


# Forms that the stemmer does not know. Omitted are forms that are mostly other words ("left",
# "bound") or adjectives ("built", "written"), and verbs without a topic ("make").
_FORMS = """
analysis analyses, axis axes, basis bases, begin began begun, bend bent, bring brought, buy bought, catch caught,
child children, choose chose chosen, criterion criteria, crisis crises, deal dealt, dig dug, draw drew drawn, drive
drove driven, fall fell fallen, feed fed, feel felt, fight fought, fly flew flown, forbid forbade forbidden, forget
forgot forgotten, freeze froze frozen, give gave, grow grew grown, hang hung, hear heard, hide hid hidden, hold held,
hypothesis hypotheses, index indices, keep kept, know knew known, lead led, lend lent, lose lost, matrix matrices,
meet met, mouse mice, overcome overcame, override overrode overridden, overwrite overwrote overwritten, rebuild
rebuilt, redo redid redone, rerun reran, rewrite rewrote rewritten, ride rode ridden, rise rose risen, run ran, seek
sought, sell sold, shake shook shaken, shrink shrank shrunk, sing sang sung, sink sank sunk, sleep slept, slide slid,
speak spoke spoken, spend spent, spin spun, steal stole stolen, stick stuck, strike struck, swear swore sworn, sweep
swept, swim swam swum, swing swung, synopsis synopses, take took, teach taught, tear tore torn, tell told, thesis
theses, throw threw thrown, undergo underwent undergone, understand understood, undo undid undone, vertex vertices,
wake woke woken, wear wore worn, weave wove woven, win won, withdraw withdrew withdrawn, woman women, write wrote
"""
IRREGULAR = {form: base for base, *forms in map(str.split, _FORMS.split(",")) for form in forms}
"""The base form of irregular English forms."""


# Words of German, French, Spanish, Portuguese, Italian and Dutch that English questions lack.
_FOREIGN_WORDS = frozenset(
    (
        "aber auf aus bei beim das dem den der des ein eine einem einen einer ist kann mit nach nicht oder und vom von warum "
        "welche welcher wenn werden wie wird wo zum zur au aux avec dans du est et le les ne ou par pas quand quel quelle qui "
        "sur une como cual cuando del donde el la las los para por que se sin una da dos em os ao sem um uma che dei della di "
        "il gli nel quando senza sono bij de een het hoe met niet op van voor wat zijn"
    ).split()
)
# "in" is also German, and "do" is also Portuguese.
_ENGLISH_WORDS = STOP_WORDS - frozenset("a also an as do has in me no on so was will".split())

SHORTEST_PART, LEAST_REST = 4, 3
"""Minimum number of letters of a stem that finds compounds (`Scheinwerfer` finds
`Rückfahrscheinwerfer`), and of further bytes of the compound.
"""


def pack_row(collection_id: int, slot: int, segment: int = 0) -> int:
    """Return the row of a slot of a collection, in a view with the number of its segment."""
    return (segment << SEGMENT_BITS) | (collection_id << SLOT_BITS) | slot


def unpack_piece(row: int) -> int:
    """Return the number of a piece: the bits that all rows of a collection in one segment share."""
    return row >> SLOT_BITS


def unpack_segment(row: int) -> int:
    return row >> SEGMENT_BITS


def unpack_slot(row: int) -> int:
    return row & LAST_SLOT


def split_query(query: str) -> list[str]:
    """Return the distinct words of a query in lower case, at most `MOST_WORDS`.

    Stop words are included only if the query has no other words.
    """
    words = list(dict.fromkeys(word for word in split_words(query) if len(word) <= _LONGEST_WORD))
    return [word for word in words if word not in STOP_WORDS][:MOST_WORDS] or words


def split_words(text: str) -> Sequence[str]:
    """Return the words of a text in lower case, with accents.

    Text in scripts without spaces becomes pairs of letters, like in the index.
    """
    if text.isascii():
        return re.findall(r"\w+", text.lower())
    from vmrag_link.index import letters

    words: list[str] = []
    for word in re.findall(r"(?:\w|[^\x00-\x7f])+", text):
        words += [word.lower()] if word.isascii() else letters.list_written(word)
    return words


def is_english(query: str) -> bool:
    """Return whether a query may be English: it has no word or letter of another language, or an
    English stop word.
    """
    words = set(re.findall("(?:\\w|[\u0300-\u036f])+", query.lower()))
    may_be = words.isdisjoint(_FOREIGN_WORDS) and all(map(str.isascii, words))
    return may_be or not words.isdisjoint(_ENGLISH_WORDS)


def is_compound(term: bytes, part: bytes) -> bool:
    """Return whether a term is a compound that begins or ends with a part."""
    return len(term) >= len(part) + LEAST_REST and (term.startswith(part) or term.endswith(part))


def find_matches(query: str, texts: Sequence[str]) -> list[list[tuple[int, int]]]:
    """Return the ranges of characters in each text that match words of a query.

    The words match like in a ranking by words. The ranges of a text are ascending and do not
    overlap.
    """
    phrases: dict[bytes, list[list[bytes]]] = {}
    versions = [[term.encode() for term in phrase] for phrase in find_version_terms(query)]
    for phrase in filter(None, [*find_terms(split_query(query)), *versions]):
        phrases.setdefault(phrase[0], []).append(phrase)
    located = [_locate_words(text) if phrases else [] for text in texts]
    # A stem begins like its word. Most words begin differently from the words of the query.
    begins = {term.decode(errors="replace")[:1] for some in phrases.values() for phrase in some for term in phrase}
    distinct = {word for some in located for _, _, word in some}
    candidates = [word for word in distinct if word[0] in begins or word in IRREGULAR]
    terms = dict(zip(candidates, finish_words(candidates), strict=True))
    spans = [_find_phrases(phrases, some, [terms.get(word, b"") for _, _, word in some]) for some in located]
    alone = len(phrases) == 1
    parts = [phrase[0] for some in phrases.values() for phrase in some if is_part(phrase, alone=alone)]
    for number, text in enumerate(texts if parts else ()):
        lowered = text.lower()
        if not spans[number] and (not text.isascii() or any(part.decode() in lowered for part in parts)):
            spans[number] = _find_compounds(parts, located[number])
    return spans


def is_part(phrase: Sequence[bytes], *, alone: bool = False) -> bool:
    """Return whether a word of a query also finds compounds, if few texts contain it.

    A single letter of a script without spaces does so if it is `alone`.
    """
    word = phrase[0].decode(errors="replace")
    return len(phrase) == 1 and (len(word) >= SHORTEST_PART or (alone and len(word) == 1 and not word.isascii()))


def _find_compounds(parts: Sequence[bytes], located: Sequence[tuple[int, int, str]]) -> list[tuple[int, int]]:
    """Return the spans of compounds with one of these parts."""
    spans: list[tuple[int, int]] = []
    for start, end, word in located:
        if any(part in word.encode() for part in parts):
            [term] = finish_words([word])
            if any(is_compound(term, part) for part in parts):
                _add_span(spans, start, end)
    return spans


def _locate_words(text: str) -> list[tuple[int, int, str]]:
    """Return the start, the end and the folded letters of each word of a text."""
    if text.isascii():
        return [(match.start(), match.end(), match[0]) for match in re.finditer("[0-9a-z]+", text.lower())]
    located = []
    for match in re.finditer(r"[0-9A-Za-z\x80-\U0010ffff]+", text):
        word, start = match[0], match.start()
        if word.isascii():
            located.append((start, match.end(), word.lower()))
        else:
            from vmrag_link.index import letters

            located += [(start + first, start + end, part) for first, end, part in letters.locate_words(word)]
    return located


def _find_phrases(
    phrases: Mapping[bytes, Sequence[Sequence[bytes]]], located: Sequence[tuple[int, int, str]], terms: Sequence[bytes]
) -> list[tuple[int, int]]:
    """Return the spans of phrases in the terms of a text. `phrases`: lists of terms, by their first
    term.
    """
    spans: list[tuple[int, int]] = []
    for number, term in [(number, term) for number, term in enumerate(terms) if term in phrases]:
        lengths = [len(phrase) for phrase in phrases[term] if terms[number : number + len(phrase)] == phrase]
        if lengths:
            start, end = located[number][0], located[number + max(lengths) - 1][1]
            _add_span(spans, start, end)
    return spans


def _add_span(spans: list[tuple[int, int]], start: int, end: int) -> None:
    """Add a span to spans that begin earlier. Overlapping spans become one."""
    if spans and start < spans[-1][1]:
        start, end = spans[-1][0], max(end, spans.pop()[1])
    spans.append((start, end))


def find_query_terms(query: str) -> list[list[str]]:
    """Return the terms of each word of a query."""
    return list_terms(split_query(query))


_VERSION = re.compile(r"\b[vV]?(\d{1,9}(?:\.\d{1,9}){1,5})\b")
_MOST_VERSIONS = 5


def find_versions(query: str) -> list[str]:
    """Return the first versions in a query, such as 3.1.0, without the letter v."""
    return list(dict.fromkeys(_VERSION.findall(query)))[:_MOST_VERSIONS]


def find_version_terms(query: str) -> list[list[str]]:
    """Return the terms of each version in a query as a phrase, without and with the letter v.

    The numbers of a version alone are in most sections of a changelog.
    """
    numbers = [version.split(".") for version in find_versions(query)]
    return [[letter + first, *others] for first, *others in numbers for letter in ("", "v")]


def list_terms(words: Iterable[str]) -> list[list[str]]:
    """Return the terms of each of these words that has any."""
    return [[term.decode(errors="replace") for term in terms] for terms in find_terms(words) if terms]


def find_terms(words: Iterable[str]) -> list[list[bytes]]:
    """Return the terms of each word, in order.

    Terms are bytes, because FTS5 can cut a term of more than 32 kB within a character.
    """
    parts = [list(_fold_word(word)) for word in words]
    terms = iter(finish_words([part for some in parts for part in some]))
    return [[next(terms) for _ in some] for some in parts]


def _fold_word(word: str) -> Sequence[str]:
    if word.isascii():
        return re.findall(r"[0-9a-z]+", word.lower())
    from vmrag_link.index import letters

    return letters.split_words(word)


def finish_words(words: Sequence[str]) -> list[bytes]:
    """Return the terms of folded words: the stems of ASCII words, and other words unchanged."""
    stems = iter(stem_words([word for word in words if word.isascii()]))
    return [next(stems) if word.isascii() else word.encode() for word in words]


def stem_words(words: Sequence[str]) -> list[bytes]:
    """Return the term of each word. The words consist of lower-case ASCII letters and digits."""
    words = [IRREGULAR.get(word, word) for word in words]
    starts = range(0, len(words), _WORDS_PER_TEXT)
    terms = [b""] * len(words)
    for number, position, term in _tokenize_texts(" ".join(words[start : start + _WORDS_PER_TEXT]) for start in starts):
        terms[number * _WORDS_PER_TEXT + position] = term
    return terms


_WORDS_PER_TEXT = 1_000
_TOKENIZER_LOCK = threading.Lock()


def _tokenize_texts(texts: Iterable[str]) -> list[tuple[int, int, bytes]]:
    """Return the terms of texts, in any order: number of the text, position of the term, term."""
    with _TOKENIZER_LOCK:
        connection = _open_tokenizer()
        connection.execute("BEGIN")
        try:
            connection.executemany("INSERT INTO texts(rowid, text) VALUES (?, ?)", enumerate(texts))
            return connection.execute("SELECT doc, offset, term FROM terms").fetchall()
        finally:
            connection.execute("ROLLBACK")


@functools.cache
def _open_tokenizer() -> sqlite3.Connection:
    """Return a connection to an empty table. Creating one takes longer than a query on a loaded
    index.
    """
    connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    atexit.register(connection.close)
    connection.text_factory = bytes
    connection.execute(f"CREATE VIRTUAL TABLE texts USING fts5(text, {TOKENS}, content='')")
    connection.execute("CREATE VIRTUAL TABLE terms USING fts5vocab('texts', 'instance')")
    return connection


_NEAR_FOLDERS = 3

_MIXED = re.compile(r"[A-Z]*[a-z0-9]+[A-Z][A-Za-z0-9]*|[A-Z]{2,}[a-z][A-Za-z0-9]*")
_PART = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|[0-9]+")
_LONGEST = 100
"""Maximum number of characters of an identifier that is split. Longer ones are data."""

_ALPHANUMERIC = bytes(byte if chr(byte).isascii() and chr(byte).isalnum() else 32 for byte in range(256))


def split_identifiers(text: str) -> str:
    """Return the parts of the identifiers in a text that no character separates."""
    words = text.encode(errors="replace").translate(_ALPHANUMERIC).split()
    return " ".join(filter(None, [_split_identifier(word) for word in words if not word.islower()]))


@functools.lru_cache(maxsize=1 << 16)
def _split_identifier(word: bytes) -> str:
    """Return the parts of an identifier, or an empty text if it is one part."""
    if len(word) > _LONGEST or not _MIXED.fullmatch(identifier := word.decode()):
        return ""
    parts = _PART.findall(identifier)
    return " ".join(parts) if len(parts) > 1 else ""


def list_extra_words(path: str, piece: IndexedPiece, text: str) -> tuple[str, str]:
    """Return additional words for a piece of a file, as two texts.

    The first text has the parts of identifiers and the words of the path. The second has the names
    of the symbol of the piece and of the declared symbols, with their parts.
    """
    *folders, name = path.split("/")
    *parents, symbol = piece.symbol.split(".")
    declared = dict.fromkeys([symbol, *(declaration[0].rpartition(".")[2] for declaration in piece.declared)])
    place, names = " ".join([*folders[-_NEAR_FOLDERS:], strip_endings(name), *parents]), " ".join(declared)
    return " ".join([split_identifiers(text), place, split_identifiers(place)]), f"{names} {split_identifiers(names)}"


def strip_endings(name: str) -> str:
    """Return the name of a file without its endings: `session` for `session.test.ts`."""
    return name.lstrip(".").partition(".")[0]


def split_names(names: Iterable[str]) -> set[str]:
    """Return the words of these names in lower case, and also the parts of identifiers."""
    text = " ".join(names).replace("_", " ")
    text = f"{text} {split_identifiers(text)}"
    if not text.isascii():
        from vmrag_link.index import letters

        text = letters.fold(text)
    return set(re.findall(r"[^\W_]+", text.lower()))
