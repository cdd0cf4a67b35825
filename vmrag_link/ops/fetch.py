"""`vmrag fetch`: bring what a remote's knowledge base holds. No branch here moves."""

from __future__ import annotations

from collections.abc import Iterable

from vmrag_link.engines.base import RESERVED_PREFIX
from vmrag_link.errors import Remote, RemoteEmpty
from vmrag_link.models import Record
from vmrag_link.ops import destinations
from vmrag_link.travel import exchange
from vmrag_link.travel.address import Address
from vmrag_link.travel.publish import Moved
from vmrag_link.workspace import Workspace


class FetchReport(Record, frozen=True):
    """`remote` as people know it; `updates`: its KB branches that moved or are new; `revision`: what the checked-out code pins,
    which is `here` now or not, and (`arrived`) was not before; None where there is no pin that can be read.
    """

    remote: str
    updates: tuple[Moved, ...]
    revision: str | None
    here: bool
    arrived: bool


def fetch(ws: Workspace, remote: str | None = None) -> FetchReport:
    """Fetch from the remote that is named, or where the pin and the settings say.

    Raises `RemoteMissing`, `RemoteUnreachable`, `RemoteDamaged`, `RemoteNotTrusted`, `AuthenticationFailed`; then nothing was taken.
    """
    pin = ws.target().pin
    wanted = pin.dolt_commit if pin else None
    before = bool(wanted and ws.engine.has_revision(wanted))
    found, updates = first_with(ws, destinations.asked(ws, remote), wanted)
    here = bool(wanted and ws.engine.has_revision(wanted))
    return FetchReport(found.text, updates, wanted, here, arrived=here and not before)


def first_with(ws: Workspace, addresses: Iterable[Address], wanted: str | None) -> tuple[Address, tuple[Moved, ...]]:
    """Fetch from one remote after the other until the revision is here; the one that had it, or else the first that has anything.

    `git:` may stand for several: a contributor's fork and the repository that it comes from. Raises the first one's error if none has.
    """
    answered: list[tuple[Address, tuple[Moved, ...]]] = []
    problems: list[Remote] = []
    for each in addresses:
        try:
            answered.append((each, fetched(ws, each)))
        except Remote as problem:
            problems.append(problem)
            continue
        if wanted is None or ws.engine.has_revision(wanted):
            return answered[-1]
    if not answered:
        raise problems[0]
    return answered[0]


def fetched(ws: Workspace, address: Address) -> tuple[Moved, ...]:
    """Fetch from one remote; the KB branches that moved. Raises `RemoteEmpty` where it has no knowledge base."""
    with (
        ws.progress.task("fetching", total=1) as task,
        exchange.opened(ws.places, ws.engine, address, timeout=ws.lock_timeout) as peer,
    ):
        before = peer.heads()
        if not peer.fetch():
            raise nothing_at(address)
        task.advance(1)
        after = peer.heads()
    changed = {name: head for name, head in after.items() if before.get(name) != head}
    shown = sorted(name for name in changed if not name.startswith(RESERVED_PREFIX))
    return tuple(Moved(name, before.get(name), changed[name]) for name in shown)


def nothing_at(address: Address) -> RemoteEmpty:
    return RemoteEmpty(
        f"{address.text} has no knowledge base yet.",
        hint="Who has one puts it there: vmrag push",
        remote=address.text,
    )
