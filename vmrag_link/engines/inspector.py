"""Inspection of places in an untrusted knowledge base, without executing anything from it.

A place may hold anything: tables that are views, triggers, rows of other types, texts that fill the
memory. So its tables are read only after its whole schema proved to be ours, and always under
limits.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from graphlib import TopologicalSorter
from typing import Any, ClassVar

import msgspec

from vmrag_link.engines import inspection, logical, records
from vmrag_link.engines.inspection import MAX_LINK_BYTES, MAX_LINKS, ForeignTables, RowCheck
from vmrag_link.engines.limits import Limits
from vmrag_link.engines.own_branches import LINKS_BRANCH
from vmrag_link.engines.tables import COLLECTIONS, LOGICAL_TABLES, TABLES, TEXT_TABLES, Table
from vmrag_link.errors import EngineError, KnowledgeRefused, SchemaTooNew
from vmrag_link.models import Link, Row

UNREADABLE = (EngineError, msgspec.DecodeError, UnicodeDecodeError, ValueError)
"""Errors of reading rows that are not records."""

ParentMap = Mapping[str, tuple[str, ...]]
"""The parents of revisions."""


class InspectedPlace(ABC):
    """The tables and rows at one place."""

    @abstractmethod
    def describe_foreign_objects(self, *, with_links: bool = False) -> str:
        """Describe the first object that is not one of our tables, or return an empty text.

        With `with_links`, the table of links is also allowed. Raises `SchemaTooNew`. Call this
        before any other method.
        """

    @abstractmethod
    def read_version(self) -> int:
        """Return the version of the schema, or 0 if there are no tables."""

    @abstractmethod
    def read_meta(self) -> list[tuple[Any, ...]]:
        """Return the first two rows of `vmrag_meta`."""

    @abstractmethod
    def query_values(self, queries: Sequence[str]) -> list[Any]:
        """Return the single value of the first row of each query, or None if it has no row."""

    @abstractmethod
    def changed_rows_sql(self, table: Table, since: str) -> str:
        """Return SQL for the rows of a table that differ, with the current columns as `to_…`."""

    @abstractmethod
    def read_stored(self, table: Table, since: str | None) -> Iterator[Row]:
        """Yield the rows of a table, or those that were added or changed `since` a revision.

        Raises one of UNREADABLE for a row that is not a record.
        """

    @abstractmethod
    def has_links(self) -> bool: ...

    @abstractmethod
    def list_links(self) -> Sequence[Link]: ...

    def describe_odd_types(self, since: str | None) -> str:  # noqa: ARG002
        """Describe a value of another type than its column, if the engine allows such values."""
        return ""

    def list_tables(self) -> list[Table]:
        version = self.read_version()
        return [table for table in TABLES if table.since <= version]

    def read_rows(self, since: str | None) -> Iterator[Row]:
        """Yield the rows of all tables as records.

        Raises one of UNREADABLE for a row that is not one.
        """
        for table in self.list_tables():
            for row in self.read_stored(table, since):
                records.to_row(msgspec.convert(msgspec.structs.asdict(row), type=type(row)))
                yield row

    def describe_excess_rows(self, limits: Limits) -> str:
        """Describe excess rows, such as `more than 10 documents`, or return an empty text."""
        tables = self.list_tables()
        counts = self.query_values([f"SELECT count(*) AS v FROM {table.name}" for table in tables])
        for table, count in zip(tables, counts, strict=True):
            limit = limits.collections if table is COLLECTIONS else limits.documents
            if int(count) > limit:
                return f"more than {limit:,} {_table_words(table)}"
        return ""

    def describe_twins(self) -> str:
        """Describe two rows that share a document name, or return an empty text.

        Two documents of one name could not be distinguished. No vmrag program creates such an id
        twice.
        """
        tables = [table for table in self.list_tables() if table in LOGICAL_TABLES]
        answers = self.query_values([_twins_query(table) for table in tables])
        for table, answer in zip(tables, answers, strict=True):
            if answer is not None:
                return f"a row of {table.name} has the same name as a document"
        return ""

    def has_longer_text(self, since: str | None, max_bytes: int) -> bool:
        """Return whether a text, or one that differs from `since`, is longer than `max_bytes`."""
        longer = [
            f"{table.name} WHERE octet_length(content) > {max_bytes:d}"
            if since is None
            else f"{self.changed_rows_sql(table, since)} WHERE octet_length(to_content) > {max_bytes:d}"
            for table in self.list_tables()
            if table in TEXT_TABLES
        ]
        answers = self.query_values([f"SELECT 1 AS v FROM {selection} LIMIT 1" for selection in longer])
        return any(answer is not None for answer in answers)

    def describe_excess_links(self) -> str:
        """Describe rows other than links, or links above the limits, or return an empty text."""
        tables = self.list_tables()
        answers = self.query_values([f"SELECT 1 AS v FROM {table.name} LIMIT 1" for table in tables])
        for table, answer in zip(tables, answers, strict=True):
            if answer is not None:
                return f"{_table_words(table)} next to the links"
        if not self.has_links():
            return ""
        size = " + ".join(f"ifnull(octet_length({column}), 0)" for column in Link.__struct_fields__)
        values = ("count(*)", f"ifnull(max({size}), 0)")
        count, longest = map(int, self.query_values([f"SELECT {value} AS v FROM git_links" for value in values]))
        if count > MAX_LINKS:
            return f"more than {MAX_LINKS:,} links"
        return f"a link of more than {MAX_LINK_BYTES:,} bytes" if longest > MAX_LINK_BYTES else ""


class Inspector(ABC):
    """Inspects revisions that came from elsewhere."""

    unreadable: ClassVar[tuple[type[Exception], ...]] = ()
    """Errors of inspecting a head that refuse the head."""

    limits: Limits

    @abstractmethod
    def open_place(self, revision: str) -> AbstractContextManager[InspectedPlace]: ...

    @abstractmethod
    def can_compare_with(self, revision: str) -> bool:
        """Return whether others can be compared with this revision.

        It must exist here and have our tables.
        """

    @abstractmethod
    def require_readable_info(self, revision: str) -> None:
        """Raise an error if the revision's message, author or date cannot be read."""

    def describe_error(self, error: Exception) -> str:
        """Describe why a revision that cannot be read is refused."""
        return error.message if isinstance(error, EngineError) else str(error)

    # -- heads of branches

    def require_sound_heads(
        self,
        heads: Mapping[str, str],
        *,
        checked_heads: Mapping[str, str],
        whose: str = " of the remote",
        may_be_foreign: Callable[[str], bool] = lambda _: False,
    ) -> dict[str, str]:
        """Check the heads of a remote's branches, except `checked_heads`.

        Return the heads with tables of another program, for branches that `may_be_foreign` accepts.
        Raises `KnowledgeRefused`. A newer program's schema is not a reason to refuse the other
        branches, because nothing reads it here.
        """
        foreign: dict[str, str] = {}
        inspection.require_few_branches(heads, self.limits)
        # The branch of links allows other tables, so its heads are checked separately.
        checked = {(head, name == LINKS_BRANCH) for name, head in checked_heads.items()}
        nearby = next((head for name, head in checked_heads.items() if name != LINKS_BRANCH), None)
        for name, head in heads.items():
            of_links = name == LINKS_BRANCH
            if (head, of_links) in checked:
                continue
            checked.add((head, of_links))
            where = f"revision {head[:12]} (KB branch {name[:80]!a}{whose})"
            try:
                has_tables = self._check_head(head, where, checked_heads.get(name) or nearby, of_links=of_links)
            except ForeignTables:
                if not may_be_foreign(name):
                    raise
                foreign[name] = head
                continue
            if has_tables and not of_links:
                nearby = nearby or head  # later branches are compared with this one
        return foreign

    def _check_head(self, head: str, where: str, base: str | None, *, of_links: bool) -> bool:
        """Check a head and return whether it has our tables.

        Only the difference from `base` is read.
        """
        try:
            unreadable = UNREADABLE if of_links else self.unreadable
            with inspection.refusing_head(where, self.limits, *unreadable), self.open_place(head) as place:
                if foreign := place.describe_foreign_objects(with_links=of_links):
                    refusal = inspection.refused_head_error(where, foreign)
                    raise ForeignTables(refusal.message, hint=refusal.hint)
                version = place.read_version()
                if of_links:
                    _require_links(place, where)
                elif version:
                    self._require_contents(place, where, base if base and self.can_compare_with(base) else None)
                return bool(version)
        except SchemaTooNew:
            return False

    def _require_contents(self, place: InspectedPlace, where: str, since: str | None) -> None:
        if excess := place.describe_excess_rows(self.limits):
            raise inspection.refused_head_error(where, f"it holds {excess}")
        if twins := place.describe_twins():
            raise inspection.refused_head_error(where, twins)
        if place.has_longer_text(since, self.limits.text_bytes):
            raise inspection.long_text_error(where, self.limits)
        if odd := place.describe_odd_types(since):
            raise inspection.refused_head_error(where, odd)
        with inspection.refusing_head(where, self.limits, *UNREADABLE):
            for row in place.read_rows(since):
                inspection.require_valid_row(row)

    # -- single revisions

    def require_valid_revisions(self, new: ParentMap, check_row: RowCheck) -> None:
        """Check the rows of new revisions.

        For a head, these are all rows. For other revisions, they are the rows that changed since
        the first parent.

        Raises `KnowledgeRefused`, or `SchemaTooNew` for revisions of a newer program.
        """
        inner = list_inner_revisions(new)
        for parent in {parents[0] for parents in new.values()} - new.keys():
            self._check_revision(parent)  # the parent must be readable to compare with it
        for revision in TopologicalSorter(new).static_order():
            if revision in new:
                self._check_revision(revision, check_row, since=new[revision][0] if revision in inner else None)

    def _check_revision(self, revision: str, check_row: RowCheck | None = None, *, since: str | None = None) -> None:
        """Check the schema of a revision and, with `check_row`, its rows (or those changed
        `since`).
        """
        try:
            with self.open_place(revision) as place:
                _require_schema(place, revision)
                if check_row is not None:
                    self.require_readable_info(revision)
                    self._require_few_rows(place, revision, since)
                    for row in place.read_rows(since):
                        check_row(row)
        except (SchemaTooNew, KnowledgeRefused):
            raise
        except UNREADABLE as error:
            raise inspection.vetting_error(self.describe_error(error), revision) from error

    def _require_few_rows(self, place: InspectedPlace, revision: str, since: str | None) -> None:
        if excess := place.describe_excess_rows(self.limits):
            raise inspection.vetting_error(f"it holds {excess}", revision)
        if twins := place.describe_twins():
            raise inspection.vetting_error(twins, revision)
        if place.has_longer_text(since, self.limits.text_bytes):
            raise inspection.vetting_error("it holds a document above the size limit", revision)


def _require_links(place: InspectedPlace, where: str) -> None:
    if excess := place.describe_excess_links():
        raise inspection.refused_head_error(where, f"it holds {excess}")
    for link in place.list_links():
        inspection.require_valid_link(link)


def _require_schema(place: InspectedPlace, revision: str) -> None:
    odd = place.describe_foreign_objects()
    if odd or not (version := place.read_version()):
        raise inspection.vetting_error(odd or "it has no tables", revision)
    if place.read_meta() != [("schema_version", str(version))]:
        raise inspection.vetting_error(f"its vmrag_meta does not contain schema version {version}", revision)


def list_inner_revisions(new: ParentMap) -> set[str]:
    """Return the revisions from which others descend."""
    return {parent for parents in new.values() for parent in parents}


def name_vetted_heads(new: ParentMap) -> dict[str, str]:
    """Return the new revisions from which no other descends, by names of branches for them."""
    inner = list_inner_revisions(new)
    return {f"vetted-{number}": head for number, head in enumerate(head for head in new if head not in inner)}


def collect_new_ancestors(
    parents: Mapping[str, tuple[str, ...]], heads: Collection[str], known_revisions: Collection[str]
) -> dict[str, tuple[str, ...]]:
    """Return those of the heads and their ancestors that are not known, with their parents."""
    ancestors: dict[str, tuple[str, ...]] = {}
    stack = list(heads)
    while stack:
        revision = stack.pop()
        if revision not in ancestors and revision not in known_revisions:
            ancestors[revision] = parents.get(revision, ())  # a shallow clone lacks some parents
            stack += ancestors[revision]
    return ancestors


def _twins_query(table: Table) -> str:
    """Return SQL that finds an id of a logical table in `documents`, in its kind of collection."""
    prefix = logical.collections_prefix(table)
    after = prefix[:-1] + chr(ord(prefix[-1]) + 1)
    return (
        f"SELECT 1 AS v FROM documents WHERE collection_name >= '{prefix}' AND collection_name < '{after}'"
        f" AND doc_id IN (SELECT {table.columns[0]} FROM {table.name}) LIMIT 1"
    )


def _table_words(table: Table) -> str:
    return table.name.replace("_", " ")
