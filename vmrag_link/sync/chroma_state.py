"""Chroma's stores: which are wanted, which exist, and why others do not.

The wanted stores are those of the views to which some work tree is bound: of stored documents, and
of the files of HEAD's commit (`CommittedFiles`). Answers do not wait for them. A background process
(`chroma_builder`) builds them, the newest first.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from vmrag_link import env, hints, permissions, proc
from vmrag_link.chroma.stores import REVISION_SEPARATOR, Stores
from vmrag_link.errors import FileSystemError, VmragError, file_failures
from vmrag_link.file_access import remove_stale_temporaries, write_atomically
from vmrag_link.git import plumbing
from vmrag_link.index.view import SUFFIX, find_index_problem, read_unembedded
from vmrag_link.index.views import Views
from vmrag_link.models import Record
from vmrag_link.paths import TREE, Places
from vmrag_link.settings import ChromaSetting
from vmrag_link.sync import background
from vmrag_link.sync import binding as bindings
from vmrag_link.sync.background import Job

Mode = Literal["follow", "wait", "off"]
State = Literal["ready", "following", "off", "failed"]

BUILDER = "vmrag_hooks.chroma"
"""Module of the background process."""

ATTEMPTS = 3
"""Number of times that a store is started if a kill ends each attempt."""

RETRY = "run 'vmrag sync --wait' to build it again"


class ChromaState(Record, frozen=True, rename={"completed": "done"}):
    """State of Chroma's store of the bound index. It does not affect answers.

    `completed` of `total` chunks while it is being built. `error` and `hint`: why it `failed`, and
    the command to run.
    """

    state: State
    revision: str | None = None
    """The revision of the bound index."""
    commit: str | None = None
    """The git commit whose files are in the store."""
    path: str | None = None
    """The store's directory, if it is `ready`."""
    completed: int = 0
    total: int = 0
    error: str = ""
    hint: str = ""


class SharingState(Record, frozen=True):
    """State of the bound index on the configured Chroma server. It does not affect answers.

    `off`: nothing is shared. `error` and `hint`: why it `failed`, and the command to run.
    """

    state: State
    server: str = ""
    """Printed form of its address."""
    revision: str | None = None
    error: str = ""
    hint: str = ""


class Failure(Record, frozen=True):
    """Why a store was not built."""

    message: str = ""
    hint: str = ""
    begun: int = 0
    """Number of attempts that did not end."""


class WantedStore(Record, frozen=True):
    """Bound views, and the store to build from them."""

    revision: str | None
    """The revision of the stored documents."""
    views: tuple[Path, ...]
    store: Path


class CommittedFiles(Record, frozen=True):
    """The view of a commit's files from which a worktree's store is built.

    It is a file of three lines in the worktree's folder. The hooks compare the first line with HEAD
    (`vmrag_hooks.shim_parts.SYNC`). Without the setting `index.chroma`, the file exists after a
    store with files was handed out. Then the next commands keep it up to date.
    """

    commit: str
    rules: str
    """The rules by which files were selected (`ChromaStores.rules`)."""
    view: str
    """The revision of the view. Empty if no file of the commit is a document."""


COMMITTED = f"{TREE}/committed"


def read_committed(folder: Path) -> CommittedFiles | None:
    """Return the record in vmrag's folder of a worktree, or None."""
    with contextlib.suppress(OSError, UnicodeDecodeError, ValueError):
        return CommittedFiles(*(folder / COMMITTED).read_text(encoding="utf-8").split("\n", 2))
    return None


class ChromaStores(NamedTuple):
    """The stores of a repository's work trees."""

    places: Places
    views: Views
    stores: Stores
    setting: ChromaSetting
    """`index.chroma`."""
    rules: str = ""
    """A text that differs if other files of the same commit are in a store. It is empty if no files
    are.
    """

    @property
    def mode(self) -> Mode:
        """The effective mode: `auto` is off if chromadb is missing."""
        if self.setting != "auto":
            return self.setting
        from vmrag_link.chroma.bindings import find_unsupported

        return "off" if find_unsupported() else "follow"

    @property
    def job(self) -> Job:
        return background.get_chroma_job(self.places)

    # -- wanted stores -----------------------------------------------------------------------------

    def list_wanted(self) -> list[WantedStore]:
        """Return the wanted stores, the latest bound view first."""
        bound = dict.fromkeys(self._read_bound(folder) for folder in self._list_newest_worktrees())
        return list(bound) if bound and self.mode != "off" else []

    def _list_newest_worktrees(self) -> list[Path]:
        """Return vmrag's folders of the worktrees that have a store, the latest bound first."""
        times: dict[Path, int] = {}
        for folder in bindings.list_worktree_folders(self.places):
            for path in (folder / bindings.WORKSPACE, folder / COMMITTED):
                with contextlib.suppress(OSError):
                    times[folder] = max(times.get(folder, 0), path.stat().st_mtime_ns)
        bound = [folder for folder in times if self._read_bound(folder).views]
        return sorted(bound, key=times.__getitem__, reverse=True)

    def _read_bound(self, folder: Path) -> WantedStore:
        """Return the store of a worktree. It has no views if nothing is bound there."""
        binding, files = bindings.read_binding_file(folder / bindings.WORKSPACE), read_committed(folder)
        revision = binding.revision if binding and binding.view == self.views.view_path(binding.revision).name else None
        return self.get_store(revision, files.view if files else "")

    def get_store(self, revision: str | None, files: str = "") -> WantedStore:
        """Return the store of the views of a revision and of `files`, if they are given."""
        views = [self.views.view_path(revision)] if revision else []
        views += [self.file_views.view_path(files)] if files else []
        return WantedStore(
            revision, tuple(views), self.stores.store_path(REVISION_SEPARATOR.join(filter(None, (revision, files))))
        )

    @property
    def file_views(self) -> Views:
        """The views of files of commits."""
        return Views(self.places.source_views)

    def list_views(self, sealed: str) -> tuple[Path, ...]:
        """Return the views from which a store was built, by the revision in its seal."""
        first, _, files = sealed.partition(REVISION_SEPARATOR)
        if files or self.views.view_path(first).is_dir():
            return self.get_store(first, files).views
        return self.get_store(None, first).views

    def is_usable(self, target: WantedStore) -> bool:
        """Return whether the store exists and matches its views."""

        def stand_ins() -> set[str]:
            return {name for path in target.views for name in read_unembedded(path)}

        return not self.stores.find_problem(target.store, stand_ins)

    def list_lacking(self) -> list[WantedStore]:
        """Return the wanted stores that are missing and have not failed. Empty if no store can be
        built.

        A view that does not verify is left out. It is built again when it is next read, and its
        store follows.
        """
        missing = [target for target in self.list_wanted() if not self.is_usable(target)]
        if not missing:
            return []
        from vmrag_link.chroma.bindings import find_unsupported

        if find_unsupported():
            return []
        failed = self.read_failures()
        return [
            target
            for target in missing
            if not _is_final(failed.get(target.store.name)) and not any(map(find_problem, target.views))
        ]

    # -- files of HEAD's commit --------------------------------------------------------------------

    @property
    def is_set(self) -> bool:
        """True if the user wants a store that is always up to date."""
        return self.setting in ("follow", "wait")

    @property
    def committed(self) -> CommittedFiles | None:
        """The files from which this worktree's store is built."""
        return read_committed(self.places.work_tree_folder)

    @property
    def follows_files(self) -> bool:
        """True if the store of this worktree follows the files of HEAD."""
        if not self.rules or self.setting == "off":
            return False
        return self.is_set or (self.places.work_tree_folder / COMMITTED).exists()

    def lacks_files(self) -> bool:
        """Return whether the files of HEAD must be indexed for this worktree's store."""
        commit = plumbing.read_head(self.places).commit if self.follows_files else None
        if commit is None:
            return False
        files = self.committed
        if files and (files.commit, files.rules) == (commit, self.rules):
            # A damaged or missing index is built again, unless the store is complete.
            store = self._read_bound(self.places.work_tree_folder)
            if not files.view or self.is_usable(store) or not find_problem(store.views[-1]):
                return False
        from vmrag_link.chroma.bindings import find_unsupported

        return not _is_final(self.read_failures().get(name_files(commit))) and not find_unsupported()

    def bind_files(self, files: CommittedFiles | None) -> None:
        """Record the files from which this worktree's store is built. None: it contains no
        files.
        """
        path = self.places.work_tree_folder / COMMITTED
        if files is None:
            path.unlink(missing_ok=True)
        elif files != self.committed:
            content = f"{files.commit}\n{files.rules}\n{files.view}"
            write_atomically(path, content.encode(), durable=False)

    def _mark_following(self) -> None:
        """Record for the hooks whether the store follows each commit."""
        mark = self.places.chroma_follows
        with contextlib.suppress(OSError):  # answers do not need it
            if not (self.is_set and self.rules):
                mark.unlink(missing_ok=True)
            elif not mark.exists():
                permissions.make_folder(mark.parent)
                permissions.make_file(mark)

    # -- following ---------------------------------------------------------------------------------

    def start_following(self) -> None:
        """Let a process build the missing stores, unless one is running. Takes a few milliseconds.

        If it cannot be started, `read_state` reports that, and the caller continues without Chroma.
        """
        self._mark_following()
        if not self.rules and self.committed:
            self.bind_files(None)
        if not self.list_lacking() and not self.lacks_files():
            return
        try:
            with file_failures():
                if background.is_running(self.job):
                    background.request_work(self.job)
                else:
                    background.request_or_start(self.job, self.start_builder)
        except FileSystemError:
            return  # `read_state` checks itself whether the folder is writable

    def start_builder(self) -> int:
        """Start the process, and return its id."""
        module = [sys.executable, "-P", "-E", "-m", BUILDER]
        environ = env.copy_without(frozenset()) | {env.UNATTENDED: "1"}
        return proc.start_detached(module, cwd=self.places.top, env=environ)

    def remove_leftovers(self) -> None:
        """Remove files of killed builders and, if no store is missing, stores that are no longer
        needed.
        """
        self.stores.remove_unfinished()
        remove_stale_temporaries(self.places.builder)
        if not self.list_lacking():
            self.stores.evict_spare(needed=self.list_needed)

    def list_needed(self) -> list[Path]:
        """Return the stores of bound revisions, for any settings of the work trees."""
        bound = {_strip_settings(self._read_bound(folder).store) for folder in self._list_newest_worktrees()}
        return [path for path in self.stores.list_newest_first() if _strip_settings(path) in bound]

    # -- state -------------------------------------------------------------------------------------

    def read_state(self) -> ChromaState:
        """Return the state of the store of this work tree's index."""
        bound = bindings.read_binding(self.places)
        revision = bound.revision if bound else None
        if self.mode == "off" or (bound is None and not self.follows_files):
            return ChromaState("off" if self.mode == "off" else "following", revision)
        commit = plumbing.read_head(self.places).commit if self.follows_files else None
        files, store = self.committed, self._read_bound(self.places.work_tree_folder)
        at_head = not commit or (files is not None and (files.commit, files.rules) == (commit, self.rules))
        if at_head and store.views and self.is_usable(store):
            return ChromaState("ready", revision, commit, str(store.store))
        failures = self.read_failures()
        failure = failures.get(store.store.name) or (None if at_head else failures.get(name_files(commit)))
        running = background.is_running(self.job)
        if failure and _is_final(failure) and not (failure.begun and running):
            return ChromaState("failed", revision, commit, error=failure.message, hint=failure.hint)
        if hindered := self._find_hindrance():
            message, hint = hindered
            return ChromaState("failed", revision, commit, error=message, hint=hint)
        report = background.read_report(self.job)
        if report and report.error and not running:  # it ended before it started a store
            return ChromaState("failed", revision, commit, error=report.error, hint=RETRY)
        steps, total = (report.completed, report.total) if report else (0, 0)
        return ChromaState("following", revision, commit, completed=steps, total=total)

    def _find_hindrance(self) -> tuple[str, str] | None:
        """Return why no store can be built at all, and the command to run. Otherwise None."""
        from vmrag_link.chroma.bindings import find_unsupported

        if error := find_unsupported():
            return error.message, hints.join_steps(error.hint, RETRY)
        if not os.access(self.places.shared, os.W_OK):
            return f"{self.places.shared} is not writable.", hints.join_steps("make it writable", RETRY)
        return None

    # -- failures ----------------------------------------------------------------------------------

    @property
    def _failures_path(self) -> Path:
        return self.places.builder / "failures.json"

    def read_failures(self) -> Mapping[str, Failure]:
        """Return why stores could not be built, by the name of the store."""
        with contextlib.suppress(OSError, UnicodeDecodeError, msgspec.DecodeError):  # answers do not need it
            return msgspec.json.decode(self._failures_path.read_bytes(), type=dict[str, Failure])
        return {}

    def note_start(self, name: str) -> None:
        """Record that a store, or the index of files, was started, in case a kill ends it."""
        before = self.read_failures().get(name, Failure())
        begun = before.begun + 1
        message = f"vmrag started it {begun} times, and it never finished (log: {self.job.log})."
        self._write_failure(name, Failure(message, RETRY, begun))

    def note_failure(self, name: str, error: VmragError) -> None:
        """Record why a store was not built. The next request for it tries again."""
        self._write_failure(name, Failure(error.message, hints.join_steps(error.hint, RETRY)))

    def forget_failure(self, name: str) -> None:
        """Forget the failure of a store, because it was built or must be tried again."""
        self._write_failure(name, None)

    def _write_failure(self, name: str, failure: Failure | None) -> None:
        """Record the failure of a store. Failures of stores that are no longer wanted are
        removed.
        """
        before = self.read_failures()
        names = {store.store.name for store in self.list_wanted()} | {
            name_files(plumbing.read_head(self.places).commit)
        }
        after = {other: earlier for other, earlier in before.items() if other in names and other != name}
        if failure:
            after[name] = failure
        if after != before:
            write_atomically(self._failures_path, msgspec.json.encode(after), durable=False)


def name_files(commit: str | None) -> str:
    """Return the name under which a failure to index the files of a commit is recorded."""
    return f"files-{commit}"


def find_problem(path: Path) -> str:
    """Return why a view cannot be used, or an empty text."""
    return find_index_problem(path, revision=path.name.removesuffix(f"-{SUFFIX}"))


def _strip_settings(store: Path) -> str:
    return store.name.rpartition("-")[0]


def _is_final(failure: Failure | None) -> bool:
    return failure is not None and (failure.begun == 0 or failure.begun >= ATTEMPTS)
