"""Find pins that were pushed to git without their revisions, so that other clones cannot read them.

`vmrag status` and queries warn about them. The network is not used: git's tracking branches show
what was pushed, and the engine's remote heads what the remotes have.
"""

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
    """A tracking branch whose pinned revision no remote has."""

    ref: str
    """The tracking branch."""
    revision: str
    remote: str
    """The displayed name of the remote that should have the revision."""
    place: str
    """The remote as the pin names it."""


def list_unpushed(ws: Workspace) -> tuple[UnpushedPin, ...]:
    """Return pushed pins whose revisions no remote has, as of the last fetch or push.

    A revision that this clone lacks is ignored, because another clone must push it. If the result
    is empty, the next calls return it without a search, until a tracking branch moves.
    """
    if not ws.is_initialized or ws.engine.shared:  # on a server, everyone has all revisions
        return ()
    stamp = refs.read_stamp(ws.places)  # differs if a tracking branch moved
    if stamp and stamp == _read_stamp(_find_stamp_file(ws)):
        return ()
    unpushed_pins = _find_unpushed(ws)
    if stamp and not unpushed_pins:
        with contextlib.suppress(OSError):  # the file only makes the next query faster
            write_atomically(_find_stamp_file(ws), stamp.encode(errors="surrogateescape"), durable=False)
    return unpushed_pins


def _find_unpushed(ws: Workspace) -> tuple[UnpushedPin, ...]:
    from vmrag_link.git import history  # most commands do not need it, because nothing was pushed since

    tracking = refs.list_pushed_branches(ws.places)
    pin_bytes = history.read_pins(ws.places, tracking.values())
    pins: dict[str, Pin] = {}
    for ref, commit in tracking.items():
        if pin := migrated.try_read_pin(ws.places.kb, pin_bytes.get(commit)):
            pins[ref] = pin
    if not pins:
        return ()
    revisions = dict.fromkeys(pin.dolt_commit for pin in pins.values())
    missing = set(ws.engine.find_unreachable(revisions, heads=_list_remote_heads(ws)))
    return tuple(
        UnpushedPin(ref.removeprefix(refs.REMOTES), pin.dolt_commit, _name_remote(ws, ref, pin), pin.dolt_remote)
        for ref, pin in pins.items()
        if pin.dolt_commit in missing
    )


def _list_remote_heads(ws: Workspace) -> set[str]:
    """Return the heads of all remotes that are known to be true.

    During a push to git, the engine has the new heads before the remote has them. If the push was
    killed, the record of the remote is missing (`copies.has_record`), so its heads are left out.
    """
    heads = ws.engine.all_remote_heads()
    for folder in ws.places.remotes.glob("git-*"):
        from vmrag_link.transport import copies  # only a git remote has a copy

        if not copies.has_record(folder):
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


def _read_stamp(path: Path) -> str:
    try:
        return path.read_bytes().decode(errors="surrogateescape")
    except FileNotFoundError:
        return ""
