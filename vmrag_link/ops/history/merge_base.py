"""Where a merge of knowledge starts from.

Two histories know about it, and each knows what the other does not: git, that a revert or an older
pin took something back; the knowledge base, that `vmrag merge` has joined revisions.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from vmrag_link.engines.base import root_of
from vmrag_link.errors import EngineFailed, GitReferenceMissing, PinMissing, PinRevisionMissing
from vmrag_link.git import pin_merge, plumbing, remotes
from vmrag_link.git.heads import BRANCHES
from vmrag_link.merging.revisions import virtual_base
from vmrag_link.ops.follow import lazy_fetch
from vmrag_link.workspace import Workspace

_Made = dict[tuple[str, ...], str]
"""The base that was made of those that several commits pin, by these."""


def base_of(ws: Workspace, ours: str, theirs: str, commits: tuple[str, str] | None = None) -> str:
    """The revision that a merge of two others starts from.

    It is the pin of git's merge base of two `commits`, or a newer one of the engine's.

    Raises `EngineFailed` for unrelated histories, `PinRevisionMissing`, `PinMalformed` for what
    git's base pins.
    """
    return _base_of(ws, ours, theirs, commits, {})


def _base_of(ws: Workspace, ours: str, theirs: str, commits: tuple[str, str] | None, made: _Made) -> str:
    base, pinning = _bases(ws, ours, theirs, commits)
    return _one_of(ws, pinning, made) if pinning else base


def pinned_unless_lost(ws: Workspace, commit: str, *sides: str) -> str | None:
    """As `pinned`; None for a revision whose loss a side accepts, and that no remote has that is
    asked.
    """
    try:
        return pinned(ws, commit)
    except PinRevisionMissing as missing:
        if lazy_fetch.is_given_up(ws, missing.details["revision"], sides):
            return None
        raise


def shown_base(ws: Workspace, ours: str, theirs: str, commits: tuple[str, str] | None = None) -> str:
    """As `base_of`, for a diff: where git has several bases, it is one of them."""
    base, pinning = _bases(ws, ours, theirs, commits)
    return next(iter(pinning.values())) if pinning else base


def _bases(ws: Workspace, ours: str, theirs: str, commits: tuple[str, str] | None) -> tuple[str, dict[str, str]]:
    """The engine's base; and what git's bases pin, by commit, where that counts instead."""
    found = ws.engine.merge_base(ours, theirs)
    bases = pin_merge.merge_bases(ws.places, [*commits]) if commits else []
    pinning = {each: revision for each in bases if (revision := pinned_unless_lost(ws, each, ours, theirs))}
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
    key = tuple(pinning)
    if key not in made:
        found, *others = pinning.values()
        for revision, commits in zip(others, pairwise(pinning), strict=True):
            base = _base_of(ws, found, revision, commits, made)
            found = virtual_base(ws.engine, base=base, ours=found, theirs=revision)
        made[key] = found
    return made[key]


def pinned(ws: Workspace, commit: str) -> str | None:
    """The revision that a commit pins, or None. One that is missing is an error: it may be the
    base.
    """
    try:
        return lazy_fetch.pinned_at(ws, commit)
    except PinMissing:
        return None


def with_head(ws: Workspace, ours: str, commit: str) -> tuple[str, str] | None:
    """HEAD and a commit that is merged into it, for `base_of`.

    None where git's history says nothing about `ours`, because it does not contain what HEAD pins:
    another KB branch was gone to, say.
    """
    head = plumbing.head(ws.places).commit
    stood = pinned(ws, head) if head else None
    return (head, commit) if head and stood and ws.engine.is_ancestor(stood, ours) else None


def branch_base(ws: Workspace) -> tuple[str, str]:
    """The revision that the checked-out branch started from, and the git commit or branch it is
    from.

    That is what the merge base with the main branch pins: the remote's, if there is one, else
    `main` or `master`. On the main branch itself, or where nobody knows it, it is the commit
    before; and the beginning of the knowledge base where that pins nothing.
    """
    head = plumbing.head(ws.places)
    for ref in _main_branches(ws, head.branch) if head.commit else ():
        commits = pin_merge.merge_bases(ws.places, [head.commit or "", ref])  # none for a branch that does not exist
        if commits and commits[0] != head.commit and (revision := pinned(ws, commits[0])):
            return revision, ref.removeprefix("refs/remotes/").removeprefix(BRANCHES)
    try:
        before = plumbing.resolve(ws.places, "HEAD~1")
    except GitReferenceMissing:
        return root_of(ws.engine), "the beginning"
    return pinned(ws, before) or root_of(ws.engine), "the commit before"


def _main_branches(ws: Workspace, current: str | None) -> Iterator[str]:
    """Full names of refs."""
    for remote in remotes.nearest(ws.places, current):
        if found := remotes.default_branch(ws.places, remote):
            yield found
    for name in ("main", "master"):
        if name != current:
            yield BRANCHES + name
