"""What a migration changes in the work tree: the settings file names the engine, and the pin the
new revision. Both are staged, so that one commit of git's tells everybody.
"""

from __future__ import annotations

import msgspec

from vmrag_link import pin as pins
from vmrag_link import settings_edit
from vmrag_link.engines.base import EngineName
from vmrag_link.errors import PinMalformed
from vmrag_link.git import plumbing
from vmrag_link.models import Record
from vmrag_link.ops.migration.carry import Made
from vmrag_link.ops.migration.exchange import MigrationState, RewrittenFile
from vmrag_link.paths import CONFIG_NAME, PIN_NAME, read_regular, require_files, write_atomically
from vmrag_link.workspace import Workspace


class Changed(Record, frozen=True):
    """Files of the work tree: `written`, of which some are `unstaged` because of changes of the
    user's, or because git was busy; `left`: changed since, so they are as they were.
    """

    written: tuple[str, ...] = ()
    unstaged: tuple[str, ...] = ()
    left: tuple[str, ...] = ()


def settings_change(ws: Workspace, to: EngineName) -> RewrittenFile:
    """What will become of the settings file. Raises `ConfigInvalid` where no line can be set."""
    require_files(ws.places.config)
    before = ws.places.config.read_bytes() if ws.places.config.exists() else b""
    return RewrittenFile(before.decode(), settings_edit.with_value(before, "engine", to).decode())


def pin_change(ws: Workspace, made: Made) -> RewrittenFile | None:
    """What will become of the pin; None where it names nothing that was carried."""
    try:
        data = read_regular(ws.places.pin, pins.MAX_BYTES + 1)
        pin = pins.parse(data)
    except (OSError, PinMalformed):
        return None
    if pin.dolt_commit not in made:
        return None
    new = msgspec.structs.replace(pin, dolt_commit=made[pin.dolt_commit].revision)
    return RewrittenFile(data.decode(), pins.format(new).decode())


def change(ws: Workspace, state: MigrationState, *, back: bool = False) -> Changed:
    """Write what a migration decided, or take it `back`.

    A file that was changed since stays as it is. Git's index is not waited for.
    """
    done = Changed()
    for name, stated in ((CONFIG_NAME, state.settings), (PIN_NAME, state.pin)):
        if stated and stated.before != stated.after:
            old, new = (stated.after, stated.before) if back else (stated.before, stated.after)
            done = _and(done, _replace(ws, name, old.encode(), new.encode()))
    return done


def _replace(ws: Workspace, name: str, old: bytes, new: bytes) -> Changed:
    path = ws.places.top / name
    require_files(path)
    found = path.read_bytes() if path.exists() else b""
    if found not in (old, new):
        return Changed(left=(name,))
    if found == old:
        write_atomically(path, new)
    # What a user has not staged is not ours to stage.
    untouched = (plumbing.blob(ws.places, f":{name}") or b"") in (old, new)
    staged = untouched and plumbing.stage(ws.places, path)
    return Changed((name,), () if staged else (name,))


def _and(one: Changed, other: Changed) -> Changed:
    return Changed(one.written + other.written, one.unstaged + other.unstaged, one.left + other.left)
