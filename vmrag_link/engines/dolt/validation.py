"""Checking and copying a few revisions of a stranger's remote, without executing anything of it.

They are fetched into a repository of their own. A revision's rows are read only after its whole
schema proved to be ours, and always under limits.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from graphlib import TopologicalSorter
from pathlib import Path

from vmrag_link import permissions
from vmrag_link.engines import inspection
from vmrag_link.engines.dolt import creation, history, program, remotes, schema
from vmrag_link.engines.dolt.access import DoltAccess
from vmrag_link.engines.dolt.inspection import UNREADABLE, has_longer, rows, too_many, twins
from vmrag_link.engines.dolt.session import DoltSession
from vmrag_link.engines.dolt.shell_session import REMOTE_SECONDS
from vmrag_link.engines.inspection import Sound
from vmrag_link.engines.limits import Limits
from vmrag_link.errors import EngineError, EngineFailed, KnowledgeRefused, SchemaTooNew

_REMOTE = "theirs"
_VETTED = "vetted"


def take(
    url: str,
    revisions: Sequence[str],
    *,
    root: str,
    known: Collection[str],
    into: Path,
    limits: Limits,
    sound: Sound,
    access: DoltAccess,
) -> list[str]:
    """See `Engine.vet`. `known` needs no check, and everything else must descend from it; `root` is
    its first.
    """
    with _fetched(url, into.with_name("theirs"), limits, access) as session:
        connection = session.connection
        if not history.existing(connection, [root]):
            raise inspection.refused(inspection.STRANGE)
        there = history.existing(connection, revisions) - set(known)
        new = _new(history.parents(connection, there), there, known)
        inspection.require_descent(new, limits)
        inner = {parent for parents in new.values() for parent in parents}
        for parent in {parents[0] for parents in new.values()} - new.keys():
            _require_schema(session, parent)  # otherwise nothing could be said about what has changed since
        for each in TopologicalSorter(new).static_order():
            if each in new:
                _examine(session, each, limits, sound, since=new[each][0] if each in inner else None)
        if new:
            numbered = {
                f"vetted-{number}": each for number, each in enumerate(each for each in new if each not in inner)
            }
            _copy(session, numbered, into)
    return list(new)


def _new(
    parents: Mapping[str, tuple[str, ...]], heads: Iterable[str], known: Collection[str]
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


@contextlib.contextmanager
def _fetched(url: str, folder: Path, limits: Limits, access: DoltAccess) -> Iterator[DoltSession]:
    """All that is there, in a repository in a new folder; every piece is the one that its hash
    names.

    So what is known by name is known by content.
    """
    permissions.make_folder(folder)
    creation.make_empty(folder, access)
    with creation.opened(folder, access, limits) as connection:
        session = DoltSession(folder, connection, lock_timeout=30.0, limits=limits)
        remotes.register(folder, connection, _REMOTE, url)
        try:
            remotes.fetch(
                connection, _REMOTE, url, user=access.user, check=remotes.growth_check(folder, limits.file_bytes)
            )
            connection.release()
            program.check(folder, access.binary, timeout=REMOTE_SECONDS)
        except EngineFailed as error:
            raise inspection.refused(error.message) from error
        yield session


def _copy(session: DoltSession, heads: dict[str, str], into: Path) -> None:
    url = f"file://{into}"
    permissions.make_folder(into)
    remotes.register(session.folder, session.connection, _VETTED, url)
    check = remotes.growth_check(session.folder, session.limits.file_bytes)
    remotes.push(session.connection, _VETTED, url, heads, force=False, user="", check=check)


def _require_schema(session: DoltSession, revision: str) -> None:
    with _refusing(revision):
        odd, version = schema.inspect(session.connection, revision)
        if odd or not version:
            raise inspection.refused(odd or "it has no tables", revision)
        said = session.connection.rows("SELECT `key` AS k, value AS v FROM vmrag_meta LIMIT 2", at=revision)
        if [(row.get("k"), row.get("v")) for row in said] != [("schema_version", str(version))]:
            raise inspection.refused(f"its schema does not call itself version {version}", revision)


def _examine(session: DoltSession, revision: str, limits: Limits, sound: Sound, *, since: str | None) -> None:
    """All rows of a revision, or what it has changed `since` its first parent."""
    _require_schema(session, revision)
    with _refusing(revision):
        next(history.log(session.connection, revision, 1))
        if much := too_many(session, revision, limits):
            raise inspection.refused(f"it holds {much}", revision)
        if twin := twins(session, revision):
            raise inspection.refused(twin, revision)
        if has_longer(session, revision, since, limits.text_bytes):
            raise inspection.refused("it holds a document that is too long", revision)
        for row in rows(session, since, revision):
            sound(row)


@contextlib.contextmanager
def _refusing(revision: str) -> Iterator[None]:
    """Errors within become `KnowledgeRefused`, but for `SchemaTooNew`."""
    try:
        yield
    except (SchemaTooNew, KnowledgeRefused):
        raise
    except UNREADABLE as error:
        raise inspection.refused(error.message if isinstance(error, EngineError) else str(error), revision) from error
