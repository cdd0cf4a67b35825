"""The tables of each version of the schema, which version stands at a place, and what brings it to
the next one.

A version, once released, never changes: revisions of it stay in every history. What is to differ is
a new version, with the statements that turn the one before into it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from vmrag_link import terminal_text
from vmrag_link.engines.base import SCHEMA_VERSION
from vmrag_link.engines.doltlite.connection import Connection
from vmrag_link.engines.records import require_storable
from vmrag_link.engines.tables import ROWS_HINT
from vmrag_link.errors import RowsInvalid, SchemaTooNew

_MOST_SHOWN = 100
_VERSION = "[1-9][0-9]{0,8}"


def create_tables(connection: Connection) -> None:
    for table in STATEMENTS[SCHEMA_VERSION]:
        connection.execute(table)
    connection.execute("INSERT INTO vmrag_meta VALUES ('schema_version', ?)", (str(SCHEMA_VERSION),))


def upgrade_tables(connection: Connection, needed: int) -> int:
    """Bring the place where the connection stands to at least this version; returns the one that it
    has then.

    Call it in the transaction of the first write that an older version cannot hold. The same
    statements make the same tables everywhere, so two upgrades merge.
    """
    found = read_version(connection)
    for number in range(found + 1, needed + 1):
        for statement in UPGRADES[number]:
            connection.execute(statement)
    if found < needed:
        connection.execute("UPDATE vmrag_meta SET value = ? WHERE key = 'schema_version'", (str(needed),))
    return max(found, needed)


def describe_foreign_objects(connection: Connection, *, also: frozenset[SchemaObject] = frozenset()) -> str:
    """What a place holds beside the tables of its version, or instead of them: any other table,
    index, trigger, view or virtual table. Empty for nothing.

    Some may be in `also`; and there may be nothing at all, as in anchors and before the first
    revision. Raises `SchemaTooNew` where a newer program wrote it. Nothing else may be asked of a
    place before: a table may stand there under the name of what is asked.
    """
    rows = connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_master")
    found = {(str(kind), str(name), str(table), " ".join(split_words(str(sql)))) for kind, name, table, sql in rows}
    if not found:
        return ""
    try:
        said = _stored_version(connection) if META_OBJECT in found else SCHEMA_VERSION
    except RowsInvalid:
        return "it does not say which version of the schema it has"
    ours = OBJECTS[said]
    if ours <= found <= ours | also:
        return ""
    kind, name = min(found.symmetric_difference(ours) - also)[:2]
    what = terminal_text.escape_line(f"{kind} {name[:_MOST_SHOWN]!r}")  # both may be a stranger's words
    return f"the {what} is not as version {said} of the schema has it"


def require_known_schema(connection: Connection, where: str, *, also: frozenset[SchemaObject] = frozenset()) -> None:
    """Raises `KnowledgeRefused`, which says `where` it is, for what is `strange`."""
    if odd := describe_foreign_objects(connection, also=also):
        from vmrag_link.engines import inspection

        raise inspection.foreign_place_error(where, odd)


def schemas_differ(connection: Connection, one: str, other: str) -> bool:
    """Whether two revisions differ in anything that `strange` looks at, by their tables, indexes,
    triggers and views, and the version that they say they have.

    Asked where the connection stands, which must be at tables of ours.
    """
    objects = connection.execute("SELECT 1 FROM dolt_schema_diff(?, ?) LIMIT 1", (one, other))
    return bool(objects or connection.execute("SELECT 1 FROM dolt_diff_vmrag_meta(?, ?) LIMIT 1", (one, other)))


def read_version(connection: Connection) -> int:
    """The schema's version where the connection stands; 0 before there was one (the engine's own
    initial commit).

    Raises `SchemaTooNew` when a newer program wrote it, `RowsInvalid` where it is no number.
    """
    if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'vmrag_meta'"):
        return 0
    return _stored_version(connection)


def _stored_version(connection: Connection) -> int:
    rows = connection.execute("SELECT value FROM vmrag_meta WHERE key = 'schema_version'")
    said = re.fullmatch(_VERSION, str(rows[0][0])) if rows else None
    if said is None:
        raise RowsInvalid(f"The knowledge base {connection.path} does not say which schema it has.", hint=ROWS_HINT)
    found = int(said[0])
    if found > SCHEMA_VERSION:
        raise SchemaTooNew(
            f"The knowledge base has schema version {found}; this program knows versions up to {SCHEMA_VERSION}.",
            hint="Install a newer vmrag-link: python -m pip install --upgrade vmrag-link",
            found=found,
            known=SCHEMA_VERSION,
        )
    return found


def is_dirty(connection: Connection) -> bool:
    """Whether the branch on which the connection stands has uncommitted rows."""
    return bool(connection.execute("SELECT 1 FROM dolt_status LIMIT 1"))


def commit(connection: Connection, message: str, author: str, date: str, *options: str) -> str:
    """Commit everything where the connection stands; returns the revision."""
    texts = (
        *options,
        require_storable(message, "The message"),
        require_storable(author, "The author"),
        require_storable(date, "The date"),
    )
    rows = connection.execute(
        f"SELECT dolt_commit('-A', {'?, ' * len(options)}'-m', ?, '--author', ?, '--date', ?)", texts
    )
    revision: str = rows[0][0]
    return revision


# Texts compare as bytes (SQLite's default collation) and have no length limit; VARCHAR and LONGTEXT
# say what Dolt needs. WITHOUT ROWID: rows are stored by their key alone, so that equal contents
# have equal hashes however they were written. No NOT NULL: every merge would look for it in all
# rows (35 ms instead of 1 at 50,000). What is stored are records, without nulls. No UNIQUE beside
# the keys: two branches may each have added a row, and a merge must lose neither.
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
    # As the engine writes a table to which a column was added.
    2: (_META, _COLLECTIONS.replace(") WITHOUT", f", {_IMPORT_BASE}) WITHOUT"), _DOCUMENTS, *_OTHERS),
}
"""What makes the tables of a version."""

UPGRADES: Mapping[int, tuple[str, ...]] = {2: (f"ALTER TABLE collections ADD COLUMN {_IMPORT_BASE}", *_OTHERS)}
"""What makes the tables of a version from those of the version before."""

SchemaObject = tuple[str, str, str, str]
"""A row of `sqlite_master`: type, name, table, and its statement with single spaces."""

_BLANKS = r"[ \t\n\f\r]+"


def split_words(sql: str) -> list[str]:
    """A statement between what SQL takes for blanks; to Python other characters are, too, with
    which a name may begin.
    """
    return [word for word in re.split(_BLANKS, sql) if word]


def parse_objects(*statements: str) -> frozenset[SchemaObject]:
    """What these statements, of the kinds that ours are, make."""
    found = []
    for statement in statements:
        parts = split_words(statement.replace("IF NOT EXISTS ", ""))
        name, table = parts[2].partition("(")[0], parts[4 if parts[1] == "INDEX" else 2].partition("(")[0]
        found.append((parts[1].lower(), name, table, " ".join(parts)))
    return frozenset(found)


OBJECTS = {version: parse_objects(*statements) for version, statements in STATEMENTS.items()}
"""What `sqlite_master` holds at a revision of a version."""

META_OBJECT = next(each for each in OBJECTS[SCHEMA_VERSION] if each[1] == "vmrag_meta")
