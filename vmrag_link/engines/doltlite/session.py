"""An open knowledge base: its write lock, and the connections to it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from vmrag_link import locks, permissions
from vmrag_link.engines.base import KEEP_BRANCH, LINKS_BRANCH, LOCK_NAME
from vmrag_link.engines.doltlite import anchors, history, links, schema, unfinished
from vmrag_link.engines.doltlite.connection import Connection
from vmrag_link.engines.doltlite.creation import FILE_NAME
from vmrag_link.engines.limits import Limits
from vmrag_link.errors import BranchMissing, KnowledgeMoved, KnowledgeRefused, SchemaTooNew
from vmrag_link.models import At, KbBranch, Working

IDLE = 2
"""Connections at revisions that stay open: a sync reads both ends of a difference several times."""


class EngineSession:
    """`main` stays open for revisions and branches.

    Documents are read and written through a connection of their own (1 ms), opened at their
    revision or branch: a connection that was open while its branch was moved goes on showing the
    old rows. A revision never moves, so the last ones that were read stay open. Each is checked
    first for our tables and nothing else (0.1 ms), because what was fetched may hold anything.
    """

    def __init__(self, folder: Path, *, lock_timeout: float, limits: Limits) -> None:
        self.folder = folder
        self.file = folder / FILE_NAME
        self.limits = limits
        self._lock_timeout = lock_timeout
        self._lock_depth = 0
        self._checked: set[str] = set()
        self._idle: dict[str, Connection] = {}
        self.main = Connection(self.file, timeout=lock_timeout, longest=limits.text_bytes)

    def close(self) -> None:
        self._close_idle()
        self.main.close()

    @contextlib.contextmanager
    def writing(self, purpose: str, *, timeout: float | None = None) -> Iterator[None]:
        with contextlib.ExitStack() as held:
            if self._lock_depth == 0:
                seconds = self._lock_timeout if timeout is None else timeout
                lock = locks.exclusive(self.folder / LOCK_NAME, purpose=purpose, timeout=seconds)
                held.enter_context(lock)
            self._lock_depth += 1
            try:
                yield
            finally:
                self._lock_depth -= 1

    # -- connections

    def connection(self, at: str | None) -> Connection:
        """Open one at a revision or a branch; None is the default branch, which is the root's.

        Everything that is read or written goes through here. Raises `KnowledgeRefused` where there
        is anything but our tables. A revision is checked once.
        """
        connection = Connection(self.file, at=at, timeout=self._lock_timeout, longest=self.limits.text_bytes)
        if at is not None and at not in self._checked:
            is_revision = history.is_hash(at)
            try:
                also = links.OBJECTS if at == LINKS_BRANCH else frozenset()
                schema.require_ours(connection, f"Revision {at[:12]}" if is_revision else f"Branch {at!r}", also=also)
            except BaseException:
                connection.close()
                raise
            if is_revision:
                self._checked.add(at)
        return connection

    @contextlib.contextmanager
    def reading(self, at: At) -> Iterator[Connection]:
        """As `connection`, for the block. Raises `RevisionMissing` or `BranchMissing` besides."""
        if isinstance(at, Working):
            with self.connection(self.require_branch(at.branch).name) as connection:
                yield connection
            return
        history.require(self.main, at)
        connection = self._idle.pop(at) if at in self._idle else self.connection(at)
        try:
            yield connection
        except BaseException:
            connection.close()  # a statement may still stream
            raise
        if at in self._idle:  # a block within this one read the same revision
            connection.close()
            return
        self._idle[at] = connection
        if len(self._idle) > IDLE:
            self._idle.pop(next(iter(self._idle))).close()

    def require(self, at: At) -> None:
        """Raises what `reading` raises."""
        with self.reading(at):
            pass

    def _close_idle(self) -> None:
        while self._idle:
            self._idle.popitem()[1].close()

    @contextlib.contextmanager
    def transaction_on(self, branch: str, purpose: str, expected: str) -> Iterator[Connection]:
        """A transaction on a branch whose head is the expected one until its end."""
        with self.writing(purpose):
            self.require_head(branch, expected)
            with self.connection(branch) as connection, connection.transaction():
                schema.version(connection)
                yield connection

    def refusal(self, revision: str) -> KnowledgeRefused | None:
        try:
            self.require(revision)
        except KnowledgeRefused as error:
            return error
        except SchemaTooNew:
            pass  # its readers are told
        return None

    # -- branches

    def require_branch(self, name: str) -> KbBranch:
        found = history.branch(self.main, name)
        if found is None:
            raise BranchMissing(f"The knowledge base has no branch {name!r}.", branch=name)
        return found

    def require_head(self, name: str, expected: str) -> KbBranch:
        found = self.require_branch(name)
        if found.head != expected:
            raise KnowledgeMoved(
                f"The branch {name!r} is at {found.head[:12]}, not at {expected[:12]} any more; nothing was written.",
                hint="Look at what changed and try again: vmrag status",
                branch=name,
                head=found.head,
                expected=expected,
            )
        return found

    # -- what garbage collection keeps

    def keep(self, revision: str, reason: str, *, without: str = "") -> None:
        """Anchor a revision, unless a branch other than `without` reaches it.

        Hold the write lock.
        """
        if not history.unreachable(self.main, [revision], without=without):
            return
        before = history.branch(self.main, KEEP_BRANCH)
        head = self.kept(before.head if before else None, revision, reason=reason)
        self.main.execute(
            "SELECT dolt_branch('-f', ?, ?)" if before else "SELECT dolt_branch(?, ?)", (KEEP_BRANCH, head)
        )

    def kept(self, head: str | None, revision: str, *, reason: str) -> str:
        for each in (revision, *([head] if head else [])):
            self.require(each)
        return anchors.kept(self.main, head, revision, f"Keep {revision}: {reason}", self.connection)

    def collect_garbage(self) -> None:
        with self.writing("collect garbage"):
            self._close_idle()
            unfinished.drop(self.main)
            self.main.execute_long("SELECT dolt_gc()")
        permissions.settle(self.folder)  # it is a new file
