"""Queries whether a remote answers, and whether it has changed since it was last fetched.

This fetches nothing and waits only briefly. An answer is reused for a minute in this process, so a
repeated status contacts the remote once.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from vmrag_link.engines.base import Engine
from vmrag_link.engines.own_branches import is_reserved
from vmrag_link.errors import RemoteError, RemoteMissing, RemoteUnreachable
from vmrag_link.git import transfer
from vmrag_link.paths import Places
from vmrag_link.transport import git_transport
from vmrag_link.transport.address import Address

PROBE_SECONDS = 3.0
"""Time limit of a probe."""

REMEMBER_SECONDS = 60.0
"""How long an answer is reused."""

_PORTS = {"http": 80, "https": 443}


class ProbeResult(NamedTuple):
    """The answer of a remote."""

    at: float
    """The time of the answer (`time.monotonic`)."""
    problem: RemoteError | None
    """The reason why there is no answer."""
    commit: str | None = None
    """The commit of the knowledge base, if git transfers it."""


_answers: dict[tuple[Path, str], ProbeResult] = {}


def probe_remote(places: Places, address: Address, *, ignore_memory: bool = False) -> ProbeResult:
    """Return the remote's answer, or a recent one. This contacts it, so it must be trusted."""
    result = None if ignore_memory else last_result(places, address)
    if result is None:
        result = _answers[places.common, address.key] = _contact_remote(places, address)
    return result


def last_result(places: Places, address: Address) -> ProbeResult | None:
    """Return the remote's latest answer from memory, or None."""
    result = _answers.get((places.common, address.key))
    return result if result and time.monotonic() - result.at < REMEMBER_SECONDS else None


def describe_doubt(places: Places, engine: Engine, address: Address) -> str:
    """Describe why the local state of the remote may be outdated, or return an empty text."""
    answer = probe_remote(places, address)
    if answer.problem:
        return answer.problem.message
    if address.peer is None:
        return _describe_moved_heads(engine, address)
    if answer.commit != git_transport.read_last_commit(places, address.key):
        answer = probe_remote(places, address, ignore_memory=True)  # a fetch or push may have happened since
        if answer.problem is None and answer.commit != git_transport.read_last_commit(places, address.key):
            return _moved_text(address)
    return answer.problem.message if answer.problem else ""


def _contact_remote(places: Places, address: Address) -> ProbeResult:
    commit = None
    problem: RemoteError | None = None
    try:
        if address.peer is None:
            _check_direct(address)
        else:
            peer = address.peer._replace(may_ask=False)
            commit = transfer.read_remote_ref(places, peer, peer.ref, within=PROBE_SECONDS)
    except RemoteError as error:
        problem = error
    return ProbeResult(time.monotonic(), problem, commit)


def _check_direct(address: Address) -> None:
    """Check a folder of this machine, or connect to a server.

    Raises `RemoteMissing` and `RemoteUnreachable`.
    """
    parts = urlsplit(address.url)
    if parts.scheme == "file":
        if not Path(address.url.partition("://")[2]).exists():
            raise RemoteMissing(
                f"nothing found at {address.text}.", hint="run 'vmrag remote' to list the remotes", remote=address.text
            )
        return
    why = _connection_error(parts.hostname or "", parts.port or _PORTS.get(parts.scheme, 80))
    if why:
        raise RemoteUnreachable(
            f"cannot reach {address.text}: {why}", hint="run 'vmrag remote' to list the remotes", remote=address.text
        )


def _connection_error(host: str, port: int) -> str:
    """Return why a server does not answer.

    Uses a thread, because nothing ends a slow name look-up.
    """
    problem = [f"no answer within {PROBE_SECONDS:g} s"]

    def connect() -> None:
        try:
            socket.create_connection((host, port), timeout=PROBE_SECONDS).close()
        except OSError as error:
            problem[0] = error.strerror or str(error)
        else:
            problem[0] = ""

    thread = threading.Thread(target=connect, daemon=True)
    thread.start()
    thread.join(PROBE_SECONDS)
    return problem[0]


def _describe_moved_heads(engine: Engine, address: Address) -> str:
    """Describe a difference of the heads of a remote that the engine itself reaches."""
    try:
        remote_heads = engine.peek_heads(address.url)
    except RemoteError as error:
        return error.message
    if remote_heads is None:
        return f"{address.text} does not report whether it has changed."
    is_unchanged = _public_heads(remote_heads) == _public_heads(engine.remote_heads(address.key))
    return "" if is_unchanged else _moved_text(address)


def _moved_text(address: Address) -> str:
    return f"{address.text} has changed since the last fetch."


def _public_heads(heads: Mapping[str, str]) -> dict[str, str]:
    return {name: head for name, head in heads.items() if not is_reserved(name)}
