"""Which places a report compares: the two that are asked for, and where they parted."""

from __future__ import annotations

from typing import NamedTuple

from vmrag_link.errors import GitReferenceMissing, HistoryMissing, PinMissing, UsageInvalid, quoted
from vmrag_link.git import plumbing
from vmrag_link.ops.commits.shallow_history import MergeBases
from vmrag_link.ops.follow import lazy_fetch
from vmrag_link.ops.history.merge_base import shown_base
from vmrag_link.ops.history.revparse import WORKING, resolve_rev
from vmrag_link.workspace import Workspace

MERGE_BASE = "merge base"


class ComparedPlace(NamedTuple):
    """As `records.ReportEnd`, with the revision alone. `names_sources`: the commit's settings name
    files that are documents.
    """

    name: str
    commit: str | None
    revision: str | None
    names_sources: bool = False


class ComparedPlaces(NamedTuple):
    """`start` is `base` itself, unless that has moved on since they parted."""

    base: ComparedPlace
    start: ComparedPlace
    head: ComparedPlace


class NamedEnd(NamedTuple):
    """A name as `places_of` takes it, and how the report calls it."""

    name: str
    called: str = ""


def places_of(ws: Workspace, base: NamedEnd, head: NamedEnd) -> ComparedPlaces:
    """The ends by name: of git's commits first, then as `vmrag diff` takes revisions.

    A pinned revision that is not here is fetched. Raises `HistoryMissing` where a shallow clone
    cannot tell where they parted, `PinMissing` where none of the places pins or names anything,
    `PinRevisionMissing`, `PinMalformed`, `UsageInvalid` for uncommitted documents, and as
    `resolve_rev`.
    """
    one, other = _place(ws, base), _place(ws, head)
    start = _start(ws, one, other)
    if not any(each.revision or each.names_sources for each in (one, other, start)):
        raise PinMissing(
            f"Neither {one.name} nor {other.name} pins any knowledge: there is nothing to compare.",
            hint="vmrag init   (in a repository that has a knowledge base: vmrag pin)",
        )
    return ComparedPlaces(one, start, other)


def _place(ws: Workspace, asked: NamedEnd) -> ComparedPlace:
    called = asked.called or asked.name
    if asked.name == WORKING:
        raise UsageInvalid(
            "A report is about commits; uncommitted documents are in none.",
            hint='vmrag diff   (or first: vmrag commit -m "…")',
        )
    try:
        commit = plumbing.resolve(ws.places, asked.name)
    except GitReferenceMissing:
        return ComparedPlace(called, None, resolve_rev(ws, asked.name))
    return _at(ws, called, commit, _pinned(ws, commit, called))


def _start(ws: Workspace, base: ComparedPlace, head: ComparedPlace) -> ComparedPlace:
    if not (base.commit and head.commit):
        if base.revision is None or head.revision is None:
            return base
        revision = shown_base(ws, base.revision, head.revision)
        return base if revision == base.revision else ComparedPlace(MERGE_BASE, None, revision)
    found = MergeBases(ws.places, head.commit, base.commit).of(head.commit, base.commit)
    if found is None:
        raise HistoryMissing(
            f"Where {head.name} left {base.name} cannot be said: this clone is shallow, and ends too early.",
            hint="git fetch --unshallow   (in a workflow: fetch-depth: 0 for actions/checkout)",
        )
    if not found:
        raise UsageInvalid(
            f"The histories of {base.name} and {head.name} have nothing in common.",
            hint=f"vmrag diff {quoted(base.name)} {quoted(head.name)}",
        )
    if base.commit in found:
        return base
    if base.revision and head.revision:
        revision = shown_base(ws, base.revision, head.revision, (base.commit, head.commit))
        return _at(ws, MERGE_BASE, found[0], revision)
    return _at(ws, MERGE_BASE, found[0], _pinned(ws, found[0], f"{MERGE_BASE} {found[0][:12]}"))


def _at(ws: Workspace, called: str, commit: str, revision: str | None) -> ComparedPlace:
    return ComparedPlace(called, commit, revision, bool(ws.sources.config_at(commit).sources))


def _pinned(ws: Workspace, commit: str, called: str) -> str | None:
    """None for a commit without a pin. `called`: how messages name the commit."""
    try:
        pin = lazy_fetch.pin_at(ws, commit, shown=called)
    except PinMissing:
        return None
    return lazy_fetch.require(ws, pin, called)
