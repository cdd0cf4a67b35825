"""What a hook does when its shim saw that there is something to do.

Apart from the command line, because git waits and should not wait for a command-line library to load. A post-* hook says at most
one line and always ends with 0: git must go on.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from vmrag_hooks.shims import SYNCING
from vmrag_link import env, terminal_text
from vmrag_link.engines.base import ASIDE_PREFIX
from vmrag_link.errors import VmragError, system_failure
from vmrag_link.models import ChangeCounts
from vmrag_link.ops.follow.follow_pin import reconcile
from vmrag_link.progress import ASKING, BUILDING, EMBEDDING, FETCHING, QUIET, Task
from vmrag_link.sync import apply, background
from vmrag_link.sync.apply import SyncReport
from vmrag_link.workspace import Workspace

PATIENCE = 0.0
"""Seconds that git waits for a lock that somebody else holds; the next command goes on where the hook gave up."""

SMALL = {BUILDING: 200, EMBEDDING: 50, FETCHING: 0, ASKING: 0}
"""What git waits for with `hooks.sync: auto`, in documents and texts: well under a second; never for a network."""


class TooMuch(Exception):
    """A sync would take longer than git should wait."""


class Notes(list[str]):
    """A `Progress` that shows no bars and keeps the notes. `limits`: the sizes of work beyond which it is refused."""

    limits: Mapping[str, int] = MappingProxyType({})

    def task(self, description: str, total: int) -> contextlib.AbstractContextManager[Task]:
        if total > self.limits.get(description, total):
            raise TooMuch
        return QUIET.task(description, total)

    note = list.append

    def to_say(self) -> list[str]:
        """All about documents that were set aside, else the first sentence: a line is short."""
        return [note for note in self if ASIDE_PREFIX in note] or self[:1]


def main(argv: Sequence[str]) -> int:
    hook = argv[0]
    if hook in SYNCING:
        follow(Path())
        return 0
    from vmrag_hooks import checks  # a checkout should not wait for it

    return checks.main(hook, argv[1:])


def say(line: str) -> None:
    """The one place through which hooks write: strangers' names may be in the line."""
    ours = "\x1b[36mvmrag:\x1b[0m" if sys.stderr.isatty() and env.colourful() else "vmrag:"
    told = terminal_text.for_log(terminal_text.one_line(" ".join(line.split())))
    sys.stderr.write(f"{ours} {told}\n")


def guarded(action: Callable[[], None], *, say: Callable[[str], None] = say) -> None:
    """The outermost boundary of what git runs: one line says what failed."""
    try:
        action()
    except VmragError as error:
        say(_told(error))
    except KeyboardInterrupt:
        say("interrupted; the next command goes on: vmrag sync")
    except Exception as error:  # noqa: BLE001  a bug of ours must not look like a failure of git
        known = system_failure(error)
        say(_told(known) if known else _bug(error))


def follow(directory: Path) -> None:
    """Bring knowledge base and index to the pin, or see to it that this happens in the background; one line says what happened.

    What happened to documents is in it whatever `hooks.quiet` is, and whatever stopped the rest.
    """
    notes, said = Notes(), list[str]()
    guarded(lambda: said.extend(_followed(directory, notes)), say=said.append)
    if said or notes:
        say("; ".join(said + notes.to_say()))


def _followed(directory: Path, notes: Notes) -> list[str]:
    workspace = Workspace.open(directory.resolve(), notes, patience=PATIENCE)
    try:
        if not workspace.initialized or workspace.config.hooks.sync == "off":
            return []
        mode = workspace.config.hooks.sync
        if mode == "auto":
            notes.limits = SMALL
        if mode == "background" or (mode == "auto" and background.running(workspace.places)):
            return _handed_over(workspace)
        try:
            return _synced(workspace)
        except TooMuch:
            return _handed_over(workspace)
    finally:
        workspace.close()


def _handed_over(workspace: Workspace) -> list[str]:
    if apply.settled(workspace.parts):
        return []
    from vmrag_hooks.background import start

    start(workspace.places)
    return [] if workspace.config.hooks.quiet else ["knowledge follows in the background; see: vmrag status"]


def brought(workspace: Workspace) -> SyncReport | None:
    """As `reconciled`; raises why the pin cannot be followed, if there is one."""
    report = reconcile(workspace)
    if report is not None and report.state in ("malformed", "missing"):
        raise workspace.unusable(workspace.target())
    return report


def _synced(workspace: Workspace) -> list[str]:
    report = brought(workspace)
    if report is not None and report.from_ != report.to and not workspace.config.hooks.quiet:
        return [f"knowledge is at {(report.to or '')[:7]}{_counted(report.plan)}"]
    return []


def _counted(changes: ChangeCounts) -> str:
    """Nothing for a new work tree, whose index is there already."""
    return f" (+{changes.added} ~{changes.modified} -{changes.removed} documents)" if changes.total else ""


def _told(error: VmragError) -> str:
    return f"{error.message} ({error.hint})" if error.hint else error.message


def _bug(error: Exception) -> str:
    from vmrag_link.ops.upkeep.buglog import write

    return f"a bug: {type(error).__name__}; please report it with this file: {write(error, sys.argv)}"
