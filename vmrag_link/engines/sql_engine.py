"""The part of `engines.base.Engine` that every engine for SQL does alike.

An engine brings its session, its comparison, its reading of rows, its transfer, and a module that
writes (`Writing`).
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from vmrag_link.engines import base_session, records
from vmrag_link.engines.base import LINKS_BRANCH, ROOT_BRANCH, Engine, EngineName, Write
from vmrag_link.engines.base_session import BaseSession
from vmrag_link.engines.limits import Limits
from vmrag_link.engines.logical import table_implied
from vmrag_link.errors import EngineFailed, KnowledgeRefused, Uncommitted
from vmrag_link.models import (
    TABLE_OF_KIND,
    At,
    ChangeCounts,
    Difference,
    Document,
    HeaderDifference,
    KbBranch,
    Link,
    RevisionInfo,
    Working,
)

if TYPE_CHECKING:
    from vmrag_link.engines.comparison import RowComparison

S = TypeVar("S", bound=BaseSession)
S_contra = TypeVar("S_contra", bound=BaseSession, contravariant=True)

UndoMerge = Callable[[str], Write]
"""For the revision that a merge joins: the rows that take back what the merge brought."""


class Writing(Protocol[S_contra]):
    """An engine's module `writing`; the contracts are those of `Engine`."""

    def write(self, session: S_contra, branch: str, rows: Write, *, expected: str) -> None: ...

    def commit(self, session: S_contra, branch: str, *, message: str, author: str, date: str, expected: str) -> str: ...

    def commit_onto(
        self,
        session: S_contra,
        revision: str,
        rows: Sequence[Write],
        *,
        joining: str | None,
        undo: UndoMerge,
        message: str,
        author: str,
        date: str,
    ) -> str: ...

    def recreate(
        self,
        session: S_contra,
        parents: Sequence[str],
        rows: Iterable[Write],
        *,
        undo: UndoMerge,
        message: str,
        author: str,
        date: str,
    ) -> str: ...

    def discard(self, session: S_contra, branch: str) -> None: ...


class SqlEngine(Engine, ABC, Generic[S]):
    """`Engine` has the contract of each method."""

    def __init__(self, session: S, writing: Writing[S]) -> None:
        self._session = session
        self._writing = writing

    # -- what an engine does in its own way

    @property
    @abstractmethod
    def _comparison(self) -> RowComparison[S]: ...

    @abstractmethod
    def _link_rows(self, place: str, wanted: Mapping[str, str]) -> list[Link]:
        """The links at a branch or a revision that have these values in these columns."""

    @abstractmethod
    def _commit_links(
        self, start: str | None, put: Sequence[Link], remove: Sequence[str], *, message: str, author: str, date: str
    ) -> str | None:
        """Commit links on their branch, or onto the revision `start`, to which no branch need lead.

        The new revision; None if nothing changed. The caller holds the write lock.
        """

    # -- the knowledge base

    @property
    def name(self) -> EngineName:
        return self._session.engine

    @property
    def folder(self) -> Path:
        return self._session.folder

    @property
    def limits(self) -> Limits:
        return self._session.limits

    @property
    def shared(self) -> bool:
        return False

    def close(self) -> None:
        self._session.close()

    def writing(self, purpose: str, *, timeout: float | None = None) -> AbstractContextManager[None]:
        return self._session.writing(purpose, timeout=timeout)

    def collect_garbage(self) -> None:
        self._session.collect_garbage()

    # -- revisions and branches

    def has_revision(self, revision: str) -> bool:
        return self._session.has_revision(revision)

    def info(self, revision: str) -> RevisionInfo:
        return next(self.log(revision, limit=1))

    def is_ancestor(self, ancestor: str, descendant: str) -> bool:
        return self._session.is_ancestor(ancestor, descendant)

    def merge_base(self, one: str, other: str) -> str | None:
        return self._session.merge_base(one, other)

    def branches(self) -> list[KbBranch]:
        return self._session.branches()

    def branch(self, name: str) -> KbBranch | None:
        return self._session.branch(name)

    def legal_branch_name(self, name: str) -> bool:
        return base_session.legal_branch_name(name)

    def create_branch(self, name: str, at: str) -> None:
        self._session.create_branch(name, at)

    def move_branch(self, name: str, to: str, *, expected: str) -> None:
        self._session.move_branch(name, to, expected=expected)

    def delete_branch(self, name: str, *, expected: str) -> None:
        self._session.delete_branch(name, expected=expected)

    # -- anchors

    def anchor(self, revision: str, *, reason: str) -> None:
        records.exact(reason, "The reason")
        with self.writing("keep a revision"):
            self._session.require_revision(revision)
            self._session.keep(revision, reason)

    def kept(self, head: str | None, revision: str, *, reason: str) -> str:
        return self._session.kept(head, revision, reason=reason)

    # -- reading

    def refusal(self, revision: str) -> KnowledgeRefused | None:
        return self._session.refusal(revision)

    def diff(self, old: At, new: At) -> Difference:
        return self._comparison.diff(old, new)

    def diff_headers(self, old: At, new: At, *, times: bool = False) -> HeaderDifference:
        return self._comparison.headers(old, new, times=times)

    def count_changes(self, old: At, new: At) -> ChangeCounts:
        return self._comparison.count(old, new)

    # -- links

    def links(
        self, *, git_commit: str | None = None, dolt_commit: str | None = None, at: str | None = None
    ) -> list[Link]:
        if at is not None:
            self._session.require_revision(at)
        elif self.branch(LINKS_BRANCH) is None:
            return []
        values = {"git_commit": git_commit, "dolt_commit": dolt_commit}
        wanted = {column: value for column, value in values.items() if value is not None}
        return self._link_rows(at or LINKS_BRANCH, wanted)

    def write_links(
        self, put: Sequence[Link], *, remove: Sequence[str] = (), message: str, author: str, date: str
    ) -> None:
        with self.writing("link"):
            if self.branch(LINKS_BRANCH) is None:
                self._session.set_branch(LINKS_BRANCH, self._session.require_branch(ROOT_BRANCH).head)
            self._commit_links(None, put, remove, message=message, author=author, date=date)

    def links_onto(self, head: str | None, put: Sequence[Link], *, message: str, author: str, date: str) -> str:
        with self.writing("link"):
            start = head or self._session.require_branch(ROOT_BRANCH).head
            self._session.require_revision(start)
            return self._commit_links(start, put, (), message=message, author=author, date=date) or start

    # -- writing

    def write(self, branch: str, rows: Write, *, expected: str) -> None:
        self._writing.write(self._session, branch, rows, expected=expected)

    def commit(self, branch: str, *, message: str, author: str, date: str, expected: str) -> str:
        return self._writing.commit(self._session, branch, message=message, author=author, date=date, expected=expected)

    def commit_onto(
        self, revision: str, rows: Sequence[Write], *, joining: str | None = None, message: str, author: str, date: str
    ) -> str:
        undo = functools.partial(_undo_merge, self, revision)
        return self._writing.commit_onto(
            self._session, revision, rows, joining=joining, undo=undo, message=message, author=author, date=date
        )

    def recreate(self, parents: Sequence[str], rows: Iterable[Write], *, message: str, author: str, date: str) -> str:
        undo = functools.partial(_undo_merge, self, parents[0])
        return self._writing.recreate(
            self._session, parents, rows, undo=undo, message=message, author=author, date=date
        )

    def take_back(self, branch: str, *, kept: str, expected: str) -> None:
        with self.writing(f"clean the branch {branch}"):
            if self._session.require_head(branch, expected).dirty:
                if not self.diff(kept, Working(branch)).empty:
                    raise Uncommitted(
                        f"The revision {kept[:12]} does not hold all uncommitted documents of {branch!r}.",
                        hint="Commit them: vmrag commit",
                        branch=branch,
                    )
                self._writing.discard(self._session, branch)


def _undo_merge(engine: Engine, revision: str, joining: str) -> Write:
    """The rows that turn the engine's own merge of two revisions into `revision` again.

    An engine merges from its own merge base and cannot be told what to make of it. So whatever
    `joining` changed since then is undone. Raises `EngineFailed` for unrelated histories.
    """
    base = engine.merge_base(revision, joining)
    if base is None:
        raise EngineFailed(
            f"The revisions {revision[:12]} and {joining[:12]} have no history in common.",
            hint="They come from two knowledge bases; take the documents over by: vmrag show, vmrag import",
            revisions=[revision, joining],
        )
    brought = engine.diff(base, joining)
    names = [change.key for change in brought.collections]
    held = {each.name: each for each in engine.collections(revision)}
    documents = {each.key: each for each in _documents_of(engine, revision, brought)}
    projects = {each.key: each for each in engine.projects(revision, ids=[each.key for each in brought.projects])}
    return Write(
        put_collections=[held[name] for name in names if name in held],
        remove_collections=[name for name in names if name not in held],
        put_documents=list(documents.values()),
        remove_documents=[change.key for change in brought.documents if change.key not in documents],
        put_projects=list(projects.values()),
        remove_projects=[change.key for change in brought.projects if change.key not in projects],
    )


def _documents_of(engine: Engine, revision: str, brought: Difference) -> Iterable[Document]:
    """What a revision holds of the documents of a difference.

    A row of another table may lie in another collection there.
    """
    for name in dict.fromkeys(change.key[0] for change in brought.documents):
        ids = [change.key[1] for change in brought.documents if change.key[0] == name]
        yield from engine.documents(revision, collection=name, ids=ids, table="documents")
    for table in TABLE_OF_KIND.values():
        ids = [doc_id for name, doc_id in (change.key for change in brought.documents) if _implies(name, table)]
        if ids:
            yield from engine.documents(revision, ids=ids, table=table)


def _implies(collection: str, table: str) -> bool:
    found = table_implied(collection)
    return found is not None and found.name == table
