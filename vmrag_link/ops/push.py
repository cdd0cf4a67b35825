"""`vmrag push`: send what the code pins, and the heads of its KB branches, to a remote.

Digests of what a Chroma server has to serve go with it, so that whoever fetches can check the
server.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

from vmrag_link.engines.base import VECTORS_BRANCH, is_reserved
from vmrag_link.errors import (
    BranchMissing,
    GitReferenceMissing,
    NameInvalid,
    NothingToPush,
    RemoteDiverged,
    VmragError,
    quoted,
)
from vmrag_link.git import plumbing, refs, remotes
from vmrag_link.git.refs import BRANCHES
from vmrag_link.models import KbBranch, Record
from vmrag_link.ops.links import links as linking
from vmrag_link.sync import chroma_sharing
from vmrag_link.sync.target import Target
from vmrag_link.transport import address, connection
from vmrag_link.transport.address import Address
from vmrag_link.transport.connection import Transport
from vmrag_link.transport.publish import BranchMove, Published, PublishRequest, publish
from vmrag_link.workspace import Workspace, reasons
from vmrag_link.workspace.commits import revisions
from vmrag_link.workspace.follow.recovery import recover
from vmrag_link.workspace.pins import history_pins
from vmrag_link.workspace.remotes import destinations, fetch
from vmrag_link.workspace.remotes.fetch import build_branch_missing, fetch_from
from vmrag_link.workspace.remotes.unpushed import UnpushedPin


class PushReport(Record, frozen=True):
    """`branches` that moved on the remote; `kept`: further revisions that it holds now.

    `uncommitted`: documents were left out; `deleted`: branches that are gone there; `links`: how
    many rows of links changed there.
    """

    remote: str
    branches: tuple[BranchMove, ...]
    kept: tuple[str, ...]
    uncommitted: bool
    deleted: tuple[str, ...] = ()
    links: int = 0


def push(
    ws: Workspace, remote: str | None = None, *, branches: Sequence[str] = (), every: bool = False, force: bool = False
) -> PushReport:
    """Push HEAD's KB branch, or those named, and every pin of HEAD's history; or all branches and
    pins.

    A branch of the remote that stands at a former pin of its code is moved; with `force` any branch
    is. What it held stays reachable there. Raises `BranchMissing`, `RemoteDiverged`,
    `RemoteRejected`, and as `ops.remotes.fetch.fetch`; in the end, where no branch was named,
    `PinMalformed` and `PinRevisionMissing` of the present pin, whose knowledge did not go along.
    """
    recover(ws)
    present = ws.resolve_target()
    own = present.kb_branch
    heads = _heads(ws, branches, own, every=every)
    wanted = PublishRequest(
        heads,
        _pins(ws, present, every=every),
        force=heads if force else (),
        replace_map=force,
        superseded=functools.partial(_former_pins, ws),
        links=linking.list_head_links(ws) if ws.config.link.share else (),
    )
    places = destinations.list_push_addresses(ws, remote)
    try:
        done = [publish_to(ws, place, wanted) for place in places]
    except RemoteDiverged as error:
        name = f"{quoted(remote)} " if remote else ""
        name += f"--branch {quoted(error.details['branch'])}"
        raise RemoteDiverged(
            error.message,
            hint=f"To take that in: vmrag pull {name}   (vmrag push {name} … with --force takes it from the branch there, for everybody)",
            **error.details,
        ) from error
    if wanted.links:
        for place in places:  # what others shared came with the push
            fetch.import_links(ws, place)
    if not branches and not every and present.state != "pinned":
        _require_pinned_there(ws)
    return _report(places, done, uncommitted=bool(own and own.dirty))


def _require_pinned_there(ws: Workspace) -> None:
    """Raise why the knowledge of the present pin did not go along: it is not here, and a look at
    the remote brought nothing.
    """
    target = ws.resolve_target()
    if target.state == "malformed" or (target.state == "missing" and not ws.engine.shared):
        raise reasons.explain_unusable(ws, target)


class BranchPushed(Record, frozen=True):
    """`commits` that the remote lacked; `head` of its `branch`, and `ours`, what was pushed as
    that.

    `url` without credentials: where `git push` goes, or the remote itself.
    """

    remote: str
    url: str
    branch: str
    commits: int
    ours: str
    head: str
    uncommitted: bool


def push_branch(
    ws: Workspace, remote: str | None = None, *, branch: str | None = None, force: bool = False
) -> BranchPushed:
    """As `push`, of one KB branch, counted in commits; by default HEAD's.

    Raises `NothingToPush` where the remote had everything, and an error where HEAD has no KB
    branch.
    """
    recover(ws)
    own, target = ws.find_kb_branch(), ws.resolve_target()
    if branch is None and own is None and target.state != "pinned":
        raise reasons.explain_unusable(ws, target)
    place = destinations.list_push_addresses(ws, remote)[0]
    before = ws.engine.remote_heads(place.key)
    report = push(ws, remote, branches=[branch] if branch else (), force=force)
    name = branch or (own.name if own else target.pin.dolt_branch if target.pin else "")
    local = ws.engine.find_branch(branch) if branch else own
    if not report.branches and not report.kept and not report.links:
        raise NothingToPush(
            f"{report.remote} has everything that {name!r} holds already.", hint="vmrag commit", branch=name
        )
    moved = {each.branch: each for each in report.branches}
    sent = [*(each.new for each in moved.values()), *report.kept]
    after = ws.engine.remote_heads(place.key)
    if not before:  # it was never asked
        before = {each: head for each, head in after.items() if each not in moved}
    known = [*before.values(), *(each.old for each in moved.values() if each.old)]
    there = after.get(name)
    head = local.head if local else next(iter(sent), there or "")
    return BranchPushed(
        report.remote,
        _url(ws, place),
        name,
        revisions.count_beyond(ws.engine, sent, known),
        head,
        there or head,
        report.uncommitted,
    )


def _url(ws: Workspace, place: Address) -> str:
    where = place.peer.remote if place.peer else place.url
    names = remotes.list_remotes(ws.places)
    if where in names:
        return remotes.redact_url(remotes.read_push_urls(ws.places, where)[0])
    return remotes.redact_url(where) if place.text in names else place.text


def delete_branches(ws: Workspace, names: Sequence[str], remote: str | None = None) -> PushReport:
    """Delete KB branches of the remote; what they hold stays reachable there. Ours stay.

    Raises `NameInvalid`, `BranchMissing`, `RemoteRejected`, and as `ops.remotes.fetch.fetch`.
    """
    for name in names:
        if is_reserved(name):
            raise NameInvalid(f"{name!r} belongs to vmrag itself; it stays.", hint="vmrag push --help", branch=name)
    places = destinations.list_push_addresses(ws, remote)
    for place in places:
        fetch_from(ws, place)
    there = {name for place in places for name in ws.engine.remote_heads(place.key)}
    for name in names:
        if name not in there:
            raise build_branch_missing(" and ".join(place.text for place in places), name, there)
    return _report(
        places, [publish_to(ws, place, PublishRequest({}, delete=names)) for place in places], uncommitted=False
    )


def _report(places: Sequence[Address], done: Sequence[Published], *, uncommitted: bool) -> PushReport:
    moved = dict.fromkeys(move for each in done for move in each.branches)
    return PushReport(
        " and ".join(place.text for place in places),
        tuple(each for each in moved if not is_reserved(each.branch)),
        tuple(dict.fromkeys(revision for each in done for revision in each.kept)),
        uncommitted=uncommitted,
        deleted=tuple(dict.fromkeys(name for each in done for name in each.deleted)),
        links=len({link.git_commit for each in done for link in each.links}),
    )


def push_unpushed(ws: Workspace, found: Sequence[UnpushedPin]) -> None:
    """Push what `unpushed` found, to where its code went, as the hook would have: KB branches are
    moved forward where they can be. Nobody is asked for a password. Raises as `push`.
    """
    for each in found:
        remote, _, code = each.ref.partition("/")
        name = plumbing.find_kb_branch(ws.places, code)
        reached = _history(ws, plumbing.resolve_commit(ws.places, refs.REMOTES + each.ref))
        wanted = PublishRequest(
            {name: each.revision} if name else {},
            [each.revision, *filter(ws.engine.has_revision, reached)],
            superseded=functools.partial(_former_pins, ws),
            lenient=True,
        )
        own = destinations.find_own_ref(ws, each.place)
        place = (
            address.remote_address(ws.places, remote, ref=own)
            if own
            else destinations.list_trusted_addresses(ws, each.place)[0]
        )
        for one in address.list_push_targets(ws.places, place):
            publish_to(ws, one, wanted)


def publish_to(ws: Workspace, address: Address, wanted: PublishRequest) -> Published:
    with (
        ws.progress.task("pushing", total=1) as task,
        connection.open_transport(ws.places, ws.engine, address, timeout=ws.lock_timeout) as peer,
    ):
        done = publish(ws.engine, address.key, peer, wanted)
        publish_digests(ws, address, peer)
        task.advance(1)
        return done


def publish_revision(ws: Workspace, remote: str, revision: str) -> None:
    """Let the remote that a pin names reach a revision. None of its branches moves."""
    if ws.engine.shared and destinations.find_own_ref(ws, remote):
        return  # whoever works on the server has it
    for each in address.list_push_targets(ws.places, destinations.list_trusted_addresses(ws, remote)[0]):
        publish_to(ws, each, PublishRequest({}, [revision]))


def _heads(ws: Workspace, names: Sequence[str], own: KbBranch | None, *, every: bool) -> dict[str, str]:
    there = {branch.name: branch.head for branch in ws.engine.list_branches() if not is_reserved(branch.name)}
    if every:
        return there
    for name in names:
        if name not in there:
            raise BranchMissing(f"The knowledge base has no branch {name!r}.", hint="vmrag branch", branch=name)
    return {name: there[name] for name in (names or ([own.name] if own else []))}


def _pins(ws: Workspace, target: Target, *, every: bool) -> list[str]:
    """The present pin and those of HEAD's history, or of every ref, as far as they are here; newest
    first.
    """
    present = [target.revision] if target.state == "pinned" else []
    head = plumbing.read_head(ws.places).commit
    history = _history(ws, head) if head else []
    if every:
        history += [pin.dolt_commit for pin, _ in history_pins.read_pins(ws.places, reflogs=False)]
    return [revision for revision in dict.fromkeys([*present, *history]) if ws.engine.has_revision(revision)]


def _former_pins(ws: Workspace, name: str) -> list[str]:
    """All that the code branch of a KB branch ever pinned, here or not."""
    codes = plumbing.read_kb_owners(ws.places)
    try:
        return _history(ws, plumbing.resolve_commit(ws.places, BRANCHES + codes.get(name, "")))
    except GitReferenceMissing:
        return []  # no code branch writes on it


def _history(ws: Workspace, commit: str) -> list[str]:
    """What a commit and its ancestors pin, newest first."""
    return [pin.dolt_commit for pin, _ in history_pins.pins_reached(ws.places, commit)]


def publish_digests(ws: Workspace, address: Address, peer: Transport) -> None:
    """Push the digests of shared vectors, those of the bound index included.

    The knowledge itself has been pushed: what fails here is said, and made up for by the next push.
    """
    if ws.config.chroma.mode == "embedded":
        return
    try:
        _vouch_for_bound(ws)
        from vmrag_link.sync import shared_vectors

        head = shared_vectors.build_head(ws.engine, peer.read_heads().get(VECTORS_BRANCH))
        if head:
            publish(ws.engine, address.key, peer, PublishRequest({VECTORS_BRANCH: head}, lenient=True))
    except VmragError as error:
        ws.progress.note(f"Nobody vouches for the vectors on the Chroma server yet: {error.message}")


def _vouch_for_bound(ws: Workspace) -> None:
    """The process that shares the index may not have come to it yet."""
    bound = ws.binding
    if bound is None or ws.views.find_problem(bound.revision):
        return
    with chroma_sharing.read_contents(ws.chroma.sharing, bound.revision, ws.chroma.publisher) as collections:
        chroma_sharing.vouch_vectors(collections, ws.chroma.publisher)
