"""Check for `vmrag doctor` the remotes of the knowledge base, and this machine's copies of them.

A remote must still have what it had at the last fetch, because `git push --mirror` from an ordinary
clone deletes the knowledge base.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from vmrag_link.engines.own_branches import ROOT_BRANCH, find_correct_root
from vmrag_link.errors import RemoteError, quoted
from vmrag_link.git import remotes, sidecar_repo, transfer
from vmrag_link.ops.doctor.findings import DOCTOR_HINT, Finding, Topic
from vmrag_link.transport import connection, direct_transport, git_transport
from vmrag_link.transport.address import Address
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.remotes import destinations


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


def _list_addresses(ws: Workspace) -> list[Address]:
    """Return the addresses of the remote that the pin or the settings name."""
    if not remotes.list_remotes(ws.places):
        return []
    return destinations.list_trusted_addresses(ws, destinations.read_stated_remote(ws))


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


def _push_back(ws: Workspace, finding: Finding) -> str:
    """Push what this clone fetched last to a remote that lost it."""
    for address in _list_addresses(ws):
        if address.key == finding.subject:
            with connection.open_transport(ws.places, ws.engine, address, timeout=ws.lock_timeout) as peer:
                restored = peer.restore_remote()
            if restored:
                return f"pushed the last known knowledge base back to {quoted(address.text)}."
    return "nothing was left to do."


COPIES = Topic("copies of remotes", _check_copies, {"REMOTE_COPY_DAMAGED": _rebuild_copy})
REMOTE = Topic("remote", _check_remote, {"REMOTE_LOST": _push_back})
