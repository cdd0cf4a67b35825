"""A remote that the engine reaches by itself: a file or a server."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from vmrag_link.engines.base import Engine
from vmrag_link.errors import RemoteMissing
from vmrag_link.transport import guarded_fetch
from vmrag_link.transport.address import Address

T = TypeVar("T")


class DirectTransport:
    """See `connection.Transport`. Such a remote can only be asked by fetching everything new."""

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
            guarded_fetch.fetch(self._engine, self._key, self._url)
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
