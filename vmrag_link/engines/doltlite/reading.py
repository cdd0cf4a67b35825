"""Documents and collections at revisions or in working sets, and their differences."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from vmrag_link.engines.doltlite import schema
from vmrag_link.engines.doltlite.connection import Connection
from vmrag_link.engines.doltlite.library import FETCH_AGAIN
from vmrag_link.errors import EngineFailed
from vmrag_link.models import (
    ChangeCounts,
    ChangeKind,
    Collection,
    CollectionChange,
    Difference,
    Document,
    DocumentChange,
    DocumentHeader,
)

WORKING = "WORKING"
"""The working set of the branch on which the connection stands; no other branch's can be named."""

_Record = TypeVar("_Record")


def collections(connection: Connection) -> Iterator[Collection]:
    columns = ", ".join(schema.COLLECTION_COLUMNS)
    rows = connection.stream(f"SELECT {columns} FROM collections ORDER BY collection_name")  # noqa: S608  our own names
    return map(schema.collection, rows)


def documents(connection: Connection, collection: str | None, ids: Iterable[str] | None = None) -> Iterator[Document]:
    return map(schema.document, _document_rows(connection, schema.DOCUMENT_COLUMNS, collection, ids))


def headers(
    connection: Connection, collection: str | None, ids: Iterable[str] | None = None
) -> Iterator[DocumentHeader]:
    return map(schema.header, _document_rows(connection, schema.HEADER_COLUMNS, collection, ids))


def document(connection: Connection, collection: str, doc_id: str) -> Document | None:
    columns = ", ".join(schema.DOCUMENT_COLUMNS)
    sql = f"SELECT {columns} FROM documents WHERE collection_name = ? AND doc_id = ?"  # noqa: S608  our own names
    rows = connection.execute(sql, (collection, doc_id))
    return schema.document(rows[0]) if rows else None


def count(connection: Connection, collection: str | None) -> int:
    """The number of documents.

    Constant time for all of them, because the tree knows its size; 1.5 µs per document for one
    collection.
    """
    if collection is None:
        rows = connection.execute("SELECT count(*) FROM documents")
    else:
        rows = connection.execute("SELECT count(*) FROM documents WHERE collection_name = ?", (collection,))
    return int(rows[0][0])


def _document_rows(
    connection: Connection, columns: Sequence[str], collection: str | None, ids: Iterable[str] | None
) -> Iterator[tuple[Any, ...]]:
    # In the order of the primary key, so that nothing is sorted: memory stays constant.
    asked: dict[str, str] = {}
    if collection is not None:
        asked["collection_name = ?"] = collection
    if ids is not None:
        asked["doc_id IN (SELECT value FROM json_each(?))"] = json.dumps(list(ids))
    where = f"WHERE {' AND '.join(asked)}" if asked else ""
    sql = f"SELECT {', '.join(columns)} FROM documents {where} ORDER BY collection_name, doc_id"  # noqa: S608  our own names
    before = ("", "")
    for row in connection.stream(sql, tuple(asked.values())):
        if not before < tuple(schema.texts(row[:2])):  # a tree that lists a part of itself many times would never end
            raise EngineFailed(
                f"The knowledge base {connection.path} holds documents that are not in order.", hint=FETCH_AGAIN
            )
        before = row[:2]
        yield row


# -- differences


_CHANGED = " OR ".join(f"to_{column} IS NOT from_{column}" for column in schema.COMPARED_COLUMNS)


def count_changes(connection: Connection, old: str, new: str) -> ChangeCounts:
    """The numbers of `difference` between two revisions."""
    sql = (
        "SELECT diff_type, count(*) FROM dolt_diff_documents(?, ?) "  # noqa: S608  our own names
        f"WHERE diff_type <> 'modified' OR {_CHANGED} GROUP BY diff_type"
    )
    return ChangeCounts(**{kind: int(number) for kind, number in connection.execute(sql, (old, new))})


def difference(connection: Connection, old: str, new: str) -> Difference:
    """What turns `old` into `new`; each is a full revision hash or WORKING."""
    collection_rows = _differing(
        connection, "collections", (schema.COLLECTION_COLUMNS, schema.COLLECTION_COLUMNS), "", (old, new)
    )
    document_rows = _differing(
        connection,
        "documents",
        (schema.HEADER_COLUMNS, schema.DOCUMENT_COLUMNS),
        f"WHERE diff_type <> 'modified' OR {_CHANGED}",
        (old, new),
    )
    collection_changes = {
        (before or after)[0]: CollectionChange(
            kind, _record(schema.collection, before), _record(schema.collection, after)
        )
        for kind, before, after in collection_rows
    }
    document_changes = {
        (before or after)[:2]: DocumentChange(kind, _record(schema.header, before), _record(schema.document, after))
        for kind, before, after in document_rows
    }
    return Difference(_sorted(collection_changes), _sorted(document_changes))


def compose(
    first: Difference, second: Difference, original: Callable[[tuple[str, str]], Document | None]
) -> Difference:
    """The difference from the start of `first` to the end of `second`, which may undo changes of
    the first.

    `original` reads a document at the start: differences hold headers only.
    """
    collection_changes: dict[Any, CollectionChange] = {}
    for key, (before, after) in _sides(first.collections, second.collections).items():
        if before != after:
            collection_changes[key] = CollectionChange(_kind(before, after), before, after)
    document_changes: dict[Any, DocumentChange] = {}
    for key, (before, after) in _sides(first.documents, second.documents).items():
        if (before or after) and not (before and after and _equal(original(key), after)):
            document_changes[key] = DocumentChange(_kind(before, after), before, after)
    return Difference(_sorted(collection_changes), _sorted(document_changes))


def _equal(one: Document | None, other: Document) -> bool:
    fields = ("collection", "doc_id", *schema.COMPARED_COLUMNS)
    return one is not None and all(getattr(one, field) == getattr(other, field) for field in fields)


def _differing(
    connection: Connection,
    table: str,
    columns: tuple[Sequence[str], Sequence[str]],
    where: str,
    between: tuple[str, str],
) -> Iterator[tuple[ChangeKind, tuple[Any, ...], tuple[Any, ...]]]:
    """Kind, the columns before, the columns after; `()` where a side has no row."""
    before, after = columns
    names = [f"from_{column}" for column in before] + [f"to_{column}" for column in after]
    sql = f"SELECT diff_type, {', '.join(names)} FROM dolt_diff_{table}(?, ?) {where}"  # noqa: S608  our own names
    for kind, *row in connection.stream(sql, between):
        old, new = tuple(row[: len(before)]), tuple(row[len(before) :])
        yield kind, () if kind == "added" else old, () if kind == "removed" else new


def _record(make: Callable[[Sequence[Any]], _Record], row: tuple[Any, ...]) -> _Record | None:
    return make(row) if row else None


def _sorted(changes: dict[Any, _Record]) -> tuple[_Record, ...]:
    # Code points order as UTF-8 bytes do.
    return tuple(changes[key] for key in sorted(changes))


def _sides(first: Sequence[Any], second: Sequence[Any]) -> dict[Any, tuple[Any, Any]]:
    """For each key in either: what stood before the first, and what stands after the second."""
    sides = {change.key: (change.before, change.after) for change in first}
    for change in second:
        before, _ = sides.get(change.key, (change.before, None))
        sides[change.key] = (before, change.after)
    return sides


def _kind(before: object | None, after: object | None) -> ChangeKind:
    if before is None:
        return "added"
    return "removed" if after is None else "modified"
