"""A remote that the engine itself reaches (a file or a server), and `fetch_related`.

Every transport uses `fetch_related` to refuse another knowledge base.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from vmrag_link.engines.base import Engine
from vmrag_link.engines.own_branches import ROOT_BRANCH, read_root
from vmrag_link.errors import RemoteMissing, RemoteRejected, quoted
from vmrag_link.transport.address import Address

T = TypeVar("T")


class DirectTransport:
    """See `connection.Transport`.

    The only way to query such a remote is to fetch everything new.
    """

    def __init__(self, engine: Engine, address: Address) -> None:
        self._engine = engine
        self._key = address.key
        self._url = address.url
        self._is_fetched = False

    def read_heads(self) -> dict[str, str]:
        if not self._is_fetched:
            self.fetch()
        return self._engine.remote_heads(self._key)

    def fetch(self) -> bool:
        self._is_fetched = True
        try:
            fetch_related(self._engine, self._key, self._url)
        except RemoteMissing:
            self._engine.forget_remote(self._key)
            return False
        return True

    def restore_remote(self) -> bool:
        return False

    def is_current(self) -> bool:
        return self._is_fetched

    def push(self, write: Callable[[str], T]) -> T:
        self._is_fetched = False
        return write(self._url)


def fetch_related(engine: Engine, key: str, url: str) -> None:
    """Fetch like `Engine.fetch`. Raises `RemoteRejected` for another knowledge base than ours."""
    known_heads = engine.remote_heads(key)
    # Peeking starts the program of Dolt. If the remote was ours before, the fetch checks it.
    remote_heads = None if known_heads and engine.name == "dolt" else engine.peek_heads(url)
    if remote_heads is not None and not _is_ours(engine, remote_heads):
        raise _unrelated_error(engine)
    engine.fetch(key, url)
    if remote_heads is None and not _is_ours(engine, engine.remote_heads(key)):
        for head in known_heads.values():  # nothing else may reach these revisions
            engine.anchor_revision(head, reason="what a remote held")
        engine.forget_remote(key)
        engine.collect_garbage()
        raise _unrelated_error(engine)


AFTER_REPLACEMENT = "then 'vmrag import PATH --collection NAME' to import your own documents again"


def replacement_command(engine: Engine) -> str:
    """Return the command that replaces the local knowledge base by the pinned one."""
    kb = engine.folder
    backup = kb.with_name(f"{kb.name}-before")
    return f"mv {quoted(kb)} {quoted(backup)} && vmrag clone"


def _is_ours(engine: Engine, heads: Mapping[str, str]) -> bool:
    return heads.get(ROOT_BRANCH) == read_root(engine)


def _unrelated_error(engine: Engine) -> RemoteRejected:
    return RemoteRejected(
        "the remote holds another knowledge base, without common history with this one; nothing was fetched.",
        hint=f"run 'vmrag remote' to check the address, or '{replacement_command(engine)}' to use the remote's "
        f"knowledge base instead, {AFTER_REPLACEMENT}",
    )
