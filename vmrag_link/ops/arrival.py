"""What the checked-out code pins and what is not here comes by itself: a revision, or, in a fresh clone, the whole knowledge base.

From remotes that are trusted only. That it could not come keeps nobody from working with what is here: `Workspace.unreached` says why.
"""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

import msgspec

from vmrag_link.errors import Remote, RemoteUnreachable
from vmrag_link.models import Record
from vmrag_link.ops import destinations
from vmrag_link.ops.clone import clone
from vmrag_link.ops.fetch import first_with
from vmrag_link.paths import write_atomically
from vmrag_link.pin import Pin
from vmrag_link.workspace import Workspace

RETRY_SECONDS = 60
"""How long nobody is asked again for a revision that could not be had: a query should not wait for a dead network each time."""


class _Failure(Record, frozen=True):
    """`at`: seconds since 1970."""

    revision: str
    at: float
    message: str
    hint: str


def bring(ws: Workspace, *, insist: bool = False) -> bool:
    """Fetch what the pin names, if it is not here and `auto_fetch` is on; whether something came.

    `insist`: ask even if it could not be had a moment ago. Raises why a fresh clone gets no knowledge base (as `clone`); everything else
    can wait.
    """
    if not ws.config.auto_fetch:
        return False
    if not ws.initialized:
        if destinations.pinned_remote(ws) is None:
            return False
        clone(ws, automatic=True)
        return True
    target = ws.target()
    if target.state != "missing" or target.pin is None:
        return False
    earlier = None if insist else _failed_lately(ws, target.pin)
    if earlier:
        ws.unreached = RemoteUnreachable(earlier.message, hint=earlier.hint)
        return False
    return _fetched(ws, target.pin)


def _fetched(ws: Workspace, pin: Pin) -> bool:
    ws.unreached = None
    try:
        first_with(ws, destinations.named(ws, pin.dolt_remote), pin.dolt_commit)
    except Remote as why:
        ws.unreached = why
    if ws.engine.has_revision(pin.dolt_commit):
        return True
    _remember(ws, pin)
    return False


def _failed_lately(ws: Workspace, pin: Pin) -> _Failure | None:
    try:
        found = msgspec.json.decode(_note(ws).read_bytes(), type=_Failure)
    except (OSError, msgspec.DecodeError):
        return None
    return found if found.revision == pin.dolt_commit and 0 <= time.time() - found.at < RETRY_SECONDS else None


def _remember(ws: Workspace, pin: Pin) -> None:
    if ws.unreached is None:
        ws.unreached = RemoteUnreachable(
            "The remote does not have it either.",
            hint="Ask who pinned it to push it: vmrag push (git log -1 -- .dolt-version shows who)",
        )
    failure = _Failure(pin.dolt_commit, time.time(), ws.unreached.message, ws.unreached.hint)
    with contextlib.suppress(OSError):  # a courtesy to the next query
        write_atomically(_note(ws), msgspec.json.encode(failure))


def _note(ws: Workspace) -> Path:
    return ws.places.remotes / "unreached.json"
