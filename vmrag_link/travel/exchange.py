"""One remote, open: what it holds is brought here, and what it lacks goes there.

The embedded engine reaches files and servers by itself. Through git a remote's file travels in segments (`travel.segments`) on one ref;
here lies a copy of it, with which the engine speaks as with any remote file. That copy stands where the tracking ref stands, or is made
to before it is used: a note beside it says for which commit that is known.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol, TypeVar

from vmrag_link import locks
from vmrag_link.engines.base import Engine
from vmrag_link.errors import RemoteMissing
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
        """The remote's branches, as it stood when it was last asked."""

    def fetch(self) -> bool:
        """Ask it, and bring what it holds. False: there is no knowledge base there (yet)."""

    def put_back(self) -> bool:
        """Where there is nothing (any more): let it hold what it did when it was last asked, if that is known."""

    def current(self) -> bool:
        """Ask whether it still stands where it did when it was last asked, without bringing anything."""

    def push(self, write: Callable[[str], T]) -> T:
        """Let `write` push to the URL that it is given; its result. Raises `RemoteMoved` where the remote stands elsewhere by now."""


@contextlib.contextmanager
def opened(places: Places, engine: Engine, address: Address, *, timeout: float) -> Iterator[Exchange]:
    """Talk to a remote; one process of this repository at a time. `timeout`: seconds to wait for another one."""
    lock = places.locks / f"remote-{address.key}.lock"
    with locks.exclusive(lock, purpose=f"talk to {address.text}", timeout=timeout):
        yield Direct(engine, address) if address.peer is None else Through(places, engine, address.key, address.peer)


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
            self._engine.fetch(self._key, self._url)
        except RemoteMissing:
            self._engine.forget_remote(self._key)
            return False
        return True

    def put_back(self) -> bool:
        return False

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
        self._file = copy_of(places, key)
        self._note = _note_of(self._file)

    @property
    def _tip(self) -> str | None:
        return remotes.tip(self._places, self._ref)

    def heads(self) -> dict[str, str]:
        self._settle()
        return self._engine.remote_heads(self._key)

    def fetch(self) -> bool:
        if remotes.fetch(self._places, self._peer, DATA, self._ref) is None:
            return False
        self._settle()
        return True

    def current(self) -> bool:
        return remotes.advertised(self._places, self._peer, DATA) == self._tip

    def push(self, write: Callable[[str], T]) -> T:
        self._settle()
        before = self._tip
        self._note.unlink(missing_ok=True)  # from here on copy and engine may be ahead of the remote
        self._file.parent.mkdir(parents=True, exist_ok=True)
        done = write(self._url)
        commit = segments.store(self._places, self._file, before)
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

    @property
    def _url(self) -> str:
        return f"file://{self._file}"

    def _settle(self) -> None:
        """Let copy and engine stand where the tracking ref does; asks no network."""
        tip = self._tip
        noted = self._note.read_text() if self._note.exists() else None
        if tip is None:
            if noted is not None or self._file.exists() or self._engine.remote_heads(self._key):
                discard(self._places, self._engine, self._key)
        elif noted != tip:
            self._note.unlink(missing_ok=True)
            segments.restore(self._places, tip, self._file)
            self._engine.fetch(self._key, self._url)
            self._settled(tip)

    def _settled(self, tip: str) -> None:
        write_atomically(self._note, tip.encode())


def clone(places: Places, address: Address, make: Callable[[str, str], Engine], *, timeout: float) -> Engine | None:
    """A knowledge base that `make` creates from a short name and a URL; None where the remote has none."""
    with locks.exclusive(places.locks / f"remote-{address.key}.lock", purpose=f"clone {address.text}", timeout=timeout):
        if address.peer is None:
            try:
                return make(address.key, address.url)
            except RemoteMissing:
                return None
        ref = _tracking(address.key)
        if remotes.fetch(places, address.peer, DATA, ref) is None:
            return None
        tip = remotes.tip(places, ref)
        assert tip is not None  # noqa: S101  it was fetched
        file = copy_of(places, address.key)
        segments.restore(places, tip, file)
        engine = make(address.key, f"file://{file}")
        write_atomically(_note_of(file), tip.encode())
        return engine


def _tracking(key: str) -> str:
    return f"{TRACKING}{key}/data"


def _note_of(file: Path) -> Path:
    return file.with_name("stands-at")


def copy_of(places: Places, key: str) -> Path:
    return places.remotes / key / "remote.doltlite"


def discard(places: Places, engine: Engine, key: str) -> None:
    """Forget what is known of a remote and drop the copy of what it holds."""
    import shutil

    engine.forget_remote(key)
    shutil.rmtree(copy_of(places, key).parent, ignore_errors=True)
