"""What a hook does when its shim saw that something moved.

Apart from the command line, because a checkout should not wait for a command-line library to load. A post-* hook says at most
one line and always ends with 0: git must go on.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from pathlib import Path

from vmrag_link.errors import VmragError, system_failure
from vmrag_link.models import Changes
from vmrag_link.ops.recover import reconciled
from vmrag_link.progress import QUIET, Task
from vmrag_link.workspace import Workspace

PATIENCE = 0.0
"""Seconds that git waits for a lock that somebody else holds; the next command goes on where the hook gave up."""


class Notes(list[str]):
    """A `Progress` that shows no bars and keeps the notes: of several sentences the first one is said."""

    def task(self, description: str, total: int) -> contextlib.AbstractContextManager[Task]:
        return QUIET.task(description, total)

    note = list.append


def main() -> int:
    guarded(lambda: run(Path()))
    return 0


def guarded(action: Callable[[], None]) -> None:
    """The outermost boundary of what git runs: one line says what failed."""
    try:
        action()
    except VmragError as error:
        _say_error(error)
    except KeyboardInterrupt:
        _say("interrupted; the next command goes on: vmrag sync")
    except Exception as error:  # noqa: BLE001  a bug of ours must not look like a failure of git
        known = system_failure(error)
        _say_error(known) if known else _say_bug(error)


def run(directory: Path) -> None:
    """Bring knowledge base and index to the pin."""
    notes = Notes()
    workspace = Workspace.open(directory.resolve(), notes, patience=PATIENCE)
    try:
        if workspace.initialized and workspace.config.hooks.sync != "off":
            _follow(workspace, notes)
    finally:
        workspace.close()


def _follow(workspace: Workspace, notes: Notes) -> None:
    report = reconciled(workspace)
    if notes:
        _say(notes[0])
        return
    if report is None:
        return
    if report.state in ("malformed", "missing"):
        raise workspace.unusable(workspace.target())
    if workspace.config.hooks.quiet:
        return
    moved = [f"knowledge is at {(report.to or '')[:7]} ({_counted(report.plan)})"] if report.from_ != report.to else []
    if moved or report.notes:
        _say("; ".join([*moved, *report.notes[:1]]))


def _counted(changes: Changes) -> str:
    return f"+{changes.added} ~{changes.modified} -{changes.removed} documents"


def _say_error(error: VmragError) -> None:
    _say(f"{error.message}{f' ({error.hint})' if error.hint else ''}")


def _say_bug(error: Exception) -> None:
    from vmrag_link.ops.buglog import write

    _say(f"a bug: {type(error).__name__}; please report it with this file: {write(error, sys.argv)}")


def _say(line: str) -> None:
    sys.stderr.write(f"vmrag: {' '.join(line.split())}\n")
