"""Check a push and push the revisions that its commits pin, for git's hook `pre-push`.

The knowledge base is pushed first, so that no remote gets a pin of a revision that it does not
have. If that fails, the push of the code is stopped.
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
from vmrag_link.git import history, own_keys, plumbing, remotes, transfer
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
    former_tips = [ref.before for ref in push.refs if ref.before and ref.tip]
    pushed = history.read_pushed_pins(ws.places, _list_tips(push), former_tips)
    if not ws.is_initialized:
        if pushed.new:
            raise reasons.explain_uninitialized(ws)
        return PushCheckReport(())
    findings = [*_check_new_pins(ws, pushed), *_check_deletions(ws, push)]
    if push.remote is None or any(finding.blocks for finding in findings):
        return PushCheckReport(tuple(findings))
    sent = []
    ends = list(_list_ends(ws, push, pushed.by_tip))
    for remote, request in _build_requests(ws, ends, _list_coming_pins(ws, push, pushed)):
        try:
            ref = destinations.find_own_ref(ws, remote)
            if ref and ws.engine.shared:
                continue  # everyone who uses the server has it
            address = (
                _find_own_address(ws, push, ref)
                if ref
                else destinations.list_trusted_addresses(ws, remote, ask=True)[0]
            )
            if not _is_known_pushed(ws, address, request):
                sent.append((address.text, publish_to(ws, address, request)))
        except (RemoteError, LockError) as error:
            is_last = any(end.pin.dolt_remote == remote for end in ends)
            findings.append(_build_push_finding(ws, error, last=is_last))
    return PushCheckReport(tuple(findings), tuple(sent))


def list_new_pins(places: Places, push: Push) -> dict[bytes, list[str]]:
    """Return the pins of commits that no remote-tracking branch contains, with their commits."""
    return history.list_new_pins(places, _list_tips(push))


def _list_tips(push: Push) -> list[str]:
    return [ref.tip for ref in push.refs if ref.tip]


def _check_new_pins(ws: Workspace, pushed: PushedPins) -> Iterator[CommitFinding]:
    last_pins = set(pushed.by_tip.values())
    for data, commits in pushed.new.items():
        finding = _check_new_pin(ws, data, commits[0], last_pins)
        if finding:
            yield finding


def _check_new_pin(ws: Workspace, data: bytes, commit: str, last_pins: Collection[bytes]) -> CommitFinding | None:
    """Check a new pin. `last_pins` are those of the tips of the pushed branches.

    Only these may block the push, and only they may accept a loss.
    """
    blocks = data in last_pins
    try:
        revision = migrated.read_pin(ws.places.kb, data, source=f"{commit[:12]}:{PIN_NAME}").dolt_commit
    except PinMalformed as error:
        return CommitFinding("PIN_MALFORMED", error.message, error.hint, blocks)
    if ws.engine.has_revision(revision) or _is_lost(ws, data, revision, last_pins):
        return None
    message = f"commit {commit[:12]} pins the revision {revision[:12]}, which this knowledge base does not have."
    return CommitFinding(
        "PIN_REVISION_MISSING",
        message,
        "run 'vmrag fetch' to fetch the revision, or 'git push --no-verify' to push anyway",
        blocks,
    )


def _is_lost(ws: Workspace, data: bytes, revision: str, last_pins: Iterable[bytes]) -> bool:
    """Return True if a pushed branch accepts the loss of a pinned revision, and no remote has it.

    The record may be untrusted (see `accepted_losses`). A revision that comes from a remote
    is no longer lost, and is pushed.
    """
    pin = try_read_pin(ws.places.kb, data)
    readable_pins = (try_read_pin(ws.places.kb, last_data) for last_data in last_pins)
    ends = [last_pin.dolt_commit for last_pin in readable_pins if last_pin]
    if pin is None or not any(revisions.accepts_loss(ws.engine, end, revision) for end in ends):
        return False
    from vmrag_link.workspace.follow import accepted_losses, lazy_fetch  # rarely needed, and a push waits for imports

    try:
        lazy_fetch.require_revision(ws, pin, "a pushed commit")
    except PinRevisionMissing as missing:
        with contextlib.suppress(PinRevisionMissing):
            return accepted_losses.is_given_up(ws, missing, ends)
        return False
    return True


def _check_deletions(ws: Workspace, push: Push) -> list[CommitFinding]:
    """Refuse to delete the remote's knowledge base or to move it back.

    A mirror of a clone without a knowledge base would delete it silently.
    """
    data_ref = destinations.find_code_ref(ws)
    pushed_refs = [ref for ref in push.refs if ref.name == data_ref]
    loses_commits = any(ref.before and not _contains_commit(ws, ref.tip, ref.before) for ref in pushed_refs)
    deletes_silently = not pushed_refs and _is_mirror(ws, push) and _holds_kb(ws, push)
    if not loses_commits and not deletes_silently:
        return []
    remote = quoted(remotes.redact_url(push.remote or "origin"))
    is_configured = remotes.is_mirror(ws.places, push.remote or "")
    unset = f"git config --unset remote.{remote}.mirror && " if is_configured else ""
    return [
        CommitFinding(
            "KNOWLEDGE_DELETED",
            f"this push would delete documents from {remotes.redact_url(push.remote or '')}: it deletes {data_ref}, or moves it back.",
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


class _End(NamedTuple):
    """A pushed branch and its last pin, whose revision the knowledge base has."""

    ref: PushedRef
    tip: str
    pin: Pin
    follows: bool | None
    """True if the tip descends from the former one. None if there was none, or if this clone does
    not have it.
    """


def _list_ends(ws: Workspace, push: Push, pins_by_tip: Mapping[str, bytes]) -> Iterator[_End]:
    """Yield the ends of a push. `pins_by_tip` contains the readable pins of the tips."""
    for ref in push.refs:
        if ref.tip and ref.name.startswith(BRANCHES):
            data = pins_by_tip.get(ref.tip) or plumbing.read_blob(
                ws.places, f"{ref.tip}:{PIN_NAME}", limit=pins.MAX_BYTES
            )
            pin = try_read_pin(ws.places.kb, data)
            if pin and ws.engine.has_revision(pin.dolt_commit):
                follows = transfer.contains_commit(ws.places, ref.tip, ref.before) if ref.before else None
                yield _End(ref, ref.tip, pin, follows)


def _build_requests(
    ws: Workspace, ends: Sequence[_End], coming: Iterable[bytes]
) -> Iterator[tuple[str, PublishRequest]]:
    """Yield each `dolt_remote` with the branches and revisions that it needs.

    `coming` are the pins that the push brings to the remote.
    """
    # If a code branch is moved back, its KB branch is moved back as well, which needs no new
    # revision. git refuses to remove commits that this clone has never seen, unless it is forced.
    moved_back = [end for end in ends if end.follows is False]
    last_remotes = [end.pin.dolt_remote for end in ends]
    pins = []
    for data in coming:
        pin = try_read_pin(ws.places.kb, data)
        if pin and ws.engine.has_revision(pin.dolt_commit):
            pins.append(_replace_remote(pin, last_remotes))
    for remote in dict.fromkeys(pin.dolt_remote for pin in (*pins, *(end.pin for end in moved_back))):
        ends_by_branch = {}
        for end in ends:
            name = _find_kb_branch(ws, end.ref) if end.pin.dolt_remote == remote else None
            if name:
                ends_by_branch[name] = end
        request = PublishRequest(
            {name: end.pin.dolt_commit for name, end in ends_by_branch.items()},
            [pin.dolt_commit for pin in pins if pin.dolt_remote == remote],
            force=frozenset(name for name, end in ends_by_branch.items() if end in moved_back),
            superseded=functools.partial(_list_pinned, ws, {name: end.tip for name, end in ends_by_branch.items()}),
            lenient=True,
        )
        yield remote, request


def _replace_remote(pin: Pin, last_remotes: Sequence[str]) -> Pin:
    """Replace a ref of the code's remote that the pushed branches no longer name by one that they
    name.

    The host may refuse the former ref.
    """
    own_remotes = [remote for remote in last_remotes if parse_git_ref(remote)]
    is_current = pin.dolt_remote in last_remotes or not parse_git_ref(pin.dolt_remote) or not own_remotes
    return pin if is_current else msgspec.structs.replace(pin, dolt_remote=own_remotes[0])


def _list_coming_pins(ws: Workspace, push: Push, pushed: PushedPins) -> Iterable[bytes]:
    """Return the pins that the push brings to the remote.

    A remote that this clone never contacted may have its code, with all pins, from a host that
    copied it. A clone of that remote needs all of them.
    """
    address = _find_own_address(ws, push, destinations.find_code_ref(ws))
    if not pushed.incoming or address.peer is None or read_last_commit(ws.places, address.key):
        return pushed.incoming
    try:
        remote_branches = transfer.list_remote_branches(ws.places, address.peer)
        return pushed.list_reachable(ws.places, [*_list_tips(push), *remote_branches])
    except RemoteError:  # the push to this remote also fails, and reports it
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
        return own_keys.find_kb_branch(ws.places, head.branch)
    name = ref.local if ref.local.startswith(BRANCHES) else ref.name
    return own_keys.find_kb_branch(ws.places, name.removeprefix(BRANCHES))


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
