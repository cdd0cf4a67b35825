"""A directory that `git clone --template` copies into `.git`: clones have the hooks and the merge
driver from the start.
"""

from __future__ import annotations

import sys
from pathlib import Path

from vmrag_hooks import driver_command, shim_files
from vmrag_link.errors import HooksRefused
from vmrag_link.git.hook_scope import HOOKS
from vmrag_link.git.pin_merge import DRIVER, driver_settings
from vmrag_link.git.run import failure, git_in
from vmrag_link.models import Record
from vmrag_link.paths import write_atomically


class TemplateReport(Record, frozen=True):
    """`written`: the names of the hooks that were missing or others before."""

    folder: str
    interpreter: str
    written: tuple[str, ...]


def write(folder: Path) -> TemplateReport:
    """Make the template, or extend one; what else is in it stays. A second time changes nothing.

    Raises `HooksRefused`, before anything is written, where it has hooks of other tools, and
    `FileFailed`.
    """
    hooks = folder / "hooks"
    others = shim_files.foreign(hooks)
    if others:
        raise HooksRefused(
            f"The template {folder} has hooks of other tools: {', '.join(others)}.",
            hint=f"Make another template, or move them aside: mv '{hooks / others[0]}' '{hooks / others[0]}.vmrag-chained'",
            folder=str(folder),
            hooks=others,
        )
    python = sys.executable
    with shim_files.readable_failures(hooks):
        written, _ = shim_files.write(hooks, HOOKS)
        write_atomically(folder / "vmrag" / "interpreter", python.encode() + b"\n")
    for key, value in driver_settings(driver_command.command(python)).items():
        arguments = ("config", "--file", str(folder / "config"), "--replace-all", f"merge.{DRIVER}.{key}", value)
        done = git_in(folder, *arguments)
        if done.returncode:
            raise failure(arguments, done)
    return TemplateReport(str(folder), python, written)
