"""The engine `dolt`: a knowledge base in a Dolt repository, or on a `dolt sql-server`."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from vmrag_link.engines.base import Write
from vmrag_link.engines.creation import not_initialized_error
from vmrag_link.engines.dolt import (
    history,
    inspection,
    program,
    reading,
    remotes,
    schema,
    server_database,
    transfer,
    writing,
)
from vmrag_link.engines.dolt.access import DoltAccess
from vmrag_link.engines.dolt.comparison import WORKING, DoltComparison
from vmrag_link.engines.dolt.connection import SqlConnection, quote_literals
from vmrag_link.engines.dolt.server import ServerConnection
from vmrag_link.engines.dolt.session import DoltSession, unfinished_branch
from vmrag_link.engines.dolt.shell import ShellConnection, limit_answer_bytes
from vmrag_link.engines.folder import DOLT_FOLDER
from vmrag_link.engines.limits import USUAL_LIMITS, Limits
from vmrag_link.engines.own_branches import LINKS_BRANCH, ROOT_BRANCH
from vmrag_link.engines.reading import PlaceRows
from vmrag_link.engines.sql_engine import SqlEngine
from vmrag_link.engines.tables import DOCUMENTS
from vmrag_link.errors import EngineFailed
from vmrag_link.models import At, Link, RevisionInfo, Row, WorkingSet


class DoltEngine(SqlEngine[DoltSession, str]):
    """A knowledge base in Dolt. The modules of this package do the work."""

    def __init__(self, session: DoltSession, access: DoltAccess) -> None:
        """Use `create`, `clone` or `open` instead."""
        super().__init__(session)
        self._access = access

    @functools.cached_property
    def _comparison(self) -> DoltComparison:
        return DoltComparison(self._session)

    @classmethod
    def create(
        cls,
        folder: Path,
        *,
        author: str,
        date: str,
        access: DoltAccess = DoltAccess(),  # noqa: B008  frozen
        origin: str = "",
    ) -> DoltEngine:
        """Create a knowledge base, in a database of the server if `access` names one.

        See `opening.create_engine` for the arguments.
        """
        make = server_database.create_database if access.server else schema.create_repository
        make(folder, author=author, date=date, access=access, origin=origin)
        return cls.open(folder, access=access)

    @classmethod
    def clone(
        cls,
        folder: Path,
        remote: str,
        url: str,
        *,
        limits: Limits = USUAL_LIMITS,
        access: DoltAccess = DoltAccess(),  # noqa: B008  frozen
    ) -> DoltEngine:
        """Create a knowledge base from the contents at `url`.

        Only `vmrag_root` becomes a branch here. The others are known as heads of the remote. Raises
        `RemoteDamaged` if the remote has no `vmrag_root`, which means that another program wrote
        it, and the errors of `create` and `fetch`.
        """
        transfer.clone_repository(folder, remote, url, limits, access)
        return cls.open(folder, limits=limits, access=access)

    @classmethod
    def open(
        cls,
        folder: Path,
        *,
        lock_timeout: float = 30.0,
        limits: Limits = USUAL_LIMITS,
        access: DoltAccess = DoltAccess(),  # noqa: B008  frozen
    ) -> DoltEngine:
        """Open an existing knowledge base. This never creates one.

        `lock_timeout` is in seconds, to wait for another writer. `limits` apply to data of remotes.
        Raises `NotInitialized`, `SchemaTooNew`, `EngineFailed` if the files are not a knowledge
        base, `DoltMissing`, and `ConfigInvalid` if it is on a server that `access` does not name.
        """
        if not cls.exists(folder):
            raise not_initialized_error(folder)
        max_answer_bytes = limit_answer_bytes(limits)
        connection: SqlConnection
        if server_database.is_on_server(folder):
            access = server_database.resolve_access(folder, access)
            connection = ServerConnection(access, max_answer_bytes=max_answer_bytes, folder=folder)
        else:
            program.locate_program(access.binary)
            connection = ShellConnection(folder, access, max_answer_bytes=max_answer_bytes, timeout=lock_timeout)
        session = DoltSession(folder, connection, lock_timeout=lock_timeout, limits=limits)
        return cls(session, access)

    @staticmethod
    def exists(folder: Path) -> bool:
        """Return whether `open` would find a knowledge base. A killed creation leaves none."""
        return (folder / DOLT_FOLDER).exists() or server_database.is_on_server(folder)

    @property
    def shared(self) -> bool:
        return server_database.is_on_server(self.folder)

    def find_damage(self) -> str:
        if self.shared:
            return inspection.find_server_damage(self._session)
        with self._session.write_lock("check the knowledge base"):
            self._session.connection.end_session()  # the check needs exclusive access to the repository
            try:
                program.check_repository(self.folder, self._access.binary)
            except EngineFailed as error:
                return error.message
        return ""

    def read_stamp(self) -> object:
        return self._session.connection.read_stamp()

    # -- revisions

    def log(self, revision: str, *, limit: int | None = None) -> Iterator[RevisionInfo]:
        return history.log(self._session.connection, revision, limit)

    def is_bare(self, revision: str) -> bool:
        return not self._session.read_version(revision)

    def find_unreachable(self, revisions: Iterable[str], *, heads: Iterable[str] | None = None) -> list[str]:
        connection = self._session.connection
        unreachable = history.find_unreachable(connection, revisions, heads=heads)
        existing = history.find_existing(connection, unreachable)
        return [revision for revision in unreachable if revision in existing]

    def protect_revision(self, revision: str) -> None:
        with self.write_lock("protect a pinned revision"):
            self._session.protect_revision(revision)

    # -- remotes

    def remote_heads(self, remote: str) -> dict[str, str]:
        return remotes.read_heads(self.folder, remote)

    def foreign_heads(self, remote: str) -> dict[str, str]:
        return remotes.read_foreign_heads(self.folder, remote)

    def all_remote_heads(self, branch: str | None = None) -> set[str]:
        all_heads = (entry.heads for entry in remotes.read_known_remotes(self.folder).values())
        return {head for heads in all_heads for name, head in heads.items() if branch in (None, name)}

    def peek_heads(self, url: str) -> dict[str, str] | None:
        return transfer.peek_heads(url, self._access)

    def fetch(self, remote: str, url: str) -> None:
        self._require_reachable(url)
        transfer.fetch(self._session, self._access, remote, url, user=self._remote_user)

    def push(self, remote: str, url: str, heads: Mapping[str, str], *, force: bool = False) -> None:
        self._require_reachable(url)
        transfer.push(self._session, self._access, remote, url, heads, force=force, user=self._remote_user)

    @property
    def _remote_user(self) -> str:
        """The user for remotes; empty on a server, which logs in without our environment."""
        return "" if server_database.is_on_server(self.folder) else self._access.user

    def _require_reachable(self, url: str) -> None:
        if server_database.is_on_server(self.folder):
            server_database.require_reachable(self._access, url)

    def forget_remote(self, remote: str) -> None:
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
        return transfer.vet_revisions(
            self._session,
            self._access,
            url,
            revisions,
            known_heads=known_heads,
            into=into,
            limits=limits,
            check_row=check_row,
        )

    def list_docs_and_tags(self, revisions: Iterable[str]) -> list[str]:
        connection = self._session.connection

        def read_docs(at: str) -> set[tuple[str, str]]:
            rows = connection.query_rows("SELECT doc_name AS name, doc_text AS text FROM dolt_docs", at=at)
            return {(str(row["name"]), str(row.get("text"))) for row in rows}

        default_docs = read_docs(ROOT_BRANCH)  # Dolt itself shows AGENT.md in every repository
        docs = {name for revision in revisions for name, _ in read_docs(revision) - default_docs}
        tags = {f"tag {row['v']}" for row in connection.query_rows("SELECT tag_name AS v FROM dolt_tags")}
        return sorted(docs) + sorted(tags)

    def find_undefined_collections(self, branch: str, *, since: str) -> list[str]:
        self._session.require_readable(WorkingSet(branch))
        query = (
            f"SELECT DISTINCT to_collection_name AS v FROM dolt_diff({quote_literals([since, WORKING, DOCUMENTS.name])})"
            " WHERE diff_type <> 'removed' AND to_collection_name NOT IN (SELECT collection_name FROM collections)"
        )
        rows = self._session.connection.query_rows(query, at=branch)
        return sorted(str(row["v"]) for row in rows)

    # -- reading

    def require_valid_rows(self, at: At, *, since: str) -> None:
        inspection.require_valid_rows(self._session, at, since)

    @contextlib.contextmanager
    def _open_rows(self, at: At) -> Iterator[PlaceRows]:
        yield reading.DoltRows(self._session, at)

    # -- writing

    def _store_rows(self, place: str, rows: Write) -> None:
        writing.store_rows(self._session, place, rows)

    def _complete_rows(self, place: str, head: str) -> None:
        writing.complete_rows(self._session, place, head)

    def _begin_merge(self, place: str, joining: str) -> None:
        writing.begin_merge(self._session.connection, place, joining)

    # -- links

    def _select_links(self, place: str, conditions: Mapping[str, str]) -> list[Link]:
        self._session.check_place(place, with_links=True)
        return history.list_links(self._session.connection, place, conditions)

    def _commit_links(
        self, start: str | None, put: Sequence[Link], remove: Sequence[str], *, message: str, author: str, date: str
    ) -> str | None:
        connection = self._session.connection
        self._session.check_place(start or LINKS_BRANCH, with_links=True)
        if start is None:
            return history.commit_links(
                connection, LINKS_BRANCH, put, remove, message=message, author=author, date=date
            )
        with unfinished_branch(connection, start) as at:
            return history.commit_links(connection, at, put, remove, message=message, author=author, date=date)
