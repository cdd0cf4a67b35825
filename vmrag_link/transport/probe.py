"""Whether a remote answers and has changed since it was last fetched.

Fetches nothing, waits briefly. An answer counts for a minute in this process, so a repeated status
asks only once.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from vmrag_link.engines.base import Engine, is_reserved
from vmrag_link.errors import RemoteError, RemoteMissing, RemoteUnreachable
from vmrag_link.git import transfer
from vmrag_link.paths import Places
from vmrag_link.transport import git_transport
from vmrag_link.transport.address import Address

PROBE_SECONDS = 3.0
"""Seconds."""

REMEMBER_SECONDS = 60.0
"""Seconds for which an answer counts."""

_PORTS = {"http": 80, "https": 443}


class ProbeResult(NamedTuple):
    """`problem`: why there is no answer.

    `stands_at`: the commit of the knowledge base, if git carries it.
    """

    at: float
    problem: RemoteError | None
    commit: str | None = None


_answers: dict[tuple[Path, str], ProbeResult] = {}


def probe_remote(places: Places, address: Address, *, anew: bool = False) -> ProbeResult:
    """What the remote says, or said a moment ago. It is contacted: ask only one that is trusted."""
    known = None if anew else last_result(places, address)
    if known is None:
        known = _answers[places.common, address.key] = _probe(places, address)
    return known


def last_result(places: Places, address: Address) -> ProbeResult | None:
    """The remote's latest answer, from memory."""
    known = _answers.get((places.common, address.key))
    return known if known and time.monotonic() - known.at < REMEMBER_SECONDS else None


def describe_doubt(places: Places, engine: Engine, address: Address) -> str:
    """Why what is known of the remote may be older than what it holds; empty if it is not."""
    answer = probe_remote(places, address)
    if answer.problem:
        return answer.problem.message
    if address.peer is None:
        return _compared(engine, address)
    if answer.commit != git_transport.read_last_commit(places, address.key):
        answer = probe_remote(places, address, anew=True)  # we may have fetched or pushed since
        if answer.problem is None and answer.commit != git_transport.read_last_commit(places, address.key):
            return _moved(address)
    return answer.problem.message if answer.problem else ""


def _probe(places: Places, address: Address) -> ProbeResult:
    stands_at = None
    problem: RemoteError | None = None
    try:
        if address.peer is None:
            _connect(address)
        else:
            peer = address.peer._replace(may_ask=False)
            stands_at = transfer.read_remote_ref(places, peer, peer.ref, within=PROBE_SECONDS)
    except RemoteError as error:
        problem = error
    return ProbeResult(time.monotonic(), problem, stands_at)


def _connect(address: Address) -> None:
    """Look at a folder of this machine, or connect to a server.

    Raises `RemoteMissing`, `RemoteUnreachable`.
    """
    parts = urlsplit(address.url)
    if parts.scheme == "file":
        if not Path(address.url.partition("://")[2]).exists():
            raise RemoteMissing(f"There is nothing at {address.text}.", hint="vmrag remote", remote=address.text)
        return
    why = _connection_error(parts.hostname or "", parts.port or _PORTS.get(parts.scheme, 80))
    if why:
        raise RemoteUnreachable(f"{address.text} cannot be reached: {why}", hint="vmrag remote", remote=address.text)


def _connection_error(host: str, port: int) -> str:
    """The reason why there is no answer. In a thread, because nothing ends a slow name look-up."""
    said = [f"no answer within {PROBE_SECONDS:g} s"]

    def connect() -> None:
        try:
            socket.create_connection((host, port), timeout=PROBE_SECONDS).close()
        except OSError as error:
            said[0] = error.strerror or str(error)
        else:
            said[0] = ""

    thread = threading.Thread(target=connect, daemon=True)
    thread.start()
    thread.join(PROBE_SECONDS)
    return said[0]


def _compared(engine: Engine, address: Address) -> str:
    """The heads that the engine itself reaches."""
    try:
        there = engine.peek_heads(address.url)
    except RemoteError as error:
        return error.message
    if there is None:
        return f"{address.text} does not say whether it has moved."
    return "" if _public(there) == _public(engine.remote_heads(address.key)) else _moved(address)


def _moved(address: Address) -> str:
    return f"{address.text} has moved since it was last asked."


def _public(heads: Mapping[str, str]) -> dict[str, str]:
    return {name: head for name, head in heads.items() if not is_reserved(name)}
