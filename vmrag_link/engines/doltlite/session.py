"""An open knowledge base, and the connections to it."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from vmrag_link import permissions
from vmrag_link.engines.base import missing_revision_error
from vmrag_link.engines.base_session import BaseSession
from vmrag_link.engines.doltlite import extent, history, schema
from vmrag_link.engines.doltlite.connection import Connection
from vmrag_link.engines.doltlite.library import FETCH_AGAIN
from vmrag_link.engines.folder import DOLTLITE_FILE, Stamp, read_doltlite_stamp
from vmrag_link.engines.limits import Limits
from vmrag_link.engines.own_branches import LINKS_BRANCH, ROOT_BRANCH, UNFINISHED_BRANCH
from vmrag_link.errors import Busy, EngineFailed
from vmrag_link.file_access import read_file_stamp
from vmrag_link.models import At, KbBranch, WorkingSet

MAX_IDLE = 2
"""Number of read connections that stay open: a sync reads both ends of a difference several times.
"""


COMPACTED_NAME = "compacted"
"""The file with the size in bytes that the knowledge base had after it was last compacted."""

COMPACT_BYTES = 4_000_000


class _StoredState(NamedTuple):
    """Results of `main` at a stamp of the file."""

    stamp: Stamp | None
    branches: dict[str, KbBranch | None]
    """The branches that were looked up by name."""
    all_branches: list[KbBranch]
    """All branches, or none if they were not listed."""
    revisions: set[str]
    """Existing revisions."""


class _OpenedConnection(NamedTuple):
    connection: Connection
    stamp: Stamp
    """The stamp of the file before the connection was opened."""


class DoltliteSession(BaseSession[Connection]):
    """An open knowledge base. `main` stays open for revisions and branches, and cannot write.

    Documents are read and written through separate connections, opened at their revision or branch.
    The last ones that were read stay open. A revision never moves. A connection that was open while
    another one moved its branch continues to show the old rows, so a connection at a branch is
    reused only if nothing wrote to the file since. Each new connection is checked for tables that
    are not ours (0.1 ms), because a fetch can bring anything.
    """

    engine = "doltlite"

    def __init__(self, folder: Path, *, lock_timeout: float, limits: Limits) -> None:
        super().__init__(folder, lock_timeout=lock_timeout, limits=limits)
        self.file = folder / DOLTLITE_FILE
        self._checked: set[tuple[str, bool]] = set()
        self._comparable: set[str] = set()
        self._idle: dict[At, _OpenedConnection] = {}
        self._writer: Connection | None = None
        self._stored: _StoredState | None = None
        self.main = self._open_main()

    def close(self) -> None:
        self._close_idle()
        self.main.close()
        if self._writer:
            self._writer.close()

    @contextlib.contextmanager
    def watch_writes(self) -> Iterator[None]:
        before = read_file_stamp(self.file)
        yield
        # An unchanged file may end with data of a killed writer, which the next one cuts off.
        if read_file_stamp(self.file) != before:
            extent.record_length(self.file)

    # -- connections

    @property
    def writer(self) -> Connection:
        """The connection that changes branches, remotes and the whole file.

        It is opened on first use.
        """
        if self._writer is None:
            self._writer = Connection(self.file, timeout=self._lock_timeout, max_text_bytes=self.limits.text_bytes)
        return self._writer

    def _open_main(self) -> Connection:
        """Open a connection that cannot write, at the beginning of the knowledge base.

        A connection that can write would turn an empty or zeroed file into a new database. Raises
        `EngineFailed` for a file that this program did not write, `KnowledgeRefused` and
        `SchemaTooNew`.
        """
        connection = Connection(
            self.file, access="read", timeout=self._lock_timeout, max_text_bytes=self.limits.text_bytes
        )
        try:
            self._require_knowledge_base(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _require_knowledge_base(self, connection: Connection) -> None:
        if not schema.read_version(connection):
            raise EngineFailed(f"{self.file} is not a knowledge base: its tables are missing.", hint=FETCH_AGAIN)
        schema.require_known_schema(connection, f"the first revision of {self.file}")

    def open_connection(self, at: str | None, *, with_links: bool = False) -> Connection:
        """Open a connection at a revision or a branch; None is the default branch, the root's.

        All reading and writing uses it. Raises `KnowledgeRefused` for a place with anything except
        our tables (`with_links`: and that of links). A revision is checked once.
        """
        connection = Connection(self.file, at=at, timeout=self._lock_timeout, max_text_bytes=self.limits.text_bytes)
        with_links = with_links or at == LINKS_BRANCH
        if at is not None and (at, with_links) not in self._checked:
            is_revision = history.is_hash(at)
            try:
                also = history.LINK_OBJECTS if with_links else frozenset()
                schema.require_known_schema(
                    connection, f"revision {at[:12]}" if is_revision else f"branch {at!r}", also=also
                )
            except BaseException:
                connection.close()
                raise
            if is_revision:
                self._checked.add((at, with_links))
        return connection

    @contextlib.contextmanager
    def open_reader(self, at: At) -> Iterator[Connection]:
        """Open a connection for the block, or reuse one.

        Raises `RevisionMissing`, `BranchMissing` and `KnowledgeRefused`.
        """
        opened = self._take_connection(at)
        try:
            yield opened.connection
        except GeneratorExit:  # the caller stopped reading before the end
            self._keep_idle(at, opened)
            raise
        except BaseException:
            opened.connection.close()
            raise
        self._keep_idle(at, opened)

    def _keep_idle(self, at: At, opened: _OpenedConnection) -> None:
        """Keep a connection for the next reader of the same place.

        Close it instead if a statement still streams on it, or if a nested block has already left
        one.
        """
        if opened.connection.statements or at in self._idle:
            opened.connection.close()
            return
        self._idle[at] = opened
        if len(self._idle) > MAX_IDLE:
            self._idle.pop(next(iter(self._idle))).connection.close()

    def _take_connection(self, at: At) -> _OpenedConnection:
        """Return an idle or a new connection."""
        now = read_doltlite_stamp(self.folder)
        idle = self._idle.pop(at, None)
        if isinstance(at, WorkingSet):
            if idle and idle.stamp == now:
                return idle
            if idle:
                idle.connection.close()
            return _OpenedConnection(self.open_connection(self.require_branch(at.branch).name), now)
        self.require_revision(at)
        return idle or _OpenedConnection(self.open_connection(at), now)

    def has_tables_of_root(self, *revisions: str) -> bool:
        """Return whether these revisions have exactly the tables of the root.

        The root's tables were checked when the session was opened, so `main` can compare these
        revisions. Opening each one takes a hundred times as long. Raises `RevisionMissing`.
        """
        unchecked = [revision for revision in revisions if revision not in self._comparable]
        for revision in unchecked:
            self.require_revision(revision)
        for revision in unchecked:
            if schema.schemas_differ(self.main, self.require_branch(ROOT_BRANCH).head, revision):
                return False
            self._comparable.add(revision)
        return True

    def require_readable(self, at: At) -> None:
        """Raise the error of `open_reader`, if any."""
        with self.open_reader(at):
            pass

    def _close_idle(self) -> None:
        while self._idle:
            self._idle.popitem()[1].connection.close()

    @contextlib.contextmanager
    def branch_transaction(self, branch: str, purpose: str, expected: str) -> Iterator[Connection]:
        with self.write_lock(purpose):
            self.require_head(branch, expected)
            # Close it under the lock: closing writes, and `watch_writes` records the length.
            with self._take_connection(WorkingSet(branch)).connection as connection, connection.transaction():
                schema.read_version(connection)
                yield connection

    @contextlib.contextmanager
    def revision_transaction(self, revision: str) -> Iterator[Connection]:
        with unfinished_branch(self.writer, revision, self.open_connection) as connection, connection.transaction():
            schema.read_version(connection)
            yield connection

    def is_dirty(self, place: Connection) -> bool:
        return schema.is_dirty(place)

    def commit(self, place: Connection, message: str, author: str, date: str, *options: str) -> str:
        return schema.commit(place, message, author, date, *options)

    def discard_changes(self, branch: str) -> None:
        with self.open_connection(branch) as connection:
            connection.execute("SELECT dolt_reset('--hard')")

    def map_parents(self, revisions: Iterable[str]) -> dict[str, tuple[str, ...]]:
        hashes = json.dumps([text for text in dict.fromkeys(revisions) if history.is_hash(text)])
        parents_by_revision: dict[str, tuple[str, ...]] = {}
        for revision, parent in self.main.stream(history.PARENTS, (hashes,)):
            parents_by_revision[revision] = (*parents_by_revision.get(revision, ()), *([parent] if parent else []))
        return parents_by_revision

    def read_parents(self, revision: str) -> tuple[str, ...]:
        sql = "SELECT parent_hash FROM dolt_commit_ancestors WHERE commit_hash = ? ORDER BY parent_index"
        return tuple(parent for (parent,) in self.main.execute(sql, (revision,)) if parent)

    def compact_if_grown(self) -> None:
        """Compact the file if it has grown much.

        Opening it reads the appended data, 1 ms per megabyte. Everything that our own branches ever
        pointed to is anchored, so it stays. A failure to record the size is ignored, because the
        revision is committed.
        """
        size_file = self.folder / COMPACTED_NAME
        with (
            contextlib.suppress(OSError, ValueError, EngineFailed, Busy),
            self.write_lock("compact the knowledge base"),
        ):
            before = int(size_file.read_text()) if size_file.exists() else 0
            if self.file.stat().st_size - before > max(COMPACT_BYTES, before // 2):
                self.collect_garbage()
                permissions.make_file(size_file)
                size_file.write_text(str(self.file.stat().st_size))

    # -- branches

    def require_revision(self, revision: str) -> None:
        if not self.has_revision(revision):
            raise missing_revision_error(revision)

    def _require_both(self, one: str, other: str) -> None:
        self.require_revision(one)
        self.require_revision(other)

    def has_revision(self, revision: str) -> bool:
        existing = self._get_stored().revisions
        if revision not in existing and history.revision_exists(self.main, revision):
            existing.add(revision)
        return revision in existing

    def _get_stored(self) -> _StoredState:
        """Return the results after the last write of any process. A command asks often."""
        try:
            stamp = read_doltlite_stamp(self.folder)
        except OSError:  # `main` still reads a file that was deleted
            stamp = None
        if self._stored is None or stamp is None or self._stored.stamp != stamp:
            self._stored = _StoredState(stamp, {}, [], set())
        return self._stored

    def merge_base(self, one: str, other: str) -> str | None:
        self._require_both(one, other)
        base: str | None = self.main.execute("SELECT dolt_merge_base(?, ?)", (one, other))[0][0]
        return base

    def is_ancestor(self, ancestor: str, descendant: str) -> bool:
        self._require_both(ancestor, descendant)
        return bool(self.main.execute(history.FROM_REVISION, (descendant, ancestor)))

    def find_unreachable(self, revisions: Iterable[str], *, without: str = "") -> list[str]:
        return history.find_unreachable(self.main, revisions, without=without)

    def list_branches(self) -> list[KbBranch]:
        stored = self._get_stored()
        if not stored.all_branches:
            rows = self.main.execute(f"SELECT name, hash, dirty {history.BRANCHES} ORDER BY name")
            stored.all_branches.extend(KbBranch(name, head, bool(dirty)) for name, head, dirty in rows)
        return [*stored.all_branches]

    def find_branch(self, name: str) -> KbBranch | None:
        branches = self._get_stored().branches
        if name not in branches:
            rows = self.main.execute(f"SELECT name, hash, dirty {history.BRANCHES} AND name = ?", (name,))
            branches[name] = KbBranch(rows[0][0], rows[0][1], bool(rows[0][2])) if rows else None
        return branches[name]

    def set_branch(self, name: str, to: str) -> None:
        exists = self.find_branch(name) is not None
        self.writer.execute("SELECT dolt_branch('-f', ?, ?)" if exists else "SELECT dolt_branch(?, ?)", (name, to))

    def drop_branch(self, name: str) -> None:
        self.writer.execute("SELECT dolt_branch('-D', ?)", (name,))

    def join_histories(self, head: str, revision: str, message: str) -> str:
        """See `BaseSession.join_histories`.

        It takes 5 to 10 ms and a few KB, however large the revision is.
        """
        with unfinished_branch(self.writer, revision, self.open_connection) as connection:
            with connection.transaction():
                for (table,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'"):
                    quoted = table.replace('"', '""')
                    connection.execute(f'DROP TABLE "{quoted}"')
            emptied = _commit_all(connection, message)
            connection.execute("SELECT dolt_reset('--soft', ?)", (head,))
            _commit_all(connection, message)
            connection.execute("SELECT dolt_merge('--no-ff', '-m', ?, ?)", (message, emptied))
            return _read_head(connection)

    def collect_garbage(self) -> None:
        with self.write_lock("collect garbage"):
            self._close_idle()
            drop_unfinished(self.writer)
            extent.forget_length(self.file)
            self.writer.execute_long("SELECT dolt_gc()")
            extent.record_length(self.file)
            self.main.close()  # it is open at the replaced file
            self.main = self._open_main()
        permissions.apply_folder_mode(self.folder)  # the file is new


@contextlib.contextmanager
def unfinished_branch(writer: Connection, revision: str, connect: Callable[[str], Connection]) -> Iterator[Connection]:
    """Create `UNFINISHED_BRANCH` at a revision, open a connection on it, and drop it at the end.

    Do not nest. The caller holds the write lock until the result is anchored. `connect` opens a
    connection on a branch.
    """
    drop_unfinished(writer)
    writer.execute("SELECT dolt_branch(?, ?)", (UNFINISHED_BRANCH, revision))
    try:
        with connect(UNFINISHED_BRANCH) as connection:
            yield connection
    finally:
        drop_unfinished(writer)


def drop_unfinished(writer: Connection) -> None:
    """Remove the branch if a kill has left it. The caller holds the write lock."""
    if writer.execute("SELECT 1 FROM dolt_branches WHERE name = ?", (UNFINISHED_BRANCH,)):
        writer.execute("SELECT dolt_branch('-D', ?)", (UNFINISHED_BRANCH,))


def _commit_all(connection: Connection, message: str) -> str:
    """Commit all changes, unless there are none, and return the head."""
    connection.execute("SELECT dolt_commit('-A', '--skip-empty', '-m', ?)", (message,))
    return _read_head(connection)


def _read_head(connection: Connection) -> str:
    head: str = connection.execute("SELECT dolt_hashof('HEAD')")[0][0]
    return head
