"""Rank code by signals other than words and vectors: declared names, and the names of files.

Each signal adds a share of the collection's best score, in thousandths. Tests, generated files and
further pieces of the same file lose (`code_aside`). bench/README.md has the measurements, and the
signals that were tried and dropped.
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

DECLARED = 3000
"""Share of a piece that declares a name that is the whole question."""

MENTIONED = 400
"""Share of a piece that declares a name in a longer question."""

OUTERMOST = 1100
"""Factor of a declaration that is not inside another declaration."""

IN_FILE_NAME = 900
"""Share if all words of the question are in the names of the file and its folder."""

IN_SYMBOL = 600
"""Share if all words of the question are in the name of the symbol."""

VERBATIM = 2000
"""Share if all words of the question follow each other in the piece, like the words of an error
message. Fewer words have a proportional share.
"""

MIN_PHRASE_WORDS = 5
"""Minimum number of words of the question that follow each other in a piece."""

_MAX_PHRASE_WORDS = 32
"""Maximum number of words of the question that are compared with texts."""

TOGETHER = 150
"""Share of the best piece of the file whose pieces have the highest total score."""

FURTHER_PIECE = 750
"""Factor of each further piece of a file."""

MAX_FACTOR_TIMES = 3
"""Maximum number of times that `FURTHER_PIECE` is applied. So the fourth piece of a file and all
later ones have the same factor.
"""

_MIN_WORD_CHARS = 3
"""Minimum length of words that are compared with names."""

_MIN_PREFIX_CHARS = 5
"""Minimum length of words that match the beginning of longer words."""

_MAX_JOINED_WORDS = 32
"""Maximum number of words of a question that are joined in pairs."""

_MIN_JOINED_CHARS = 2
"""Minimum length of each word of a pair."""

_MAX_PAIR_CHARS = 40

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
        self.words = [
            word for word in sorted(names) if len(word) >= _MIN_WORD_CHARS and word not in keywords.STOP_WORDS
        ]
        """The words of the question that are compared with names, sorted."""
        self._distinct_words = frozenset(self.words)
        self._prefix_lengths = sorted({len(word) for word in self.words if len(word) >= _MIN_PREFIX_CHARS})
        self._matches: dict[str, frozenset[str]] = {}
        """The results of `_match_word`."""
        self._phrase = _WORD.findall(text.lower())[:_MAX_PHRASE_WORDS]

    # A question about collections without code needs no patterns, which take long to compile.

    @cached_property
    def _question_names(self) -> _QuestionNames:
        return _find_names(self._text)

    @property
    def names(self) -> list[tuple[str, ...]]:
        """See `_QuestionNames.names`."""
        return self._question_names.names

    @property
    def is_name(self) -> bool:
        """See `_QuestionNames.is_name`."""
        return self._question_names.is_name

    @cached_property
    def _distinct_names(self) -> frozenset[tuple[str, ...]]:
        return frozenset(self.names)

    @cached_property
    def _part_counts(self) -> frozenset[int]:
        """The numbers of parts of the names."""
        return frozenset(map(len, self.names))

    @cached_property
    def _lower_names(self) -> frozenset[tuple[str, ...]]:
        """The names for a comparison that ignores case; empty if the question has other words."""
        return frozenset(map(_lower_parts, self.names if self.is_name else ()))

    @cached_property
    def _demotions(self) -> Sequence[tuple[re.Pattern[str], int]]:
        return () if self.of_paths else code_aside.list_demotions(self._text)

    def list_terms(self, text: str) -> list[list[str]]:
        """Return the terms of the words of the question, and of the parts of identifiers."""
        words = keywords.split_query(text)
        parts = [part for part in keywords.split_identifiers(text).lower().split() if part not in keywords.STOP_WORDS]
        for word in words:
            if "_" in word:
                parts += filter(None, word.split("_"))
        return _unique_terms([*words, *parts])

    def list_joined_terms(self, text: str) -> list[list[str]]:
        """Return the terms of each pair of words that code may write as one word (`time zone`)."""
        terms = self.list_terms(text)
        room = keywords.MOST_WORDS - len(terms)
        return [term for term in _unique_terms(_join_neighbours(text)) if term not in terms][: max(0, room)]

    def score_declaration(self, piece: RankedPiece) -> int:
        """Return the share of a piece that declares a name of the question; 0 if it declares
        none.
        """
        if not self.names:
            return 0
        kinds = self._question_names.kinds
        best = 0
        for symbol, kind, *_ in piece.piece.declared:
            parts = tuple(symbol.split("."))
            ends = [
                parts[-count:] for count in self._part_counts
            ]  # the symbol `Site.Mount.match` ends in `Mount.match`
            share = DECLARED if self.is_name else MENTIONED
            if self._distinct_names.isdisjoint(ends):
                if self._lower_names.isdisjoint(map(_lower_parts, ends)):
                    continue
                share //= 2
            if kinds and kind not in kinds:
                share //= 2
            if len(parts) == 1:
                share = share * OUTERMOST // FULL_FACTOR
            best = max(best, share)
        return best

    @property
    def may_be_phrase(self) -> bool:
        """True if the question has enough words to be a phrase of a text."""
        return len(self._phrase) >= MIN_PHRASE_WORDS

    def score_phrase(self, text: str) -> int:
        """Return the share of a piece for the longest run of the question's words in its text."""
        searched_text = f" {' '.join(_WORD.findall(text.lower()))} "
        longest = MIN_PHRASE_WORDS - 1
        for first in range(len(self._phrase)):
            while first + longest < len(self._phrase):
                run = " ".join(self._phrase[first : first + longest + 1])
                if f" {run} " not in searched_text:
                    break
                longest += 1
        return VERBATIM * longest // len(self._phrase) if longest >= MIN_PHRASE_WORDS else 0

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
        """Return the words of the question that are equal to a word, its beginning, or longer."""
        if other not in self._matches:
            similar = {other}
            if len(other) >= _MIN_PREFIX_CHARS:
                similar.update(other[:length] for length in self._prefix_lengths if length <= len(other))
                first = bisect.bisect_left(self.words, other)
                end = bisect.bisect_left(self.words, f"{other}\U0010ffff")
                similar.update(self.words[first:end])
            self._matches[other] = self._distinct_words & similar
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

    `scores`: the scores by words and vectors. `piece_of` returns the piece of a row, and `texts_of`
    the texts of rows.
    """
    best = max(scores.values(), default=0)
    if best <= 0:
        return dict(scores)
    pieces = {row: piece_of(row) for row in scores}
    shares = _compute_shares(scores, question, pieces)
    declared = {row: question.score_declaration(piece) for row, piece in pieces.items()}
    first_rows = {row: row - piece.number for row, piece in pieces.items()}  # the beginning of each file
    texts = texts_of({*scores, *first_rows.values()})
    generated = {row for row in set(first_rows.values()) if code_aside.is_generated(texts[row])}
    factors = {path: question.compute_path_factor(path) for path in {piece.path for piece in pieces.values()}}
    gained: dict[int, int] = {}
    for row, score in scores.items():
        phrase = question.score_phrase(texts[row]) if question.may_be_phrase else 0
        is_named = declared[row] or question.of_paths
        is_demoted = not is_named and (first_rows[row] in generated or code_aside.is_data(texts[row]))
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
    totals = Counter[str]()
    best_row: dict[str, int] = {}
    for row in sorted(scores, key=lambda row: (-scores[row], pieces[row].path, pieces[row].number)):
        path = pieces[row].path
        totals[path] += max(0, scores[row])
        best_row.setdefault(path, row)
    highest = max(totals.values())
    word_count = len(question.words)
    in_file_name = {path: _count_file_words(path, question) for path in best_row}
    shares: dict[int, int] = {}
    for row, (path, _, piece) in pieces.items():
        share = TOGETHER * totals[path] // highest if best_row[path] == row else 0
        if word_count:
            in_symbol = question.count_shared_words(keywords.split_names([piece.symbol])) if piece.symbol else 0
            share += IN_FILE_NAME * in_file_name[path] // word_count + IN_SYMBOL * in_symbol // word_count
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
        times = min(counts[path], MAX_FACTOR_TIMES)
        demoted[row] = scores[row] * FURTHER_PIECE**times // FULL_FACTOR**times
        counts[path] += 1
    return demoted


class _QuestionNames(NamedTuple):
    """The names in a question."""

    names: list[tuple[str, ...]]
    """The dotted names. Each name is split into its parts: `("Mount", "match")`."""

    is_name: bool
    """True if the whole question is a name, such as `Mount.match` or `class Mount`."""

    kinds: frozenset[str] = frozenset()
    """The kinds of symbol that the question means; empty for any kind."""


def _find_names(text: str) -> _QuestionNames:
    words = text.strip().rstrip("()").strip("`'\"").split()
    kinds = frozenset[str]()
    if len(words) == 2 and words[0].lower() in _DECLARING:  # noqa: PLR2004  the word and the name
        kinds = _DECLARING[words.pop(0).lower()]
    if len(words) == 1 and re.fullmatch(_NAME, words[0]):
        return _QuestionNames([_split_name(words[0])], is_name=True, kinds=kinds)
    names = dict.fromkeys(match for match in re.findall(_NAME, text) if re.search(_WRITTEN_AS_NAME, match))
    return _QuestionNames([_split_name(name) for name in itertools.islice(names, keywords.MOST_WORDS)], is_name=False)


def _unique_terms(words: Iterable[str]) -> list[list[str]]:
    """Return the distinct terms of some words (`keywords.list_terms`)."""
    distinct = [*dict.fromkeys(words)][: keywords.MOST_WORDS]
    unique: dict[tuple[str, ...], None] = dict.fromkeys(map(tuple, keywords.list_terms(distinct)))
    return [list(terms) for terms in unique]


def _join_neighbours(text: str) -> list[str]:
    """Return each pair of adjacent words as one word."""
    words = _WORD.findall(text.lower())[:_MAX_JOINED_WORDS]
    return [
        first + second
        for first, second in itertools.pairwise(words)
        if min(len(first), len(second)) >= _MIN_JOINED_CHARS and len(first + second) <= _MAX_PAIR_CHARS
    ]


def _lower_parts(name: Iterable[str]) -> tuple[str, ...]:
    return tuple(map(str.lower, name))


def _split_name(name: str) -> tuple[str, ...]:
    return tuple(normalize_symbol(name).split("."))
