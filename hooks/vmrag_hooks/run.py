"""Run a hook, after its shim (`shims`) found that there is something to do.

This is not part of the command line, because git waits and a command-line library would take time
to load. A post-* hook prints at most one line and always exits with 0, so that git continues.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from vmrag_hooks.boundary import ANSWER_SECONDS, HookMessages, SyncTooLong, print_line, run_guarded
from vmrag_link.progress import ASKING, BUILDING, DOWNLOADING, EMBEDDING, FETCHING
from vmrag_link.sync import background
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.follow.follow_pin import follow_or_raise

LOCK_SECONDS = 0.0
"""Seconds to wait for the lock of another process. The next command continues what the hook gave
up.
"""

QUICK_WORK = {BUILDING: 200, EMBEDDING: 50, FETCHING: 0, ASKING: 0, DOWNLOADING: 0}
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
    messages = HookMessages()
    sentences: list[str] = []
    run_guarded(lambda: sentences.extend(_follow_pin(directory, messages)), say=sentences.append)
    if sentences or messages:
        print_line("; ".join(sentences + messages.select_messages()))


def _follow_pin(directory: Path, messages: HookMessages) -> list[str]:
    """Follow the pin as the setting `hooks.sync` demands, and return sentences for the user."""
    workspace = Workspace.open(directory.resolve(), messages, patience=LOCK_SECONDS, answer_seconds=ANSWER_SECONDS)
    try:
        if not workspace.is_initialized and not workspace.places.chroma_follows.exists():
            return []
        mode = workspace.config.hooks.sync
        if mode == "off":
            return []
        if not workspace.is_initialized:  # Chroma's store follows the files of the repository
            workspace.chroma.start_following()
            return _wait_for_chroma(workspace)
        if mode == "auto":
            messages.limits = QUICK_WORK
        is_syncing = mode == "auto" and background.is_running(background.get_sync_job(workspace.places))
        if mode == "background" or is_syncing:
            return _hand_over(workspace)
        try:
            sentences = _sync_index(workspace)
        except SyncTooLong:
            return _hand_over(workspace)
        return sentences + _wait_for_chroma(workspace)
    finally:
        workspace.close()


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
    """Let a background process sync the index, if it has work to do."""
    if workspace.position.find_gap(workspace.views) is None:
        workspace.chroma.start_following()  # HEAD may have other files with the same pin
        return []
    from vmrag_hooks.background import start_sync  # rarely needed, and a checkout waits for imports

    start_sync(workspace.places)
    return [] if workspace.config.hooks.quiet else ["syncing in the background; run 'vmrag status' to see the state"]


def _sync_index(workspace: Workspace) -> list[str]:
    report = follow_or_raise(workspace)
    if report is None or report.from_ == report.to or workspace.config.hooks.quiet:
        return []
    changes = report.plan
    counts = f" (+{changes.added} ~{changes.modified} -{changes.removed} documents)" if changes.total else ""
    return [f"the knowledge base is now at {(report.to or '')[:7]}{counts}"]
