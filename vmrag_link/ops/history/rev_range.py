"""Ranges of revisions, `A..B` and `A...B`, as git reads them; each side is what `revparse` takes.

A side that is left out is `HEAD`. Of a diff, `A..B` is from A to B, and `A...B` from their merge
base to B. Of a log, `A..B` is what B contains and A does not, and `A...B` what one of them contains
and the other does not.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from vmrag_link.errors import GitReferenceMissing, UsageInvalid
from vmrag_link.git import plumbing
from vmrag_link.models import At
from vmrag_link.ops.history.revparse import HEAD, WORKING, resolve_at, resolve_rev
from vmrag_link.workspace import Workspace

_RANGE = re.compile(r"(?P<old>(?:[^{}]|\{[^{}]*\})*?)(?P<dots>\.{2,3})(?P<new>.*)", re.DOTALL)
"""What stands in braces is an expression of git's, such as `HEAD^{/a..b}`."""

_EXAMPLES = "vmrag diff OLD NEW, vmrag diff OLD..NEW, or vmrag diff OLD...NEW"
_MOST = 2


class Ends(NamedTuple):
    """What a diff is between."""

    old: At
    new: At


class Reach(NamedTuple):
    """What a log shows: all that the `heads` contain, but for the revisions in `without`."""

    heads: tuple[str, ...]
    without: AbstractSet[str] = frozenset()


class NamedRange(NamedTuple):
    old: str
    dots: str
    new: str


def is_range(name: str) -> bool:
    return parsed(name) is not None


def sides(ws: Workspace, names: Sequence[str]) -> tuple[str | None, str | None]:
    """The two names that `[OLD [NEW]]` or a range means; None for one that is left out. Of
    `OLD...NEW` the first is the revision of the merge base.

    Raises `UsageInvalid` for more names than that; for `...` as `resolve_at`.
    """
    if len(names) > _MOST or (len(names) == _MOST and any(map(is_range, names))):
        raise UsageInvalid(f"{' '.join(names)!r} is not what a diff can be between.", hint=_EXAMPLES)
    if names and (found := parsed(names[0])):
        return _base(ws, found) if found.dots == "..." else found.old, found.new
    old, new, *_ = (*names, None, None)
    return old, new


def ends(ws: Workspace, names: Sequence[str]) -> Ends:
    """As `sides`; without NEW the documents here, without OLD the revision that they are based on,
    too.

    Raises `UsageInvalid`, and as `resolve_at`.
    """
    old, new = sides(ws, names)
    return Ends(ws.revision_here() if old is None else resolve_at(ws, old), resolve_at(ws, new or WORKING))


def reach(ws: Workspace, name: str | None) -> Reach:
    """What a revision or a range means to a log; without a name the revision here."""
    if name is None or name == WORKING:
        return Reach((ws.revision_here(),))
    found = parsed(name)
    if found is None:
        return Reach((resolve_rev(ws, name),))
    old, new = resolve_rev(ws, found.old), resolve_rev(ws, found.new)
    before = ws.engine.parents([old]).keys()
    if found.dots == "..":
        return Reach((new,), before)
    return Reach((old, new), before & ws.engine.parents([new]).keys())


def parsed(name: str) -> NamedRange | None:
    match = _RANGE.fullmatch(name)
    if match is None or not (match["old"] or match["new"]):
        return None
    return NamedRange(match["old"] or HEAD, match["dots"], match["new"] or HEAD)


def _base(ws: Workspace, asked: NamedRange) -> str:
    """The merge base; of the commits, too, if both names are git's."""
    from vmrag_link.ops.history.merge_base import shown_base

    names = asked.old, HEAD if asked.new == WORKING else asked.new
    old, new = (resolve_rev(ws, name) for name in names)
    commits = _commit(ws, names[0], old), _commit(ws, names[1], new)
    return shown_base(ws, old, new, (commits[0], commits[1]) if commits[0] and commits[1] else None)


def _commit(ws: Workspace, name: str, revision: str) -> str | None:
    """The commit of git's that a name means, if it is one that pins the revision."""
    from vmrag_link.ops.history.merge_base import pinned

    if ws.engine.has_revision(name):
        return None
    with contextlib.suppress(GitReferenceMissing):
        commit = plumbing.resolve(ws.places, name)
        return commit if pinned(ws, commit) == revision else None
    return None
