"""Looking at places of a stranger's knowledge base without executing anything of it.

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
from vmrag_link.engines.base import LINKS_BRANCH
from vmrag_link.engines.inspection import LONGEST_LINK, MOST_LINKS, ForeignTables, RowCheck
from vmrag_link.engines.limits import Limits
from vmrag_link.engines.tables import COLLECTIONS, LOGICAL_TABLES, TABLES, TEXT_TABLES, Table
from vmrag_link.errors import EngineError, KnowledgeRefused, SchemaTooNew
from vmrag_link.models import Link, Row

UNREADABLE = (EngineError, msgspec.DecodeError, UnicodeDecodeError, ValueError)
"""What reading rows raises that are not records."""

ParentMap = Mapping[str, tuple[str, ...]]
"""The parents of revisions."""


class InspectedPlace(ABC):
    """At one place."""

    @abstractmethod
    def describe_foreign_objects(self, *, with_links: bool = False) -> str:
        """What stands there beside our tables, or instead of them; empty for nothing.

        `with_links`: the table of links may. Raises `SchemaTooNew`. Nothing else may be asked
        before.
        """

    @abstractmethod
    def read_version(self) -> int:
        """The schema's version; 0 where there is no table."""

    @abstractmethod
    def read_meta(self) -> list[tuple[Any, ...]]:
        """The first two rows of `vmrag_meta`."""

    @abstractmethod
    def query_values(self, queries: Sequence[str]) -> list[Any]:
        """The one value of the first row of each query; None where there is no row."""

    @abstractmethod
    def changed_rows_sql(self, table: Table, since: str) -> str:
        """SQL for the rows of a table that differ, with the columns of now as `to_…`."""

    @abstractmethod
    def read_stored(self, table: Table, since: str | None) -> Iterator[Row]:
        """The rows of a table, or those that came or changed `since`.

        Raises one of UNREADABLE for one that is no record.
        """

    @abstractmethod
    def has_links(self) -> bool: ...

    @abstractmethod
    def list_links(self) -> Sequence[Link]: ...

    def describe_odd_types(self, since: str | None) -> str:  # noqa: ARG002
        """What holds something else than its column's type, where an engine allows that."""
        return ""

    def list_tables(self) -> list[Table]:
        version = self.read_version()
        return [table for table in TABLES if table.since <= version]

    def read_rows(self, since: str | None) -> Iterator[Row]:
        """The rows that are records; raises as `stored`."""
        for table in self.list_tables():
            for each in self.read_stored(table, since):
                records.to_row(msgspec.convert(msgspec.structs.asdict(each), type=type(each)))
                yield each

    def describe_excess_rows(self, limits: Limits) -> str:
        """What there is too much of, as `more than 10 documents`; empty if nothing."""
        tables = self.list_tables()
        counts = self.query_values([f"SELECT count(*) AS v FROM {each.name}" for each in tables])
        for table, count in zip(tables, counts, strict=True):
            most = limits.collections if table is COLLECTIONS else limits.documents
            if int(count) > most:
                return f"more than {most:,} {_words(table)}"
        return ""

    def describe_twins(self) -> str:
        """What two rows share a name, as a sentence; empty if none.

        Two documents of one name could not be told apart. None of our programs makes such an id
        twice.
        """
        tables = [table for table in self.list_tables() if table in LOGICAL_TABLES]
        found = zip(tables, self.query_values([_twins_query(table) for table in tables]), strict=True)
        return next((f"a row of {each.name} has the name of a document" for each, row in found if row is not None), "")

    def has_longer_text(self, since: str | None, most: int) -> bool:
        """Whether a text, or one that differs from `since`, is longer than so many bytes."""
        texts = [table for table in self.list_tables() if table in TEXT_TABLES]
        longer = [
            f"{text.name} WHERE octet_length(content) > {most:d}"
            if since is None
            else f"{self.changed_rows_sql(text, since)} WHERE octet_length(to_content) > {most:d}"
            for text in texts
        ]
        return any(
            answer is not None
            for answer in self.query_values([f"SELECT 1 AS v FROM {each} LIMIT 1" for each in longer])
        )

    def describe_excess_links(self) -> str:
        """What stands beside links, or what of them is too large; empty if nothing."""
        tables = self.list_tables()
        beside = zip(
            tables, self.query_values([f"SELECT 1 AS v FROM {each.name} LIMIT 1" for each in tables]), strict=True
        )
        if table := next((each for each, row in beside if row is not None), None):
            return f"{_words(table)} beside links"
        if not self.has_links():
            return ""
        size = " + ".join(f"ifnull(octet_length({struct_field}), 0)" for struct_field in Link.__struct_fields__)
        values = ("count(*)", f"ifnull(max({size}), 0)")
        count, longest = map(int, self.query_values([f"SELECT {value} AS v FROM git_links" for value in values]))
        if count > MOST_LINKS:
            return f"more than {MOST_LINKS:,} links"
        return f"a link of more than {LONGEST_LINK:,} bytes" if longest > LONGEST_LINK else ""


class Inspector(ABC):
    """Looks at revisions that came from elsewhere."""

    unreadable: ClassVar[tuple[type[Exception], ...]] = ()
    """What any look at a head may raise that refuses the head."""

    limits: Limits

    @abstractmethod
    def open_place(self, revision: str) -> AbstractContextManager[InspectedPlace]: ...

    @abstractmethod
    def can_compare_with(self, revision: str) -> bool:
        """Whether the revision is here and has our tables, so that another one can be compared
        with it.
        """

    @abstractmethod
    def require_readable_info(self, revision: str) -> None:
        """Raises where the revision's own message, author and date cannot be read."""

    def describe_error(self, error: Exception) -> str:
        """Why a revision is refused that cannot be read."""
        return error.message if isinstance(error, EngineError) else str(error)

    # -- heads of branches

    def require_sound_heads(
        self,
        heads: Mapping[str, str],
        *,
        known: Mapping[str, str],
        whose: str = " of the remote",
        may_be_foreign: Callable[[str], bool] = lambda _: False,
    ) -> dict[str, str]:
        """Look at the heads of a remote's branches, except those that were looked at before
        (`known`).

        Returns the heads with tables of another program, of the branches that `may_be_foreign`.
        Raises `KnowledgeRefused`. A newer program's schema is no reason to refuse the rest, because
        nothing reads it here.
        """
        foreign: dict[str, str] = {}
        inspection.require_few_branches(heads, self.limits)
        seen = {(head, name == LINKS_BRANCH) for name, head in known.items()}  # what is allowed there differs
        nearby = next((head for name, head in known.items() if name != LINKS_BRANCH), None)
        for name, head in heads.items():
            of_links = name == LINKS_BRANCH
            if (head, of_links) in seen:
                continue
            seen.add((head, of_links))
            where = f"Revision {head[:12]} (KB branch {name[:80]!a}{whose})"
            try:
                ours = self._has_tables(head, where, known.get(name) or nearby, of_links=of_links)
            except ForeignTables:
                if not may_be_foreign(name):
                    raise
                foreign[name] = head
                continue
            if ours and not of_links:
                nearby = nearby or head  # what the next one shares with it is not looked at twice
        return foreign

    def _has_tables(self, head: str, where: str, base: str | None, *, of_links: bool) -> bool:
        """Whether a head has our tables and is sound. Only what differs from `base` is read."""
        try:
            unreadable = UNREADABLE if of_links else self.unreadable
            with inspection.refusing_head(where, self.limits, *unreadable), self.open_place(head) as look:
                if odd := look.describe_foreign_objects(with_links=of_links):
                    refusal = inspection.refused_head_error(where, odd)
                    raise ForeignTables(refusal.message, hint=refusal.hint)
                version = look.read_version()
                if of_links:
                    _require_links(look, where)
                elif version:
                    self._require_contents(look, where, base if base and self.can_compare_with(base) else None)
                return bool(version)
        except SchemaTooNew:
            return False

    def _require_contents(self, look: InspectedPlace, where: str, since: str | None) -> None:
        if much := look.describe_excess_rows(self.limits):
            raise inspection.refused_head_error(where, f"it holds {much}")
        if twins := look.describe_twins():
            raise inspection.refused_head_error(where, twins)
        if look.has_longer_text(since, self.limits.text_bytes):
            raise inspection.long_text_error(where, self.limits)
        if odd := look.describe_odd_types(since):
            raise inspection.refused_head_error(where, odd)
        with inspection.refusing_head(where, self.limits, *UNREADABLE):
            for row in look.read_rows(since):
                inspection.require_valid_row(row)

    # -- single revisions

    def require_sound_revisions(self, new: ParentMap, sound: RowCheck) -> None:
        """Look at all rows of new revisions: of each, what it has changed since its first parent.

        Raises `KnowledgeRefused`, but `SchemaTooNew` for what a newer program wrote.
        """
        inner = list_inner_revisions(new)
        for parent in {parents[0] for parents in new.values()} - new.keys():
            self._examine(parent)  # otherwise nothing could be said about what has changed since
        for each in TopologicalSorter(new).static_order():
            if each in new:
                self._examine(each, sound, since=new[each][0] if each in inner else None)

    def _examine(self, revision: str, sound: RowCheck | None = None, *, since: str | None = None) -> None:
        """The schema of a revision and, with `sound`, its rows, or those that changed `since`."""
        try:
            with self.open_place(revision) as look:
                _require_schema(look, revision)
                if sound is not None:
                    self.require_readable_info(revision)
                    self._require_few_rows(look, revision, since)
                    for row in look.read_rows(since):
                        sound(row)
        except (SchemaTooNew, KnowledgeRefused):
            raise
        except UNREADABLE as error:
            raise inspection.vetting_error(self.describe_error(error), revision) from error

    def _require_few_rows(self, look: InspectedPlace, revision: str, since: str | None) -> None:
        if much := look.describe_excess_rows(self.limits):
            raise inspection.vetting_error(f"it holds {much}", revision)
        if twins := look.describe_twins():
            raise inspection.vetting_error(twins, revision)
        if look.has_longer_text(since, self.limits.text_bytes):
            raise inspection.vetting_error("it holds a document that is too long", revision)


def _require_links(look: InspectedPlace, where: str) -> None:
    if much := look.describe_excess_links():
        raise inspection.refused_head_error(where, f"it holds {much}")
    for link in look.list_links():
        inspection.require_valid_link(link)


def _require_schema(look: InspectedPlace, revision: str) -> None:
    odd = look.describe_foreign_objects()
    if odd or not (version := look.read_version()):
        raise inspection.vetting_error(odd or "it has no tables", revision)
    if look.read_meta() != [("schema_version", str(version))]:
        raise inspection.vetting_error(f"its schema does not call itself version {version}", revision)


def list_inner_revisions(new: ParentMap) -> set[str]:
    """The revisions that others descend from."""
    return {parent for parents in new.values() for parent in parents}


def name_vetted_heads(new: ParentMap) -> dict[str, str]:
    """The new revisions that no other one descends from, by the names of branches for them."""
    inner = list_inner_revisions(new)
    return {f"vetted-{number}": each for number, each in enumerate(each for each in new if each not in inner)}


def collect_new_ancestors(
    parents: Mapping[str, tuple[str, ...]], heads: Collection[str], known: Collection[str]
) -> dict[str, tuple[str, ...]]:
    """What is not known of these revisions and their ancestors."""
    found: dict[str, tuple[str, ...]] = {}
    left = list(heads)
    while left:
        revision = left.pop()
        if revision not in found and revision not in known:
            found[revision] = parents.get(revision, ())  # a shallow clone has less than it names
            left += found[revision]
    return found


def _twins_query(table: Table) -> str:
    """SQL that finds an id of a `tables.LOGICAL` table in `documents`, in a collection of its
    kind.
    """
    prefix = logical.collections_prefix(table)
    after = prefix[:-1] + chr(ord(prefix[-1]) + 1)
    return (
        f"SELECT 1 AS v FROM documents WHERE collection_name >= '{prefix}' AND collection_name < '{after}'"
        f" AND doc_id IN (SELECT {table.columns[0]} FROM {table.name}) LIMIT 1"
    )


def _words(table: Table) -> str:
    return table.name.replace("_", " ")
