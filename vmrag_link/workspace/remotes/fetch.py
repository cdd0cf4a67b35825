"""Fetch the knowledge base of a remote: `vmrag fetch`. No local KB branch moves.

Two kinds of rows are imported from a fetch: the map of migrated revisions (`revision_map`), and
links. A link connects a revision with the code commit that pinned it. Anyone with push access can
write links, so those that contradict git's history are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from vmrag_link import clock
from vmrag_link.engines import migrated
from vmrag_link.engines.migrated import try_read_pin
from vmrag_link.engines.own_branches import LINKS_BRANCH, is_reserved
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

IN_A_FORK = "in a fork, run 'git remote add upstream URL && vmrag sync'"
"""The hint for a fork: hosts sync its branches, but not the ref of the knowledge base."""

_MAX_NAMED_BRANCHES = 3


class FetchReport(Record, frozen=True, rename={"has_revision": "here"}):
    """The result of a fetch."""

    remote: str
    """The displayed name of the remote."""
    updates: tuple[BranchMove, ...]
    """The KB branches of the remote that moved or are new."""
    revision: str | None
    """The revision that HEAD pins; None without a readable pin."""
    has_revision: bool
    """True if the knowledge base has that revision now."""
    arrived: bool
    """True if the knowledge base did not have it before."""


class BranchFetched(Record, frozen=True):
    """A KB branch of the remote that moved."""

    name: str
    old_commit: str | None
    """None if the branch is new."""
    new_commit: str
    commits_fetched: int


class BranchesFetched(Record, frozen=True):
    """The result of `fetch_branches`."""

    remote: str
    branches: tuple[BranchFetched, ...]
    """The branches that moved."""
    commits: int
    """Number of commits that were fetched with all of them."""
    branch: str | None
    """HEAD's KB branch, which is compared with the remote's branch of that name.

    If it does not exist yet, the pinned revision is compared with the branch that the pin names.
    """
    ahead: int
    behind: int

    @property
    def new_branches(self) -> list[str]:
        return [branch.name for branch in self.branches if branch.old_commit is None]


def fetch(ws: Workspace, remote: str | None = None) -> FetchReport:
    """Fetch from the given remote, or from the remote of the pin or the settings.

    Nothing is fetched if this raises `RemoteMissing`, `RemoteUnreachable`, `RemoteDamaged`,
    `RemoteNotTrusted` or `AuthenticationFailed`.
    """
    pin = ws.resolve_target().pin
    revision = pin.dolt_commit if pin else None
    existed = bool(revision and ws.engine.has_revision(revision))
    addresses = destinations.list_fetch_addresses(ws, remote)
    address, updates = fetch_revision(ws, addresses, revision)
    revision = revision and migrated.translate_revision(ws.places.kb, revision)  # another clone may have migrated it
    exists = bool(revision and ws.engine.has_revision(revision))
    return FetchReport(address.text, updates, revision, exists, arrived=exists and not existed)


def fetch_branches(ws: Workspace, remote: str | None = None, *, branch: str | None = None) -> BranchesFetched:
    """Fetch like `fetch`, and count the commits of each KB branch that moved.

    `branch`: report only this branch. Raises the errors of `fetch`, and `BranchMissing` if the
    remote lacks the branch.
    """
    target = ws.resolve_target()
    addresses = destinations.list_fetch_addresses(ws, remote)
    known_heads = [local_branch.head for local_branch in ws.engine.list_branches()]
    for address in addresses:
        known_heads += ws.engine.remote_heads(address.key).values()
    source, moved = fetch_revision(ws, addresses, target.pin.dolt_commit if target.pin else None)
    remote_heads = ws.engine.remote_heads(source.key)
    if branch is not None:
        if branch not in remote_heads or is_reserved(branch):
            raise build_branch_missing(source.text, branch, remote_heads)
        moved = tuple(move for move in moved if move.branch == branch)
    new = [move.new for move in moved]
    distances = Distances(ws.engine, [*new, *known_heads])
    counted = tuple(
        BranchFetched(move.branch, move.old, move.new, distances.count_apart([move.new], known_heads).ahead)
        for move in moved
    )
    distance = AheadBehind()
    if target.kb_branch:
        distance = revisions.compare_with_remote(ws.engine, target.kb_branch.head, target.kb_branch.name, remote_heads)
    elif target.pin and ws.engine.has_revision(target.pin.dolt_commit):
        distance = revisions.compare_with_remote(
            ws.engine, target.pin.dolt_commit, target.pin.dolt_branch, remote_heads
        )
    return BranchesFetched(
        remote=source.text,
        branches=counted,
        commits=distances.count_apart(new, known_heads).ahead,
        branch=target.kb_branch.name if target.kb_branch else None,
        ahead=distance.ahead,
        behind=distance.behind,
    )


def fetch_revision(
    ws: Workspace, addresses: Iterable[Address], revision: str | None
) -> tuple[Address, tuple[BranchMove, ...]]:
    """Fetch from the remotes in turn until the revision exists here.

    Return the remote that had it with its moved KB branches, or else the first remote with a
    knowledge base. `git:` may mean several remotes, for example a fork and its upstream. If none
    has a knowledge base, this raises the error of the first one.
    """
    answered, problems = fetch_in_turn(ws, addresses, revision)
    if not answered:
        raise problems[0]
    last = answered[-1]
    return last if revision is None or ws.engine.has_revision(revision) else answered[0]


def fetch_in_turn(
    ws: Workspace, addresses: Iterable[Address], revision: str | None
) -> tuple[list[tuple[Address, tuple[BranchMove, ...]]], list[RemoteError]]:
    """Fetch from the remotes in turn until the revision exists here.

    Return the remotes that answered, each with its moved KB branches, and the errors of the others.
    """
    answered: list[tuple[Address, tuple[BranchMove, ...]]] = []
    problems: list[RemoteError] = []
    for address in addresses:
        try:
            answered.append((address, fetch_from(ws, address)))
        except RemoteError as problem:
            problems.append(problem)
            continue
        if revision is None or ws.engine.has_revision(revision):
            break
    return answered, problems


def fetch_from(ws: Workspace, address: Address) -> tuple[BranchMove, ...]:
    """Fetch from one remote, import its map and links, and return the KB branches that moved.

    Raises `RemoteEmpty` if the remote has no knowledge base. Raises `KnowledgeRefused` for an
    invalid map, after everything else was fetched.
    """
    with (
        ws.progress.task(FETCHING, total=1) as task,
        connection.open_transport(ws.places, ws.engine, address, timeout=ws.lock_timeout) as peer,
    ):
        # A client of a server knows the server's heads only after a fetch.
        before = peer.read_heads() if address.peer else ws.engine.remote_heads(address.key)
        if not peer.fetch():
            raise build_remote_empty(address)
        task.advance(1)
        after = peer.read_heads()
    if foreign := sorted(ws.engine.foreign_heads(address.key)):
        listed = first_of([repr(name) for name in foreign], _MAX_NAMED_BRANCHES)
        ws.progress.note(f"left out of {address.text}: {listed} (tables of another program)")
    import_map(ws, address)
    import_links(ws, address)
    changed = {name: head for name, head in after.items() if before.get(name) != head}
    names = sorted(name for name in changed if not is_reserved(name))
    return tuple(BranchMove(name, before.get(name), changed[name]) for name in names)


def import_map(ws: Workspace, address: Address) -> None:
    """Import the remote's map of migrated revisions, as of its last fetch.

    Raises `KnowledgeRefused` if an entry is invalid.
    """

    def list_pins() -> Iterator[Pin]:
        return (pin for pin, _ in history_pins.read_pins(ws.places, reflogs=False))

    revision_map.import_entries(ws.engine, address.key, pinned=list_pins, progress=ws.progress)


def build_branch_missing(remote: str, name: str, names_there: Iterable[str]) -> BranchMissing:
    names = ", ".join(sorted(branch for branch in names_there if not is_reserved(branch)))
    return BranchMissing(
        f"{remote} has no KB branch {name!r}; it has {names or 'no branches'}.",
        hint="run 'vmrag push' to push the revision",
        branch=name,
    )


def build_remote_empty(address: Address) -> RemoteEmpty:
    """Return the error for a remote without a knowledge base."""
    return RemoteEmpty(
        f"{address.text} has no knowledge base yet.",
        hint=f"run 'vmrag push' in a clone that has one ({IN_A_FORK})",
        remote=address.text,
    )


def import_links(ws: Workspace, address: Address) -> int:
    """Add the remote's links, as of its last fetch, to the local ones. Return how many rows
    changed.
    """
    head = ws.engine.remote_heads(address.key).get(LINKS_BRANCH)
    if head is None:
        return 0
    try:
        links = ws.engine.list_links(at=head)
    except SchemaTooNew as error:
        ws.progress.note(f"The links of {address.text} were skipped: {error.message}")
        return 0
    additions = _select_believable(ws, list_link_additions(ws.engine.list_links(), links))
    if additions:
        ws.engine.write_links(
            additions, message=f"Import links from {address.text}", author=LINK_AUTHOR, date=clock.now()
        )
    return len(additions)


def _select_believable(ws: Workspace, rows: Sequence[Link]) -> list[Link]:
    """Return the links without those that contradict git.

    A link with the source `pin` states which revision a code commit pins. This clone can check it
    if it has the commit.
    """
    commits = [row.git_commit for row in rows if row.source == "pin"]
    if not commits:
        return list(rows)
    missing = set(objects.find_missing_commits(ws.places, commits))
    existing = [commit for commit in commits if commit not in missing]
    objects.fetch_blobs_at(ws.places, existing, PIN_NAME)
    pins_by_commit = {
        commit: try_read_pin(ws.places.kb, data) for commit, data in history.read_pins(ws.places, existing).items()
    }

    def is_believable(link: Link) -> bool:
        if link.source == "manual" or link.git_commit in missing:
            return True
        pin = pins_by_commit.get(link.git_commit)
        return pin is not None and pin.dolt_commit == link.dolt_commit

    return list(filter(is_believable, rows))
