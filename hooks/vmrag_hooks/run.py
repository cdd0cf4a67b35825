"""Run a hook, which its shim found to be necessary.

This is not part of the command line, because git waits and a command-line library would take time
to load. A post-* hook prints at most one line and always exits with 0, so that git continues.
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
"""Seconds to wait for the lock of another process. The next command continues what the hook gave
up.
"""

SMALL = {BUILDING: 200, EMBEDDING: 50, FETCHING: 0, ASKING: 0, DOWNLOADING: 0}
"""Amounts of work for which git waits with `hooks.sync: auto`, in documents and texts.

They take well under a second. git never waits for a network.
"""


def main(argv: Sequence[str]) -> int:
    """Run a hook of `hook_config.HOOKS`, and return 1 to stop git, else 0.

    `argv` has the name of the hook and git's arguments.
    """
    hook = argv[0]
    if hook.startswith("post-"):
        follow_pin(Path())
        return 0
    from vmrag_hooks import checks  # a checkout should not wait for it

    return checks.main(hook, argv[1:])


def follow_pin(directory: Path) -> None:
    """Bring the knowledge base and the index to the pin, now or in the background, and print one
    line.

    The line reports stashed or changed documents even with `hooks.quiet`, and after a failure of
    the rest.
    """
    notes, sentences = HookNotes(), list[str]()
    run_guarded(lambda: sentences.extend(_follow_pin(directory, notes)), say=sentences.append)
    if sentences or notes:
        print_line("; ".join(sentences + notes.select_notes()))


def _follow_pin(directory: Path, notes: HookNotes) -> list[str]:
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
            sentences = _sync_index(workspace)
        except SyncTooLong:
            return _hand_over(workspace)
        return sentences + _wait_for_chroma(workspace)
    finally:
        workspace.close()


def _follow_files(workspace: Workspace) -> list[str]:
    """Let Chroma's store follow the files of a repository without a local knowledge base."""
    workspace.chroma.start_following()
    return _wait_for_chroma(workspace)


def _wait_for_chroma(workspace: Workspace) -> list[str]:
    """Wait for Chroma's store if the settings let git wait, and return why it could not be
    built.
    """
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
    return [] if workspace.config.hooks.quiet else ["syncing in the background; run 'vmrag status' to see the state"]


def _sync_index(workspace: Workspace) -> list[str]:
    report = follow_or_raise(workspace)
    if report is not None and report.from_ != report.to and not workspace.config.hooks.quiet:
        return [f"the knowledge base is now at {(report.to or '')[:7]}{_format_counts(report.plan)}"]
    return []


def _format_counts(changes: ChangeCounts) -> str:
    """Return the counts as text; an empty text for a new work tree whose index exists."""
    return f" (+{changes.added} ~{changes.modified} -{changes.removed} documents)" if changes.total else ""
