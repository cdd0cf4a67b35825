"""`vmrag clone`: the knowledge base of a fresh git clone, from where the code's pin says."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator

from vmrag_link import locks
from vmrag_link.engines import opening
from vmrag_link.engines.base import Engine, is_reserved
from vmrag_link.errors import AlreadyInitialized, KnowledgeRefused, RemoteEmpty, RemoteError
from vmrag_link.git import sidecar_repo
from vmrag_link.models import Record
from vmrag_link.transport import connection
from vmrag_link.transport.address import Address
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.remotes import destinations, fetch, revision_map
from vmrag_link.workspace.remotes.fetch import build_remote_empty, fetch_revision, import_map


class CloneReport(Record, frozen=True):
    """`remote` as people know it, or the Dolt server that has the knowledge base.

    `branches`: its KB branches. `revision`: what the checked-out code pins, if anything; `here`: it
    came along.
    """

    remote: str
    kb: str
    branches: tuple[str, ...]
    revision: str | None
    here: bool


def clone(ws: Workspace, remote: str | None = None, *, automatic: bool = False) -> CloneReport:
    """Fetch a knowledge base into a repository that has none.

    Where the settings name a Dolt server and no `remote` is named, the server's is used.

    `automatic`: nobody asked, so only remotes that are trusted. Raises `AlreadyInitialized`,
    `RemoteMissing`, `RemoteUnreachable`, `RemoteDamaged`, `RemoteNotTrusted`,
    `AuthenticationFailed`, and as `opening.join`; a kill or a failure leaves no knowledge base.
    """
    if remote is None and ws.settings.dolt_access.server:
        return _join(ws, automatic=automatic)
    pinned = destinations.read_pinned_remote(ws)
    addresses = (
        destinations.list_trusted_addresses(ws, pinned)
        if automatic and pinned
        else destinations.list_fetch_addresses(ws, remote)
    )
    source = clone_from(ws, addresses)
    if source is None:
        if automatic:  # another command was faster
            return _report(ws, addresses[0])
        raise _here_already()
    target, others = ws.resolve_target(), [address for address in addresses if address != source]
    if target.state == "missing" and others:  # the next remote may have what the first one lacks
        with contextlib.suppress(RemoteError):  # the report says what is here
            fetch_revision(ws, others, target.revision)
    return _report(ws, source)


def _here_already() -> AlreadyInitialized:
    return AlreadyInitialized("There is a knowledge base here already.", hint="vmrag fetch (or vmrag pull)")


def _join(ws: Workspace, *, automatic: bool) -> CloneReport:
    access = ws.settings.dolt_access
    with _alone(ws):
        if not ws.is_initialized:
            opening.join_server_database(ws.places.kb, access).close()
            revision_map.reload_map(ws.engine)
        elif not automatic:
            raise _here_already()
    return _state(ws, access.server, (branch.name for branch in ws.engine.list_branches()))


def clone_from(ws: Workspace, addresses: list[Address]) -> Address | None:
    """Fetch the knowledge base of the first of these remotes that has one; returns that remote.

    None: there is a knowledge base here already. Raises as `clone`.
    """
    with _alone(ws):
        if ws.is_initialized:
            return None
        names = " or ".join(address.text for address in addresses)
        ws.progress.note(f"This repository's knowledge base is not here yet; it is fetched from {names}.")
        source = _first(ws, addresses)
    try:
        import_map(ws, source)
    except KnowledgeRefused as error:  # what newer commits pin is here all the same
        ws.progress.note(error.sentence)
    fetch.import_links(ws, source)
    return source


@contextlib.contextmanager
def _alone(ws: Workspace) -> Iterator[None]:
    """All work trees of the repository get the same knowledge base."""
    sidecar_repo.prepare_folders(ws.places)
    with locks.hold_exclusive(
        ws.places.locks / "clone.lock", purpose="clone the knowledge base", timeout=ws.lock_timeout
    ):
        yield


def _first(ws: Workspace, addresses: list[Address]) -> Address:
    """The first remote that has a knowledge base, which is here now.

    Where none has: raises why one of them could not be asked, else the first one's error.
    """
    engine = destinations.find_engine(ws)
    opening.require_runnable(engine, ws.settings.dolt_access)

    def make(key: str, url: str) -> Engine:
        settings = ws.settings
        return opening.clone_engine(engine, ws.places.kb, key, url, limits=settings.limits, access=settings.dolt_access)

    problems: list[RemoteError] = []
    for address in addresses:
        try:
            with ws.progress.task("cloning", total=1) as task:
                made = connection.clone_remote(
                    ws.places, address, make, timeout=ws.lock_timeout, engine=engine, limits=ws.settings.limits
                )
                task.advance(1)
        except RemoteError as problem:
            problems.append(problem)
            continue
        if made is not None:
            made.close()
            return address
        problems.append(build_remote_empty(address))
    raise next((each for each in problems if not isinstance(each, RemoteEmpty)), problems[0])


def _report(ws: Workspace, source: Address) -> CloneReport:
    return _state(ws, source.text, ws.engine.remote_heads(source.key))


def _state(ws: Workspace, source: str, branches: Iterable[str]) -> CloneReport:
    pin = ws.resolve_target().pin
    names = sorted(name for name in branches if not is_reserved(name))
    revision = pin.dolt_commit if pin else None
    here = revision is not None and ws.engine.has_revision(revision)
    return CloneReport(source, str(ws.places.kb), tuple(names), revision, here)
