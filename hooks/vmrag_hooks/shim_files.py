"""Shims in a folder: written there, and taken away again, with what another tool had in their
places chained and given back.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from vmrag_hooks import chaining, shims
from vmrag_link.errors import FileFailed
from vmrag_link.git import hooks as found
from vmrag_link.git.hook_scope import HOOKS
from vmrag_link.paths import fsync, write_atomically


def write(folder: Path, hooks: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Write the shims; returns those that were missing or different, and those of them that chain
    another hook now.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written = {hook: slot for hook in hooks if not _is_current(slot := found.place_of(folder, hook), hook)}
    chaining_now = tuple([hook for hook, slot in written.items() if _write(slot, hook)])
    for each in {slot.parent for slot in written.values()}:
        fsync(each)
    return tuple(written), chaining_now


def foreign(folder: Path) -> tuple[str, ...]:
    """The hooks of other tools that lie where ours would."""
    return tuple(hook for hook in HOOKS if found.exists(folder / hook) and not found.is_ours(folder / hook))


def _write(slot: Path, hook: str) -> bool:
    """Write a shim; returns whether another tool's hook was moved aside.

    Everything that a full disk stops comes before the renames.
    """
    fresh = slot.with_name(f"{hook}.vmrag-new")
    write_atomically(fresh, shims.text(hook), mode=chaining.EXECUTABLE)
    foreign = found.exists(slot) and not found.is_ours(slot)
    if foreign:
        chaining.chain(slot.parent, hook)
    fresh.replace(slot)
    return foreign


def remove(folder: Path, hook: str) -> bool:
    """Remove a shim; returns whether the hook that was there before is back."""
    slot, front, chained = found.place_of(folder, hook), folder / hook, chaining.chained_hook(folder, hook)
    if found.is_ours(slot):
        slot.unlink()
    if not found.exists(chained):
        return False
    # Its tool wrote it again, over our shim or in front of it:
    if found.exists(front) and chaining.replaces(front, chained):
        chaining.drop(folder, hook)
        return False
    if found.exists(slot):  # somebody else's: nobody runs the chained one, but it is not ours to throw away
        return False
    chaining.restore(folder, hook, slot)
    return True


def _is_current(path: Path, hook: str) -> bool:
    try:
        return path.read_bytes() == shims.text(hook) and path.stat().st_mode & 0o777 == chaining.EXECUTABLE
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        return False


@contextlib.contextmanager
def readable_failures(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise FileFailed(
            f"Cannot change the hooks in {folder}: {error.strerror} ({error.filename})", hint=f"ls -la '{folder}'"
        ) from error
