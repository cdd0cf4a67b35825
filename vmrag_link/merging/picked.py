"""The content of a revision that does not descend from it, after a cherry-pick, a rebase or a bare
merge.

Such a revision only names the other one in trailers of its message. Anybody can write a trailer, so
the documents are compared.
"""

from __future__ import annotations

from collections.abc import Sequence

from vmrag_link.engines.base import Engine, Write, own_revisions, readable
from vmrag_link.merging.conflicts import project_conflict
from vmrag_link.merging.messages import change_named
from vmrag_link.merging.threeway import as_rows, merge
from vmrag_link.models import RevisionInfo, Row


def lacks(engine: Engine, revision: str, part: str) -> bool:
    """Whether a merge of `part`, which is no ancestor of the revision, would bring it anything that
    nobody decided about.
    """
    base = engine.merge_base(revision, part)
    if base is None or not readable(engine, part):
        return True
    left = merge(engine, base=base, ours=revision, theirs=part)
    if left.empty and not left.conflicts:
        return False
    return base == revision or not holds(engine, own_revisions(engine, revision, part), part)


def holds(engine: Engine, own: Sequence[RevisionInfo], part: str) -> bool:
    """Whether the last of `own` holds a revision that it does not descend from.

    `own`: what it descends from and the part does not, itself included, parents before children.
    """
    picked: dict[str, frozenset[str]] = {}
    for each in own:
        held = frozenset[str]().union(*(picked.get(parent, ()) for parent in each.parents))
        theirs = _picked_revision(engine, each, held)
        picked[each.revision] = held | {theirs} if theirs else held
    return any(engine.is_ancestor(part, each) for each in picked[own[-1].revision])


def _picked_revision(engine: Engine, info: RevisionInfo, held: frozenset[str]) -> str | None:
    """The revision that this one contains besides its parents; `held`: what those contain.

    A trailer names a change, from base to theirs. It is all of theirs only on top of a revision
    that contains the base.
    """
    said = change_named(info.message)
    if said is None or len(info.parents) != 1:
        return None
    base, theirs = said
    if not (engine.has_revision(base) and engine.has_revision(theirs)):
        return None
    if not any(engine.is_ancestor(base, each) for each in (*info.parents, *held)):
        return None
    return theirs if _is_merged(engine, info, base, theirs) else None


def _is_merged(engine: Engine, info: RevisionInfo, base: str, theirs: str) -> bool:
    """Whether the revision contains the change from base to theirs, conflicts excepted.

    A second merge finds nothing left to do, or what the first one made is there as it was: lines
    that repeat may merge otherwise, or conflict, once the result takes the place of a side.
    """
    left = merge(engine, base=base, ours=info.revision, theirs=theirs)
    if left.empty and not left.conflicts:
        return True
    made = merge(engine, base=base, ours=info.parents[0], theirs=theirs)
    there = _rows(as_rows(engine.diff(info.parents[0], info.revision)))
    done = {name for name, row in _rows(made.rows).items() if name in there and there[name] == row}
    lacking = (_rows(left.rows).keys() | {each.id for each in left.conflicts}) - done
    return lacking <= {each.id for each in made.conflicts}


def _rows(rows: Write) -> dict[str, Row | None]:
    """Each row by the id that its conflict would have, None for one that is removed."""
    found: dict[str, Row | None] = {f"{name}/": None for name in rows.remove_collections}
    found |= dict.fromkeys(map("/".join, rows.remove_documents))
    found |= dict.fromkeys(map(project_conflict, rows.remove_projects))
    found |= {f"{each.name}/": each for each in rows.put_collections}
    found |= {"/".join(each.key): each for each in rows.put_documents}
    return found | {project_conflict(each.key): each for each in rows.put_projects}
