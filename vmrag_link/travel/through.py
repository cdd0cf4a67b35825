"""A remote whose file git carries: in segments (`travel.segments`) on one ref, through a git repository of its own beside the code's.

Here lies a copy of the remote's file, with which the engine speaks as with any remote file. That copy stands where the tracking ref
stands, or is made to before it is used: a note beside it says for which commit that is known, and what the file was like then. The
tracking ref is at the last state that proved sound. All of this can be had again: whatever does not fit is thrown away.

The code's own repository gets none of it: `git log --all`, `git push --mirror` and its size stay what they were.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from vmrag_link import permissions
from vmrag_link.engines.base import ROOT_BRANCH, Engine, root_of
from vmrag_link.errors import RemoteDamaged, RemoteMoved, RemoteRejected, quoted
from vmrag_link.git import apart, transfer
from vmrag_link.git.transfer import Peer
from vmrag_link.paths import Places, write_atomically
from vmrag_link.travel import segments

DATA = "refs/vmrag/data"
"""Where a git repository holds a knowledge base: not a branch, so that no clone pays for it."""

T = TypeVar("T")


class Through:
    """git carries it."""

    def __init__(self, places: Places, engine: Engine, key: str, peer: Peer) -> None:
        self._places, self._engine, self._key, self._peer = places, engine, key, peer
        self._git = store(places)
        self._ref = _tracking(key)
        self._fetched = _incoming(self._ref)
        self._file = copy_of(places, key)
        self._note = _note_of(self._file)

    @property
    def _tip(self) -> str | None:
        return transfer.tip(self._git, self._ref)

    def heads(self) -> dict[str, str]:
        self._settle()
        return self._engine.remote_heads(self._key)

    def fetch(self) -> bool:
        fetched = self._ask()
        if fetched is None:
            return False
        if fetched != self._tip or not self._stands_at(fetched):
            self._bring(fetched)
            transfer.set_ref(self._git, self._ref, fetched)
            transfer.tidy(self._git)
        return True

    def _ask(self) -> str | None:
        try:
            return transfer.fetch(self._git, self._peer, DATA, self._fetched)
        except RemoteDamaged:
            tip = self._tip
            if tip is None or transfer.whole(self._git, tip):
                raise
        self._forget()  # the damage may be ours
        return transfer.fetch(self._git, self._peer, DATA, self._fetched)

    def current(self) -> bool:
        return transfer.advertised(self._git, self._peer, DATA) == self._tip

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
        """The commit that is there, if it was fetched, or cannot be."""
        there, fetched = transfer.advertised(self._git, self._peer, DATA), transfer.tip(self._git, self._fetched)
        if there == fetched:
            return there
        try:
            transfer.fetch(self._git, self._peer, DATA, self._fetched)
        except RemoteDamaged:
            return there
        transfer.set_ref(self._git, self._fetched, fetched)
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
                self._bring(tip)
            except (RemoteDamaged, RemoteRejected):
                self._forget()
                return None
        return tip

    def _forget(self) -> None:
        """What is tracked was sound when it was fetched: since then this repository lost a part, or was given another knowledge base.

        git fetches again what no ref says is here.
        """
        transfer.set_ref(self._git, self._ref, None)
        transfer.set_ref(self._git, self._fetched, None)
        discard(self._places, self._engine, self._key)

    def _bring(self, commit: str) -> None:
        self._note.unlink(missing_ok=True)
        segments.restore(self._git, commit, self._file)
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
    engine.fetch(key, url)
    if there is None and not _ours(engine, engine.remote_heads(key)):
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


def clone(places: Places, key: str, peer: Peer, make: Callable[[str, str], Engine]) -> Engine | None:
    """See `exchange.clone`."""
    there, ref = store(places), _tracking(key)
    fetched = transfer.fetch(there, peer, DATA, _incoming(ref))
    if fetched is None:
        return None
    file = copy_of(places, key)
    segments.restore(there, fetched, file)
    engine = make(key, f"file://{file}")
    transfer.set_ref(there, ref, fetched)
    _settled(file, fetched)
    return engine


def last_seen(places: Places, key: str) -> str | None:
    """The commit that `DATA` was at when a remote was last asked; None for one that was never asked."""
    there = places.remote_objects
    return transfer.tip(apart.at(places, there), _tracking(key)) if there.exists() else None


def release(places: Places, key: str) -> None:
    """Remove what a git that was killed has left beside the remote's refs. The caller holds the remote's lock."""
    transfer.release(apart.at(places, places.remote_objects), _tracking(key))


def store(places: Places) -> Places:
    """The repository with the segments of all remotes; made if it is missing."""
    return apart.lasting(places, places.remote_objects)


def _tracking(key: str) -> str:
    return f"refs/remotes/{key}/data"


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
