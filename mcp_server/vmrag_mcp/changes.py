"""Subscriptions to changes of the knowledge, in both eras of the protocol (`server`).

A client of the handshake era subscribes to single resources. A client of the modern era listens
with one long request. Nothing announces a checkout in another terminal, so the server polls a few
files. Notifications are hints that many clients drop: every answer names its own origin.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from pathlib import Path

import anyio
from mcp.server.subscriptions import InMemorySubscriptionBus, ResourcesListChanged, ResourceUpdated
from mcp.shared.exceptions import MCPError

from vmrag_link.engines import opening
from vmrag_link.errors import VmragError
from vmrag_link.file_access import read_file_stamps
from vmrag_link.git import plumbing

POLL_SECONDS = 1.0
_MAX_POLL_SHARE = 0.1
"""Maximum share of the time that polling uses."""

Notify = Callable[[str], Awaitable[None]]
"""Sends the notification that the resource of this URI has changed."""

_LIST = ""
"""Stands for the list of all resources."""

_DISCONNECTED = (anyio.ClosedResourceError, anyio.BrokenResourceError, MCPError)
"""Errors of a notification to a client that has disconnected."""


class Subscriptions:
    """The subscriptions of all clients of a server on one directory."""

    def __init__(self, directory: Path, source_state: Callable[[], str]) -> None:
        self._directory = directory
        self._source_state = source_state
        self.bus = Bus()
        self._subscribers: dict[tuple[int, str], Notify] = {}
        self._last_stamps: tuple[object, ...] | None = None
        """The stamps that were last compared; None without a subscription."""

    def change_directory(self, directory: Path) -> None:
        self._directory = directory

    async def subscribe(self, client: int, uri: str, notify: Notify) -> None:
        """Announce every change of the resource from now on.

        `client` is a number that identifies the connection, for `unsubscribe`.
        """
        self._subscribers[client, uri] = notify
        await self._read_first_stamps()

    @contextlib.asynccontextmanager
    async def announce_while_listening(self, uris: Sequence[str]) -> AsyncIterator[None]:
        """Announce every change of these resources while a client listens."""
        with self.bus.register_listener(uris):
            await self._read_first_stamps()
            yield

    def unsubscribe(self, client: int, uri: str) -> None:
        self._subscribers.pop((client, uri), None)

    async def _read_first_stamps(self) -> None:
        """Read the stamps before the client gets its answer, so that later changes are
        announced.
        """
        if self._last_stamps is None:
            stamps = await anyio.to_thread.run_sync(self._read_stamps)
            self._last_stamps = self._last_stamps or stamps

    async def poll_changes(self) -> None:
        """Poll while clients subscribe: once a second, or less often if reading the stamps takes
        long.
        """
        pause = POLL_SECONDS
        while True:
            await anyio.sleep(pause)
            if not self._subscribers and not self.bus.has_listeners:
                self._last_stamps = None
                continue
            began = time.monotonic()
            stamps = await anyio.to_thread.run_sync(self._read_stamps)
            pause = max(POLL_SECONDS, (time.monotonic() - began) / _MAX_POLL_SHARE)
            has_changed = self._last_stamps is not None and stamps != self._last_stamps
            self._last_stamps = stamps
            if has_changed:
                await self._notify_clients()

    async def _notify_clients(self) -> None:
        for (client, uri), notify in list(self._subscribers.items()):
            try:
                await notify(uri)
            except _DISCONNECTED:
                self._subscribers.pop((client, uri), None)
        await self.bus.publish_changes()

    def _read_stamps(self) -> tuple[object, ...]:
        """Return the stamps of the files that every checkout, pin and write changes, and the state
        of sources.
        """
        try:
            places = plumbing.locate_work_tree(self._directory)
        except VmragError:
            return ("",)
        try:
            sources = self._source_state()
        except (VmragError, OSError) as error:  # the next call of a tool reports it
            sources = str(error)
        files = (places.git_dir / "HEAD", places.git_dir / "logs" / "HEAD", places.pin, places.workspace)
        return read_file_stamps(files), opening.read_stamp(places.kb), sources


class Bus(InMemorySubscriptionBus):
    """A bus that knows which resources clients listen to."""

    def __init__(self) -> None:
        super().__init__()
        self._listening: Counter[str] = Counter()

    @contextlib.contextmanager
    def register_listener(self, uris: Sequence[str]) -> Iterator[None]:
        """Register a client for these resources and for the list of all resources, until the block
        ends.
        """
        names = [_LIST, *uris]
        self._listening.update(names)
        try:
            yield
        finally:
            self._listening.subtract(names)
            self._listening = +self._listening

    @property
    def has_listeners(self) -> bool:
        return bool(self._listening)

    async def publish_changes(self) -> None:
        await self.publish(ResourcesListChanged())
        for uri in sorted(self._listening.keys() - {_LIST}):
            await self.publish(ResourceUpdated(uri=uri))
