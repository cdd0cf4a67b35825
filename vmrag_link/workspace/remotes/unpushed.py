"""Pins that were pushed without the knowledge that they name, as far as this clone can tell."""

from __future__ import annotations

import contextlib
from pathlib import Path

from vmrag_link.engines import migrated
from vmrag_link.git import refs
from vmrag_link.models import Record
from vmrag_link.paths import write_atomically
from vmrag_link.pin import Pin
from vmrag_link.workspace import Workspace


class UnpushedPin(Record, frozen=True):
    """The tracking branch `ref` pins `revision`, which no remote holds: whoever checks that out has
    no knowledge to it. `remote`: the one that should hold it, for people; `place`: in the pin's
    words.
    """

    ref: str
    revision: str
    remote: str
    place: str


def list_unpushed(ws: Workspace) -> tuple[UnpushedPin, ...]:
    """Asks no network: remotes hold what they held when they were fetched or pushed to last.

    A revision that is not here is somebody else's to push. Where nothing was found, it is not
    looked for again until a tracking branch moves.
    """
    if not ws.is_initialized or ws.engine.shared:  # on a server, everybody has all of it
        return ()
    stamp = refs.read_stamp(ws.places)
    if stamp and stamp == _remembered(_note(ws)):
        return ()
    found = _look(ws)
    if stamp and not found:
        with contextlib.suppress(OSError):  # a courtesy to the next query
            write_atomically(_note(ws), stamp.encode(errors="surrogateescape"), durable=False)
    return found


def _look(ws: Workspace) -> tuple[UnpushedPin, ...]:
    tracking = refs.list_pushed_branches(ws.places)
    from vmrag_link.git import history  # which most commands do not load, because nothing was pushed since

    data = history.read_pins(ws.places, tracking.values())
    found = [
        (ref, pin) for ref, commit in tracking.items() if (pin := migrated.try_read_pin(ws.places.kb, data.get(commit)))
    ]
    if not found:
        return ()
    revisions = dict.fromkeys(pin.dolt_commit for _, pin in found)
    nowhere = set(ws.engine.find_unreachable(revisions, heads=_known_heads(ws)))
    return tuple(
        UnpushedPin(ref.removeprefix(refs.REMOTES), pin.dolt_commit, _remote(ws, ref, pin), pin.dolt_remote)
        for ref, pin in found
        if pin.dolt_commit in nowhere
    )


def _known_heads(ws: Workspace) -> set[str]:
    """Those of all remotes. What git carries counts while its copy here is noted (`copies`): after
    a push that was killed, the engine says that everything is there.
    """
    heads = ws.engine.all_remote_heads()
    for folder in ws.places.remotes.glob("git-*"):
        if not any(path.exists() for path in (folder / "stands-at", *folder.glob("*/stands-at"))):
            heads -= {*ws.engine.remote_heads(folder.name).values()}
    return heads


def _remote(ws: Workspace, ref: str, pin: Pin) -> str:
    """Where it should be, for people."""
    from vmrag_link.git import remotes
    from vmrag_link.workspace.remotes import destinations

    own = destinations.find_own_ref(ws, pin.dolt_remote)
    return ref.removeprefix(refs.REMOTES).partition("/")[0] if own else remotes.redact_url(pin.dolt_remote)


def _note(ws: Workspace) -> Path:
    return ws.places.shared / "pushed"


def _remembered(note: Path) -> str:
    try:
        return note.read_bytes().decode(errors="surrogateescape")
    except FileNotFoundError:
        return ""
