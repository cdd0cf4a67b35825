"""Check the knowledge base for `vmrag doctor`.

This includes unfinished operations, the queue of links from git commits to revisions, and the
documents that stay on this machine (setting `system.versioned`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from vmrag_link import hints, locks, permissions
from vmrag_link.engines.folder import LOCK_NAME, SERVER_FILE, UNCOMMITTED_NAME
from vmrag_link.engines.own_branches import ROOT_BRANCH, find_correct_root
from vmrag_link.errors import KnowledgeLost, PinError, quoted, set_aside
from vmrag_link.git import own_keys, work_trees
from vmrag_link.git.refs import BRANCHES
from vmrag_link.journal import CommitEntry, ReplayEntry
from vmrag_link.ops.doctor.findings import DOCTOR_HINT, Finding, Topic
from vmrag_link.ops.links import link_queue
from vmrag_link.sync import lease
from vmrag_link.workspace import Workspace, reasons
from vmrag_link.workspace.documents import copies, misplaced
from vmrag_link.workspace.follow import recovery
from vmrag_link.workspace.follow.sync import sync_to_pin

MAX_QUEUE_BYTES = 500_000
"""About 8,000 commits. The next `vmrag links` needs some time to process a longer queue."""


def _check_knowledge(ws: Workspace) -> Iterator[Finding]:
    """Check that it can be opened, and then every page, by the engine's own check (2 ms per MB)."""
    if ws.stores_nothing:
        return  # only files of the repository answer
    if not ws.is_initialized:
        error = reasons.explain_uninitialized(ws)
        lost = isinstance(error, KnowledgeLost)
        yield Finding("KB_LOST" if lost else "NOT_INITIALIZED", "error", error.message, error.hint, str(ws.places.kb))
        return
    damage = ws.engine.find_damage()
    if damage:
        yield Finding("KB_DAMAGED", "error", damage, _form_fetch_hint(ws.engine.folder), str(ws.engine.folder))
    yield from _check_root_branch(ws)
    yield from _check_uncommitted_mark(ws)
    if not damage:
        yield from _check_stored_copies(ws)


def _form_fetch_hint(folder: Path) -> str:
    if (folder / SERVER_FILE).exists():
        return "run 'dolt fsck' on the server, in the folder of the database"
    return hints.suggest_command(
        f"{set_aside(folder)} && vmrag clone", "fetch it again, and keep the old one for what was not pushed"
    )


def _check_root_branch(ws: Workspace) -> Iterator[Finding]:
    root = find_correct_root(ws.engine)
    if root:
        state = "is at another revision" if ws.engine.find_branch(ROOT_BRANCH) else "does not exist"
        message = f"the branch {ROOT_BRANCH!r}, which every knowledge base begins with, {state}."
        yield Finding("ROOT_MISPLACED", "error", message, DOCTOR_HINT, root)


def _check_uncommitted_mark(ws: Workspace) -> Iterator[Finding]:
    mark = ws.engine.folder / UNCOMMITTED_NAME
    dirty = [branch.name for branch in ws.engine.list_branches() if branch.dirty]
    if dirty and not mark.exists():
        message = f"the note for git hooks about uncommitted documents (of {', '.join(dirty)}) is missing."
        yield Finding("UNCOMMITTED_NOTE", "warning", message, DOCTOR_HINT, str(mark))
    elif mark.exists() and not dirty:
        message = "a note for git hooks reports uncommitted documents, but none exist, so commits take longer."
        yield Finding("UNCOMMITTED_NOTE", "note", message, DOCTOR_HINT, str(mark))


def _check_stored_copies(ws: Workspace) -> Iterator[Finding]:
    """List stored copies of tracked files, which may be outdated."""
    with contextlib.suppress(PinError):  # another topic reports it
        stored = copies.list_copies(ws, ws.locate_documents())
        if stored:
            names = ", ".join(f"{copy.collection}/{copy.doc_id}" for copy in stored)
            message = f"{copies.form_sentence(stored).rstrip('.')}: {names}."
            yield Finding(copies.CODE, "note", message, copies.suggest_removal(ws))


def _repair_root_branch(ws: Workspace, finding: Finding) -> str:
    root = finding.subject
    branch = ws.engine.find_branch(ROOT_BRANCH)
    if branch is None:
        ws.engine.create_branch(ROOT_BRANCH, root)
    else:
        ws.engine.move_branch(ROOT_BRANCH, root, expected=branch.head)
    return f"put {ROOT_BRANCH!r} at revision {root[:12]}."


def _repair_uncommitted_mark(ws: Workspace, finding: Finding) -> str:
    with ws.engine.write_lock("note what is uncommitted"):  # no other process stores documents in the block
        if any(branch.dirty for branch in ws.engine.list_branches()):
            permissions.make_file(Path(finding.subject))
            return "noted that there are uncommitted documents."
        Path(finding.subject).unlink(missing_ok=True)
    return "removed the note."


def _check_journal(ws: Workspace) -> Iterator[Finding]:
    """Check for journal entries that no running process works on."""
    if not ws.is_initialized:
        return
    for path, entry in ws.journal.list_entries():
        problem = recovery.find_flaw(ws, entry)
        if problem or entry is None:
            message = f"the entry {path.name} of the journal {problem}."
            yield Finding("JOURNAL_DAMAGED", "warning", message, "run 'vmrag sync' to finish it", str(path))
        elif isinstance(entry, CommitEntry):
            yield from _check_commit(ws, path, entry)
        else:
            yield from _check_replay(ws, path, entry)
    for path in sorted(ws.places.journal.glob("*.damaged")):
        message = f"an unreadable journal entry was renamed: {path.name}."
        yield Finding("JOURNAL_SET_ASIDE", "note", message, f"run 'rm {quoted(path)}' to remove it", str(path))


def _check_commit(ws: Workspace, path: Path, entry: CommitEntry) -> Iterator[Finding]:
    git_dir = Path(entry.git_dir)
    is_known = git_dir in work_trees.list_git_dirs(ws.places)
    is_running = is_known and locks.is_held(ws.places._replace(git_dir=git_dir).workspace_lock)
    if is_running or not path.exists():
        return
    tree = lease.find_work_tree(git_dir)
    branch = entry.symbolic.removeprefix(BRANCHES)
    message = f"a commit on {branch!r} in {tree} was interrupted before its revision was pinned."
    if recovery.is_on_branch(ws, entry):
        yield Finding("COMMIT_UNFINISHED", "warning", message, "run 'vmrag sync' to finish it", str(path))
        return
    folder = tree if tree.is_dir() else ws.places.top
    fix = f"run 'cd {quoted(folder)} && git switch {quoted(branch)} && vmrag sync'"
    yield Finding("COMMIT_UNFINISHED_ELSEWHERE", "warning", message, fix, str(path))


def _check_replay(ws: Workspace, path: Path, entry: ReplayEntry) -> Iterator[Finding]:
    if locks.is_held(ws.engine.folder / LOCK_NAME) or not path.exists():
        return
    code = own_keys.read_kb_owners(ws.places).get(entry.kb_branch)
    message = f"the move of uncommitted documents of {entry.kb_branch!r} to {entry.to[:7]} was interrupted."
    if code in (None, ws.read_trigger().branch):
        yield Finding("REPLAY_UNFINISHED", "warning", message, "run 'vmrag sync' to finish it", str(path))
    else:
        fix = f"run 'git switch {quoted(code or '')} && vmrag sync'"
        yield Finding("REPLAY_UNFINISHED_ELSEWHERE", "warning", message, fix, str(path))


def _finish_interrupted(ws: Workspace, _: Finding) -> str:
    sync_to_pin(ws)
    return "finished the interrupted operation."


def _check_links(ws: Workspace) -> Iterator[Finding]:
    try:
        size = ws.places.link_queue.stat().st_size
    except FileNotFoundError:
        return
    if size > MAX_QUEUE_BYTES and ws.is_initialized:
        message = f"the queue of links has {size / 1000:.0f} kB, from thousands of commits since it was last processed."
        yield Finding("LINKS_WAITING", "note", message, "run 'vmrag links' to process it", str(ws.places.link_queue))


def _flush_links(ws: Workspace, _: Finding) -> str:
    return f"linked {link_queue.flush_queue(ws)} commits."


def _check_local(ws: Workspace) -> Iterator[Finding]:
    """Check that the documents that stay on this machine are undamaged, and in the store of the
    setting.
    """
    folder = ws.places.local_kb
    damage = ws.local.engine.find_damage() if ws.local.exists else ""
    if damage:
        yield Finding("LOCAL_DAMAGED", "error", damage, ws.local.remedy, str(folder))
    sentence = misplaced.describe_misplaced(ws, committed=True) if ws.is_initialized else ""
    if sentence:
        fix = hints.suggest_command(misplaced.MOVE_COMMAND, "move them")
        yield Finding("SYSTEM_MISPLACED", "note", sentence, fix, str(folder))


KNOWLEDGE = Topic(
    "knowledge base",
    _check_knowledge,
    {"UNCOMMITTED_NOTE": _repair_uncommitted_mark, "ROOT_MISPLACED": _repair_root_branch},
)
JOURNAL = Topic(
    "journal",
    _check_journal,
    {
        "COMMIT_UNFINISHED": _finish_interrupted,
        "REPLAY_UNFINISHED": _finish_interrupted,
        "JOURNAL_DAMAGED": _finish_interrupted,
    },
)
LINKS = Topic("links", _check_links, {"LINKS_WAITING": _flush_links})
LOCAL = Topic("this machine's own", _check_local)
