"""What a hook does when its shim saw that there is something to do.

Apart from the command line, because git waits and should not wait for a command-line library to
load. A post-* hook says at most one line and always ends with 0: git must go on.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from vmrag_hooks.boundary import ANSWER_SECONDS, HookNotes, SyncTooLong, print_line, run_guarded
from vmrag_link.models import ChangeCounts
from vmrag_link.progress import ASKING, BUILDING, DOWNLOADING, EMBEDDING, FETCHING
from vmrag_link.sync import background
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.follow.follow_pin import follow_or_raise

PATIENCE = 0.0
"""Seconds to wait for a lock that another process holds. The next command goes on where the hook
gave up.
"""

SMALL = {BUILDING: 200, EMBEDDING: 50, FETCHING: 0, ASKING: 0, DOWNLOADING: 0}
"""What git waits for with `hooks.sync: auto`, in documents and texts: well under a second; never
for a network.
"""


def main(argv: Sequence[str]) -> int:
    """Run one of `hook_config.HOOKS`. `argv`: its name and what git gave it; returns 1 to stop git,
    else 0.
    """
    hook = argv[0]
    if hook.startswith("post-"):
        follow_pin(Path())
        return 0
    from vmrag_hooks import checks  # a checkout should not wait for it

    return checks.main(hook, argv[1:])


def follow_pin(directory: Path) -> None:
    """Bring knowledge base and index to the pin, or have it done in the background; one line says
    what happened.

    What happened to documents is in that line whatever `hooks.quiet` is, and whatever stopped the
    rest.
    """
    notes, said = HookNotes(), list[str]()
    run_guarded(lambda: said.extend(_follow(directory, notes)), say=said.append)
    if said or notes:
        print_line("; ".join(said + notes.select_notes()))


def _follow(directory: Path, notes: HookNotes) -> list[str]:
    workspace = Workspace.open(directory.resolve(), notes, patience=PATIENCE, answer_seconds=ANSWER_SECONDS)
    try:
        if not workspace.is_initialized and not workspace.places.chroma_follows.exists():
            return []
        mode = workspace.config.hooks.sync
        if mode == "off":
            return []
        if not workspace.is_initialized:
            return _follow_files(workspace)
        if mode == "auto":
            notes.limits = SMALL
        if mode == "background" or (
            mode == "auto" and background.is_running(background.get_sync_job(workspace.places))
        ):
            return _hand_over(workspace)
        try:
            said = _sync(workspace)
        except SyncTooLong:
            return _hand_over(workspace)
        return said + _wait_for_chroma(workspace)
    finally:
        workspace.close()


def _follow_files(workspace: Workspace) -> list[str]:
    """Let Chroma's store follow the files of a repository that has no knowledge base here."""
    workspace.chroma.start_following()
    return _wait_for_chroma(workspace)


def _wait_for_chroma(workspace: Workspace) -> list[str]:
    """Wait for Chroma's store if the settings let git wait. Return why it could not be made."""
    failures: list[str] = []
    if workspace.config.hooks.sync == "foreground" and workspace.config.index.chroma == "wait":
        from vmrag_link.workspace.follow import sync

        run_guarded(lambda: sync.wait_if_set(workspace), say=failures.append)
    return failures


def _hand_over(workspace: Workspace) -> list[str]:
    if workspace.position.find_gap(workspace.views) is None:
        workspace.chroma.start_following()  # HEAD may have other files with the same pin
        return []
    from vmrag_hooks.background import start_sync  # rarely needed, and a checkout waits for imports

    start_sync(workspace.places)
    return [] if workspace.config.hooks.quiet else ["knowledge follows in the background; see: vmrag status"]


def _sync(workspace: Workspace) -> list[str]:
    report = follow_or_raise(workspace)
    if report is not None and report.from_ != report.to and not workspace.config.hooks.quiet:
        return [f"knowledge is at {(report.to or '')[:7]}{_counts(report.plan)}"]
    return []


def _counts(changes: ChangeCounts) -> str:
    """Nothing for a new work tree, whose index is there already."""
    return f" (+{changes.added} ~{changes.modified} -{changes.removed} documents)" if changes.total else ""
