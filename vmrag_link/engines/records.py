"""The one place where rows become records, and records rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

import msgspec

from vmrag_link.engines import logical
from vmrag_link.engines.tables import COLLECTIONS, DOCUMENTS, PROJECTS, Table
from vmrag_link.errors import ContentRefused, EngineFailed, RowsInvalid
from vmrag_link.models import (
    Chunking,
    Collection,
    Distance,
    Document,
    DocumentHeader,
    Link,
    Project,
    Row,
    canonical_json,
)

ROWS_HINT = (
    "Ask who pushed it what that is. Revisions that are sound are listed, and pinned, by: vmrag log, vmrag pin REVISION"
)

Value = str | int | None
"""What a column holds, and a statement takes."""

_DISTANCES = get_args(Distance)
_NAME_LENGTH = 255


def exact(text: str, what: str) -> str:
    """The text, if every engine stores it as it is. Raises `ContentRefused` that names `what`."""
    if "\0" in text:
        at = text.index("\0") + 1
        hint = "Remove it; no database stores it exactly."
        raise ContentRefused(f"{what} holds a NUL character, at character {at}.", hint=hint)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ContentRefused(
            f"{what} holds a lone surrogate at character {error.start + 1}.",
            hint="Decode the source with its right encoding.",
        ) from error
    return text


def row(record: Row) -> tuple[Value, ...]:
    """What is stored of a record, in the order of `Table.columns`. Raises `ContentRefused`."""
    if isinstance(record, Collection):
        return collection_row(record)
    return document_row(record) if isinstance(record, Document) else project_row(record)


def collection_row(collection: Collection) -> tuple[Value, ...]:
    what = f"Collection {collection.name!r}"
    _name(collection.name, what)
    fields = msgspec.structs.astuple(msgspec.structs.replace(collection, chunking=canonical_json(collection.chunking)))
    return _exact_fields(what, COLLECTIONS.columns, fields)


def document_row(document: Document) -> tuple[Value, ...]:
    what = f"Document {document.collection}/{document.doc_id}"
    _name(document.collection, what)
    _name(document.doc_id, what)
    table = logical.table_of(document)
    fields = msgspec.structs.astuple(document)[:-1] if table is DOCUMENTS else logical.row(document)
    return _exact_fields(what, table.columns, fields)


def project_row(project: Project) -> tuple[Value, ...]:
    what = f"Project {project.project_id}"
    _name(project.project_id, what)
    return _exact_fields(what, PROJECTS.columns, msgspec.structs.astuple(project))


def link_row(link: Link) -> tuple[str, ...]:
    fields = msgspec.structs.asdict(link)
    return tuple(exact(text, f"The link of {link.git_commit}: {name}") for name, text in fields.items())


def collection(row: Sequence[Any]) -> Collection:
    """A record from a row of the table `collections`.

    A stranger may have written it: impossible values are refused.
    """
    name, kind, metadata, function, model, dimensions, distance, chunking, created_at, import_base = row
    texts((*row[:5], *row[6:]))
    if type(dimensions) is not int:
        raise _invalid(dimensions)
    if distance not in _DISTANCES:
        raise EngineFailed(f"Collection {name!r} has the distance {distance!r}, which this program does not know.")
    try:
        pieces = msgspec.json.decode(chunking, type=Chunking)
    except (ValueError, TypeError) as error:  # a column may hold NULL or a number
        raise EngineFailed(f"Collection {name!r} has a chunking that this program does not know: {error}.") from error
    return Collection(name, kind, metadata, function, model, dimensions, distance, pieces, created_at, import_base)


def record(table: Table, row: Sequence[Any]) -> Row:
    """A record from a row of any table, in the order of `Table.columns`."""
    if table is COLLECTIONS:
        return collection(row)
    if table is DOCUMENTS:
        return document(row)
    return Project(*texts(row)) if table is PROJECTS else logical_document(table, row)


def primary_key(row: Row) -> str:
    """Of a row of any table but `documents`, which has two."""
    return row.doc_id if isinstance(row, Document) else row.key


def logical_document(table: Table, row: Sequence[Any]) -> Document:
    """A record from a row of one of the tables `tables.LOGICAL`."""
    for name, value in zip(table.columns, row, strict=True):
        if type(value) is not (int if name in table.numbers else str):
            raise _invalid(value)
    try:
        return logical.document(table, row)
    except (ValueError, RecursionError) as error:  # of metadata that is no JSON object, or holds what is none
        raise RowsInvalid(
            f"The knowledge base holds a row of {table.name} whose metadata cannot be read: {error}.", hint=ROWS_HINT
        ) from error


def document(row: Sequence[Any]) -> Document:
    """A record from a row of the table `documents`."""
    return Document(*texts(row))  # type: ignore[arg-type]  # a row has no field `table`


def header(row: Sequence[Any]) -> DocumentHeader:
    """A record from a row of HEADER_COLUMNS."""
    return DocumentHeader(*texts(row))


def texts(row: Sequence[Any]) -> Sequence[str]:
    """The row, if all of it is text: a column takes values of any type. Raises `RowsInvalid`."""
    for each in row:
        if type(each) is not str:
            raise _invalid(each)
    return row


def _invalid(found: object) -> RowsInvalid:
    what = {bytes: "bytes", int: "a number", float: "a number", str: "a text"}.get(type(found), "nothing")
    return RowsInvalid(
        f"The knowledge base holds a row with {what} where no command of ours writes that.", hint=ROWS_HINT
    )


def _name(name: str, what: str) -> None:
    if not 0 < len(name) <= _NAME_LENGTH:
        raise ContentRefused(f"{what[:80]}: a name has 1 to {_NAME_LENGTH} characters, this one {len(name)}.")


def _exact_fields(what: str, columns: Sequence[str], fields: Sequence[Any]) -> tuple[Value, ...]:
    named = dict(zip(columns, fields, strict=True))
    for column in sorted(named, key=lambda column: column != "content"):  # from which a title may be derived
        if isinstance(field := named[column], str):
            exact(field, f"{what}: {column}")
    return tuple(fields)
