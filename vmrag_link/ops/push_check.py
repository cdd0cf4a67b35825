"""What `pre-push` does before git pushes: the knowledge that the pushed commits pin goes where they go, or the push is stopped."""

from __future__ import annotations

from collections.abc import Iterator

from vmrag_link import pin as pins
from vmrag_link.errors import Lock, PinMalformed, Remote, RemoteInvalid, RemoteNotTrusted, RemoteUnreachable, quoted
from vmrag_link.git import history, plumbing, remotes
from vmrag_link.git.heads import BRANCHES
from vmrag_link.models import Record
from vmrag_link.ops import destinations
from vmrag_link.ops.commit_check import Finding
from vmrag_link.ops.pinning import parsed
from vmrag_link.ops.push import published
from vmrag_link.paths import PIN_NAME
from vmrag_link.pin import Pin
from vmrag_link.travel import address
from vmrag_link.travel.address import OWN, Address
from vmrag_link.travel.publish import Published, Wanted
from vmrag_link.travel.through import DATA, last_seen
from vmrag_link.workspace import Workspace


class Ref(Record, frozen=True):
    """One ref of a push: commits by their full hashes. `tip` None: it is deleted; `before` None: it is not there yet."""

    local: str
    tip: str | None
    name: str
    before: str | None


class Push(Record, frozen=True):
    """What git tells its hook. `remote` is a name or a URL; None: nobody pushes, somebody only wants to know."""

    refs: tuple[Ref, ...]
    remote: str | None = None
    url: str = ""


class PushReport(Record, frozen=True):
    """`sent`: what went to which remote."""

    findings: tuple[Finding, ...]
    sent: tuple[tuple[str, Published], ...] = ()


def check(ws: Workspace, push: Push) -> PushReport:
    """Look at every pin that the commits introduce, and let the knowledge base's remote reach what they name.

    No network is asked when the remote has these commits already, or none of them pins anything new. Only the pins that the pushed
    branches end with can stop a push by what they are: old mistakes cannot be mended any more.
    """
    tips = [ref.tip for ref in push.refs if ref.tip]
    new = history.new_pins(ws.places, tips)
    last = history.pins_at(ws.places, tips) if new else set()
    flaws = [
        found for data, commits in new.items() if (found := _flaw(ws, data, commits[0], blocks=data in last))
    ] + _deletions(ws, push)
    if push.remote is None or any(each.blocks for each in flaws):
        return PushReport(tuple(flaws))
    sent = []
    ends = {pin.dolt_remote for data in last if (pin := parsed(data))}
    for where, wanted in _wanted(ws, push):
        try:
            address = _address(ws, where, push)
            done = published(ws, address, wanted)
        except (Remote, Lock) as error:
            flaws.append(_unsent(ws, error, last=where in ends))
        else:
            sent.append((address.text, done))
    return PushReport(tuple(flaws), tuple(sent))


def _flaw(ws: Workspace, data: bytes, commit: str, *, blocks: bool) -> Finding | None:
    try:
        revision = pins.parse(data, source=f"{commit[:12]}:{PIN_NAME}").dolt_commit
    except PinMalformed as error:
        return Finding("PIN_MALFORMED", error.message, error.hint, blocks)
    if ws.engine.has_revision(revision):
        return None
    message = f"Commit {commit[:12]} pins revision {revision[:12]}, which is not in this knowledge base."
    return Finding("PIN_REVISION_MISSING", message, "vmrag fetch (or push all the same: git push --no-verify)", blocks)


def _deletions(ws: Workspace, push: Push) -> list[Finding]:
    """`git push --mirror` from an ordinary clone takes every ref away that the clone does not have, and tells no hook of these.

    It is known by the tracking refs that it pushes, which are nobody else's.
    """
    lost = any(ref.name == DATA and ref.tip is None for ref in push.refs)
    mirrored = any(ref.name.startswith("refs/remotes/") for ref in push.refs)
    if not lost and (not mirrored or _carried(ws, push)):
        return []
    where = push.remote or "origin"
    return [
        Finding(
            "KNOWLEDGE_DELETED",
            f"This push would take the knowledge base away from {remotes.shown(where)}: it deletes {DATA}.",
            f"git fetch {quoted(where)} +{DATA}:{DATA} && git push --mirror {quoted(where)} (carries it along)",
        )
    ]


def _carried(ws: Workspace, push: Push) -> bool:
    """Whether the clone itself has all that the other side is known to hold."""
    there, carried = last_seen(ws.places, _own(ws, push).key), remotes.tip(ws.places, DATA)
    return there is None or (carried is not None and remotes.contains(ws.places, carried, there))


def _wanted(ws: Workspace, push: Push) -> Iterator[tuple[str, Wanted]]:
    """What has to be where, by the pins' `dolt_remote`."""
    marks = [mark for ref in push.refs if ref.tip for mark in (ref.tip, f"^{ref.before}" if ref.before else "") if mark]
    name = push.remote or ""
    # What was fetched from a remote with several URLs need not be where this push goes.
    tracked = name in remotes.names(ws.places) and remotes.push_urls(ws.places, name) == [remotes.url(ws.places, name)]
    new = history.new_pins(ws.places, marks, remote=name) if tracked else history.reachable_pins(ws.places, marks)
    if new and tracked and not last_seen(ws.places, _own(ws, push).key):
        # A fork has got its code with all pins, and its knowledge from nobody: who clones only the fork needs all of that.
        new |= history.reachable_pins(ws.places, remotes.tracked(ws.places, name))
    found = [pin for data in new if (pin := parsed(data)) and ws.engine.has_revision(pin.dolt_commit)]
    tips = list(_tips(ws, push))
    back = [
        pin for ref, pin in tips if _is_forced(ws, ref)
    ]  # its KB branch goes back, too, and needs nothing new for that
    for where in dict.fromkeys(pin.dolt_remote for pin in (*found, *back)):
        branches: dict[str, str] = {}
        forced: set[str] = set()
        for ref, pin in tips:
            branch = plumbing.kb_branch_of(ws.places, ref.local.removeprefix(BRANCHES))
            if branch and pin.dolt_remote == where and ws.engine.has_revision(pin.dolt_commit):
                branches[branch] = pin.dolt_commit
                if _is_forced(ws, ref):
                    forced.add(branch)
        revisions = [pin.dolt_commit for pin in found if pin.dolt_remote == where]
        yield where, Wanted(branches, revisions, force=frozenset(forced), lenient=True)


def _is_forced(ws: Workspace, ref: Ref) -> bool:
    return bool(ref.tip and ref.before) and not remotes.contains(ws.places, ref.tip or "", ref.before or "")


def _tips(ws: Workspace, push: Push) -> Iterator[tuple[Ref, Pin]]:
    """The branches that are pushed, with the pins that they end with."""
    for ref in push.refs:
        if ref.tip and ref.local.startswith(BRANCHES) and ref.name.startswith(BRANCHES):
            pin = parsed(plumbing.blob(ws.places, f"{ref.tip}:{PIN_NAME}", limit=pins.MAX_BYTES))
            if pin:
                yield ref, pin


def _address(ws: Workspace, where: str, push: Push) -> Address:
    return _own(ws, push) if where == OWN else destinations.named(ws, where, ask=True)[0]


def _own(ws: Workspace, push: Push) -> Address:
    return address.of_pushed(ws.places, push.remote or "", push.url, ask=True)


def _unsent(ws: Workspace, error: Remote | Lock, *, last: bool) -> Finding:
    """`last`: a pushed branch ends with a pin that names this remote."""
    unreachable = isinstance(error, RemoteUnreachable | Lock)
    unwanted = isinstance(error, RemoteNotTrusted | RemoteInvalid)
    message = f"The knowledge that these commits pin was not pushed: {error.message}"
    hint = f"{error.hint.rstrip('.')}; or push the code alone: " if error.hint else "To push the code alone: "
    blocks = last if unwanted else not unreachable or ws.config.hooks.on_unreachable == "block"
    return Finding("KNOWLEDGE_NOT_PUSHED", message, f"{hint}git push --no-verify", blocks)
