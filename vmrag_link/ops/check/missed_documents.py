"""Explain where the documents are that an answer to a golden query lacks."""

from __future__ import annotations

import posixpath
from functools import cached_property

import msgspec

from vmrag_link.errors import nearest
from vmrag_link.golden.queries import Miss
from vmrag_link.models import At
from vmrag_link.retrieval.query import Query
from vmrag_link.retrieval.search import Searcher
from vmrag_link.workspace.answers import golden_file
from vmrag_link.workspace.history import document_names
from vmrag_link.workspace.history.document_names import NamedRows

_MAX_RANK = 100
"""Number of results in which a missing document is looked up."""

_MIN_SIMILARITY = 0.75
"""Minimum similarity of file names for a suggestion (`errors.nearest`)."""

_MAX_COMPARED_NAMES = 5000
"""Maximum number of names that are compared letter by letter, which takes 0.1 ms each."""


class MissedDocuments:
    """Explains where the documents are that answers lack. `searcher` has the index of the rows
    `at`.
    """

    def __init__(self, searcher: Searcher, rows: NamedRows, at: At) -> None:
        self._searcher = searcher
        self._rows = rows
        self._at = at

    def explain_miss(self, miss: Miss, query: Query) -> Miss:
        """Return the miss with the position of its document, if it is about one."""
        if miss.document is None:
            return miss
        return msgspec.structs.replace(miss, message=f"{miss.message}; {self._locate_document(miss.document, query)}")

    def _locate_document(self, document: str, query: Query) -> str:
        """Return the rank of a document, or why it has none."""
        names = document_names.named_in_full(self._rows, self._at, document)
        full_name = next((name for name in names if str(name) == document), None)
        collection, doc_id = full_name.key if full_name else ("", "")
        if not full_name or doc_id not in self._searcher.count_chunks(collection, [doc_id]):
            nearest_name = self._find_nearest(document)
            shown_name = golden_file.find_shown_name(self._searcher, nearest_name) if nearest_name else None
            return "no such document" + (f"; did you mean {shown_name}?" if shown_name else "")
        depth = max(_MAX_RANK, query.k)
        hits = self._searcher.search(msgspec.structs.replace(query, k=depth))
        rank = next((hit.rank for hit in hits if (hit.collection, hit.doc_id) == (collection, doc_id)), None)
        if rank is not None:
            return f"it is at rank {rank}"
        return "the query does not find it" if len(hits) < depth else f"it is not among the first {depth}"

    def _find_nearest(self, document: str) -> str | None:
        """Return a document whose file has the same name (it may have been moved) or a
        similar one.
        """
        names = self._names_by_file
        file_name: str | None = posixpath.basename(document)
        if file_name not in names:
            file_name = nearest(posixpath.basename(document), [*names][:_MAX_COMPARED_NAMES], cutoff=_MIN_SIMILARITY)
        return nearest(document, names[file_name], cutoff=0.0) if file_name else None

    @cached_property
    def _names_by_file(self) -> dict[str, list[str]]:
        names: dict[str, list[str]] = {}
        for collection, doc_id in sorted(header.key for header in self._rows.read_headers(self._at)):
            names.setdefault(posixpath.basename(doc_id), []).append(f"{collection}/{doc_id}")
        return names
