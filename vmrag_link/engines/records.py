"""The one place where rows become records, and records rows; and documents by their keys."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, get_args

import msgspec

from vmrag_link import terminal_text
from vmrag_link.engines import logical
from vmrag_link.engines.base import RowSource
from vmrag_link.engines.tables import COLLECTIONS, DOCUMENTS, HEADER_COLUMNS, PROJECTS, ROWS_HINT, Table
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
"""What a column holds, and a statement takes."""

_DISTANCES = get_args(Distance)
_NAME_LENGTH = 255
_MOST_SHOWN = 300


def require_storable(text: str, what: str) -> str:
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


def to_row(record: Row) -> tuple[Value, ...]:
    """What is stored of a record, in the order of `Table.columns`. Raises `ContentRefused`."""
    if isinstance(record, Collection):
        return collection_row(record)
    return document_row(record) if isinstance(record, Document) else project_row(record)


def collection_row(collection: Collection) -> tuple[Value, ...]:
    what = f"Collection {collection.name!r}"
    _name(collection.name, what)
    fields = msgspec.structs.astuple(
        msgspec.structs.replace(collection, chunking=encode_canonical_json(collection.chunking))
    )
    return _exact_fields(what, COLLECTIONS.columns, fields)


def document_row(document: Document) -> tuple[Value, ...]:
    what = f"Document {document.collection}/{document.doc_id}"
    _name(document.collection, what)
    _name(document.doc_id, what)
    table = logical.find_document_table(document)
    fields = msgspec.structs.astuple(document)[:-1] if table is DOCUMENTS else logical.row_from_document(document)
    return _exact_fields(what, table.columns, fields)


def project_row(project: Project) -> tuple[Value, ...]:
    what = f"Project {project.project_id}"
    _name(project.project_id, what)
    return _exact_fields(what, PROJECTS.columns, msgspec.structs.astuple(project))


def link_row(link: Link) -> tuple[str, ...]:
    fields = msgspec.structs.asdict(link)
    return tuple(require_storable(text, f"The link of {link.git_commit}: {name}") for name, text in fields.items())


@functools.cache
def column_defaults(table: Table) -> Mapping[str, Value]:
    """What a column stands for where another program left it NULL; keys and `content_hash`, which
    follows from the text, have none.
    """
    if table is COLLECTIONS:
        empty = collection_row(Collection("-"))
    elif table is PROJECTS:
        empty = project_row(Project("-"))
    else:
        empty = document_row(Document("-", "-", "", "", "", table=table.name))  # type: ignore[arg-type]  # one of them
    values = dict(zip(table.columns, empty, strict=True))
    return {
        name: value for name, value in values.items() if name not in (*table.columns[: table.key_count], "content_hash")
    }


def canonicalize_metadata(text: str) -> str:
    """The canonical JSON of a metadata that another program wrote.

    Raises `ValueError`, whose message completes `metadata …`, for what is no object, or cannot be
    stored exactly.
    """
    try:
        if encode_canonical_json(msgspec.json.decode(text, type=dict[str, Any])) == text:
            return text
    except (ValueError, RecursionError):
        pass  # the careful parser says what is wrong
    value = parse_user_json(text)
    if not isinstance(value, dict):
        raise ValueError("is not the JSON of an object")  # noqa: TRY004  a value of a stranger's
    return encode_canonical_json(value)


def invalid_row_error(table: Table, key: Sequence[object], column: str, why: str) -> RowsInvalid:
    """The error for a row that cannot be taken; `why` completes `its COLUMN …`. A stranger's words
    may be in both.
    """
    name = "/".join(map(str, key))
    shown, why = terminal_text.escape_line(name), terminal_text.escape_line(why)[:_MOST_SHOWN].rstrip(".")
    return RowsInvalid(
        f"The row {shown!r} of the table {table.name} cannot be taken: its {column} {why}.",
        hint=f"Put it right where it was written, or give up what it holds: vmrag restore {quoted(name)}",
        table=table.name,
        row=name,
        column=column,
        key=list(map(str, key)),
    )


def parse_collection(row: Sequence[Any]) -> Collection:
    """A record from a row of the table `collections`.

    A stranger may have written it: impossible values are refused.
    """
    _require_types(COLLECTIONS, COLLECTIONS.columns, row)
    name, kind, metadata, function, model, dimensions, distance, chunking, created_at, import_base = row
    if distance not in _DISTANCES:
        raise invalid_row_error(COLLECTIONS, [name], "distance", f"is {distance!r}, which this program does not know")
    try:
        pieces = msgspec.json.decode(chunking, type=Chunking)
    except ValueError as error:
        raise invalid_row_error(COLLECTIONS, [name], "chunking", f"is none that this program knows: {error}") from error
    if pieces.strategy == "code":
        raise invalid_row_error(COLLECTIONS, [name], "chunking", "is that of code, which is never stored")
    if kind in (SOURCE, EXTERNAL):
        raise invalid_row_error(COLLECTIONS, [name], "kind", f"is {kind!r}, which is never stored")
    return Collection(name, kind, metadata, function, model, dimensions, distance, pieces, created_at, import_base)


def parse_record(table: Table, row: Sequence[Any]) -> Row:
    """A record from a row of any table, in the order of `Table.columns`."""
    if table is COLLECTIONS:
        return parse_collection(row)
    if table is DOCUMENTS:
        return parse_document(row)
    if table is PROJECTS:
        _require_types(table, table.columns, row)
        return Project(*row)
    return parse_logical_document(table, row)


def primary_key(row: Row) -> str:
    """Of a row of any table but `documents`, which has two."""
    return row.doc_id if isinstance(row, Document) else row.key


def parse_logical_document(table: Table, row: Sequence[Any]) -> Document:
    """A record from a row of one of the tables `tables.LOGICAL`."""
    _require_types(table, table.columns, row)
    try:
        return logical.document_from_row(table, row)
    except (ValueError, RecursionError) as error:  # of metadata that is no JSON object, or holds what is none
        raise invalid_row_error(table, row[:1], "metadata", f"cannot be read: {error}") from error


def parse_document(row: Sequence[Any]) -> Document:
    """A record from a row of the table `documents`."""
    _require_types(DOCUMENTS, DOCUMENTS.columns, row)
    return Document(*row)


def parse_header(row: Sequence[Any]) -> DocumentHeader:
    """A record from a row of HEADER_COLUMNS."""
    _require_types(DOCUMENTS, HEADER_COLUMNS, row)
    return DocumentHeader(*row)


def require_texts(row: Sequence[Any]) -> Sequence[str]:
    """The row, if all of it is text: a column takes values of any type. Raises `RowsInvalid`."""
    for each in row:
        if type(each) is not str:
            raise RowsInvalid(
                f"The knowledge base holds a row with {_kind(each)} where no command of ours writes that.",
                hint=ROWS_HINT,
            )
    return row


def _require_types(table: Table, columns: Sequence[str], row: Sequence[Any]) -> None:
    for name, value in zip(columns, row, strict=True):
        if type(value) is not (int if name in table.number_columns else str):
            raise invalid_row_error(
                table, row[: table.key_count], name, f"holds {_kind(value)}, which no command of ours writes there"
            )


def _kind(found: object) -> str:
    return {bytes: "bytes", int: "a number", float: "a number", str: "a text"}.get(type(found), "nothing")


def _name(name: str, what: str) -> None:
    if not 0 < len(name) <= _NAME_LENGTH:
        raise ContentRefused(f"{what[:80]}: a name has 1 to {_NAME_LENGTH} characters, this one {len(name)}.")


def _exact_fields(what: str, columns: Sequence[str], fields: Sequence[Any]) -> tuple[Value, ...]:
    named = dict(zip(columns, fields, strict=True))
    for column in sorted(named, key=lambda column: column != "content"):  # from which a title may be derived
        if isinstance(field := named[column], str):
            require_storable(field, f"{what}: {column}")
    return tuple(fields)


Key = tuple[str, str]


def read_documents_by_key(rows: RowSource, at: At, keys: Iterable[Key]) -> dict[Key, Document]:
    """Those that are there, with one look-up a collection. All of them are in memory."""
    ids: dict[str, list[str]] = {}
    for collection, doc_id in keys:
        ids.setdefault(collection, []).append(doc_id)
    return {
        document.key: document
        for collection, some in ids.items()
        for document in rows.read_documents(at, collection=collection, ids=some)
    }
