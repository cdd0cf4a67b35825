"""`vmrag push`: let a remote hold what the code pins, and where its KB branches are."""

from __future__ import annotations

from collections.abc import Sequence

from vmrag_link.engines.base import RESERVED_PREFIX
from vmrag_link.errors import BranchMissing
from vmrag_link.models import Record
from vmrag_link.ops import destinations, history_pins
from vmrag_link.ops.recover import recover
from vmrag_link.travel import exchange
from vmrag_link.travel.address import Address, for_pushing
from vmrag_link.travel.publish import Moved, Published, Wanted, publish
from vmrag_link.workspace import Workspace


class PushReport(Record, frozen=True):
    """`branches` that moved on the remote, of which git may know several URLs to push to; `kept`: further revisions that it holds now.
    `uncommitted`: documents were left out.
    """

    remote: str
    branches: tuple[Moved, ...]
    kept: tuple[str, ...]
    uncommitted: bool


def push(
    ws: Workspace, remote: str | None = None, *, branches: Sequence[str] = (), every: bool = False, force: bool = False
) -> PushReport:
    """Push HEAD's KB branch (or those that are named, or every one), and all that the history of HEAD pins.

    `force`: a branch of the remote that holds more is moved all the same; what it held stays reachable there. Raises `BranchMissing`,
    `RemoteDiverged`, `RemoteRejected`, and as `ops.fetch.fetch`.
    """
    recover(ws)
    own = ws.kb_branch()
    heads = _heads(ws, branches, every=every)
    wanted = Wanted(heads, _pinned(ws), force=heads if force else ())
    places = for_pushing(ws.places, destinations.asked(ws, remote)[0])
    done = [published(ws, each, wanted) for each in places]
    moved = dict.fromkeys(move for each in done for move in each.branches)
    return PushReport(
        " and ".join(each.text for each in places),
        tuple(each for each in moved if not each.branch.startswith(RESERVED_PREFIX)),
        tuple(dict.fromkeys(revision for each in done for revision in each.kept)),
        uncommitted=bool(own and own.dirty),
    )


def published(ws: Workspace, address: Address, wanted: Wanted) -> Published:
    with (
        ws.progress.task("pushing", total=1) as task,
        exchange.opened(ws.places, ws.engine, address, timeout=ws.lock_timeout) as peer,
    ):
        done = publish(ws.engine, address.key, peer, wanted)
        task.advance(1)
        return done


def _heads(ws: Workspace, names: Sequence[str], *, every: bool) -> dict[str, str]:
    there = {each.name: each.head for each in ws.engine.branches() if not each.name.startswith(RESERVED_PREFIX)}
    if every:
        return there
    for name in names:
        if name not in there:
            raise BranchMissing(f"The knowledge base has no branch {name!r}.", hint="vmrag branch", branch=name)
    own = ws.kb_branch()
    return {name: there[name] for name in (names or ([own.name] if own else []))}


def _pinned(ws: Workspace) -> list[str]:
    """What the present pin names and what the history of HEAD does, as far as it is here; newest first."""
    target = ws.target()
    present = [target.revision] if target.state == "pinned" else []
    found = (pin.dolt_commit for pin, _ in history_pins.of_head(ws.places))
    return [each for each in dict.fromkeys([*present, *found]) if ws.engine.has_revision(each)]
