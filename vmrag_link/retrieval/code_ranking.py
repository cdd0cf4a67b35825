"""What ranks code, beside words and vectors: what is declared where, and how files are called.

Each signal is a share of the collection's best score, in thousandths. bench/README.md has the
figures, and what was tried and dropped.
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
"""Of a piece that declares the name that is the whole question, or one within a longer question."""

OUTERMOST = 1100
"""Factor of a declaration that is within no other."""

IN_FILE_NAME = 900
"""Where all words of the question are in the names of the file and its folder."""

IN_SYMBOL = 600
"""Where all of them are in the symbol's name."""

VERBATIM, FEWEST, _MOST_SAID = 2000, 5, 32
"""Where all words of the question stand in the piece one behind the other, as those of an error
message do; of fewer, but so many at least, in proportion. Its first words are looked for.
"""

TOGETHER = 150
"""Of the best piece of the file whose pieces score most together."""

ANOTHER, MOST_TIMES = 750, 3
"""Factor of each further piece of a file: the second best is less, the third still less, the fourth
and all others least.
"""

_SHORTEST, _SHORTEST_PREFIX = 3, 5
"""Of words that are compared with names."""

_MOST_JOINED, _SHORTEST_JOINED, _LONGEST_JOINED = 32, 2, 40
"""Maximum number of words of a question that are joined, and lengths of one word and of both
together.
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
"""Words before a name, such as `class`, with the kinds of symbols that they mean. No kinds: any
kind.
"""


class RankedPiece(NamedTuple):
    """A piece of code, with its file's path, and its number there."""

    path: str
    number: int
    piece: IndexedPiece


class CodeQuestion:
    """What a question asks of code. `of_paths`: it says in which files, so that none is aside."""

    def __init__(self, text: str, *, of_paths: bool = False) -> None:
        self._text = text
        self.of_paths = of_paths
        found = keywords.split_names([text])
        self.words = [each for each in sorted(found) if len(each) >= _SHORTEST and each not in keywords.STOP_WORDS]
        self._lengths = sorted({len(word) for word in self.words if len(word) >= _SHORTEST_PREFIX})
        self._whole = frozenset(self.words)
        self._alike: dict[str, frozenset[str]] = {}
        self._said = _WORD.findall(text.lower())[:_MOST_SAID]

    # A question about collections without code needs no patterns, which take long to compile.

    @cached_property
    def _found_names(self) -> _FoundNames:
        return _names(self._text)

    @property
    def names(self) -> list[tuple[str, ...]]:
        """The dotted names in the question, in parts."""
        return self._found_names.names

    @property
    def is_name(self) -> bool:
        """Whether the question is a name and nothing else."""
        return self._found_names.is_name

    @cached_property
    def _named(self) -> frozenset[tuple[str, ...]]:
        return frozenset(self.names)

    @cached_property
    def _named_alike(self) -> frozenset[tuple[str, ...]]:
        return frozenset(map(_in_small_letters, self.names if self.is_name else ()))

    @cached_property
    def _parts(self) -> list[int]:
        return sorted({len(name) for name in self.names})

    @cached_property
    def _aside(self) -> Sequence[tuple[re.Pattern[str], int]]:
        return () if self.of_paths else code_aside.list_demotions(self._text)

    def list_terms(self, text: str) -> list[list[str]]:
        """The words of the question, and the parts of those that are written as one."""
        found = keywords.split_query(text)
        parts = [each for each in keywords.split_identifiers(text).lower().split() if each not in keywords.STOP_WORDS]
        more = [part for word in found if "_" in word for part in word.split("_") if part]
        return _unique_terms([*found, *parts, *more])

    def list_joined_terms(self, text: str) -> list[list[str]]:
        """Return each two words that code may write as one (`time zone`)."""
        terms = self.list_terms(text)
        room = keywords.MOST_WORDS - len(terms)
        return [term for term in _unique_terms(_joined(text)) if term not in terms][: max(0, room)]

    def score_declaration(self, piece: RankedPiece) -> int:
        """What the piece has for declaring a name that is asked for."""
        most, kinds = 0, self._found_names.kinds
        for symbol, kind, *_ in piece.piece.declared if self.names else ():
            has = tuple(symbol.split("."))
            ends = [has[-number:] for number in self._parts if number <= len(has)]
            share = DECLARED if self.is_name else MENTIONED
            if self._named.isdisjoint(ends):
                if self._named_alike.isdisjoint(map(_in_small_letters, ends)):
                    continue
                share //= 2
            if kinds and kind not in kinds:
                share //= 2
            most = max(most, share * OUTERMOST // FULL_FACTOR if len(has) == 1 else share)
        return most

    @property
    def may_be_phrase(self) -> bool:
        """Whether its words may be those of a text."""
        return len(self._said) >= FEWEST

    def score_phrase(self, text: str) -> int:
        """What a piece has for the longest run of the question's words in its text."""
        inside, longest = f" {' '.join(_WORD.findall(text.lower()))} ", FEWEST - 1
        for first in range(len(self._said)):
            while first + longest < len(self._said) and (
                f" {' '.join(self._said[first : first + longest + 1])} " in inside
            ):
                longest += 1
        return VERBATIM * longest // len(self._said) if longest >= FEWEST else 0

    def compute_path_factor(self, path: str) -> int:
        """The factor of a file, in thousandths."""
        factor = FULL_FACTOR
        for aside, less in self._aside:
            if aside.search(path):
                factor = factor * less // FULL_FACTOR
        return factor

    def count_shared_words(self, words: Iterable[str]) -> int:
        """How many of the question's words are among these, or begin alike."""
        return len(frozenset[str]().union(*map(self._that_are, words)))

    def _that_are(self, other: str) -> frozenset[str]:
        if other not in self._alike:
            begin = {other}
            if len(other) >= _SHORTEST_PREFIX:
                begin.update(other[:length] for length in self._lengths if length <= len(other))
                first = bisect.bisect_left(self.words, other)
                begin.update(self.words[first : bisect.bisect_left(self.words, f"{other}\U0010ffff")])
            self._alike[other] = self._whole & begin
        return self._alike[other]


def rank_pieces(
    scores: Mapping[int, int],
    question: CodeQuestion,
    piece_of: Callable[[int], RankedPiece],
    texts_of: Callable[[Iterable[int]], Mapping[int, str]],
    highest: int,
) -> dict[int, int]:
    """The scores of a collection's pieces with all signals; the best keeps the best of them.

    Where a name is the question, what declares it goes before `highest`, the best of all
    collections, and the others have their part of that.
    """
    best = max(scores.values(), default=0)
    if best <= 0:
        return dict(scores)
    pieces = {row: piece_of(row) for row in scores}
    shares = _shares(scores, question, pieces)
    declared = {row: question.score_declaration(piece) for row, piece in pieces.items()}
    firsts = {row: row - piece.number for row, piece in pieces.items()}
    texts = texts_of({*scores, *firsts.values()})
    generated = {first for first in set(firsts.values()) if code_aside.is_generated(texts[first])}
    factors = {path: question.compute_path_factor(path) for path in {piece.path for piece in pieces.values()}}
    gained: dict[int, int] = {}
    for row, score in scores.items():
        said = question.score_phrase(texts[row]) if question.may_be_phrase else 0
        is_named = declared[row] or question.of_paths
        made = not is_named and (firsts[row] in generated or code_aside.is_data(texts[row]))
        gain = FULL_FACTOR * score + best * (shares[row] + declared[row] + said)
        gained[row] = max(0, gain) * (code_aside.ASIDE if made else factors[pieces[row].path])
    spread = _spread(gained, pieces)
    most = max(spread.values())
    if question.is_name and any(declared.values()):
        return {row: score * max(best, highest + 1) // most for row, score in spread.items()}
    own = {row: score * best // most for row, score in spread.items()}
    return _in_order(sorted(own, key=lambda row: (-spread[row], pieces[row].path, pieces[row].number)), scores, own)


def _in_order(order: Sequence[int], scores: Mapping[int, int], own: Mapping[int, int]) -> dict[int, int]:
    """Half what stood at its place before, half its own: its own alone fall so fast that other
    collections crowd out all but the first, and the others alone so slowly that it crowds them out.
    """
    ranking: dict[int, int] = {}
    below = max(scores.values())
    for row, before in zip(order, sorted(scores.values(), reverse=True), strict=True):
        ranking[row] = min(below, (before + own[row]) // 2)
        below = ranking[row] - 1  # the next one is never its equal
    return ranking


def _shares(scores: Mapping[int, int], question: CodeQuestion, pieces: Mapping[int, RankedPiece]) -> dict[int, int]:
    """What each piece has for the names of its file and symbol, and for its file's other pieces."""
    together, first = Counter[str](), dict[str, int]()
    for row in sorted(scores, key=lambda row: (-scores[row], pieces[row].path, pieces[row].number)):
        path = pieces[row].path
        together[path] += max(0, scores[row])
        first.setdefault(path, row)
    most, asked = max(together.values()), len(question.words)
    files = {path: _of_file(path, question) for path in first}
    shares: dict[int, int] = {}
    for row, (path, _, piece) in pieces.items():
        share = TOGETHER * together[path] // most if first[path] == row else 0
        if asked:
            symbol = question.count_shared_words(keywords.split_names([piece.symbol])) if piece.symbol else 0
            share += IN_FILE_NAME * files[path] // asked + IN_SYMBOL * symbol // asked
        shares[row] = share
    return shares


def _of_file(path: str, question: CodeQuestion) -> int:
    folders, _, name = path.rpartition("/")
    return question.count_shared_words(keywords.split_names([folders.rpartition("/")[2], keywords.strip_endings(name)]))


def _spread(scores: Mapping[int, int], pieces: Mapping[int, RankedPiece]) -> dict[int, int]:
    """Lower scores for further pieces of the same file."""
    taken = Counter[str]()
    spread: dict[int, int] = {}
    for row in sorted(scores, key=lambda row: (-scores[row], pieces[row].path, pieces[row].number)):
        path = pieces[row].path
        times = min(taken[path], MOST_TIMES)
        spread[row] = scores[row] * ANOTHER**times // FULL_FACTOR**times
        taken[path] += 1
    return spread


class _FoundNames(NamedTuple):
    """The names in a question, each in parts.

    `is_name`: the whole question is a name: `Mount.match`, `class Mount`. `kinds`: the kinds of
    symbol that it means; empty for any kind.
    """

    names: list[tuple[str, ...]]
    is_name: bool
    kinds: frozenset[str] = frozenset()


def _names(text: str) -> _FoundNames:
    words, kinds = text.strip().rstrip("()").strip("`'\"").split(), frozenset[str]()
    if len(words) == 2 and words[0].lower() in _DECLARING:  # noqa: PLR2004  the word and the name
        kinds = _DECLARING[words.pop(0).lower()]
    if len(words) == 1 and re.fullmatch(_NAME, words[0]):
        return _FoundNames([_in_parts(words[0])], is_name=True, kinds=kinds)
    found = dict.fromkeys(match for match in re.findall(_NAME, text) if re.search(_WRITTEN_AS_NAME, match))
    return _FoundNames([_in_parts(each) for each in itertools.islice(found, keywords.MOST_WORDS)], is_name=False)


def _unique_terms(words: Iterable[str]) -> list[list[str]]:
    asked = [*dict.fromkeys(words)][: keywords.MOST_WORDS]
    unique: dict[tuple[str, ...], None] = dict.fromkeys(map(tuple, keywords.list_terms(asked)))
    return [list(each) for each in unique]


def _joined(text: str) -> list[str]:
    """Return each pair of neighbouring words as one word."""
    words = _WORD.findall(text.lower())[:_MOST_JOINED]
    return [
        first + second
        for first, second in itertools.pairwise(words)
        if min(len(first), len(second)) >= _SHORTEST_JOINED and len(first + second) <= _LONGEST_JOINED
    ]


def _in_small_letters(name: Iterable[str]) -> tuple[str, ...]:
    return tuple(map(str.lower, name))


def _in_parts(name: str) -> tuple[str, ...]:
    return tuple(normalize_symbol(name).split("."))
