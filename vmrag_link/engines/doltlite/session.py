"""An open knowledge base, and the connections to it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from vmrag_link import permissions
from vmrag_link.engines.base import DOLTLITE_FILE, LINKS_BRANCH, ROOT_BRANCH, UNFINISHED_BRANCH
from vmrag_link.engines.base_session import BaseSession, Stamp, read_doltlite_stamp
from vmrag_link.engines.doltlite import extent, history, schema
from vmrag_link.engines.doltlite.connection import Connection
from vmrag_link.engines.doltlite.library import FETCH_AGAIN
from vmrag_link.engines.limits import Limits
from vmrag_link.errors import Busy, EngineFailed
from vmrag_link.models import At, KbBranch, WorkingSet
from vmrag_link.paths import read_file_stamp

MAX_IDLE = 2
"""Connections for reading that stay open: a sync reads both ends of a difference several times."""


COMPACTED_NAME = "compacted"
"""Holds the size in bytes that the file had after it was last compacted."""

COMPACT_BYTES = 4_000_000


class DoltliteSession(BaseSession[Connection]):
    """`main` stays open for revisions and branches. It cannot write. `writer` is opened when a
    branch changes.

    Documents are read and written through a connection of their own, opened at their revision or
    branch. The last ones that were read stay open. A revision never moves. A connection that was
    open while another one moved its branch continues to show the old rows, so one at a branch is
    used again only if nobody has written to the file since. Each new connection is checked for
    tables that are not ours (0.1 ms), because a fetch can bring anything.
    """

    engine = "doltlite"

    def __init__(self, folder: Path, *, lock_timeout: float, limits: Limits) -> None:
        super().__init__(folder, lock_timeout=lock_timeout, limits=limits)
        self.file = folder / DOLTLITE_FILE
        self._checked: set[tuple[str, bool]] = set()
        self._comparable: set[str] = set()
        self._idle: dict[At, tuple[Connection, Stamp]] = {}
        self._writer: Connection | None = None
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
        # Unchanged, it may end with what a killed writer left, which the next one cuts off.
        if read_file_stamp(self.file) != before:
            extent.note_length(self.file)

    # -- connections

    @property
    def writer(self) -> Connection:
        """A connection that changes branches, remotes and the file as a whole."""
        if self._writer is None:
            self._writer = Connection(self.file, timeout=self._lock_timeout, longest=self.limits.text_bytes)
        return self._writer

    def _open_main(self) -> Connection:
        """Open a connection that cannot write, at the beginning of the knowledge base. Opened for
        writing, an empty or zeroed file would become a new database.

        Raise `EngineFailed` for a file that was not written by this program, `KnowledgeRefused`,
        `SchemaTooNew`.
        """
        connection = Connection(self.file, access="read", timeout=self._lock_timeout, longest=self.limits.text_bytes)
        try:
            self._require_knowledge_base(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _require_knowledge_base(self, connection: Connection) -> None:
        if not schema.read_version(connection):
            raise EngineFailed(f"{self.file} is not a knowledge base: its tables are missing.", hint=FETCH_AGAIN)
        schema.require_known_schema(connection, f"The beginning of {self.file}")

    def open_connection(self, at: str | None, *, with_links: bool = False) -> Connection:
        """Open one at a revision or a branch; None is the default branch, which is the root's.

        Everything that is read or written goes through here. Raises `KnowledgeRefused` where there
        is anything but our tables (`with_links`: and that of links). A revision is checked once.
        """
        connection = Connection(self.file, at=at, timeout=self._lock_timeout, longest=self.limits.text_bytes)
        with_links = with_links or at == LINKS_BRANCH
        if at is not None and (at, with_links) not in self._checked:
            is_revision = history.is_hash(at)
            try:
                also = history.LINK_OBJECTS if with_links else frozenset()
                schema.require_known_schema(
                    connection, f"Revision {at[:12]}" if is_revision else f"Branch {at!r}", also=also
                )
            except BaseException:
                connection.close()
                raise
            if is_revision:
                self._checked.add((at, with_links))
        return connection

    @contextlib.contextmanager
    def open_reader(self, at: At) -> Iterator[Connection]:
        """As `connection`, for the block. Raises `RevisionMissing` or `BranchMissing` besides."""
        opened = self._opened(at)
        try:
            yield opened[0]
        except GeneratorExit:  # what is read row by row was left before its end
            self._keep(at, opened)
            raise
        except BaseException:
            opened[0].close()
            raise
        self._keep(at, opened)

    def _keep(self, at: At, opened: tuple[Connection, Stamp]) -> None:
        """Keep a connection for the next who reads there.

        Not one on which a statement still streams, nor if a block within its block has left one.
        """
        if opened[0].statements or at in self._idle:
            opened[0].close()
            return
        self._idle[at] = opened
        if len(self._idle) > MAX_IDLE:
            self._idle.pop(next(iter(self._idle)))[0].close()

    def _opened(self, at: At) -> tuple[Connection, Stamp]:
        """One that lies idle, or a new one; with what the file looked like before it was opened."""
        now = read_doltlite_stamp(self.folder)
        idle = self._idle.pop(at, None)
        if isinstance(at, WorkingSet):
            if idle and idle[1] == now:
                return idle
            if idle:
                idle[0].close()
            return self.open_connection(self.require_branch(at.branch).name), now
        history.require_revisions(self.main, at)
        return idle or (self.open_connection(at), now)

    def has_tables_of_root(self, *revisions: str) -> bool:
        """Return whether these have the tables of the root, which were checked when the session was
        opened, and nothing else: then `main` can compare them. To open each takes a hundred times
        as long.

        Raises `RevisionMissing`.
        """
        unchecked = [revision for revision in revisions if revision not in self._comparable]
        history.require_revisions(self.main, *unchecked)
        for revision in unchecked:
            if schema.schemas_differ(self.main, self.require_branch(ROOT_BRANCH).head, revision):
                return False
            self._comparable.add(revision)
        return True

    def require_readable(self, at: At) -> None:
        """Raises what `reading` raises."""
        with self.open_reader(at):
            pass

    def _close_idle(self) -> None:
        while self._idle:
            self._idle.popitem()[1][0].close()

    @contextlib.contextmanager
    def branch_transaction(self, branch: str, purpose: str, expected: str) -> Iterator[Connection]:
        with self.write_lock(purpose):
            self.require_head(branch, expected)
            # Closed under the lock: closing writes, and `watched` notes the length of the file.
            with self._opened(WorkingSet(branch))[0] as connection, connection.transaction():
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
        return history.map_parents(self.main, revisions)

    def read_parents(self, revision: str) -> tuple[str, ...]:
        return history.read_parents(self.main, revision)

    def compact_if_grown(self) -> None:
        """Opening reads what was appended, a millisecond a megabyte.

        Whatever our own branches ever stood at is anchored, so it stays. A size that cannot be
        noted is no reason to fail: the revision is committed.
        """
        note = self.folder / COMPACTED_NAME
        with (
            contextlib.suppress(OSError, ValueError, EngineFailed, Busy),
            self.write_lock("compact the knowledge base"),
        ):
            before = int(note.read_text()) if note.exists() else 0
            if self.file.stat().st_size - before > max(COMPACT_BYTES, before // 2):
                self.collect_garbage()
                permissions.make_file(note)
                note.write_text(str(self.file.stat().st_size))

    # -- branches

    def require_revision(self, revision: str) -> None:
        history.require_revisions(self.main, revision)

    def has_revision(self, revision: str) -> bool:
        return history.revision_exists(self.main, revision)

    def merge_base(self, one: str, other: str) -> str | None:
        return history.merge_base(self.main, one, other)

    def is_ancestor(self, ancestor: str, descendant: str) -> bool:
        return history.is_ancestor(self.main, ancestor, descendant)

    def find_unreachable(self, revisions: Iterable[str], *, without: str = "") -> list[str]:
        return history.find_unreachable(self.main, revisions, without=without)

    def list_branches(self) -> list[KbBranch]:
        return history.list_branches(self.main)

    def find_branch(self, name: str) -> KbBranch | None:
        return history.find_branch(self.main, name)

    def set_branch(self, name: str, to: str) -> None:
        there = self.find_branch(name) is not None
        self.writer.execute("SELECT dolt_branch('-f', ?, ?)" if there else "SELECT dolt_branch(?, ?)", (name, to))

    def drop_branch(self, name: str) -> None:
        self.writer.execute("SELECT dolt_branch('-D', ?)", (name,))

    def join_histories(self, head: str, revision: str, message: str) -> str:
        """Takes 5-10 ms and a few KB, whatever the revision holds."""
        with unfinished_branch(self.writer, revision, self.open_connection) as connection:
            with connection.transaction():
                for (table,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'"):
                    quoted = table.replace('"', '""')
                    connection.execute(f'DROP TABLE "{quoted}"')
            emptied = _commit_all(connection, message)
            connection.execute("SELECT dolt_reset('--soft', ?)", (head,))
            _commit_all(connection, message)
            connection.execute("SELECT dolt_merge('--no-ff', '-m', ?, ?)", (message, emptied))
            return _head(connection)

    def collect_garbage(self) -> None:
        with self.write_lock("collect garbage"):
            self._close_idle()
            drop_unfinished(self.writer)
            extent.forget_length(self.file)
            self.writer.execute_long("SELECT dolt_gc()")
            extent.note_length(self.file)
            self.main.close()  # of the file that was replaced
            self.main = self._open_main()
        permissions.apply_folder_mode(self.folder)  # it is a new file


@contextlib.contextmanager
def unfinished_branch(writer: Connection, revision: str, connect: Callable[[str], Connection]) -> Iterator[Connection]:
    """A connection on the branch, which is made at the revision and dropped at the end. Do not
    nest.

    The caller holds the write lock until the result is anchored. `connect` opens a connection on a
    branch.
    """
    drop_unfinished(writer)
    writer.execute("SELECT dolt_branch(?, ?)", (UNFINISHED_BRANCH, revision))
    try:
        with connect(UNFINISHED_BRANCH) as connection:
            yield connection
    finally:
        drop_unfinished(writer)


def drop_unfinished(writer: Connection) -> None:
    """Remove the branch, if a kill has left it. The caller holds the write lock."""
    if writer.execute("SELECT 1 FROM dolt_branches WHERE name = ?", (UNFINISHED_BRANCH,)):
        writer.execute("SELECT dolt_branch('-D', ?)", (UNFINISHED_BRANCH,))


def _commit_all(connection: Connection, message: str) -> str:
    """The head afterwards; what is equal to its parent is not committed."""
    connection.execute("SELECT dolt_commit('-A', '--skip-empty', '-m', ?)", (message,))
    return _head(connection)


def _head(connection: Connection) -> str:
    head: str = connection.execute("SELECT dolt_hashof('HEAD')")[0][0]
    return head
