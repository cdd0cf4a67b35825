"""What a work tree stands at. `applied`: HEAD's name and the pin that the knowledge base follows;
hooks compare it without starting Python. `workspace.json`: the index that answers, which comes
after that, because it may take minutes to build.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

import msgspec

from vmrag_link.git.applied import decode_applied, encode_applied
from vmrag_link.models import Record
from vmrag_link.paths import Places, write_atomically
from vmrag_link.sync.target import Trigger

WORKSPACE = "workspace.json"


class Binding(Record, frozen=True):
    """The snapshot that answers in a work tree, by the name of its directory, and the revision it
    stands at.
    """

    revision: str
    snapshot: str


def read(places: Places) -> Binding | None:
    """None when nothing is bound yet, or the file is damaged: then the next sync binds again."""
    return _read(places.workspace)


def applied(places: Places) -> Trigger | None:
    """The pair that was applied last."""
    with contextlib.suppress(OSError):
        pair = decode_applied(places.applied.read_bytes())
        return Trigger(*pair) if pair else None
    return None


def followed_pin(places: Places) -> str | None:
    """The revision that the knowledge base was brought to: what the applied pin names.

    None where no pin was applied.
    """
    trigger = applied(places)
    return trigger.pinned if trigger else None


def standing_revision(places: Places) -> str | None:
    """The revision at which documents are read: that of the pin that was followed; without one, the
    bound index's.
    """
    bound = read(places)
    return followed_pin(places) or (bound.revision if bound else None)


def write(places: Places, binding: Binding, trigger: Trigger) -> None:
    if applied(places) != trigger:
        forget_applied(places)
    write_atomically(places.workspace, msgspec.json.encode(binding))
    note_applied(places, trigger)


def forget_applied(places: Places) -> None:
    """Nothing counts as applied while something moves: after a kill in between the next command
    looks again, wherever HEAD is by then.
    """
    places.applied.unlink(missing_ok=True)


def note_applied(places: Places, trigger: Trigger) -> None:
    """And that no hook's mark stands for it any more."""
    write_atomically(places.applied, encode_applied(trigger.symbolic, trigger.pin))
    places.pending.unlink(missing_ok=True)


def bound_everywhere(places: Places) -> set[str]:
    """Names of the snapshots that some work tree of the repository is bound to."""
    homes = [places.common / "vmrag", *places.common.glob("worktrees/*/vmrag")]
    return {binding.snapshot for home in homes if (binding := _read(home / WORKSPACE))}


def _read(path: Path) -> Binding | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Binding)
    except (FileNotFoundError, UnicodeDecodeError, msgspec.DecodeError):
        return None
