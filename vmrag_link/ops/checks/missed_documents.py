"""What a person wants to know of a document that an answer misses: where it is instead."""

from __future__ import annotations

import posixpath
from functools import cached_property

import msgspec

from vmrag_link.golden.queries import Miss
from vmrag_link.models import At
from vmrag_link.ops.history import document_names
from vmrag_link.ops.history.document_names import NamedRows
from vmrag_link.retrieval.query import Query
from vmrag_link.retrieval.search import Searcher
from vmrag_link.suggest import nearest

DEPTH = 100
"""How far down an answer is looked for what should be at its top."""

SIMILAR = 0.75
"""From which on a file's name may have been another one's (`suggest.nearest`)."""

COMPARED = 5000
"""How many names are compared letter by letter, which takes 0.1 ms each."""


class MissedDocuments:
    """`searcher` holds the index of the rows `at` that place."""

    def __init__(self, searcher: Searcher, rows: NamedRows, at: At) -> None:
        self._searcher = searcher
        self._rows = rows
        self._at = at

    def explained(self, miss: Miss, asked: Query) -> Miss:
        """The miss with where its document is, if it is about one."""
        if miss.document is None:
            return miss
        return msgspec.structs.replace(miss, message=f"{miss.message}; {self._whereabouts(miss.document, asked)}")

    def _whereabouts(self, document: str, asked: Query) -> str:
        there = document_names.candidates(self._rows, self._at, document)
        named = next((each for each in there if str(each) == document), None)
        collection, doc_id = named.key if named else ("", "")
        if not named or doc_id not in self._searcher.chunks_of(collection, [doc_id]):
            near = self._nearest(document)
            return "there is no such document" + (f": is it {near}?" if near else "")
        depth = max(DEPTH, asked.k)
        found = self._searcher.search(msgspec.structs.replace(asked, k=depth))
        rank = next((hit.rank for hit in found if (hit.collection, hit.doc_id) == (collection, doc_id)), None)
        if rank is not None:
            return f"it comes at number {rank}"
        return "the query does not find it" if len(found) < depth else f"nor is it among the first {depth}"

    def _nearest(self, document: str) -> str | None:
        """A document whose file has the same name, because it was moved, or nearly the same."""
        file_name, there = posixpath.basename(document), self._by_file_name
        near = file_name if file_name in there else nearest(file_name, [*there][:COMPARED], cutoff=SIMILAR)
        return nearest(document, there[near], cutoff=0.0) if near else None

    @cached_property
    def _by_file_name(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for collection, doc_id in sorted(each.key for each in self._rows.headers(self._at)):
            found.setdefault(posixpath.basename(doc_id), []).append(f"{collection}/{doc_id}")
        return found
