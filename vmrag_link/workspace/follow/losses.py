"""Revisions that a pin names and nobody has: what is known of them, and going on without them.

Only what no configured remote has can be given up, so every one is asked before, unless a person
says that nobody can be.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from vmrag_link import clock
from vmrag_link.engines import migrated
from vmrag_link.errors import NoChanges, RemoteEmpty, RemoteError, RemoteUnreachable, plural
from vmrag_link.git import configuration, history, plumbing, remotes
from vmrag_link.merging import revisions
from vmrag_link.models import Record
from vmrag_link.pin import Pin
from vmrag_link.workspace import Workspace, reasons
from vmrag_link.workspace.follow import lazy_fetch
from vmrag_link.workspace.pins import history_pins

if TYPE_CHECKING:
    from vmrag_link.transport.address import Address

OFFLINE = "--offline (asks nobody, and gives up what a remote may have)"
MOST_COMMITS = 10
"""Code commits that a message names for each lost revision."""


class PinningCommit(Record, frozen=True):
    """A code commit that introduced a pin; `date`: the day of its author."""

    commit: str
    author: str
    date: str
    subject: str


class LostRevision(Record, frozen=True):
    """`pinned_by`: newest first, of the commits that git's refs and reflogs reach. `linked`: code
    commits that only the table of links knows.
    """

    revision: str
    pinned_by: tuple[PinningCommit, ...]
    linked: tuple[str, ...]


class AcceptedLoss(Record, frozen=True):
    """`revision` records the loss and has the documents of `instead`; `asked`: the remotes that
    have none of what is `lost`.
    """

    revision: str
    instead: str
    lost: tuple[LostRevision, ...]
    asked: tuple[str, ...]


class LossSearch(Record, frozen=True):
    """The revisions that are nowhere, and which remotes were asked for them."""

    lost: tuple[str, ...]
    asked: tuple[str, ...]


def find_missing(ws: Workspace, code: str | None, pin: Pin | None) -> dict[str, Pin]:
    """By revision, the pins of the work tree and of a code commit's history whose knowledge is not
    here. Raises `PinRevisionMissing` for one that another engine made, to which this clone has yet
    to follow.
    """
    reached = (each for each, _ in history_pins.pins_reached(ws.places, code)) if code else ()
    found = {each.dolt_commit: each for each in (*([pin] if pin else ()), *reached)}
    found = {revision: each for revision, each in found.items() if not ws.engine.has_revision(revision)}
    for revision in found:
        if behind := reasons.explain_other_engine(ws, revision):
            raise behind
    return found


def search_remotes(ws: Workspace, wanted: Mapping[str, Pin], *, offline: bool, then: str) -> LossSearch:
    """Ask every remote that a pin, the settings or git name for what is missing.

    `then`: the command for what has come. Raises `NoChanges` where nothing is missing any more,
    `RemoteUnreachable` for one that cannot be asked.
    """
    if not wanted:
        raise NoChanges("No revision is lost: every one that is pinned here is in this knowledge base.", hint=then)
    asked = () if offline else tuple(_ask(ws, wanted.values()))
    lost = tuple(each for each in wanted if not ws.engine.has_revision(migrated.translate_revision(ws.places.kb, each)))
    if len(lost) < len(wanted):
        ws.progress.note(f"{plural(len(wanted) - len(lost), 'revision')} came from a remote.")
    if not lost:
        raise NoChanges("Nothing is lost: what was missing has come.", hint=then)
    return LossSearch(lost, asked)


def _ask(ws: Workspace, wanted: Iterable[Pin]) -> Iterator[str]:
    from vmrag_link.workspace.remotes.fetch import fetch_from  # rarely needed, and a commit waits for imports

    for address in _addresses(ws, wanted):
        try:
            fetch_from(ws, address)
        except RemoteEmpty:
            pass
        except RemoteError as why:
            raise _unknown(why) from why
        yield address.text


def _addresses(ws: Workspace, wanted: Iterable[Pin]) -> list[Address]:
    """Each once; for `git:` all of git's remotes."""
    from vmrag_link.transport import address
    from vmrag_link.workspace.remotes import destinations

    found: dict[str, Address] = {}
    for stated in dict.fromkeys([*(each.dolt_remote for each in wanted), ws.config.remote]):
        ref = destinations.find_own_ref(ws, stated)
        try:
            places = (
                [address.remote_address(ws.places, name, ref=ref, ask=True) for name in remotes.list_remotes(ws.places)]
                if ref
                else destinations.list_trusted_addresses(ws, stated, ask=True)
            )
        except RemoteError as why:
            raise _unknown(why) from why
        found |= {place.key: place for place in places}
    return list(found.values())


def _unknown(why: RemoteError) -> RemoteUnreachable:
    return RemoteUnreachable(
        f"Whether the revision is lost cannot be said: {why.message}",
        hint=f"{why.hint.rstrip('.')}; or, if that remote is gone: {OFFLINE}",
        cause=why.cause,
    )


def describe_losses(ws: Workspace, lost: Sequence[str]) -> tuple[LostRevision, ...]:
    """What git's history and the table of links know of them."""
    introduced: dict[str, list[str]] = {}
    for pin, commits in history_pins.read_pins(ws.places):
        introduced.setdefault(pin.dolt_commit, []).extend(commits)
    infos = history.describe_commits(ws.places, {each for revision in lost for each in introduced.get(revision, ())})
    found = []
    for revision in lost:
        pinned = [info for info in infos if info in introduced.get(revision, ())]
        links = (link.git_commit for link in ws.engine.list_links(dolt_commit=revision))
        linked = tuple(link for link in links if link not in pinned)
        found.append(LostRevision(revision, tuple(PinningCommit(each, *infos[each]) for each in pinned), linked))
    return tuple(found)


def accept_losses(ws: Workspace, found: LossSearch, instead: str) -> AcceptedLoss:
    """Record on top of a revision that others are lost; nothing is pinned. What it accepts already
    is not recorded again.
    """
    known = describe_losses(ws, found.lost)
    new = [each for each in known if not revisions.accepts_loss(ws.engine, instead, each.revision)]
    made = instead
    if new:
        message = "\n".join(_message(new, found.asked))
        author, now = plumbing.read_identity(ws.places), clock.now()
        made = revisions.record_loss(ws.engine, instead, message=message, author=author, date=now)
    accepted = configuration.read_config_values(ws.places, lazy_fetch.ACCEPTED_KEY)
    for revision in found.lost:
        if revision not in accepted:
            configuration.add_value(ws.places, lazy_fetch.ACCEPTED_KEY, revision)
    return AcceptedLoss(made, instead, known, found.asked)


def _message(lost: Sequence[LostRevision], asked: Sequence[str]) -> Iterator[str]:
    first, others = lost[0].revision[:12], len(lost) - 1
    yield f"Go on without revision {first}{f' and {others} more' if others else ''}"
    yield ""
    yield f"Not at {', '.join(asked)}." if asked else "No remote was asked."
    for each in lost:
        yield from ("", *describe_loss(each))
    yield ""
    yield revisions.format_loss_trailers(each.revision for each in lost)


def describe_loss(lost: LostRevision) -> Iterator[str]:
    """What is known of a lost revision, for people."""
    yield f"Lost: {lost.revision}, pinned by" + ("" if lost.pinned_by else " no code commit that is here")
    for each in lost.pinned_by[:MOST_COMMITS]:
        yield f"- {each.commit[:12]} {each.date} {each.author}: {each.subject}"
    if len(lost.pinned_by) > MOST_COMMITS:
        since = lost.pinned_by[-1]
        yield f"- {len(lost.pinned_by) - MOST_COMMITS} more, since {since.date}"
    if lost.linked:
        yield f"- linked with it: {', '.join(each[:12] for each in lost.linked[:MOST_COMMITS])}"
