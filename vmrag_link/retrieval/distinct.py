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
"""SQL patterns of paths that may be translations; `translations` decides."""


class RankedCandidate(Protocol):
    """A ranked passage. `negative`: the negated score."""

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
    """A passage to show.

    It has the negated score, and other places of the result: languages and paths.
    """

    position: int
    negative: int
    also_in: tuple[str, ...]


class TranslationFinder:
    """The translations in an index, found once."""

    def __init__(self, index: IndexReader) -> None:
        self._index = index
        self._originals: dict[str, Mapping[str, tuple[str, str]]] = {}
        self._languages: dict[tuple[str, str], set[str]] = {}

    def find_original(self, collection: str, doc_id: str) -> tuple[str, str]:
        """Return the language of a document, and the id of its original.

        For an original, return an empty text and its own id.
        """
        if collection not in self._originals:
            self._originals[collection] = self._read(collection)
            for language, original in self._originals[collection].values():
                self._languages.setdefault((collection, original), set()).add(language)
        return self._originals[collection].get(doc_id, ("", doc_id))

    def find_languages(self, collection: str, original: str) -> set[str]:
        """Return the languages into which a document is translated."""
        return self._languages.get((collection, original), set())

    def _read(self, collection: str) -> Mapping[str, tuple[str, str]]:
        if self._index.list_collections[collection].collection.is_code:
            return {}
        doc_ids = [doc_id for doc_id, _ in self._index.find_rows_like(collection, _PATTERNS, "GLOB")]
        if not doc_ids:
            return {}
        from vmrag_link.retrieval.translations import choose_originals  # few projects have such paths

        return choose_originals(doc_ids, lambda paths: self._index.count_chunks(collection, paths))


class DistinctResults:
    """The choice of results among ranked passages."""

    def __init__(self, index: IndexReader) -> None:
        self._index = index
        self._finder = TranslationFinder(index)

    def choose_results(self, ranked: Sequence[RankedCandidate], question: str, k: int) -> list[DistinctResult]:
        """Return the best `k` results, the best first."""
        kept = self._one_language(ranked, question)
        passages = [
            ComparedPassage(each.collection, each.doc_id, self._compared_text(each), each.negative)
            for each in (ranked[place] for place, _ in kept)
        ]
        results = []
        for members in group_copies(passages)[:k]:
            place, _ = kept[members[0]]
            copies = dict.fromkeys(ranked[kept[member][0]].doc_id for member in sorted(members))
            others = [*self._translations(ranked[place]), *(path for path in copies if path != ranked[place].doc_id)]
            results.append(DistinctResult(place, kept[min(members)][1], tuple(others)))
        return results

    def _compared_text(self, candidate: RankedCandidate) -> str:
        """Return the text of a passage; empty for records, because equal ones are not copies."""
        kind = self._index.list_collections[candidate.collection].collection.kind
        return "" if kind in (ISSUES, KNOWLEDGE, SYSTEM) else self._index.read_text(candidate.row)

    def _one_language(self, ranked: Sequence[RankedCandidate], question: str) -> list[tuple[int, int]]:
        """Return the positions of passages, in one language for each page, with their scores.

        The first passage of a page gets the best score that the page has in any language.
        """
        pages: dict[tuple[str, str], dict[str, list[int]]] = {}
        page_of: list[tuple[str, str]] = []
        for place, each in enumerate(ranked):
            language, original = self._finder.find_original(each.collection, each.doc_id)
            page_of.append((each.collection, original))
            pages.setdefault(page_of[-1], {}).setdefault(language, []).append(place)
        asked = self._language_of(question, pages) if any(len(some) > 1 for some in pages.values()) else ""
        kept: list[tuple[int, int]] = []
        for languages in pages.values():
            places = languages[choose_language([*languages], asked)]
            best = min(ranked[place].negative for some in languages.values() for place in some)
            kept.append((places[0], best))
            kept += [(place, ranked[place].negative) for place in places[1:]]
        return sorted(kept, key=lambda each: (each[1], each[0]))

    def _language_of(self, question: str, pages: Iterable[tuple[str, str]]) -> str:
        from vmrag_link.retrieval.translations import detect_language  # few answers have translations

        languages = {each[:2].lower() for page in pages for each in self._finder.find_languages(*page)}
        return detect_language(question, languages)

    def _translations(self, shown: RankedCandidate) -> list[str]:
        """Return the other languages of a page, after the path of its original."""
        language, original = self._finder.find_original(shown.collection, shown.doc_id)
        others = sorted(self._finder.find_languages(shown.collection, original) - {language})
        return [original, *others] if language else others


def choose_language(languages: Sequence[str], asked: str) -> str:
    """Return the language to show: the preferred one, else the original (an empty text), else the
    first one.
    """
    spoken = (language for language in languages if language and language[:2].lower() == asked)
    return next(spoken, "" if "" in languages else languages[0])
