"""An open knowledge base: its connection, the places that were checked, and what is known of its
branches without asking.

A checkout asks what its code branch has, and mostly the pin stays: starting `dolt` for that answer
takes longer than all the rest. So the branches are noted beside the stamp at which they were asked
for; the note counts until the stamp changes, which every write does, by whatever program
(`base_session.dolt_stamp`). A session writes the note before it ends.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import msgspec

from vmrag_link.engines import inspection
from vmrag_link.engines.base import (
    KEEP_BRANCH,
    LINKS_BRANCH,
    PINNED_BRANCH,
    ROOT_BRANCH,
    UNFINISHED_BRANCH,
    missing_branch_error,
)
from vmrag_link.engines.base_session import BaseSession, Stamp, read_dolt_stamp
from vmrag_link.engines.dolt import history, schema
from vmrag_link.engines.dolt.connection import SqlConnection, quote_identifier, quote_literal
from vmrag_link.engines.limits import Limits
from vmrag_link.errors import KnowledgeRefused
from vmrag_link.models import At, KbBranch, Record, WorkingSet
from vmrag_link.paths import write_atomically


class DoltSession(BaseSession[str]):
    """`connection`: the one connection; each statement names the place where it runs.

    A place is checked for our tables and nothing else before anything of it is read or written,
    because what was fetched may hold anything.
    """

    engine = "dolt"

    def __init__(self, folder: Path, connection: SqlConnection, *, lock_timeout: float, limits: Limits) -> None:
        super().__init__(folder, lock_timeout=lock_timeout, limits=limits)
        self.connection = connection
        self._versions: dict[tuple[str, bool], int] = {}
        self._revisions: dict[str, None] = {}
        self._latest: BranchCache | None = None
        self._hashes: dict[str, tuple[Stamp, str]] = {}

    def close(self) -> None:
        self._note_branches()
        self.connection.end_session()

    @contextlib.contextmanager
    def watch_writes(self) -> Iterator[None]:
        yield
        self._note_branches()

    def server_lock(self, purpose: str, seconds: float) -> AbstractContextManager[None]:
        return self.connection.server_lock(purpose, seconds)

    # -- places

    def read_version(self, at: At) -> int:
        """The version of the schema at a place; 0 where there is no table. Raises as `require`."""
        if isinstance(at, WorkingSet):
            return self.check_place(self.require_branch(at.branch).name)
        history.require_revisions(self.connection, at)
        return self.check_place(at)

    def check_place(self, at: str, *, with_links: bool = False) -> int:
        """As `version`, for a branch or a revision that is known to be here.

        `with_links`: the table of links may stand there, too.
        """
        is_revision, with_links = history.is_hash(at), with_links or at == LINKS_BRANCH
        content = "" if is_revision else self._working_hash(at)
        key = (f"{at} {content}", with_links)
        if key not in self._versions:
            if not is_revision and at != UNFINISHED_BRANCH:
                schema.require_no_conflict(self.connection, at)
            also = schema.LINKS if with_links else None
            odd, version = schema.inspect_schema(self.connection, at, also=also)
            if odd:
                raise self._refused(at, odd)
            self._versions[key] = version
        return self._versions[key]

    def _working_hash(self, branch: str) -> str:
        """The hash of a working set, which is asked for again after anything was written."""
        stamp = _known_stamp(self.folder) if self.connection.settled else None
        known = self._hashes.get(branch)
        if stamp and known and known[0] == stamp:
            return known[1]
        content = str(self.connection.query_value("dolt_hashof_db('WORKING')", at=branch))
        if stamp:
            self._hashes[branch] = stamp, content
        return content

    def _refused(self, at: str, odd: schema.ForeignObject) -> KnowledgeRefused:
        """Return the error for a place that holds something else than our tables.

        What another program has not committed there is named with the command that removes it.
        """
        if history.is_hash(at):
            return inspection.foreign_place_error(f"Revision {at[:12]}", odd.text)
        head = self.require_branch(at)
        if head.dirty and not schema.inspect_schema(self.connection, head.head)[0]:
            return KnowledgeRefused(
                f"Branch {at!r} is neither read nor written on: {odd.text}, and not committed.",
                hint=self.connection.format_command(odd.removal, at),
            )
        return inspection.foreign_place_error(f"Branch {at!r}", odd.text)

    def note_new_revision(self, revision: str, parent: str) -> None:
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
        return history.read_parents(self.connection, revision)

    # -- branches

    def require_readable(self, at: At) -> None:
        self.read_version(at)

    def require_revision(self, revision: str) -> None:
        history.require_revisions(self.connection, revision)

    def merge_base(self, one: str, other: str) -> str | None:
        return history.merge_base(self.connection, one, other)

    def is_ancestor(self, ancestor: str, descendant: str) -> bool:
        return history.is_ancestor(self.connection, ancestor, descendant)

    def find_unreachable(self, revisions: Iterable[str], *, without: str = "") -> list[str]:
        return history.find_unreachable(self.connection, revisions, without=without)

    def list_branches(self) -> list[KbBranch]:
        if known := self._known():
            return [*known.branches]
        stamp = _known_stamp(self.folder) if self.connection.settled else None
        branches = history.list_branches(self.connection)
        if stamp and stamp == _known_stamp(self.folder):
            self._latest = BranchCache(stamp, tuple(branches))
        return branches

    def _note_branches(self) -> None:
        """Spare the next command a program: this one can still tell. A server is not asked."""
        known = _read_known(self.folder)
        if (
            self.connection.asleep
            or not self.connection.settled
            or (known and all(map(known.has_revision, self._revisions)))
        ):
            return
        heads = {branch.head for branch in self.list_branches()}
        if self._latest:
            others = [revision for revision in self._revisions if revision not in heads][-_REVISIONS:]
            revisions = tuple(sorted(history.find_existing(self.connection, others)))  # garbage collection removes some
            _note_known(self.folder, msgspec.structs.replace(self._latest, revisions=revisions))

    def find_branch(self, name: str) -> KbBranch | None:
        if self.connection.asleep or self._known():  # what is asked next is another branch, or all of them
            return next((each for each in self.list_branches() if each.name == name), None)
        return history.find_branch(self.connection, name)

    def has_revision(self, revision: str) -> bool:
        known = self._known()
        exists = bool(known and known.has_revision(revision)) or bool(
            history.find_existing(self.connection, [revision])
        )
        if exists:
            self._revisions[revision] = None
        return exists

    def _known(self) -> BranchCache | None:
        """What need not be asked, because nothing was written since it was asked for."""
        if not self.connection.settled:
            return None
        if self._latest is None or self._latest.stamp != _known_stamp(self.folder):
            self._latest = _read_known(self.folder)
        return self._latest

    def set_branch(self, name: str, to: str) -> None:
        self.connection.call("dolt_branch", "-f", name, to)

    def drop_branch(self, name: str) -> None:
        delete_branch(self.connection, name)

    def protect_revision(self, revision: str) -> None:
        """See `Engine.protect`. Hold the write lock.

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
            return self._head(at)

    def _commit_all(self, at: str, message: str) -> str:
        """The head afterwards; what is equal to its parent is not committed."""
        self.connection.call("dolt_commit", "-A", "--skip-empty", "--author", _AUTHOR, "-m", message, at=at)
        return self._head(at)

    def _head(self, at: str) -> str:
        return str(self.connection.query_value("dolt_hashof('HEAD')", at=at))

    def collect_garbage(self) -> None:
        with self.write_lock("collect garbage"):
            drop_unfinished(self.connection)
            self.connection.call("dolt_gc")
            self.connection.end_session()  # a server ends all sessions by it
            self._versions.clear()


@contextlib.contextmanager
def unfinished_branch(connection: SqlConnection, revision: str) -> Iterator[str]:
    """The branch, made at the revision and dropped at the end. Do not nest.

    The caller holds the write lock until the result is anchored.
    """
    # With -f: it is there after a kill, and where a session has proved by it that it may write.
    connection.call("dolt_branch", "-f", UNFINISHED_BRANCH, revision)
    try:
        yield UNFINISHED_BRANCH
    finally:
        drop_unfinished(connection)


def drop_unfinished(connection: SqlConnection) -> None:
    """Remove the branch, if it is there. The caller holds the write lock."""
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


_KNOWN_NAME = "branches.json"

_AUTHOR = "vmrag <vmrag@localhost>"
"""Of the revisions that only keep others."""

_REVISIONS = 20
"""How many revisions that are no heads are known to be here."""


class BranchCache(Record, frozen=True):
    """All branches at a stamp, and other revisions that are here."""

    stamp: Stamp
    branches: tuple[KbBranch, ...]
    revisions: tuple[str, ...] = ()

    def has_revision(self, revision: str) -> bool:
        return revision in self.revisions or any(branch.head == revision for branch in self.branches)


def _known_stamp(folder: Path) -> Stamp | None:
    """None where there is no repository in the folder: a server's is written by others."""
    try:
        return read_dolt_stamp(folder)
    except FileNotFoundError:
        return None


def _read_known(folder: Path) -> BranchCache | None:
    """What is known, if it still holds."""
    try:
        found = msgspec.json.decode((folder / _KNOWN_NAME).read_bytes(), type=BranchCache)
    except (OSError, UnicodeDecodeError, msgspec.DecodeError):
        return None
    return found if found.stamp == _known_stamp(folder) else None


def _note_known(folder: Path, known: BranchCache) -> None:
    """Nothing is noted where something was written since it was asked for."""
    if known.stamp == _known_stamp(folder) and _read_known(folder) != known:
        with contextlib.suppress(OSError):  # a courtesy to the next command
            write_atomically(folder / _KNOWN_NAME, msgspec.json.encode(known), durable=False)
