"""Write and remove shims, vmrag's hook scripts, in a folder of hooks.

A shim is at the path where git looks for the hook. If another tool's hook has that path, it is
moved aside, and the shim runs it first. `chaining` has the paths. `vmrag init --template` also
writes shims into a template, which `git clone --template` copies into `.git`. Such clones have the
hooks and the merge driver from the start.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from vmrag_hooks import chaining, shims
from vmrag_link.errors import FileFailed, HooksRefused, quoted
from vmrag_link.file_access import sync_to_disk, write_atomically
from vmrag_link.git import hooks as git_hooks
from vmrag_link.git.hook_config import HOOKS
from vmrag_link.git.merge_driver import DRIVER, driver_settings
from vmrag_link.git.run import build_failure, run_git_in
from vmrag_link.models import Record


class WrittenShims(NamedTuple):
    written: tuple[str, ...]
    """Hooks that were missing or different."""
    chaining: tuple[str, ...]
    """Hooks that now run another tool's hook first."""


def write_shims(folder: Path, hooks: Sequence[str]) -> WrittenShims:
    """Write the shims that are missing or different."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = {hook: git_hooks.locate_shim(folder, hook) for hook in hooks}
    outdated = [hook for hook in hooks if not _is_current(paths[hook], hook)]
    chaining_now = [hook for hook in outdated if _write_shim(paths[hook], hook)]
    for shim_folder in {paths[hook].parent for hook in outdated}:
        sync_to_disk(shim_folder)
    return WrittenShims(tuple(outdated), tuple(chaining_now))


def _is_current(path: Path, hook: str) -> bool:
    try:
        return path.read_bytes() == shims.format_shim(hook) and path.stat().st_mode & 0o777 == chaining.EXECUTABLE
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        return False


def _write_shim(path: Path, hook: str) -> bool:
    """Write a shim, and return whether another tool's hook was moved aside.

    Everything that can fail on a full disk precedes the renames.
    """
    fresh = path.with_name(f"{hook}.vmrag-new")
    write_atomically(fresh, shims.format_shim(hook), mode=chaining.EXECUTABLE)
    foreign = git_hooks.hook_exists(path) and not git_hooks.is_ours(path)
    if foreign:
        chaining.chain_hook(path.parent, hook)
    fresh.replace(path)
    return foreign


def remove_shim(folder: Path, hook: str) -> bool:
    """Remove a shim, and return whether the earlier hook of another tool is back."""
    shim = git_hooks.locate_shim(folder, hook)
    if git_hooks.is_ours(shim):
        shim.unlink()
    chained = chaining.find_chained_hook(folder, hook)
    if not git_hooks.hook_exists(chained):
        return False
    front = folder / hook
    # Its tool wrote it again, over the shim or in front of it:
    if git_hooks.hook_exists(front) and chaining.is_rewritten_hook(front, chained):
        chaining.delete_hook(folder, hook)
        return False
    if git_hooks.hook_exists(shim):  # another tool's hook: nothing runs the chained one, but vmrag must not delete it
        return False
    chaining.restore_hook(folder, hook, shim)
    return True


@contextlib.contextmanager
def readable_failures(folder: Path) -> Iterator[None]:
    """Raise `FileFailed` for an `OSError` in the block."""
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
    others = _list_foreign_hooks(hooks)
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
        written = write_shims(hooks, HOOKS).written
        write_atomically(folder / "vmrag" / "interpreter", python.encode() + b"\n")
    for key, value in driver_settings(shims.format_driver_command(python)).items():
        arguments = ("config", "--file", str(folder / "config"), "--replace-all", f"merge.{DRIVER}.{key}", value)
        result = run_git_in(folder, *arguments)
        if result.returncode:
            raise build_failure(arguments, result)
    return TemplateReport(str(folder), python, written)


def _list_foreign_hooks(folder: Path) -> tuple[str, ...]:
    """Return the hooks at whose paths are hooks of other tools."""
    return tuple(
        hook for hook in HOOKS if git_hooks.hook_exists(folder / hook) and not git_hooks.is_ours(folder / hook)
    )
