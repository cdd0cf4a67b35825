"""Shims in a folder: they are written there and taken away again, and another tool's hooks in their
places are chained and given back.

The folder is that of a clone's hooks, or a template for `git clone --template`, which copies it
into `.git`: such clones have the hooks and the merge driver from the start.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from vmrag_hooks import chaining, shims
from vmrag_link.errors import FileFailed, HooksRefused
from vmrag_link.git import hooks as found
from vmrag_link.git.hook_config import HOOKS
from vmrag_link.git.pin_merge import DRIVER, driver_settings
from vmrag_link.git.run import build_failure, run_git_in
from vmrag_link.models import Record
from vmrag_link.paths import sync_to_disk, write_atomically


def write_shims(folder: Path, hooks: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Write the shims; returns those that were missing or different, and those of them that chain
    another hook now.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written = {hook: slot for hook in hooks if not _is_current(slot := found.locate_shim(folder, hook), hook)}
    chaining_now = tuple([hook for hook, slot in written.items() if _write(slot, hook)])
    for each in {slot.parent for slot in written.values()}:
        sync_to_disk(each)
    return tuple(written), chaining_now


def list_foreign_hooks(folder: Path) -> tuple[str, ...]:
    """The hooks of other tools that lie where ours would."""
    return tuple(hook for hook in HOOKS if found.hook_exists(folder / hook) and not found.is_ours(folder / hook))


def _write(slot: Path, hook: str) -> bool:
    """Write a shim; returns whether another tool's hook was moved aside.

    Everything that a full disk stops comes before the renames.
    """
    fresh = slot.with_name(f"{hook}.vmrag-new")
    write_atomically(fresh, shims.format_shim(hook), mode=chaining.EXECUTABLE)
    foreign = found.hook_exists(slot) and not found.is_ours(slot)
    if foreign:
        chaining.chain_hook(slot.parent, hook)
    fresh.replace(slot)
    return foreign


def remove_shim(folder: Path, hook: str) -> bool:
    """Remove a shim; returns whether the hook that was there before is back."""
    slot, front, chained = found.locate_shim(folder, hook), folder / hook, chaining.find_chained_hook(folder, hook)
    if found.is_ours(slot):
        slot.unlink()
    if not found.hook_exists(chained):
        return False
    # Its tool wrote it again, over our shim or in front of it:
    if found.hook_exists(front) and chaining.is_rewritten_hook(front, chained):
        chaining.delete_hook(folder, hook)
        return False
    if found.hook_exists(slot):  # somebody else's: nobody runs the chained one, but it is not ours to throw away
        return False
    chaining.restore_hook(folder, hook, slot)
    return True


def _is_current(path: Path, hook: str) -> bool:
    try:
        return path.read_bytes() == shims.format_shim(hook) and path.stat().st_mode & 0o777 == chaining.EXECUTABLE
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


class TemplateReport(Record, frozen=True):
    """`written`: the names of the hooks that were missing or others before."""

    folder: str
    interpreter: str
    written: tuple[str, ...]


def write_template(folder: Path) -> TemplateReport:
    """Make the template, or extend one; what else is in it stays. A second time changes nothing.

    Raises `HooksRefused`, before anything is written, where it has hooks of other tools, and
    `FileFailed`.
    """
    hooks = folder / "hooks"
    others = list_foreign_hooks(hooks)
    if others:
        raise HooksRefused(
            f"The template {folder} has hooks of other tools: {', '.join(others)}.",
            hint=f"Make another template, or move them aside: mv '{hooks / others[0]}' '{hooks / others[0]}.vmrag-chained'",
            folder=str(folder),
            hooks=others,
        )
    python = sys.executable
    with readable_failures(hooks):
        written, _ = write_shims(hooks, HOOKS)
        write_atomically(folder / "vmrag" / "interpreter", python.encode() + b"\n")
    for key, value in driver_settings(shims.format_driver_command(python)).items():
        arguments = ("config", "--file", str(folder / "config"), "--replace-all", f"merge.{DRIVER}.{key}", value)
        done = run_git_in(folder, *arguments)
        if done.returncode:
            raise build_failure(arguments, done)
    return TemplateReport(str(folder), python, written)
