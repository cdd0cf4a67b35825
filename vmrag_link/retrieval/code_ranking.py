"""Rank code by signals other than words and vectors: declared names, and the names of files.

Each signal is a share of the collection's best score, in thousandths. bench/README.md has the
measurements, and the signals that were tried and dropped.
"""

from __future__ import annotations

import bisect
import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

from vmrag_link.index import keywords
from vmrag_link.models import IndexedPiece
from vmrag_link.retrieval import code_aside
from vmrag_link.retrieval.code_aside import FULL_FACTOR
from vmrag_link.retrieval.narrowing import normalize_symbol

DECLARED, MENTIONED = 3000, 400
"""Share of a piece that declares the name if the name is the whole question, or part of a longer
question.
"""

OUTERMOST = 1100
"""Factor of a declaration that is not inside another declaration."""

IN_FILE_NAME = 900
"""Share if all words of the question are in the names of the file and its folder."""

IN_SYMBOL = 600
"""Share if all words of the question are in the name of the symbol."""

VERBATIM, FEWEST, _LONGEST_PHRASE = 2000, 5, 32
"""Share if all words of the question follow each other in the piece, like the words of an error
message. Minimum number of such words; fewer than all words have a proportional share. Maximum
number of words of the question that are compared.
"""

TOGETHER = 150
"""Share of the best piece of the file whose pieces have the highest total score."""

ANOTHER, MOST_TIMES = 750, 3
"""Factor of each further piece of a file, and how often it is applied. So the fourth piece and all
later ones have the same factor.
"""

_SHORTEST, _SHORTEST_PREFIX = 3, 5
"""Minimum lengths of words that are compared with names, and of words that match as a prefix."""

_MOST_JOINED, _SHORTEST_JOINED, _LONGEST_JOINED = 32, 2, 40
"""Maximum number of words of a question that are joined. Minimum length of one word, and maximum
length of both together.
"""

_WORD = re.compile(r"\w+")
_NAME = r"[^\W\d][\w$]*(?:(?:::|->|[.#\\])[\w$~]+)*"
_WRITTEN_AS_NAME = r"[a-z0-9][A-Z]|[A-Z]{2}[a-z]|_|::|->|[.#\\]\w"
_FUNCTIONS = frozenset(("function", "method", "property"))
_TYPES = frozenset("class enum interface object protocol record struct trait type union".split())
_DECLARING: Mapping[str, frozenset[str]] = {
    **dict.fromkeys("def fn fun func function method".split(), _FUNCTIONS),
    **dict.fromkeys(_TYPES, _TYPES),
    **dict.fromkeys("const impl macro module namespace typedef".split(), frozenset()),
}
"""Words before a name, such as `class`, with the kinds of symbols that they mean. An empty set
means any kind.
"""


class RankedPiece(NamedTuple):
    """A piece of code, with the path of its file and its number in the file."""

    path: str
    number: int
    piece: IndexedPiece


class CodeQuestion:
    """The parts of a question that matter for code.

    `of_paths`: the question names files, so no file is demoted.
    """

    def __init__(self, text: str, *, of_paths: bool = False) -> None:
        self._text = text
        self.of_paths = of_paths
        names = keywords.split_names([text])
        self.words = [word for word in sorted(names) if len(word) >= _SHORTEST and word not in keywords.STOP_WORDS]
        self._lengths = sorted({len(word) for word in self.words if len(word) >= _SHORTEST_PREFIX})
        self._whole = frozenset(self.words)
        self._matches: dict[str, frozenset[str]] = {}
        self._phrase = _WORD.findall(text.lower())[:_LONGEST_PHRASE]

    # A question about collections without code needs no patterns, which take long to compile.

    @cached_property
    def _found_names(self) -> _FoundNames:
        return _find_names(self._text)

    @property
    def names(self) -> list[tuple[str, ...]]:
        """The dotted names in the question. Each name is split into its parts."""
        return self._found_names.names

    @property
    def is_name(self) -> bool:
        """True if the whole question is a name."""
        return self._found_names.is_name

    @cached_property
    def _named(self) -> frozenset[tuple[str, ...]]:
        return frozenset(self.names)

    @cached_property
    def _named_lower(self) -> frozenset[tuple[str, ...]]:
        return frozenset(map(_lower_parts, self.names if self.is_name else ()))

    @cached_property
    def _parts(self) -> list[int]:
        return sorted({len(name) for name in self.names})

    @cached_property
    def _demotions(self) -> Sequence[tuple[re.Pattern[str], int]]:
        return () if self.of_paths else code_aside.list_demotions(self._text)

    def list_terms(self, text: str) -> list[list[str]]:
        """Return the terms of the words of the question, and of the parts of identifiers."""
        words = keywords.split_query(text)
        parts = [part for part in keywords.split_identifiers(text).lower().split() if part not in keywords.STOP_WORDS]
        more = [part for word in words if "_" in word for part in word.split("_") if part]
        return _unique_terms([*words, *parts, *more])

    def list_joined_terms(self, text: str) -> list[list[str]]:
        """Return the terms of each pair of words that code may write as one word (`time zone`)."""
        terms = self.list_terms(text)
        room = keywords.MOST_WORDS - len(terms)
        return [term for term in _unique_terms(_join_neighbours(text)) if term not in terms][: max(0, room)]

    def score_declaration(self, piece: RankedPiece) -> int:
        """Return the share of a piece that declares a name of the question; 0 if it declares
        none.
        """
        best, kinds = 0, self._found_names.kinds
        for symbol, kind, *_ in piece.piece.declared if self.names else ():
            parts = tuple(symbol.split("."))
            ends = [parts[-number:] for number in self._parts if number <= len(parts)]
            share = DECLARED if self.is_name else MENTIONED
            if self._named.isdisjoint(ends):
                if self._named_lower.isdisjoint(map(_lower_parts, ends)):
                    continue
                share //= 2
            if kinds and kind not in kinds:
                share //= 2
            best = max(best, share * OUTERMOST // FULL_FACTOR if len(parts) == 1 else share)
        return best

    @property
    def may_be_phrase(self) -> bool:
        """True if the question has enough words to be a phrase of a text."""
        return len(self._phrase) >= FEWEST

    def score_phrase(self, text: str) -> int:
        """Return the share of a piece for the longest run of the question's words in its text."""
        inside, longest = f" {' '.join(_WORD.findall(text.lower()))} ", FEWEST - 1
        for first in range(len(self._phrase)):
            while first + longest < len(self._phrase) and (
                f" {' '.join(self._phrase[first : first + longest + 1])} " in inside
            ):
                longest += 1
        return VERBATIM * longest // len(self._phrase) if longest >= FEWEST else 0

    def compute_path_factor(self, path: str) -> int:
        """Return the factor of a file in thousandths."""
        factor = FULL_FACTOR
        for pattern, demotion in self._demotions:
            if pattern.search(path):
                factor = factor * demotion // FULL_FACTOR
        return factor

    def count_shared_words(self, words: Iterable[str]) -> int:
        """Return how many words of the question match one of these words, or begin alike."""
        return len(frozenset[str]().union(*map(self._match_word, words)))

    def _match_word(self, other: str) -> frozenset[str]:
        if other not in self._matches:
            begin = {other}
            if len(other) >= _SHORTEST_PREFIX:
                begin.update(other[:length] for length in self._lengths if length <= len(other))
                first = bisect.bisect_left(self.words, other)
                begin.update(self.words[first : bisect.bisect_left(self.words, f"{other}\U0010ffff")])
            self._matches[other] = self._whole & begin
        return self._matches[other]


def rank_pieces(
    scores: Mapping[int, int],
    question: CodeQuestion,
    piece_of: Callable[[int], RankedPiece],
    texts_of: Callable[[Iterable[int]], Mapping[int, str]],
    highest: int,
) -> dict[int, int]:
    """Return the scores of a collection's pieces with all signals. The best score stays the same.

    If the question is a name, a piece that declares it gets a score above `highest`, the best score
    of all collections, and the other scores are scaled accordingly.

    `piece_of` returns the piece of a row, and `texts_of` the texts of rows.
    """
    best = max(scores.values(), default=0)
    if best <= 0:
        return dict(scores)
    pieces = {row: piece_of(row) for row in scores}
    shares = _compute_shares(scores, question, pieces)
    declared = {row: question.score_declaration(piece) for row, piece in pieces.items()}
    firsts = {row: row - piece.number for row, piece in pieces.items()}
    texts = texts_of({*scores, *firsts.values()})
    generated = {first for first in set(firsts.values()) if code_aside.is_generated(texts[first])}
    factors = {path: question.compute_path_factor(path) for path in {piece.path for piece in pieces.values()}}
    gained: dict[int, int] = {}
    for row, score in scores.items():
        phrase = question.score_phrase(texts[row]) if question.may_be_phrase else 0
        is_named = declared[row] or question.of_paths
        is_demoted = not is_named and (firsts[row] in generated or code_aside.is_data(texts[row]))
        gain = FULL_FACTOR * score + best * (shares[row] + declared[row] + phrase)
        gained[row] = max(0, gain) * (code_aside.ASIDE if is_demoted else factors[pieces[row].path])
    demoted = _demote_repeated_files(gained, pieces)
    highest_demoted = max(demoted.values())
    if question.is_name and any(declared.values()):
        return {row: score * max(best, highest + 1) // highest_demoted for row, score in demoted.items()}
    scaled = {row: score * best // highest_demoted for row, score in demoted.items()}
    order = sorted(scaled, key=lambda row: (-demoted[row], pieces[row].path, pieces[row].number))
    return _mix_ranks(order, scores, scaled)


def _mix_ranks(order: Sequence[int], scores: Mapping[int, int], scaled: Mapping[int, int]) -> dict[int, int]:
    """Return the mean of the new score of each piece and of the old score of the same rank.

    The new scores alone fall so fast that other collections would displace all pieces except the
    first. The old scores alone fall so slowly that the pieces would displace other collections.
    """
    ranking: dict[int, int] = {}
    below = max(scores.values())
    for row, old in zip(order, sorted(scores.values(), reverse=True), strict=True):
        ranking[row] = min(below, (old + scaled[row]) // 2)
        below = ranking[row] - 1  # so no two scores are equal
    return ranking


def _compute_shares(
    scores: Mapping[int, int], question: CodeQuestion, pieces: Mapping[int, RankedPiece]
) -> dict[int, int]:
    """Return the share of each piece for the names of its file and symbol, and for its file's other
    pieces.
    """
    totals, first = Counter[str](), dict[str, int]()
    for row in sorted(scores, key=lambda row: (-scores[row], pieces[row].path, pieces[row].number)):
        path = pieces[row].path
        totals[path] += max(0, scores[row])
        first.setdefault(path, row)
    highest, word_count = max(totals.values()), len(question.words)
    files = {path: _count_file_words(path, question) for path in first}
    shares: dict[int, int] = {}
    for row, (path, _, piece) in pieces.items():
        share = TOGETHER * totals[path] // highest if first[path] == row else 0
        if word_count:
            symbol = question.count_shared_words(keywords.split_names([piece.symbol])) if piece.symbol else 0
            share += IN_FILE_NAME * files[path] // word_count + IN_SYMBOL * symbol // word_count
        shares[row] = share
    return shares


def _count_file_words(path: str, question: CodeQuestion) -> int:
    """Return how many words of the question are in the names of a file and its folder."""
    folders, _, name = path.rpartition("/")
    return question.count_shared_words(keywords.split_names([folders.rpartition("/")[2], keywords.strip_endings(name)]))


def _demote_repeated_files(scores: Mapping[int, int], pieces: Mapping[int, RankedPiece]) -> dict[int, int]:
    """Return lower scores for further pieces of the same file."""
    counts = Counter[str]()
    demoted: dict[int, int] = {}
    for row in sorted(scores, key=lambda row: (-scores[row], pieces[row].path, pieces[row].number)):
        path = pieces[row].path
        times = min(counts[path], MOST_TIMES)
        demoted[row] = scores[row] * ANOTHER**times // FULL_FACTOR**times
        counts[path] += 1
    return demoted


class _FoundNames(NamedTuple):
    """The names in a question. Each name is split into its parts."""

    names: list[tuple[str, ...]]
    is_name: bool
    """True if the whole question is a name, such as `Mount.match` or `class Mount`."""

    kinds: frozenset[str] = frozenset()
    """The kinds of symbol that the question means; empty for any kind."""


def _find_names(text: str) -> _FoundNames:
    words, kinds = text.strip().rstrip("()").strip("`'\"").split(), frozenset[str]()
    if len(words) == 2 and words[0].lower() in _DECLARING:  # noqa: PLR2004  the word and the name
        kinds = _DECLARING[words.pop(0).lower()]
    if len(words) == 1 and re.fullmatch(_NAME, words[0]):
        return _FoundNames([_split_name(words[0])], is_name=True, kinds=kinds)
    names = dict.fromkeys(match for match in re.findall(_NAME, text) if re.search(_WRITTEN_AS_NAME, match))
    return _FoundNames([_split_name(name) for name in itertools.islice(names, keywords.MOST_WORDS)], is_name=False)


def _unique_terms(words: Iterable[str]) -> list[list[str]]:
    distinct = [*dict.fromkeys(words)][: keywords.MOST_WORDS]
    unique: dict[tuple[str, ...], None] = dict.fromkeys(map(tuple, keywords.list_terms(distinct)))
    return [list(terms) for terms in unique]


def _join_neighbours(text: str) -> list[str]:
    """Return each pair of adjacent words as one word."""
    words = _WORD.findall(text.lower())[:_MOST_JOINED]
    return [
        first + second
        for first, second in itertools.pairwise(words)
        if min(len(first), len(second)) >= _SHORTEST_JOINED and len(first + second) <= _LONGEST_JOINED
    ]


def _lower_parts(name: Iterable[str]) -> tuple[str, ...]:
    return tuple(map(str.lower, name))


def _split_name(name: str) -> tuple[str, ...]:
    return tuple(normalize_symbol(name).split("."))
