"""The parts of an open knowledge base that all engines share.

They are the write lock, the mark of uncommitted rows, and the rules for branches and anchors. An
engine subclasses `BaseSession`, and `SqlEngine` passes calls on to it.
"""

from __future__ import annotations

import contextlib
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import ClassVar, Generic, NamedTuple, TypeVar

from vmrag_link import locks, permissions
from vmrag_link.engines.folder import LOCK_NAME, UNCOMMITTED_NAME, EngineName, detect_engine
from vmrag_link.engines.limits import Limits
from vmrag_link.engines.own_branches import KEEP_BRANCH, ROOT_BRANCH, missing_branch_error
from vmrag_link.errors import (
    BranchExists,
    EngineFailed,
    KnowledgeMoved,
    KnowledgeRefused,
    NameInvalid,
    SchemaTooNew,
    Uncommitted,
)
from vmrag_link.models import At, KbBranch

_ILLEGAL_NAME = r"""(?x)[^!-~] | [~^:?*\[\\] | \.\. | // | @\{ | ^[-/] | [/.]$ | (^|/)\. | \.lock(/|$) | ^@$"""
_RESERVED_NAMES = frozenset({"head", "working", "staged"})
_MAX_LENGTH = 200
_REVISION = r"(?i)[0-9a-f]{40}|[0-9a-v]{32}"


def is_legal_branch_name(name: str) -> bool:
    """Return whether every engine can store a branch of that name.

    So a knowledge base can change its engine.
    """
    return (
        0 < len(name) <= _MAX_LENGTH
        and not re.search(_ILLEGAL_NAME, name)
        and name.lower() not in _RESERVED_NAMES
        and not re.fullmatch(_REVISION, name)
    )


P = TypeVar("P")
"""How an engine addresses the branch of a transaction: doltlite by a connection, Dolt by its name.
"""


class KnownHistory(NamedTuple):
    root: str
    revisions: set[str]
    """The revisions from the root to the known heads."""


class BaseSession(ABC, Generic[P]):
    """An open knowledge base. `engines.base.Engine` documents its public methods."""

    engine: ClassVar[EngineName]

    def __init__(self, folder: Path, *, lock_timeout: float, limits: Limits) -> None:
        self.folder = folder
        self.limits = limits
        self._lock_timeout = lock_timeout
        self._lock_depth = 0

    # -- implemented by each engine

    @abstractmethod
    def require_readable(self, at: At) -> None:
        """Raise the error of a place that must not be read.

        These are `RevisionMissing`, `BranchMissing`, `KnowledgeRefused` (other tables than ours)
        and `SchemaTooNew`.
        """

    @abstractmethod
    def require_revision(self, revision: str) -> None:
        """Require that a revision exists, with any content. Raises `RevisionMissing`."""

    @abstractmethod
    def has_revision(self, revision: str) -> bool: ...

    @abstractmethod
    def merge_base(self, one: str, other: str) -> str | None: ...

    @abstractmethod
    def is_ancestor(self, ancestor: str, descendant: str) -> bool: ...

    @abstractmethod
    def find_unreachable(self, revisions: Iterable[str], *, without: str = "") -> list[str]:
        """Return the revisions that no branch other than `without` reaches."""

    @abstractmethod
    def list_branches(self) -> list[KbBranch]: ...

    @abstractmethod
    def find_branch(self, name: str) -> KbBranch | None: ...

    @abstractmethod
    def set_branch(self, name: str, to: str) -> None:
        """Create a branch, or move it. Its uncommitted rows are discarded silently."""

    @abstractmethod
    def drop_branch(self, name: str) -> None:
        """Delete a branch. Its uncommitted rows are discarded silently."""

    @abstractmethod
    def join_histories(self, head: str, revision: str, message: str) -> str:
        """Create a revision without tables whose parents reach both revisions, and return it.

        The revisions must have a common ancestor. A plain merge would store content that no command
        reads, and could conflict. So both parents are commits without tables: a child of
        `revision`, and a child of `head` (or `head` itself if it has no tables). They are created
        on `UNFINISHED_BRANCH`. No other branch moves.
        """

    @abstractmethod
    def map_parents(self, revisions: Iterable[str]) -> dict[str, tuple[str, ...]]: ...

    @abstractmethod
    def read_parents(self, revision: str) -> tuple[str, ...]:
        """Return the parents of an existing revision."""

    @abstractmethod
    def branch_transaction(self, branch: str, purpose: str, expected: str) -> AbstractContextManager[P]:
        """Open a transaction on a branch. Its head stays the expected one within the block."""

    @abstractmethod
    def revision_transaction(self, revision: str) -> AbstractContextManager[P]:
        """Open a transaction on `UNFINISHED_BRANCH`, created at the revision.

        The branch is dropped at the end. Do not nest. The caller holds the write lock until the
        result is anchored.
        """

    @abstractmethod
    def is_dirty(self, place: P) -> bool: ...

    @abstractmethod
    def commit(self, place: P, message: str, author: str, date: str, *options: str) -> str:
        """Commit all changes at a place and return the revision."""

    @abstractmethod
    def discard_changes(self, branch: str) -> None:
        """Discard the uncommitted rows of a branch. Hold the write lock."""

    def remember_tables_of(self, revision: str, parent: str) -> None:
        """Remember that a new revision has the tables of its parent, because only rows changed."""

    def compact_if_grown(self) -> None:
        """Collect garbage if much was appended since the last collection."""

    @abstractmethod
    def collect_garbage(self) -> None: ...

    @abstractmethod
    def close(self) -> None: ...

    def server_lock(self, purpose: str, seconds: float) -> AbstractContextManager[None]:  # noqa: ARG002
        """Keep other machines from writing, if the knowledge base is on a server."""
        return contextlib.nullcontext()

    def watch_writes(self) -> AbstractContextManager[None]:
        """Surround everything that is written while the write lock is held."""
        return contextlib.nullcontext()

    # -- the write lock

    @contextlib.contextmanager
    def write_lock(self, purpose: str, *, timeout: float | None = None) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            if self._lock_depth == 0:
                seconds = self._lock_timeout if timeout is None else timeout
                stack.enter_context(locks.hold_exclusive(self.folder / LOCK_NAME, purpose=purpose, timeout=seconds))
                self._require_not_migrated()
                stack.enter_context(self.server_lock(purpose, seconds))
                stack.enter_context(self.watch_writes())
            self._lock_depth += 1
            try:
                yield
            finally:
                self._lock_depth -= 1

    def _require_not_migrated(self) -> None:
        """Raise `KnowledgeMoved` if another process migrated the open knowledge base.

        Its old files would still accept rows, but nothing would read them.
        """
        engine = detect_engine(self.folder)
        if engine not in (None, self.engine):
            raise KnowledgeMoved(
                f"another process migrated the knowledge base to {engine}; nothing was written.",
                hint="run the command again",
                engine=engine,
            )

    # -- the mark of uncommitted rows (`UNCOMMITTED_NAME`)

    def mark_uncommitted(self) -> None:
        """Create the mark before rows change.

        Then a kill leaves a superfluous mark instead of a missing one.
        """
        permissions.make_file(self.folder / UNCOMMITTED_NAME)

    def unmark_if_committed(self) -> None:
        """Remove the mark if no branch has uncommitted rows."""
        with self.write_lock("note what is committed"):
            if not any(branch.dirty for branch in self.list_branches()):
                (self.folder / UNCOMMITTED_NAME).unlink(missing_ok=True)

    # -- branches

    def read_known_history(self, known_heads: Iterable[str]) -> KnownHistory:
        """Return the revisions from which an untrusted history must descend."""
        root = self.require_branch(ROOT_BRANCH).head
        before = self.map_parents([root]).keys() - {root}
        return KnownHistory(root, self.map_parents([root, *known_heads]).keys() - before)

    def find_refusal(self, revision: str) -> KnowledgeRefused | None:
        try:
            self.require_readable(revision)
        except KnowledgeRefused as error:
            return error
        except SchemaTooNew:
            pass  # readers of this revision get the error
        return None

    def require_branch(self, name: str) -> KbBranch:
        branch = self.find_branch(name)
        if branch is None:
            raise missing_branch_error(name)
        return branch

    def require_head(self, name: str, expected: str) -> KbBranch:
        branch = self.require_branch(name)
        if branch.head != expected:
            raise KnowledgeMoved(
                f"branch {name!r} has moved from {expected[:12]} to {branch.head[:12]}; nothing was written.",
                hint="run 'vmrag status' to see what changed, then run the command again",
                branch=name,
                head=branch.head,
                expected=expected,
            )
        return branch

    def create_branch(self, name: str, at: str) -> None:
        if not is_legal_branch_name(name):
            raise NameInvalid(f"invalid KB branch name {name[:80]!r}.", name=name)
        with self.write_lock(f"create the branch {name}"):
            self.require_revision(at)
            for branch in self.list_branches():
                if branch.name.lower() == name.lower():
                    raise BranchExists(f"the knowledge base already has a branch {branch.name!r}.", branch=branch.name)
            self.set_branch(name, at)

    def move_branch(self, name: str, to: str, *, expected: str) -> None:
        with self.write_lock(f"move the branch {name}"):
            self.require_revision(to)
            self._require_clean(name, expected)
            if not self.is_ancestor(expected, to):
                self.anchor_revision(expected, f"the head of {name}", without=name)
            self.set_branch(name, to)

    def delete_branch(self, name: str, *, expected: str) -> None:
        with self.write_lock(f"delete the branch {name}"):
            self._require_clean(name, expected)
            self.anchor_revision(expected, f"the head of {name}", without=name)
            self.drop_branch(name)

    def _require_clean(self, name: str, expected: str) -> None:
        if self.require_head(name, expected).dirty:
            raise Uncommitted(
                f"branch {name!r} has uncommitted documents.", hint="run 'vmrag commit' to commit them", branch=name
            )

    # -- anchors

    def anchor_revision(self, revision: str, reason: str, *, without: str = "") -> None:
        """Anchor a revision, unless a branch other than `without` reaches it.

        Hold the write lock.
        """
        if self.find_unreachable([revision], without=without):
            keep = self.find_branch(KEEP_BRANCH)
            self.set_branch(KEEP_BRANCH, self.build_keep_head(keep.head if keep else None, revision, reason=reason))

    def anchor_sound_heads(self, heads: Iterable[str]) -> None:
        """Anchor the readable ones of these former heads of a remote, if nothing else reaches them.

        Hold the write lock.
        """
        for head in dict.fromkeys(heads):
            if not self.find_refusal(head):
                self.anchor_revision(head, "what a remote held")

    def build_keep_head(self, head: str | None, revision: str, *, reason: str) -> str:
        for required in (revision, *([head] if head else [])):
            self.require_readable(required)
        if head is None:
            return revision
        if self.merge_base(head, revision) is None:
            raise EngineFailed(
                f"revision {revision[:12]} has no common history with the revisions in vmrag_keep.",
                hint="create a KB branch at that revision",
                revision=revision,
            )
        return self.join_histories(head, revision, f"Keep {revision}: {reason}")
