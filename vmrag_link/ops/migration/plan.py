"""Which revisions a migration carries: all that branches, pins and anchors reach."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vmrag_link.engines.base import (
    ASIDE_PREFIX,
    KEEP_BRANCH,
    VECTORS_BRANCH,
    Engine,
    reserved,
    root_of,
)
from vmrag_link.errors import KnowledgeRefused, Uncommitted
from vmrag_link.models import Record
from vmrag_link.ops.commits.ancestry import reached
from vmrag_link.ops.remotes.revision_map import parents_first


class MigrationPlan(Record, frozen=True):
    """`revisions`: what is carried, each after its parents; the `root` is made with the knowledge
    base. `branches`: their heads. `anchors`: revisions that no branch reaches, and that reach all
    others of the kind.
    """

    root: str
    revisions: tuple[str, ...]
    parents: Mapping[str, tuple[str, ...]]
    branches: Mapping[str, str]
    anchors: tuple[str, ...]


def plan(engine: Engine, pins: Sequence[str]) -> MigrationPlan:
    """What would be carried now; `pins`: any texts.

    Raises `Uncommitted`, and `KnowledgeRefused` for what does not descend from the root. What a
    revision holds is looked at when it is carried.
    """
    branches = {}
    for each in engine.branches():
        if each.dirty:
            raise _uncommitted(each.name)
        if is_carried(each.name) or each.name == VECTORS_BRANCH:
            branches[each.name] = each.head
    return of(engine, branches, sorted(engine.parents(pins).keys() & set(pins)))


def is_carried(branch: str) -> bool:
    """Whether it is a branch of a person's; those with documents set aside are."""
    return not reserved(branch) or branch.startswith(ASIDE_PREFIX)


def of(engine: Engine, branches: Mapping[str, str], pins: Sequence[str]) -> MigrationPlan:
    """As `plan`, of these branches, and of `pins` that are here."""
    root, keep = root_of(engine), engine.branch(KEEP_BRANCH)
    before = engine.parents([root])
    parents = engine.parents([*branches.values(), *pins, *([keep.head] if keep else []), root])
    on_branches = set(reached(parents, branches.values()))
    stated = set(reached(parents, pins)) - on_branches
    # Anchors hang on commits without tables, whose only use is to reach others.
    kept = {each for each in parents.keys() - on_branches - stated - before.keys() if not engine.is_bare(each)}
    apart = (stated | kept) - before.keys()
    below = {parent for each in apart for parent in parents[each]}
    wanted = (on_branches | apart) - before.keys()
    _require_descent(wanted, parents, wanted | {root})
    return MigrationPlan(root, tuple(parents_first(wanted, parents)), parents, branches, tuple(sorted(apart - below)))


def _require_descent(wanted: set[str], parents: Mapping[str, tuple[str, ...]], carried: set[str]) -> None:
    for revision in sorted(wanted):
        if not parents[revision] or any(each not in carried for each in parents[revision]):
            raise KnowledgeRefused(
                f"Revision {revision[:12]} does not descend from the beginning of this knowledge base.",
                hint="It was made by another program. Delete the branch that reaches it, then run it again: vmrag branch",
                revision=revision,
            )


def _uncommitted(branch: str) -> Uncommitted:
    return Uncommitted(
        f"The branch {branch!r} has uncommitted documents, which no revision holds; nothing was migrated.",
        hint="Commit them on their code branch: vmrag commit; or discard them: vmrag restore .",
        branch=branch,
    )
