"""Read a work tree's index consistently, while other processes continue."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec

from vmrag_link.errors import (
    Busy,
    FileFailed,
    FileSystemError,
    GitError,
    IndexFailed,
    LimitExceeded,
    LockError,
    VmragError,
    file_failures,
    refuses_writing,
)
from vmrag_link.git import plumbing
from vmrag_link.index import seal
from vmrag_link.index import view as views
from vmrag_link.index.views import MemoryViews, temporary_memory_folder
from vmrag_link.models import At, Record, WorkingSet
from vmrag_link.sync.target import Target
from vmrag_link.workspace import reasons
from vmrag_link.workspace.worktree import OpenSources, WorkTree

if TYPE_CHECKING:
    from vmrag_link.index.draft import Draft

T = TypeVar("T")

ATTEMPTS = 5
"""Number of attempts to open an index that other processes keep removing."""


class Moment(Record, frozen=True):
    """The position of a work tree at one moment: HEAD's commit, the target of its pin, and the
    revision that is read.
    """

    git_head: str | None
    target: Target
    revision: str
    branch: str | None
    """The KB branch, if it is at the revision."""
    dirty: bool
    """True if it has uncommitted documents, which are also read."""

    @property
    def at(self) -> At:
        """The place where documents are read."""
        return WorkingSet(self.branch) if self.branch and self.dirty else self.revision


class View(Record, frozen=True):
    """An index that can be read now: its directory, its revision, and whether it has uncommitted
    documents.
    """

    folder: Path
    revision: str
    branch: str | None
    dirty: bool
    git_head: str | None = None
    """The commit that was checked out when the view was opened."""
    notes: tuple[str, ...] = ()
    """Differences from the commit's pin."""
    sources: OpenSources | None = None
    """Files of the tree that also answer."""
    files_note: str = ""
    """Why no files answer although there are sources."""

    @property
    def more(self) -> tuple[Path, ...]:
        """Views that are searched together with the one in `folder`."""
        return (self.sources.folder,) if self.sources and self.sources.folder != self.folder else ()

    @property
    def at(self) -> At:
        """The place of the documents in the index."""
        return WorkingSet(self.branch) if self.branch and self.dirty else self.revision


class Reader:
    """Read at the current position of the work tree.

    The caller brings it to its pin first (`workspace.follow.follow_pin`).
    """

    def __init__(self, ws: WorkTree) -> None:
        self._ws = ws
        self._failures: dict[tuple[str, str], VmragError] = {}

    def read_moment(self) -> Moment:
        """Return the position of the work tree. Raises the errors of `Workspace.require_revision`,
        and `Busy` if the position keeps changing.
        """
        for _ in range(ATTEMPTS):
            moment = self._read_position(self._ws.require_revision())
            if _is_same_moment(moment, self._read_position(self._ws.require_revision())):
                return moment
        raise _build_unstable_error("this working tree")

    def read(self, action: Callable[[View], T], *, files: bool = True) -> T:
        """Return the result of `action` for the view.

        If the index proves damaged, it is built again once, because it is derived. `files`: as in
        `view`.
        """
        try:
            with self.view(files=files) as view:
                return action(view)
        except IndexFailed as error:
            from vmrag_link.sync import apply

            self._ws.source_index.distrust_view()
            apply.discard_views(self._ws.sync_context, self._ws.resolve_target(), self._ws.require_indexed_revision())
            self._ws.progress.note(f"{error.message.rstrip('.')}. It is built again.")
        with self.view(files=files) as view:
            return action(view)

    @contextlib.contextmanager
    def view(self, *, files: bool = True) -> Iterator[View]:
        """Yield the index that answers for the work tree, including uncommitted documents. It does
        not change in the block. Without `files`, the files of sources do not answer and hide no
        documents.

        HEAD, pin, KB branch and index are of one moment: if one of them changes while the index is
        opened, it is opened again.
        """
        self._failures.clear()
        for _ in range(ATTEMPTS):
            moment = self._read_position(self._ws.require_indexed_revision())
            revision, copied_branch = moment.revision, self._find_copied_branch(moment)
            failure = self._failures.get((copied_branch, revision)) if copied_branch else None
            # The files first: indexing them may take long, and writers of documents must not wait.
            with (
                self._open_sources(files) as sources,
                self._open_answering_index(revision, None if failure else copied_branch) as folder,
            ):
                if folder and _is_same_moment(moment, self._read_position(self._ws.require_indexed_revision())):
                    notes = reasons.explain_difference(self._ws, moment.target, revision)
                    if failure:
                        notes += (f"this answer lacks the uncommitted documents: {failure.message}",)
                    dirty = moment.dirty and not failure
                    view = View(
                        folder=folder,
                        revision=revision,
                        branch=moment.branch,
                        dirty=dirty,
                        git_head=moment.git_head,
                        notes=notes,
                    )
                    with self._add_sources(view, sources) as whole:
                        yield whole
                    return
        raise _build_unstable_error("this working tree")

    @contextlib.contextmanager
    def _open_sources(self, with_files: bool) -> Iterator[OpenSources | str | None]:
        """Yield the files of sources, or why they are unavailable, or None without sources."""
        if not (with_files and self._ws.sources.configured):
            yield None
            return
        with contextlib.ExitStack() as held:
            try:
                with file_failures():
                    work_tree = self._ws.source_index.open_work_tree(stored=self._ws.list_stored_collections())
                    opened: OpenSources | str | None = held.enter_context(work_tree)
            except (FileSystemError, LimitExceeded, GitError, LockError) as why:
                opened = f"this answer lacks the files of sources: {why.message}"
            yield opened

    @contextlib.contextmanager
    def _add_sources(self, view: View, sources: OpenSources | str | None) -> Iterator[View]:
        if not isinstance(sources, OpenSources):
            yield msgspec.structs.replace(view, files_note=sources or "")
            return
        stored = views.read_view(view.folder).collections
        with contextlib.ExitStack() as held:
            derived = [source.collection for source in self._ws.sources.configured if not source.write]
            if not stored.keys().isdisjoint({*sources.collections}.intersection(derived)):  # stored since
                sources = held.enter_context(self._ws.source_index.open_work_tree(stored=stored)) or sources
            yield msgspec.structs.replace(view, sources=sources)

    @contextlib.contextmanager
    def open_index(self, revision: str) -> Iterator[Path]:
        """Yield the index of a revision. No other process removes it in the block. If it is missing
        or does not verify, it is built first.

        If it was built, the spare views beyond the limit are removed after the block.
        """
        from vmrag_link.sync import apply, build

        existing = self._ws.views
        path = existing.view_path(revision)
        is_new = False
        try:
            for _ in range(ATTEMPTS):
                with existing.lock_for_reading(path):
                    if not existing.find_problem(revision):
                        existing.mark_used(path)
                        yield path
                        return
                context = self._ws.sync_context
                try:
                    build.provide_view(context, revision, bases=build.list_bases(context))
                    is_new = True
                except (OSError, FileFailed, IndexFailed) as error:
                    if not refuses_writing(error):
                        raise
                    in_memory = context._replace(views=MemoryViews(existing.root))
                    build.provide_view(in_memory, revision, bases=build.list_bases(in_memory))
        finally:
            if is_new:
                apply.evict_views(self._ws.sync_context)
        raise _build_unstable_error(f"revision {revision[:7]}")

    def rebuild_copy(self) -> None:
        """Build the working copy again from the revision's view, if the copy is what answers."""
        moment = self.read_moment()
        if branch := self._find_copied_branch(moment):
            revision = moment.revision
            copy = self._ws.sync_context.working_copy(branch, revision)
            with self._ws.views.segments.pause_collection():  # until the copy has its name
                copy.rebuild_copy(lambda folder: self.update_copy(folder, branch, revision, whole=False))

    def update_copy(
        self,
        folder: Path,
        branch: str,
        revision: str,
        *,
        whole: bool,
        changed: frozenset[tuple[str, str]] | None = None,
        alter: Callable[[Draft], None] = lambda _: None,
    ) -> None:
        """Update a working copy, which the caller has locked, to the KB branch's uncommitted
        documents.

        With `whole` it is updated, otherwise it is derived from the revision's view. `changed`: as
        in `Indexer.update_index`. `alter` makes changes that do not depend on the texts.

        Documents are planned, read and counted one after the other. If another process writes in
        between, the numbers differ, and the copy is made again. Raises `Busy` if that continues.
        """
        deadline = time.monotonic() + self._ws.settings.lock_timeout
        while True:
            stamp = self._ws.engine.read_stamp()
            try:
                self._write_copy(folder, branch, revision, whole=whole, changed=changed, alter=alter)
            except IndexFailed as error:
                if self._ws.engine.read_stamp() == stamp:
                    raise
                if time.monotonic() >= deadline:
                    raise _build_unstable_error("this working tree") from error
                changed = None
            else:
                return

    def _write_copy(
        self,
        folder: Path,
        branch: str,
        revision: str,
        *,
        whole: bool,
        changed: frozenset[tuple[str, str]] | None,
        alter: Callable[[Draft], None],
    ) -> None:
        """Write the copy from the stored documents."""
        from vmrag_link.index.draft import Draft

        with contextlib.ExitStack() as held:
            base = folder if whole else held.enter_context(self.open_index(revision))
            in_memory = folder in seal.MEMORY_FOLDERS
            target_views = MemoryViews(self._ws.views.root) if in_memory else self._ws.views
            draft = held.enter_context(Draft(target_views.segments, views.read_view(base)))
            self._ws.create_indexer().update_index(draft, WorkingSet(branch), base=revision, changed=changed)
            alter(draft)
            draft.publish(folder, revision=revision, durable=False)

    def _read_position(self, revision: str) -> Moment:
        head, target = plumbing.read_head(self._ws.places), self._ws.resolve_target_for_reading()
        branch = target.kb_branch
        attached = branch.name if branch and branch.head == revision else None
        return Moment(head.commit, target, revision, attached, bool(branch and attached and branch.dirty))

    def _find_copied_branch(self, moment: Moment) -> str | None:
        """Return the KB branch whose working copy answers, or None if the revision's view does."""
        branch, revision = moment.branch, moment.revision
        if branch and (moment.dirty or self._ws.sync_context.working_copy(branch, revision).holds_given_vectors):
            return branch
        return None

    @contextlib.contextmanager
    def _open_answering_index(self, revision: str, branch: str | None) -> Iterator[Path | None]:
        """Yield the view of a revision, or the working copy of a KB branch on it. None if the copy
        had to be made first.
        """
        if branch is None:
            with self.open_index(revision) as path:
                yield path
            return
        copy = self._ws.sync_context.working_copy(branch, revision)
        with copy.lock_for_reading() as problem:
            if not problem:
                yield copy.path
                return
            if copy.path.is_dir() and not copy.is_unfinished:
                self._ws.progress.note(f"rebuilding the damaged index of uncommitted documents: {problem}")
        try:
            with file_failures(), copy.lock_for_writing() as state:
                self.update_copy(copy.path, branch, revision, whole=state != "gone")
        except (FileSystemError, LimitExceeded, IndexFailed) as why:
            if not refuses_writing(why):
                if isinstance(why, IndexFailed):
                    raise
                self._failures[branch, revision] = why
                yield None
                return
        else:
            yield None
            return
        from vmrag_link.index import storage

        with temporary_memory_folder(copy.root) as folder:
            self.update_copy(folder, branch, revision, whole=False)
            with storage.hold_memory_folder(folder):
                yield folder


def _is_same_moment(one: Moment, other: Moment) -> bool:
    """Return whether the position did not change between two reads."""
    return (one.git_head, one.revision, _select_movable(one.target)) == (
        other.git_head,
        other.revision,
        _select_movable(other.target),
    )


def _select_movable(target: Target) -> tuple[object, ...]:
    return target.trigger, target.state, target.kb_branch


def _build_unstable_error(what: str) -> Busy:
    return Busy(
        f"cannot read the index of {what}: other processes changed it {ATTEMPTS} times.",
        hint="run the command again when they have finished",
    )
