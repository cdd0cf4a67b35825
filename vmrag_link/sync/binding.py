"""What a work tree stands at, and whether that is current.

`applied` holds HEAD's name and the pin that the knowledge base followed:

    refs/heads/main | detached
    pin | nopin
    <the pin's bytes, verbatim>

The shims of git's hooks compare it with nothing but `read`, without starting Python: hence lines,
and no JSON. `workspace.json` names the index that answers. It is written after `applied`, because
an index may take minutes to build.

A work tree is current when HEAD's name and the pin are as they were applied last, and the bound
index is at the pinned revision and verifies. Hooks, sync, queries and status ask `Position`. The
shims answer the first half (`vmrag_hooks.shim_parts.SYNC`). An index that lags behind starts no
Python there: the next query brings it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from vmrag_link.models import Record
from vmrag_link.paths import Places, write_atomically
from vmrag_link.sync.target import Target, Trigger, read_pinned_revision, read_trigger

if TYPE_CHECKING:
    from vmrag_link.index.views import Views

WORKSPACE = "workspace.json"
BINDING_FORMAT: Literal[2] = 2


class Binding(Record, frozen=True):
    """The view that answers in a work tree, by the name of its directory, and the revision it
    stands at.

    One of another format counts as none: the next sync binds again.
    """

    revision: str
    view: str
    format: Literal[2] = BINDING_FORMAT


Gap = Literal["unbound", "index_elsewhere", "index_unusable", "moved"]


class Position(Record, frozen=True):
    """Where a work tree is, read in one pass. A value that was read before a lock was taken must be
    read again under the lock.
    """

    trigger: Trigger
    """HEAD's name and the pin as they are now."""
    applied: Trigger | None
    """HEAD's name and the pin that the knowledge base followed last."""
    binding: Binding | None
    """The index that answers."""
    pinned: str | None
    """The revision that the pin names; None without a pin that can be read."""
    followed: str | None
    """The revision that the knowledge base was brought to; None if no pin was applied."""

    @classmethod
    def read(cls, places: Places) -> Position:
        """Read the position of a work tree. Raise `GitFailed` or `PinMalformed` if that fails."""
        trigger, last = read_trigger(places), read_applied(places)
        revision = read_pinned_revision(places, trigger)
        followed = revision if last == trigger else read_pinned_revision(places, last) if last else None
        return cls(trigger, last, read_binding(places), revision, followed)

    @property
    def is_followed(self) -> bool:
        """Whether the knowledge base follows HEAD and the pin; the index may be behind."""
        return self.applied == self.trigger

    @property
    def is_renamed(self) -> bool:
        """Whether HEAD has another name than was applied last, and the pin is the same. Without
        uncommitted documents, hooks leave that to the next command.
        """
        return self.applied is not None and self.applied.pin == self.trigger.pin and not self.is_followed

    def find_gap(self, views: Views) -> Gap | None:
        """Return what the work tree lacks to be current, the first that applies; None if nothing.

        `unbound`: no index was ever bound. `index_elsewhere`: it is at another revision than the
        pinned one. `index_unusable`: it does not verify. `moved`: HEAD or the pin is not what was
        applied last.
        """
        if self.binding is None:
            return "unbound"
        if self.pinned not in (None, self.binding.revision):
            return "index_elsewhere"
        if views.find_problem(self.binding.revision):
            return "index_unusable"
        return None if self.is_followed else "moved"


def read_binding(places: Places) -> Binding | None:
    """The bound index; None if there is none yet, or if the file is damaged. The next sync binds
    again.
    """
    return read_binding_file(places.workspace)


def read_applied(places: Places) -> Trigger | None:
    """The pair that was applied last."""
    with contextlib.suppress(OSError):
        pair = decode_applied(places.applied.read_bytes())
        return Trigger(*pair) if pair else None
    return None


def read_current_revision(places: Places) -> str | None:
    """Return the revision at which documents are read: the one that was followed, else that of the
    index. None if the work tree never followed a pin. Does not read the pin, which may be damaged.
    """
    last, bound = read_applied(places), read_binding(places)
    return (read_pinned_revision(places, last) if last else None) or (bound.revision if bound else None)


def write_binding(places: Places, binding: Binding, trigger: Trigger) -> None:
    if read_applied(places) != trigger:
        forget_applied(places)
    write_atomically(places.workspace, msgspec.json.encode(binding), durable=False)
    note_applied(places, trigger)


def forget_applied(places: Places) -> None:
    """Call it before something moves: after a kill in between, the next command looks again."""
    places.applied.unlink(missing_ok=True)


def note_applied(places: Places, trigger: Trigger) -> None:
    """Record that the knowledge base follows this pair."""
    write_atomically(places.applied, encode_applied(trigger.symbolic, trigger.pin), durable=False)


def list_bindings(places: Places) -> list[Binding]:
    """What the work trees of the repository are bound to, without repetition; the newest first."""
    found = []
    for path in _files(places):
        with contextlib.suppress(FileNotFoundError):
            since = path.stat().st_mtime_ns
            if binding := read_binding_file(path):
                found.append((since, binding))
    return list(dict.fromkeys(binding for _, binding in sorted(found, reverse=True, key=itemgetter(0))))


def list_bound_views(places: Places) -> set[Path]:
    """The views that some work tree answers from."""
    return {places.views / binding.view for binding in list_bindings(places)}


def _files(places: Places) -> Iterator[Path]:
    return (folder / WORKSPACE for folder in list_worktree_folders(places))


def list_worktree_folders(places: Places) -> Iterator[Path]:
    """Yield vmrag's folder of each worktree."""
    yield places.common / "vmrag"
    yield from places.common.glob("worktrees/*/vmrag")


def read_binding_file(path: Path) -> Binding | None:
    """Return the binding that is in a file; None if the file is missing or damaged."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Binding)
    except (FileNotFoundError, UnicodeDecodeError, msgspec.DecodeError):
        return None


DETACHED = b"detached"
PIN = b"pin"
NO_PIN = b"nopin"


def encode_applied(symbolic: str | None, pin: bytes | None) -> bytes:
    """`symbolic`: a full name such as `refs/heads/main`, None for a detached HEAD.

    `pin`: None for no pin.
    """
    head = DETACHED if symbolic is None else os.fsencode(symbolic)
    return b"\n".join((head, NO_PIN if pin is None else PIN, pin or b""))


def decode_applied(data: bytes) -> tuple[str | None, bytes | None] | None:
    """The pair that was encoded. None for any other bytes: then nothing counts as applied."""
    head, _, rest = data.partition(b"\n")
    kind, separator, pin = rest.partition(b"\n")
    if not separator or not (head == DETACHED or head.startswith(b"refs/")):
        return None
    symbolic = None if head == DETACHED else os.fsdecode(head)
    if kind == PIN:
        return symbolic, pin
    return (symbolic, None) if kind == NO_PIN and not pin else None


def is_pinned(target: Target, revision: str) -> bool:
    """Whether what is read at `revision` is the knowledge that the checked-out code pins."""
    return target.state == "pinned" and target.revision == revision
