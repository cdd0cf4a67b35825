"""An open knowledge base: its write lock, its connection, and the places that were checked."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from vmrag_link import locks
from vmrag_link.engines.base import KEEP_BRANCH, LINKS_BRANCH, LOCK_NAME
from vmrag_link.engines.dolt import anchors, history, schema, unfinished
from vmrag_link.engines.dolt.connection import SqlConnection
from vmrag_link.engines.limits import Limits
from vmrag_link.errors import BranchMissing, KnowledgeMoved, KnowledgeRefused, SchemaTooNew
from vmrag_link.models import At, KbBranch, Working


class DoltSession:
    """`connection`: the one connection; each statement names the place where it runs.

    A place is checked for our tables and nothing else before anything of it is read or written,
    because what was fetched may hold anything.
    """

    def __init__(self, folder: Path, connection: SqlConnection, *, lock_timeout: float, limits: Limits) -> None:
        self.folder = folder
        self.connection = connection
        self.limits = limits
        self._lock_timeout = lock_timeout
        self._lock_depth = 0
        self._versions: dict[str, int] = {}

    def close(self) -> None:
        self.connection.release()

    @contextlib.contextmanager
    def writing(self, purpose: str, *, timeout: float | None = None) -> Iterator[None]:
        with contextlib.ExitStack() as held:
            if self._lock_depth == 0:
                seconds = self._lock_timeout if timeout is None else timeout
                held.enter_context(locks.exclusive(self.folder / LOCK_NAME, purpose=purpose, timeout=seconds))
                held.enter_context(self.connection.writing(purpose, seconds))
            self._lock_depth += 1
            try:
                yield
            finally:
                self._lock_depth -= 1

    # -- places

    def place(self, at: At) -> str:
        """How statements name a place that may be read: a revision, or a branch with its working
        set.

        Raises `RevisionMissing`, `BranchMissing`, `KnowledgeRefused`, `SchemaTooNew`.
        """
        self.version(at)
        return at.branch if isinstance(at, Working) else at

    def version(self, at: At) -> int:
        """The version of the schema at a place; 0 where there is no table. Raises as `place`."""
        if isinstance(at, Working):
            return self.check(self.require_branch(at.branch).name)
        history.require(self.connection, at)
        return self.check(at)

    def check(self, at: str) -> int:
        """As `version`, for a branch or a revision that is known to be here."""
        is_revision = history.is_hash(at)
        content = "" if is_revision else self.connection.value("dolt_hashof_db('WORKING')", at=at)
        key = f"{at} {content}"
        if key not in self._versions:
            where = f"Revision {at[:12]}" if is_revision else f"Branch {at!r}"
            also = schema.LINKS if at == LINKS_BRANCH else None
            self._versions[key] = schema.require_ours(self.connection, at, where, also=also)
        return self._versions[key]

    @contextlib.contextmanager
    def transaction_on(self, branch: str, purpose: str, expected: str) -> Iterator[str]:
        """A transaction on a branch whose head is the expected one until its end; the place."""
        with self.writing(purpose):
            self.require_head(branch, expected)
            self.check(branch)
            with self.connection.transaction(branch):
                yield branch

    def refusal(self, revision: str) -> KnowledgeRefused | None:
        try:
            self.place(revision)
        except KnowledgeRefused as error:
            return error
        except SchemaTooNew:
            pass  # its readers are told
        return None

    # -- branches

    def require_branch(self, name: str) -> KbBranch:
        found = history.branch(self.connection, name)
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
        if not history.unreachable(self.connection, [revision], without=without):
            return
        before = history.branch(self.connection, KEEP_BRANCH)
        head = self.kept(before.head if before else None, revision, reason=reason)
        self.connection.call("dolt_branch", "-f", KEEP_BRANCH, head)

    def kept(self, head: str | None, revision: str, *, reason: str) -> str:
        for each in (revision, *([head] if head else [])):
            self.place(each)
        return anchors.kept(self.connection, head, revision, f"Keep {revision}: {reason}")

    def collect_garbage(self) -> None:
        with self.writing("collect garbage"):
            unfinished.drop(self.connection)
            self.connection.call("dolt_gc")
            self.connection.release()  # a server ends all sessions by it
            self._versions.clear()
