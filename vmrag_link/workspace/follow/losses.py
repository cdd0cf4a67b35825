"""Find pinned revisions that no remote has, and record that the user accepts their loss.

`vmrag pin --accept-loss` and `vmrag resolve --accept-loss` do this in three steps: list the missing
pinned revisions (`find_missing`), search all remotes for them (`search_remotes`), and record the
loss of the others in a new revision (`accept_losses`). A revision is lost only if each remote
answered that it does not have it, or if the user states with `--offline` that no remote can answer.
`accepted_losses` reads the record.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from vmrag_link import clock, hints
from vmrag_link.engines import migrated
from vmrag_link.errors import NoChanges, RemoteEmpty, RemoteError, RemoteUnreachable, plural
from vmrag_link.git import configuration, history, identity, remotes
from vmrag_link.merging import revisions
from vmrag_link.models import Record
from vmrag_link.pin import Pin
from vmrag_link.workspace import Workspace, reasons
from vmrag_link.workspace.follow import accepted_losses
from vmrag_link.workspace.pins import history_pins

if TYPE_CHECKING:
    from vmrag_link.transport.address import Address

OFFLINE = "add --offline if that remote no longer exists"
MAX_LISTED_COMMITS = 10
"""Maximum number of code commits that a message lists for each lost revision."""


class PinningCommit(Record, frozen=True):
    """A code commit that introduced a pin."""

    commit: str
    author: str
    date: str
    """The day on which its author wrote it."""
    subject: str


class LostRevision(Record, frozen=True):
    """A lost revision, and the code commits that pinned it."""

    revision: str
    pinned_by: tuple[PinningCommit, ...]
    """Commits in git's refs and reflogs that introduced its pin, newest first."""
    linked: tuple[str, ...]
    """Other code commits to which the engine's table of links connects it."""


class AcceptedLoss(Record, frozen=True, rename={"checked_remotes": "asked"}):
    """The recorded loss of some revisions."""

    revision: str
    """The revision that records the loss. It has the documents of `instead`."""
    instead: str
    """The revision from which the user continues."""
    lost: tuple[LostRevision, ...]
    checked_remotes: tuple[str, ...]
    """The remotes that have none of the lost revisions."""


class LossSearch(Record, frozen=True, rename={"checked_remotes": "asked"}):
    """The revisions that no remote has, and the remotes that answered."""

    lost: tuple[str, ...]
    checked_remotes: tuple[str, ...]


def find_missing(ws: Workspace, code: str | None, pin: Pin | None) -> dict[str, Pin]:
    """Return the missing revisions that the history of a code commit pins, with their pins.

    `code`: the commit, or None. `pin`: a pin that is also considered. Raises `PinRevisionMissing`
    for a revision of another engine if this clone lacks the migration.
    """
    pins = [pin] if pin else []
    if code:
        pins += [pinned for pinned, _commits in history_pins.pins_reached(ws.places, code)]
    missing_pins = {pin.dolt_commit: pin for pin in pins if not ws.engine.has_revision(pin.dolt_commit)}
    for revision in missing_pins:
        if other_engine := reasons.explain_other_engine(ws, revision):
            raise other_engine
    return missing_pins


def search_remotes(ws: Workspace, missing_pins: Mapping[str, Pin], *, offline: bool, hint: str) -> LossSearch:
    """Fetch the missing revisions from every remote that a pin, the settings or git name.

    `missing_pins`: the result of `find_missing`. `offline`: contact no remote. `hint`: the command
    to run if no revision is lost. Raises `NoChanges` if nothing is missing, and
    `RemoteUnreachable` for a remote that does not answer.
    """
    if not missing_pins:
        raise NoChanges("no revision is lost: this knowledge base has all pinned revisions.", hint=hint)
    checked_remotes = () if offline else _fetch_from_remotes(ws, missing_pins.values())
    lost = tuple(
        revision
        for revision in missing_pins
        if not ws.engine.has_revision(migrated.translate_revision(ws.places.kb, revision))
    )
    if len(lost) < len(missing_pins):
        ws.progress.note(f"fetched {plural(len(missing_pins) - len(lost), 'revision')} from a remote.")
    if not lost:
        raise NoChanges("no revision is lost: vmrag fetched the missing ones.", hint=hint)
    return LossSearch(lost, checked_remotes)


def _fetch_from_remotes(ws: Workspace, pins: Iterable[Pin]) -> tuple[str, ...]:
    """Fetch from each remote, and return the addresses of the remotes."""
    from vmrag_link.workspace.remotes.fetch import fetch_from  # rarely needed, and a commit waits for imports

    addresses = _list_addresses(ws, pins)
    for address in addresses:
        try:
            fetch_from(ws, address)
        except RemoteEmpty:
            pass
        except RemoteError as error:
            raise _build_unchecked_error(error) from error
    return tuple(address.text for address in addresses)


def _list_addresses(ws: Workspace, pins: Iterable[Pin]) -> list[Address]:
    """Return the address of each remote once.

    A pin or setting that begins with `git:` names all git remotes.
    """
    from vmrag_link.transport import address
    from vmrag_link.workspace.remotes import destinations

    addresses_by_key: dict[str, Address] = {}
    for stated in dict.fromkeys([*(pin.dolt_remote for pin in pins), ws.config.remote]):
        ref = destinations.find_own_ref(ws, stated)
        try:
            if ref:
                names = remotes.list_remotes(ws.places)
                addresses = [address.remote_address(ws.places, name, ref=ref, ask=True) for name in names]
            else:
                addresses = destinations.list_trusted_addresses(ws, stated, ask=True)
        except RemoteError as error:
            raise _build_unchecked_error(error) from error
        addresses_by_key |= {trusted.key: trusted for trusted in addresses}
    return list(addresses_by_key.values())


def _build_unchecked_error(error: RemoteError) -> RemoteUnreachable:
    """Return the error for a remote that could not be searched."""
    return RemoteUnreachable(
        f"cannot check if the revision is lost: {error.message}",
        hint=hints.join_alternatives(error.hint, OFFLINE),
        cause=error.cause,
    )


def describe_losses(ws: Workspace, lost: Sequence[str]) -> tuple[LostRevision, ...]:
    """Return the lost revisions with the code commits of git and of the table of links."""
    commits_by_revision: dict[str, list[str]] = {revision: [] for revision in lost}
    for pin, commits in history_pins.read_pins(ws.places):
        if pin.dolt_commit in commits_by_revision:
            commits_by_revision[pin.dolt_commit] += commits
    descriptions = history.describe_commits(ws.places, {*itertools.chain(*commits_by_revision.values())})
    losses = []
    for revision, commits in commits_by_revision.items():
        pinned_by = [PinningCommit(commit, *about) for commit, about in descriptions.items() if commit in commits]
        links = (link.git_commit for link in ws.engine.list_links(dolt_commit=revision))
        linked = [commit for commit in links if commit not in commits]
        losses.append(LostRevision(revision, tuple(pinned_by), tuple(linked)))
    return tuple(losses)


def accept_losses(ws: Workspace, search: LossSearch, instead: str) -> AcceptedLoss:
    """Record the losses in a new revision after `instead`, with equal documents.

    The loss is also accepted on this machine (`accepted_losses`). If `instead` or its ancestors
    record all losses already, no revision is created. No pin is written.
    """
    losses = describe_losses(ws, search.lost)
    new = [loss for loss in losses if not revisions.accepts_loss(ws.engine, instead, loss.revision)]
    recording = instead
    if new:
        message = "\n".join(_form_message(new, search.checked_remotes))
        author = identity.read_identity(ws.places)
        recording = revisions.record_loss(ws.engine, instead, message=message, author=author, date=clock.now())
    accepted = configuration.read_config_values(ws.places, accepted_losses.ACCEPTED_KEY)
    for revision in search.lost:
        if revision not in accepted:
            configuration.add_value(ws.places, accepted_losses.ACCEPTED_KEY, revision)
    return AcceptedLoss(recording, instead, losses, search.checked_remotes)


def _form_message(lost: Sequence[LostRevision], checked_remotes: Sequence[str]) -> Iterator[str]:
    """Yield the lines of the revision's message."""
    first = lost[0].revision[:12]
    others = len(lost) - 1
    yield f"Go on without revision {first}{f' and {others} more' if others else ''}"
    yield ""
    yield f"Not found at {', '.join(checked_remotes)}." if checked_remotes else "No remote was contacted."
    for loss in lost:
        yield from ("", *describe_loss(loss))
    yield ""
    yield revisions.format_loss_trailers(loss.revision for loss in lost)


def describe_loss(lost: LostRevision) -> Iterator[str]:
    """Yield lines that describe a lost revision."""
    yield f"Lost: {lost.revision}, pinned by" + ("" if lost.pinned_by else " no code commit that is here")
    for commit in lost.pinned_by[:MAX_LISTED_COMMITS]:
        yield f"- {commit.commit[:12]} {commit.date} {commit.author}: {commit.subject}"
    if len(lost.pinned_by) > MAX_LISTED_COMMITS:
        yield f"- {len(lost.pinned_by) - MAX_LISTED_COMMITS} more, since {lost.pinned_by[-1].date}"
    if lost.linked:
        yield f"- linked with it: {', '.join(commit[:12] for commit in lost.linked[:MAX_LISTED_COMMITS])}"
