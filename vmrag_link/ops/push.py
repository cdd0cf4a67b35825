"""`vmrag push`: send what the code pins, and the heads of its KB branches, to a remote.

If a team shares a Chroma server, this also pushes digests of its vectors, so that others can check
what the server answers.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

from vmrag_link.engines.own_branches import VECTORS_BRANCH, is_reserved
from vmrag_link.errors import (
    BranchMissing,
    GitReferenceMissing,
    NameInvalid,
    NothingToPush,
    RemoteDiverged,
    VmragError,
    quoted,
)
from vmrag_link.git import own_keys, plumbing, refs, remotes
from vmrag_link.git.refs import BRANCHES
from vmrag_link.models import KbBranch, Record
from vmrag_link.ops.links import links as linking
from vmrag_link.sync import chroma_sharing
from vmrag_link.sync.target import Target
from vmrag_link.transport import connection
from vmrag_link.transport.address import Address, list_push_targets, remote_address
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
    """The result of a push."""

    remote: str
    branches: tuple[BranchMove, ...]
    """Branches that moved on the remote."""
    kept: tuple[str, ...]
    """Further revisions that the remote has now."""
    uncommitted: bool
    """True if there are uncommitted documents, which were not pushed."""
    deleted: tuple[str, ...] = ()
    """Branches that were deleted on the remote."""
    links: int = 0
    """Number of rows of links that changed on the remote."""


def push(
    ws: Workspace, remote: str | None = None, *, branches: Sequence[str] = (), every: bool = False, force: bool = False
) -> PushReport:
    """Push KB branches, and the revisions that the code pins.

    Without `branches`, push HEAD's KB branch. With `every`, push all KB branches, and the pins of
    all refs, not only those in HEAD's history. A branch of the remote with other revisions is
    replaced only if a former pin of its code names its head, or with `force`. Its former contents
    stay reachable on the remote.

    Raises `BranchMissing`, `RemoteDiverged`, `RemoteRejected` and the errors of `fetch`. Without
    `branches`, it finally raises `PinMalformed` or `PinRevisionMissing` for the present pin if its
    revision could not be pushed.
    """
    recover(ws)
    present = ws.resolve_target()
    branch = present.kb_branch
    heads = _select_heads(ws, branches, branch, every=every)
    request = PublishRequest(
        heads,
        _list_pins_to_push(ws, present, every=every),
        force=heads if force else (),
        replace_map=force,
        superseded=functools.partial(_list_former_pins, ws),
        links=linking.list_head_links(ws) if ws.config.link.share else (),
    )
    addresses = destinations.list_push_addresses(ws, remote)
    try:
        results = [publish_to(ws, address, request) for address in addresses]
    except RemoteDiverged as error:
        arguments = f"{quoted(remote)} " if remote else ""
        arguments += f"--branch {quoted(error.details['branch'])}"
        hint = f"run 'vmrag pull {arguments}' to merge the newer revision, or add --force to overwrite it for everyone instead"
        raise RemoteDiverged(error.message, hint=hint, **error.details) from error
    if request.links:
        for address in addresses:  # the push fetched the links of others
            fetch.import_links(ws, address)
    if not branches and not every and present.state != "pinned":
        _require_pushed_pin(ws)
    return _build_report(addresses, results, uncommitted=bool(branch and branch.dirty))


def _require_pushed_pin(ws: Workspace) -> None:
    """Raise an error if the revision of the present pin could not be pushed, because this clone and
    the remote lack it.
    """
    target = ws.resolve_target()
    if target.state == "malformed" or (target.state == "missing" and not ws.engine.shared):
        raise reasons.explain_unusable(ws, target)


class BranchPushed(Record, frozen=True):
    """The result of `push_branch`."""

    remote: str
    url: str
    """The URL of `git push`, or of the remote itself, without credentials."""
    branch: str
    commits: int
    """Number of commits that the remote lacked."""
    ours: str
    """The pushed head."""
    head: str
    """The head of the remote's branch."""
    uncommitted: bool


def push_branch(
    ws: Workspace, remote: str | None = None, *, branch: str | None = None, force: bool = False
) -> BranchPushed:
    """Push one KB branch, by default HEAD's, and count the commits.

    Raises the errors of `push`, `NothingToPush` if the remote already had everything, and an error
    if HEAD has no KB branch.
    """
    recover(ws)
    target = ws.resolve_target()
    own_branch = target.kb_branch
    if branch is None and own_branch is None and target.state != "pinned":
        raise reasons.explain_unusable(ws, target)
    address = destinations.list_push_addresses(ws, remote)[0]
    heads_before = ws.engine.remote_heads(address.key)
    report = push(ws, remote, branches=[branch] if branch else (), force=force)
    if branch:
        name = branch
    elif own_branch:
        name = own_branch.name
    else:
        name = target.pin.dolt_branch if target.pin else ""
    if not report.branches and not report.kept and not report.links:
        raise NothingToPush(
            f"{report.remote} already has everything of {name!r}.",
            hint="run 'vmrag commit' to commit the documents",
            branch=name,
        )
    moves = {move.branch: move for move in report.branches}
    pushed = [*(move.new for move in moves.values()), *report.kept]
    heads_after = ws.engine.remote_heads(address.key)
    if not heads_before:  # the remote was never contacted
        heads_before = {name: head for name, head in heads_after.items() if name not in moves}
    former = [*heads_before.values(), *(move.old for move in moves.values() if move.old)]
    local_branch = ws.engine.find_branch(branch) if branch else own_branch
    local_head = local_branch.head if local_branch else next(iter(pushed), heads_after.get(name, ""))
    return BranchPushed(
        remote=report.remote,
        url=_find_push_url(ws, address),
        branch=name,
        commits=revisions.count_beyond(ws.engine, pushed, former),
        ours=local_head,
        head=heads_after.get(name) or local_head,
        uncommitted=report.uncommitted,
    )


def _find_push_url(ws: Workspace, address: Address) -> str:
    """Return the URL of `git push` for a git remote, else the address, without credentials."""
    target = address.peer.remote if address.peer else address.url
    names = remotes.list_remotes(ws.places)
    if target in names:
        return remotes.redact_url(remotes.read_push_urls(ws.places, target)[0])
    return remotes.redact_url(target) if address.text in names else address.text


def delete_branches(ws: Workspace, names: Sequence[str], remote: str | None = None) -> PushReport:
    """Delete KB branches of the remote. Local branches stay, and the contents stay reachable on the
    remote.

    Raises `NameInvalid`, `BranchMissing`, `RemoteRejected` and the errors of `fetch`.
    """
    for name in names:
        if is_reserved(name):
            raise NameInvalid(
                f"{name!r} is a reserved branch, which you cannot delete.",
                hint="run 'vmrag push --help' to see its options",
                branch=name,
            )
    addresses = destinations.list_push_addresses(ws, remote)
    for address in addresses:
        fetch_from(ws, address)
    remote_names = {name for address in addresses for name in ws.engine.remote_heads(address.key)}
    for name in names:
        if name not in remote_names:
            raise build_branch_missing(" and ".join(address.text for address in addresses), name, remote_names)
    results = [publish_to(ws, address, PublishRequest({}, delete=names)) for address in addresses]
    return _build_report(addresses, results, uncommitted=False)


def _build_report(addresses: Sequence[Address], results: Sequence[Published], *, uncommitted: bool) -> PushReport:
    moved = dict.fromkeys(move for result in results for move in result.branches)
    return PushReport(
        remote=" and ".join(address.text for address in addresses),
        branches=tuple(move for move in moved if not is_reserved(move.branch)),
        kept=tuple(dict.fromkeys(revision for result in results for revision in result.kept)),
        uncommitted=uncommitted,
        deleted=tuple(dict.fromkeys(name for result in results for name in result.deleted)),
        links=len({link.git_commit for result in results for link in result.links}),
    )


def push_unpushed(ws: Workspace, unpushed: Sequence[UnpushedPin]) -> None:
    """Push the pins that `unpushed.list_unpushed` found to the remote of their code, like the hook
    would have done.

    KB branches are moved forward if possible, and git does not ask for a password. Raises the
    errors of `push`.
    """
    for unpushed_pin in unpushed:
        remote, _, code = unpushed_pin.ref.partition("/")
        name = own_keys.find_kb_branch(ws.places, code)
        pinned = _list_pinned_revisions(ws, plumbing.resolve_commit(ws.places, refs.REMOTES + unpushed_pin.ref))
        request = PublishRequest(
            {name: unpushed_pin.revision} if name else {},
            [unpushed_pin.revision, *filter(ws.engine.has_revision, pinned)],
            superseded=functools.partial(_list_former_pins, ws),
            lenient=True,
        )
        for address in list_push_targets(ws.places, _find_pin_address(ws, unpushed_pin, remote)):
            publish_to(ws, address, request)


def _find_pin_address(ws: Workspace, unpushed_pin: UnpushedPin, remote: str) -> Address:
    """Return where a pin's revision belongs: a ref of the code's remote, or the remote that the pin
    names.
    """
    ref = destinations.find_own_ref(ws, unpushed_pin.place)
    if ref:
        return remote_address(ws.places, remote, ref=ref)
    return destinations.list_trusted_addresses(ws, unpushed_pin.place)[0]


def publish_to(ws: Workspace, address: Address, request: PublishRequest) -> Published:
    """Publish to one address, with the digests of shared vectors."""
    with (
        ws.progress.task("pushing", total=1) as task,
        connection.open_transport(ws.places, ws.engine, address, timeout=ws.lock_timeout) as peer,
    ):
        published = publish(ws.engine, address.key, peer, request)
        _publish_digests(ws, address, peer)
        task.advance(1)
        return published


def publish_revision(ws: Workspace, remote: str, revision: str) -> None:
    """Make a revision reachable on the remote that a pin names. None of its branches moves."""
    if ws.engine.shared and destinations.find_own_ref(ws, remote):
        return  # everyone who uses the server has it
    for address in list_push_targets(ws.places, destinations.list_trusted_addresses(ws, remote)[0]):
        publish_to(ws, address, PublishRequest({}, [revision]))


def _select_heads(ws: Workspace, names: Sequence[str], branch: KbBranch | None, *, every: bool) -> dict[str, str]:
    heads = {branch.name: branch.head for branch in ws.engine.list_branches() if not is_reserved(branch.name)}
    if every:
        return heads
    if not names:
        return {branch.name: heads[branch.name]} if branch else {}
    for name in names:
        if name not in heads:
            raise BranchMissing(
                f"the knowledge base has no branch {name!r}.",
                hint="run 'vmrag branch' to list the KB branches",
                branch=name,
            )
    return {name: heads[name] for name in names}


def _list_pins_to_push(ws: Workspace, target: Target, *, every: bool) -> list[str]:
    """Return the present pin and those of HEAD's history, or of every ref, newest first.

    Revisions that this knowledge base lacks are left out.
    """
    present = [target.revision] if target.state == "pinned" else []
    head = plumbing.read_head(ws.places).commit
    history = _list_pinned_revisions(ws, head) if head else []
    if every:
        history += [pin.dolt_commit for pin, _ in history_pins.read_pins(ws.places, reflogs=False)]
    return [revision for revision in dict.fromkeys([*present, *history]) if ws.engine.has_revision(revision)]


def _list_former_pins(ws: Workspace, name: str) -> list[str]:
    """Return all revisions that the code branch of a KB branch ever pinned, including
    missing ones.
    """
    code_branch = own_keys.read_kb_owners(ws.places).get(name, "")
    try:
        return _list_pinned_revisions(ws, plumbing.resolve_commit(ws.places, BRANCHES + code_branch))
    except GitReferenceMissing:
        return []  # no code branch uses it


def _list_pinned_revisions(ws: Workspace, commit: str) -> list[str]:
    """Return the revisions that a commit and its ancestors pin, newest first."""
    return [pin.dolt_commit for pin, _ in history_pins.pins_reached(ws.places, commit)]


def _publish_digests(ws: Workspace, address: Address, peer: Transport) -> None:
    """Push the digests of shared vectors, including those of the bound index.

    The knowledge base is already pushed, so a failure is only reported. The next push repeats this.
    """
    if ws.config.chroma.mode == "embedded":
        return
    try:
        _publish_bound_digests(ws)
        from vmrag_link.sync import vouchers

        head = vouchers.build_head(ws.engine, peer.read_heads().get(VECTORS_BRANCH))
        if head:
            publish(ws.engine, address.key, peer, PublishRequest({VECTORS_BRANCH: head}, lenient=True))
    except VmragError as error:
        ws.progress.note(f"The digests of the vectors on the Chroma server were not pushed: {error.message}")


def _publish_bound_digests(ws: Workspace) -> None:
    """Publish the digests of the bound index, which the process that shares the index may not have
    published yet.
    """
    bound = ws.binding
    if bound is None or ws.views.find_problem(bound.revision):
        return
    with chroma_sharing.read_contents(ws.chroma.sharing, bound.revision, ws.chroma.publisher) as collections:
        chroma_sharing.vouch_vectors(collections, ws.chroma.publisher)
