"""The versioned tables, and the one place where rows become records."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, get_args

import msgspec

from vmrag_link import terminal_text
from vmrag_link.engines.base import SCHEMA_VERSION, Write
from vmrag_link.engines.doltlite.connection import ROWS_HINT, Connection, Value
from vmrag_link.errors import ContentRefused, EngineFailed, KnowledgeRefused, RowsInvalid, SchemaTooNew
from vmrag_link.models import Chunking, Collection, Distance, Document, DocumentHeader, canonical_json

# Texts compare as bytes (SQLite's default collation) and have no length limit; VARCHAR and LONGTEXT
# say what Dolt needs. WITHOUT ROWID: rows are stored by their key alone, so that equal contents
# have equal hashes however they were written. No NOT NULL: every merge would look for it in all
# rows (35 ms instead of 1 at 50,000). What is stored are records, without nulls.
TABLES = (
    "CREATE TABLE vmrag_meta(key VARCHAR(255) PRIMARY KEY, value LONGTEXT) WITHOUT ROWID",
    """CREATE TABLE collections(
        collection_name VARCHAR(255) PRIMARY KEY,
        kind VARCHAR(255), metadata LONGTEXT, embedding_function VARCHAR(255),
        embedding_model VARCHAR(255), embedding_dimensions INTEGER, distance VARCHAR(255),
        chunking LONGTEXT, created_at VARCHAR(255)) WITHOUT ROWID""",
    """CREATE TABLE documents(
        collection_name VARCHAR(255), doc_id VARCHAR(255),
        title LONGTEXT, content LONGTEXT, content_hash VARCHAR(255),
        metadata LONGTEXT, source LONGTEXT, source_key LONGTEXT,
        file_type VARCHAR(255), last_modified VARCHAR(255), created_at VARCHAR(255),
        updated_at VARCHAR(255), PRIMARY KEY(collection_name, doc_id)) WITHOUT ROWID""",
)

# In the order of the records' fields.
COLLECTION_COLUMNS = (
    "collection_name",
    "kind",
    "metadata",
    "embedding_function",
    "embedding_model",
    "embedding_dimensions",
    "distance",
    "chunking",
    "created_at",
)
DOCUMENT_COLUMNS = (
    "collection_name",
    "doc_id",
    "title",
    "content",
    "content_hash",
    "metadata",
    "source",
    "source_key",
    "file_type",
    "last_modified",
    "created_at",
    "updated_at",
)
HEADER_COLUMNS = ("collection_name", "doc_id", "title", "content_hash", "metadata")
COMPARED_COLUMNS = ("title", "content", "content_hash", "metadata", "source", "source_key", "file_type")
"""What makes two documents with the same key differ: everything but times."""

_DISTANCES = get_args(Distance)
_NAME_LENGTH = 255
_MOST_SHOWN = 100

SchemaObject = tuple[str, str, str, str]
"""A row of `sqlite_master`: type, name, table, and its statement with single spaces."""


_BLANKS = re.compile(r"[ \t\n\f\r]+")


def _words(sql: str) -> list[str]:
    """A statement between what SQL takes for blanks; to Python other characters are, too, with
    which a name may begin.
    """
    return [word for word in _BLANKS.split(sql) if word]


def objects(*statements: str) -> frozenset[SchemaObject]:
    """What these statements, of the kinds that ours are, make."""
    found = []
    for each in statements:
        words = _words(each.replace("IF NOT EXISTS ", ""))
        name, table = words[2].partition("(")[0], words[4 if words[1] == "INDEX" else 2].partition("(")[0]
        found.append((words[1].lower(), name, table, " ".join(words)))
    return frozenset(found)


_OURS = objects(*TABLES)


def create(connection: Connection) -> None:
    for table in TABLES:
        connection.execute(table)
    connection.execute("INSERT INTO vmrag_meta VALUES ('schema_version', ?)", (str(SCHEMA_VERSION),))


def strange(connection: Connection, *, also: frozenset[SchemaObject] = frozenset()) -> str:
    """What a place holds beside our tables, or instead of them: any other table, index, trigger,
    view or virtual table. Empty for nothing.

    Some may be in `also`; and there may be nothing at all, as in anchors and before the first
    revision. Raises `SchemaTooNew` where a newer program wrote it. Nothing else may be asked of a
    place before: a table may stand there under the name of what is asked.
    """
    rows = connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_master")
    found = {(str(kind), str(name), str(table), " ".join(_words(str(sql)))) for kind, name, table, sql in rows}
    if not found or _OURS <= found <= _OURS | also:
        return ""
    if any(each in found for each in _OURS if each[1] == "vmrag_meta"):
        version(connection)
    kind, name = min(found.symmetric_difference(_OURS) - also)[:2]
    what = terminal_text.one_line(f"{kind} {name[:_MOST_SHOWN]!r}")  # both may be a stranger's words
    return f"the {what} is not as version {SCHEMA_VERSION} of the schema has it"


def require_ours(connection: Connection, where: str, *, also: frozenset[SchemaObject] = frozenset()) -> None:
    """Raises `KnowledgeRefused`, which says `where` it is, for what is `strange`."""
    if odd := strange(connection, also=also):
        raise KnowledgeRefused(
            f"{where} is neither read nor written on: {odd}.",
            hint="Ask who pushed it what that is. Revisions that are sound are listed, and pinned, by: vmrag log, vmrag pin REVISION",
        )


def version(connection: Connection) -> int:
    """The schema's version where the connection stands; 0 before there was one (the engine's own
    initial commit).

    Raises `SchemaTooNew` when a newer program wrote it.
    """
    if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'vmrag_meta'"):
        return 0
    rows = connection.execute("SELECT value FROM vmrag_meta WHERE key = 'schema_version'")
    if not rows or not str(rows[0][0]).isdecimal():
        raise EngineFailed(f"The knowledge base {connection.path} does not say which schema it has.")
    found = int(rows[0][0])
    if found > SCHEMA_VERSION:
        raise SchemaTooNew(
            f"The knowledge base has schema version {found}; this program knows versions up to {SCHEMA_VERSION}.",
            hint="Install a newer vmrag-link: python -m pip install --upgrade vmrag-link",
            found=found,
            known=SCHEMA_VERSION,
        )
    return found


def store(connection: Connection, rows: Write) -> None:
    """Change the rows where the connection stands; call it in a transaction."""
    for name in rows.remove_collections:
        connection.execute("DELETE FROM documents WHERE collection_name = ?", (name,))
        connection.execute("DELETE FROM collections WHERE collection_name = ?", (name,))
    connection.executemany("DELETE FROM documents WHERE collection_name = ? AND doc_id = ?", rows.remove_documents)
    connection.executemany(_insert("collections", COLLECTION_COLUMNS), map(collection_row, rows.put_collections))
    documents: Iterable[Document] = rows.put_documents
    if isinstance(documents, list | tuple):  # in the order of the tree: three times faster, half the file
        documents = sorted(documents, key=lambda document: document.key)
    connection.executemany(_insert("documents", DOCUMENT_COLUMNS), map(document_row, documents))


def _insert(table: str, columns: tuple[str, ...]) -> str:
    marks = ", ".join("?" * len(columns))
    return f"INSERT OR REPLACE INTO {table}({', '.join(columns)}) VALUES ({marks})"  # noqa: S608  our own names


def is_dirty(connection: Connection) -> bool:
    """Whether the branch on which the connection stands has uncommitted rows."""
    return bool(connection.execute("SELECT 1 FROM dolt_status LIMIT 1"))


def commit(connection: Connection, message: str, author: str, date: str) -> str:
    """Commit everything where the connection stands; returns the revision."""
    texts = (exact(message, "The message"), exact(author, "The author"), exact(date, "The date"))
    rows = connection.execute("SELECT dolt_commit('-A', '-m', ?, '--author', ?, '--date', ?)", texts)
    revision: str = rows[0][0]
    return revision


def exact(text: str, what: str) -> str:
    """The text, if every engine stores it as it is. Raises `ContentRefused` that names `what`."""
    if "\0" in text:
        raise ContentRefused(f"{what} holds a NUL character.", hint="Remove it; no database stores it exactly.")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ContentRefused(
            f"{what} holds a lone surrogate at character {error.start}.",
            hint="Decode the source with its right encoding.",
        ) from error
    return text


def collection_row(collection: Collection) -> tuple[Value, ...]:
    what = f"Collection {collection.name!r}"
    _name(collection.name, what)
    fields = msgspec.structs.astuple(msgspec.structs.replace(collection, chunking=canonical_json(collection.chunking)))
    return _exact_fields(what, COLLECTION_COLUMNS, fields)


def document_row(document: Document) -> tuple[Value, ...]:
    what = f"Document {document.collection}/{document.doc_id}"
    _name(document.collection, what)
    _name(document.doc_id, what)
    return _exact_fields(what, DOCUMENT_COLUMNS, msgspec.structs.astuple(document))


def collection(row: Sequence[Any]) -> Collection:
    """A record from a row of COLLECTION_COLUMNS. A stranger may have written it: impossible values
    are refused.
    """
    name, kind, metadata, function, model, dimensions, distance, chunking, created_at = row
    texts((*row[:5], *row[6:]))
    if type(dimensions) is not int:
        raise _invalid(dimensions)
    if distance not in _DISTANCES:
        raise EngineFailed(f"Collection {name!r} has the distance {distance!r}, which this program does not know.")
    try:
        pieces = msgspec.json.decode(chunking, type=Chunking)
    except (ValueError, TypeError) as error:  # a column may hold NULL or a number
        raise EngineFailed(f"Collection {name!r} has a chunking that this program does not know: {error}.") from error
    return Collection(name, kind, metadata, function, model, dimensions, distance, pieces, created_at)


def document(row: Sequence[Any]) -> Document:
    """A record from a row of DOCUMENT_COLUMNS."""
    return Document(*texts(row))


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
    for column, field in zip(columns, fields, strict=True):
        if isinstance(field, str):
            exact(field, f"{what!r}: {column}")
    return tuple(fields)
