"""Conversion between rows and records, and reading of documents by key.

This is the only module that does this conversion.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, get_args

import msgspec

from vmrag_link import terminal_text
from vmrag_link.engines import logical
from vmrag_link.engines.base import RowSource
from vmrag_link.engines.tables import COLLECTIONS, DOCUMENTS, HEADER_COLUMNS, PROJECTS, ROWS_HINT, Table, find_table
from vmrag_link.errors import ContentRefused, RowsInvalid, quoted
from vmrag_link.models import (
    EXTERNAL,
    SOURCE,
    At,
    Chunking,
    Collection,
    Distance,
    Document,
    DocumentHeader,
    Link,
    Project,
    Row,
    encode_canonical_json,
    parse_user_json,
)

Value = str | int | None
"""The value of a column or of a statement's argument."""

Key = tuple[str, str]
"""The collection and the id of a document."""

_DISTANCES = get_args(Distance)
_NAME_LENGTH = 255
_MAX_SHOWN_CHARACTERS = 300


def require_storable(text: str, what: str) -> str:
    """Return the text if every engine can store it exactly.

    Raises `ContentRefused`, whose message begins with `what`.
    """
    if "\0" in text:
        at = text.index("\0") + 1
        hint = "remove it, because no database stores it exactly"
        raise ContentRefused(f"{what} contains a NUL character at position {at}.", hint=hint)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ContentRefused(
            f"{what} is not valid Unicode at position {error.start + 1}.",
            hint="decode the source with its correct encoding",
        ) from error
    return text


def to_row(record: Row) -> tuple[Value, ...]:
    """Return the stored values of a record, in the order of `Table.columns`.

    Raises `ContentRefused`.
    """
    if isinstance(record, Collection):
        return collection_row(record)
    return document_row(record) if isinstance(record, Document) else project_row(record)


def collection_row(collection: Collection) -> tuple[Value, ...]:
    what = f"collection {collection.name!r}"
    _require_name_length(collection.name, what)
    fields = msgspec.structs.astuple(
        msgspec.structs.replace(collection, chunking=encode_canonical_json(collection.chunking))
    )
    return _require_storable_fields(what, COLLECTIONS.columns, fields)


def document_row(document: Document) -> tuple[Value, ...]:
    what = f"document {document.collection}/{document.doc_id}"
    _require_name_length(document.collection, what)
    _require_name_length(document.doc_id, what)
    table = find_table(document)
    fields = msgspec.structs.astuple(document)[:-1] if table is DOCUMENTS else logical.row_from_document(document)
    return _require_storable_fields(what, table.columns, fields)


def project_row(project: Project) -> tuple[Value, ...]:
    what = f"project {project.project_id}"
    _require_name_length(project.project_id, what)
    return _require_storable_fields(what, PROJECTS.columns, msgspec.structs.astuple(project))


def link_row(link: Link) -> tuple[str, ...]:
    fields = msgspec.structs.asdict(link)
    return tuple(require_storable(text, f"the link of {link.git_commit}: {name}") for name, text in fields.items())


@functools.cache
def column_defaults(table: Table) -> Mapping[str, Value]:
    """Return the value of each column that another program left NULL.

    Keys have no default, and neither has `content_hash`, which follows from the text.
    """
    if table is COLLECTIONS:
        empty = collection_row(Collection("-"))
    elif table is PROJECTS:
        empty = project_row(Project("-"))
    else:
        empty = document_row(Document("-", "-", "", "", "", table=table.name))  # type: ignore[arg-type]  # a DocumentTable
    values = dict(zip(table.columns, empty, strict=True))
    return {
        name: value for name, value in values.items() if name not in (*table.columns[: table.key_count], "content_hash")
    }


def canonicalize_metadata(text: str) -> str:
    """Return the canonical JSON of metadata that another program wrote.

    Raises `ValueError` if it is not an object or cannot be stored exactly. The message completes
    `metadata …`.
    """
    try:
        if encode_canonical_json(msgspec.json.decode(text, type=dict[str, Any])) == text:
            return text
    except (ValueError, RecursionError):
        pass  # `parse_user_json` raises a better error
    value = parse_user_json(text)
    if not isinstance(value, dict):
        raise ValueError("is not the JSON of an object")  # noqa: TRY004  the value is untrusted data
    return encode_canonical_json(value)


def invalid_row_error(table: Table, key: Sequence[object], column: str, why: str) -> RowsInvalid:
    """Return the error for a row that must be refused. `why` completes `its COLUMN …`.

    Key and `why` may contain untrusted text.
    """
    name = "/".join(map(str, key))
    shown = terminal_text.escape_line(name)
    why = terminal_text.escape_line(why)[:_MAX_SHOWN_CHARACTERS].rstrip(".")
    return RowsInvalid(
        f"invalid row {shown!r} in table {table.name}: its {column} {why}.",
        hint=f"correct the row with the program that wrote it, or run 'vmrag restore {quoted(name)}' to discard it",
        table=table.name,
        row=name,
        column=column,
        key=list(map(str, key)),
    )


def parse_collection(row: Sequence[Any]) -> Collection:
    """Return the record of a row of the table `collections`.

    The row may be from an untrusted program. Raises `RowsInvalid` for impossible values.
    """
    _require_types(COLLECTIONS, COLLECTIONS.columns, row)
    name, kind, metadata, function, model, dimensions, distance, chunking, created_at, import_base = row
    if distance not in _DISTANCES:
        raise invalid_row_error(
            COLLECTIONS, [name], "distance", f"is {distance!r}, which this version does not support"
        )
    try:
        chunks = msgspec.json.decode(chunking, type=Chunking)
    except ValueError as error:
        raise invalid_row_error(
            COLLECTIONS, [name], "chunking", f"is not supported by this version: {error}"
        ) from error
    if chunks.strategy == "code":
        raise invalid_row_error(COLLECTIONS, [name], "chunking", "has the strategy of code, which is never stored")
    if kind in (SOURCE, EXTERNAL):
        raise invalid_row_error(COLLECTIONS, [name], "kind", f"is {kind!r}, which is never stored")
    return Collection(
        name=name,
        kind=kind,
        metadata=metadata,
        embedding_function=function,
        embedding_model=model,
        embedding_dimensions=dimensions,
        distance=distance,
        chunking=chunks,
        created_at=created_at,
        import_base=import_base,
    )


def parse_record(table: Table, row: Sequence[Any]) -> Row:
    """Return the record of a row of any table. The row is in the order of `Table.columns`."""
    if table is COLLECTIONS:
        return parse_collection(row)
    if table is DOCUMENTS:
        return parse_document(row)
    if table is PROJECTS:
        _require_types(table, table.columns, row)
        return Project(*row)
    return parse_logical_document(table, row)


def primary_key(row: Row) -> str:
    """Return the key of a row of a table with one key column (every table except `documents`)."""
    return row.doc_id if isinstance(row, Document) else row.key


def parse_logical_document(table: Table, row: Sequence[Any]) -> Document:
    """Return the document of a row of one of `tables.LOGICAL_TABLES`."""
    _require_types(table, table.columns, row)
    try:
        return logical.document_from_row(table, row)
    except (ValueError, RecursionError) as error:  # the metadata is not a JSON object, or is nested too deeply
        raise invalid_row_error(table, row[:1], "metadata", f"cannot be read: {error}") from error


def parse_document(row: Sequence[Any]) -> Document:
    """Return the document of a row of the table `documents`."""
    _require_types(DOCUMENTS, DOCUMENTS.columns, row)
    return Document(*row)


def parse_header(row: Sequence[Any]) -> DocumentHeader:
    """Return the header of a row of HEADER_COLUMNS."""
    _require_types(DOCUMENTS, HEADER_COLUMNS, row)
    return DocumentHeader(*row)


def require_texts(row: Sequence[Any]) -> Sequence[str]:
    """Return the row if all its values are texts, because a column accepts any type.

    Raises `RowsInvalid`.
    """
    for value in row:
        if type(value) is not str:
            raise RowsInvalid(
                f"the knowledge base holds a row with {_describe_kind(value)}, which no vmrag command writes there.",
                hint=ROWS_HINT,
            )
    return row


def _require_types(table: Table, columns: Sequence[str], row: Sequence[Any]) -> None:
    for name, value in zip(columns, row, strict=True):
        if type(value) is not (int if name in table.number_columns else str):
            raise invalid_row_error(
                table,
                row[: table.key_count],
                name,
                f"holds {_describe_kind(value)}, which no vmrag command writes there",
            )


def _describe_kind(value: object) -> str:
    return {bytes: "bytes", int: "a number", float: "a number", str: "a text"}.get(type(value), "nothing")


def _require_name_length(name: str, what: str) -> None:
    if not 0 < len(name) <= _NAME_LENGTH:
        raise ContentRefused(f"{what[:80]}: the name has {len(name)} characters; it must have 1 to {_NAME_LENGTH}.")


def _require_storable_fields(what: str, columns: Sequence[str], fields: Sequence[Any]) -> tuple[Value, ...]:
    values = dict(zip(columns, fields, strict=True))
    for column in sorted(values, key=lambda column: column != "content"):  # a title may be derived from the content
        if isinstance(value := values[column], str):
            require_storable(value, f"{what}: {column}")
    return tuple(fields)


def read_documents_by_key(rows: RowSource, at: At, keys: Iterable[Key]) -> dict[Key, Document]:
    """Return the existing documents with these keys. All of them are in memory.

    There is one query per collection.
    """
    ids_by_collection: dict[str, list[str]] = {}
    for collection, doc_id in keys:
        ids_by_collection.setdefault(collection, []).append(doc_id)
    return {
        document.key: document
        for collection, ids in ids_by_collection.items()
        for document in rows.read_documents(at, collection=collection, ids=ids)
    }
