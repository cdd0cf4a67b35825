"""Find pinned revisions that no one has, and record their loss.

Only a revision that no configured remote has can be given up. So vmrag first asks all remotes,
unless the user states that none can be reached.
"""

from __future__ import annotations

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
from vmrag_link.workspace.follow import lazy_fetch
from vmrag_link.workspace.pins import history_pins

if TYPE_CHECKING:
    from vmrag_link.transport.address import Address

OFFLINE = "add --offline if that remote no longer exists"
MOST_COMMITS = 10
"""Maximum number of code commits that a message lists for each lost revision."""


class PinningCommit(Record, frozen=True):
    """A code commit that introduced a pin."""

    commit: str
    author: str
    date: str
    """The day on which its author wrote it."""
    subject: str


class LostRevision(Record, frozen=True):
    """A lost revision."""

    revision: str
    pinned_by: tuple[PinningCommit, ...]
    """Commits in git's refs and reflogs that introduced its pin, newest first."""
    linked: tuple[str, ...]
    """Code commits that only the table of links has."""


class AcceptedLoss(Record, frozen=True, rename={"checked_remotes": "asked"}):
    """The record of a loss."""

    revision: str
    """The revision that records the loss. It has the documents of `instead`."""
    instead: str
    lost: tuple[LostRevision, ...]
    checked_remotes: tuple[str, ...]
    """The remotes that have none of the lost revisions."""


class LossSearch(Record, frozen=True, rename={"checked_remotes": "asked"}):
    """The revisions that no remote has, and the remotes that answered."""

    lost: tuple[str, ...]
    checked_remotes: tuple[str, ...]


def find_missing(ws: Workspace, code: str | None, pin: Pin | None) -> dict[str, Pin]:
    """Return the missing pinned revisions of the work tree and of a code commit's history, with
    their pins.

    Raises `PinRevisionMissing` for a revision of another engine if this clone lacks the migration.
    """
    reached = (pinned for pinned, _ in history_pins.pins_reached(ws.places, code)) if code else ()
    pins = {pinned.dolt_commit: pinned for pinned in (*([pin] if pin else ()), *reached)}
    pins = {revision: missing_pin for revision, missing_pin in pins.items() if not ws.engine.has_revision(revision)}
    for revision in pins:
        if other_engine := reasons.explain_other_engine(ws, revision):
            raise other_engine
    return pins


def search_remotes(ws: Workspace, missing_pins: Mapping[str, Pin], *, offline: bool, hint: str) -> LossSearch:
    """Ask every remote in a pin, in the settings or in git for the missing revisions.

    `hint`: the command to run if they are found. Raises `NoChanges` if nothing is missing, and
    `RemoteUnreachable` for a remote that does not answer.
    """
    if not missing_pins:
        raise NoChanges("no revision is lost: this knowledge base has all pinned revisions.", hint=hint)
    remotes_asked = () if offline else tuple(_ask_remotes(ws, missing_pins.values()))
    lost = tuple(
        revision
        for revision in missing_pins
        if not ws.engine.has_revision(migrated.translate_revision(ws.places.kb, revision))
    )
    if len(lost) < len(missing_pins):
        ws.progress.note(f"fetched {plural(len(missing_pins) - len(lost), 'revision')} from a remote.")
    if not lost:
        raise NoChanges("no revision is lost: vmrag fetched the missing ones.", hint=hint)
    return LossSearch(lost, remotes_asked)


def _ask_remotes(ws: Workspace, pins: Iterable[Pin]) -> Iterator[str]:
    from vmrag_link.workspace.remotes.fetch import fetch_from  # rarely needed, and a commit waits for imports

    for address in _list_addresses(ws, pins):
        try:
            fetch_from(ws, address)
        except RemoteEmpty:
            pass
        except RemoteError as error:
            raise _form_unknown(error) from error
        yield address.text


def _list_addresses(ws: Workspace, pins: Iterable[Pin]) -> list[Address]:
    """Return the address of each remote once. For `git:` these are all git remotes."""
    from vmrag_link.transport import address
    from vmrag_link.workspace.remotes import destinations

    addresses_by_key: dict[str, Address] = {}
    for stated in dict.fromkeys([*(pin.dolt_remote for pin in pins), ws.config.remote]):
        ref = destinations.find_own_ref(ws, stated)
        try:
            places = (
                [address.remote_address(ws.places, name, ref=ref, ask=True) for name in remotes.list_remotes(ws.places)]
                if ref
                else destinations.list_trusted_addresses(ws, stated, ask=True)
            )
        except RemoteError as error:
            raise _form_unknown(error) from error
        addresses_by_key |= {place.key: place for place in places}
    return list(addresses_by_key.values())


def _form_unknown(error: RemoteError) -> RemoteUnreachable:
    return RemoteUnreachable(
        f"cannot check if the revision is lost: {error.message}",
        hint=hints.join_alternatives(error.hint, OFFLINE),
        cause=error.cause,
    )


def describe_losses(ws: Workspace, lost: Sequence[str]) -> tuple[LostRevision, ...]:
    """Return what git's history and the table of links know about lost revisions."""
    introduced: dict[str, list[str]] = {}
    for pin, commits in history_pins.read_pins(ws.places):
        introduced.setdefault(pin.dolt_commit, []).extend(commits)
    infos = history.describe_commits(
        ws.places, {commit for revision in lost for commit in introduced.get(revision, ())}
    )
    described = []
    for revision in lost:
        pinned = [info for info in infos if info in introduced.get(revision, ())]
        links = (link.git_commit for link in ws.engine.list_links(dolt_commit=revision))
        linked = tuple(link for link in links if link not in pinned)
        described.append(
            LostRevision(revision, tuple(PinningCommit(commit, *infos[commit]) for commit in pinned), linked)
        )
    return tuple(described)


def accept_losses(ws: Workspace, search: LossSearch, instead: str) -> AcceptedLoss:
    """Record on top of a revision that others are lost. Nothing is pinned.

    Losses that it has already are not recorded again.
    """
    described = describe_losses(ws, search.lost)
    new = [loss for loss in described if not revisions.accepts_loss(ws.engine, instead, loss.revision)]
    revision_made = instead
    if new:
        message = "\n".join(_form_message(new, search.checked_remotes))
        author, now = identity.read_identity(ws.places), clock.now()
        revision_made = revisions.record_loss(ws.engine, instead, message=message, author=author, date=now)
    accepted = configuration.read_config_values(ws.places, lazy_fetch.ACCEPTED_KEY)
    for revision in search.lost:
        if revision not in accepted:
            configuration.add_value(ws.places, lazy_fetch.ACCEPTED_KEY, revision)
    return AcceptedLoss(revision_made, instead, described, search.checked_remotes)


def _form_message(lost: Sequence[LostRevision], remotes_asked: Sequence[str]) -> Iterator[str]:
    first, others = lost[0].revision[:12], len(lost) - 1
    yield f"Go on without revision {first}{f' and {others} more' if others else ''}"
    yield ""
    yield f"Not found at {', '.join(remotes_asked)}." if remotes_asked else "No remote was contacted."
    for loss in lost:
        yield from ("", *describe_loss(loss))
    yield ""
    yield revisions.format_loss_trailers(loss.revision for loss in lost)


def describe_loss(lost: LostRevision) -> Iterator[str]:
    """Yield lines that describe a lost revision."""
    yield f"Lost: {lost.revision}, pinned by" + ("" if lost.pinned_by else " no code commit that is here")
    for commit in lost.pinned_by[:MOST_COMMITS]:
        yield f"- {commit.commit[:12]} {commit.date} {commit.author}: {commit.subject}"
    if len(lost.pinned_by) > MOST_COMMITS:
        since = lost.pinned_by[-1]
        yield f"- {len(lost.pinned_by) - MOST_COMMITS} more, since {since.date}"
    if lost.linked:
        yield f"- linked with it: {', '.join(commit[:12] for commit in lost.linked[:MOST_COMMITS])}"
