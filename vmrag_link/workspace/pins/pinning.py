"""Write and stage the pin, and judge whether a commit's pin lost documents of its parents.

Nothing here commits in git. The rules of `judge_pin` are:

* A side of a merge *moved* if its pin differs from the pins of all merge bases.
* The pin of the merge must contain the pins of all sides that moved. It may also contain more, for
  example documents that were committed during the merge.
* If no side moved, or if there is one parent, the pin may move forward, or back to a revision that
  it contained.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Literal, NamedTuple, Protocol

from vmrag_link import pin as pins
from vmrag_link.engines.migrated import try_read_pin
from vmrag_link.errors import PinMalformed
from vmrag_link.file_access import (
    append_line,
    remove_temporaries,
    require_files,
    sync_file_and_folder,
    write_atomically,
)
from vmrag_link.git import plumbing, staging
from vmrag_link.models import Record
from vmrag_link.paths import Places
from vmrag_link.pin import Pin
from vmrag_link.workspace import Workspace

ATTRIBUTES = ".gitattributes"


class PinBlock(Record, frozen=True):
    """The fields of a pin, for reports."""

    dolt_remote: str
    dolt_branch: str
    dolt_commit: str
    linked_at: str


class PinReport(Record, frozen=True):
    """The result of writing a pin."""

    pin: PinBlock
    changed: bool
    staged: bool
    """False if another git command held the index. `git add .dolt-version` stages it."""
    pending: str = ""
    """Why the index was not updated; empty if it was. The pin is written, and the next command
    updates the index.
    """


def write_pin(ws: Workspace, revision: str, kb_branch: str, *, remote: str = "") -> PinReport:
    """Write the pin of a revision if it differs, and stage it.

    The caller holds the lock of the work tree. `remote`: the remote that the user chose for this
    pin, by default the remote of the settings. Raises `SchemaTooNew` for a revision that this
    version of vmrag cannot read.
    """
    ws.engine.require_readable(revision)
    data = plumbing.read_pin_bytes(ws.places)
    old = try_read_pin(ws.places.kb, data)
    new = next_pin(ws, old, revision, kb_branch, remote=remote)
    changed = pins.format_pin(new) != data
    ws.engine.protect_revision(revision)
    if changed:
        remove_temporaries(ws.places.pin)
        write_atomically(ws.places.pin, pins.format_pin(new))
    elif ws.places.pin.exists():  # not in a sparse work tree
        sync_file_and_folder(ws.places.pin)  # its writer may have been killed before it was durable
    return PinReport(form_block(new), changed, staging.stage_path(ws.places, ws.places.pin, index_file=ws.index_file))


def form_block(pin: Pin) -> PinBlock:
    """Return the fields of a pin, without keys of newer versions."""
    return PinBlock(pin.dolt_remote, pin.dolt_branch, pin.dolt_commit, pin.linked_at)


def next_pin(ws: Workspace, old: Pin | None, revision: str, kb_branch: str, *, remote: str = "") -> Pin:
    """Return the pin that `write_pin` writes after the pin `old`."""
    return pins.update_pin(
        old,
        remote=remote or _find_remote(ws, old),
        branch=kb_branch,
        commit=revision,
        committed_at=ws.engine.read_revision(revision).date,
    )


def _find_remote(ws: Workspace, old: Pin | None) -> str:
    """Return the remote for a new pin: the remote of the settings.

    A remote that this user does not trust is replaced by `git:` in the settings. If the old pin and
    the settings file name such a remote, it stays in the pin. Nothing is contacted.
    """
    stated = ws.settings.loaded.stated_remote
    return old.dolt_remote if old and old.dolt_remote == stated else ws.config.remote


def is_pin(data: bytes) -> bool:
    """Return whether a file has a valid pin."""
    try:
        pins.parse_pin(data)
    except PinMalformed:
        return False
    return True


class Attributes(Record, frozen=True):
    """The change of `.gitattributes` by `send_to_driver`."""

    written: bool
    edited: bool
    """True if it has unstaged changes of the user. Then it is not staged."""
    staged: bool


def send_to_driver(places: Places) -> Attributes:
    """Add the line to `.gitattributes` that makes git merge pins with vmrag's merge driver.

    Stage the file, unless the user edited it. Raises `FileFailed` for a symbolic link, because it
    may lead anywhere.
    """
    from vmrag_link.git import merge_driver

    path = places.top / ATTRIBUTES
    require_files(path)
    before = path.read_bytes() if path.exists() else b""
    if merge_driver.names_driver(before):
        return Attributes(written=False, edited=False, staged=True)
    edited = before != (plumbing.read_blob(places, f":{ATTRIBUTES}") or b"")
    write_atomically(path, append_line(before, merge_driver.ATTRIBUTE.encode()))
    return Attributes(written=True, edited=edited, staged=not edited and staging.stage_path(places, path))


Way = Literal["fine", "back", "dropped"]
"""How a pin moved: as allowed, back to a revision that it contained, or without documents of a
side.
"""


class History(Protocol):
    """The methods of an engine that decide which revisions contain others."""

    def has_revision(self, revision: str) -> bool: ...

    def is_ancestor(self, ancestor: str, descendant: str) -> bool: ...


class Verdict(NamedTuple):
    """The judgement of a pin."""

    way: Way
    lost: tuple[str, ...] = ()
    """Revisions that the pin should contain and does not."""


def judge_pin(history: History, pin: str, *, sides: Sequence[str], moved: Collection[str] = ()) -> Verdict:
    """Judge a commit's pin by the pins of its parents (`sides`).

    `moved`: the pins of sides that moved, for a merge.
    """
    lost = find_dropped(history, pin, bases=(), sides=sides)
    if moved:
        lost = tuple(side for side in lost if side in moved)
    if not lost:
        return Verdict("fine")
    is_back = not moved and all(_is_contained(history, side, pin) for side in lost)
    return Verdict("back" if is_back else "dropped", lost)


def find_dropped(history: History, merged: str, *, bases: Collection[str], sides: Sequence[str]) -> tuple[str, ...]:
    """Return the pins of sides that moved and that the merged pin does not contain.

    `bases`: the pins of the merge bases. A revision that is missing here is also not contained.
    """
    moved = [side for side in dict.fromkeys(sides) if side not in bases]
    return tuple(side for side in moved if not _is_contained(history, merged, side))


def _is_contained(history: History, revision: str, part: str) -> bool:
    """Return whether a revision contains another one. False if one is missing here."""
    if revision == part:
        return True
    return history.has_revision(revision) and history.has_revision(part) and history.is_ancestor(part, revision)
