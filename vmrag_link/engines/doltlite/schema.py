"""The tables of each version of the schema, the version at a place, and upgrades.

A version, once released, never changes, because its revisions stay in every history. A change is a
new version, with the statements that convert the previous version to it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from vmrag_link import terminal_text
from vmrag_link.engines.base import SCHEMA_VERSION, schema_too_new_error
from vmrag_link.engines.doltlite.connection import Connection
from vmrag_link.engines.records import require_storable
from vmrag_link.engines.tables import ROWS_HINT
from vmrag_link.errors import RowsInvalid

_MAX_SHOWN_CHARACTERS = 100
_VERSION = "[1-9][0-9]{0,8}"


def create_tables(connection: Connection) -> None:
    for table in STATEMENTS[SCHEMA_VERSION]:
        connection.execute(table)
    connection.execute("INSERT INTO vmrag_meta VALUES ('schema_version', ?)", (str(SCHEMA_VERSION),))


def upgrade_tables(connection: Connection, needed: int) -> int:
    """Upgrade the connection's place to at least this version, and return the resulting version.

    Call this in the transaction of the first write that an older version cannot hold. The same
    statements create the same tables everywhere, so two upgrades merge.
    """
    current = read_version(connection)
    for number in range(current + 1, needed + 1):
        for statement in UPGRADES[number]:
            connection.execute(statement)
    if current < needed:
        connection.execute("UPDATE vmrag_meta SET value = ? WHERE key = 'schema_version'", (str(needed),))
    return max(current, needed)


def describe_foreign_objects(connection: Connection, *, also: frozenset[SchemaObject] = frozenset()) -> str:
    """Describe the first object that does not belong to the schema version of a place.

    An object is a table, index, trigger, view or virtual table. The text is empty if all objects
    belong there. Objects in `also` are allowed, and so is an empty place, such as an anchor or the
    commit before the first revision. Raises `SchemaTooNew` if a newer program wrote it. Call this
    before you read anything else from a place, because a foreign table may have our name for it.
    """
    rows = connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_master")
    objects = {(str(kind), str(name), str(table), " ".join(split_words(str(sql)))) for kind, name, table, sql in rows}
    if not objects:
        _remember_version(connection, 0)
        return ""
    try:
        version = _stored_version(connection) if META_OBJECT in objects else SCHEMA_VERSION
    except RowsInvalid:
        return "it does not contain its schema version"
    ours = OBJECTS[version]
    if ours <= objects <= ours | also:
        _remember_version(connection, version)
        return ""
    kind, name = min(objects.symmetric_difference(ours) - also)[:2]
    what = terminal_text.escape_line(f"{kind} {name[:_MAX_SHOWN_CHARACTERS]!r}")  # both may be untrusted text
    return f"the {what} differs from version {version} of the schema"


def require_known_schema(connection: Connection, where: str, *, also: frozenset[SchemaObject] = frozenset()) -> None:
    """Raise `KnowledgeRefused` if `describe_foreign_objects` finds any."""
    if foreign := describe_foreign_objects(connection, also=also):
        from vmrag_link.engines import inspection

        raise inspection.foreign_place_error(where, foreign)


def schemas_differ(connection: Connection, one: str, other: str) -> bool:
    """Return whether two revisions differ in anything that `describe_foreign_objects` reads.

    These are their tables, indexes, triggers and views, and the version that they state. The
    connection must be at a place with our tables.
    """
    objects = connection.execute("SELECT 1 FROM dolt_schema_diff(?, ?) LIMIT 1", (one, other))
    return bool(objects or connection.execute("SELECT 1 FROM dolt_diff_vmrag_meta(?, ?) LIMIT 1", (one, other)))


def read_version(connection: Connection) -> int:
    """Return the schema's version at the connection's place, or 0 if it has no tables.

    The engine's own initial commit has none. Raises `SchemaTooNew` if a newer program wrote it, and
    `RowsInvalid` if it is not a number.
    """
    if connection.schema_version is not None:
        return connection.schema_version
    has_tables = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'vmrag_meta'")
    return _remember_version(connection, _stored_version(connection) if has_tables else 0)


def _remember_version(connection: Connection, version: int) -> int:
    if not connection.in_transaction:
        connection.schema_version = version
    return version


def _stored_version(connection: Connection) -> int:
    rows = connection.execute("SELECT value FROM vmrag_meta WHERE key = 'schema_version'")
    match = re.fullmatch(_VERSION, str(rows[0][0])) if rows else None
    if match is None:
        raise RowsInvalid(f"the knowledge base {connection.path} does not contain its schema version.", hint=ROWS_HINT)
    version = int(match[0])
    if version > SCHEMA_VERSION:
        raise schema_too_new_error(version, SCHEMA_VERSION)
    return version


def is_dirty(connection: Connection) -> bool:
    """Return whether the connection's branch has uncommitted rows."""
    return bool(connection.execute("SELECT 1 FROM dolt_status LIMIT 1"))


def commit(connection: Connection, message: str, author: str, date: str, *options: str) -> str:
    """Commit everything at the connection's place and return the revision."""
    texts = (
        *options,
        require_storable(message, "the message"),
        require_storable(author, "the author"),
        require_storable(date, "the date"),
    )
    rows = connection.execute(
        f"SELECT dolt_commit('-A', {'?, ' * len(options)}'-m', ?, '--author', ?, '--date', ?)", texts
    )
    revision: str = rows[0][0]
    return revision


# Texts compare as bytes (SQLite's default collation) and have no length limit; VARCHAR and LONGTEXT
# are the types for Dolt. WITHOUT ROWID: rows are stored by their key alone, so that equal contents
# have equal hashes however they were written. No NOT NULL: every merge would check it in all
# rows (35 ms instead of 1 at 50,000), and records have no nulls. No UNIQUE except
# the keys: two branches may each have added a row, and a merge must keep both.
_META = "CREATE TABLE vmrag_meta(key VARCHAR(255) PRIMARY KEY, value LONGTEXT) WITHOUT ROWID"
_COLLECTIONS = """CREATE TABLE collections(
        collection_name VARCHAR(255) PRIMARY KEY,
        kind VARCHAR(255), metadata LONGTEXT, embedding_function VARCHAR(255),
        embedding_model VARCHAR(255), embedding_dimensions INTEGER, distance VARCHAR(255),
        chunking LONGTEXT, created_at VARCHAR(255)) WITHOUT ROWID"""
_IMPORT_BASE = "import_base LONGTEXT"
_DOCUMENTS = """CREATE TABLE documents(
        collection_name VARCHAR(255), doc_id VARCHAR(255),
        title LONGTEXT, content LONGTEXT, content_hash VARCHAR(255),
        metadata LONGTEXT, source LONGTEXT, source_key LONGTEXT,
        file_type VARCHAR(255), last_modified VARCHAR(255), created_at VARCHAR(255),
        updated_at VARCHAR(255), PRIMARY KEY(collection_name, doc_id)) WITHOUT ROWID"""
_OTHERS = (
    """CREATE TABLE projects(
        project_id VARCHAR(255) PRIMARY KEY,
        name LONGTEXT, repository_url LONGTEXT, created_at VARCHAR(255),
        metadata LONGTEXT) WITHOUT ROWID""",
    """CREATE TABLE issue_logs(
        log_id VARCHAR(255) PRIMARY KEY,
        project_id VARCHAR(255), issue_number INTEGER, title LONGTEXT, content LONGTEXT,
        content_hash VARCHAR(255), log_type VARCHAR(255), created_at VARCHAR(255),
        updated_at VARCHAR(255), metadata LONGTEXT) WITHOUT ROWID""",
    """CREATE TABLE knowledge_docs(
        doc_id VARCHAR(255) PRIMARY KEY,
        category LONGTEXT, tool_name LONGTEXT, tool_version LONGTEXT, title LONGTEXT,
        content LONGTEXT, content_hash VARCHAR(255), created_at VARCHAR(255),
        updated_at VARCHAR(255), metadata LONGTEXT) WITHOUT ROWID""",
)

STATEMENTS: Mapping[int, tuple[str, ...]] = {
    1: (_META, _COLLECTIONS, _DOCUMENTS),
    # This is the engine's form of a table to which a column was added.
    2: (_META, _COLLECTIONS.replace(") WITHOUT", f", {_IMPORT_BASE}) WITHOUT"), _DOCUMENTS, *_OTHERS),
}
"""The statements that create the tables of a version."""

UPGRADES: Mapping[int, tuple[str, ...]] = {2: (f"ALTER TABLE collections ADD COLUMN {_IMPORT_BASE}", *_OTHERS)}
"""The statements that convert the tables of the previous version to this version."""

SchemaObject = tuple[str, str, str, str]
"""A row of `sqlite_master`: type, name, table, and its statement with single spaces."""

_BLANKS = r"[ \t\n\f\r]+"


def split_words(sql: str) -> list[str]:
    """Split a statement at SQL's blanks.

    Python also treats other characters as blanks, with which a name may begin.
    """
    return [word for word in re.split(_BLANKS, sql) if word]


def parse_objects(*statements: str) -> frozenset[SchemaObject]:
    """Return the objects that these statements create.

    Only our kinds of statements are supported.
    """
    objects = []
    for statement in statements:
        words = split_words(
            statement.replace("IF NOT EXISTS ", "")
        )  # CREATE TABLE name(…, CREATE INDEX name ON table(…
        kind, name = words[1].lower(), words[2].partition("(")[0]
        table = words[4].partition("(")[0] if kind == "index" else name
        objects.append((kind, name, table, " ".join(words)))
    return frozenset(objects)


OBJECTS = {version: parse_objects(*statements) for version, statements in STATEMENTS.items()}
"""The contents of `sqlite_master` at a revision of a version."""

META_OBJECT = next(row for row in OBJECTS[SCHEMA_VERSION] if row[1] == "vmrag_meta")
