"""An open connection to one remote, by one of two transports.

An engine itself reaches files and servers (`direct_transport`). git transfers the knowledge base of
every other remote (`git_transport`).
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator
from typing import Protocol, TypeVar

from vmrag_link import locks
from vmrag_link.engines.base import Engine
from vmrag_link.engines.folder import EngineName
from vmrag_link.engines.limits import USUAL_LIMITS, Limits
from vmrag_link.errors import RemoteInvalid, RemoteMissing
from vmrag_link.git import folder_modes
from vmrag_link.paths import Places
from vmrag_link.transport import git_transport
from vmrag_link.transport.address import Address
from vmrag_link.transport.direct_transport import DirectTransport
from vmrag_link.transport.git_transport import GitTransport

T = TypeVar("T")


class Transport(Protocol):
    """A connection to a remote. Hold the remote's lock, like `open_transport` does."""

    def read_heads(self) -> dict[str, str]:
        """Return the remote's branches as of the last fetch or push; empty if that is not known."""

    def fetch(self) -> bool:
        """Fetch everything that the remote holds. Return False if it has no knowledge base.

        Raises `RemoteDamaged`, `RemoteTooNew`, `RemoteRejected` for another knowledge base than
        ours, `KnowledgeRefused` for content that no vmrag command writes or that is too large,
        `FileFailed` if the disk has no room, and the errors of a remote that does not answer. If it
        raises, nothing has moved, and nothing from the remote is stored here.
        """

    def restore_remote(self) -> bool:
        """Restore an empty remote to its state at the last fetch; return False if it is unknown."""

    def is_current(self) -> bool:
        """Ask the remote whether it has not changed since it was last fetched, without fetching."""

    def push(self, write: Callable[[str], T]) -> T:
        """Call `write` with a URL to push to, and return its result.

        Raises `RemoteMoved` if the remote has changed since it was last fetched.
        """


@contextlib.contextmanager
def open_transport(places: Places, engine: Engine, address: Address, *, timeout: float) -> Iterator[Transport]:
    """Open a connection. Only one process of this repository has one to the same remote.

    `timeout` is in seconds, to wait for another process.
    """
    with _remote_lock(places, address, f"talk to {address.text}", timeout):
        if address.peer is None:
            yield DirectTransport(engine, address)
        else:
            yield GitTransport(places, engine, address.key, address.peer)


@contextlib.contextmanager
def open_git_transport(places: Places, engine: Engine, address: Address, *, timeout: float) -> Iterator[GitTransport]:
    """Open a connection to a remote that git transfers.

    Raises `RemoteInvalid` for other remotes.
    """
    if address.peer is None:
        raise RemoteInvalid(
            f"cannot rewrite {address.text}: vmrag only rewrites remotes that git transfers.",
            hint="run 'vmrag push file:///NEW/FOLDER' to push to a new folder, or ask the server's administrator to "
            "collect its garbage",
            remote=address.text,
        )
    with _remote_lock(places, address, f"talk to {address.text}", timeout):
        yield GitTransport(places, engine, address.key, address.peer)


def read_remembered_heads(places: Places, engine: Engine, address: Address, *, timeout: float) -> dict[str, str]:
    """Return the remote's branches as of the last fetch or push; empty if that is not known.

    This does not use the network.
    """
    if address.peer is None:
        return engine.remote_heads(address.key)
    with open_transport(places, engine, address, timeout=timeout) as peer:
        return peer.read_heads()


@contextlib.contextmanager
def _remote_lock(places: Places, address: Address, purpose: str, timeout: float) -> Iterator[None]:
    folder_modes.prepare_folders(places)
    with locks.hold_exclusive(git_transport.lock_path(places, address.key), purpose=purpose, timeout=timeout):
        git_transport.remove_leftovers(places, address.key)
        yield


def is_in_use(places: Places, key: str) -> bool:
    """Return whether a process is connected to a remote, and may write its copy."""
    return locks.is_held(git_transport.lock_path(places, key))


def remove_copy(places: Places, key: str, *, timeout: float) -> None:
    """Remove the copy of a remote. The next operation creates it again."""
    with locks.hold_exclusive(
        git_transport.lock_path(places, key), purpose="remove the copy of a remote", timeout=timeout
    ):
        shutil.rmtree(places.remotes / key, ignore_errors=True)


def clone_remote(
    places: Places,
    address: Address,
    clone: Callable[[str, str], Engine],
    *,
    timeout: float,
    engine: EngineName,
    limits: Limits = USUAL_LIMITS,
) -> Engine | None:
    """Create a knowledge base from a remote; return None if the remote has none.

    `clone` creates it from a short name and a URL. Raises the errors of `Transport.fetch`.
    """
    with _remote_lock(places, address, f"clone {address.text}", timeout):
        if address.peer is None:
            try:
                return clone(address.key, address.url)
            except RemoteMissing:
                return None
        return git_transport.clone_remote(places, engine, address.key, address.peer, clone, limits=limits)
