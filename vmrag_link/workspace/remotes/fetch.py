"""`vmrag fetch`: copy what a remote's knowledge base holds. No branch here moves.

Links come with it, on its branch `vmrag_links`. Who wrote them may be anybody who can push there.
The fetch of rows has looked at each by itself (`engines.inspection.require_link`); here they are
held against git's history.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from vmrag_link import clock
from vmrag_link.engines import migrated
from vmrag_link.engines.base import LINKS_BRANCH, is_reserved
from vmrag_link.engines.migrated import try_read_pin
from vmrag_link.errors import BranchMissing, RemoteEmpty, RemoteError, SchemaTooNew, first_of
from vmrag_link.git import history, objects
from vmrag_link.merging.rows import LINK_AUTHOR, list_link_additions
from vmrag_link.models import Link, Record
from vmrag_link.paths import PIN_NAME
from vmrag_link.pin import Pin
from vmrag_link.progress import FETCHING
from vmrag_link.transport import connection
from vmrag_link.transport.address import Address
from vmrag_link.transport.publish import BranchMove
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.commits import revisions
from vmrag_link.workspace.commits.revisions import AheadBehind, Distances
from vmrag_link.workspace.pins import history_pins
from vmrag_link.workspace.remotes import destinations, revision_map

SYNCED_FORK_HINT = "a fork that was synced lacks what its upstream has: git remote add upstream URL && vmrag sync"
"""Hosts bring a fork's branches up to date, and no other ref."""


_NAMED = 3


class FetchReport(Record, frozen=True):
    """`remote` as people know it; `updates`: its KB branches that moved or are new.

    `revision`: HEAD's pin, None without a readable one; `here`: it is here now; `arrived`: it was
    not before.
    """

    remote: str
    updates: tuple[BranchMove, ...]
    revision: str | None
    here: bool
    arrived: bool


class BranchFetched(Record, frozen=True):
    """A KB branch of the remote that moved; `old_commit` None: it is new there."""

    name: str
    old_commit: str | None
    new_commit: str
    commits_fetched: int


class BranchesFetched(Record, frozen=True):
    """`branches` that moved, `commits` that came with all of them.

    `branch`: HEAD's KB branch, compared with the remote's of that name. Until there is one, the
    pinned revision is compared with the branch that the pin names.
    """

    remote: str
    branches: tuple[BranchFetched, ...]
    commits: int
    branch: str | None
    ahead: int
    behind: int

    @property
    def new_branches(self) -> list[str]:
        return [branch.name for branch in self.branches if branch.old_commit is None]


def fetch(ws: Workspace, remote: str | None = None) -> FetchReport:
    """Fetch from the remote that is named, or where the pin and the settings say.

    Raises `RemoteMissing`, `RemoteUnreachable`, `RemoteDamaged`, `RemoteNotTrusted`,
    `AuthenticationFailed`; then nothing was taken.
    """
    pin = ws.resolve_target().pin
    wanted = pin.dolt_commit if pin else None
    before = bool(wanted and ws.engine.has_revision(wanted))
    found, updates = fetch_revision(ws, destinations.list_fetch_addresses(ws, remote), wanted)
    wanted = wanted and migrated.translate_revision(ws.places.kb, wanted)  # it may have been moved elsewhere
    here = bool(wanted and ws.engine.has_revision(wanted))
    return FetchReport(found.text, updates, wanted, here, arrived=here and not before)


def fetch_branches(ws: Workspace, remote: str | None = None, *, branch: str | None = None) -> BranchesFetched:
    """As `fetch`, counted in commits; of one `branch` or all.

    Raises `BranchMissing` for one that the remote lacks.
    """
    target, addresses = ws.resolve_target(), destinations.list_fetch_addresses(ws, remote)
    known = [each.head for each in ws.engine.list_branches()]
    for address in addresses:
        known += ws.engine.remote_heads(address.key).values()
    source, moved = fetch_revision(ws, addresses, target.pin.dolt_commit if target.pin else None)
    there = ws.engine.remote_heads(source.key)
    if branch is not None:
        if branch not in there or is_reserved(branch):
            raise build_branch_missing(source.text, branch, there)
        moved = tuple(each for each in moved if each.branch == branch)
    new = [each.new for each in moved]
    distances = Distances(ws.engine, [*new, *known])
    counted = tuple(
        BranchFetched(each.branch, each.old, each.new, distances.count_apart([each.new], known).ahead) for each in moved
    )
    own = target.kb_branch
    name = own.name if own else target.pin.dolt_branch if target.pin else ""
    here = own.head if own else target.pin.dolt_commit if target.pin else ""
    apart = (
        revisions.compare_with_remote(ws.engine, here, name, there) if ws.engine.has_revision(here) else AheadBehind()
    )
    commits = distances.count_apart(new, known).ahead
    return BranchesFetched(source.text, counted, commits, own.name if own else None, apart.ahead, apart.behind)


def fetch_revision(
    ws: Workspace, addresses: Iterable[Address], wanted: str | None
) -> tuple[Address, tuple[BranchMove, ...]]:
    """Fetch from the remotes in turn until the revision is here.

    Returns the remote that had it, or else the first that has anything. `git:` may stand for
    several: a contributor's fork and the repository that it comes from. Raises the first one's
    error if none has.
    """
    answered, problems = fetch_in_turn(ws, addresses, wanted)
    if not answered:
        raise problems[0]
    last = answered[-1]
    return last if wanted is None or ws.engine.has_revision(wanted) else answered[0]


def fetch_in_turn(
    ws: Workspace, addresses: Iterable[Address], wanted: str | None
) -> tuple[list[tuple[Address, tuple[BranchMove, ...]]], list[RemoteError]]:
    """Fetch from the remotes in turn until the revision is here.

    Return the remotes that answered, and the errors of those that did not.
    """
    answered: list[tuple[Address, tuple[BranchMove, ...]]] = []
    problems: list[RemoteError] = []
    for address in addresses:
        try:
            answered.append((address, fetch_from(ws, address)))
        except RemoteError as problem:
            problems.append(problem)
            continue
        if wanted is None or ws.engine.has_revision(wanted):
            break
    return answered, problems


def fetch_from(ws: Workspace, address: Address) -> tuple[BranchMove, ...]:
    """Fetch from one remote; returns the KB branches that moved.

    What a migration noted there is taken, too. Raises `RemoteEmpty` where it has no knowledge
    base, and `KnowledgeRefused` for wrong notes, when everything else has come.
    """
    with (
        ws.progress.task(FETCHING, total=1) as task,
        connection.open_transport(ws.places, ws.engine, address, timeout=ws.lock_timeout) as peer,
    ):
        # A client of a server learns what it has only by fetching.
        before = peer.read_heads() if address.peer else ws.engine.remote_heads(address.key)
        if not peer.fetch():
            raise build_remote_empty(address)
        task.advance(1)
        after = peer.read_heads()
    if foreign := sorted(ws.engine.foreign_heads(address.key)):
        names = first_of([repr(name) for name in foreign], _NAMED)
        ws.progress.note(f"left out of {address.text}: {names} (tables of another program)")
    import_map(ws, address)
    import_links(ws, address)
    changed = {name: head for name, head in after.items() if before.get(name) != head}
    shown = sorted(name for name in changed if not is_reserved(name))
    return tuple(BranchMove(name, before.get(name), changed[name]) for name in shown)


def import_map(ws: Workspace, address: Address) -> None:
    """Know old names as the remote knows them. Raises `KnowledgeRefused` for a wrong one."""

    def pinned() -> Iterator[Pin]:
        return (pin for pin, _ in history_pins.read_pins(ws.places, reflogs=False))

    revision_map.import_entries(ws.engine, address.key, pinned=pinned, progress=ws.progress)


def build_branch_missing(remote: str, name: str, there: Iterable[str]) -> BranchMissing:
    names = ", ".join(sorted(each for each in there if not is_reserved(each)))
    return BranchMissing(
        f"{remote} has no KB branch {name!r}; it has {names or 'none at all'}.",
        hint="vmrag push (puts HEAD's KB branch there)",
        branch=name,
    )


def build_remote_empty(address: Address) -> RemoteEmpty:
    return RemoteEmpty(
        f"{address.text} has no knowledge base yet.",
        hint=f"Who has one puts it there: vmrag push; {SYNCED_FORK_HINT}",
        remote=address.text,
    )


def import_links(ws: Workspace, address: Address) -> int:
    """Add the remote's links, as of its last fetch, to ours; returns how many rows changed."""
    head = ws.engine.remote_heads(address.key).get(LINKS_BRANCH)
    if head is None:
        return 0
    try:
        there = ws.engine.list_links(at=head)
    except SchemaTooNew as error:
        ws.progress.note(f"The links of {address.text} are left out: {error.message}")
        return 0
    fresh = _believable(ws, list_link_additions(ws.engine.list_links(), there))
    if fresh:
        ws.engine.write_links(fresh, message=f"Take in links from {address.text}", author=LINK_AUTHOR, date=clock.now())
    return len(fresh)


def _believable(ws: Workspace, rows: Sequence[Link]) -> list[Link]:
    """Without links of the source `pin` that the tree of their commit denies, if it is here."""
    asked = [row.git_commit for row in rows if row.source == "pin"]
    if not asked:
        return list(rows)
    missing = set(objects.find_missing_commits(ws.places, asked))
    here = [each for each in asked if each not in missing]
    objects.fetch_blobs_at(ws.places, here, PIN_NAME)
    told = {commit: try_read_pin(ws.places.kb, data) for commit, data in history.read_pins(ws.places, here).items()}
    return [
        row
        for row in rows
        if row.source == "manual"
        or row.git_commit in missing
        or ((pin := told.get(row.git_commit)) and pin.dolt_commit == row.dolt_commit)
    ]
