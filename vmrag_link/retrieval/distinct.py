"""Choose distinct results: the translations of a page fill one result, and so do copies.

`translations` finds translations by paths, and `copies` finds copies by words.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from vmrag_link.index.reader import IndexReader
from vmrag_link.models import ISSUES, KNOWLEDGE, SYSTEM
from vmrag_link.retrieval.copies import ComparedPassage, group_copies

EXTRA_CANDIDATES = 20
"""Number of ranked passages that are compared in addition to the number of results."""

MAX_CANDIDATES = 10_000
"""Maximum number of ranked passages that are compared."""

_PATTERNS = ("*[-_./][a-zA-Z][a-zA-Z][-_./]*", "[a-zA-Z][a-zA-Z][-_/]*")
"""SQL patterns of paths that may be translations. `translations` decides."""


class RankedCandidate(Protocol):
    """A ranked passage."""

    @property
    def negated_score(self) -> int: ...
    @property
    def collection(self) -> str: ...
    @property
    def doc_id(self) -> str: ...
    @property
    def number(self) -> int: ...
    @property
    def row(self) -> int: ...


class DistinctResult(NamedTuple):
    """A passage to show."""

    position: int
    """The position of the passage among the ranked passages."""

    negated_score: int
    also_in: tuple[str, ...]
    """See `Hit.also_in`."""


class _Page(NamedTuple):
    """A page in all its languages."""

    collection: str
    original: str
    """The id of the document that is not a translation."""


class _ScoredPosition(NamedTuple):
    """A passage by its position among the ranked passages. The best sorts first."""

    negated_score: int
    position: int


class DistinctResults:
    """Chooses results among ranked passages."""

    def __init__(self, index: IndexReader) -> None:
        self._index = index
        self._finder = TranslationFinder(index)

    def choose_results(self, ranked: Sequence[RankedCandidate], question: str, k: int) -> list[DistinctResult]:
        """Return the best `k` results, the best first."""
        passages = self._choose_languages(ranked, question)
        compared = [self._make_compared(ranked[passage.position]) for passage in passages]
        results = []
        for copies in group_copies(compared)[:k]:
            shown = ranked[passages[copies[0]].position]
            best_first = sorted(copies)
            copied_paths = dict.fromkeys(compared[copy].doc_id for copy in best_first)
            also_in = [*self._list_translations(shown), *(path for path in copied_paths if path != shown.doc_id)]
            results.append(
                DistinctResult(
                    position=passages[copies[0]].position,
                    negated_score=passages[best_first[0]].negated_score,
                    also_in=tuple(also_in),
                )
            )
        return results

    def _choose_languages(self, ranked: Sequence[RankedCandidate], question: str) -> list[_ScoredPosition]:
        """Return the passages in one language for each page, the best first.

        The first passage of a page gets the best score that the page has in any language.
        """
        pages: dict[_Page, dict[str, list[int]]] = {}
        for position, passage in enumerate(ranked):
            language, original = self._finder.find_original(passage.collection, passage.doc_id)
            languages = pages.setdefault(_Page(passage.collection, original), {})
            languages.setdefault(language, []).append(position)
        has_translations = any(len(languages) > 1 for languages in pages.values())
        preferred = self._detect_language(question, pages) if has_translations else ""
        passages: list[_ScoredPosition] = []
        for languages in pages.values():
            first, *others = languages[choose_language([*languages], preferred)]
            best = min(ranked[positions[0]].negated_score for positions in languages.values())
            passages.append(_ScoredPosition(best, first))
            passages += [_ScoredPosition(ranked[position].negated_score, position) for position in others]
        return sorted(passages)

    def _detect_language(self, question: str, pages: Iterable[_Page]) -> str:
        from vmrag_link.retrieval.translations import detect_language  # few answers have translations

        languages = {language[:2].lower() for page in pages for language in self._finder.find_languages(*page)}
        return detect_language(question, languages)

    def _make_compared(self, passage: RankedCandidate) -> ComparedPassage:
        """Return a passage with its text; empty for records, because equal ones are not copies."""
        kind = self._index.collections[passage.collection].collection.kind
        text = "" if kind in (ISSUES, KNOWLEDGE, SYSTEM) else self._index.read_text(passage.row)
        return ComparedPassage(passage.collection, passage.doc_id, text, passage.negated_score)

    def _list_translations(self, shown: RankedCandidate) -> list[str]:
        """Return the other languages of a page, after the path of its original."""
        language, original = self._finder.find_original(shown.collection, shown.doc_id)
        others = sorted(self._finder.find_languages(shown.collection, original) - {language})
        return [original, *others] if language else others


def choose_language(languages: Sequence[str], preferred: str) -> str:
    """Return the language to show.

    This is the preferred language, or else the original (an empty text), or else the first one.
    """
    spoken = (language for language in languages if language and language[:2].lower() == preferred)
    return next(spoken, "" if "" in languages else languages[0])


class TranslationFinder:
    """Finds the translations in an index. Each collection is read once."""

    def __init__(self, index: IndexReader) -> None:
        self._index = index
        self._originals: dict[str, Mapping[str, tuple[str, str]]] = {}
        self._languages: dict[tuple[str, str], set[str]] = {}

    def find_original(self, collection: str, doc_id: str) -> tuple[str, str]:
        """Return the language of a document, and the id of its original.

        For an original, return an empty text and its own id.
        """
        if collection not in self._originals:
            self._originals[collection] = self._find_translations(collection)
            for language, original in self._originals[collection].values():
                self._languages.setdefault((collection, original), set()).add(language)
        return self._originals[collection].get(doc_id, ("", doc_id))

    def find_languages(self, collection: str, original: str) -> set[str]:
        """Return the languages into which a document is translated."""
        return self._languages.get((collection, original), set())

    def _find_translations(self, collection: str) -> Mapping[str, tuple[str, str]]:
        if self._index.collections[collection].collection.is_code:
            return {}
        doc_ids = [doc_id for doc_id, _ in self._index.find_rows_like(collection, _PATTERNS, "GLOB")]
        if not doc_ids:
            return {}
        from vmrag_link.retrieval.translations import choose_originals  # few projects have such paths

        return choose_originals(doc_ids, lambda paths: self._index.count_chunks(collection, paths))
