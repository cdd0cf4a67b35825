"""Plan a migration: list the revisions that branches, pins and anchors reach.

An anchor keeps a revision that no branch reaches: it is a parent of the head of `KEEP_BRANCH`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vmrag_link.engines.base import Engine
from vmrag_link.engines.own_branches import ASIDE_PREFIX, KEEP_BRANCH, VECTORS_BRANCH, is_reserved, read_root
from vmrag_link.errors import KnowledgeRefused, Uncommitted
from vmrag_link.models import Record
from vmrag_link.workspace.commits.ancestry import list_ancestors
from vmrag_link.workspace.remotes.revision_map import sort_parents_first


class MigrationPlan(Record, frozen=True):
    """The revisions to copy."""

    root: str
    """The first revision. Creating the new knowledge base also creates its copy."""
    revisions: tuple[str, ...]
    """The other revisions, parents first."""
    parents: Mapping[str, tuple[str, ...]]
    branches: Mapping[str, str]
    """The heads of the branches."""
    anchors: tuple[str, ...]
    """Revisions that no branch reaches, and that reach all other revisions that no branch reaches.
    """


def plan_migration(engine: Engine, pins: Sequence[str]) -> MigrationPlan:
    """Return what a migration would copy now. `pins` are names of revisions, which may not exist.

    Raises `Uncommitted`, and `KnowledgeRefused` for a revision that does not descend from the root.
    The contents of revisions are checked when they are copied.
    """
    branches = {}
    for branch in engine.list_branches():
        if branch.dirty:
            raise Uncommitted(
                f"the branch {branch.name!r} has uncommitted documents; nothing was migrated.",
                hint="run 'vmrag commit' on their code branch, or 'vmrag restore .' to discard them",
                branch=branch.name,
            )
        if is_migrated_branch(branch.name) or branch.name == VECTORS_BRANCH:
            branches[branch.name] = branch.head
    root = read_root(engine)
    before_root = engine.map_parents([root]).keys()
    existing_pins = sorted(engine.map_parents(pins).keys() & set(pins))
    keep = engine.find_branch(KEEP_BRANCH)
    parents = engine.map_parents([*branches.values(), *existing_pins, *([keep.head] if keep else []), root])
    on_branches = set(list_ancestors(parents, branches.values()))
    only_pinned = set(list_ancestors(parents, existing_pins)) - on_branches
    others = parents.keys() - on_branches - only_pinned - before_root
    # The commits of `KEEP_BRANCH` itself have no tables.
    only_anchored = {revision for revision in others if not engine.is_bare(revision)}
    unreached = (only_pinned | only_anchored) - before_root
    parents_of_unreached = {parent for revision in unreached for parent in parents[revision]}
    revisions = (on_branches | unreached) - before_root
    _require_descent(revisions, parents, root)
    return MigrationPlan(
        root=root,
        revisions=tuple(sort_parents_first(revisions, parents)),
        parents=parents,
        branches=branches,
        anchors=tuple(sorted(unreached - parents_of_unreached)),
    )


def is_migrated_branch(branch: str) -> bool:
    """Return whether a branch is a user's branch, or one with stashed documents."""
    return not is_reserved(branch) or branch.startswith(ASIDE_PREFIX)


def _require_descent(revisions: set[str], parents: Mapping[str, tuple[str, ...]], root: str) -> None:
    """Raise `KnowledgeRefused` unless each revision descends from the root only."""
    migrated = revisions | {root}
    for revision in sorted(revisions):
        if not parents[revision] or not migrated.issuperset(parents[revision]):
            raise KnowledgeRefused(
                f"revision {revision[:12]} does not descend from the first revision of this knowledge base.",
                hint="run 'vmrag branch' to find the branch that reaches it, delete that branch, then migrate again",
                revision=revision,
            )
