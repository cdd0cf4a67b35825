"""Subscriptions to changes of the knowledge, in both eras of the protocol.

Nothing announces a checkout in another terminal, so the server polls a few files. Notifications are
hints that many clients drop: every answer names its own origin.
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
from vmrag_link.paths import Places

POLL_SECONDS = 1.0
_SHARE = 0.1
"""Maximum share of the time that polling uses."""

Tell = Callable[[str], Awaitable[None]]
"""Sends the notification that the resource of this URI has changed."""

_LIST = ""
"""Stands for the list of all resources."""

_GONE = (anyio.ClosedResourceError, anyio.BrokenResourceError, MCPError)
"""Errors of a notification to a client that has disconnected."""


class Subscriptions:
    """The subscriptions of all clients of a server on one directory."""

    def __init__(self, directory: Path, source_state: Callable[[], str]) -> None:
        self._directory = directory
        self._source_state = source_state
        self.bus = Bus()
        self._subscribers: dict[tuple[int, str], Tell] = {}
        self._seen: tuple[object, ...] | None = None
        """None without a subscription."""

    def change_directory(self, directory: Path) -> None:
        self._directory = directory

    async def subscribe(self, client: int, uri: str, tell: Tell) -> None:
        """Announce every change from now on.

        `client` identifies the connection, for `unsubscribe`.
        """
        self._subscribers[client, uri] = tell
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
        if self._seen is None:
            now = await anyio.to_thread.run_sync(self._read_stamps)
            self._seen = self._seen or now

    async def poll_changes(self) -> None:
        """Poll while clients subscribe: once a second, or less often if reading the stamps takes
        long.
        """
        pause = POLL_SECONDS
        while True:
            await anyio.sleep(pause)
            if not self._subscribers and not self.bus.has_listeners:
                self._seen = None
                continue
            began = time.monotonic()
            now = await anyio.to_thread.run_sync(self._read_stamps)
            pause = max(POLL_SECONDS, (time.monotonic() - began) / _SHARE)
            before, self._seen = self._seen, now
            if before is not None and now != before:
                await self._notify_clients()

    async def _notify_clients(self) -> None:
        for key, tell in list(self._subscribers.items()):
            try:
                await tell(key[1])
            except _GONE:
                self._subscribers.pop(key, None)
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
        return read_file_stamps(_list_files(places)), opening.read_stamp(places.kb), sources


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


def _list_files(places: Places) -> list[Path]:
    git = [places.git_dir / "HEAD", places.git_dir / "logs" / "HEAD"]
    return [*git, places.pin, places.workspace]
