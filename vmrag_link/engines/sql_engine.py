"""The part of `engines.base.Engine` that all SQL engines share.

An engine adds its session, its comparison, its reading and storing of rows, and its transfer.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from vmrag_link.engines import base_session, records
from vmrag_link.engines.base import Engine, Write
from vmrag_link.engines.base_session import BaseSession
from vmrag_link.engines.folder import EngineName
from vmrag_link.engines.limits import Limits
from vmrag_link.engines.logical import implied_table
from vmrag_link.engines.own_branches import LINKS_BRANCH, ROOT_BRANCH
from vmrag_link.engines.tables import COLLECTIONS, PROJECTS
from vmrag_link.errors import EngineFailed, KnowledgeRefused, NoChanges, Uncommitted
from vmrag_link.models import (
    TABLE_OF_KIND,
    At,
    ChangeCounts,
    Collection,
    Difference,
    Document,
    DocumentHeader,
    DocumentTable,
    HeaderDifference,
    KbBranch,
    Link,
    Project,
    RevisionInfo,
    WorkingSet,
)

if TYPE_CHECKING:
    from vmrag_link.engines.comparison import RowComparison
    from vmrag_link.engines.reading import PlaceRows

S = TypeVar("S", bound=BaseSession[Any])
P = TypeVar("P")


class SqlEngine(Engine, ABC, Generic[S, P]):
    """Base of engines that use SQL. `Engine` documents its methods."""

    def __init__(self, session: S) -> None:
        self._session = session

    # -- implemented by each engine

    @property
    @abstractmethod
    def _comparison(self) -> RowComparison[S]: ...

    @abstractmethod
    def _open_rows(self, at: At) -> AbstractContextManager[PlaceRows]: ...

    @abstractmethod
    def _select_links(self, place: str, conditions: Mapping[str, str]) -> list[Link]:
        """Return the links at a branch or a revision that have these values in these columns."""

    @abstractmethod
    def _commit_links(
        self, start: str | None, put: Sequence[Link], remove: Sequence[str], *, message: str, author: str, date: str
    ) -> str | None:
        """Commit links on their branch, or on top of the revision `start`.

        `start` may be on no branch. Return the new revision, or None if nothing changed. The caller
        holds the write lock.
        """

    @abstractmethod
    def _store_rows(self, place: P, rows: Write) -> None:
        """Change the rows at a place of the session. Call this in a transaction at that place."""

    def _complete_rows(self, place: P, head: str) -> None:
        """Repair the uncommitted rows of a branch with this head, if other programs write here."""

    @abstractmethod
    def _begin_merge(self, place: P, joining: str) -> None:
        """Begin a merge in the open transaction: the next commit has `joining` as another parent.

        Rows in conflict stay as they are on this side. The cost grows with the changes of both
        sides.
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

    def write_lock(self, purpose: str, *, timeout: float | None = None) -> AbstractContextManager[None]:
        return self._session.write_lock(purpose, timeout=timeout)

    def collect_garbage(self) -> None:
        self._session.collect_garbage()

    # -- revisions and branches

    def has_revision(self, revision: str) -> bool:
        return self._session.has_revision(revision)

    def read_revision(self, revision: str) -> RevisionInfo:
        return next(self.log(revision, limit=1))

    def map_parents(self, revisions: Iterable[str]) -> dict[str, tuple[str, ...]]:
        return self._session.map_parents(revisions)

    def is_ancestor(self, ancestor: str, descendant: str) -> bool:
        return self._session.is_ancestor(ancestor, descendant)

    def merge_base(self, one: str, other: str) -> str | None:
        return self._session.merge_base(one, other)

    def list_branches(self) -> list[KbBranch]:
        return self._session.list_branches()

    def find_branch(self, name: str) -> KbBranch | None:
        return self._session.find_branch(name)

    def is_legal_branch_name(self, name: str) -> bool:
        return base_session.is_legal_branch_name(name)

    def create_branch(self, name: str, at: str) -> None:
        self._session.create_branch(name, at)

    def move_branch(self, name: str, to: str, *, expected: str) -> None:
        self._session.move_branch(name, to, expected=expected)

    def delete_branch(self, name: str, *, expected: str) -> None:
        self._session.delete_branch(name, expected=expected)

    # -- anchors

    def anchor_revision(self, revision: str, *, reason: str) -> None:
        records.require_storable(reason, "the reason")
        with self.write_lock("keep a revision"):
            self._session.require_revision(revision)
            self._session.anchor_revision(revision, reason)

    def protect_revision(self, revision: str) -> None:
        """Do nothing: no other program moves the branches of this engine."""

    def build_keep_head(self, head: str | None, revision: str, *, reason: str) -> str:
        return self._session.build_keep_head(head, revision, reason=reason)

    # -- remotes

    def foreign_heads(self, remote: str) -> dict[str, str]:  # noqa: ARG002
        """Return nothing: this engine fetches no branch with other tables."""
        return {}

    def list_docs_and_tags(self, revisions: Iterable[str]) -> list[str]:  # noqa: ARG002
        """Return nothing: this engine stores our tables only."""
        return []

    def find_undefined_collections(self, branch: str, *, since: str) -> list[str]:  # noqa: ARG002
        """Return nothing: no other program writes to this engine."""
        return []

    # -- reading

    def find_refusal(self, revision: str) -> KnowledgeRefused | None:
        return self._session.find_refusal(revision)

    def list_collections(self, at: At) -> list[Collection]:
        with self._open_rows(at) as rows:
            return list(rows.read_table(COLLECTIONS))  # type: ignore[arg-type]  # rows of this table

    def read_projects(self, at: At, *, ids: Iterable[str] | None = None) -> Iterator[Project]:
        with self._open_rows(at) as rows:
            yield from rows.read_table(PROJECTS, ids)  # type: ignore[misc]  # rows of this table

    def read_documents(
        self,
        at: At,
        *,
        collection: str | None = None,
        ids: Iterable[str] | None = None,
        table: DocumentTable | None = None,
    ) -> Iterator[Document]:
        with self._open_rows(at) as rows:
            yield from rows.read_documents(collection, ids, table)

    def read_headers(
        self, at: At, *, collection: str | None = None, ids: Iterable[str] | None = None
    ) -> Generator[DocumentHeader, None, None]:
        with self._open_rows(at) as rows:
            yield from rows.read_headers(collection, ids)

    def list_sources(self, at: At, collection: str) -> list[tuple[str, str]]:
        with self._open_rows(at) as rows:
            return rows.list_sources(collection)

    def list_ids(self, at: At, collection: str, *, prefix: str) -> list[str]:
        with self._open_rows(at) as rows:
            return rows.list_ids(collection, prefix)

    def find_document(self, at: At, collection: str, doc_id: str) -> Document | None:
        with self._open_rows(at) as rows:
            return rows.find_document(collection, doc_id)

    def require_readable(self, at: At) -> None:
        self._session.require_readable(at)

    def count_documents(self, at: At, *, collection: str | None = None) -> int:
        with self._open_rows(at) as rows:
            return rows.count_documents(collection)

    def read_document_history(self, revision: str, collection: str, doc_id: str) -> dict[str, DocumentHeader]:
        with self._open_rows(revision) as rows:
            return rows.read_history(collection, doc_id)

    def diff(self, old: At, new: At) -> Difference:
        return self._comparison.diff(old, new)

    def diff_headers(self, old: At, new: At, *, times: bool = False) -> HeaderDifference:
        return self._comparison.diff_headers(old, new, times=times)

    def count_changes(self, old: At, new: At) -> ChangeCounts:
        return self._comparison.count_changes(old, new)

    # -- links

    def list_links(
        self, *, git_commit: str | None = None, dolt_commit: str | None = None, at: str | None = None
    ) -> list[Link]:
        if at is not None:
            self._session.require_revision(at)
        elif self.find_branch(LINKS_BRANCH) is None:
            return []
        values = {"git_commit": git_commit, "dolt_commit": dolt_commit}
        conditions = {column: value for column, value in values.items() if value is not None}
        return self._select_links(at or LINKS_BRANCH, conditions)

    def write_links(
        self, put: Sequence[Link], *, remove: Sequence[str] = (), message: str, author: str, date: str
    ) -> None:
        with self.write_lock("link"):
            if self.find_branch(LINKS_BRANCH) is None:
                self._session.set_branch(LINKS_BRANCH, self._session.require_branch(ROOT_BRANCH).head)
            self._commit_links(None, put, remove, message=message, author=author, date=date)

    def build_links_head(self, head: str | None, put: Sequence[Link], *, message: str, author: str, date: str) -> str:
        with self.write_lock("link"):
            start = head or self._session.require_branch(ROOT_BRANCH).head
            self._session.require_revision(start)
            return self._commit_links(start, put, (), message=message, author=author, date=date) or start

    # -- writing

    def write(self, branch: str, rows: Write, *, expected: str) -> None:
        with self._session.branch_transaction(branch, f"write to the branch {branch}", expected) as place:
            self._session.mark_uncommitted()
            self._store_rows(place, rows)

    def commit(self, branch: str, *, message: str, author: str, date: str, expected: str) -> str:
        with self._session.branch_transaction(branch, f"commit on the branch {branch}", expected) as place:
            self._complete_rows(place, expected)
            dirty = self._session.is_dirty(place)
            revision = self._session.commit(place, message, author, date) if dirty else ""
        self._session.unmark_if_committed()
        if not dirty:
            raise NoChanges(f"branch {branch!r} has nothing to commit.", branch=branch)
        self._session.compact_if_grown()
        return revision

    def commit_onto(
        self, revision: str, rows: Sequence[Write], *, joining: str | None = None, message: str, author: str, date: str
    ) -> str:
        session, result = self._session, revision
        with session.write_lock("merge"):
            session.require_readable(revision)
            joined = [joining] if joining and not session.is_ancestor(joining, revision) else []
            undo_writes = self._plan_undo(revision, joined)
            with session.revision_transaction(revision) as place:
                self._store_merged(place, undo_writes, rows)
                if joined or session.is_dirty(place):
                    options = ["--allow-empty"] if joined else []
                    result = session.commit(place, message, author, date, *options)
            session.anchor_revision(result, "a merge")
        session.compact_if_grown()
        return result

    def recreate_revision(
        self, parents: Sequence[str], rows: Iterable[Write], *, message: str, author: str, date: str
    ) -> str:
        session, (first, *others) = self._session, parents
        with session.write_lock("recreate a revision"):
            session.require_readable(first)
            undo_writes = self._plan_undo(first, others)
            with session.revision_transaction(first) as place:
                self._store_merged(place, undo_writes, rows)
                result = session.commit(place, message, author, date, "--allow-empty")
            session.remember_tables_of(result, first)
            actual_parents = session.read_parents(result)
            if actual_parents != tuple(parents):
                raise EngineFailed(
                    f"the engine cannot create a revision with the parents {' and '.join(parent[:12] for parent in parents)}:"
                    f" {result[:12]} has {' and '.join(parent[:12] for parent in actual_parents) or 'none'}.",
                    hint="run 'vmrag doctor' to find the problem",
                    revision=result,
                )
        return result

    def _plan_undo(self, revision: str, joined: Sequence[str]) -> dict[str, Write]:
        """Return the rows that undo the changes of the engine's merge, for each joined revision.

        The engine also merges the tables of the joined revision, so these must be ours.
        """
        for joining in joined:
            self._session.require_readable(joining)
        return {joining: _build_undo(self, revision, joining) for joining in joined}

    def _store_merged(self, place: P, undo_writes: Mapping[str, Write], rows: Iterable[Write]) -> None:
        """Join revisions without their changes, then store the rows. Call this in a transaction."""
        for joining, undo in undo_writes.items():
            self._begin_merge(place, joining)
            self._store_rows(place, undo)
        for write in rows:
            self._store_rows(place, write)

    def discard_saved_rows(self, branch: str, *, kept: str, expected: str) -> None:
        with self.write_lock(f"clean the branch {branch}"):
            if self._session.require_head(branch, expected).dirty:
                if not self.diff(kept, WorkingSet(branch)).is_empty:
                    raise Uncommitted(
                        f"revision {kept[:12]} does not hold all uncommitted documents of {branch!r}.",
                        hint="run 'vmrag commit' to commit them",
                        branch=branch,
                    )
                self._session.discard_changes(branch)
                self._session.unmark_if_committed()


def _build_undo(engine: Engine, revision: str, joining: str) -> Write:
    """Return the rows that turn the engine's merge of two revisions into `revision` again.

    An engine merges from its own merge base and offers no way to choose the result. So all changes
    of `joining` since that base are undone. Raises `EngineFailed` for unrelated histories.
    """
    base = engine.merge_base(revision, joining)
    if base is None:
        raise EngineFailed(
            f"revisions {revision[:12]} and {joining[:12]} have no common history.",
            hint="run 'vmrag show', then 'vmrag import', to copy documents from the other knowledge base",
            revisions=[revision, joining],
        )
    changes = engine.diff(base, joining)
    names = [change.key for change in changes.collections]
    collections = {collection.name: collection for collection in engine.list_collections(revision)}
    documents = {document.key: document for document in _read_documents_in(engine, revision, changes)}
    project_ids = [change.key for change in changes.projects]
    projects = {project.key: project for project in engine.read_projects(revision, ids=project_ids)}
    return Write(
        put_collections=[collections[name] for name in names if name in collections],
        remove_collections=[name for name in names if name not in collections],
        put_documents=list(documents.values()),
        remove_documents=[change.key for change in changes.documents if change.key not in documents],
        put_projects=list(projects.values()),
        remove_projects=[project_id for project_id in project_ids if project_id not in projects],
    )


def _read_documents_in(engine: Engine, revision: str, difference: Difference) -> Iterable[Document]:
    """Yield the documents of a difference as they are in a revision.

    A row of a separate table may be in another collection there, so it is found by its id.
    """
    keys = [change.key for change in difference.documents]
    for collection in dict.fromkeys(collection for collection, _ in keys):
        ids = [doc_id for name, doc_id in keys if name == collection]
        yield from engine.read_documents(revision, collection=collection, ids=ids, table="documents")
    for table in TABLE_OF_KIND.values():
        if ids := [doc_id for name, doc_id in keys if (implied := implied_table(name)) and implied.name == table]:
            yield from engine.read_documents(revision, ids=ids, table=table)
