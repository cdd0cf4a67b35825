"""The statements that make the tables, as each version of the schema has them.

A version, once released, never changes: revisions of it stay in every history. What is to differ is
a new version, with the statements that turn the one before into it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from vmrag_link.engines.base import SCHEMA_VERSION

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


def words(sql: str) -> list[str]:
    """A statement between what SQL takes for blanks; to Python other characters are, too, with
    which a name may begin.
    """
    return [word for word in re.split(_BLANKS, sql) if word]


def objects(*statements: str) -> frozenset[SchemaObject]:
    """What these statements, of the kinds that ours are, make."""
    found = []
    for each in statements:
        parts = words(each.replace("IF NOT EXISTS ", ""))
        name, table = parts[2].partition("(")[0], parts[4 if parts[1] == "INDEX" else 2].partition("(")[0]
        found.append((parts[1].lower(), name, table, " ".join(parts)))
    return frozenset(found)


OBJECTS = {version: objects(*statements) for version, statements in STATEMENTS.items()}
"""What `sqlite_master` holds at a revision of a version."""

META = next(each for each in OBJECTS[SCHEMA_VERSION] if each[1] == "vmrag_meta")
