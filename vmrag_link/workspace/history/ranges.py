"""Resolve ranges of revisions (`A..B`, `A...B`), and find merge bases.

Each side of a range is a name for `revparse`. A missing side is `HEAD`. For a diff, `A..B` is from
A to B, and `A...B` is from their merge base to B. For a log, `A..B` is what B contains and A does
not, and `A...B` is what only one of them contains.

Two histories decide where a merge starts, and each has facts that the other lacks. In git, a revert
or an older pin may have undone a change. In the knowledge base, `vmrag merge` may have joined
revisions. `find_base` considers both.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from itertools import pairwise

from vmrag_link.engines.own_branches import read_root
from vmrag_link.errors import EngineFailed, GitReferenceMissing, PinMissing, PinRevisionMissing, UsageInvalid
from vmrag_link.git import plumbing, remotes
from vmrag_link.git.refs import BRANCHES
from vmrag_link.models import Record
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.follow import accepted_losses, lazy_fetch
from vmrag_link.workspace.history.log import LogRange
from vmrag_link.workspace.history.revparse import HEAD, WORKING, resolve_rev

_RANGE = re.compile(r"(?P<old>(?:[^{}]|\{[^{}]*\})*?)(?P<dots>\.{2,3})(?P<new>.*)", re.DOTALL)
"""Braces contain a git expression, such as `HEAD^{/a..b}`."""

_EXAMPLES = "write 'vmrag diff OLD NEW', 'vmrag diff OLD..NEW' or 'vmrag diff OLD...NEW'"
_MAX_REVISIONS = 2

_BasesByCommits = dict[tuple[str, ...], str]
"""Virtual bases that were created, by the commits that pin their parts."""


class NamedRange(Record, frozen=True):
    """A range as the user wrote it, with `HEAD` for a missing side."""

    old: str
    dots: str
    """`..` or `...`."""
    new: str


def is_range(name: str) -> bool:
    """Return whether a name is a range."""
    return parse_range(name) is not None


def split_range(ws: Workspace, names: Sequence[str]) -> tuple[str | None, str | None]:
    """Return the two names of `[OLD [NEW]]` or a range; None for a missing one.

    For `OLD...NEW` the first one is the revision of the merge base. Raises `UsageInvalid` for more
    names, and the errors of `revparse.resolve_rev` for `...`.
    """
    if len(names) > _MAX_REVISIONS or (len(names) == _MAX_REVISIONS and any(map(is_range, names))):
        raise UsageInvalid(f"cannot compare more than two revisions: {' '.join(names)}", hint=_EXAMPLES)
    named_range = parse_range(names[0]) if names else None
    if named_range is None:
        old, new, *_ = (*names, None, None)
        return old, new
    if named_range.dots == "...":
        return _find_range_base(ws, named_range), named_range.new
    return named_range.old, named_range.new


def find_log_range(ws: Workspace, name: str | None) -> LogRange:
    """Return the revisions for a log of a revision or a range.

    Without a name, return those of the current revision. One side of a range may be a commit before
    the first pin, which has no revisions.
    """
    if name is None or name == WORKING:
        return LogRange((ws.require_stored_revision(),))
    named_range = parse_range(name)
    if named_range is None:
        return LogRange((resolve_rev(ws, name),))
    old = _resolve_or_none(ws, named_range.old)
    if named_range.dots == "..":
        new = resolve_rev(ws, named_range.new)
        return LogRange((new,), without=_list_ancestors(ws, old) if old else frozenset())
    if old is None:
        return LogRange((resolve_rev(ws, named_range.new),))
    other = _resolve_or_none(ws, named_range.new)
    if other is None:
        return LogRange((old,))
    return LogRange((old, other), without=_list_ancestors(ws, old) & _list_ancestors(ws, other))


def _list_ancestors(ws: Workspace, revision: str) -> AbstractSet[str]:
    """Return a revision and its ancestors."""
    return ws.engine.map_parents([revision]).keys()


def _resolve_or_none(ws: Workspace, name: str) -> str | None:
    """Return the revision that a name means; None for a git commit without a pin."""
    try:
        return resolve_rev(ws, name)
    except PinMissing:
        return None


def parse_range(name: str) -> NamedRange | None:
    """Return the parts of a range; None for another name."""
    match = _RANGE.fullmatch(name)
    if match is None or not (match["old"] or match["new"]):
        return None
    return NamedRange(match["old"] or HEAD, match["dots"], match["new"] or HEAD)


def _find_range_base(ws: Workspace, named_range: NamedRange) -> str:
    """Return the merge base of a range.

    If both names are git refs, git's merge base is also considered.
    """
    new_name = HEAD if named_range.new == WORKING else named_range.new
    old = resolve_rev(ws, named_range.old)
    new = resolve_rev(ws, new_name)
    old_commit = _find_pinning_commit(ws, named_range.old, old)
    new_commit = _find_pinning_commit(ws, new_name, new)
    return find_shown_base(ws, old, new, (old_commit, new_commit) if old_commit and new_commit else None)


def _find_pinning_commit(ws: Workspace, name: str, revision: str) -> str | None:
    """Return the git commit that a name means, if it pins the revision; otherwise None."""
    if ws.engine.has_revision(name):
        return None
    with contextlib.suppress(GitReferenceMissing):
        commit = plumbing.resolve_commit(ws.places, name)
        return commit if find_pinned(ws, commit) == revision else None
    return None


def find_base(ws: Workspace, ours: str, theirs: str, commits: tuple[str, str] | None = None) -> str:
    """Return the merge base of two revisions.

    `commits`: git commits that pin them. If given, the result is the pin of the commits' merge base
    in git, unless the engine's merge base is newer. Several bases are merged into a virtual one.
    Raises `EngineFailed` for unrelated histories, and `PinRevisionMissing` or `PinMalformed` for
    the pin of the git base.
    """
    return _find_joined_base(ws, ours, theirs, commits, {})


def _find_joined_base(
    ws: Workspace, ours: str, theirs: str, commits: tuple[str, str] | None, joined_bases: _BasesByCommits
) -> str:
    base, pinning = _find_bases(ws, ours, theirs, commits)
    return _join_bases(ws, pinning, joined_bases) if pinning else base


def find_pinned_unless_lost(ws: Workspace, commit: str, *sides: str) -> str | None:
    """Return the revision that a commit pins. None without a pin, or if the loss of the revision is
    accepted by one of the sides (`accepted_losses.is_given_up`).

    Raises `PinRevisionMissing` and `PinMalformed`.
    """
    try:
        return find_pinned(ws, commit)
    except PinRevisionMissing as missing:
        if accepted_losses.is_given_up(ws, missing, sides):
            return None
        raise


def find_shown_base(ws: Workspace, ours: str, theirs: str, commits: tuple[str, str] | None = None) -> str:
    """Return the merge base like `find_base`, but one of several bases instead of a virtual one."""
    base, pinning = _find_bases(ws, ours, theirs, commits)
    return next(iter(pinning.values())) if pinning else base


def _find_bases(ws: Workspace, ours: str, theirs: str, commits: tuple[str, str] | None) -> tuple[str, dict[str, str]]:
    """Return the engine's merge base, or "" and the pins of the git merge bases, by commit.

    The engine's base applies if it contains all these pins.
    """
    from vmrag_link.git import pin_merge

    engine_base = ws.engine.merge_base(ours, theirs)
    bases = pin_merge.list_merge_bases(ws.places, [*commits]) if commits else []
    pinning: dict[str, str] = {}
    for base in bases:
        if revision := find_pinned_unless_lost(ws, base, ours, theirs):
            pinning[base] = revision
    is_engine_base_newer = engine_base is not None and all(
        ws.engine.is_ancestor(revision, engine_base) for revision in pinning.values()
    )
    if pinning and not is_engine_base_newer:
        return "", pinning
    if engine_base is None:
        raise EngineFailed(
            f"the revisions {ours[:7]} and {theirs[:7]} have no common history.",
            hint="run 'vmrag log' to list the revisions",
            revisions=[ours, theirs],
        )
    return engine_base, {}


def _join_bases(ws: Workspace, pinning: dict[str, str], joined_bases: _BasesByCommits) -> str:
    """Merge several bases into a virtual one, as git does. `pinning`: revisions by commit.

    `joined_bases` has the bases that were merged before, because histories that cross repeatedly
    reach the same commits on 2^n paths.
    """
    from vmrag_link.merging import revisions

    key = tuple(pinning)
    if key not in joined_bases:
        joined, *others = pinning.values()
        for revision, commits in zip(others, pairwise(pinning), strict=True):
            base = _find_joined_base(ws, joined, revision, commits, joined_bases)
            joined = revisions.make_virtual_base(ws.engine, base=base, ours=joined, theirs=revision)
        joined_bases[key] = joined
    return joined_bases[key]


def find_pinned(ws: Workspace, commit: str) -> str | None:
    """Return the revision that a commit pins, or None. It is fetched if it is missing.

    Raises `PinRevisionMissing` and `PinMalformed`.
    """
    try:
        return lazy_fetch.pinned_at(ws, commit)
    except PinMissing:
        return None


def pair_with_head(ws: Workspace, ours: str, commit: str) -> tuple[str, str] | None:
    """Return HEAD and a commit to merge into it, as `commits` for `find_base`.

    Return None if `ours` does not contain the pin of HEAD, for example after a switch to another KB
    branch. Then git's history does not apply.
    """
    head = plumbing.read_head(ws.places).commit
    pinned = find_pinned(ws, head) if head else None
    return (head, commit) if head and pinned and ws.engine.is_ancestor(pinned, ours) else None


def find_branch_base(ws: Workspace) -> tuple[str, str]:
    """Return the revision from which the checked-out branch started, and a name for it.

    This is the pin of the merge base with the main branch: the default branch of a remote, `main`
    or `master`. On the main branch, or without one, it is the pin of the previous commit. Without a
    pin it is the first revision of the knowledge base.
    """
    from vmrag_link.git import pin_merge

    head = plumbing.read_head(ws.places)
    for ref in _list_main_branches(ws, head.branch) if head.commit else ():
        # A branch that does not exist has no merge bases.
        commits = pin_merge.list_merge_bases(ws.places, [head.commit or "", ref])
        revision = find_pinned(ws, commits[0]) if commits and commits[0] != head.commit else None
        if revision:
            return revision, ref.removeprefix("refs/remotes/").removeprefix(BRANCHES)
    try:
        before = plumbing.resolve_commit(ws.places, "HEAD~1")
    except GitReferenceMissing:
        return read_root(ws.engine), "the beginning"
    return find_pinned(ws, before) or read_root(ws.engine), "the commit before"


def _list_main_branches(ws: Workspace, current: str | None) -> Iterator[str]:
    """Yield the full names of refs that may be the main branch, except the current branch."""
    for remote in remotes.list_for_reading(ws.places, current):
        if ref := remotes.read_default_branch(ws.places, remote):
            yield ref
    for name in ("main", "master"):
        if name != current:
            yield BRANCHES + name
