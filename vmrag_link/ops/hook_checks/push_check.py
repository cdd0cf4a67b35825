"""The work of `pre-push`: the knowledge that the pushed commits pin goes where they go.

If it cannot, the push is stopped.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from vmrag_link import pin as pins
from vmrag_link.engines import migrated
from vmrag_link.engines.migrated import try_read_pin
from vmrag_link.errors import (
    LockError,
    PinMalformed,
    PinRevisionMissing,
    RemoteError,
    RemoteInvalid,
    RemoteNotTrusted,
    RemoteUnreachable,
    quoted,
)
from vmrag_link.git import history, plumbing, remotes, transfer
from vmrag_link.git.history import PushedPins
from vmrag_link.git.refs import BRANCHES
from vmrag_link.merging import revisions
from vmrag_link.models import Record
from vmrag_link.ops.hook_checks.commit_check import CommitFinding
from vmrag_link.ops.push import publish_to
from vmrag_link.paths import PIN_NAME, Places
from vmrag_link.pin import Pin
from vmrag_link.pin_values import parse_git_ref
from vmrag_link.transport import address, connection
from vmrag_link.transport.address import Address
from vmrag_link.transport.git_transport import read_last_commit
from vmrag_link.transport.publish import Published, PublishRequest
from vmrag_link.workspace import Workspace, reasons
from vmrag_link.workspace.pins import history_pins
from vmrag_link.workspace.remotes import destinations


class PushedRef(Record, frozen=True):
    """One ref of a push: commits by their full hashes.

    `tip` None: it is deleted; `before` None: it is not there yet.
    """

    local: str
    tip: str | None
    name: str
    before: str | None


class Push(Record, frozen=True):
    """What git tells its hook.

    `remote` is a name or a URL; None: nobody pushes, somebody only wants to know.

    `mirror`: the command line says `--mirror`, which our shim has looked up.
    """

    refs: tuple[PushedRef, ...]
    remote: str | None = None
    url: str = ""
    mirror: bool = False


class PushCheckReport(Record, frozen=True):
    """`sent`: what went to which remote."""

    findings: tuple[CommitFinding, ...]
    sent: tuple[tuple[str, Published], ...] = ()


def check_push(ws: Workspace, push: Push) -> PushCheckReport:
    """Check each pin that the commits introduce, and push the knowledge that they name.

    No network is asked if the remote has these commits already, or none of them pins anything new.
    Only the last pin of a pushed branch can stop a push by its text: old mistakes cannot be mended
    any more.

    Raises, of new pins, why there is no knowledge base to look into, and what opening it raises.
    """
    pushed = history.read_pushed_pins(
        ws.places, _tips(push), [ref.before for ref in push.refs if ref.before and ref.tip]
    )
    if not ws.is_initialized:
        if pushed.new:
            raise reasons.explain_uninitialized(ws)
        return PushCheckReport(())
    last = set(pushed.by_tip.values())
    flaws = [found for data, commits in pushed.new.items() if (found := _flaw(ws, data, commits[0], last))]
    flaws += _deletions(ws, push)
    if push.remote is None or any(flaw.blocks for flaw in flaws):
        return PushCheckReport(tuple(flaws))
    sent, ends = [], list(_ends(ws, push, pushed.by_tip))
    for where, publish_request in _publish_requests(ws, ends, _coming(ws, push, pushed)):
        try:
            ref = destinations.find_own_ref(ws, where)
            if ref and ws.engine.shared:
                continue  # whoever works on the server has it
            address = _own(ws, push, ref) if ref else destinations.list_trusted_addresses(ws, where, ask=True)[0]
            if not _remembered(ws, address, publish_request):
                sent.append((address.text, publish_to(ws, address, publish_request)))
        except (RemoteError, LockError) as error:
            flaws.append(_unsent(ws, error, last=any(end.pin.dolt_remote == where for end in ends)))
    return PushCheckReport(tuple(flaws), tuple(sent))


def list_new_pins(places: Places, push: Push) -> dict[bytes, list[str]]:
    """The pins of commits that no remote-tracking branch reaches, and the commits of each."""
    return history.list_new_pins(places, _tips(push))


def _tips(push: Push) -> list[str]:
    return [ref.tip for ref in push.refs if ref.tip]


def _flaw(ws: Workspace, data: bytes, commit: str, last: Collection[bytes]) -> CommitFinding | None:
    """`last`: the pins of the pushed branches, which alone may block, and may accept a loss."""
    blocks = data in last
    try:
        revision = migrated.read_pin(ws.places.kb, data, source=f"{commit[:12]}:{PIN_NAME}").dolt_commit
    except PinMalformed as error:
        return CommitFinding("PIN_MALFORMED", error.message, error.hint, blocks)
    ends = (pin.dolt_commit for each in last if (pin := try_read_pin(ws.places.kb, each)))
    if ws.engine.has_revision(revision) or _is_lost(ws, data, revision, list(ends)):
        return None
    message = f"Commit {commit[:12]} pins revision {revision[:12]}, which is not in this knowledge base."
    return CommitFinding(
        "PIN_REVISION_MISSING", message, "vmrag fetch (or push all the same: git push --no-verify)", blocks
    )


def _is_lost(ws: Workspace, data: bytes, revision: str, ends: Sequence[str]) -> bool:
    """Return True if a pushed branch accepts the loss of a revision, and no remote has it.

    The record may be untrusted (see `lazy_fetch.is_given_up`). A revision that comes from a
    remote is no longer lost, and is pushed.
    """
    pin = try_read_pin(ws.places.kb, data)
    if pin is None or not any(revisions.accepts_loss(ws.engine, end, revision) for end in ends):
        return False
    from vmrag_link.workspace.follow import lazy_fetch  # rarely needed, and a push waits for imports

    try:
        lazy_fetch.require_revision(ws, pin, "A pushed commit")
    except PinRevisionMissing as missing:
        with contextlib.suppress(PinRevisionMissing):
            return lazy_fetch.is_given_up(ws, missing, ends)
        return False
    return True


def _deletions(ws: Workspace, push: Push) -> list[CommitFinding]:
    """Refuse to delete the other side's knowledge base or to move it back.

    A mirror of a clone without it would do so silently.
    """
    data = destinations.find_code_ref(ws)
    told = [ref for ref in push.refs if ref.name == data]
    lost = any(ref.before and not _contains(ws, ref.tip, ref.before) for ref in told)
    if not lost and (told or not _mirrors(ws, push) or not _holds(ws, push)):
        return []
    where = quoted(remotes.redact_url(push.remote or "origin"))
    told_to = remotes.is_mirror(ws.places, push.remote or "")
    ordinary = f"git config --unset remote.{where}.mirror; " if told_to else ""
    return [
        CommitFinding(
            "KNOWLEDGE_DELETED",
            f"This push would take knowledge away from {remotes.redact_url(push.remote or '')}: it deletes {data}, or moves it back.",
            f"{ordinary}git push {where} --all && git push {where} --tags",
        )
    ]


def _mirrors(ws: Workspace, push: Push) -> bool:
    """Whether this is `git push --mirror`, which alone pushes tracking refs."""
    told_to = push.mirror or remotes.is_mirror(ws.places, push.remote or "")
    return told_to or any(ref.name.startswith("refs/remotes/") for ref in push.refs)


def _holds(ws: Workspace, push: Push) -> bool:
    """Whether the other side has a knowledge base that the clone itself does not carry."""
    ref = destinations.find_code_ref(ws)
    peer = _own(ws, push, ref).peer
    try:
        there = transfer.read_remote_ref(ws.places, peer, ref) if peer else None
    except RemoteError:
        return False
    return there is not None and not _contains(ws, transfer.read_tip(ws.places, ref), there)


def _contains(ws: Workspace, commit: str | None, part: str) -> bool:
    return commit is not None and bool(transfer.contains_commit(ws.places, commit, part))


# -- what has to be where


class _End(NamedTuple):
    """A branch that is pushed to, and the pin that it ends with, whose revision is here. `follows`:
    whether the tip descends from what was there; None where nothing was, or it is not known here.
    """

    ref: PushedRef
    tip: str
    pin: Pin
    follows: bool | None


def _ends(ws: Workspace, push: Push, at: Mapping[str, bytes]) -> Iterator[_End]:
    """`at`: the pins of the tips, as far as they have one that can be read."""
    for ref in push.refs:
        if ref.tip and ref.name.startswith(BRANCHES):
            data = at.get(ref.tip) or plumbing.read_blob(ws.places, f"{ref.tip}:{PIN_NAME}", limit=pins.MAX_BYTES)
            pin = try_read_pin(ws.places.kb, data)
            if pin and ws.engine.has_revision(pin.dolt_commit):
                follows = transfer.contains_commit(ws.places, ref.tip, ref.before) if ref.before else None
                yield _End(ref, ref.tip, pin, follows)


def _publish_requests(
    ws: Workspace, ends: Sequence[_End], coming: Iterable[bytes]
) -> Iterator[tuple[str, PublishRequest]]:
    """The revisions that each `dolt_remote` needs."""
    # A KB branch whose code branch goes back does so, too, and needs nothing new for that. What
    # this clone has never seen git will refuse to take away, unless it is forced.
    back = [end for end in ends if end.follows is False]
    found = [
        pin for data in coming if (pin := try_read_pin(ws.places.kb, data)) and ws.engine.has_revision(pin.dolt_commit)
    ]
    found = [_moved(pin, [end.pin.dolt_remote for end in ends]) for pin in found]
    for where in dict.fromkeys(pin.dolt_remote for pin in (*found, *(each.pin for each in back))):
        moves = {name: end for end in ends if end.pin.dolt_remote == where and (name := _kb_branch(ws, end.ref))}
        wanted = PublishRequest(
            {name: move.pin.dolt_commit for name, move in moves.items()},
            [pin.dolt_commit for pin in found if pin.dolt_remote == where],
            force=frozenset(name for name, move in moves.items() if move in back),
            superseded=functools.partial(_ever_pinned, ws, {name: move.tip for name, move in moves.items()}),
            lenient=True,
        )
        yield where, wanted


def _moved(pin: Pin, last: Sequence[str]) -> Pin:
    """A pin, with the place in the code's remote that the pushed branches end with in place of one
    that they have left, which the host may refuse.
    """
    own = [each for each in last if parse_git_ref(each)]
    stays = pin.dolt_remote in last or not parse_git_ref(pin.dolt_remote) or not own
    return pin if stays else msgspec.structs.replace(pin, dolt_remote=own[0])


def _coming(ws: Workspace, push: Push, pushed: PushedPins) -> Iterable[bytes]:
    """The pins that come to the other side with this push.

    One that was never asked may have got its code, with all pins, from a host that copied it: who
    clones only that needs all of them.
    """
    own = _own(ws, push, destinations.find_code_ref(ws))
    if not pushed.incoming or own.peer is None or read_last_commit(ws.places, own.key):
        return pushed.incoming
    with contextlib.suppress(RemoteError):  # who cannot be asked cannot be pushed to: that is said then
        return pushed.list_reachable(ws.places, [*_tips(push), *transfer.list_remote_branches(ws.places, own.peer)])
    return pushed.incoming


def _remembered(ws: Workspace, address: Address, wanted: PublishRequest) -> bool:
    """Whether the remote had all of it when it was last asked."""
    heads = connection.read_remembered_heads(ws.places, ws.engine, address, timeout=ws.lock_timeout)
    stands = all(heads.get(name) == head for name, head in wanted.branches.items())
    return bool(heads) and stands and not ws.engine.find_unreachable(wanted.revisions, heads=heads.values())


def _ever_pinned(ws: Workspace, tips: Mapping[str, str], name: str) -> list[str]:
    return [pin.dolt_commit for pin, _ in history_pins.pins_reached(ws.places, tips[name])]


def _kb_branch(ws: Workspace, ref: PushedRef) -> str | None:
    """The KB branch of the code branch that is pushed; None where it has none.

    What is pushed need not be called a branch. `HEAD` is the one that is checked out; a commit, say
    `HEAD~1`, counts as the branch that it is pushed to.
    """
    at = plumbing.read_head(ws.places)
    if ref.local in ("HEAD", "@") and at.branch and at.commit == ref.tip:
        return plumbing.find_kb_branch(ws.places, at.branch)
    name = ref.local if ref.local.startswith(BRANCHES) else ref.name
    return plumbing.find_kb_branch(ws.places, name.removeprefix(BRANCHES))


def _own(ws: Workspace, push: Push, ref: str) -> Address:
    return address.pushed_address(ws.places, push.remote or "", push.url, ref=ref, ask=True)


def _unsent(ws: Workspace, error: RemoteError | LockError, *, last: bool) -> CommitFinding:
    """`last`: a pushed branch ends with a pin that names this remote."""
    unreachable = isinstance(error, RemoteUnreachable | LockError)
    unwanted = isinstance(error, RemoteNotTrusted | RemoteInvalid)
    message = f"The knowledge that these commits pin was not pushed: {error.message}"
    hint = f"{error.hint.rstrip('.')}; or push the code alone: " if error.hint else "To push the code alone: "
    blocks = last if unwanted else not unreachable or ws.config.hooks.on_unreachable == "block"
    return CommitFinding("KNOWLEDGE_NOT_PUSHED", message, f"{hint}git push --no-verify", blocks)
