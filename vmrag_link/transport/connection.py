"""An open connection to one remote, by one of two transports.

An engine reaches files and servers by itself (`direct_transport`); git carries what every other
remote holds (`git_transport`).
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator
from typing import Protocol, TypeVar

from vmrag_link import locks
from vmrag_link.engines.base import Engine, EngineName
from vmrag_link.engines.limits import USUAL_LIMITS, Limits
from vmrag_link.errors import RemoteInvalid, RemoteMissing
from vmrag_link.git import sidecar_repo
from vmrag_link.paths import Places
from vmrag_link.transport import git_transport
from vmrag_link.transport.address import Address
from vmrag_link.transport.direct_transport import DirectTransport
from vmrag_link.transport.git_transport import GitTransport

T = TypeVar("T")


class Transport(Protocol):
    """Call it with the remote's lock held, as `opened` does."""

    def read_heads(self) -> dict[str, str]:
        """The remote's branches as of the last fetch or push; empty if that is not known."""

    def fetch(self) -> bool:
        """Fetch everything that it holds. False: it has no knowledge base.

        Raises `RemoteDamaged`, `RemoteTooNew`, `RemoteRejected` for another knowledge base than
        ours, `KnowledgeRefused` for content that none of our commands makes or that is too large,
        `FileFailed` where the disk has no room, and the errors of a remote that does not answer.
        Then nothing has moved, and nothing of it is here.
        """

    def restore_remote(self) -> bool:
        """Restore an empty remote to its state when it was last fetched, if that is known."""

    def is_current(self) -> bool:
        """Ask whether it is still as it was when it was last fetched, without fetching."""

    def push(self, write: Callable[[str], T]) -> T:
        """Call `write` with a URL to push to; returns its result.

        Raises `RemoteMoved` if the remote has changed since it was last fetched.
        """


@contextlib.contextmanager
def open_transport(places: Places, engine: Engine, address: Address, *, timeout: float) -> Iterator[Transport]:
    """An open connection; one process of this repository at a time.

    `timeout`: seconds to wait for another.
    """
    with _alone(places, address, f"talk to {address.text}", timeout):
        yield (
            DirectTransport(engine, address)
            if address.peer is None
            else GitTransport(places, engine, address.key, address.peer)
        )


@contextlib.contextmanager
def open_git_transport(places: Places, engine: Engine, address: Address, *, timeout: float) -> Iterator[GitTransport]:
    """As `opened`. Raises `RemoteInvalid` for what git does not carry."""
    if address.peer is None:
        raise RemoteInvalid(
            f"Only a remote that git carries can be written anew; {address.text} is not.",
            hint="Whoever runs a server has it collect its own garbage. For a folder, push to a new one, and name that as"
            " the setting remote: vmrag push file:///NEW/FOLDER",
            remote=address.text,
        )
    with _alone(places, address, f"talk to {address.text}", timeout):
        yield GitTransport(places, engine, address.key, address.peer)


def read_remembered_heads(places: Places, engine: Engine, address: Address, *, timeout: float) -> dict[str, str]:
    """The remote's branches as of the last fetch or push, without network; empty if not known."""
    if address.peer is None:
        return engine.remote_heads(address.key)
    with open_transport(places, engine, address, timeout=timeout) as peer:
        return peer.read_heads()


@contextlib.contextmanager
def _alone(places: Places, address: Address, purpose: str, timeout: float) -> Iterator[None]:
    sidecar_repo.prepare_folders(places)
    with locks.hold_exclusive(git_transport.lock_path(places, address.key), purpose=purpose, timeout=timeout):
        git_transport.remove_leftovers(places, address.key)
        yield


def is_in_use(places: Places, key: str) -> bool:
    """Return whether a process talks to a remote now, and may write its copy."""
    return locks.is_held(git_transport.lock_path(places, key))


def remove_copy(places: Places, key: str, *, timeout: float) -> None:
    """Remove the copy of a remote. The next operation makes it again."""
    with locks.hold_exclusive(
        git_transport.lock_path(places, key), purpose="remove the copy of a remote", timeout=timeout
    ):
        shutil.rmtree(places.remotes / key, ignore_errors=True)


def clone_remote(
    places: Places,
    address: Address,
    make: Callable[[str, str], Engine],
    *,
    timeout: float,
    engine: EngineName,
    limits: Limits = USUAL_LIMITS,
) -> Engine | None:
    """A knowledge base of an engine, which `make` creates from a short name and a URL; None if the
    remote has none.

    Raises as `Transport.fetch`.
    """
    with _alone(places, address, f"clone {address.text}", timeout):
        if address.peer is None:
            try:
                return make(address.key, address.url)
            except RemoteMissing:
                return None
        return git_transport.clone_remote(places, engine, address.key, address.peer, make, limits=limits)
