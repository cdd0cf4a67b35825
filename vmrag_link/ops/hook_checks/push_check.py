"""Check a push and push the knowledge that its commits pin, for `pre-push`.

If the knowledge cannot be pushed, the push is stopped.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from vmrag_link import hints
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
    """A ref of a push, with the full hashes of its commits."""

    local: str
    tip: str | None
    """None if the ref is deleted."""
    name: str
    before: str | None
    """None if the remote does not have the ref."""


class Push(Record, frozen=True):
    """A push, as git describes it to its hook."""

    refs: tuple[PushedRef, ...]
    remote: str | None = None
    """A name or a URL. None if nothing is pushed and the caller only wants the findings."""
    url: str = ""
    mirror: bool = False
    """True if the command line contains `--mirror`, which the hook's shim looked up."""


class PushCheckReport(Record, frozen=True):
    """The result of `check_push`."""

    findings: tuple[CommitFinding, ...]
    sent: tuple[tuple[str, Published], ...] = ()
    """The names of remotes and what was pushed to them."""


def check_push(ws: Workspace, push: Push) -> PushCheckReport:
    """Check each pin that the commits introduce, and push the knowledge that they name.

    The network is not used if the remote already has these commits, or if none of them pins
    anything new. Only the last pin of a pushed branch can stop a push by its text, because older
    mistakes can no longer be fixed.

    If there are new pins, this raises why there is no knowledge base, and the errors of opening it.
    """
    pushed = history.read_pushed_pins(
        ws.places, _list_tips(push), [ref.before for ref in push.refs if ref.before and ref.tip]
    )
    if not ws.is_initialized:
        if pushed.new:
            raise reasons.explain_uninitialized(ws)
        return PushCheckReport(())
    last = set(pushed.by_tip.values())
    flaws = [flaw for data, commits in pushed.new.items() if (flaw := _check_new_pin(ws, data, commits[0], last))]
    flaws += _check_deletions(ws, push)
    if push.remote is None or any(flaw.blocks for flaw in flaws):
        return PushCheckReport(tuple(flaws))
    sent, ends = [], list(_list_ends(ws, push, pushed.by_tip))
    for remote, publish_request in _build_requests(ws, ends, _list_coming_pins(ws, push, pushed)):
        try:
            ref = destinations.find_own_ref(ws, remote)
            if ref and ws.engine.shared:
                continue  # everyone who uses the server has it
            address = (
                _find_own_address(ws, push, ref)
                if ref
                else destinations.list_trusted_addresses(ws, remote, ask=True)[0]
            )
            if not _is_known_pushed(ws, address, publish_request):
                sent.append((address.text, publish_to(ws, address, publish_request)))
        except (RemoteError, LockError) as error:
            flaws.append(_build_push_finding(ws, error, last=any(end.pin.dolt_remote == remote for end in ends)))
    return PushCheckReport(tuple(flaws), tuple(sent))


def list_new_pins(places: Places, push: Push) -> dict[bytes, list[str]]:
    """Return the pins of commits that no remote-tracking branch contains, with their commits."""
    return history.list_new_pins(places, _list_tips(push))


def _list_tips(push: Push) -> list[str]:
    return [ref.tip for ref in push.refs if ref.tip]


def _check_new_pin(ws: Workspace, data: bytes, commit: str, last: Collection[bytes]) -> CommitFinding | None:
    """Check a new pin. `last` contains the pins of the pushed branches.

    Only these may block the push, and only they may accept a loss.
    """
    blocks = data in last
    try:
        revision = migrated.read_pin(ws.places.kb, data, source=f"{commit[:12]}:{PIN_NAME}").dolt_commit
    except PinMalformed as error:
        return CommitFinding("PIN_MALFORMED", error.message, error.hint, blocks)
    ends = (pin.dolt_commit for last_data in last if (pin := try_read_pin(ws.places.kb, last_data)))
    if ws.engine.has_revision(revision) or _is_lost(ws, data, revision, list(ends)):
        return None
    message = f"commit {commit[:12]} pins the revision {revision[:12]}, which this knowledge base does not have."
    return CommitFinding(
        "PIN_REVISION_MISSING",
        message,
        "run 'vmrag fetch' to fetch the revision, or 'git push --no-verify' to push anyway",
        blocks,
    )


def _is_lost(ws: Workspace, data: bytes, revision: str, ends: Sequence[str]) -> bool:
    """Return True if a pushed branch accepts the loss of a revision, and no remote has it.

    The record may be untrusted (see `lazy_fetch.is_given_up`). A revision that comes from a remote
    is no longer lost, and is pushed.
    """
    pin = try_read_pin(ws.places.kb, data)
    if pin is None or not any(revisions.accepts_loss(ws.engine, end, revision) for end in ends):
        return False
    from vmrag_link.workspace.follow import lazy_fetch  # rarely needed, and a push waits for imports

    try:
        lazy_fetch.require_revision(ws, pin, "a pushed commit")
    except PinRevisionMissing as missing:
        with contextlib.suppress(PinRevisionMissing):
            return lazy_fetch.is_given_up(ws, missing, ends)
        return False
    return True


def _check_deletions(ws: Workspace, push: Push) -> list[CommitFinding]:
    """Refuse to delete the remote's knowledge base or to move it back.

    A mirror of a clone without a knowledge base would delete it silently.
    """
    data = destinations.find_code_ref(ws)
    data_refs = [ref for ref in push.refs if ref.name == data]
    lost = any(ref.before and not _contains_commit(ws, ref.tip, ref.before) for ref in data_refs)
    if not lost and (data_refs or not _is_mirror(ws, push) or not _holds_kb(ws, push)):
        return []
    remote = quoted(remotes.redact_url(push.remote or "origin"))
    is_configured = remotes.is_mirror(ws.places, push.remote or "")
    unset = f"git config --unset remote.{remote}.mirror && " if is_configured else ""
    return [
        CommitFinding(
            "KNOWLEDGE_DELETED",
            f"this push would delete documents from {remotes.redact_url(push.remote or '')}: it deletes {data}, or moves it back.",
            hints.suggest_command(
                f"{unset}git push {remote} --all && git push {remote} --tags", "push branches and tags only"
            ),
        )
    ]


def _is_mirror(ws: Workspace, push: Push) -> bool:
    """Return whether this is `git push --mirror`, the only push of tracking refs."""
    is_configured = push.mirror or remotes.is_mirror(ws.places, push.remote or "")
    return is_configured or any(ref.name.startswith("refs/remotes/") for ref in push.refs)


def _holds_kb(ws: Workspace, push: Push) -> bool:
    """Return whether the remote has a knowledge base that this clone does not contain."""
    ref = destinations.find_code_ref(ws)
    peer = _find_own_address(ws, push, ref).peer
    try:
        remote_tip = transfer.read_remote_ref(ws.places, peer, ref) if peer else None
    except RemoteError:
        return False
    return remote_tip is not None and not _contains_commit(ws, transfer.read_tip(ws.places, ref), remote_tip)


def _contains_commit(ws: Workspace, commit: str | None, part: str) -> bool:
    return commit is not None and bool(transfer.contains_commit(ws.places, commit, part))


# -- which remote needs what


class _End(NamedTuple):
    """A pushed branch and its last pin, whose revision the knowledge base has."""

    ref: PushedRef
    tip: str
    pin: Pin
    follows: bool | None
    """True if the tip descends from the former one. None if there was none, or if this clone does
    not have it.
    """


def _list_ends(ws: Workspace, push: Push, at: Mapping[str, bytes]) -> Iterator[_End]:
    """Yield the ends of a push. `at` contains the readable pins of the tips."""
    for ref in push.refs:
        if ref.tip and ref.name.startswith(BRANCHES):
            data = at.get(ref.tip) or plumbing.read_blob(ws.places, f"{ref.tip}:{PIN_NAME}", limit=pins.MAX_BYTES)
            pin = try_read_pin(ws.places.kb, data)
            if pin and ws.engine.has_revision(pin.dolt_commit):
                follows = transfer.contains_commit(ws.places, ref.tip, ref.before) if ref.before else None
                yield _End(ref, ref.tip, pin, follows)


def _build_requests(
    ws: Workspace, ends: Sequence[_End], coming: Iterable[bytes]
) -> Iterator[tuple[str, PublishRequest]]:
    """Yield each `dolt_remote` with the revisions that it needs."""
    # If a code branch is moved back, its KB branch is moved back as well, which needs no new
    # revision. git refuses to remove commits that this clone has never seen, unless it is forced.
    moved_back = [end for end in ends if end.follows is False]
    pins = [
        pin for data in coming if (pin := try_read_pin(ws.places.kb, data)) and ws.engine.has_revision(pin.dolt_commit)
    ]
    pins = [_replace_remote(pin, [end.pin.dolt_remote for end in ends]) for pin in pins]
    for remote in dict.fromkeys(pin.dolt_remote for pin in (*pins, *(end.pin for end in moved_back))):
        moves = {name: end for end in ends if end.pin.dolt_remote == remote and (name := _find_kb_branch(ws, end.ref))}
        request = PublishRequest(
            {name: move.pin.dolt_commit for name, move in moves.items()},
            [pin.dolt_commit for pin in pins if pin.dolt_remote == remote],
            force=frozenset(name for name, move in moves.items() if move in moved_back),
            superseded=functools.partial(_list_pinned, ws, {name: move.tip for name, move in moves.items()}),
            lenient=True,
        )
        yield remote, request


def _replace_remote(pin: Pin, last: Sequence[str]) -> Pin:
    """Return a pin that names a place in the code's remote at which the pushed branches end.

    It replaces a place that they have left, which the host may refuse.
    """
    own_remotes = [remote for remote in last if parse_git_ref(remote)]
    is_current = pin.dolt_remote in last or not parse_git_ref(pin.dolt_remote) or not own_remotes
    return pin if is_current else msgspec.structs.replace(pin, dolt_remote=own_remotes[0])


def _list_coming_pins(ws: Workspace, push: Push, pushed: PushedPins) -> Iterable[bytes]:
    """Return the pins that the push brings to the remote.

    A remote that this clone never contacted may have its code, with all pins, from a host that
    copied it. A clone of that remote needs all of them.
    """
    address = _find_own_address(ws, push, destinations.find_code_ref(ws))
    if not pushed.incoming or address.peer is None or read_last_commit(ws.places, address.key):
        return pushed.incoming
    with contextlib.suppress(RemoteError):  # an unreachable remote cannot be pushed to either, which is reported then
        return pushed.list_reachable(
            ws.places, [*_list_tips(push), *transfer.list_remote_branches(ws.places, address.peer)]
        )
    return pushed.incoming


def _is_known_pushed(ws: Workspace, address: Address, request: PublishRequest) -> bool:
    """Return whether the remote had all of the request when it was last contacted."""
    heads = connection.read_remembered_heads(ws.places, ws.engine, address, timeout=ws.lock_timeout)
    are_equal = all(heads.get(name) == head for name, head in request.branches.items())
    return bool(heads) and are_equal and not ws.engine.find_unreachable(request.revisions, heads=heads.values())


def _list_pinned(ws: Workspace, tips: Mapping[str, str], name: str) -> list[str]:
    return [pin.dolt_commit for pin, _ in history_pins.pins_reached(ws.places, tips[name])]


def _find_kb_branch(ws: Workspace, ref: PushedRef) -> str | None:
    """Return the KB branch of the pushed code branch; None if it has none.

    The pushed name need not be a branch. `HEAD` means the branch that is checked out. A commit,
    such as `HEAD~1`, means the branch that it is pushed to.
    """
    head = plumbing.read_head(ws.places)
    if ref.local in ("HEAD", "@") and head.branch and head.commit == ref.tip:
        return plumbing.find_kb_branch(ws.places, head.branch)
    name = ref.local if ref.local.startswith(BRANCHES) else ref.name
    return plumbing.find_kb_branch(ws.places, name.removeprefix(BRANCHES))


def _find_own_address(ws: Workspace, push: Push, ref: str) -> Address:
    return address.pushed_address(ws.places, push.remote or "", push.url, ref=ref, ask=True)


def _build_push_finding(ws: Workspace, error: RemoteError | LockError, *, last: bool) -> CommitFinding:
    """Build the finding of knowledge that was not pushed. `last`: a pushed branch ends with a pin
    that names this remote.
    """
    is_unreachable = isinstance(error, RemoteUnreachable | LockError)
    is_untrusted = isinstance(error, RemoteNotTrusted | RemoteInvalid)
    message = f"the documents that these commits pin were not pushed: {error.message}"
    hint = hints.join_alternatives(error.hint, hints.suggest_command("git push --no-verify", "push only the code"))
    blocks = last if is_untrusted else not is_unreachable or ws.config.hooks.on_unreachable == "block"
    return CommitFinding("KNOWLEDGE_NOT_PUSHED", message, hint, blocks)
