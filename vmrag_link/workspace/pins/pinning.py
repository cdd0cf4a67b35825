"""The pin as a file in git: write it, stage it, and have our driver merge it; and what the pin of a
commit must be, given those of its parents. Nothing here commits or amends in git.

A side of a merge whose pin is that of a merge base did not move and says nothing. What every other
side pins must be contained in the merge's pin. What came on top, documents committed during the
merge say, does no harm. Where nobody moved, and where there is one parent, the pin may go forward,
or back to what it had contained.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Literal, NamedTuple, Protocol

from vmrag_link import pin as pins
from vmrag_link.engines.migrated import try_read_pin
from vmrag_link.errors import PinMalformed
from vmrag_link.git import plumbing
from vmrag_link.models import Record
from vmrag_link.paths import (
    Places,
    append_line,
    remove_temporaries,
    require_files,
    sync_file_and_folder,
    write_atomically,
)
from vmrag_link.pin import Pin
from vmrag_link.workspace import Workspace

ATTRIBUTES = ".gitattributes"


class PinBlock(Record, frozen=True):
    """What a pin says, for reports. Keys of newer versions are left out."""

    dolt_remote: str
    dolt_branch: str
    dolt_commit: str
    linked_at: str


class PinReport(Record, frozen=True):
    """`staged` False: another git command held the index; `git add .dolt-version` does it.

    `pending`: why the index did not follow; the pin is written, and the next command catches up.
    """

    pin: PinBlock
    changed: bool
    staged: bool
    pending: str = ""


def write_pin(ws: Workspace, revision: str, kb_branch: str, *, remote: str = "") -> PinReport:
    """Write and stage the pin if it does not name that state already.

    Call it with the workspace's lock held.

    `remote`: what a person chose right now, instead of what the settings say. Raises `SchemaTooNew`
    for a revision that this program cannot read.
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
        sync_file_and_folder(ws.places.pin)  # its writer may have been killed before
    return PinReport(form_block(new), changed, plumbing.stage_path(ws.places, ws.places.pin, index_file=ws.index_file))


def form_block(pin: Pin) -> PinBlock:
    return PinBlock(pin.dolt_remote, pin.dolt_branch, pin.dolt_commit, pin.linked_at)


def next_pin(ws: Workspace, old: Pin | None, revision: str, kb_branch: str, *, remote: str = "") -> Pin:
    return pins.update_pin(
        old,
        remote=remote or _remote(ws, old),
        branch=kb_branch,
        commit=revision,
        committed_at=ws.engine.read_revision(revision).date,
    )


def _remote(ws: Workspace, old: Pin | None) -> str:
    """The remote that a new pin names: the settings' own.

    Where the old pin and the settings file name the same remote, it stays in the pin, even while
    nobody here has agreed to it. Otherwise knowledge would go to `git:` for want of an agreement.
    Nothing is contacted either way.
    """
    stated = ws.settings.loaded.stated_remote
    return old.dolt_remote if old and old.dolt_remote == stated else ws.config.remote


def is_pin(data: bytes) -> bool:
    """Whether a file holds a pin, whatever it names."""
    try:
        pins.parse_pin(data)
    except PinMalformed:
        return False
    return True


class Attributes(Record, frozen=True):
    """What became of `.gitattributes`; `edited`: it has changes of the user's that are not staged.

    Then it is not staged here, and neither where git was busy.
    """

    written: bool
    edited: bool
    staged: bool


def send_to_driver(places: Places) -> Attributes:
    """Have git merge the pin by our driver, and stage that, unless the user has edited the file.

    Raises `FileFailed` for a link in its place: the file would be what a stranger's link leads to.
    """
    from vmrag_link.git import pin_merge

    path = places.top / ATTRIBUTES
    require_files(path)
    before = path.read_bytes() if path.exists() else b""
    if pin_merge.names_driver(before):
        return Attributes(written=False, edited=False, staged=True)
    edited = before != (plumbing.read_blob(places, f":{ATTRIBUTES}") or b"")
    write_atomically(path, append_line(before, pin_merge.ATTRIBUTE.encode()))
    return Attributes(written=True, edited=edited, staged=not edited and plumbing.stage_path(places, path))


Way = Literal["fine", "back", "dropped"]


class History(Protocol):
    """An engine, or what answers in its place."""

    def has_revision(self, revision: str) -> bool: ...

    def is_ancestor(self, ancestor: str, descendant: str) -> bool: ...


class Verdict(NamedTuple):
    """`lost`: what the pin should contain and does not."""

    way: Way
    lost: tuple[str, ...] = ()


def judge_pin(history: History, pin: str, *, sides: Sequence[str], moved: Collection[str] = ()) -> Verdict:
    """A commit's pin, given those of its parents.

    `moved`: which of these are not those of the merge bases.
    """
    lost = find_dropped(history, pin, bases=(), sides=sides)
    if moved:
        lost = tuple(side for side in lost if side in moved)
    if not lost:
        return Verdict("fine")
    back = not moved and all(_contains(history, side, pin) for side in lost)
    return Verdict("back" if back else "dropped", lost)


def find_dropped(history: History, merged: str, *, bases: Collection[str], sides: Sequence[str]) -> tuple[str, ...]:
    """The sides' revisions that the merged one should contain and does not.

    One that is not here counts as dropped.
    """
    moved = [side for side in dict.fromkeys(sides) if side not in bases]
    return tuple(side for side in moved if not _contains(history, merged, side))


def _contains(history: History, revision: str, part: str) -> bool:
    if revision == part:
        return True
    return history.has_revision(revision) and history.has_revision(part) and history.is_ancestor(part, revision)
