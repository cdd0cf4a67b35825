"""A remote that git carries, on one ref, through a repository of its own.

A copy of what it holds lies here (`copies`), and the engine uses it as any remote. The copy is
brought to the tracking ref before it is used; the tracking ref is at the last state that proved
sound. All of this is derived: if an operation fails and the repository or the copy is damaged, both
are removed, and the operation starts again.

Fetched objects arrive in a repository of their own. Only sound ones are moved on; the rest is
removed with it.

The code's own repository gets none of this: `git log --all`, `git push --mirror` and its size stay
what they were.
"""

from __future__ import annotations

import contextlib
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

from vmrag_link.engines.base import Engine, EngineName
from vmrag_link.engines.limits import Limits
from vmrag_link.errors import (
    AuthenticationFailed,
    EngineFailed,
    FileSystemError,
    GitFailed,
    KnowledgeRefused,
    RemoteDamaged,
    RemoteError,
    RemoteInvalid,
    RemoteMoved,
    RemoteRejected,
    RemoteTooNew,
    RemoteUnreachable,
    VmragError,
)
from vmrag_link.git import sidecar_repo, transfer
from vmrag_link.git.remotes import Peer
from vmrag_link.models import Record
from vmrag_link.paths import Places, write_atomically
from vmrag_link.pin_values import DATA_REF, DOLT_DATA_REF
from vmrag_link.transport import copies, direct_transport

T = TypeVar("T")

_CERTAIN = (AuthenticationFailed, KnowledgeRefused, RemoteInvalid, RemoteMoved, RemoteTooNew)
"""Errors that damage here does not cause."""

_OF_OBJECTS = re.compile(r"(?i)object|pack|inflate|corrupt|sha1|bad config|reference")
"""Words of git about its own files, which it does not use about a network."""


class _Rejected(Record, frozen=True):
    """A commit that was refused.

    `message` empty: try again, because damage may have been mended.
    """

    commit: str
    message: str
    hint: str
    limits: Limits


class GitTransport:
    """A remote that git carries; see `connection.Transport`."""

    def __init__(self, places: Places, engine: Engine, key: str, peer: Peer) -> None:
        self._places, self._engine, self._key, self._peer = places, engine, key, peer
        self._git = open_store(places)
        self._ref = _tracking(key)
        self._folder = places.remotes / key
        self._copy = copies.open_copy(engine.name, self._folder, self._git)
        self._refused = self._folder / "refused.json"

    @property
    def _tip(self) -> str | None:
        return transfer.read_tip(self._git, self._ref)

    def read_heads(self) -> dict[str, str]:
        self._rebuild_and_retry(self._settle)
        return self._engine.remote_heads(self._key)

    def fetch(self) -> bool:
        return self._rebuild_and_retry(self._fetch_sound)

    def _rebuild_and_retry(self, operation: Callable[[], T]) -> T:
        """Call `operation`. If it fails because of damage here, rebuild and call it again."""
        try:
            return operation()
        except VmragError as why:
            if not self._removes_damage(why):
                raise
        return operation()

    def _removes_damage(self, why: VmragError) -> bool:
        """Remove the repository and the copy if they are damaged, which may be why git failed.

        A remote that does not answer is not a reason to read the whole repository.
        """
        suspicious = isinstance(why, EngineFailed | GitFailed | RemoteError) and not isinstance(why, _CERTAIN)
        if isinstance(why, RemoteUnreachable):
            suspicious = bool(_OF_OBJECTS.search(str(why.details.get("said", ""))))
        if not suspicious or not self.find_damage():
            return False
        self.remove_copies()
        return True

    def find_damage(self) -> str:
        """Return what is damaged of the repository and the copy, or an empty text."""
        return sidecar_repo.find_damage(self._git) or (self._copy.find_damage(self._tip) if self._tip else "")

    def remove_copies(self) -> None:
        """Remove the repository and the copy: a fetch brings them again."""
        sidecar_repo.discard_repository(self._places, self._git.common)
        self._git = open_store(self._places)
        self._discard()

    def _fetch_sound(self) -> bool:
        self._require_news()
        with self._arrivals() as there:
            fetched = transfer.fetch(there, self._peer, self._peer.ref, DATA_REF)
            if fetched is None:
                return False
            tip = self._tip
            stood = tip is not None and self._stands_at(tip)
            if fetched != tip or not stood:
                try:
                    self._copy.require_acceptable(there, fetched, limits=self._engine.limits)
                    self._bring(fetched, there)
                except (RemoteError, FileSystemError) as why:
                    self._reject(fetched, why, stood=stood)
                    raise
                sidecar_repo.keep_objects(there, self._git)
                transfer.set_ref(self._git, self._ref, fetched)
                sidecar_repo.pack_objects(self._git)
        self._refused.unlink(missing_ok=True)
        return True

    def _arrivals(self) -> contextlib.AbstractContextManager[Places]:
        return open_arrivals(self._places, self._git, self._key)

    def _reject(self, commit: str, why: VmragError, *, stood: bool) -> None:
        """Restore the copy and remember the refusal.

        `stood`: engine and copy were at the tracking ref.
        """
        tip, refused = self._tip, isinstance(why, KnowledgeRefused)
        if tip is None:
            self._discard()
        elif not self._stands_at(tip):
            with contextlib.suppress(VmragError):  # what is lost is found out, and mended, where it is needed
                self._copy.check_out_commit(self._git, tip)
                if stood and refused:  # then the engine knows what it knew before
                    self._copy.note_commit(tip)
        note = _Rejected(commit, why.message if refused else "", why.hint, self._engine.limits)
        write_atomically(self._refused, msgspec.json.encode(note), durable=False)

    def _read_rejection(self) -> _Rejected | None:
        try:
            return msgspec.json.decode(self._refused.read_bytes(), type=_Rejected)
        except (FileNotFoundError, UnicodeDecodeError, msgspec.DecodeError):
            return None

    def _require_news(self) -> None:
        """Refuse a known commit without fetching it again, while the remote and the limits are the
        same.
        """
        known = self._read_rejection()
        if known and known.message and known.limits == self._engine.limits and self._advertised() == known.commit:
            raise KnowledgeRefused(known.message, hint=known.hint)

    def _advertised(self) -> str | None:
        return transfer.read_remote_ref(self._git, self._peer, self._peer.ref)

    def is_current(self) -> bool:
        return self._rebuild_and_retry(self._advertised) == self._tip

    def push(self, write: Callable[[str], T]) -> T:
        with self._moved_if_damaged("vmrag push"):
            return self._push_once(write)

    @contextlib.contextmanager
    def _moved_if_damaged(self, again: str) -> Iterator[None]:
        """If the block fails because of damage here, remove it and raise `RemoteMoved`: the caller
        has to fetch first.
        """
        try:
            yield
        except VmragError as why:
            if not self._removes_damage(why):
                raise
            raise RemoteMoved("The copy of the remote was damaged here, and was removed.", hint=again) from why

    def _push_once(self, write: Callable[[str], T]) -> T:
        before = self._settle()
        self._copy.clear_note()  # from here on copy and engine may be ahead of the remote
        done = write(self._copy.url)
        commit = self._copy.store_commit(before)
        try:
            transfer.push(self._git, self._peer, commit, self._peer.ref, expected=before)
        except RemoteMoved:
            raise  # what follows fetches
        except VmragError:  # or the engine goes on saying that the remote has it
            with contextlib.suppress(VmragError):
                self._settle()
            raise
        transfer.set_ref(self._git, self._ref, commit)
        self._copy.note_commit(commit)
        sidecar_repo.pack_objects(self._git)
        return done

    def restore_remote(self) -> bool:
        return self._rebuild_and_retry(self._put_back)

    def _put_back(self) -> bool:
        tip = self._tip
        if tip is None:
            return False
        transfer.push(self._git, self._peer, tip, self._peer.ref, expected=None)
        return True

    def replace_contents(self, write: Callable[[str, str], None]) -> None:
        """Replace the remote's content by what `write` pushes to an empty place, a short name and a
        URL.

        Raises `RemoteMoved` unless the remote is as it was just now when it was fetched, or proved
        damaged.
        """
        with self._moved_if_damaged("vmrag gc --remote --apply"):
            self._replace_content(write)

    def _replace_content(self, write: Callable[[str, str], None]) -> None:
        there = self._replaceable()
        self._settle()  # a fetch of what is damaged may have left the engine anywhere
        key, fresh = f"{self._key}-new", self._copy.create_empty()
        try:
            write(key, fresh.url)
            commit = fresh.store_commit(None)
        finally:
            self._engine.forget_remote(key)
            fresh.discard()
        transfer.push(self._git, self._peer, commit, self._peer.ref, expected=there)
        transfer.set_ref(self._git, self._ref, commit)
        self._settle()

    def _replaceable(self) -> str | None:
        """The remote's commit, if it was fetched or refused last, or cannot be fetched.

        A pin may be a stranger's, and the branch that it names one of code.
        """
        there, rejected = self._advertised(), self._read_rejection()
        if there and self._tip is None and self._peer.ref not in (DATA_REF, DOLT_DATA_REF):
            raise RemoteInvalid(
                f"{self._peer.ref} has never been a knowledge base as far as is known here; it is not replaced.",
                hint="Name another branch in .vmrag.yaml (remote: git:refs/heads/vmrag/data), then: vmrag pin",
            )
        if there == self._tip or (rejected and there == rejected.commit):
            return there
        try:
            with self._arrivals() as room:
                transfer.fetch(room, self._peer, self._peer.ref, DATA_REF)
        except RemoteDamaged:
            return there
        raise RemoteMoved(
            "Somebody else pushed knowledge there meanwhile; nothing was changed.", hint="vmrag gc --remote"
        )

    def measure_size(self) -> tuple[int, int]:
        """Bytes of what it held when it was last fetched, and the number of commits there."""
        return self._rebuild_and_retry(self._measure_size)

    def _measure_size(self) -> tuple[int, int]:
        tip = self._tip
        return (self._copy.measure_size(self._git, tip), transfer.count_commits(self._git, tip)) if tip else (0, 0)

    def _settle(self) -> str | None:
        """Bring copy and engine to the tracking ref, without network, and return it."""
        tip = self._tip
        if tip is None:
            if self._copy.exists or self._engine.remote_heads(self._key):
                self._discard()
        elif not self._stands_at(tip):
            try:
                self._bring(tip, self._git)
            except (RemoteDamaged, RemoteRejected):
                self._forget()
                return None
        return tip

    def _forget(self) -> None:
        """Forget a tracked state that is damaged here, or belongs to another knowledge base.

        It was sound when it was fetched. git fetches again what no ref reaches.
        """
        transfer.set_ref(self._git, self._ref, None)
        self._discard()

    def _discard(self) -> None:
        """The copy, and what the engine knows of the remote."""
        self._engine.forget_remote(self._key)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _bring(self, commit: str, there: Places) -> None:
        self._copy.clear_note()
        self._copy.check_out_commit(there, commit)
        direct_transport.fetch_related(self._engine, self._key, self._copy.url)
        self._copy.note_commit(commit)

    def _stands_at(self, commit: str) -> bool:
        return self._copy.is_at(commit) and bool(self._engine.remote_heads(self._key))


def clone_remote(
    places: Places,
    engine: EngineName,
    key: str,
    peer: Peer,
    make: Callable[[str, str], Engine],
    *,
    limits: Limits,
) -> Engine | None:
    """See `connection.clone`."""
    if sidecar_repo.find_damage(sidecar_repo.locate_repository(places, places.remote_objects)):
        sidecar_repo.discard_repository(places, places.remote_objects)
    there, folder = open_store(places), places.remotes / key
    copy = copies.open_copy(engine, folder, there)
    with open_arrivals(places, there, key) as room:
        fetched = transfer.fetch(room, peer, peer.ref, DATA_REF)
        if fetched is None:
            return None
        try:
            copy.require_acceptable(room, fetched, limits=limits)
            copy.check_out_commit(room, fetched)
            made = make(key, copy.url)
        except (RemoteError, FileSystemError):
            shutil.rmtree(folder, ignore_errors=True)
            raise
        sidecar_repo.keep_objects(room, there)
        transfer.set_ref(there, _tracking(key), fetched)
    copy.note_commit(fetched)
    return made


def open_arrivals(places: Places, there: Places, key: str) -> contextlib.AbstractContextManager[Places]:
    """A repository for fetched objects until they prove sound; it is removed then."""
    return sidecar_repo.open_incoming(places, there, _incoming(places, key))


def _incoming(places: Places, key: str) -> Path:
    return places.remotes / f"{_INCOMING}{key}"


_INCOMING = "incoming-"


def find_copy_damage(places: Places, engine: EngineName, key: str) -> str:
    """Return what is damaged of the copy of a remote, or an empty text."""
    repository = sidecar_repo.locate_repository(places, places.remote_objects)
    tip = transfer.read_tip(repository, _tracking(key))
    return copies.open_copy(engine, places.remotes / key, repository).find_damage(tip) if tip else ""


def list_copied_remotes(places: Places) -> list[str]:
    """Return the keys of the remotes of which a copy exists."""
    folders = sorted(places.remotes.iterdir()) if places.remotes.is_dir() else []
    return [folder.name for folder in folders if folder.is_dir() and not folder.name.startswith(_INCOMING)]


def list_unfinished(places: Places) -> dict[Path, Path]:
    """Return what exists only while a process talks to a remote, with the lock that it holds."""
    incoming = {path: path.name.removeprefix(_INCOMING) for path in places.remotes.glob(f"{_INCOMING}*")}
    made = [path for pattern in ("*.unfinished", "new*") for path in places.remotes.glob(f"*/{pattern}")]
    keys = incoming | {path: path.parent.name for path in made}
    return {path: lock_path(places, key) for path, key in keys.items()}


def lock_path(places: Places, key: str) -> Path:
    """The lock that a process holds while it talks to a remote."""
    return places.locks / f"remote-{key}.lock"


def read_last_commit(places: Places, key: str) -> str | None:
    """The commit of the knowledge base when a remote was last fetched; None if it never was."""
    there = places.remote_objects
    return transfer.read_tip(sidecar_repo.locate_repository(places, there), _tracking(key)) if there.exists() else None


def remove_leftovers(places: Places, key: str) -> None:
    """Remove what a killed process left of a fetch, and beside the remote's refs.

    Hold the remote's lock.
    """
    shutil.rmtree(_incoming(places, key), ignore_errors=True)
    transfer.remove_stale_locks(sidecar_repo.locate_repository(places, places.remote_objects), _tracking(key))


def open_store(places: Places) -> Places:
    """The repository with the objects of all remotes; made if it is missing."""
    return sidecar_repo.provide_repository(places, places.remote_objects)


def _tracking(key: str) -> str:
    return f"refs/remotes/{key}/data"
