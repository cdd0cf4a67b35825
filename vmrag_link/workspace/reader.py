"""Read what a work tree's index holds, all of one moment, while other processes go on."""

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
"""How often an index is looked for again because other processes took it away."""


class Moment(Record, frozen=True):
    """Where a work tree stands, all of one moment: HEAD's commit, what its pin asks for, and the
    revision that is read.

    `branch`: the KB branch, if it stands there; `dirty`: with uncommitted documents, which belong
    to what is read.
    """

    git_head: str | None
    target: Target
    revision: str
    branch: str | None
    dirty: bool

    @property
    def at(self) -> At:
        """Where documents are read."""
        return WorkingSet(self.branch) if self.branch and self.dirty else self.revision


class View(Record, frozen=True):
    """What can be read now: an index directory, the revision it stands at, and whether uncommitted
    documents are in it.

    `git_head` is the commit that was checked out when the view was opened; `notes` say why it is
    not what that commit pins. `sources`: what answers besides, of files of the tree. `files_note`:
    why no files answer, though there are sources.
    """

    folder: Path
    revision: str
    branch: str | None
    dirty: bool
    git_head: str | None = None
    notes: tuple[str, ...] = ()
    sources: OpenSources | None = None
    files_note: str = ""

    @property
    def more(self) -> tuple[Path, ...]:
        """Views that are asked together with that in `folder`."""
        return (self.sources.folder,) if self.sources and self.sources.folder != self.folder else ()

    @property
    def at(self) -> At:
        """Where the documents are that the index holds."""
        return WorkingSet(self.branch) if self.branch and self.dirty else self.revision


class Reader:
    """Reads where the work tree stands.

    To bring it to its pin first is the caller's part (`ops.follow.follow_pin`).
    """

    def __init__(self, ws: WorkTree) -> None:
        self._ws = ws
        self._failures: dict[tuple[str, str], VmragError] = {}

    def read_moment(self) -> Moment:
        """Where the work tree stands. Raises as `Workspace.revision`, and `Busy` where it never
        stands still.
        """
        for _ in range(ATTEMPTS):
            seen = self._look(self._ws.require_revision())
            if _same(seen, self._look(self._ws.require_revision())):
                return seen
        raise _restless("this work tree")

    def read(self, action: Callable[[View], T], *, files: bool = True) -> T:
        """What `action` returns for the view.

        An index that proves damaged is built again, once: it is derived. `files`: as in `view`.
        """
        try:
            with self.view(files=files) as view:
                return action(view)
        except IndexFailed as error:
            from vmrag_link.sync import apply

            self._ws.sources.distrust_view()
            apply.discard_views(self._ws.sync_context, self._ws.resolve_target(), self._ws.require_indexed_revision())
            self._ws.progress.note(f"{error.message.rstrip('.')}. It is built again.")
        with self.view(files=files) as view:
            return action(view)

    @contextlib.contextmanager
    def view(self, *, files: bool = True) -> Iterator[View]:
        """The index that answers for the work tree, uncommitted documents included; nobody changes
        it meanwhile. Without `files` those of sources do not answer, and hide nothing.

        HEAD, pin, KB branch and index are those of one moment: if one of them moves while it is
        opened, it is opened again.
        """
        self._failures.clear()
        for _ in range(ATTEMPTS):
            seen = self._look(self._ws.require_indexed_revision())
            revision, copied = seen.revision, self._copied_branch(seen)
            failed = self._failures.get((copied, revision)) if copied else None
            # First the files, which may have to be indexed: who writes documents does not wait.
            with self._opened_sources(files) as sources, self._index(revision, None if failed else copied) as folder:
                if folder and _same(seen, self._look(self._ws.require_indexed_revision())):
                    notes = reasons.explain_difference(self._ws, seen.target, revision)
                    if failed:
                        notes += (f"The uncommitted documents are left out of this answer: {failed.message}",)
                    dirty = seen.dirty and not failed
                    view = View(folder, revision, seen.branch, dirty, seen.git_head, notes)
                    with self._with_sources(view, sources) as whole:
                        yield whole
                    return
        raise _restless("this work tree")

    @contextlib.contextmanager
    def _opened_sources(self, wanted: bool) -> Iterator[OpenSources | str | None]:
        """The files of sources, or why they cannot be had; None where there are none."""
        if not (wanted and self._ws.sources.configured):
            yield None
            return
        with contextlib.ExitStack() as held:
            try:
                with file_failures():
                    here = self._ws.sources.open_work_tree(stored=self._ws.list_stored_collections())
                    opened: OpenSources | str | None = held.enter_context(here)
            except (FileSystemError, LimitExceeded, GitError, LockError) as why:
                opened = f"The files of sources are left out of this answer: {why.message}"
            yield opened

    @contextlib.contextmanager
    def _with_sources(self, view: View, sources: OpenSources | str | None) -> Iterator[View]:
        if not isinstance(sources, OpenSources):
            yield msgspec.structs.replace(view, files_note=sources or "")
            return
        stored = views.read_view(view.folder).collections
        with contextlib.ExitStack() as held:
            derived = [source.collection for source in self._ws.sources.configured if not source.write]
            if not stored.keys().isdisjoint({*sources.collections}.intersection(derived)):  # stored since
                sources = held.enter_context(self._ws.sources.open_work_tree(stored=stored)) or sources
            yield msgspec.structs.replace(view, sources=sources)

    @contextlib.contextmanager
    def open_index(self, revision: str) -> Iterator[Path]:
        """The index of a revision; nobody removes it meanwhile. One that is not there or does not
        verify is built first.

        If one was built, the spares beyond the limit go when this one was read.
        """
        from vmrag_link.sync import apply, build

        found = self._ws.views
        path = found.view_path(revision)
        built = False
        try:
            for _ in range(ATTEMPTS):
                with found.lock_for_reading(path):
                    if not found.find_problem(revision):
                        found.mark_used(path)
                        yield path
                        return
                context = self._ws.sync_context
                try:
                    build.provide_view(context, revision, bases=build.list_bases(context))
                    built = True
                except (OSError, FileFailed, IndexFailed) as error:
                    if not refuses_writing(error):
                        raise
                    in_memory = context._replace(views=MemoryViews(found.root))
                    build.provide_view(in_memory, revision, bases=build.list_bases(in_memory))
        finally:
            if built:
                apply.evict_views(self._ws.sync_context)
        raise _restless(f"revision {revision[:7]}")

    def rebuild_copy(self) -> None:
        """Make the working copy again from the revision's view, if it is what answers."""
        seen = self.read_moment()
        if branch := self._copied_branch(seen):
            revision = seen.revision
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
        """Let a working copy, which the caller holds alone, follow the KB branch's uncommitted
        documents.

        Unless it is `whole`, it is derived from the revision's view. `changed`: as
        `Indexer.update`. `alter` changes in it what the texts do not decide.

        Documents are planned, read and counted one after the other. If another process writes in
        between, the numbers differ, and the copy is made again. Raises `Busy` if that goes on.
        """
        deadline = time.monotonic() + self._ws.settings.lock_timeout
        while True:
            stamp = self._ws.engine.read_stamp()
            try:
                self._make_copy(folder, branch, revision, whole=whole, changed=changed, alter=alter)
            except IndexFailed as error:
                if self._ws.engine.read_stamp() == stamp:
                    raise
                if time.monotonic() >= deadline:
                    raise _restless("this work tree") from error
                changed = None
            else:
                return

    def _make_copy(
        self,
        folder: Path,
        branch: str,
        revision: str,
        *,
        whole: bool,
        changed: frozenset[tuple[str, str]] | None,
        alter: Callable[[Draft], None],
    ) -> None:
        """Make the copy of what is stored now."""
        from vmrag_link.index.draft import Draft

        with contextlib.ExitStack() as held:
            base = folder if whole else held.enter_context(self.open_index(revision))
            in_memory = folder in seal.MEMORY_FOLDERS
            kept = MemoryViews(self._ws.views.root) if in_memory else self._ws.views
            draft = held.enter_context(Draft(kept.segments, views.read_view(base)))
            self._ws.create_indexer().update_index(draft, WorkingSet(branch), base=revision, changed=changed)
            alter(draft)
            draft.publish(folder, revision=revision, durable=False)

    def _look(self, revision: str) -> Moment:
        head, target = plumbing.read_head(self._ws.places), self._ws.resolve_target_for_reading()
        branch = target.kb_branch
        attached = branch.name if branch and branch.head == revision else None
        return Moment(head.commit, target, revision, attached, bool(branch and attached and branch.dirty))

    def _copied_branch(self, seen: Moment) -> str | None:
        """The KB branch whose working copy answers; None: the revision's view does."""
        branch, revision = seen.branch, seen.revision
        if branch and (seen.dirty or self._ws.sync_context.working_copy(branch, revision).holds_given_vectors):
            return branch
        return None

    @contextlib.contextmanager
    def _index(self, revision: str, branch: str | None) -> Iterator[Path | None]:
        """The view of a revision, or the working copy of a KB branch on it; None when that had
        to be made first.
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
                self._ws.progress.note(
                    f"The index of uncommitted documents does not verify: {problem}. It is built again."
                )
        try:
            with file_failures(), copy.lock_for_writing() as stood:
                self.update_copy(copy.path, branch, revision, whole=stood != "gone")
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


def _same(one: Moment, other: Moment) -> bool:
    """Whether nothing has moved between two looks."""
    return (one.git_head, one.revision, _movable(one.target)) == (
        other.git_head,
        other.revision,
        _movable(other.target),
    )


def _movable(target: Target) -> tuple[object, ...]:
    return target.trigger, target.state, target.kb_branch


def _restless(what: str) -> Busy:
    return Busy(
        f"Other processes changed the index of {what} {ATTEMPTS} times while it was to be read.",
        hint="Run the command again when they have finished.",
    )
