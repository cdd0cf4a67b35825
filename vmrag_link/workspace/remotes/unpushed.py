"""Find pins that were pushed without their revisions, as far as this clone can tell."""

from __future__ import annotations

import contextlib
from pathlib import Path

from vmrag_link.engines import migrated
from vmrag_link.file_access import write_atomically
from vmrag_link.git import refs
from vmrag_link.models import Record
from vmrag_link.pin import Pin
from vmrag_link.workspace import Workspace


class UnpushedPin(Record, frozen=True):
    """A tracking branch whose pinned revision no remote has, so that other clones cannot read its
    knowledge base.
    """

    ref: str
    """The tracking branch."""
    revision: str
    remote: str
    """The displayed name of the remote that should have the revision."""
    place: str
    """The remote as the pin names it."""


def list_unpushed(ws: Workspace) -> tuple[UnpushedPin, ...]:
    """Return pushed pins whose revisions no remote has. Does not use the network.

    The heads of remotes are those of the last fetch or push. A revision that this clone lacks is
    ignored, because another clone must push it. If nothing is found, this is repeated only after a
    tracking branch moved.
    """
    if not ws.is_initialized or ws.engine.shared:  # on a server, everyone has all revisions
        return ()
    stamp = refs.read_stamp(ws.places)
    if stamp and stamp == _read_stamp(_find_stamp_file(ws)):
        return ()
    unpushed_pins = _find_unpushed(ws)
    if stamp and not unpushed_pins:
        with contextlib.suppress(OSError):  # the file only makes the next query faster
            write_atomically(_find_stamp_file(ws), stamp.encode(errors="surrogateescape"), durable=False)
    return unpushed_pins


def _find_unpushed(ws: Workspace) -> tuple[UnpushedPin, ...]:
    tracking = refs.list_pushed_branches(ws.places)
    from vmrag_link.git import history  # most commands do not need it, because nothing was pushed since

    data = history.read_pins(ws.places, tracking.values())
    pins = [
        (ref, pin) for ref, commit in tracking.items() if (pin := migrated.try_read_pin(ws.places.kb, data.get(commit)))
    ]
    if not pins:
        return ()
    revisions = dict.fromkeys(pin.dolt_commit for _, pin in pins)
    missing = set(ws.engine.find_unreachable(revisions, heads=_list_remote_heads(ws)))
    return tuple(
        UnpushedPin(ref.removeprefix(refs.REMOTES), pin.dolt_commit, _name_remote(ws, ref, pin), pin.dolt_remote)
        for ref, pin in pins
        if pin.dolt_commit in missing
    )


def _list_remote_heads(ws: Workspace) -> set[str]:
    """Return the heads of all remotes.

    A copy of a git remote is used only while its state is noted (`copies`): after a push that was
    killed, the engine claims that the remote has everything.
    """
    heads = ws.engine.all_remote_heads()
    for folder in ws.places.remotes.glob("git-*"):
        from vmrag_link.transport import copies  # only a git remote has a copy

        if not copies.has_note(folder):
            heads -= {*ws.engine.remote_heads(folder.name).values()}
    return heads


def _name_remote(ws: Workspace, ref: str, pin: Pin) -> str:
    """Return the displayed name of the remote that should have the revision."""
    from vmrag_link.git import remotes
    from vmrag_link.workspace.remotes import destinations

    own_ref = destinations.find_own_ref(ws, pin.dolt_remote)
    return ref.removeprefix(refs.REMOTES).partition("/")[0] if own_ref else remotes.redact_url(pin.dolt_remote)


def _find_stamp_file(ws: Workspace) -> Path:
    return ws.places.shared / "pushed"


def _read_stamp(note: Path) -> str:
    try:
        return note.read_bytes().decode(errors="surrogateescape")
    except FileNotFoundError:
        return ""
