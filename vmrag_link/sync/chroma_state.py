"""Which of Chroma's stores should be there, which are, and why others are not.

Wanted are the stores of the views that some work tree is bound to. Answers never wait for them:
a process in the background (`chroma_builder`) makes them, the newest first.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from vmrag_link import env, proc
from vmrag_link.chroma.stores import Stores
from vmrag_link.errors import FileSystemError, VmragError, file_failures
from vmrag_link.index.view import unembedded
from vmrag_link.index.views import Views
from vmrag_link.models import Record
from vmrag_link.paths import Places, sweep_temporaries, write_atomically
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

    `revision`: the bound index's. `path`: the store's directory, if it is `ready`. `done` of
    `total` chunks while it is being made. `error` and `hint`: why it `failed`, and what to type.
    """

    state: State
    revision: str | None = None
    path: str | None = None
    done: int = 0
    total: int = 0
    error: str = ""
    hint: str = ""


class Failure(Record, frozen=True):
    """Why a store was not made. `begun`: how often it was tried without coming to any end."""

    message: str = ""
    hint: str = ""
    begun: int = 0


class Wanted(Record, frozen=True):
    """A bound view, and the store that is to be made of it."""

    revision: str
    view: Path
    store: Path


class ChromaStores(NamedTuple):
    """The stores of a repository's work trees. `setting`: `index.chroma`."""

    places: Places
    views: Views
    stores: Stores
    setting: ChromaSetting

    @property
    def mode(self) -> Mode:
        """What the setting means here: where chromadb is missing, `auto` is off."""
        if self.setting != "auto":
            return self.setting
        from vmrag_link.chroma.bindings import unsupported

        return "off" if unsupported() else "follow"

    @property
    def job(self) -> Job:
        return background.chroma_of(self.places)

    # -- what should be there ----------------------------------------------------------------------

    def wanted(self) -> list[Wanted]:
        """The stores that should be there, of the latest bound view first."""
        if self.mode == "off":
            return []
        bound = bindings.bound_everywhere(self.places)
        return [self.of(each.revision) for each in bound if each.view == self.views.path(each.revision).name]

    def of(self, revision: str) -> Wanted:
        """The store of a revision's view."""
        return Wanted(revision, self.views.path(revision), self.stores.path(revision))

    def usable(self, wanted: Wanted) -> bool:
        return not self.stores.problem(wanted.store, lambda: unembedded(wanted.view))

    def lacking(self) -> list[Wanted]:
        """The wanted ones that are not there and have not failed; none where none can be made.

        A view that does not verify is built again when it is next read, and is followed then.
        """
        missing = [each for each in self.wanted() if not self.usable(each)]
        if not missing:
            return []
        from vmrag_link.chroma.bindings import unsupported

        if unsupported():
            return []
        failed = self.failures()
        return [
            each
            for each in missing
            if not _gave_up(failed.get(each.store.name)) and not self.views.problem(each.revision)
        ]

    # -- following ---------------------------------------------------------------------------------

    def follow(self) -> None:
        """Let a process make what is lacking, unless one is at work. Takes a few milliseconds.

        Where it cannot be started, the state tells: what asks next goes on without Chroma.
        """
        if not self.lacking():
            return
        try:
            with file_failures():
                if background.running(self.job):
                    background.request(self.job)
                else:
                    background.ask(self.job, self.start)
        except FileSystemError:
            return  # `state` looks for itself whether anything can be written there

    def start(self) -> int:
        """Start the process; returns its id."""
        module = [sys.executable, "-P", "-E", "-m", BUILDER]
        environ = env.without(frozenset()) | {env.UNATTENDED: "1"}
        return proc.detached(module, cwd=self.places.top, env=environ)

    def tidy(self) -> None:
        """Remove what killed builders left and, if nothing is being followed, what nobody needs."""
        self.stores.sweep()
        sweep_temporaries(self.places.builder)
        if not self.lacking():
            self.stores.evict(needed=self.needed)

    def needed(self) -> list[Path]:
        """The stores of bound revisions, whatever settings the work trees have."""
        bound = {each.revision for each in bindings.bound_everywhere(self.places)}
        return [path for path in self.stores.newest() if path.name.rpartition("-")[0] in bound]

    # -- how it stands -----------------------------------------------------------------------------

    def state(self) -> ChromaState:
        """How it stands with the store of this work tree's index."""
        bound = bindings.read(self.places)
        if self.mode == "off" or bound is None:
            return ChromaState("off" if self.mode == "off" else "following", bound.revision if bound else None)
        here = self.of(bound.revision)
        if self.usable(here):
            return ChromaState("ready", bound.revision, str(here.store))
        failure = self.failures().get(here.store.name)
        running = background.running(self.job)
        if failure and _gave_up(failure) and not (failure.begun and running):
            return ChromaState("failed", bound.revision, error=failure.message, hint=failure.hint)
        if hindered := self._hindrance():
            message, hint = hindered
            return ChromaState("failed", bound.revision, error=message, hint=hint)
        report = background.report(self.job)
        if report and report.error and not running:  # it ended before it began any store
            return ChromaState("failed", bound.revision, error=report.error, hint=RETRY)
        done, total = (report.done, report.total) if report else (0, 0)
        return ChromaState("following", bound.revision, done=done, total=total)

    def _hindrance(self) -> tuple[str, str] | None:
        """Why no store can be made at all, and what to type."""
        from vmrag_link.chroma.bindings import unsupported

        if error := unsupported():
            return error.message, f"{error.hint}; then: {RETRY}"
        if not os.access(self.places.shared, os.W_OK):
            return f"{self.places.shared} cannot be written.", f"Make it writable, then: {RETRY}"
        return None

    # -- failures ----------------------------------------------------------------------------------

    @property
    def _failures(self) -> Path:
        return self.places.builder / "failures.json"

    def failures(self) -> Mapping[str, Failure]:
        """Why stores could not be made, by the name of the store."""
        with contextlib.suppress(OSError, UnicodeDecodeError, msgspec.DecodeError):  # no answer waits for it
            return msgspec.json.decode(self._failures.read_bytes(), type=dict[str, Failure])
        return {}

    def begin(self, wanted: Wanted) -> None:
        """Remember that a store is begun, in case that a kill ends it."""
        before = self.failures().get(wanted.store.name, Failure())
        begun = before.begun + 1
        message = f"It was begun {begun} times, and the process never came to an end (log: {self.job.log})."
        self._note(wanted, Failure(message, RETRY, begun))

    def fail(self, wanted: Wanted, error: VmragError) -> None:
        """Remember why a store was not made. It is tried again when somebody asks for it."""
        self._note(wanted, Failure(error.message, f"{error.hint}; then: {RETRY}" if error.hint else RETRY))

    def forget(self, wanted: Wanted) -> None:
        """Nothing is wrong with a store any more, or it is to be tried again."""
        self._note(wanted, None)

    def _note(self, wanted: Wanted, failure: Failure | None) -> None:
        """Only of stores that are still wanted anything is remembered."""
        before = self.failures()
        names = {each.store.name for each in self.wanted()} | {wanted.store.name}
        after = {name: each for name, each in before.items() if name in names and name != wanted.store.name}
        if failure:
            after[wanted.store.name] = failure
        if after != before:
            write_atomically(self._failures, msgspec.json.encode(after), durable=False)


def _gave_up(failure: Failure | None) -> bool:
    return failure is not None and (failure.begun == 0 or failure.begun >= ATTEMPTS)
