"""The knowledge base: whether it is sound, what was begun on it and not finished, the queue of
links, what stays on this machine alone (`system.versioned`: thoughts, chats, evidence), and the
remote.

Of the remote two things are asked. Does it still hold what it held when it was last asked? `git
push --mirror` from an ordinary clone takes that away. Is the pin one of this knowledge base's
revisions? One of another knowledge base may have come here from a remote.
"""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterator
from pathlib import Path

from vmrag_link import locks, permissions
from vmrag_link.engines.base import LOCK_NAME, ROOT_BRANCH, SERVER_FILE, UNCOMMITTED_NAME, find_correct_root
from vmrag_link.errors import KnowledgeLost, PinError, RemoteError, quoted, set_aside
from vmrag_link.git import plumbing, refs, remotes, sidecar_repo, transfer
from vmrag_link.git.refs import BRANCHES
from vmrag_link.journal import CommitEntry, ReplayEntry
from vmrag_link.ops.doctor.findings import DOCTOR, Finding, Topic
from vmrag_link.ops.links import links
from vmrag_link.sync import lease
from vmrag_link.transport import connection, direct_transport, git_transport
from vmrag_link.transport.address import Address
from vmrag_link.workspace import Workspace, reasons
from vmrag_link.workspace.documents import copies, misplaced
from vmrag_link.workspace.follow import recovery
from vmrag_link.workspace.follow.sync import sync_to_pin
from vmrag_link.workspace.remotes import destinations

QUEUE_BYTES = 500_000
"""Some 8,000 commits: working them off takes the next `vmrag links` a while."""


def _check_knowledge(ws: Workspace) -> Iterator[Finding]:
    """Does it open, with a known schema? Then the engine's own check of every page (2 ms a MB)."""
    if ws.stores_nothing:
        return  # files of the repository answer alone
    if not ws.is_initialized:
        why = reasons.explain_uninitialized(ws)
        lost = isinstance(why, KnowledgeLost)
        yield Finding("KB_LOST" if lost else "NOT_INITIALIZED", "error", why.message, why.hint, str(ws.places.kb))
        return
    damage = ws.engine.find_damage()
    if damage:
        yield Finding("KB_DAMAGED", "error", damage, _fetch_again(ws.engine.folder), str(ws.engine.folder))
    yield from _check_root_branch(ws)
    yield from _check_note(ws)
    if not damage:
        yield from _check_stored_copies(ws)


def _check_stored_copies(ws: Workspace) -> Iterator[Finding]:
    """List stored copies of tracked files, which may be outdated."""
    with contextlib.suppress(PinError):  # another topic reports it
        stored = copies.list_copies(ws, ws.locate_documents())
        if stored:
            names = ", ".join(f"{copy.collection}/{copy.doc_id}" for copy in stored)
            message = f"{copies.form_sentence(stored, command=False).rstrip('.')}: {names}."
            yield Finding(copies.CODE, "note", message, copies.REMOVE)


def _check_root_branch(ws: Workspace) -> Iterator[Finding]:
    if root := find_correct_root(ws.engine):
        where = "is at another revision" if ws.engine.find_branch(ROOT_BRANCH) else "does not exist"
        message = f"the branch {ROOT_BRANCH!r}, which every knowledge base begins with, {where}."
        yield Finding("ROOT_MISPLACED", "error", message, DOCTOR, root)


def _repair_root_branch(ws: Workspace, finding: Finding) -> str:
    engine, root = ws.engine, finding.subject
    branch = engine.find_branch(ROOT_BRANCH)
    if branch is None:
        engine.create_branch(ROOT_BRANCH, root)
    else:
        engine.move_branch(ROOT_BRANCH, root, expected=branch.head)
    return f"Put {ROOT_BRANCH!r} at revision {root[:12]}."


def _fetch_again(folder: Path) -> str:
    if (folder / SERVER_FILE).exists():
        return "Whoever runs the server checks the database, in its folder: dolt fsck"
    return f"{set_aside(folder)} (what was not pushed is only in there), then: vmrag clone"


def _check_note(ws: Workspace) -> Iterator[Finding]:
    note = ws.engine.folder / UNCOMMITTED_NAME
    dirty = [branch.name for branch in ws.engine.list_branches() if branch.dirty]
    if dirty and not note.exists():
        message = f"Git hooks do not know that there are uncommitted documents (of {', '.join(dirty)})."
        yield Finding("UNCOMMITTED_NOTE", "warning", message, DOCTOR, str(note))
    elif note.exists() and not dirty:
        message = (
            "A note for git hooks says that there are uncommitted documents, and there are none: commits take longer."
        )
        yield Finding("UNCOMMITTED_NOTE", "note", message, DOCTOR, str(note))


def _mend_note(ws: Workspace, finding: Finding) -> str:
    with ws.engine.write_lock("note what is uncommitted"):  # no process stores documents meanwhile
        if any(branch.dirty for branch in ws.engine.list_branches()):
            permissions.make_file(Path(finding.subject))
            return "Noted that there are uncommitted documents."
        Path(finding.subject).unlink(missing_ok=True)
    return "Removed the note."


# -- the journal


def _check_journal(ws: Workspace) -> Iterator[Finding]:
    """Journal entries that no living process works on."""
    if not ws.is_initialized:
        return
    for path, entry in ws.journal.list_entries():
        problem = recovery.find_flaw(ws, entry)
        if problem or entry is None:
            message = f"The entry {path.name} of the journal {problem}."
            yield Finding("JOURNAL_DAMAGED", "warning", message, "vmrag sync", str(path))
        elif isinstance(entry, CommitEntry):
            yield from _commit(ws, path, entry)
        else:
            yield from _replay(ws, path, entry)
    for path in sorted(ws.places.journal.glob("*.damaged")):
        message = f"A journal entry that could not be read was set aside: {path.name}."
        yield Finding("JOURNAL_SET_ASIDE", "note", message, f"rm {quoted(path)}", str(path))


def _commit(ws: Workspace, path: Path, entry: CommitEntry) -> Iterator[Finding]:
    theirs = Path(entry.git_dir)
    known = theirs in refs.list_git_dirs(ws.places)
    if (known and locks.is_held(ws.places._replace(git_dir=theirs).workspace_lock)) or not path.exists():
        return
    tree, branch = lease.find_work_tree(theirs), entry.symbolic.removeprefix(BRANCHES)
    message = f"A commit on {branch!r} in {tree} was interrupted before its revision was pinned."
    if recovery.is_on_branch(ws, entry):
        yield Finding("COMMIT_UNFINISHED", "warning", message, "vmrag sync", str(path))
        return
    where = tree if tree.is_dir() else ws.places.top
    fix = f"cd {quoted(where)} && git switch {quoted(branch)} && vmrag sync"
    yield Finding("COMMIT_UNFINISHED_ELSEWHERE", "warning", message, fix, str(path))


def _replay(ws: Workspace, path: Path, entry: ReplayEntry) -> Iterator[Finding]:
    if locks.is_held(ws.engine.folder / LOCK_NAME) or not path.exists():
        return
    code = plumbing.read_kb_owners(ws.places).get(entry.kb_branch)
    message = (
        f"Uncommitted documents of {entry.kb_branch!r} were on their way to {entry.to[:7]} when that was interrupted."
    )
    if code in (None, ws.read_trigger().branch):
        yield Finding("REPLAY_UNFINISHED", "warning", message, "vmrag sync", str(path))
    else:
        fix = f"git switch {shlex.quote(code or '')} && vmrag sync"
        yield Finding("REPLAY_UNFINISHED_ELSEWHERE", "warning", message, fix, str(path))


def _finish(ws: Workspace, _: Finding) -> str:
    sync_to_pin(ws)
    return "Finished what was interrupted."


# -- the queue of links


def _check_links(ws: Workspace) -> Iterator[Finding]:
    try:
        size = ws.places.link_queue.stat().st_size
    except FileNotFoundError:
        return
    if size > QUEUE_BYTES and ws.is_initialized:
        message = (
            f"The queue of links has {size / 1000:.0f} kB: git has made thousands of commits since it was worked off."
        )
        yield Finding("LINKS_WAITING", "note", message, "vmrag links", str(ws.places.link_queue))


def _flush(ws: Workspace, _: Finding) -> str:
    return f"Linked {links.flush_queue(ws)} commits."


def _check_local(ws: Workspace) -> Iterator[Finding]:
    """Is it sound, as the knowledge base has to be? And is everything where the setting says?"""
    folder = ws.places.local_kb
    if ws.local.exists and (damage := ws.local.engine.find_damage()):
        yield Finding("LOCAL_DAMAGED", "error", damage, ws.local.remedy, str(folder))
    if ws.is_initialized and (sentence := misplaced.describe_misplaced(ws, committed=True)):
        yield Finding("SYSTEM_MISPLACED", "note", sentence, misplaced.MOVE_COMMAND, str(folder))


def _check_copies(ws: Workspace) -> Iterator[Finding]:
    """Read every byte of what was fetched from remotes, and is fetched again if it is damaged."""
    if not ws.is_initialized:
        return
    store = ws.places.remote_objects
    problem = sidecar_repo.find_damage(sidecar_repo.locate_repository(ws.places, store))
    if problem:
        message = f"The git repository {store.name}, through which remotes are fetched, is damaged: {problem}."
        yield Finding("REMOTE_COPY_DAMAGED", "warning", message, DOCTOR, str(store))
        return
    for key in git_transport.list_copied_remotes(ws.places):
        problem = git_transport.find_copy_damage(ws.places, ws.engine.name, key)
        if problem and not connection.is_in_use(ws.places, key):
            message = f"The copy of a remote is damaged: {problem}."
            yield Finding("REMOTE_COPY_DAMAGED", "warning", message, DOCTOR, str(ws.places.remotes / key))


def _rebuild_copy(ws: Workspace, finding: Finding) -> str:
    """Remove the damaged one, and fetch it again from the remotes of which a copy existed."""
    path, copied = Path(finding.subject), git_transport.list_copied_remotes(ws.places)
    if path == ws.places.remote_objects:
        sidecar_repo.discard_repository(ws.places, path)
    else:
        connection.remove_copy(ws.places, path.name, timeout=ws.lock_timeout)
    try:
        for address in _addresses(ws):
            if address.key in copied:
                with connection.open_transport(ws.places, ws.engine, address, timeout=ws.lock_timeout) as peer:
                    peer.fetch()
    except RemoteError as error:
        return f"Removed it; the next fetch brings it again ({error.message.rstrip('.')})."
    return "Removed it, and fetched it again."


def _check_remote(ws: Workspace) -> Iterator[Finding]:
    """Asks those remotes that have been asked before, and are trusted."""
    if not ws.is_initialized:
        return
    yield from _check_root(ws)
    try:
        known = [
            address
            for address in _addresses(ws)
            if address.peer and git_transport.read_last_commit(ws.places, address.key)
        ]
        for each in known:
            yield from _check_remote_data(ws, each)
    except RemoteError as error:
        yield Finding("REMOTE_UNREACHABLE", "note", error.message, error.hint)


def _check_root(ws: Workspace) -> Iterator[Finding]:
    pin, root = ws.resolve_target().pin, ws.engine.find_branch(ROOT_BRANCH)
    if pin is None or root is None or not ws.engine.has_revision(pin.dolt_commit):
        return
    if not find_correct_root(ws.engine) and not ws.engine.is_ancestor(root.head, pin.dolt_commit):
        message = (
            f"The code pins {pin.dolt_commit[:12]}, a revision of another knowledge base than the one that is here."
        )
        yield Finding(
            "PIN_FOREIGN",
            "error",
            message,
            f"To go on with that one: {direct_transport.replacement_command(ws.engine)}",
        )


def _addresses(ws: Workspace) -> list[Address]:
    if not remotes.list_remotes(ws.places):
        return []
    return destinations.list_trusted_addresses(ws, destinations.read_stated_remote(ws))


def _check_remote_data(ws: Workspace, address: Address) -> Iterator[Finding]:
    peer = address.peer
    if peer and transfer.read_remote_ref(ws.places, peer, peer.ref) is None:
        message = f"{address.text} does not hold the knowledge base any more: somebody deleted {peer.ref} there."
        yield Finding("REMOTE_LOST", "error", message, DOCTOR, address.key)


def _put_back(ws: Workspace, finding: Finding) -> str:
    for address in _addresses(ws):
        if address.key == finding.subject:
            with connection.open_transport(ws.places, ws.engine, address, timeout=ws.lock_timeout) as peer:
                restored = peer.restore_remote()
            if restored:
                return f"Pushed back what {quoted(address.text)} held when it was last asked."
    return "Nothing was left to do."


KNOWLEDGE = Topic(
    "knowledge base", _check_knowledge, {"UNCOMMITTED_NOTE": _mend_note, "ROOT_MISPLACED": _repair_root_branch}
)
JOURNAL = Topic(
    "journal", _check_journal, {"COMMIT_UNFINISHED": _finish, "REPLAY_UNFINISHED": _finish, "JOURNAL_DAMAGED": _finish}
)
LINKS = Topic("links", _check_links, {"LINKS_WAITING": _flush})
LOCAL = Topic("this machine's own", _check_local)
COPIES = Topic("copies of remotes", _check_copies, {"REMOTE_COPY_DAMAGED": _rebuild_copy})
REMOTE = Topic("remote", _check_remote, {"REMOTE_LOST": _put_back})
