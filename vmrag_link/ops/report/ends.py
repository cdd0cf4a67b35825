"""Find the ends of a report, and their common ancestor, by name.

An end is a git commit with the revision that it pins, or a revision alone. As in a pull request,
the report starts at the common ancestor, so it contains only what the head adds.
"""

from __future__ import annotations

from typing import NamedTuple

from vmrag_link.errors import GitReferenceMissing, HistoryMissing, PinMissing, UsageInvalid, quoted
from vmrag_link.git import plumbing
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.commits.ancestry import MergeBases
from vmrag_link.workspace.follow import lazy_fetch
from vmrag_link.workspace.history.ranges import find_shown_base
from vmrag_link.workspace.history.revparse import WORKING, resolve_rev

MERGE_BASE = "merge base"


class ComparedEnd(NamedTuple):
    """An end of the comparison, like `records.ReportEnd` with only the hash of the revision."""

    name: str
    commit: str | None
    """The full hash of the git commit; None if the name is that of a revision."""
    revision: str | None
    """The pinned revision; None without a pin."""
    names_sources: bool = False
    """True if the settings of the commit have sources."""


class ComparedEnds(NamedTuple):
    """The ends of a report, which compares `start` with `head`."""

    base: ComparedEnd
    start: ComparedEnd
    """The common ancestor, which is `base` itself unless it has moved on."""
    head: ComparedEnd


class NamedEnd(NamedTuple):
    """A name of `find_ends`, and its label in the report."""

    name: str
    label: str = ""


def find_ends(ws: Workspace, base: NamedEnd, head: NamedEnd) -> ComparedEnds:
    """Find the ends by name: first as git commits, then as revisions like in `vmrag diff`.

    A missing pinned revision is fetched. Raises `HistoryMissing` if a shallow clone does not have
    the common ancestor, `PinMissing` if no end has a pin or sources,
    `PinRevisionMissing`, `PinMalformed`, `UsageInvalid` for uncommitted documents,
    `RevisionMissing` and `RevisionAmbiguous`.
    """
    compared_base = _find_end(ws, base)
    compared_head = _find_end(ws, head)
    start = _find_start(ws, compared_base, compared_head)
    if not any(end.revision or end.names_sources for end in (compared_base, compared_head, start)):
        raise PinMissing(
            f"neither {compared_base.name} nor {compared_head.name} has a pin or sources, so there is nothing to compare.",
            hint="run 'vmrag init --knowledge-base', or 'vmrag pin' in a repository that has one",
        )
    return ComparedEnds(compared_base, start, compared_head)


def _find_end(ws: Workspace, end: NamedEnd) -> ComparedEnd:
    label = end.label or end.name
    if end.name == WORKING:
        raise UsageInvalid(
            "a report compares commits, and cannot include uncommitted documents.",
            hint="run 'vmrag diff', or 'vmrag commit -m \"…\"' to commit first",
        )
    try:
        commit = plumbing.resolve_commit(ws.places, end.name)
    except GitReferenceMissing:
        return ComparedEnd(label, None, resolve_rev(ws, end.name))
    return _build_end(ws, label, commit, _find_revision(ws, commit, label))


def _find_start(ws: Workspace, base: ComparedEnd, head: ComparedEnd) -> ComparedEnd:
    if not (base.commit and head.commit):
        if base.revision is None or head.revision is None:
            return base
        revision = find_shown_base(ws, base.revision, head.revision)
        return base if revision == base.revision else ComparedEnd(MERGE_BASE, None, revision)
    merge_bases = MergeBases(ws.places, head.commit, base.commit).find_bases(head.commit, base.commit)
    if merge_bases is None:
        raise HistoryMissing(
            f"no common ancestor of {head.name} and {base.name} found, because this clone is too shallow.",
            hint="run 'git fetch --unshallow', or set 'fetch-depth: 0' for actions/checkout in a workflow",
        )
    if not merge_bases:
        raise UsageInvalid(
            f"the histories of {base.name} and {head.name} have no common commit.",
            hint=f"run 'vmrag diff {quoted(base.name)} {quoted(head.name)}' to compare them without a merge base",
        )
    if base.commit in merge_bases:
        return base
    start = merge_bases[0]
    if base.revision and head.revision:
        shown_base = find_shown_base(ws, base.revision, head.revision, (base.commit, head.commit))
        return _build_end(ws, MERGE_BASE, start, shown_base)
    return _build_end(ws, MERGE_BASE, start, _find_revision(ws, start, f"{MERGE_BASE} {start[:12]}"))


def _build_end(ws: Workspace, label: str, commit: str, revision: str | None) -> ComparedEnd:
    return ComparedEnd(label, commit, revision, bool(ws.sources.read_config_at(commit).sources))


def _find_revision(ws: Workspace, commit: str, label: str) -> str | None:
    """Return the pinned revision of a commit, and fetch it if it is missing; None without a pin."""
    try:
        pin = lazy_fetch.pin_at(ws, commit, shown=label)
    except PinMissing:
        return None
    return lazy_fetch.require_revision(ws, pin, label)
