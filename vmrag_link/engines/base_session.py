"""What every engine does alike with an open knowledge base: its write lock, the rules of branches
and anchors, and the stamp, which is another one after anything was written in the folder.
"""

from __future__ import annotations

import contextlib
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import ClassVar, Generic, TypeVar

from vmrag_link import locks, permissions
from vmrag_link.engines.base import (
    DOLT_FOLDER,
    DOLTLITE_FILE,
    KEEP_BRANCH,
    LOCK_NAME,
    ROOT_BRANCH,
    UNCOMMITTED_NAME,
    EngineName,
    detect_engine,
    missing_branch_error,
)
from vmrag_link.engines.limits import Limits
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

_ILLEGAL = r"""(?x)[^!-~] | [~^:?*\[\\] | \.\. | // | @\{ | ^[-/] | [/.]$ | (^|/)\. | \.lock(/|$) | ^@$"""
_TAKEN = frozenset({"head", "working", "staged"})
_LONGEST = 200
_REVISION = r"(?i)[0-9a-f]{40}|[0-9a-v]{32}"


def is_legal_branch_name(name: str) -> bool:
    """Whether each engine can carry a branch of that name, so that a knowledge base can change its
    engine.
    """
    return (
        0 < len(name) <= _LONGEST
        and not re.search(_ILLEGAL, name)
        and name.lower() not in _TAKEN
        and not re.fullmatch(_REVISION, name)
    )


P = TypeVar("P")
"""A place that a transaction is in: a branch, as an engine reaches it."""


class BaseSession(ABC, Generic[P]):
    """The contracts of what is public here are those of `engines.base.Engine`."""

    engine: ClassVar[EngineName]

    def __init__(self, folder: Path, *, lock_timeout: float, limits: Limits) -> None:
        self.folder = folder
        self.limits = limits
        self._lock_timeout = lock_timeout
        self._lock_depth = 0

    # -- what an engine does in its own way

    @abstractmethod
    def require_readable(self, at: At) -> None:
        """Raises `RevisionMissing`, `BranchMissing`, and what is said of a place that is not ours:
        `KnowledgeRefused`, `SchemaTooNew`.
        """

    @abstractmethod
    def require_revision(self, revision: str) -> None:
        """Raises `RevisionMissing`. It may hold anything."""

    @abstractmethod
    def has_revision(self, revision: str) -> bool: ...

    @abstractmethod
    def merge_base(self, one: str, other: str) -> str | None: ...

    @abstractmethod
    def is_ancestor(self, ancestor: str, descendant: str) -> bool: ...

    @abstractmethod
    def find_unreachable(self, revisions: Iterable[str], *, without: str = "") -> list[str]:
        """Those that no branch other than `without` reaches."""

    @abstractmethod
    def list_branches(self) -> list[KbBranch]: ...

    @abstractmethod
    def find_branch(self, name: str) -> KbBranch | None: ...

    @abstractmethod
    def set_branch(self, name: str, to: str) -> None:
        """Make a branch, or move it. Its uncommitted rows are discarded silently."""

    @abstractmethod
    def drop_branch(self, name: str) -> None:
        """Its uncommitted rows are discarded silently."""

    @abstractmethod
    def join_histories(self, head: str, revision: str, message: str) -> str:
        """A revision without tables that has both in its history, which have one in common.

        A merge of the two would store content that nobody reads, and could conflict in tables. So
        both sides are commits without tables: a child of `revision`, and a child of `head` unless
        that has no tables already. They are made on `UNFINISHED_BRANCH`; no other branch moves.
        """

    @abstractmethod
    def map_parents(self, revisions: Iterable[str]) -> dict[str, tuple[str, ...]]: ...

    def read_known_history(self, known: Iterable[str]) -> tuple[str, set[str]]:
        """The root, and what it and `known` reach from it on: what is asked of a stranger's history
        must descend from that.
        """
        root = self.require_branch(ROOT_BRANCH).head
        before = self.map_parents([root]).keys() - {root}
        return root, self.map_parents([root, *known]).keys() - before

    @abstractmethod
    def read_parents(self, revision: str) -> tuple[str, ...]:
        """The parents of a revision that is here."""

    @abstractmethod
    def branch_transaction(self, branch: str, purpose: str, expected: str) -> AbstractContextManager[P]:
        """A transaction on a branch whose head is the expected one until its end."""

    @abstractmethod
    def revision_transaction(self, revision: str) -> AbstractContextManager[P]:
        """A transaction on `UNFINISHED_BRANCH`, which is made at the revision and then dropped.

        Do not nest. The caller holds the write lock until the result is anchored.
        """

    @abstractmethod
    def is_dirty(self, place: P) -> bool: ...

    @abstractmethod
    def commit(self, place: P, message: str, author: str, date: str, *options: str) -> str:
        """Commit everything there; returns the revision."""

    @abstractmethod
    def discard_changes(self, branch: str) -> None:
        """Make a branch clean. Hold the write lock."""

    def note_new_revision(self, revision: str, parent: str) -> None:
        """A revision was made here, of rows alone: it has the tables of its parent."""

    def compact_if_grown(self) -> None:
        """Collect garbage where much was appended since the last time."""

    @abstractmethod
    def collect_garbage(self) -> None: ...

    @abstractmethod
    def close(self) -> None: ...

    def server_lock(self, purpose: str, seconds: float) -> AbstractContextManager[None]:  # noqa: ARG002
        """Keep other machines from writing, where there are any."""
        return contextlib.nullcontext()

    def watch_writes(self) -> AbstractContextManager[None]:
        """Around everything that is written under one hold of the write lock."""
        return contextlib.nullcontext()

    # -- the write lock

    @contextlib.contextmanager
    def write_lock(self, purpose: str, *, timeout: float | None = None) -> Iterator[None]:
        with contextlib.ExitStack() as held:
            if self._lock_depth == 0:
                seconds = self._lock_timeout if timeout is None else timeout
                held.enter_context(locks.hold_exclusive(self.folder / LOCK_NAME, purpose=purpose, timeout=seconds))
                self._require_not_migrated()
                held.enter_context(self.server_lock(purpose, seconds))
                held.enter_context(self.watch_writes())
            self._lock_depth += 1
            try:
                yield
            finally:
                self._lock_depth -= 1

    def _require_not_migrated(self) -> None:
        """What is open still would be written, and nobody would read it any more."""
        found = detect_engine(self.folder)
        if found not in (None, self.engine):
            raise KnowledgeMoved(
                f"The knowledge base was migrated to {found} meanwhile; nothing was written.",
                hint="Run the command again.",
                engine=found,
            )

    # -- the note of uncommitted rows

    def note_uncommitted(self) -> None:
        """Before rows change: a kill in between leaves a note too many, never one too few."""
        permissions.make_file(self.folder / UNCOMMITTED_NAME)

    def note_committed(self) -> None:
        """Remove the note, if no branch has uncommitted rows any more."""
        with self.write_lock("note what is committed"):
            if not any(branch.dirty for branch in self.list_branches()):
                (self.folder / UNCOMMITTED_NAME).unlink(missing_ok=True)

    # -- branches

    def find_refusal(self, revision: str) -> KnowledgeRefused | None:
        try:
            self.require_readable(revision)
        except KnowledgeRefused as error:
            return error
        except SchemaTooNew:
            pass  # its readers are told
        return None

    def require_branch(self, name: str) -> KbBranch:
        branch = self.find_branch(name)
        if branch is None:
            raise missing_branch_error(name)
        return branch

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

    def create_branch(self, name: str, at: str) -> None:
        if not is_legal_branch_name(name):
            raise NameInvalid(f"A knowledge base cannot carry a branch named {name[:80]!r}.", name=name)
        with self.write_lock(f"create the branch {name}"):
            self.require_revision(at)
            for taken in self.list_branches():
                if taken.name.lower() == name.lower():
                    raise BranchExists(f"The knowledge base has a branch {taken.name!r} already.", branch=taken.name)
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
                f"The branch {name!r} carries uncommitted documents.", hint="Commit them: vmrag commit", branch=name
            )

    # -- anchors

    def anchor_revision(self, revision: str, reason: str, *, without: str = "") -> None:
        """Anchor a revision, unless a branch other than `without` reaches it.

        Hold the write lock.
        """
        if self.find_unreachable([revision], without=without):
            before = self.find_branch(KEEP_BRANCH)
            self.set_branch(KEEP_BRANCH, self.build_keep_head(before.head if before else None, revision, reason=reason))

    def anchor_sound_heads(self, heads: Iterable[str]) -> None:
        """Anchor what a remote held before, where nothing else may reach it, and it may be read.

        Hold the write lock.
        """
        for head in dict.fromkeys(heads):
            if not self.find_refusal(head):
                self.anchor_revision(head, "what a remote held")

    def build_keep_head(self, head: str | None, revision: str, *, reason: str) -> str:
        for each in (revision, *([head] if head else [])):
            self.require_readable(each)
        if head is None:
            return revision
        if self.merge_base(head, revision) is None:
            raise EngineFailed(
                f"The revision {revision[:12]} has no history in common with what is kept already.",
                hint="Give it a branch of its own.",
                revision=revision,
            )
        return self.join_histories(head, revision, f"Keep {revision}: {reason}")


Stamp = tuple[object, ...]

_JOURNAL = f"{DOLT_FOLDER}/noms/{'v' * 32}"
_MANIFEST = f"{DOLT_FOLDER}/noms/manifest"


def read_doltlite_stamp(folder: Path) -> Stamp:
    """The file grows with everything that is written. Raises `FileNotFoundError`."""
    return _stamp(folder / DOLTLITE_FILE)


def read_dolt_stamp(folder: Path) -> Stamp:
    """The journal grows with everything that is written, and is new after a garbage collection;
    reading touches it.

    Where there is none, every change writes the manifest anew, and so does the end of each session.
    Raises `FileNotFoundError`.
    """
    try:
        return _stamp(folder / _JOURNAL)[:2]
    except FileNotFoundError:
        return _stamp(folder / _MANIFEST)


def _stamp(path: Path) -> Stamp:
    found = os.stat(path)  # noqa: PTH116  Path's own is slower, and every call of a tool asks
    return found.st_ino, found.st_size, found.st_mtime_ns
