"""Check the knowledge base for `vmrag doctor`.

This includes unfinished operations, the queue of links from git commits to revisions, the documents
that stay on this machine (setting `system.versioned`), and the remote. The remote must still have
what it had at the last fetch, because `git push --mirror` from an ordinary clone deletes it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from vmrag_link import hints, locks, permissions
from vmrag_link.engines.folder import LOCK_NAME, SERVER_FILE, UNCOMMITTED_NAME
from vmrag_link.engines.own_branches import ROOT_BRANCH, find_correct_root
from vmrag_link.errors import KnowledgeLost, PinError, RemoteError, quoted, set_aside
from vmrag_link.git import own_keys, remotes, sidecar_repo, transfer, work_trees
from vmrag_link.git.refs import BRANCHES
from vmrag_link.journal import CommitEntry, ReplayEntry
from vmrag_link.ops.doctor.findings import DOCTOR_HINT, Finding, Topic
from vmrag_link.ops.links import link_queue
from vmrag_link.sync import lease
from vmrag_link.transport import connection, direct_transport, git_transport
from vmrag_link.transport.address import Address
from vmrag_link.workspace import Workspace, reasons
from vmrag_link.workspace.documents import copies, misplaced
from vmrag_link.workspace.follow import recovery
from vmrag_link.workspace.follow.sync import sync_to_pin
from vmrag_link.workspace.remotes import destinations

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


# -- the journal


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


# -- the queue of links


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


def _check_copies(ws: Workspace) -> Iterator[Finding]:
    """Check every byte of the copies of remotes. A damaged copy is fetched again."""
    if not ws.is_initialized:
        return
    store = ws.places.remote_objects
    problem = sidecar_repo.find_damage(sidecar_repo.locate_repository(ws.places, store))
    if problem:
        message = f"the git repository {store.name}, which caches fetches from remotes, is damaged: {problem}."
        yield Finding("REMOTE_COPY_DAMAGED", "warning", message, DOCTOR_HINT, str(store))
        return
    for key in git_transport.list_copied_remotes(ws.places):
        problem = git_transport.find_copy_damage(ws.places, ws.engine.name, key)
        if problem and not connection.is_in_use(ws.places, key):
            message = f"the copy of a remote is damaged: {problem}."
            yield Finding("REMOTE_COPY_DAMAGED", "warning", message, DOCTOR_HINT, str(ws.places.remotes / key))


def _rebuild_copy(ws: Workspace, finding: Finding) -> str:
    """Remove the damaged copy, and fetch again from the remotes that had a copy."""
    path = Path(finding.subject)
    remote_keys = git_transport.list_copied_remotes(ws.places)
    if path == ws.places.remote_objects:
        sidecar_repo.discard_repository(ws.places, path)
    else:
        connection.remove_copy(ws.places, path.name, timeout=ws.lock_timeout)
    try:
        for address in _list_addresses(ws):
            if address.key in remote_keys:
                with connection.open_transport(ws.places, ws.engine, address, timeout=ws.lock_timeout) as peer:
                    peer.fetch()
    except RemoteError as error:
        return f"removed it; the next fetch restores it ({error.message.rstrip('.')})."
    return "removed it, and fetched it again."


def _check_remote(ws: Workspace) -> Iterator[Finding]:
    """Check the trusted remotes that were contacted before."""
    if not ws.is_initialized:
        return
    yield from _check_root(ws)
    try:
        for address in _list_addresses(ws):
            peer = address.peer
            if not peer or not git_transport.read_last_commit(ws.places, address.key):
                continue  # it was never contacted, or is not a git remote
            if transfer.read_remote_ref(ws.places, peer, peer.ref) is None:
                message = f"{address.text} no longer has the knowledge base, because {peer.ref} was deleted there."
                yield Finding("REMOTE_LOST", "error", message, DOCTOR_HINT, address.key)
    except RemoteError as error:
        yield Finding("REMOTE_UNREACHABLE", "note", error.message, error.hint)


def _check_root(ws: Workspace) -> Iterator[Finding]:
    """Check that the pin names a revision of this knowledge base, not of an unrelated one that was
    fetched.
    """
    pin = ws.resolve_target().pin
    root = ws.engine.find_branch(ROOT_BRANCH)
    if pin is None or root is None or not ws.engine.has_revision(pin.dolt_commit):
        return
    if not find_correct_root(ws.engine) and not ws.engine.is_ancestor(root.head, pin.dolt_commit):
        message = f"the code pins {pin.dolt_commit[:12]}, a revision of another knowledge base."
        command = direct_transport.replacement_command(ws.engine)
        fix = f"run '{command}' to use that knowledge base, {direct_transport.AFTER_REPLACEMENT}"
        yield Finding("PIN_FOREIGN", "error", message, fix)


def _list_addresses(ws: Workspace) -> list[Address]:
    if not remotes.list_remotes(ws.places):
        return []
    return destinations.list_trusted_addresses(ws, destinations.read_stated_remote(ws))


def _push_back(ws: Workspace, finding: Finding) -> str:
    for address in _list_addresses(ws):
        if address.key == finding.subject:
            with connection.open_transport(ws.places, ws.engine, address, timeout=ws.lock_timeout) as peer:
                restored = peer.restore_remote()
            if restored:
                return f"pushed the last known knowledge base back to {quoted(address.text)}."
    return "nothing was left to do."


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
COPIES = Topic("copies of remotes", _check_copies, {"REMOTE_COPY_DAMAGED": _rebuild_copy})
REMOTE = Topic("remote", _check_remote, {"REMOTE_LOST": _push_back})
