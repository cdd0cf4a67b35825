"""Which of Chroma's stores should be there, which are, and why others are not.

Wanted are the stores of the views that some work tree is bound to: of stored documents, and of the
files of HEAD's commit (`CommittedFiles`). Answers never wait for them: a process in the background
(`chroma_builder`) makes them, the newest first.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from vmrag_link import env, permissions, proc
from vmrag_link.chroma.stores import REVISION_SEPARATOR, Stores
from vmrag_link.errors import FileSystemError, VmragError, file_failures
from vmrag_link.git import plumbing
from vmrag_link.index.view import SUFFIX, find_index_problem, read_unembedded
from vmrag_link.index.views import Views
from vmrag_link.models import Record
from vmrag_link.paths import TREE, Places, remove_stale_temporaries, write_atomically
from vmrag_link.settings import ChromaSetting
from vmrag_link.sync import background
from vmrag_link.sync import binding as bindings
from vmrag_link.sync.background import Job

Mode = Literal["follow", "wait", "off"]
State = Literal["ready", "following", "off", "failed"]

BUILDER = "vmrag_hooks.chroma"
"""The module that is the process in the background."""

ATTEMPTS = 3
"""How often a store is begun that a kill ended each time."""

RETRY = "vmrag sync --wait"


class ChromaState(Record, frozen=True):
    """How Chroma's store of the bound index stands. It says nothing about answers.

    `revision`: the bound index's. `commit`: the git commit whose files are in the store. `path`:
    the store's directory, if it is `ready`. `done` of `total` chunks while it is being made.
    `error` and `hint`: why it `failed`, and what to type.
    """

    state: State
    revision: str | None = None
    commit: str | None = None
    path: str | None = None
    done: int = 0
    total: int = 0
    error: str = ""
    hint: str = ""


class SharingState(Record, frozen=True):
    """How the bound index stands to the Chroma server of the settings. It says nothing about
    answers.

    `server` as people read it. `off`: nothing is put there. `error` and `hint`: why it `failed`,
    and what to type.
    """

    state: State
    server: str = ""
    revision: str | None = None
    error: str = ""
    hint: str = ""


class Failure(Record, frozen=True):
    """Why a store was not made. `begun`: how often it was tried without coming to any end."""

    message: str = ""
    hint: str = ""
    begun: int = 0


class WantedStore(Record, frozen=True):
    """Bound views, and the store to make of them. `revision`: that of the stored documents."""

    revision: str | None
    views: tuple[Path, ...]
    store: Path


class CommittedFiles(Record, frozen=True):
    """The view of a commit's files from which a worktree's store is made.

    It is a file of three lines in the worktree's folder. The hooks compare the first line with
    HEAD (`vmrag_hooks.shim_parts.SYNC`). Without the setting `index.chroma`, the file exists once
    a store with files was handed out: then the next commands keep it up to date.
    """

    commit: str
    rules: str
    """The rules by which files were chosen (`ChromaStores.rules`)."""
    view: str
    """The revision of the view. Empty if no file of the commit is a document."""


COMMITTED = f"{TREE}/committed"


def read_committed(folder: Path) -> CommittedFiles | None:
    """Return the record in vmrag's folder of a worktree; None without one."""
    with contextlib.suppress(OSError, UnicodeDecodeError, ValueError):
        return CommittedFiles(*(folder / COMMITTED).read_text(encoding="utf-8").split("\n", 2))
    return None


class ChromaStores(NamedTuple):
    """The stores of a repository's work trees. `setting`: `index.chroma`. `rules`: a text that
    differs if other files of the same commit are in a store; empty if no file is.
    """

    places: Places
    views: Views
    stores: Stores
    setting: ChromaSetting
    rules: str = ""

    @property
    def mode(self) -> Mode:
        """What the setting means here: where chromadb is missing, `auto` is off."""
        if self.setting != "auto":
            return self.setting
        from vmrag_link.chroma.bindings import find_unsupported

        return "off" if find_unsupported() else "follow"

    @property
    def job(self) -> Job:
        return background.get_chroma_job(self.places)

    # -- what should be there ----------------------------------------------------------------------

    def list_wanted(self) -> list[WantedStore]:
        """The stores that should be there, of the latest bound view first."""
        bound = dict.fromkeys(self._read_bound(folder) for folder in self._newest_worktrees())
        return list(bound) if bound and self.mode != "off" else []

    def _newest_worktrees(self) -> list[Path]:
        """Return vmrag's folders of the worktrees that have a store, the latest bound first."""
        times: dict[Path, int] = {}
        for folder in bindings.list_worktree_folders(self.places):
            for path in (folder / bindings.WORKSPACE, folder / COMMITTED):
                with contextlib.suppress(OSError):
                    times[folder] = max(times.get(folder, 0), path.stat().st_mtime_ns)
        bound = [folder for folder in times if self._read_bound(folder).views]
        return sorted(bound, key=times.__getitem__, reverse=True)

    def _read_bound(self, folder: Path) -> WantedStore:
        """Return the store of a worktree, which has no views if nothing is bound there."""
        binding, files = bindings.read_binding_file(folder / bindings.WORKSPACE), read_committed(folder)
        revision = binding.revision if binding and binding.view == self.views.view_path(binding.revision).name else None
        return self.get_store(revision, files.view if files else "")

    def get_store(self, revision: str | None, files: str = "") -> WantedStore:
        """The store of the views of a revision and of `files`, as far as they are given."""
        views = [self.views.view_path(revision)] if revision else []
        views += [self.file_views.view_path(files)] if files else []
        return WantedStore(
            revision, tuple(views), self.stores.store_path(REVISION_SEPARATOR.join(filter(None, (revision, files))))
        )

    @property
    def file_views(self) -> Views:
        return Views(self.places.source_views)

    def list_views(self, sealed: str) -> tuple[Path, ...]:
        """Return the views that a store was made of, by the revision in its seal."""
        first, _, files = sealed.partition(REVISION_SEPARATOR)
        if files or self.views.view_path(first).is_dir():
            return self.get_store(first, files).views
        return self.get_store(None, first).views

    def is_usable(self, wanted: WantedStore) -> bool:
        def stand_ins() -> set[str]:
            return {name for path in wanted.views for name in read_unembedded(path)}

        return not self.stores.find_problem(wanted.store, stand_ins)

    def list_lacking(self) -> list[WantedStore]:
        """The wanted ones that are not there and have not failed; none where none can be made.

        A view that does not verify is built again when it is next read, and is followed then.
        """
        missing = [each for each in self.list_wanted() if not self.is_usable(each)]
        if not missing:
            return []
        from vmrag_link.chroma.bindings import find_unsupported

        if find_unsupported():
            return []
        failed = self.read_failures()
        return [
            each
            for each in missing
            if not _gave_up(failed.get(each.store.name)) and not any(map(find_problem, each.views))
        ]

    # -- files of HEAD's commit --------------------------------------------------------------------

    @property
    def is_set(self) -> bool:
        """True if the user wants a store that is always up to date."""
        return self.setting in ("follow", "wait")

    @property
    def committed(self) -> CommittedFiles | None:
        """The files from which this worktree's store is made."""
        return read_committed(self.places.work_tree_folder)

    @property
    def follows_files(self) -> bool:
        """True if the store of this worktree follows the files of HEAD."""
        if not self.rules or self.setting == "off":
            return False
        return self.is_set or (self.places.work_tree_folder / COMMITTED).exists()

    def lacks_files(self) -> bool:
        """Return True if the files of HEAD have to be indexed for this worktree's store."""
        commit = plumbing.read_head(self.places).commit if self.follows_files else None
        if commit is None:
            return False
        files = self.committed
        if files and (files.commit, files.rules) == (commit, self.rules):
            # An index that is damaged or gone is built again, unless the store is finished.
            store = self._read_bound(self.places.work_tree_folder)
            if not files.view or self.is_usable(store) or not find_problem(store.views[-1]):
                return False
        from vmrag_link.chroma.bindings import find_unsupported

        return not _gave_up(self.read_failures().get(name_files(commit))) and not find_unsupported()

    def bind_files(self, files: CommittedFiles | None) -> None:
        """Record the files from which this worktree's store is made; None: it has none."""
        path = self.places.work_tree_folder / COMMITTED
        if files is None:
            path.unlink(missing_ok=True)
        elif files != self.committed:
            content = f"{files.commit}\n{files.rules}\n{files.view}"
            write_atomically(path, content.encode(), durable=False)

    def _mark_following(self) -> None:
        """Let the hooks see whether the store follows each commit."""
        mark = self.places.chroma_follows
        with contextlib.suppress(OSError):  # no answer waits for it
            if not (self.is_set and self.rules):
                mark.unlink(missing_ok=True)
            elif not mark.exists():
                permissions.make_folder(mark.parent)
                permissions.make_file(mark)

    # -- following ---------------------------------------------------------------------------------

    def start_following(self) -> None:
        """Let a process make what is lacking, unless one is at work. Takes a few milliseconds.

        Where it cannot be started, the state tells: what asks next goes on without Chroma.
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
            return  # `state` looks for itself whether anything can be written there

    def start_builder(self) -> int:
        """Start the process; returns its id."""
        module = [sys.executable, "-P", "-E", "-m", BUILDER]
        environ = env.copy_without(frozenset()) | {env.UNATTENDED: "1"}
        return proc.start_detached(module, cwd=self.places.top, env=environ)

    def remove_leftovers(self) -> None:
        """Remove what killed builders left and, if nothing is being followed, what nobody needs."""
        self.stores.remove_unfinished()
        remove_stale_temporaries(self.places.builder)
        if not self.list_lacking():
            self.stores.evict_spare(needed=self.list_needed)

    def list_needed(self) -> list[Path]:
        """The stores of bound revisions, whatever settings the work trees have."""
        bound = {_drop_settings(self._read_bound(folder).store) for folder in self._newest_worktrees()}
        return [path for path in self.stores.list_newest_first() if _drop_settings(path) in bound]

    # -- how it stands -----------------------------------------------------------------------------

    def read_state(self) -> ChromaState:
        """How it stands with the store of this work tree's index."""
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
        if failure and _gave_up(failure) and not (failure.begun and running):
            return ChromaState("failed", revision, commit, error=failure.message, hint=failure.hint)
        if hindered := self._hindrance():
            message, hint = hindered
            return ChromaState("failed", revision, commit, error=message, hint=hint)
        report = background.read_report(self.job)
        if report and report.error and not running:  # it ended before it began any store
            return ChromaState("failed", revision, commit, error=report.error, hint=RETRY)
        steps, total = (report.done, report.total) if report else (0, 0)
        return ChromaState("following", revision, commit, done=steps, total=total)

    def _hindrance(self) -> tuple[str, str] | None:
        """Why no store can be made at all, and what to type."""
        from vmrag_link.chroma.bindings import find_unsupported

        if error := find_unsupported():
            return error.message, f"{error.hint}; then: {RETRY}"
        if not os.access(self.places.shared, os.W_OK):
            return f"{self.places.shared} cannot be written.", f"Make it writable, then: {RETRY}"
        return None

    # -- failures ----------------------------------------------------------------------------------

    @property
    def _failures(self) -> Path:
        return self.places.builder / "failures.json"

    def read_failures(self) -> Mapping[str, Failure]:
        """Why stores could not be made, by the name of the store."""
        with contextlib.suppress(OSError, UnicodeDecodeError, msgspec.DecodeError):  # no answer waits for it
            return msgspec.json.decode(self._failures.read_bytes(), type=dict[str, Failure])
        return {}

    def note_start(self, name: str) -> None:
        """Remember that a store, or the index of files, is begun, in case that a kill ends it."""
        before = self.read_failures().get(name, Failure())
        begun = before.begun + 1
        message = f"vmrag started it {begun} times, and it never finished (log: {self.job.log})."
        self._write_failure(name, Failure(message, RETRY, begun))

    def note_failure(self, name: str, error: VmragError) -> None:
        """Remember why a store was not built. The next request for it tries again."""
        self._write_failure(name, Failure(error.message, f"{error.hint}; then: {RETRY}" if error.hint else RETRY))

    def forget_failure(self, name: str) -> None:
        """Nothing is wrong with a store any more, or it is to be tried again."""
        self._write_failure(name, None)

    def _write_failure(self, name: str, failure: Failure | None) -> None:
        """Only of stores that are still wanted anything is remembered."""
        before = self.read_failures()
        names = {store.store.name for store in self.list_wanted()} | {
            name_files(plumbing.read_head(self.places).commit)
        }
        after = {other: earlier for other, earlier in before.items() if other in names and other != name}
        if failure:
            after[name] = failure
        if after != before:
            write_atomically(self._failures, msgspec.json.encode(after), durable=False)


def name_files(commit: str | None) -> str:
    """Return the name under which a failure to index the files of a commit is remembered."""
    return f"files-{commit}"


def find_problem(path: Path) -> str:
    """Return why a view cannot be used; empty if it can."""
    return find_index_problem(path, revision=path.name.removesuffix(f"-{SUFFIX}"))


def _drop_settings(store: Path) -> str:
    return store.name.rpartition("-")[0]


def _gave_up(failure: Failure | None) -> bool:
    return failure is not None and (failure.begun == 0 or failure.begun >= ATTEMPTS)
