"""Open the index that answers for a work tree, while other processes change and remove indexes.

Each revision has an index that never changes, its view. If the KB branch has uncommitted documents,
its *working copy* answers instead: a view that also has these documents. Both are derived from the
knowledge base, so a missing or damaged index is built again.

`Reader.view` yields an index that stays unchanged while the block runs, and the files of sources.
All parts belong to one moment. The caller brings the work tree to its pin first (`follow_pin`).
"""

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
    """The position of a work tree at one moment."""

    git_head: str | None
    """HEAD's commit."""
    target: Target
    """The state that HEAD and the pin request."""
    revision: str
    """The revision that is read. It differs from the pin if the pin could not be followed."""
    branch: str | None
    """The KB branch, if it is at the revision."""
    dirty: bool
    """True if this KB branch has uncommitted documents, which are also read."""

    @property
    def at(self) -> At:
        """The working set of the KB branch if it has uncommitted documents, else the revision."""
        return WorkingSet(self.branch) if self.branch and self.dirty else self.revision


class View(Record, frozen=True):
    """An index that is open for reading."""

    folder: Path
    """The directory of the index."""
    revision: str
    """The revision of its documents. Empty for an index of files."""
    branch: str | None
    """The KB branch, if it is at the revision."""
    dirty: bool
    """True if the index has uncommitted documents of this KB branch."""
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
        """The index of the files, which is searched together with the one in `folder`."""
        return (self.sources.folder,) if self.sources and self.sources.folder != self.folder else ()

    @property
    def at(self) -> At:
        """The working set of the KB branch if it has uncommitted documents, else the revision."""
        return WorkingSet(self.branch) if self.branch and self.dirty else self.revision


class Reader:
    """Read the index of a work tree."""

    def __init__(self, ws: WorkTree) -> None:
        self._ws = ws

    def read_moment(self) -> Moment:
        """Return the position of the work tree, all parts of one moment.

        Raises the errors of `Workspace.require_revision`, and `Busy` if the position keeps
        changing.
        """
        for _ in range(ATTEMPTS):
            moment = self._read_position(self._ws.require_revision())
            if _is_same_moment(moment, self._read_position(self._ws.require_revision())):
                return moment
        raise _build_unstable_error("this working tree")

    def read(self, action: Callable[[View], T], *, files: bool = True) -> T:
        """Return the result of `action` for the view.

        If `action` raises `IndexFailed`, the damaged index is built again, and `action` runs once
        more. `files`: as in `view`.
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
        """Yield the index that answers for the work tree, including uncommitted documents.

        It does not change in the block. Without `files`, the files of sources do not answer and
        hide no documents. If HEAD, pin, KB branch or index change while the index is opened, it is
        opened again. Raises the errors of `Workspace.require_indexed_revision`, and `Busy` if they
        keep changing.
        """
        copy_failures: dict[tuple[str, str], VmragError] = {}  # why a working copy cannot be built
        for _ in range(ATTEMPTS):
            moment = self._read_position(self._ws.require_indexed_revision())
            revision = moment.revision
            copied_branch = self._find_copied_branch(moment)
            failure = copy_failures.get((copied_branch, revision)) if copied_branch else None
            if failure:
                copied_branch = None  # the view of the revision answers instead
            opening_index = self._open_copy(copied_branch, revision) if copied_branch else self.open_index(revision)
            # The files first: indexing them may take long, and writers of documents must not wait.
            with self._open_sources(files) as sources, opening_index as folder:
                if copied_branch and isinstance(folder, VmragError):
                    copy_failures[copied_branch, revision] = folder
                    continue
                now = self._read_position(self._ws.require_indexed_revision())
                if not isinstance(folder, Path) or not _is_same_moment(moment, now):
                    continue
                notes = reasons.explain_difference(self._ws, moment.target, revision)
                if failure:
                    notes += (f"this answer lacks the uncommitted documents: {failure.message}",)
                view = View(
                    folder=folder,
                    revision=revision,
                    branch=moment.branch,
                    dirty=moment.dirty and not failure,
                    git_head=moment.git_head,
                    notes=notes,
                )
                with self._add_sources(view, sources) as whole:
                    yield whole
                return
        raise _build_unstable_error("this working tree")

    @contextlib.contextmanager
    def _open_sources(self, with_files: bool) -> Iterator[OpenSources | str | None]:
        """Yield the index of the files of sources, or a sentence why they do not answer.

        None without sources.
        """
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
        """Yield the view with the result of `_open_sources`."""
        if not isinstance(sources, OpenSources):
            yield msgspec.structs.replace(view, files_note=sources or "")
            return
        stored = views.read_view(view.folder).collections
        derived = {source.collection for source in self._ws.sources.configured if not source.write}
        with contextlib.ExitStack() as held:
            # If the view stores a collection of files, it did not when the files were opened.
            if not stored.keys().isdisjoint(derived.intersection(sources.collections)):
                sources = held.enter_context(self._ws.source_index.open_work_tree(stored=stored)) or sources
            yield msgspec.structs.replace(view, sources=sources)

    @contextlib.contextmanager
    def open_index(self, revision: str) -> Iterator[Path]:
        """Yield the index of a revision. No other process removes it in the block.

        If it is missing or does not verify, it is built first, on a read-only disk in memory. If it
        was built, the spare views beyond the limit are removed after the block.
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
        """Build the working copy again from the revision's view, if the copy answers."""
        moment = self.read_moment()
        revision = moment.revision
        if branch := self._find_copied_branch(moment):
            copy = self._ws.sync_context.working_copy(branch, revision)
            with self._ws.views.segments.pause_collection():  # until the copy has its name
                copy.rebuild_copy(lambda folder: self.update_copy(folder, branch, revision, is_usable=False))

    def update_copy(
        self,
        folder: Path,
        branch: str,
        revision: str,
        *,
        is_usable: bool,
        changed: frozenset[tuple[str, str]] | None = None,
        alter: Callable[[Draft], None] = lambda _: None,
    ) -> None:
        """Update the working copy in `folder` to the uncommitted documents of a KB branch.

        The caller holds the lock of the copy. `is_usable`: False to build it from the revision's
        view instead. `changed`: keys of the documents that may differ, None if any may. `alter`
        makes changes to the index that do not depend on texts.

        If another process writes documents during the update, the update fails and is repeated.
        Raises `Busy` if that continues for `lock_timeout_s`.
        """
        deadline = time.monotonic() + self._ws.settings.lock_timeout
        while True:
            stamp = self._ws.engine.read_stamp()  # differs after any write
            try:
                self._write_copy(folder, branch, revision, is_usable=is_usable, changed=changed, alter=alter)
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
        is_usable: bool,
        changed: frozenset[tuple[str, str]] | None,
        alter: Callable[[Draft], None],
    ) -> None:
        """Write the copy once. Raises `IndexFailed` if documents changed while they were read."""
        from vmrag_link.index.draft import Draft

        with contextlib.ExitStack() as held:
            base = folder if is_usable else held.enter_context(self.open_index(revision))
            in_memory = folder in seal.MEMORY_FOLDERS
            target_views = MemoryViews(self._ws.views.root) if in_memory else self._ws.views
            draft = held.enter_context(Draft(target_views.segments, views.read_view(base)))
            self._ws.create_indexer().update_index(draft, WorkingSet(branch), base=revision, changed=changed)
            alter(draft)
            draft.publish(folder, revision=revision, durable=False)

    def _read_position(self, revision: str) -> Moment:
        """Return the position once, while it may be changing."""
        head = plumbing.read_head(self._ws.places)
        target = self._ws.resolve_target_for_reading()
        branch = target.kb_branch
        if branch is None or branch.head != revision:
            return Moment(head.commit, target, revision, branch=None, dirty=False)
        return Moment(head.commit, target, revision, branch.name, branch.dirty)

    def _find_copied_branch(self, moment: Moment) -> str | None:
        """Return the KB branch whose working copy answers, or None if the revision's view does."""
        if moment.branch is None or moment.dirty:
            return moment.branch
        copy = self._ws.sync_context.working_copy(moment.branch, moment.revision)
        return moment.branch if copy.holds_given_vectors else None

    @contextlib.contextmanager
    def _open_copy(self, branch: str, revision: str) -> Iterator[Path | VmragError | None]:
        """Yield the working copy of a KB branch at a revision, or the error if it cannot be built.

        None: the copy was built or updated just now, so the caller must compare the moment again.
        """
        copy = self._ws.sync_context.working_copy(branch, revision)
        with copy.lock_for_reading() as problem:
            if not problem:
                yield copy.path
                return
            if copy.path.is_dir() and not copy.is_unfinished:
                self._ws.progress.note(f"rebuilding the damaged index of uncommitted documents: {problem}")
        try:
            with file_failures(), copy.lock_for_writing() as state:
                self.update_copy(copy.path, branch, revision, is_usable=state != "gone")
        except (FileSystemError, LimitExceeded, IndexFailed) as error:
            if not refuses_writing(error):
                if isinstance(error, IndexFailed):
                    raise
                yield error
                return
        else:
            yield None
            return
        # The disk is read-only, so the copy is built in memory.
        from vmrag_link.index import storage

        with temporary_memory_folder(copy.root) as folder:
            self.update_copy(folder, branch, revision, is_usable=False)
            with storage.hold_memory_folder(folder):
                yield folder


def _is_same_moment(one: Moment, other: Moment) -> bool:
    """Return whether the position did not change between two reads."""
    one_key, other_key = (
        (moment.git_head, moment.revision, moment.target.trigger, moment.target.state, moment.target.kb_branch)
        for moment in (one, other)
    )
    return one_key == other_key


def _build_unstable_error(what: str) -> Busy:
    return Busy(
        f"cannot read the index of {what}: other processes changed it {ATTEMPTS} times.",
        hint="run the command again when they have finished",
    )
