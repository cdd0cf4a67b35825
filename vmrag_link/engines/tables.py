"""The versioned tables: which columns hold which fields of which records, in every engine."""

from __future__ import annotations

from vmrag_link.models import Collection, Document, Project, Record, Row

ROWS_HINT = "ask who pushed it, or run 'vmrag log' to find a sound revision, then 'vmrag pin REVISION'"
"""The hint for a pushed row that is not ours."""


class Table(Record, frozen=True):
    """A table of the newest version. `columns` begins with the keys.

    The columns are in the order of the record's fields, except in logical tables.
    """

    name: str
    record: type[Record]
    columns: tuple[str, ...]
    number_columns: frozenset[str] = frozenset()
    """Columns with whole numbers. All others hold texts."""

    key_count: int = 1
    since: int = 1
    """The first version of the schema with this table."""
    later_columns: tuple[tuple[str, int], ...] = ()
    """Columns that a later version added, each with that version."""

    def columns_in(self, version: int) -> tuple[str, ...]:
        """Return the columns of the table in this version."""
        later = dict(self.later_columns)
        return tuple(column for column in self.columns if later.get(column, 1) <= version)

    def select_list(self, version: int, prefix: str = "") -> list[str]:
        """Return all columns as SQL. A column that the version lacks is empty.

        A row that was written before its table had the column also reads as empty.
        """
        return [self._column_sql(column, version, prefix) for column in self.columns]

    def _column_sql(self, column: str, version: int, prefix: str) -> str:
        since = dict(self.later_columns).get(column)
        if since is None:
            return f"{prefix}{column}"
        return f"ifnull({prefix}{column}, '')" if since <= version else "''"


COLLECTIONS = Table(
    "collections",
    Collection,
    ("collection_name", *Collection.__struct_fields__[1:]),
    frozenset({"embedding_dimensions"}),
    later_columns=(("import_base", 2),),
)
DOCUMENTS = Table("documents", Document, ("collection_name", *Document.__struct_fields__[1:-1]), key_count=2)
PROJECTS = Table("projects", Project, Project.__struct_fields__, since=2)
_TEXT, _TIMES = ("title", "content", "content_hash"), ("created_at", "updated_at")
ISSUE_LOGS = Table(
    "issue_logs",
    Document,
    ("log_id", "project_id", "issue_number", *_TEXT, "log_type", *_TIMES, "metadata"),
    frozenset({"issue_number"}),
    since=2,
)
KNOWLEDGE_DOCS = Table(
    "knowledge_docs",
    Document,
    ("doc_id", "category", "tool_name", "tool_version", *_TEXT, *_TIMES, "metadata"),
    since=2,
)
LOGICAL_TABLES = (ISSUE_LOGS, KNOWLEDGE_DOCS)
"""Tables whose rows are shown as documents (see `engines.logical`)."""

TEXT_TABLES = (DOCUMENTS, *LOGICAL_TABLES)
"""Tables whose column `content` holds texts of any length."""

TABLES = (COLLECTIONS, DOCUMENTS, PROJECTS, *LOGICAL_TABLES)


def find_table(row: Row) -> Table:
    """Return the table that stores a record."""
    if isinstance(row, Document):
        return next(text for text in TEXT_TABLES if text.name == row.table)
    return COLLECTIONS if isinstance(row, Collection) else PROJECTS


HEADER_COLUMNS = ("collection_name", "doc_id", "title", "content_hash", "metadata")
COMPARED_COLUMNS = ("title", "content", "content_hash", "metadata", "source", "source_key", "file_type")
"""The columns in which two different documents with the same key differ: all except times."""


def prefix_end(prefix: str) -> str:
    """Return the first text, in the order of keys, after all texts with this prefix.

    The prefix is not empty, and its last character is not the last of Unicode.
    """
    following = ord(prefix[-1]) + 1
    return prefix[:-1] + chr(0xE000 if following == 0xD800 else following)  # noqa: PLR2004  surrogates cannot be stored
