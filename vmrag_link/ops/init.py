"""`vmrag init`: a knowledge base for this repository, its settings file and its first pin."""

from __future__ import annotations

import datetime as dt

from vmrag_link import config, locks
from vmrag_link.engines.base import ROOT_BRANCH
from vmrag_link.engines.doltlite.engine import DoltliteEngine
from vmrag_link.errors import AlreadyInitialized
from vmrag_link.git import plumbing
from vmrag_link.models import Record
from vmrag_link.ops import pinning
from vmrag_link.ops.pinning import PinBlock
from vmrag_link.paths import write_atomically
from vmrag_link.workspace import Workspace


class InitReport(Record, frozen=True):
    """`written` are the files that are new in the work tree; they are staged where `staged` says so."""

    kb: str
    engine: str
    revision: str
    pin: PinBlock
    written: tuple[str, ...]
    staged: bool


def init(ws: Workspace) -> InitReport:
    """Run again after a kill, it goes on where it was. Raises `AlreadyInitialized` when there is nothing left to do."""
    pinned = plumbing.pin_bytes(ws.places)
    if pinned is not None and ws.initialized:
        raise AlreadyInitialized("This repository has a knowledge base already.", hint="vmrag status")
    if pinned is not None:
        elsewhere = ws.uninitialized()
        raise AlreadyInitialized(elsewhere.message, hint=elsewhere.hint, **elsewhere.details)
    ws.settings  # noqa: B018  a settings file that cannot be read stops here, before anything is made
    with locks.exclusive(ws.places.workspace_lock, purpose="init", timeout=ws.lock_timeout):
        if not ws.initialized:
            now = dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            DoltliteEngine.create(ws.places.kb, author=plumbing.identity(ws.places), date=now).close()
        written = []
        if not ws.places.config.exists():
            write_atomically(ws.places.config, config.template().encode())
            written.append(ws.places.config.name)
            plumbing.stage(ws.places, ws.places.config)
        root = ws.engine.branch(ROOT_BRANCH)
        own = ws.kb_branch()
        head = own or root
        assert head is not None  # noqa: S101  every knowledge base has its root branch
        pin = pinning.write_pin(ws, head.head, own.name if own else ws.trigger().branch or "main")
        written.append(ws.places.pin.name)
    return InitReport(str(ws.places.kb), ws.engine.name, head.head, pin.pin, tuple(written), pin.staged)
