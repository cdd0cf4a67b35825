"""Fetch the knowledge base of a fresh git clone: `vmrag clone`.

`lazy_fetch` calls this automatically for a command that needs the knowledge base. A kill or a
failure leaves no knowledge base, because the engine creates it in one step.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator

from vmrag_link import locks
from vmrag_link.engines import opening
from vmrag_link.engines.base import Engine
from vmrag_link.engines.own_branches import is_reserved
from vmrag_link.errors import AlreadyInitialized, KnowledgeRefused, RemoteEmpty, RemoteError
from vmrag_link.git import folder_modes
from vmrag_link.models import Record
from vmrag_link.transport import connection
from vmrag_link.transport.address import Address
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.remotes import destinations, fetch, revision_map
from vmrag_link.workspace.remotes.fetch import build_remote_empty, fetch_revision, import_map


class CloneReport(Record, frozen=True, rename={"has_revision": "here"}):
    """The result of a clone."""

    remote: str
    """The displayed name of the remote, or the Dolt server that has the knowledge base."""
    kb: str
    branches: tuple[str, ...]
    """The KB branches of the remote."""
    revision: str | None
    """The revision that the checked-out code pins; None without a pin."""
    has_revision: bool
    """True if the knowledge base has that revision."""


def clone(ws: Workspace, remote: str | None = None, *, automatic: bool = False) -> CloneReport:
    """Fetch a knowledge base into a repository that has none.

    If the settings name a Dolt server and no `remote` is given, the server's knowledge base is
    used. `automatic`: the user did not request this, so only trusted remotes are contacted, and an
    existing knowledge base is not an error.

    Raises `AlreadyInitialized`, `RemoteMissing`, `RemoteUnreachable`, `RemoteDamaged`,
    `RemoteNotTrusted`, `AuthenticationFailed` and the errors of `opening.join_server_database`.
    """
    if remote is None and ws.settings.dolt_access.server:
        return _join_server(ws, automatic=automatic)
    pinned = destinations.read_pinned_remote(ws)
    addresses = (
        destinations.list_trusted_addresses(ws, pinned)
        if automatic and pinned
        else destinations.list_fetch_addresses(ws, remote)
    )
    source = clone_from(ws, addresses)
    if source is None:
        if automatic:  # another command already cloned it
            return _build_report(ws, addresses[0].text, ws.engine.remote_heads(addresses[0].key))
        raise _exists_error()
    target = ws.resolve_target()
    others = [address for address in addresses if address != source]
    if target.state == "missing" and others:  # the next remote may have the pinned revision
        with contextlib.suppress(RemoteError):  # the report contains what was fetched
            fetch_revision(ws, others, target.revision)
    return _build_report(ws, source.text, ws.engine.remote_heads(source.key))


def _exists_error() -> AlreadyInitialized:
    return AlreadyInitialized(
        "the knowledge base already exists.",
        hint="run 'vmrag fetch' to fetch the revision, or 'vmrag pull' to merge the newer revision",
    )


def _join_server(ws: Workspace, *, automatic: bool) -> CloneReport:
    """Use the knowledge base of the Dolt server in the settings."""
    access = ws.settings.dolt_access
    with _lock_clone(ws):
        if not ws.is_initialized:
            opening.join_server_database(ws.places.kb, access).close()
            revision_map.reload_map(ws.engine)
        elif not automatic:
            raise _exists_error()
    return _build_report(ws, access.server, (branch.name for branch in ws.engine.list_branches()))


def clone_from(ws: Workspace, addresses: list[Address]) -> Address | None:
    """Fetch the knowledge base of the first of these remotes that has one, and return that remote.

    Return None if a knowledge base already exists. Raises the errors of `clone`.
    """
    with _lock_clone(ws):
        if ws.is_initialized:
            return None
        names = " or ".join(address.text for address in addresses)
        ws.progress.note(f"Fetching the knowledge base of this repository from {names}.")
        source = _clone_first(ws, addresses)
    try:
        import_map(ws, source)
    except KnowledgeRefused as error:  # the revisions of newer commits were fetched nevertheless
        ws.progress.note(error.sentence)
    fetch.import_links(ws, source)
    return source


@contextlib.contextmanager
def _lock_clone(ws: Workspace) -> Iterator[None]:
    """Lock the creation of the knowledge base, which all work trees of the repository share."""
    folder_modes.prepare_folders(ws.places)
    lock = ws.places.locks / "clone.lock"
    with locks.hold_exclusive(lock, purpose="clone the knowledge base", timeout=ws.lock_timeout):
        yield


def _clone_first(ws: Workspace, addresses: list[Address]) -> Address:
    """Clone from the first remote that has a knowledge base, and return that remote.

    If no remote has one, raise the error of a remote that could not be contacted, or else the first
    error.
    """
    engine = destinations.find_engine(ws)
    opening.require_runnable(engine, ws.settings.dolt_access)

    def create_clone(key: str, url: str) -> Engine:
        settings = ws.settings
        return opening.clone_engine(engine, ws.places.kb, key, url, limits=settings.limits, access=settings.dolt_access)

    problems: list[RemoteError] = []
    for address in addresses:
        try:
            with ws.progress.task("cloning", total=1) as task:
                cloned = connection.clone_remote(
                    ws.places, address, create_clone, timeout=ws.lock_timeout, engine=engine, limits=ws.settings.limits
                )
                task.advance(1)
        except RemoteError as problem:
            problems.append(problem)
            continue
        if cloned is not None:
            cloned.close()
            return address
        problems.append(build_remote_empty(address))
    raise next((error for error in problems if not isinstance(error, RemoteEmpty)), problems[0])


def _build_report(ws: Workspace, source: str, branches: Iterable[str]) -> CloneReport:
    pin = ws.resolve_target().pin
    names = sorted(name for name in branches if not is_reserved(name))
    revision = pin.dolt_commit if pin else None
    exists = revision is not None and ws.engine.has_revision(revision)
    return CloneReport(source, str(ws.places.kb), tuple(names), revision, exists)
