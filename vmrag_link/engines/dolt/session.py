"""An open knowledge base: its connection, the checked places, and a cache of branches.

A checkout needs the branches of the knowledge base, and usually the pin has not moved. Starting
`dolt` for this takes longer than all the rest. So the branches are cached in a file with the stamp
at which they were read. The cache is valid until the stamp changes, and each write of any program
changes it (`folder.read_dolt_stamp`). A session writes the cache before it ends.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import msgspec

from vmrag_link import hints
from vmrag_link.engines import inspection
from vmrag_link.engines.base_session import BaseSession
from vmrag_link.engines.dolt import history, schema
from vmrag_link.engines.dolt.connection import (
    SqlConnection,
    parse_bool,
    quote_identifier,
    quote_literal,
    quote_literals,
)
from vmrag_link.engines.folder import Stamp, read_dolt_stamp
from vmrag_link.engines.limits import Limits
from vmrag_link.engines.own_branches import (
    KEEP_BRANCH,
    LINKS_BRANCH,
    PINNED_BRANCH,
    ROOT_BRANCH,
    UNFINISHED_BRANCH,
    missing_branch_error,
)
from vmrag_link.errors import KnowledgeRefused
from vmrag_link.file_access import write_atomically
from vmrag_link.models import At, KbBranch, Record, WorkingSet


class DoltSession(BaseSession[str]):
    """An open knowledge base with one connection. Each statement names the place where it runs.

    Before anything at a place is read or written, the place is checked: it must hold our tables and
    nothing else, because fetched data may hold anything.
    """

    engine = "dolt"

    def __init__(self, folder: Path, connection: SqlConnection, *, lock_timeout: float, limits: Limits) -> None:
        super().__init__(folder, lock_timeout=lock_timeout, limits=limits)
        self.connection = connection
        self._versions: dict[tuple[str, bool], int] = {}
        self._revisions: dict[str, None] = {}
        self._cache: BranchCache | None = None
        self._hashes: dict[str, tuple[Stamp, str]] = {}

    def close(self) -> None:
        self._save_cache()
        self.connection.end_session()

    @contextlib.contextmanager
    def watch_writes(self) -> Iterator[None]:
        yield
        self._save_cache()

    def server_lock(self, purpose: str, seconds: float) -> AbstractContextManager[None]:
        return self.connection.server_lock(purpose, seconds)

    # -- places

    def read_version(self, at: At) -> int:
        """Return the version of the schema at a place, or 0 if there are no tables.

        Raises `RevisionMissing`, `BranchMissing`, `KnowledgeRefused` and `SchemaTooNew`.
        """
        if isinstance(at, WorkingSet):
            return self.check_place(self.require_branch(at.branch).name)
        history.require_revisions(self.connection, at)
        return self.check_place(at)

    def check_place(self, at: str, *, with_links: bool = False) -> int:
        """Return the version of the schema at an existing branch or revision, or 0 without tables.

        With `with_links`, the table of links is also allowed. Raises `KnowledgeRefused`,
        `SchemaTooNew`, and `RowsInvalid` for a merge in conflict.
        """
        is_revision = history.is_hash(at)
        with_links = with_links or at == LINKS_BRANCH
        content = "" if is_revision else self._working_hash(at)
        key = (f"{at} {content}", with_links)
        if key not in self._versions:
            if not is_revision and at != UNFINISHED_BRANCH:
                schema.require_no_conflict(self.connection, at)
            also = schema.LINKS if with_links else None
            foreign, version = schema.inspect_schema(self.connection, at, also=also)
            if foreign:
                raise self._foreign_object_error(at, foreign)
            self._versions[key] = version
        return self._versions[key]

    def _working_hash(self, branch: str) -> str:
        """Return the hash of a working set. It is read again if anything was written since."""
        stamp = _read_repository_stamp(self.folder) if self.connection.settled else None
        cached = self._hashes.get(branch)
        if stamp and cached and cached[0] == stamp:
            return cached[1]
        content = str(self.connection.query_value("dolt_hashof_db('WORKING')", at=branch))
        if stamp:
            self._hashes[branch] = stamp, content
        return content

    def _foreign_object_error(self, at: str, foreign: schema.ForeignObject) -> KnowledgeRefused:
        """Return the error for a place that holds something else than our tables.

        If another program left it uncommitted, the hint has the command that removes it.
        """
        if history.is_hash(at):
            return inspection.foreign_place_error(f"revision {at[:12]}", foreign.text)
        branch = self.require_branch(at)
        if branch.dirty and not schema.inspect_schema(self.connection, branch.head).foreign:
            return KnowledgeRefused(
                f"refusing to use branch {at!r}: {foreign.text} (uncommitted).",
                hint=hints.suggest_command(self.connection.format_command(foreign.removal, at), "remove it"),
            )
        return inspection.foreign_place_error(f"branch {at!r}", foreign.text)

    def remember_tables_of(self, revision: str, parent: str) -> None:
        self._versions[f"{revision} ", False] = self.check_place(parent)

    @contextlib.contextmanager
    def branch_transaction(self, branch: str, purpose: str, expected: str) -> Iterator[str]:
        with self.write_lock(purpose):
            self.require_head(branch, expected)
            self.check_place(branch)
            with self.connection.transaction(branch):
                yield branch

    @contextlib.contextmanager
    def revision_transaction(self, revision: str) -> Iterator[str]:
        with unfinished_branch(self.connection, revision) as at, self.connection.transaction(at):
            yield at

    def is_dirty(self, place: str) -> bool:
        return schema.is_dirty(self.connection, place)

    def commit(self, place: str, message: str, author: str, date: str, *options: str) -> str:
        return schema.commit(self.connection, place, message, author, date, *options)

    def discard_changes(self, branch: str) -> None:
        self.connection.call("dolt_reset", "--hard", at=branch)

    def map_parents(self, revisions: Iterable[str]) -> dict[str, tuple[str, ...]]:
        return history.map_parents(self.connection, revisions)

    def read_parents(self, revision: str) -> tuple[str, ...]:
        # On a server, `dolt_commit_ancestors` fails for a revision with two parents.
        log = f"dolt_log({quote_literal(revision)}, '--parents')"
        rows = self.connection.query_rows(f"SELECT parents AS v FROM {log} LIMIT 1")
        return history.parse_parents(rows[0].get("v"))

    # -- branches

    def require_readable(self, at: At) -> None:
        self.read_version(at)

    def require_revision(self, revision: str) -> None:
        history.require_revisions(self.connection, revision)

    def merge_base(self, one: str, other: str) -> str | None:
        history.require_revisions(self.connection, one, other)
        base: str | None = self.connection.query_value(f"dolt_merge_base({quote_literals([one, other])})")
        return base

    def is_ancestor(self, ancestor: str, descendant: str) -> bool:
        history.require_revisions(self.connection, ancestor, descendant)
        return parse_bool(self.connection.query_value(f"has_ancestor({quote_literals([descendant, ancestor])})"))

    def find_unreachable(self, revisions: Iterable[str], *, without: str = "") -> list[str]:
        return history.find_unreachable(self.connection, revisions, without=without)

    def list_branches(self) -> list[KbBranch]:
        if cached := self._valid_cache():
            return [*cached.branches]
        stamp = _read_repository_stamp(self.folder) if self.connection.settled else None
        branches = history.list_branches(self.connection)
        if stamp and stamp == _read_repository_stamp(self.folder):
            self._cache = BranchCache(stamp, tuple(branches))
        return branches

    def _save_cache(self) -> None:
        """Update the cache, so that the next command need not start a program.

        A server is not cached.
        """
        cached = _read_cache(self.folder)
        if (
            self.connection.asleep
            or not self.connection.settled
            or (cached and all(map(cached.has_revision, self._revisions)))
        ):
            return
        heads = {branch.head for branch in self.list_branches()}
        if self._cache:
            others = [revision for revision in self._revisions if revision not in heads][-_MAX_REVISIONS:]
            # Garbage collection may have removed some.
            revisions = tuple(sorted(history.find_existing(self.connection, others)))
            _write_cache(self.folder, msgspec.structs.replace(self._cache, revisions=revisions))

    def find_branch(self, name: str) -> KbBranch | None:
        if self.connection.asleep or self._valid_cache():  # callers often read another branch next, or all of them
            return next((branch for branch in self.list_branches() if branch.name == name), None)
        return history.find_branch(self.connection, name)

    def has_revision(self, revision: str) -> bool:
        cached = self._valid_cache()
        exists = bool(cached and cached.has_revision(revision)) or bool(
            history.find_existing(self.connection, [revision])
        )
        if exists:
            self._revisions[revision] = None
        return exists

    def _valid_cache(self) -> BranchCache | None:
        """Return the cached branches if nothing was written since they were read."""
        if not self.connection.settled:
            return None
        if self._cache is None or self._cache.stamp != _read_repository_stamp(self.folder):
            self._cache = _read_cache(self.folder)
        return self._cache

    def set_branch(self, name: str, to: str) -> None:
        self.connection.call("dolt_branch", "-f", name, to)

    def drop_branch(self, name: str) -> None:
        delete_branch(self.connection, name)

    def protect_revision(self, revision: str) -> None:
        """See `Engine.protect_revision`. Hold the write lock.

        The branch only moves after `vmrag_keep` reaches its old head, so both together reach every
        revision that was protected.
        """
        self.require_revision(revision)
        heads = {
            branch.name: branch.head for branch in self.list_branches() if branch.name in (KEEP_BRANCH, PINNED_BRANCH)
        }
        pinned, kept = heads.get(PINNED_BRANCH), heads.get(KEEP_BRANCH)
        if any(self.is_ancestor(revision, head) for head in heads.values()):
            return
        if pinned and not self.is_ancestor(pinned, revision) and not (kept and self.is_ancestor(pinned, kept)):
            self.set_branch(KEEP_BRANCH, self.build_keep_head(kept, pinned, reason="pinned"))
        self.set_branch(PINNED_BRANCH, revision)

    def join_histories(self, head: str, revision: str, message: str) -> str:
        connection = self.connection
        with unfinished_branch(connection, revision) as at:
            for row in connection.query_rows("SHOW TABLES", at=at):
                connection.execute([f"DROP TABLE {quote_identifier(str(name))}" for name in row.values()], at=at)
            emptied = self._commit_all(at, message)
            connection.call("dolt_reset", "--soft", head, at=at)
            self._commit_all(at, message)
            connection.call("dolt_merge", "--no-ff", "--author", _AUTHOR, "-m", message, emptied, at=at)
            return self._read_head(at)

    def _commit_all(self, at: str, message: str) -> str:
        """Commit all changes, unless there are none, and return the head."""
        self.connection.call("dolt_commit", "-A", "--skip-empty", "--author", _AUTHOR, "-m", message, at=at)
        return self._read_head(at)

    def _read_head(self, at: str) -> str:
        return str(self.connection.query_value("dolt_hashof('HEAD')", at=at))

    def collect_garbage(self) -> None:
        with self.write_lock("collect garbage"):
            drop_unfinished(self.connection)
            self.connection.call("dolt_gc")
            self.connection.end_session()  # dolt_gc ends all sessions of a server
            self._versions.clear()


@contextlib.contextmanager
def unfinished_branch(connection: SqlConnection, revision: str) -> Iterator[str]:
    """Create `UNFINISHED_BRANCH` at a revision, and drop it at the end of the block.

    Do not nest. The caller holds the write lock until the result is anchored.
    """
    # -f: the branch may exist after a kill, and a session creates it to prove that it may write.
    connection.call("dolt_branch", "-f", UNFINISHED_BRANCH, revision)
    try:
        yield UNFINISHED_BRANCH
    finally:
        drop_unfinished(connection)


def drop_unfinished(connection: SqlConnection) -> None:
    """Remove the branch if it exists. The caller holds the write lock."""
    if connection.query_rows(f"SELECT 1 AS v FROM dolt_branches WHERE name = {quote_literal(UNFINISHED_BRANCH)}"):
        delete_branch(connection, UNFINISHED_BRANCH)


def delete_branch(connection: SqlConnection, name: str) -> None:
    """Delete a branch. If it is checked out, `vmrag_root` is checked out instead.

    Dolt refuses to delete the branch that is checked out, but lets it be renamed.
    """
    if connection.query_value("active_branch()") != name:
        connection.call("dolt_branch", "-D", name)
        return
    root = history.find_branch(connection, ROOT_BRANCH)
    if root is None:
        raise missing_branch_error(ROOT_BRANCH)
    connection.call("dolt_branch", "-f", name, root.head)
    connection.call("dolt_branch", "-m", "-f", name, ROOT_BRANCH)


_CACHE_NAME = "branches.json"

_AUTHOR = "vmrag <vmrag@localhost>"
"""The author of revisions that only keep others reachable."""

_MAX_REVISIONS = 20
"""Maximum number of cached revisions that are not heads."""


class BranchCache(Record, frozen=True):
    """All branches at a stamp, and other existing revisions."""

    stamp: Stamp
    branches: tuple[KbBranch, ...]
    revisions: tuple[str, ...] = ()

    def has_revision(self, revision: str) -> bool:
        return revision in self.revisions or any(branch.head == revision for branch in self.branches)


def _read_repository_stamp(folder: Path) -> Stamp | None:
    """Return the stamp, or None if the folder has no repository."""
    try:
        return read_dolt_stamp(folder)
    except FileNotFoundError:
        return None


def _read_cache(folder: Path) -> BranchCache | None:
    """Return the cache if it is still valid."""
    try:
        cache = msgspec.json.decode((folder / _CACHE_NAME).read_bytes(), type=BranchCache)
    except (OSError, UnicodeDecodeError, msgspec.DecodeError):
        return None
    return cache if cache.stamp == _read_repository_stamp(folder) else None


def _write_cache(folder: Path, cache: BranchCache) -> None:
    """Write the cache, unless something was written since it was read."""
    if cache.stamp == _read_repository_stamp(folder) and _read_cache(folder) != cache:
        with contextlib.suppress(OSError):  # the cache only helps the next command
            write_atomically(folder / _CACHE_NAME, msgspec.json.encode(cache), durable=False)
