"""What a revision holds without descending from it: a cherry-pick, a rebase and a merge outside of a work tree merge a revision, and only
name it in trailers of their message.

Anybody can write a trailer, so none is believed. What it says is looked up in the documents.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from vmrag_link.engines.base import Engine
from vmrag_link.merging.threeway import merge
from vmrag_link.models import RevisionInfo

_TRAILERS = re.compile(r"^Vmrag-Base: (\w+)\nVmrag-Theirs: (\w+)$", re.MULTILINE)


def trailers(base: str, theirs: str) -> str:
    return f"Vmrag-Base: {base}\nVmrag-Theirs: {theirs}\n"


def holds(engine: Engine, own: Sequence[RevisionInfo], part: str) -> bool:
    """Whether the last of `own` holds a revision that it does not descend from.

    `own`: what it descends from and the part does not, itself included, parents before children.
    """
    picked: dict[str, frozenset[str]] = {}
    for each in own:
        held = frozenset[str]().union(*(picked.get(parent, ()) for parent in each.parents))
        theirs = _picked(engine, each, held)
        picked[each.revision] = held | {theirs} if theirs else held
    return any(engine.is_ancestor(part, each) for each in picked[own[-1].revision])


def _picked(engine: Engine, info: RevisionInfo, held: frozenset[str]) -> str | None:
    """The revision that this one holds beside its parents; `held`: what those do.

    A trailer names a change, from base to theirs. Only on top of something that holds the base it is all of theirs.
    """
    said = _TRAILERS.search(info.message)
    if said is None or len(info.parents) != 1:
        return None
    base, theirs = said.groups()
    if not (engine.has_revision(base) and engine.has_revision(theirs)):
        return None
    if not any(engine.is_ancestor(base, each) for each in (*info.parents, *held)):
        return None
    return theirs if _is_merged(engine, info, base, theirs) else None


def _is_merged(engine: Engine, info: RevisionInfo, base: str, theirs: str) -> bool:
    """Whether the change from base to theirs is in the revision, but for what a person had to decide about."""
    left = merge(engine, base=base, ours=info.revision, theirs=theirs)
    decided = merge(engine, base=base, ours=info.parents[0], theirs=theirs) if left.conflicts else left
    return left.empty and {each.id for each in left.conflicts} <= {each.id for each in decided.conflicts}
