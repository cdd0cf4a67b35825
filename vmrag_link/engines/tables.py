"""The versioned tables: which columns hold which fields of which records, in every engine."""

from __future__ import annotations

from vmrag_link.models import Collection, Document, Project, Record, Row

ROWS_HINT = (
    "Ask who pushed it what that is. Revisions that are sound are listed, and pinned, by: vmrag log, vmrag pin REVISION"
)
"""What helps where a row that somebody pushed is not ours."""


class Table(Record, frozen=True):
    """A table of the newest version; `columns`, keys first.

    They are in the order of the record's fields, but for `LOGICAL` tables.
    """

    name: str
    record: type[Record]
    columns: tuple[str, ...]
    number_columns: frozenset[str] = frozenset()
    """Columns that hold whole numbers; all others hold texts."""

    key_count: int = 1
    since: int = 1
    """The version of the schema that has it first."""
    later_columns: tuple[tuple[str, int], ...] = ()
    """Columns that a later version has first, each with that version."""

    def columns_in(self, version: int) -> tuple[str, ...]:
        """The columns that the table has in this version."""
        later = dict(self.later_columns)
        return tuple(column for column in self.columns if later.get(column, 1) <= version)

    def select_list(self, version: int, prefix: str = "") -> list[str]:
        """All columns as SQL; what a version lacks is empty.

        So is what a row lacks that was written before its table had the column.
        """
        return [self._selected(column, version, prefix) for column in self.columns]

    def _selected(self, column: str, version: int, prefix: str) -> str:
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
"""Tables whose rows are shown as documents of collections that they imply: `logical`."""

TEXT_TABLES = (DOCUMENTS, *LOGICAL_TABLES)
"""Tables whose column `content` holds texts of any length."""

TABLES = (COLLECTIONS, DOCUMENTS, PROJECTS, *LOGICAL_TABLES)


def find_table(row: Row) -> Table:
    """The table that a record is a row of."""
    if isinstance(row, Document):
        return next(text for text in TEXT_TABLES if text.name == row.table)
    return COLLECTIONS if isinstance(row, Collection) else PROJECTS


HEADER_COLUMNS = ("collection_name", "doc_id", "title", "content_hash", "metadata")
COMPARED_COLUMNS = ("title", "content", "content_hash", "metadata", "source", "source_key", "file_type")
"""What makes two documents with the same key differ: everything but times."""


def prefix_end(prefix: str) -> str:
    """The first text, in the order of keys, after all that begin with this one.

    It has a last character, and one that is not the last of Unicode.
    """
    following = ord(prefix[-1]) + 1
    return prefix[:-1] + chr(0xE000 if following == 0xD800 else following)  # noqa: PLR2004  between them nothing is stored
