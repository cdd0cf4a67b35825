"""Write and remove shims in a folder, and chain and restore other tools' hooks at their places.

The folder is that of a clone's hooks, or a template for `git clone --template`, which copies it
into `.git`. Such clones have the hooks and the merge driver from the start.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from vmrag_hooks import chaining, shims
from vmrag_link.errors import FileFailed, HooksRefused, quoted
from vmrag_link.file_access import sync_to_disk, write_atomically
from vmrag_link.git import hooks as git_hooks
from vmrag_link.git.hook_config import HOOKS
from vmrag_link.git.merge_driver import DRIVER, driver_settings
from vmrag_link.git.run import build_failure, run_git_in
from vmrag_link.models import Record


def write_shims(folder: Path, hooks: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Write the shims.

    Returns the hooks that were missing or different, and those of them that now chain another hook.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written = {hook: slot for hook in hooks if not _is_current(slot := git_hooks.locate_shim(folder, hook), hook)}
    chaining_now = tuple([hook for hook, slot in written.items() if _write_shim(slot, hook)])
    for shim_folder in {slot.parent for slot in written.values()}:
        sync_to_disk(shim_folder)
    return tuple(written), chaining_now


def list_foreign_hooks(folder: Path) -> tuple[str, ...]:
    """Return other tools' hooks that are in the places of vmrag hooks."""
    return tuple(
        hook for hook in HOOKS if git_hooks.hook_exists(folder / hook) and not git_hooks.is_ours(folder / hook)
    )


def _write_shim(slot: Path, hook: str) -> bool:
    """Write a shim, and return whether another tool's hook was moved aside.

    Everything that can fail on a full disk precedes the renames.
    """
    fresh = slot.with_name(f"{hook}.vmrag-new")
    write_atomically(fresh, shims.format_shim(hook), mode=chaining.EXECUTABLE)
    foreign = git_hooks.hook_exists(slot) and not git_hooks.is_ours(slot)
    if foreign:
        chaining.chain_hook(slot.parent, hook)
    fresh.replace(slot)
    return foreign


def remove_shim(folder: Path, hook: str) -> bool:
    """Remove a shim, and return whether the earlier hook is back."""
    slot, front, chained = git_hooks.locate_shim(folder, hook), folder / hook, chaining.find_chained_hook(folder, hook)
    if git_hooks.is_ours(slot):
        slot.unlink()
    if not git_hooks.hook_exists(chained):
        return False
    # Its tool wrote it again, over the shim or in front of it:
    if git_hooks.hook_exists(front) and chaining.is_rewritten_hook(front, chained):
        chaining.delete_hook(folder, hook)
        return False
    if git_hooks.hook_exists(slot):  # another tool's hook: nothing runs the chained one, but vmrag must not delete it
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
            f"cannot change the hooks in {folder}: {error.strerror} ({error.filename})",
            hint=f"run 'ls -la {quoted(folder)}' to check its permissions",
        ) from error


class TemplateReport(Record, frozen=True):
    """The result of writing a template.

    `written` has the hooks that were missing or different before.
    """

    folder: str
    interpreter: str
    written: tuple[str, ...]


def write_template(folder: Path) -> TemplateReport:
    """Create or extend a template. Its other files stay, and a second call changes nothing.

    Raises `HooksRefused`, before it writes anything, if the template has hooks of other tools, and
    `FileFailed`.
    """
    hooks = folder / "hooks"
    others = list_foreign_hooks(hooks)
    if others:
        first = hooks / others[0]
        raise HooksRefused(
            f"the template {folder} has hooks of other tools: {', '.join(others)}.",
            hint=f"use another template, or run 'mv {quoted(first)} {quoted(f'{first}.vmrag-chained')}' to move it aside",
            folder=str(folder),
            hooks=others,
        )
    python = sys.executable
    with readable_failures(hooks):
        written, _ = write_shims(hooks, HOOKS)
        write_atomically(folder / "vmrag" / "interpreter", python.encode() + b"\n")
    for key, value in driver_settings(shims.format_driver_command(python)).items():
        arguments = ("config", "--file", str(folder / "config"), "--replace-all", f"merge.{DRIVER}.{key}", value)
        result = run_git_in(folder, *arguments)
        if result.returncode:
            raise build_failure(arguments, result)
    return TemplateReport(str(folder), python, written)
