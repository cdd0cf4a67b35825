"""Checking and copying a few revisions of a stranger's file, without executing anything of it.

The file may hold anything: tables that are views, triggers, rows of other types, texts that fill
the memory. So a revision's tables are read only after its whole schema proved to be ours, and
always under limits.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

import msgspec

from vmrag_link.engines import inspection, records
from vmrag_link.engines.doltlite import history, remotes, schema
from vmrag_link.engines.doltlite.connection import Connection
from vmrag_link.engines.inspection import Sound
from vmrag_link.engines.limits import Limits
from vmrag_link.engines.tables import COLLECTIONS, LOGICAL, TABLES, Table
from vmrag_link.errors import EngineError, EngineFailed, SchemaTooNew
from vmrag_link.models import Row

Ancestors = Mapping[str, tuple[str, ...]]
"""The parents of revisions."""

_REMOTE = "vetted"
_PARENTS = """
    SELECT commit_hash, parent_hash FROM dolt_commit_ancestors
    WHERE commit_hash IN (SELECT value FROM json_each(?)) ORDER BY parent_index"""


def take(
    file: Path, revisions: Sequence[str], *, root: str, known: Collection[str], into: Path, limits: Limits, sound: Sound
) -> list[str]:
    """See `EngineError.vet`. `known` needs no check, and everything else must descend from it;
    `root` is its first.
    """
    try:
        with Connection(file, access="read", longest=limits.text_bytes) as connection:
            _require_whole(connection)
            if not history.exists(connection, root):
                raise inspection.refused(inspection.STRANGE)
            there = [each for each in revisions if each not in known and history.exists(connection, each)]
            new = _new(connection, there, known, limits)
    except EngineFailed as error:
        raise inspection.refused(_why(error, file)) from error
    if new:
        inner = {parent for parents in new.values() for parent in parents}
        heads = [each for each in new if each not in inner]
        with Connection(file) as connection:
            numbered = {f"vetted-{number}": each for number, each in enumerate(heads)}
            remotes.push(connection, _REMOTE, f"file://{into}", numbered)
        for parent in {parents[0] for parents in new.values()} - new.keys():
            with _checked_connection(into, parent, limits):
                pass  # otherwise nothing could be said about what has changed since
        for each in TopologicalSorter(new).static_order():
            if each in new:
                _examine(into, each, limits, sound, since=new[each][0] if each in inner else None)
    return list(new)


def _require_whole(connection: Connection) -> None:
    """Every piece is the one that its hash names: so what is known by name is known by content."""
    if connection.execute_long("PRAGMA integrity_check") != [("ok",)]:
        raise inspection.refused("its file is damaged")


def _new(connection: Connection, revisions: Sequence[str], known: Collection[str], limits: Limits) -> Ancestors:
    """What is not known of these revisions and their ancestors."""
    found: dict[str, tuple[str, ...]] = {}
    left = set(revisions)
    while left:
        layer: dict[str, tuple[str, ...]] = dict.fromkeys(left, ())
        for revision, parent in connection.stream(_PARENTS, (json.dumps(sorted(left)),)):
            layer[revision] += (parent,) if parent else ()
        found |= layer
        inspection.require_descent(found, limits)
        left = {parent for parents in layer.values() for parent in parents} - found.keys() - set(known)
    return found


def _examine(file: Path, revision: str, limits: Limits, sound: Sound, *, since: str | None) -> None:
    """All rows of a revision, or what it has changed `since` its first parent."""
    with _checked_connection(file, revision, limits) as connection:
        next(history.log(connection, revision, 1))
        if much := too_many(connection, limits):
            raise inspection.refused(f"it holds {much}", revision)
        if twin := twins(connection):
            raise inspection.refused(twin, revision)
        for row in rows(connection, since, revision):
            sound(row)


@contextlib.contextmanager
def _checked_connection(file: Path, revision: str, limits: Limits) -> Iterator[Connection]:
    """A connection at a revision whose tables are ours.

    Errors within become `KnowledgeRefused`, but for `SchemaTooNew`.
    """
    try:
        with Connection(file, at=revision, access="read", longest=limits.text_bytes) as connection:
            _require_ours(connection)
            yield connection
    except SchemaTooNew:
        raise
    except (EngineError, msgspec.ValidationError) as error:
        raise inspection.refused(_why(error, file), revision) from error


def _require_ours(connection: Connection) -> None:
    if odd := schema.strange(connection):
        raise EngineFailed(odd)
    version = schema.version(connection)
    if connection.execute("SELECT key, value FROM vmrag_meta LIMIT 2") != [("schema_version", str(version))]:
        raise EngineFailed(f"its schema does not call itself version {version}")


def tables(connection: Connection) -> Iterator[tuple[Table, int]]:
    """The tables of the version where the connection stands, and that version."""
    version = schema.version(connection)
    return ((each, version) for each in TABLES if each.since <= version)


def too_many(connection: Connection, limits: Limits) -> str:
    """What a revision holds too many of, as `more than 10 documents`; empty if nothing."""
    for table, _ in tables(connection):
        most = limits.collections if table is COLLECTIONS else limits.documents
        if connection.execute(f"SELECT count(*) FROM {table.name}")[0][0] > most:  # noqa: S608  our own names
            return f"more than {most:,} {table.name.replace('_', ' ')}"
    return ""


def twins(connection: Connection) -> str:
    """What two rows of a revision share a name, as a sentence; empty if none."""
    found = (each for each, _ in tables(connection) if each in LOGICAL)
    return next((inspection.twins(each) for each in found if connection.execute(inspection.twins_query(each))), "")


def rows(connection: Connection, since: str | None, revision: str) -> Iterator[Row]:
    """The rows that are records.

    A column can hold values of any type, so all others are refused.
    """
    for table, version in tables(connection):
        for columns in _stored(connection, table, version, since, revision):
            found = records.record(table, columns)
            records.row(msgspec.convert(msgspec.structs.asdict(found), type=type(found)))
            yield found


def _stored(
    connection: Connection, table: Table, version: int, since: str | None, revision: str
) -> Iterator[tuple[Any, ...]]:
    if since is None:
        return connection.stream(f"SELECT {', '.join(table.selected(version))} FROM {table.name}")  # noqa: S608  our own names
    names = ", ".join(table.selected(version, "to_"))
    sql = f"SELECT {names} FROM dolt_diff_{table.name}(?, ?) WHERE diff_type <> 'removed'"  # noqa: S608  our own names
    return connection.stream(sql, (since, revision))


def _why(error: Exception, file: Path) -> str:
    if not isinstance(error, EngineError):
        return str(error)
    said = (error.result_message if isinstance(error, EngineFailed) else "") or error.message
    return said.replace(f"The knowledge base {file}", "it")
