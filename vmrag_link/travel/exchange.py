"""One remote, open: what it holds is brought here, and what it lacks goes there.

The embedded engine reaches files and servers by itself. Through git a remote's file travels in segments (`travel.segments`) on one ref;
here lies a copy of it, with which the engine speaks as with any remote file. That copy stands where the tracking ref stands, or is made
to before it is used: a note beside it says for which commit that is known, and what the file was like then.

The tracking ref is at the last state that proved sound. All of this can be had again: whatever does not fit is thrown away.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol, TypeVar

from vmrag_link import locks
from vmrag_link.engines.base import ROOT_BRANCH, Engine
from vmrag_link.errors import RemoteDamaged, RemoteInvalid, RemoteMissing, RemoteMoved, RemoteRejected
from vmrag_link.git import remotes
from vmrag_link.git.remotes import Peer
from vmrag_link.paths import Places, write_atomically
from vmrag_link.travel import segments
from vmrag_link.travel.address import Address

DATA = "refs/vmrag/data"
"""Where a git repository holds a knowledge base: not a branch, so that no clone pays for it."""

TRACKING = "refs/vmrag/remotes/"
"""Below it stands, for each remote, what `DATA` was there when it was last asked."""

T = TypeVar("T")


class Exchange(Protocol):
    """Call it with the remote's lock held, as `opened` does."""

    def heads(self) -> dict[str, str]:
        """The remote's branches, as it stood when it was last asked; empty if that is not known."""

    def fetch(self) -> bool:
        """Ask it, and bring what it holds. False: there is no knowledge base there (yet).

        Raises `RemoteDamaged`, `RemoteRejected` for another knowledge base than ours, and why it cannot be asked; then nothing has moved.
        """

    def put_back(self) -> bool:
        """Where there is nothing (any more): let it hold what it did when it was last asked, if that is known."""

    def replace(self, write: Callable[[str, str], None]) -> None:
        """Let it hold what `write` pushes to an empty place, under the short name and the URL that it is given, and nothing else.

        Raises `RemoteMoved` where somebody pushed meanwhile, `RemoteInvalid` where git does not carry it.
        """

    def size(self) -> tuple[int, int]:
        """Bytes of what it held when it was last asked, and how many pushes that was; raises `RemoteInvalid` as `replace`."""

    def current(self) -> bool:
        """Ask whether it still stands where it did when it was last asked, without bringing anything."""

    def push(self, write: Callable[[str], T]) -> T:
        """Let `write` push to the URL that it is given; its result. Raises `RemoteMoved` where the remote stands elsewhere by now."""


@contextlib.contextmanager
def opened(places: Places, engine: Engine, address: Address, *, timeout: float) -> Iterator[Exchange]:
    """Talk to a remote; one process of this repository at a time. `timeout`: seconds to wait for another one."""
    with _alone(places, address, f"talk to {address.text}", timeout):
        yield Direct(engine, address) if address.peer is None else Through(places, engine, address.key, address.peer)


@contextlib.contextmanager
def _alone(places: Places, address: Address, purpose: str, timeout: float) -> Iterator[None]:
    with locks.exclusive(places.locks / f"remote-{address.key}.lock", purpose=purpose, timeout=timeout):
        remotes.release(places, _tracking(address.key))
        yield


class Direct:
    """The engine talks to it. Nobody can be asked for less than everything that is new, which is what `fetch` brings."""

    def __init__(self, engine: Engine, address: Address) -> None:
        self._engine, self._key, self._url = engine, address.key, address.url
        self._asked = False

    def heads(self) -> dict[str, str]:
        if not self._asked:
            self.fetch()
        return self._engine.remote_heads(self._key)

    def fetch(self) -> bool:
        self._asked = True
        try:
            _take(self._engine, self._key, self._url)
        except RemoteMissing:
            self._engine.forget_remote(self._key)
            return False
        return True

    def put_back(self) -> bool:
        return False

    def replace(self, write: Callable[[str, str], None]) -> None:  # noqa: ARG002
        raise self._unsupported()

    def size(self) -> tuple[int, int]:
        raise self._unsupported()

    def _unsupported(self) -> RemoteInvalid:
        return RemoteInvalid(
            f"Only a remote that git carries can be written anew; {self._url} is not.",
            hint="vmrag remote",
            remote=self._url,
        )

    def current(self) -> bool:
        return self._asked

    def push(self, write: Callable[[str], T]) -> T:
        self._asked = False
        return write(self._url)


class Through:
    """git carries it."""

    def __init__(self, places: Places, engine: Engine, key: str, peer: Peer) -> None:
        self._places, self._engine, self._key, self._peer = places, engine, key, peer
        self._ref = _tracking(key)
        self._fetched = _incoming(self._ref)
        self._file = copy_of(places, key)
        self._note = _note_of(self._file)

    @property
    def _tip(self) -> str | None:
        return remotes.tip(self._places, self._ref)

    def heads(self) -> dict[str, str]:
        self._settle()
        return self._engine.remote_heads(self._key)

    def fetch(self) -> bool:
        fetched = remotes.fetch(self._places, self._peer, DATA, self._fetched)
        if fetched is None:
            return False
        if fetched != self._tip or not self._stands_at(fetched):
            self._bring(fetched)
            remotes.set_ref(self._places, self._ref, fetched)
        return True

    def current(self) -> bool:
        return remotes.advertised(self._places, self._peer, DATA) == self._tip

    def push(self, write: Callable[[str], T]) -> T:
        before = self._settle()
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self._note.unlink(missing_ok=True)  # from here on copy and engine may be ahead of the remote
        done = write(self._url)
        try:
            commit = segments.store(self._places, self._file, before)
        except RemoteDamaged as error:
            self._forget()
            raise RemoteMoved("A part of what the remote held is not here any more.", hint="vmrag push") from error
        remotes.push(self._places, self._peer, commit, DATA, expected=before)
        remotes.set_ref(self._places, self._ref, commit)
        self._settled(commit)
        return done

    def put_back(self) -> bool:
        tip = self._tip
        if tip is None:
            return False
        remotes.push(self._places, self._peer, tip, DATA, expected=None)
        return True

    def replace(self, write: Callable[[str, str], None]) -> None:
        there = remotes.tip(self._places, self._fetched)
        self._settle()  # a fetch of what is damaged may have left the engine anywhere
        key, fresh = f"{self._key}-new", self._file.with_name("new.doltlite")
        discard_file(fresh)
        try:
            write(key, f"file://{fresh}")
            commit = segments.store(self._places, fresh, None)
        finally:
            self._engine.forget_remote(key)
            discard_file(fresh)
        remotes.push(self._places, self._peer, commit, DATA, expected=there)
        remotes.set_ref(self._places, self._ref, commit)
        self._settle()

    def size(self) -> tuple[int, int]:
        tip = self._tip
        return (segments.size(self._places, tip), remotes.count(self._places, tip)) if tip else (0, 0)

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
                self._bring(tip)
            except (RemoteDamaged, RemoteRejected):
                self._forget()
                return None
        return tip

    def _forget(self) -> None:
        """What is tracked was sound when it was fetched: since then this repository lost a part, or was given another knowledge base.

        git fetches again what no ref says is here.
        """
        remotes.set_ref(self._places, self._ref, None)
        remotes.set_ref(self._places, self._fetched, None)
        discard(self._places, self._engine, self._key)

    def _bring(self, commit: str) -> None:
        self._note.unlink(missing_ok=True)
        segments.restore(self._places, commit, self._file)
        _take(self._engine, self._key, self._url)
        self._settled(commit)

    def _stands_at(self, commit: str) -> bool:
        try:
            noted = self._note.read_bytes() == _stand(commit, self._file)
        except FileNotFoundError:
            return False
        return noted and bool(self._engine.remote_heads(self._key))

    def _settled(self, commit: str) -> None:
        _settled(self._file, commit)


def _take(engine: Engine, key: str, url: str) -> None:
    """Fetch, unless it is another knowledge base: raises `RemoteRejected`."""
    engine.fetch(key, url)
    root = engine.branch(ROOT_BRANCH)
    assert root is not None  # noqa: S101  every knowledge base has its root branch
    if engine.remote_heads(key).get(ROOT_BRANCH) != root.head:
        engine.forget_remote(key)
        raise RemoteRejected(
            "The remote holds another knowledge base, which has no history in common with this one.",
            hint="vmrag remote (shows where that is); to start from what is there: vmrag clone, in a fresh git clone",
        )


def clone(places: Places, address: Address, make: Callable[[str, str], Engine], *, timeout: float) -> Engine | None:
    """A knowledge base that `make` creates from a short name and a URL; None where the remote has none."""
    with _alone(places, address, f"clone {address.text}", timeout):
        if address.peer is None:
            try:
                return make(address.key, address.url)
            except RemoteMissing:
                return None
        ref = _tracking(address.key)
        fetched = remotes.fetch(places, address.peer, DATA, _incoming(ref))
        if fetched is None:
            return None
        file = copy_of(places, address.key)
        segments.restore(places, fetched, file)
        engine = make(address.key, f"file://{file}")
        remotes.set_ref(places, ref, fetched)
        _settled(file, fetched)
        return engine


def last_seen(places: Places, address: Address) -> str | None:
    """The commit that `DATA` was at when a remote was last asked; None for one that was never asked, or is not asked by git."""
    return remotes.tip(places, _tracking(address.key)) if address.peer else None


def _tracking(key: str) -> str:
    return f"{TRACKING}{key}/data"


def _incoming(ref: str) -> str:
    """Beside a tracking ref: what was fetched last, sound or not."""
    return f"{ref}-fetched"


def _note_of(file: Path) -> Path:
    return file.with_name("stands-at")


def _stand(commit: str, file: Path) -> bytes:
    """What the note says. Whoever else writes the file changes its time."""
    found = file.stat()
    return f"{commit} {found.st_size} {found.st_mtime_ns}".encode()


def _settled(file: Path, commit: str) -> None:
    """Note it, once the file would survive a power cut: a push adds to the file, and what is missing then would be gone from the remote."""
    with file.open("rb") as content:
        os.fsync(content.fileno())
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
    import shutil

    engine.forget_remote(key)
    shutil.rmtree(copy_of(places, key).parent, ignore_errors=True)
