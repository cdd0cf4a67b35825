"""Write golden queries as TREC files, which `ir_measures`, `ranx` and `trec_eval` read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

from vmrag_link.errors import QueriesInvalid, file_failures
from vmrag_link.file_access import write_atomically
from vmrag_link.golden.queries import list_documents
from vmrag_link.models import Record
from vmrag_link.ops.check.check_queries import CheckedQuery, GoldenReport
from vmrag_link.paths import QUERIES_NAME

QRELS, RUN = "qrels.txt", "run.txt"
_TAG = "vmrag"


class TrecFiles(Record, frozen=True):
    """The files that were written, and the number of queries in them."""

    qrels: str
    run: str
    judged: int


def write_trec(report: GoldenReport, folder: Path) -> TrecFiles:
    """Write the expected and the returned documents of the queries that name documents.

    Raises `QueriesInvalid` if no query names documents, and `FileFailed`.
    """
    judged = [query for query in report.queries if query.relevant]
    if not judged:
        raise QueriesInvalid(
            f"no query in {QUERIES_NAME} names the documents that answer it.",
            hint="add `expect:` or `first:` to a query",
            file=QUERIES_NAME,
        )
    ids = [_quote_name(query.name) for query in judged]
    contents = {
        QRELS: [line for query, name in zip(judged, ids, strict=True) for line in _list_expected(query, name)],
        RUN: [line for query, name in zip(judged, ids, strict=True) for line in _list_returned(query, name)],
    }
    with file_failures():
        folder.mkdir(parents=True, exist_ok=True)
        for name, lines in contents.items():
            write_atomically(folder / name, "".join(f"{line}\n" for line in lines).encode(), durable=False)
    return TrecFiles(str(folder / QRELS), str(folder / RUN), len(judged))


def _quote_name(name: str) -> str:
    """Return a name without white space, as the files require. Different names stay different."""
    return quote(name, safe="/:()[]!,;+*~$@&=?#'\"")


def _list_expected(query: CheckedQuery, name: str) -> Iterator[str]:
    yield from (f"{name} 0 {_quote_name(document)} 1" for document in query.relevant)


def _list_returned(query: CheckedQuery, name: str) -> Iterator[str]:
    """Yield the lines of a run. The score is the reversed rank, because readers sort documents by
    score.
    """
    documents = list_documents(query.chunks)
    for rank, document in enumerate(documents, start=1):
        yield f"{name} Q0 {_quote_name(document)} {rank} {len(documents) - rank + 1} {_TAG}"
