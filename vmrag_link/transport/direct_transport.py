"""A remote that the engine reaches by itself, a file or a server; and the fetch that takes nothing
of another knowledge base, which every transport uses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from vmrag_link.engines.base import ROOT_BRANCH, Engine, read_root
from vmrag_link.errors import RemoteMissing, RemoteRejected, quoted
from vmrag_link.transport.address import Address

T = TypeVar("T")


class DirectTransport:
    """See `connection.Transport`. Such a remote can only be asked by fetching everything new."""

    def __init__(self, engine: Engine, address: Address) -> None:
        self._engine, self._key, self._url = engine, address.key, address.url
        self._asked = False

    def read_heads(self) -> dict[str, str]:
        if not self._asked:
            self.fetch()
        return self._engine.remote_heads(self._key)

    def fetch(self) -> bool:
        self._asked = True
        try:
            fetch_related(self._engine, self._key, self._url)
        except RemoteMissing:
            self._engine.forget_remote(self._key)
            return False
        return True

    def restore_remote(self) -> bool:
        return False

    def is_current(self) -> bool:
        return self._asked

    def push(self, write: Callable[[str], T]) -> T:
        self._asked = False
        return write(self._url)


def fetch_related(engine: Engine, key: str, url: str) -> None:
    """As `Engine.fetch`. Raises `RemoteRejected` for another knowledge base than ours."""
    before = engine.remote_heads(key)
    # Dolt starts a program to look there. Once the remote was ours, only a fetch looks again.
    there = None if before and engine.name == "dolt" else engine.peek_heads(url)
    if there is not None and not _is_ours(engine, there):
        raise _another(engine)
    engine.fetch(key, url)
    if there is None and not _is_ours(engine, engine.remote_heads(key)):
        for head in before.values():  # nothing else may reach what came from there
            engine.anchor_revision(head, reason="what a remote held")
        engine.forget_remote(key)
        engine.collect_garbage()
        raise _another(engine)


def replacement_command(engine: Engine) -> str:
    """The command that replaces the knowledge base that is here by the pinned one."""
    kb = engine.folder
    away = kb.with_name(f"{kb.name}-before")
    return f"mv {quoted(kb)} {quoted(away)} && vmrag clone, then import your own documents again: vmrag import"


def _is_ours(engine: Engine, heads: Mapping[str, str]) -> bool:
    return heads.get(ROOT_BRANCH) == read_root(engine)


def _another(engine: Engine) -> RemoteRejected:
    return RemoteRejected(
        "The remote holds another knowledge base, which has no history in common with this one. Nothing of it was taken.",
        hint=f"vmrag remote (shows where that is); to go on with what is there: {replacement_command(engine)}",
    )
