"""The embedded engine: a knowledge base in one file, in this process."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from vmrag_link.engines.base import Write
from vmrag_link.engines.creation import not_initialized_error
from vmrag_link.engines.doltlite import extent, history, schema
from vmrag_link.engines.doltlite.connection import Connection
from vmrag_link.engines.doltlite.history import WORKING
from vmrag_link.engines.doltlite.session import DoltliteSession, unfinished_branch
from vmrag_link.engines.folder import DOLTLITE_FILE, read_doltlite_stamp
from vmrag_link.engines.limits import USUAL_LIMITS, Limits
from vmrag_link.engines.own_branches import LINKS_BRANCH
from vmrag_link.engines.sql_engine import SqlEngine
from vmrag_link.errors import EngineFailed
from vmrag_link.models import At, Link, RevisionInfo, Row, WorkingSet

if TYPE_CHECKING:
    from vmrag_link.engines.doltlite.comparison import DoltliteComparison
    from vmrag_link.engines.reading import PlaceRows


class DoltliteEngine(SqlEngine[DoltliteSession, Connection]):
    """A knowledge base in one file. The modules of this package do the work."""

    def __init__(self, folder: Path, *, lock_timeout: float, limits: Limits) -> None:
        """Use `create`, `clone` or `open` instead."""
        super().__init__(DoltliteSession(folder, lock_timeout=lock_timeout, limits=limits))

    @functools.cached_property
    def _comparison(self) -> DoltliteComparison:
        from vmrag_link.engines.doltlite.comparison import DoltliteComparison

        return DoltliteComparison(self._session)

    @classmethod
    def create(cls, folder: Path, *, author: str, date: str, origin: str = "") -> DoltliteEngine:
        """Create a knowledge base. Its first revision, `vmrag_root`, holds the empty tables.

        `author` is `Name <email>`, `date` is ISO UTC. `origin`: see `opening.create_engine`. Raises
        `AlreadyInitialized`. A kill leaves no knowledge base.
        """
        from vmrag_link.engines.doltlite import transfer

        transfer.create_file(folder, author=author, date=date, origin=origin)
        return cls.open(folder)

    @classmethod
    def clone(cls, folder: Path, remote: str, url: str, *, limits: Limits = USUAL_LIMITS) -> DoltliteEngine:
        """Create a knowledge base from the contents at `url`.

        Its branches are heads of the remote. Raises `RemoteDamaged` if the remote has no
        `vmrag_root`, which means that another program wrote it, and the errors of `create` and
        `fetch`.
        """
        from vmrag_link.engines.doltlite import transfer

        transfer.clone_file(folder, remote, url, limits)
        return cls.open(folder, limits=limits)

    @classmethod
    def open(cls, folder: Path, *, lock_timeout: float = 30.0, limits: Limits = USUAL_LIMITS) -> DoltliteEngine:
        """Open an existing knowledge base. This never creates one.

        `lock_timeout` is in seconds, to wait for another writer. `limits` apply to data of remotes.
        Raises `NotInitialized`, `SchemaTooNew`, and `EngineFailed` for a file that is not a
        knowledge base.
        """
        path = folder / DOLTLITE_FILE
        if not cls.exists(folder):
            raise not_initialized_error(folder)
        extent.require_whole(path)
        return cls(folder, lock_timeout=lock_timeout, limits=limits)

    @staticmethod
    def exists(folder: Path) -> bool:
        """Return whether `open` would find a knowledge base. A killed creation leaves none."""
        return (folder / DOLTLITE_FILE).exists()

    def find_damage(self) -> str:
        try:
            rows = self._session.main.execute_long("PRAGMA integrity_check")
        except EngineFailed as error:
            return error.message
        messages = " ".join(str(row) for (row,) in rows).replace("*** in database main ***", "").split()
        return (
            "" if messages == ["ok"] else f"the knowledge base {self._session.file} is damaged ({' '.join(messages)})."
        )

    def read_stamp(self) -> object:
        return read_doltlite_stamp(self.folder)

    # -- revisions

    def log(self, revision: str, *, limit: int | None = None) -> Iterator[RevisionInfo]:
        return history.log(self._session.main, revision, limit)

    def is_bare(self, revision: str) -> bool:
        with self._session.open_reader(revision) as connection:
            return not schema.read_version(connection)

    def find_unreachable(self, revisions: Iterable[str], *, heads: Iterable[str] | None = None) -> list[str]:
        unreachable = history.find_unreachable(self._session.main, revisions, heads=heads)
        return [revision for revision in unreachable if self.has_revision(revision)]

    # -- remotes

    def remote_heads(self, remote: str) -> dict[str, str]:
        from vmrag_link.engines.doltlite import remotes

        return remotes.read_heads(self._session.main, remote)

    def all_remote_heads(self, branch: str | None = None) -> set[str]:
        from vmrag_link.engines.doltlite import remotes

        return remotes.read_all_heads(self._session.main, branch)

    def peek_heads(self, url: str) -> dict[str, str] | None:
        from vmrag_link.engines.doltlite import remotes

        return remotes.peek_heads(url)

    def fetch(self, remote: str, url: str) -> None:
        from vmrag_link.engines.doltlite import transfer

        transfer.fetch(self._session, remote, url)

    def require_valid_rows(self, at: At, *, since: str) -> None:
        from vmrag_link.engines.doltlite import inspection

        with self._session.open_reader(at) as connection:
            inspection.require_valid_rows(connection, WORKING if isinstance(at, WorkingSet) else at, since)

    def push(self, remote: str, url: str, heads: Mapping[str, str], *, force: bool = False) -> None:
        from vmrag_link.engines.doltlite import transfer

        transfer.push(self._session, remote, url, heads, force=force)

    def forget_remote(self, remote: str) -> None:
        from vmrag_link.engines.doltlite import transfer

        transfer.forget_remote(self._session, remote)

    def vet_revisions(
        self,
        url: str,
        revisions: Sequence[str],
        *,
        known_heads: Iterable[str],
        into: Path,
        limits: Limits,
        check_row: Callable[[Row], None],
    ) -> list[str]:
        from vmrag_link.engines.doltlite import transfer

        return transfer.vet_revisions(
            self._session, url, revisions, known_heads=known_heads, into=into, limits=limits, check_row=check_row
        )

    # -- reading

    @contextlib.contextmanager
    def _open_rows(self, at: At) -> Iterator[PlaceRows]:
        from vmrag_link.engines.doltlite import reading

        with self._session.open_reader(at) as connection:
            yield reading.DoltliteRows(connection)

    # -- writing

    def _store_rows(self, place: Connection, rows: Write) -> None:
        from vmrag_link.engines.doltlite import writing

        writing.store_rows(place, rows)

    def _begin_merge(self, place: Connection, joining: str) -> None:
        from vmrag_link.engines.doltlite import writing

        writing.begin_merge(place, joining)

    # -- links

    def _select_links(self, place: str, conditions: Mapping[str, str]) -> list[Link]:
        where = "WHERE " + " AND ".join(f"{column} = ?" for column in conditions) if conditions else ""
        with self._session.open_connection(place, with_links=True) as connection:
            return history.list_links(connection, where, list(conditions.values()))

    def _commit_links(
        self, start: str | None, put: Sequence[Link], remove: Sequence[str], *, message: str, author: str, date: str
    ) -> str | None:
        connect = functools.partial(self._session.open_connection, with_links=True)
        opened = unfinished_branch(self._session.writer, start, connect) if start else connect(LINKS_BRANCH)
        with opened as connection:
            return history.commit_links(connection, put, remove, message=message, author=author, date=date)
