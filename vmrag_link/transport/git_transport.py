"""A remote whose file git carries: in segments (`transport.segments`) on one ref, through a git repository of its own beside the code's.

Here lies a copy of the remote's file, with which the engine speaks as with any remote file. That copy stands where the tracking ref
stands, or is made to before it is used: a note beside it says for which commit that is known, and what the file was like then. The
tracking ref is at the last state that proved sound. All of this can be had again: whatever does not fit is thrown away.

What is fetched arrives in a git repository of its own. Only what proved sound is moved on from there; all else goes with it, at once.

The code's own repository gets none of it: `git log --all`, `git push --mirror` and its size stay what they were.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

import msgspec

from vmrag_link import permissions
from vmrag_link.engines.base import ROOT_BRANCH, Engine, Limits, root_of
from vmrag_link.errors import (
    FileSystemError,
    KnowledgeRefused,
    RemoteDamaged,
    RemoteError,
    RemoteMoved,
    RemoteRejected,
    VmragError,
    quoted,
)
from vmrag_link.git import sidecar_repo, transfer
from vmrag_link.git.transfer import Peer
from vmrag_link.models import Record
from vmrag_link.paths import Places, fsync, write_atomically
from vmrag_link.transport import segments

DATA = "refs/vmrag/data"
"""Where a git repository holds a knowledge base: not a branch, so that no clone pays for it."""

T = TypeVar("T")


class _Rejected(Record, frozen=True):
    """A commit that was not taken; `message` empty: it is worth another look, for what is damaged may be mended."""

    commit: str
    message: str
    hint: str
    limits: Limits


class Through:
    """git carries it."""

    def __init__(self, places: Places, engine: Engine, key: str, peer: Peer) -> None:
        self._places, self._engine, self._key, self._peer = places, engine, key, peer
        self._git = store(places)
        self._ref = _tracking(key)
        self._file = copy_of(places, key)
        self._note = _note_of(self._file)
        self._refused = self._file.with_name("refused.json")

    @property
    def _tip(self) -> str | None:
        return transfer.tip(self._git, self._ref)

    def heads(self) -> dict[str, str]:
        self._settle()
        return self._engine.remote_heads(self._key)

    def fetch(self) -> bool:
        self._require_news()
        with self._arrivals() as there:
            fetched = self._ask(there)
            if fetched is None:
                return False
            tip = self._tip
            stood = tip is not None and self._stands_at(tip)
            if fetched != tip or not stood:
                try:
                    segments.require_acceptable(there, fetched, self._file, limits=self._engine.limits)
                    self._bring(fetched, there)
                except (RemoteError, FileSystemError) as why:
                    self._reject(fetched, why, stood=stood)
                    raise
                sidecar_repo.keep(there, self._git)
                transfer.set_ref(self._git, self._ref, fetched)
                transfer.tidy(self._git)
        self._refused.unlink(missing_ok=True)
        return True

    def _arrivals(self) -> contextlib.AbstractContextManager[Places]:
        return arrivals(self._places, self._git, self._key)

    def _ask(self, there: Places) -> str | None:
        try:
            return transfer.fetch(there, self._peer, DATA, DATA)
        except RemoteDamaged:
            tip = self._tip
            if tip is None or transfer.is_complete(self._git, tip):
                raise
        self._forget()  # the damage may be ours
        return transfer.fetch(there, self._peer, DATA, DATA)

    def _reject(self, commit: str, why: VmragError, *, stood: bool) -> None:
        """Let the copy be what it was before, and remember what was refused. `stood`: engine and copy were where the tracking ref is."""
        tip, refused = self._tip, isinstance(why, KnowledgeRefused)
        if tip is None:
            discard(self._places, self._engine, self._key)
        elif not self._stands_at(tip):
            with contextlib.suppress(VmragError):  # what is lost is found out, and mended, where it is needed
                segments.restore(self._git, tip, self._file)
                if stood and refused:  # which the engine does before it takes anything
                    self._settled(tip)
        note = _Rejected(commit, why.message if refused else "", why.hint, self._engine.limits)
        write_atomically(self._refused, msgspec.json.encode(note))

    def _rejected(self) -> _Rejected | None:
        try:
            return msgspec.json.decode(self._refused.read_bytes(), type=_Rejected)
        except (FileNotFoundError, UnicodeDecodeError, msgspec.DecodeError):
            return None

    def _require_news(self) -> None:
        """What was refused is not fetched again, as long as it is there and the limits are what they were."""
        known = self._rejected()
        if known and known.message and known.limits == self._engine.limits and self._advertised() == known.commit:
            raise KnowledgeRefused(known.message, hint=known.hint)

    def _advertised(self) -> str | None:
        return transfer.advertised(self._git, self._peer, DATA)

    def current(self) -> bool:
        return self._advertised() == self._tip

    def push(self, write: Callable[[str], T]) -> T:
        before = self._settle()
        permissions.make_folder(self._file.parent)
        self._note.unlink(missing_ok=True)  # from here on copy and engine may be ahead of the remote
        done = write(self._url)
        try:
            commit = segments.store(self._git, self._file, before)
        except RemoteDamaged as error:
            self._forget()
            raise RemoteMoved("A part of what the remote held is not here any more.", hint="vmrag push") from error
        transfer.push(self._git, self._peer, commit, DATA, expected=before)
        transfer.set_ref(self._git, self._ref, commit)
        self._settled(commit)
        transfer.tidy(self._git)
        return done

    def put_back(self) -> bool:
        tip = self._tip
        if tip is None:
            return False
        transfer.push(self._git, self._peer, tip, DATA, expected=None)
        return True

    def replace(self, write: Callable[[str, str], None]) -> None:
        """Let it hold what `write` pushes to an empty place, under the short name and the URL that it is given, and nothing else.

        Raises `RemoteMoved` where it is not what was fetched, or proved damaged, a moment ago.
        """
        there = self._replaceable()
        self._settle()  # a fetch of what is damaged may have left the engine anywhere
        key, fresh = f"{self._key}-new", self._file.with_name("new.doltlite")
        permissions.make_folder(fresh.parent)  # it may never have held anything that is sound
        discard_file(fresh)
        try:
            write(key, f"file://{fresh}")
            commit = segments.store(self._git, fresh, None)
        finally:
            self._engine.forget_remote(key)
            discard_file(fresh)
        transfer.push(self._git, self._peer, commit, DATA, expected=there)
        transfer.set_ref(self._git, self._ref, commit)
        self._settle()

    def _replaceable(self) -> str | None:
        """The commit that is there, if it is what was fetched or rejected last, or cannot be fetched."""
        there, rejected = self._advertised(), self._rejected()
        if there == self._tip or (rejected and there == rejected.commit):
            return there
        try:
            with self._arrivals() as room:
                transfer.fetch(room, self._peer, DATA, DATA)
        except RemoteDamaged:
            return there
        raise RemoteMoved(
            "Somebody else pushed knowledge there meanwhile; nothing was changed.", hint="vmrag gc --remote"
        )

    def size(self) -> tuple[int, int]:
        """Bytes of what it held when it was last asked, and how many pushes that was."""
        tip = self._tip
        return (segments.size(self._git, tip), transfer.count(self._git, tip)) if tip else (0, 0)

    @property
    def _url(self) -> str:
        return f"file://{self._file}"

    def _settle(self) -> str | None:
        """Let copy and engine stand where the tracking ref does, which is returned; asks no network."""
        tip = self._tip
        if tip is None:
            if self._file.exists() or self._engine.remote_heads(self._key):
                discard(self._places, self._engine, self._key)
        elif not self._stands_at(tip):
            try:
                self._bring(tip, self._git)
            except (RemoteDamaged, RemoteRejected):
                self._forget()
                return None
        return tip

    def _forget(self) -> None:
        """What is tracked was sound when it was fetched: since then this repository lost a part, or was given another knowledge base.

        git fetches again what no ref says is here.
        """
        transfer.set_ref(self._git, self._ref, None)
        discard(self._places, self._engine, self._key)

    def _bring(self, commit: str, there: Places) -> None:
        self._note.unlink(missing_ok=True)
        segments.restore(there, commit, self._file)
        take(self._engine, self._key, self._url)
        self._settled(commit)

    def _stands_at(self, commit: str) -> bool:
        try:
            noted = self._note.read_bytes() == _stand(commit, self._file)
        except FileNotFoundError:
            return False
        return noted and bool(self._engine.remote_heads(self._key))

    def _settled(self, commit: str) -> None:
        _settled(self._file, commit)


def take(engine: Engine, key: str, url: str) -> None:
    """Fetch, unless it is another knowledge base: raises `RemoteRejected`, and nothing of that one is here."""
    there = engine.peek(url)
    if there is not None and not _ours(engine, there):
        raise _another(engine)
    before = engine.remote_heads(key)
    engine.fetch(key, url)
    if there is None and not _ours(engine, engine.remote_heads(key)):
        for head in before.values():  # nothing else may reach what came from there
            engine.anchor(head, reason="what a remote held")
        engine.forget_remote(key)
        engine.collect_garbage()
        raise _another(engine)


def _ours(engine: Engine, heads: Mapping[str, str]) -> bool:
    return heads.get(ROOT_BRANCH) == root_of(engine)


def _another(engine: Engine) -> RemoteRejected:
    return RemoteRejected(
        "The remote holds another knowledge base, which has no history in common with this one. Nothing of it was taken.",
        hint=f"vmrag remote (shows where that is); to go on with what is there: {start_over(engine)}",
    )


def start_over(engine: Engine) -> str:
    """How somebody leaves the knowledge base that is here for the one that is pinned."""
    kb = engine.folder
    away = kb.with_name(f"{kb.name}-before")
    return f"mv {quoted(kb)} {quoted(away)} && vmrag clone, then import your own documents again: vmrag import"


def clone(places: Places, key: str, peer: Peer, make: Callable[[str, str], Engine], *, limits: Limits) -> Engine | None:
    """See `exchange.clone`."""
    there, file = store(places), copy_of(places, key)
    with arrivals(places, there, key) as room:
        fetched = transfer.fetch(room, peer, DATA, DATA)
        if fetched is None:
            return None
        try:
            segments.require_acceptable(room, fetched, file, limits=limits)
            segments.restore(room, fetched, file)
            engine = make(key, f"file://{file}")
        except (RemoteError, FileSystemError):
            shutil.rmtree(file.parent, ignore_errors=True)
            raise
        sidecar_repo.keep(room, there)
        transfer.set_ref(there, _tracking(key), fetched)
    _settled(file, fetched)
    return engine


def arrivals(places: Places, there: Places, key: str) -> contextlib.AbstractContextManager[Places]:
    """Where it lies what is fetched from a remote, until it proved sound; nothing of it is left then."""
    return sidecar_repo.incoming(places, there, _incoming(places, key))


def _incoming(places: Places, key: str) -> Path:
    return places.remotes / f"incoming-{key}"


def last_seen(places: Places, key: str) -> str | None:
    """The commit that `DATA` was at when a remote was last asked; None for one that was never asked."""
    there = places.remote_objects
    return transfer.tip(sidecar_repo.at(places, there), _tracking(key)) if there.exists() else None


def release(places: Places, key: str) -> None:
    """Remove what a killed process has left: of what it fetched, and beside the remote's refs. The caller holds the remote's lock."""
    shutil.rmtree(_incoming(places, key), ignore_errors=True)
    transfer.release(sidecar_repo.at(places, places.remote_objects), _tracking(key))


def store(places: Places) -> Places:
    """The repository with the segments of all remotes; made if it is missing."""
    return sidecar_repo.lasting(places, places.remote_objects)


def _tracking(key: str) -> str:
    return f"refs/remotes/{key}/data"


def _note_of(file: Path) -> Path:
    return file.with_name("stands-at")


def _stand(commit: str, file: Path) -> bytes:
    """What the note says. Whoever else writes the file changes its time."""
    found = file.stat()
    return f"{commit} {found.st_size} {found.st_mtime_ns}".encode()


def _settled(file: Path, commit: str) -> None:
    """Note it, once the file would survive a power cut: a push adds to the file, and what is missing then would be gone from the remote."""
    fsync(file)
    permissions.settle(file.parent)  # doltlite's lock lies beside it
    note = _note_of(file)
    for leftover in note.parent.glob(f".{note.name}.*.tmp"):
        leftover.unlink()  # of a killed writer; nobody else writes while we hold the lock
    write_atomically(note, _stand(commit, file))


def copy_of(places: Places, key: str) -> Path:
    return places.remotes / key / "remote.doltlite"


def discard_file(file: Path) -> None:
    """A doltlite file, with the lock that lies beside it."""
    file.unlink(missing_ok=True)
    file.with_name(f".{file.name}-lock").unlink(missing_ok=True)


def discard(places: Places, engine: Engine, key: str) -> None:
    """Forget what is known of a remote and drop the copy of what it holds."""
    engine.forget_remote(key)
    shutil.rmtree(copy_of(places, key).parent, ignore_errors=True)
