"""A git work tree with its view of the knowledge base: what every operation starts from."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from vmrag_link import permissions
from vmrag_link import pin as pins
from vmrag_link.config import Loaded
from vmrag_link.engines.base import MEGABYTE, Engine, Limits
from vmrag_link.engines.doltlite.engine import DoltliteEngine
from vmrag_link.errors import (
    Busy,
    FileSystemError,
    IndexFailed,
    KnowledgeRefused,
    LimitExceeded,
    NotInitialized,
    PinMalformed,
    PinMissing,
    PinRevisionMissing,
    RemoteEmpty,
    RemoteNotTrusted,
    VmragError,
    file_failures,
)
from vmrag_link.git import plumbing
from vmrag_link.index import snapshots as folders
from vmrag_link.index.snapshots import Snapshots
from vmrag_link.journal import Journal
from vmrag_link.models import At, Collection, KbBranch, Record, Working
from vmrag_link.paths import Places
from vmrag_link.progress import Progress
from vmrag_link.settings import Config
from vmrag_link.sync import apply, background, current, eviction, provide, sentences
from vmrag_link.sync import binding as bindings
from vmrag_link.sync.apply import SyncReport
from vmrag_link.sync.binding import Binding
from vmrag_link.sync.context import SyncContext
from vmrag_link.sync.target import Target, Trigger, read_trigger, resolve
from vmrag_link.transport import trust
from vmrag_link.trust import settings as counting

if TYPE_CHECKING:
    from vmrag_link.embedding.base import Model
    from vmrag_link.embedding.registry import ModelChoice, Permission
    from vmrag_link.index.store import IndexStore
    from vmrag_link.sync.indexer import Indexer

# What embeds and indexes is imported where it is used: going back to a snapshot that is there takes a tenth of a second in all.


T = TypeVar("T")

ATTEMPTS = 5
"""How often an index is looked for that other processes take away again."""


MOST_DOCUMENTS = 10_000_000
"""In one revision that others pushed: ten times what was tried."""


class Moment(Record, frozen=True):
    """Where a work tree stands, all of one moment: HEAD's commit, what its pin asks for, and the revision that is bound.

    `branch`: the KB branch, if it stands there; `dirty`: with uncommitted documents, which belong to what is read.
    """

    git_head: str | None
    target: Target
    revision: str
    branch: str | None
    dirty: bool

    @property
    def at(self) -> At:
        """Where documents are read."""
        return Working(self.branch) if self.branch and self.dirty else self.revision


class View(Record, frozen=True):
    """What can be read now: an index directory, the revision it stands at, and whether uncommitted documents are in it.

    `git_head` is the commit that was checked out when the view was opened; `notes` say why it is not what that commit pins.
    """

    folder: Path
    revision: str
    branch: str | None
    dirty: bool
    git_head: str | None = None
    notes: tuple[str, ...] = ()

    @property
    def at(self) -> At:
        """Where the documents are that the index holds."""
        return Working(self.branch) if self.branch and self.dirty else self.revision


class Workspace:
    """Open one with `Workspace.open`; its parts are opened when they are first needed. Belongs to one thread at a time."""

    def __init__(
        self,
        places: Places,
        progress: Progress,
        *,
        patience: float | None = None,
        index_file: Path | None = None,
        models: dict[ModelChoice, Model] | None = None,
    ) -> None:
        self.places = places
        self.progress = progress
        self.index_file = index_file
        self._patience = patience
        self._models: dict[ModelChoice, Model] = {} if models is None else models
        self.unreached: VmragError | None = None
        """Why what the pin names could not be fetched."""
        self._unmade: dict[tuple[str, str], VmragError] = {}
        self.unbuilt: VmragError | None = None
        """Why the pin could not be followed, or the index not be built, so that what was there before answers."""

    @classmethod
    def open(
        cls,
        start: Path,
        progress: Progress,
        *,
        patience: float | None = None,
        index_file: Path | None = None,
        models: dict[ModelChoice, Model] | None = None,
    ) -> Workspace:
        """The work tree around a directory. `patience`: seconds to wait for locks, instead of `lock_timeout_s`.

        `index_file`: the index of the git commit under way, whose hook this is. git waits for us, so nobody waits for its lock.
        `models`: those that are loaded already, and will be: for who opens one workspace after the other. Raises `GitRepositoryMissing`.
        """
        return cls(plumbing.locate(start), progress, patience=patience, index_file=index_file, models=models)

    def close(self) -> None:
        if "engine" in self.__dict__:
            self.engine.close()
            del self.__dict__["engine"]

    # -- parts --------------------------------------------------------------------------------------------------------

    @cached_property
    def settings(self) -> Loaded:
        """Raises `ConfigInvalid`."""
        return counting.load(self.places)

    def forget_settings(self) -> None:
        """They are read again when they are next asked for: their file, or what was agreed to, has changed."""
        for name in ("settings", "permission", "snapshots"):
            self.__dict__.pop(name, None)

    def accepted_remote(self) -> str:
        """`remote` of the settings that count here."""
        return self.config.remote

    @property
    def config(self) -> Config:
        return self.settings.config

    @property
    def lock_timeout(self) -> float:
        """Seconds."""
        return self.config.lock_timeout_s if self._patience is None else self._patience

    @property
    def initialized(self) -> bool:
        return DoltliteEngine.there(self.places.kb)

    def uninitialized(self, why: VmragError | None = None) -> NotInitialized:
        """Why nothing can be done here, with the command that helps: different for a clone than for a new repository.

        `why` the knowledge base of a clone could not be fetched. Only where there is none to be had, a new one is proposed.
        """
        if plumbing.pin_bytes(self.places) is None:
            return NotInitialized("This repository has no knowledge base yet.", hint="vmrag init")
        said = f"This repository pins a knowledge base, but it is not on this machine ({self.places.kb} is missing)."
        why = why or self._not_trusted()
        if why is None:
            return NotInitialized(said, hint="vmrag clone", path=str(self.places.kb))
        then, pin = "then: vmrag clone", self.places.pin.name
        if isinstance(why, RemoteEmpty):
            then = (
                "or start a new one, without what was known: "
                f"rm -f {pin} && git add -A -- {pin} && git commit --allow-empty -m 'Start a new knowledge base' && vmrag init --new"
            )
        return NotInitialized(f"{said} {why.message}", hint=f"{why.hint}; {then}", path=str(self.places.kb))

    def _not_trusted(self) -> RemoteNotTrusted | None:
        """Why what the pin names would not be fetched: then `vmrag fetch` and `vmrag clone` are no hints that help. Contacts nobody."""
        try:
            data = plumbing.pin_bytes(self.places)
            if data is not None:
                trust.require(self.places, pins.parse(data).dolt_remote, accepted=self.accepted_remote)
        except RemoteNotTrusted as why:
            return why
        except PinMalformed:
            pass
        return None

    @cached_property
    def engine(self) -> Engine:
        """Raises `NotInitialized`."""
        if not self.initialized:
            raise self.uninitialized()
        return DoltliteEngine.open(self.places.kb, lock_timeout=self.lock_timeout, limits=self.limits)

    @property
    def limits(self) -> Limits:
        """How much is taken of what others pushed."""
        asked = self.config.limits
        return Limits(
            file_bytes=asked.knowledge_mb * MEGABYTE, documents=MOST_DOCUMENTS, text_bytes=asked.document_mb * MEGABYTE
        )

    @cached_property
    def snapshots(self) -> Snapshots:
        return Snapshots(self.places.snapshots, store_documents=self.config.index.store_documents)

    @property
    def journal(self) -> Journal:
        return Journal(self.places.journal)

    @property
    def parts(self) -> SyncContext:
        return SyncContext(
            places=self.places,
            index_file=self.index_file,
            engine=self.engine,
            snapshots=self.snapshots,
            keep=self.config.index.keep,
            lock_timeout=self.lock_timeout,
            indexer=self.indexer,
            progress=self.progress,
        )

    def indexer(self) -> Indexer:
        from vmrag_link.embedding.cache import EmbeddingCache
        from vmrag_link.sync.indexer import Indexer

        cache = EmbeddingCache(self.places.embeddings, progress=self.progress)
        return Indexer(self.engine, cache, self.model_for, self.progress)

    def model_for(self, collection: Collection) -> Model:
        """The model that the collection was made with. Raises `UsageInvalid`, `EmbeddingMismatch`."""
        from vmrag_link.embedding import registry

        allowed = self._permission_for(collection.embedding_function)
        return self._loaded(registry.choose_for(collection, self.config.embedding, allowed))

    def model(self, name: str) -> Model:
        """The model of that name for new collections. Raises `UsageInvalid`."""
        from vmrag_link.embedding import registry

        return self._loaded(registry.choose(name, self.config.embedding, self._permission_for(name)))

    def _permission_for(self, model: str) -> Permission:
        """A model of this machine takes none, and git need not be asked about it."""
        from vmrag_link.embedding import registry

        return registry.NOTHING if model in registry.LOCAL else self.permission

    @cached_property
    def permission(self) -> Permission:
        """Which embedding services may be asked."""
        from vmrag_link.trust import services

        return services.permitted(self.places, self.settings)

    def _loaded(self, choice: ModelChoice) -> Model:
        if choice not in self._models:
            self._models[choice] = choice.load()
        return self._models[choice]

    # -- where it stands ----------------------------------------------------------------------------------------------

    @property
    def binding(self) -> Binding | None:
        return bindings.read(self.places)

    @property
    def applied(self) -> Trigger | None:
        return bindings.applied(self.places)

    def trigger(self) -> Trigger:
        return read_trigger(self.places)

    def target(self) -> Target:
        bound = self.binding
        return resolve(self.places, self.engine, self.trigger(), bound=bound.revision if bound else None)

    def kb_branch(self) -> KbBranch | None:
        """HEAD's KB branch, if it was made and no other work tree writes on it."""
        return self.target().kb_branch

    # -- reading ------------------------------------------------------------------------------------------------------

    def reconcile(self, *, rebuild: bool = False) -> SyncReport | None:
        """Bring the index to the pin if it is not there, or to `rebuild` it; None when there was nothing to do.

        What happened to documents is said here, so that no caller can keep it to itself.
        """
        if not rebuild and current.is_current(self.places, self.snapshots):
            return None
        report = apply.reconcile(self.parts, rebuild=rebuild)
        if rebuild and report.state == "pinned":
            self._rebuild_copy()
        for note in report.notes:
            self.progress.note(note)
        return report

    def move(self) -> None:
        """As `reconcile`, without the index: what reads and writes rows needs no more. The index follows when it is asked."""
        for note in apply.move(self.parts):
            self.progress.note(note)

    def _rebuild_copy(self) -> None:
        """The working copy, if it is what answers, from the snapshot as it is now."""
        seen = self.moment()
        if branch := self._apart(seen):
            revision = seen.revision
            copy = self.parts.working_copy(branch, revision)
            copy.replace(lambda folder: self.follow(folder, branch, revision, whole=False))

    @property
    def standing_revision(self) -> str | None:
        """As `revision`; None where the workspace never stood anywhere."""
        return bindings.standing_revision(self.places)

    def revision(self) -> str:
        """The revision that the workspace's documents stand at; its index may still be at another. Raises why there is none."""
        revision = self.standing_revision
        if revision is None:
            raise self.unusable(self.target())
        return revision

    def _indexed_revision(self) -> str:
        """The revision that the bound index stands at. Raises why none is bound."""
        bound = self.binding
        if bound is None:
            raise self.unusable(self.target())
        return bound.revision

    def revision_here(self) -> str:
        """As `revision`; raises why, if the knowledge base does not have it (any more): the index may go on answering."""
        revision = self.revision()
        if not self.engine.has_revision(revision):
            raise self.unusable(self.target())
        return revision

    def unusable(self, target: Target) -> VmragError:
        """Why a target cannot be gone to, with the command that helps."""
        if target.problem:
            return target.problem
        if target.state == "missing":
            missing = f"The pin names revision {target.revision}, which is not in this knowledge base."
            why = self.unreached or self._not_trusted()
            if isinstance(why, RemoteNotTrusted):
                return RemoteNotTrusted(
                    f"{missing} {why.message}", hint=why.hint, revision=target.revision, **why.details
                )
            return PinRevisionMissing(
                f"{missing} {why.message}" if why else missing,
                hint=why.hint if why else "vmrag fetch",
                revision=target.revision,
            )
        hint = (
            "vmrag pin" if self.standing_revision else "vmrag init"
        )  # pins where the knowledge base stands; or its beginning
        return PinMissing("This code commit pins no knowledge.", hint=hint)

    def at(self) -> At:
        """Where documents are read: the KB branch's working set if it is attached and has uncommitted ones, else the revision."""
        revision, branch = self.revision_here(), self.kb_branch()
        return Working(branch.name) if branch and branch.dirty and branch.head == revision else revision

    @contextlib.contextmanager
    def view(self) -> Iterator[View]:
        """An index that answers for the workspace, uncommitted documents included; nobody changes it meanwhile.

        HEAD, pin, KB branch and index are those of one moment: if one of them moves while it is opened, it is opened again.
        """
        self._unmade.clear()
        for _ in range(ATTEMPTS):
            seen = self._look(self._indexed_revision())
            revision, apart = seen.revision, self._apart(seen)
            failed = self._unmade.get((apart, revision)) if apart else None
            with self._index(revision, None if failed else apart) as folder:
                if folder and _same(seen, self._look(self._indexed_revision())):
                    notes = self.notes(seen.target, revision)
                    if failed:
                        notes += (f"The uncommitted documents are left out of this answer: {failed.message}",)
                    dirty = seen.dirty and not failed
                    yield View(folder, revision, seen.branch, dirty, seen.git_head, notes)
                    return
        raise _restless("this work tree")

    def moment(self) -> Moment:
        """Where the work tree stands. Raises as `revision`, and `Busy` where it never stands still."""
        for _ in range(ATTEMPTS):
            seen = self._look(self.revision())
            if _same(seen, self._look(self.revision())):
                return seen
        raise _restless("this work tree")

    def _look(self, revision: str) -> Moment:
        head, target = plumbing.head(self.places), self.target()
        branch = target.kb_branch
        attached = branch.name if branch and branch.head == revision else None
        return Moment(head.commit, target, revision, attached, bool(branch and attached and branch.dirty))

    def _apart(self, seen: Moment) -> str | None:
        """The KB branch whose working copy answers; None: the revision's snapshot does."""
        branch, revision = seen.branch, seen.revision
        return branch if branch and (seen.dirty or self.parts.working_copy(branch, revision).altered) else None

    @contextlib.contextmanager
    def _index(self, revision: str, branch: str | None) -> Iterator[Path | None]:
        """The snapshot of a revision, or the working copy of a KB branch on it; None when that had to be made first."""
        if branch is None:
            with self.snapshot(revision) as path:
                yield path
            return
        copy = self.parts.working_copy(branch, revision)
        with copy.reading() as problem:
            if not problem:
                yield copy.path
                return
            if copy.path.is_dir() and not copy.unfinished:
                self.progress.note(f"The index of uncommitted documents does not verify: {problem}. It is built again.")
        try:
            with file_failures(), copy.writing() as whole:
                self.follow(copy.path, branch, revision, whole=whole)
        except (FileSystemError, LimitExceeded) as why:
            self._unmade[branch, revision] = why
        yield None

    def notes(self, target: Target, revision: str) -> tuple[str, ...]:
        """Why `revision` (with its uncommitted documents) is not the knowledge that the checked-out code pins; empty if it is."""
        if current.is_pinned(target, revision):
            return sentences.left_behind(target)
        why = {
            "no_pin": "This code commit pins no knowledge",
            "malformed": "The pin cannot be read",
            "missing": "The pinned revision is not in this knowledge base"
            + (f" ({self.unreached.message.rstrip('.')})" if self.unreached else ""),
        }.get(target.state, "The pin has moved")
        if isinstance(target.problem, KnowledgeRefused):
            why = f"The pinned revision was refused: {target.problem.message.rstrip('.')}"
        if target.state == "pinned" and self.unbuilt:
            why += f", and it cannot be followed now ({self.unbuilt.message.rstrip('.')})"
        if target.state in ("pinned", "missing") and background.running(self.places):
            why += ", and the index follows in the background"
        return (f"{why}; this answer comes from revision {revision[:7]}. See: vmrag status",)

    def read(self, action: Callable[[View], T]) -> T:
        """What `action` makes of the view. An index that proves damaged is built again, once: it is derived."""
        try:
            with self.view() as view:
                return action(view)
        except IndexFailed as error:
            eviction.throw_away(self.parts, self.target(), self._indexed_revision())
            self.progress.note(f"{error.message.rstrip('.')}. It is built again.")
        with self.view() as view:
            return action(view)

    @contextlib.contextmanager
    def snapshot(self, revision: str) -> Iterator[Path]:
        """The index of a revision; nobody removes it meanwhile. One that is not there or does not verify is built first.

        If one was built, the spares beyond the limit go when this one was read.
        """
        path = self.snapshots.path(revision)
        built = False
        try:
            for _ in range(ATTEMPTS):
                with self.snapshots.reading(path):
                    if not self.snapshots.problem(revision):
                        self.snapshots.touch(path)
                        yield path
                        return
                provide.snapshot(self.parts, revision, bases=provide.bases(self.parts))
                built = True
        finally:
            if built:
                eviction.evict(self.parts)
        raise _restless(f"revision {revision[:7]}")

    def follow(
        self,
        folder: Path,
        branch: str,
        revision: str,
        *,
        whole: bool,
        alter: Callable[[IndexStore], None] = lambda _: None,
    ) -> None:
        """Let a working copy (held alone) follow the KB branch's working set; not `whole`: it is made from the snapshot first.

        `alter` does to it what the texts do not decide.
        """
        from vmrag_link.index.store import IndexStore

        if not whole:
            permissions.make_folder(folder.parent)
            with self.snapshot(revision) as source:
                folders.copy(source, folder)
        with IndexStore(folder, store_documents=self.snapshots.store_documents) as store:
            brought = self.indexer().update(store, Working(branch), base=revision)
            alter(store)
            store.seal(revision=revision, settings=self.snapshots.settings, added=brought.plan.add)


def _same(one: Moment, other: Moment) -> bool:
    """Whether nothing has moved between two looks."""
    return (one.git_head, one.revision, _moving(one.target)) == (other.git_head, other.revision, _moving(other.target))


def _moving(target: Target) -> tuple[object, ...]:
    """What of a target can move."""
    return target.trigger, target.state, target.kb_branch


def _restless(what: str) -> Busy:
    return Busy(
        f"Other processes changed the index of {what} {ATTEMPTS} times while it was to be read.",
        hint="Run the command again when they have finished.",
    )
