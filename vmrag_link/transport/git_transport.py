"""A remote that git transfers, on one ref, through a separate repository.

A copy of its content is stored here (`copies`), and the engine uses it like any remote. The
tracking ref is at the last state that passed all checks. Before use, the copy is restored to it.
All of this is derived data: if an operation fails and the repository or the copy is damaged, both
are removed, and the operation starts again.

Fetched objects arrive in a temporary repository. If they pass the checks, they are moved to the
separate repository. Otherwise they are removed with the temporary one.

The code's own repository gets none of these objects and refs, so `git log --all`, `git push
--mirror` and its size do not change.
"""

from __future__ import annotations

import contextlib
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec

from vmrag_link.engines.base import Engine
from vmrag_link.engines.folder import EngineName
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
from vmrag_link.file_access import write_atomically
from vmrag_link.git import sidecar_repo, transfer
from vmrag_link.git.remotes import Peer
from vmrag_link.models import Record
from vmrag_link.paths import Places
from vmrag_link.pin_values import DATA_REF, DOLT_DATA_REF
from vmrag_link.transport import copies, direct_transport

T = TypeVar("T")

_CERTAIN_ERRORS = (AuthenticationFailed, KnowledgeRefused, RemoteInvalid, RemoteMoved, RemoteTooNew)
"""Errors that local damage does not cause."""

_OBJECT_WORDS = re.compile(r"(?i)object|pack|inflate|corrupt|sha1|bad config|reference")
"""Words that git uses about its own files and not about a network."""


_INCOMING = "incoming-"
"""Prefix of the names of temporary repositories."""


class _Rejection(Record, frozen=True):
    """A fetched commit that was refused, so that it is not fetched again."""

    commit: str
    message: str
    """The reason; empty if a retry may succeed, because local damage may have been repaired."""
    hint: str
    limits: Limits


class CopySize(NamedTuple):
    bytes: int
    commits: int


class GitTransport:
    """A remote that git transfers; see `connection.Transport`."""

    def __init__(self, places: Places, engine: Engine, key: str, peer: Peer) -> None:
        self._places = places
        self._engine = engine
        self._key = key
        self._peer = peer
        self._git = open_store(places)
        self._ref = _tracking_ref(key)
        self._folder = places.remotes / key
        self._copy = copies.open_copy(engine.name, self._folder, self._git)
        self._rejection_file = self._folder / "refused.json"

    @property
    def _tip(self) -> str | None:
        """The commit of the tracking ref: the last state that passed all checks."""
        return transfer.read_tip(self._git, self._ref)

    def read_heads(self) -> dict[str, str]:
        self._rebuild_and_retry(self._restore_copy)
        return self._engine.remote_heads(self._key)

    def fetch(self) -> bool:
        return self._rebuild_and_retry(self._fetch_checked)

    def _rebuild_and_retry(self, operation: Callable[[], T]) -> T:
        """Call `operation`. If it fails because of damage here, rebuild and call it again."""
        try:
            return operation()
        except VmragError as error:
            if not self._remove_damage(error):
                raise
        return operation()

    def _remove_damage(self, error: VmragError) -> bool:
        """Remove the repository and the copy if they are damaged; return whether they were.

        Damage may have made git fail. A silent remote is not a reason to read the whole
        repository.
        """
        may_be_damage = isinstance(error, EngineFailed | GitFailed | RemoteError)
        if isinstance(error, _CERTAIN_ERRORS):
            may_be_damage = False
        elif isinstance(error, RemoteUnreachable):
            may_be_damage = bool(_OBJECT_WORDS.search(str(error.details.get("said", ""))))
        if not may_be_damage or not self.find_damage():
            return False
        self.remove_copies()
        return True

    def find_damage(self) -> str:
        """Describe the damage of the repository and the copy, or return an empty text."""
        return sidecar_repo.find_damage(self._git) or (self._copy.find_damage(self._tip) if self._tip else "")

    def remove_copies(self) -> None:
        """Remove the repository and the copy. A fetch creates them again."""
        sidecar_repo.discard_repository(self._places, self._git.common)
        self._git = open_store(self._places)
        self._discard_copy()

    def _fetch_checked(self) -> bool:
        self._require_not_rejected()
        with open_arrivals(self._places, self._git, self._key) as arrivals:
            fetched = transfer.fetch(arrivals, self._peer, self._peer.ref, DATA_REF)
            if fetched is None:
                return False
            tip = self._tip
            was_at_tip = tip is not None and self._is_copy_at(tip)
            if fetched != tip or not was_at_tip:
                try:
                    self._copy.require_acceptable(arrivals, fetched, limits=self._engine.limits)
                    self._check_out_copy(fetched, arrivals)
                except (RemoteError, FileSystemError) as error:
                    self._reject_commit(fetched, error, was_at_tip=was_at_tip)
                    raise
                sidecar_repo.keep_objects(arrivals, self._git)
                transfer.set_ref(self._git, self._ref, fetched)
                sidecar_repo.pack_objects(self._git)
        self._rejection_file.unlink(missing_ok=True)
        return True

    def _reject_commit(self, commit: str, error: VmragError, *, was_at_tip: bool) -> None:
        """Restore the copy and remember the refusal.

        `was_at_tip`: engine and copy were at the tracking ref before.
        """
        tip = self._tip
        is_refused = isinstance(error, KnowledgeRefused)
        if tip is None:
            self._discard_copy()
        elif not self._is_copy_at(tip):
            with contextlib.suppress(VmragError):  # the next operation repairs the copy
                self._copy.check_out_commit(self._git, tip)
                if was_at_tip and is_refused:  # the engine still has the previous heads
                    self._copy.record_commit(tip)
        rejection = _Rejection(commit, error.message if is_refused else "", error.hint, self._engine.limits)
        write_atomically(self._rejection_file, msgspec.json.encode(rejection), durable=False)

    def _read_rejection(self) -> _Rejection | None:
        try:
            return msgspec.json.decode(self._rejection_file.read_bytes(), type=_Rejection)
        except (FileNotFoundError, UnicodeDecodeError, msgspec.DecodeError):
            return None

    def _require_not_rejected(self) -> None:
        """Raise `KnowledgeRefused` again without a fetch, until the remote or the limits change."""
        rejection = self._read_rejection()
        if not rejection or not rejection.message or rejection.limits != self._engine.limits:
            return
        if self._read_remote_commit() == rejection.commit:
            raise KnowledgeRefused(rejection.message, hint=rejection.hint)

    def _read_remote_commit(self) -> str | None:
        return transfer.read_remote_ref(self._git, self._peer, self._peer.ref)

    def is_current(self) -> bool:
        return self._rebuild_and_retry(self._read_remote_commit) == self._tip

    def push(self, write: Callable[[str], T]) -> T:
        with self._raise_moved_if_damaged("run 'vmrag push' to push again"):
            return self._push_once(write)

    @contextlib.contextmanager
    def _raise_moved_if_damaged(self, hint: str) -> Iterator[None]:
        """If the block fails because of damage here, remove it. Raise `RemoteMoved`, so that the
        caller fetches first.
        """
        try:
            yield
        except VmragError as error:
            if not self._remove_damage(error):
                raise
            raise RemoteMoved("the local copy of the remote was damaged and was removed.", hint=hint) from error

    def _push_once(self, write: Callable[[str], T]) -> T:
        before = self._restore_copy()
        self._copy.forget_commit()  # from now on, copy and engine may be ahead of the remote
        result = write(self._copy.url)
        commit = self._copy.store_commit(before)
        try:
            transfer.push(self._git, self._peer, commit, self._peer.ref, expected=before)
        except RemoteMoved:
            raise  # the caller fetches next
        except VmragError:  # otherwise the engine would report that the remote has the revisions
            with contextlib.suppress(VmragError):
                self._restore_copy()
            raise
        transfer.set_ref(self._git, self._ref, commit)
        self._copy.record_commit(commit)
        sidecar_repo.pack_objects(self._git)
        return result

    def restore_remote(self) -> bool:
        return self._rebuild_and_retry(self._push_tip)

    def _push_tip(self) -> bool:
        tip = self._tip
        if tip is None:
            return False
        transfer.push(self._git, self._peer, tip, self._peer.ref, expected=None)
        return True

    def replace_contents(self, write: Callable[[str, str], None]) -> None:
        """Replace the remote's content by what `write` pushes to an empty copy.

        `write` gets the short name and the URL of that copy. Raises `RemoteMoved` unless the
        remote is unchanged since it was last fetched, or proved damaged.
        """
        with self._raise_moved_if_damaged("run 'vmrag gc --remote --apply' to try again"):
            remote_commit = self._read_replaceable_commit()
            self._restore_copy()  # a fetch of damaged data may have left the engine at any state
            key = f"{self._key}-new"
            new_copy = self._copy.create_empty()
            try:
                write(key, new_copy.url)
                commit = new_copy.store_commit(None)
            finally:
                self._engine.forget_remote(key)
                new_copy.discard()
            transfer.push(self._git, self._peer, commit, self._peer.ref, expected=remote_commit)
            transfer.set_ref(self._git, self._ref, commit)
            self._restore_copy()

    def _read_replaceable_commit(self) -> str | None:
        """Return the remote's commit, if it was fetched or refused last, or cannot be fetched.

        A pin may be untrusted, and name a branch of code as its ref.
        """
        remote_commit = self._read_remote_commit()
        rejection = self._read_rejection()
        if remote_commit and self._tip is None and self._peer.ref not in (DATA_REF, DOLT_DATA_REF):
            raise RemoteInvalid(
                f"did not replace {self._peer.ref}: this repository never fetched a knowledge base from it.",
                hint="set another branch in .vmrag.yaml, such as 'remote: git:refs/heads/vmrag/data', then run 'vmrag pin'",
            )
        if remote_commit == self._tip or (rejection and remote_commit == rejection.commit):
            return remote_commit
        try:
            with open_arrivals(self._places, self._git, self._key) as arrivals:
                transfer.fetch(arrivals, self._peer, self._peer.ref, DATA_REF)
        except RemoteDamaged:
            return remote_commit
        raise RemoteMoved("another clone pushed in the meantime; nothing was changed.", hint="run 'vmrag gc --remote'")

    def measure_size(self) -> CopySize:
        """Return the size of the remote at the last fetch."""
        return self._rebuild_and_retry(self._measure_size)

    def _measure_size(self) -> CopySize:
        if tip := self._tip:
            return CopySize(self._copy.measure_size(self._git, tip), transfer.count_commits(self._git, tip))
        return CopySize(0, 0)

    def _restore_copy(self) -> str | None:
        """Bring copy and engine to the tracking ref, without network, and return it."""
        tip = self._tip
        if tip is None:
            if self._copy.exists or self._engine.remote_heads(self._key):
                self._discard_copy()
        elif not self._is_copy_at(tip):
            try:
                self._check_out_copy(tip, self._git)
            except (RemoteDamaged, RemoteRejected):
                self._forget_state()
                return None
        return tip

    def _forget_state(self) -> None:
        """Forget a tracked state that is damaged here, or belongs to another knowledge base.

        It passed the checks when it was fetched. Without a ref, git fetches its objects again.
        """
        transfer.set_ref(self._git, self._ref, None)
        self._discard_copy()

    def _discard_copy(self) -> None:
        """Remove the copy, and the engine's heads of the remote."""
        self._engine.forget_remote(self._key)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _check_out_copy(self, commit: str, repository: Places) -> None:
        self._copy.forget_commit()
        self._copy.check_out_commit(repository, commit)
        direct_transport.fetch_related(self._engine, self._key, self._copy.url)
        self._copy.record_commit(commit)

    def _is_copy_at(self, commit: str) -> bool:
        return self._copy.is_at(commit) and bool(self._engine.remote_heads(self._key))


def clone_remote(
    places: Places,
    engine: EngineName,
    key: str,
    peer: Peer,
    clone: Callable[[str, str], Engine],
    *,
    limits: Limits,
) -> Engine | None:
    """See `connection.clone_remote`."""
    if sidecar_repo.find_damage(sidecar_repo.locate_repository(places, places.remote_objects)):
        sidecar_repo.discard_repository(places, places.remote_objects)
    repository = open_store(places)
    folder = places.remotes / key
    copy = copies.open_copy(engine, folder, repository)
    with open_arrivals(places, repository, key) as arrivals:
        fetched = transfer.fetch(arrivals, peer, peer.ref, DATA_REF)
        if fetched is None:
            return None
        try:
            copy.require_acceptable(arrivals, fetched, limits=limits)
            copy.check_out_commit(arrivals, fetched)
            cloned = clone(key, copy.url)
        except (RemoteError, FileSystemError):
            shutil.rmtree(folder, ignore_errors=True)
            raise
        sidecar_repo.keep_objects(arrivals, repository)
        transfer.set_ref(repository, _tracking_ref(key), fetched)
    copy.record_commit(fetched)
    return cloned


def open_arrivals(places: Places, repository: Places, key: str) -> contextlib.AbstractContextManager[Places]:
    """Create a repository for fetched objects until they are checked. It is removed at the end."""
    return sidecar_repo.open_incoming(places, repository, _incoming_path(places, key))


def _incoming_path(places: Places, key: str) -> Path:
    return places.remotes / f"{_INCOMING}{key}"


def find_copy_damage(places: Places, engine: EngineName, key: str) -> str:
    """Describe the damage of the copy of a remote; return an empty text if it is sound."""
    repository = sidecar_repo.locate_repository(places, places.remote_objects)
    tip = transfer.read_tip(repository, _tracking_ref(key))
    return copies.open_copy(engine, places.remotes / key, repository).find_damage(tip) if tip else ""


def list_copied_remotes(places: Places) -> list[str]:
    """Return the keys of the remotes that have a copy."""
    folders = sorted(places.remotes.iterdir()) if places.remotes.is_dir() else []
    return [folder.name for folder in folders if folder.is_dir() and not folder.name.startswith(_INCOMING)]


def list_unfinished(places: Places) -> dict[Path, Path]:
    """Return temporary files of connections to remotes, with the lock of each.

    They exist only while a process is connected and holds the lock.
    """
    incoming = {path: path.name.removeprefix(_INCOMING) for path in places.remotes.glob(f"{_INCOMING}*")}
    unfinished = [path for pattern in ("*.unfinished", "new*") for path in places.remotes.glob(f"*/{pattern}")]
    keys = incoming | {path: path.parent.name for path in unfinished}
    return {path: lock_path(places, key) for path, key in keys.items()}


def lock_path(places: Places, key: str) -> Path:
    """Return the lock that a process holds while it is connected to a remote."""
    return places.locks / f"remote-{key}.lock"


def read_last_commit(places: Places, key: str) -> str | None:
    """Return the commit of the knowledge base at the last fetch of a remote, or None."""
    if not places.remote_objects.exists():
        return None
    repository = sidecar_repo.locate_repository(places, places.remote_objects)
    return transfer.read_tip(repository, _tracking_ref(key))


def remove_leftovers(places: Places, key: str) -> None:
    """Remove leftovers of a killed process: of a fetch, and next to the remote's refs.

    Hold the remote's lock.
    """
    shutil.rmtree(_incoming_path(places, key), ignore_errors=True)
    transfer.remove_stale_locks(sidecar_repo.locate_repository(places, places.remote_objects), _tracking_ref(key))


def open_store(places: Places) -> Places:
    """Return the repository with the objects of all remotes. It is created if it is missing."""
    return sidecar_repo.provide_repository(places, places.remote_objects)


def _tracking_ref(key: str) -> str:
    return f"refs/remotes/{key}/data"
