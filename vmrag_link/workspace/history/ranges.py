"""Ranges of revisions, `A..B` and `A...B`, as git reads them, and the merge bases that they and
merges of knowledge start from.

Each side of a range is what `revparse` takes; one that is left out is `HEAD`. Of a diff, `A..B` is
from A to B, and `A...B` from their merge base to B. Of a log, `A..B` is what B contains and A does
not, and `A...B` what one of them contains and the other does not.

Two histories know where a merge starts from, and each knows what the other does not: git, that a
revert or an older pin took something back; the knowledge base, that `vmrag merge` has joined
revisions.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from vmrag_link.engines.base import read_root
from vmrag_link.errors import EngineFailed, GitReferenceMissing, PinMissing, PinRevisionMissing, UsageInvalid
from vmrag_link.git import plumbing, remotes
from vmrag_link.git.refs import BRANCHES
from vmrag_link.models import At, Record
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.follow import lazy_fetch
from vmrag_link.workspace.history.log import LogRange
from vmrag_link.workspace.history.revparse import HEAD, WORKING, resolve_at, resolve_rev

_RANGE = re.compile(r"(?P<old>(?:[^{}]|\{[^{}]*\})*?)(?P<dots>\.{2,3})(?P<new>.*)", re.DOTALL)
"""What stands in braces is an expression of git's, such as `HEAD^{/a..b}`."""

_EXAMPLES = "vmrag diff OLD NEW, vmrag diff OLD..NEW, or vmrag diff OLD...NEW"
_MOST = 2

_Made = dict[tuple[str, ...], str]
"""The base that was made of those that several commits pin, by these."""


class RevisionEnds(Record, frozen=True):
    """What a diff is between."""

    old: At
    new: At


class NamedRange(Record, frozen=True):
    old: str
    dots: str
    new: str


def is_range(name: str) -> bool:
    return parse_range(name) is not None


def split_range(ws: Workspace, names: Sequence[str]) -> tuple[str | None, str | None]:
    """The two names that `[OLD [NEW]]` or a range means; None for one that is left out. Of
    `OLD...NEW` the first is the revision of the merge base.

    Raises `UsageInvalid` for more names than that; for `...` as `resolve_at`.
    """
    if len(names) > _MOST or (len(names) == _MOST and any(map(is_range, names))):
        raise UsageInvalid(f"{' '.join(names)!r} is not what a diff can be between.", hint=_EXAMPLES)
    if names and (found := parse_range(names[0])):
        return _base(ws, found) if found.dots == "..." else found.old, found.new
    old, new, *_ = (*names, None, None)
    return old, new


def find_ends(ws: Workspace, names: Sequence[str]) -> RevisionEnds:
    """As `sides`; without NEW the documents here, without OLD the revision that they are based on,
    too.

    Raises `UsageInvalid`, and as `resolve_at`.
    """
    old, new = split_range(ws, names)
    return RevisionEnds(
        ws.require_stored_revision() if old is None else resolve_at(ws, old), resolve_at(ws, new or WORKING)
    )


def find_log_range(ws: Workspace, name: str | None) -> LogRange:
    """Return what a log of a revision or a range shows; without a name, of the revision here. One
    side of a range may be a commit before the first pin: it had no revisions.
    """
    if name is None or name == WORKING:
        return LogRange((ws.require_stored_revision(),))
    found = parse_range(name)
    if found is None:
        return LogRange((resolve_rev(ws, name),))
    if found.dots == "..":
        old, new = _pinned_or_none(ws, found.old), resolve_rev(ws, found.new)
        return LogRange((new,), ws.engine.map_parents([old] if old else []).keys())
    sides = [_pinned_or_none(ws, side) for side in (found.old, found.new)]
    heads = [revision for revision in sides if revision] or [resolve_rev(ws, found.new)]
    shared = [ws.engine.map_parents([head]).keys() for head in heads]
    return LogRange(tuple(heads), shared[0] & shared[1] if len(heads) > 1 else frozenset())


def _pinned_or_none(ws: Workspace, name: str) -> str | None:
    """Return the revision that a name means; None for a commit of git that pins none."""
    try:
        return resolve_rev(ws, name)
    except PinMissing:
        return None


def parse_range(name: str) -> NamedRange | None:
    match = _RANGE.fullmatch(name)
    if match is None or not (match["old"] or match["new"]):
        return None
    return NamedRange(match["old"] or HEAD, match["dots"], match["new"] or HEAD)


def _base(ws: Workspace, asked: NamedRange) -> str:
    """The merge base; of the commits, too, if both names are git's."""
    names = asked.old, HEAD if asked.new == WORKING else asked.new
    old, new = (resolve_rev(ws, name) for name in names)
    commits = _commit(ws, names[0], old), _commit(ws, names[1], new)
    return find_shown_base(ws, old, new, (commits[0], commits[1]) if commits[0] and commits[1] else None)


def _commit(ws: Workspace, name: str, revision: str) -> str | None:
    """The commit of git's that a name means, if it is one that pins the revision."""
    if ws.engine.has_revision(name):
        return None
    with contextlib.suppress(GitReferenceMissing):
        commit = plumbing.resolve_commit(ws.places, name)
        return commit if find_pinned(ws, commit) == revision else None
    return None


def find_base(ws: Workspace, ours: str, theirs: str, commits: tuple[str, str] | None = None) -> str:
    """The revision that a merge of two others starts from.

    It is the pin of git's merge base of two `commits`, or a newer one of the engine's.

    Raises `EngineFailed` for unrelated histories, `PinRevisionMissing`, `PinMalformed` for what
    git's base pins.
    """
    return _base_of(ws, ours, theirs, commits, {})


def _base_of(ws: Workspace, ours: str, theirs: str, commits: tuple[str, str] | None, made: _Made) -> str:
    base, pinning = _bases(ws, ours, theirs, commits)
    return _one_of(ws, pinning, made) if pinning else base


def find_pinned_unless_lost(ws: Workspace, commit: str, *sides: str) -> str | None:
    """Return the revision that a commit pins; None if it pins none, or if a side accepts its loss
    (see `lazy_fetch.is_given_up`). Raises `PinRevisionMissing`, `PinMalformed`.
    """
    try:
        return find_pinned(ws, commit)
    except PinRevisionMissing as missing:
        if lazy_fetch.is_given_up(ws, missing, sides):
            return None
        raise


def find_shown_base(ws: Workspace, ours: str, theirs: str, commits: tuple[str, str] | None = None) -> str:
    """As `base_of`, for a diff: where git has several bases, it is one of them."""
    base, pinning = _bases(ws, ours, theirs, commits)
    return next(iter(pinning.values())) if pinning else base


def _bases(ws: Workspace, ours: str, theirs: str, commits: tuple[str, str] | None) -> tuple[str, dict[str, str]]:
    """The engine's base; and what git's bases pin, by commit, where that counts instead."""
    from vmrag_link.git import pin_merge

    found = ws.engine.merge_base(ours, theirs)
    bases = pin_merge.list_merge_bases(ws.places, [*commits]) if commits else []
    pinning = {base: revision for base in bases if (revision := find_pinned_unless_lost(ws, base, ours, theirs))}
    if pinning and not (found and all(ws.engine.is_ancestor(each, found) for each in pinning.values())):
        return "", pinning
    if found is None:
        raise EngineFailed(
            f"The revisions {ours[:7]} and {theirs[:7]} have no history in common.",
            hint="vmrag log",
            revisions=[ours, theirs],
        )
    return found, {}


def _one_of(ws: Workspace, pinning: dict[str, str], made: _Made) -> str:
    """One base of several, as git makes it; `pinning` has the revisions of commits.

    Made once: histories that cross again and again lead to the same commits on 2^n ways.
    """
    from vmrag_link.merging import revisions

    key = tuple(pinning)
    if key not in made:
        found, *others = pinning.values()
        for revision, commits in zip(others, pairwise(pinning), strict=True):
            base = _base_of(ws, found, revision, commits, made)
            found = revisions.make_virtual_base(ws.engine, base=base, ours=found, theirs=revision)
        made[key] = found
    return made[key]


def find_pinned(ws: Workspace, commit: str) -> str | None:
    """The revision that a commit pins, or None. One that is missing is an error: it may be the
    base.
    """
    try:
        return lazy_fetch.pinned_at(ws, commit)
    except PinMissing:
        return None


def pair_with_head(ws: Workspace, ours: str, commit: str) -> tuple[str, str] | None:
    """HEAD and a commit that is merged into it, for `base_of`.

    None where git's history says nothing about `ours`, because it does not contain what HEAD pins:
    another KB branch was gone to, say.
    """
    head = plumbing.read_head(ws.places).commit
    stood = find_pinned(ws, head) if head else None
    return (head, commit) if head and stood and ws.engine.is_ancestor(stood, ours) else None


def find_branch_base(ws: Workspace) -> tuple[str, str]:
    """The revision that the checked-out branch started from, and the git commit or branch it is
    from.

    That is what the merge base with the main branch pins: the remote's, if there is one, else
    `main` or `master`. On the main branch itself, or where nobody knows it, it is the commit
    before; and the beginning of the knowledge base where that pins nothing.
    """
    from vmrag_link.git import pin_merge

    head = plumbing.read_head(ws.places)
    for ref in _main_branches(ws, head.branch) if head.commit else ():
        commits = pin_merge.list_merge_bases(
            ws.places, [head.commit or "", ref]
        )  # none for a branch that does not exist
        if commits and commits[0] != head.commit and (revision := find_pinned(ws, commits[0])):
            return revision, ref.removeprefix("refs/remotes/").removeprefix(BRANCHES)
    try:
        before = plumbing.resolve_commit(ws.places, "HEAD~1")
    except GitReferenceMissing:
        return read_root(ws.engine), "the beginning"
    return find_pinned(ws, before) or read_root(ws.engine), "the commit before"


def _main_branches(ws: Workspace, current: str | None) -> Iterator[str]:
    """Full names of refs."""
    for remote in remotes.list_for_reading(ws.places, current):
        if found := remotes.read_default_branch(ws.places, remote):
            yield found
    for name in ("main", "master"):
        if name != current:
            yield BRANCHES + name
