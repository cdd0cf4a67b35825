"""The position of a work tree, and whether it is current.

`applied` contains HEAD's name and the pin that the knowledge base followed:

    refs/heads/main | detached
    pin | nopin
    <the pin's bytes, verbatim>

The hooks' shims compare it using only `read`, without starting Python, so it has lines
instead of JSON. `workspace.json` names the index that answers. It is written after `applied`,
because building an index may take minutes.

A work tree is current if HEAD's name and the pin are as applied last, and the bound index is at the
pinned revision and verifies. Hooks, sync, queries and status use `Position`. The shims check the
first condition (`vmrag_hooks.shim_parts.SYNC`). They start no Python for an index that is behind,
because the next query updates it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from vmrag_link.file_access import write_atomically
from vmrag_link.models import Record
from vmrag_link.paths import Places
from vmrag_link.sync.target import Target, Trigger, read_pinned_revision, read_trigger

if TYPE_CHECKING:
    from vmrag_link.index.views import Views

WORKSPACE = "workspace.json"
BINDING_FORMAT: Literal[2] = 2


class Binding(Record, frozen=True):
    """The view that answers in a work tree, by the name of its directory, and its revision.

    A binding of another format is ignored, and the next sync binds again.
    """

    revision: str
    view: str
    format: Literal[2] = BINDING_FORMAT


Gap = Literal["unbound", "index_elsewhere", "index_unusable", "moved"]


class Position(Record, frozen=True):
    """Position of a work tree, read in one pass. A value from before locking must be read again
    under the lock.
    """

    trigger: Trigger
    """HEAD's name and the pin as they are now."""
    applied: Trigger | None
    """HEAD's name and the pin that the knowledge base followed last."""
    binding: Binding | None
    """The index that answers."""
    pinned: str | None
    """The revision that the pin names. None without a readable pin."""
    followed: str | None
    """The revision to which the knowledge base was moved. None if no pin was applied."""

    @classmethod
    def read(cls, places: Places) -> Position:
        """Return the position of a work tree.

        Raises `GitFailed` and `PinMalformed`.
        """
        trigger, last = read_trigger(places), read_applied(places)
        revision = read_pinned_revision(places, trigger)
        followed = revision if last == trigger else read_pinned_revision(places, last) if last else None
        return cls(trigger, last, read_binding(places), revision, followed)

    @property
    def is_followed(self) -> bool:
        """True if the knowledge base follows HEAD and the pin. The index may be behind."""
        return self.applied == self.trigger

    @property
    def is_renamed(self) -> bool:
        """True if HEAD's name differs from the one applied last while the pin is the same. Without
        uncommitted documents, hooks leave that to the next command.
        """
        return self.applied is not None and self.applied.pin == self.trigger.pin and not self.is_followed

    def find_gap(self, views: Views) -> Gap | None:
        """Return why the work tree is not current, the first reason that applies. None if it is
        current.

        `unbound`: no index was ever bound. `index_elsewhere`: the index is at another revision than
        the pinned one. `index_unusable`: the index does not verify. `moved`: HEAD or the pin
        differs from what was applied last.
        """
        if self.binding is None:
            return "unbound"
        if self.pinned not in (None, self.binding.revision):
            return "index_elsewhere"
        if views.find_problem(self.binding.revision):
            return "index_unusable"
        return None if self.is_followed else "moved"


def read_binding(places: Places) -> Binding | None:
    """Return the bound index. None if none is bound, or if the file is damaged. Then the next sync
    binds again.
    """
    return read_binding_file(places.workspace)


def read_applied(places: Places) -> Trigger | None:
    """Return HEAD's name and the pin that were applied last, or None."""
    with contextlib.suppress(OSError):
        pair = decode_applied(places.applied.read_bytes())
        return Trigger(*pair) if pair else None
    return None


def read_current_revision(places: Places) -> str | None:
    """Return the revision at which documents are read: the one that was followed, else that of the
    index. None if the work tree never followed a pin.

    This does not read the pin, which may be damaged.
    """
    last, bound = read_applied(places), read_binding(places)
    return (read_pinned_revision(places, last) if last else None) or (bound.revision if bound else None)


def write_binding(places: Places, binding: Binding, trigger: Trigger) -> None:
    """Bind an index to the work tree, and record what the knowledge base follows."""
    if read_applied(places) != trigger:
        forget_applied(places)
    write_atomically(places.workspace, msgspec.json.encode(binding), durable=False)
    note_applied(places, trigger)


def forget_applied(places: Places) -> None:
    """Forget what was applied, before something moves. After a kill, the next command then checks
    again.
    """
    places.applied.unlink(missing_ok=True)


def note_applied(places: Places, trigger: Trigger) -> None:
    """Record that the knowledge base follows this trigger."""
    write_atomically(places.applied, encode_applied(trigger.symbolic, trigger.pin), durable=False)


def list_bindings(places: Places) -> list[Binding]:
    """Return the distinct bindings of the repository's work trees, the newest first."""
    dated = []
    for path in (folder / WORKSPACE for folder in list_worktree_folders(places)):
        with contextlib.suppress(FileNotFoundError):
            written_at = path.stat().st_mtime_ns
            if binding := read_binding_file(path):
                dated.append((written_at, binding))
    return list(dict.fromkeys(binding for _, binding in sorted(dated, reverse=True, key=itemgetter(0))))


def list_bound_views(places: Places) -> set[Path]:
    """Return the views that answer in some work tree."""
    return {places.views / binding.view for binding in list_bindings(places)}


def list_worktree_folders(places: Places) -> Iterator[Path]:
    """Yield vmrag's folder of each worktree."""
    yield places.common / "vmrag"
    yield from places.common.glob("worktrees/*/vmrag")


def read_binding_file(path: Path) -> Binding | None:
    """Return the binding in a file. None if the file is missing or damaged."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Binding)
    except (FileNotFoundError, UnicodeDecodeError, msgspec.DecodeError):
        return None


DETACHED = b"detached"
PIN = b"pin"
NO_PIN = b"nopin"


def encode_applied(symbolic: str | None, pin: bytes | None) -> bytes:
    """Encode a trigger. `symbolic`: a full name such as `refs/heads/main`, None for a detached
    HEAD.

    `pin`: None without a pin.
    """
    head = DETACHED if symbolic is None else os.fsencode(symbolic)
    return b"\n".join((head, NO_PIN if pin is None else PIN, pin or b""))


def decode_applied(data: bytes) -> tuple[str | None, bytes | None] | None:
    """Return the encoded symbolic name and pin. None for any other bytes, so that nothing counts as
    applied.
    """
    head, _, rest = data.partition(b"\n")
    kind, separator, pin = rest.partition(b"\n")
    if not separator or not (head == DETACHED or head.startswith(b"refs/")):
        return None
    symbolic = None if head == DETACHED else os.fsdecode(head)
    if kind == PIN:
        return symbolic, pin
    return (symbolic, None) if kind == NO_PIN and not pin else None


def is_pinned(target: Target, revision: str) -> bool:
    """Return whether `revision` is the one that the checked-out code pins."""
    return target.state == "pinned" and target.revision == revision
