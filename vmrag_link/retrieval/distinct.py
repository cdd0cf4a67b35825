"""Choose distinct results: the translations of a page fill one result, and so do copies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from vmrag_link.index.reader import IndexReader
from vmrag_link.models import ISSUES, KNOWLEDGE, SYSTEM
from vmrag_link.retrieval.copies import ComparedPassage, group_copies

MORE, MOST = 20, 10_000
"""Number of ranked passages that are compared beyond the results, and in total."""


_PATTERNS = ("*[-_./][a-zA-Z][a-zA-Z][-_./]*", "[a-zA-Z][a-zA-Z][-_/]*")
"""SQL patterns of paths that may be translations. `translations` decides."""


class RankedCandidate(Protocol):
    """A ranked passage."""

    @property
    def negative(self) -> int: ...
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

    negative: int
    """The negated score."""

    also_in: tuple[str, ...]
    """Other places of the result: languages and paths."""


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


class DistinctResults:
    """Chooses results among ranked passages."""

    def __init__(self, index: IndexReader) -> None:
        self._index = index
        self._finder = TranslationFinder(index)

    def choose_results(self, ranked: Sequence[RankedCandidate], question: str, k: int) -> list[DistinctResult]:
        """Return the best `k` results, the best first."""
        kept = self._choose_languages(ranked, question)
        passages = [
            ComparedPassage(passage.collection, passage.doc_id, self._compared_text(passage), passage.negative)
            for passage in (ranked[position] for position, _ in kept)
        ]
        results = []
        for members in group_copies(passages)[:k]:
            position, _ = kept[members[0]]
            copies = dict.fromkeys(ranked[kept[member][0]].doc_id for member in sorted(members))
            others = [
                *self._list_translations(ranked[position]),
                *(path for path in copies if path != ranked[position].doc_id),
            ]
            results.append(DistinctResult(position, kept[min(members)][1], tuple(others)))
        return results

    def _compared_text(self, candidate: RankedCandidate) -> str:
        """Return the text of a passage; empty for records, because equal ones are not copies."""
        kind = self._index.collections[candidate.collection].collection.kind
        return "" if kind in (ISSUES, KNOWLEDGE, SYSTEM) else self._index.read_text(candidate.row)

    def _choose_languages(self, ranked: Sequence[RankedCandidate], question: str) -> list[tuple[int, int]]:
        """Return the positions of passages, in one language for each page, with their scores.

        The first passage of a page gets the best score that the page has in any language.
        """
        pages: dict[tuple[str, str], dict[str, list[int]]] = {}
        page_of: list[tuple[str, str]] = []
        for position, passage in enumerate(ranked):
            language, original = self._finder.find_original(passage.collection, passage.doc_id)
            page_of.append((passage.collection, original))
            pages.setdefault(page_of[-1], {}).setdefault(language, []).append(position)
        preferred = (
            self._detect_language(question, pages)
            if any(len(positions_by_language) > 1 for positions_by_language in pages.values())
            else ""
        )
        kept: list[tuple[int, int]] = []
        for languages in pages.values():
            positions = languages[choose_language([*languages], preferred)]
            best = min(
                ranked[position].negative
                for positions_by_language in languages.values()
                for position in positions_by_language
            )
            kept.append((positions[0], best))
            kept += [(position, ranked[position].negative) for position in positions[1:]]
        return sorted(kept, key=lambda passage: (passage[1], passage[0]))

    def _detect_language(self, question: str, pages: Iterable[tuple[str, str]]) -> str:
        from vmrag_link.retrieval.translations import detect_language  # few answers have translations

        languages = {language[:2].lower() for page in pages for language in self._finder.find_languages(*page)}
        return detect_language(question, languages)

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
