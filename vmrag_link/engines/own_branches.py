"""vmrag's own branches of a knowledge base, which users do not see, and the rules for their names.

A revision stays only as long as a branch reaches it. To *anchor* a revision is to make `vmrag_keep`
reach it.
"""

from __future__ import annotations

from vmrag_link.engines.base import Engine
from vmrag_link.errors import BranchMissing

KEEP_BRANCH = "vmrag_keep"
"""The branch that reaches every anchored revision, so garbage collection keeps it."""
ROOT_BRANCH = "vmrag_root"
"""The branch at the first revision with tables. Knowledge bases with different roots share no
history.
"""
LINKS_BRANCH = "vmrag_links"
"""The branch with the links between code commits and revisions."""
MIGRATED_BRANCH = "vmrag_migrated"
"""The branch that maps the revisions of a previous engine to ours (`engines.migrated`)."""
VECTORS_BRANCH = "vmrag_vectors"
"""The branch with the vectors that a Chroma server serves (`sync.vouchers`).

It is pushed, and never pinned.
"""

PINNED_BRANCH = "vmrag_pinned"
"""The branch that reaches the revisions that were pinned here last (`Engine.protect_revision`).

It is never pushed.
"""

UNFINISHED_BRANCH = "vmrag_unfinished"
"""The branch on which an engine creates a revision.

It is not listed as a branch and does not keep a revision, so a killed command leaves nothing
behind.
"""

RESERVED_PREFIX = "vmrag"

ASIDE_PREFIX = "vmrag/wip/"
"""The prefix of branches with stashed documents, which were uncommitted on a KB branch.

A branch keeps its documents if they conflict with a moved pin (see `merging.replay`).
"""

CARRIED_SUFFIX = ".carried"
"""The suffix of branches that remember uncommitted changes.

The pinned revision already contains these changes (see `merging.replay`).
"""

_ROOT_DEPTH = 2
"""Number of revisions in the root's history: the root itself, and the engine's initial commit."""


def has_remembered_changes(engine: Engine) -> bool:
    """Return whether any branch remembers uncommitted changes (see `merging.replay`)."""
    return any(is_memory_branch(branch.name) for branch in engine.list_branches())


def is_memory_branch(branch: str) -> bool:
    """Return whether a branch of this name remembers uncommitted changes."""
    return branch.startswith(ASIDE_PREFIX) and branch.endswith(CARRIED_SUFFIX)


def is_reserved(branch: str) -> bool:
    """Return whether a branch is reserved for vmrag.

    Branches with stashed documents are reserved too.
    """
    return branch.startswith(RESERVED_PREFIX)


def read_root(engine: Engine) -> str:
    """Return the revision of `vmrag_root`. Raises `BranchMissing`."""
    root = engine.find_branch(ROOT_BRANCH)
    if root is None:
        raise missing_branch_error(ROOT_BRANCH)
    return root.head


def missing_branch_error(name: str) -> BranchMissing:
    """Return the error for a branch that does not exist."""
    hint = (
        "run 'vmrag doctor --fix' to repair it" if name == ROOT_BRANCH else "run 'vmrag branch' to list the KB branches"
    )
    return BranchMissing(f"the knowledge base has no branch {name!r}.", hint=hint, branch=name)


def find_correct_root(engine: Engine) -> str:
    """Return the revision that `vmrag_root` should point to, or an empty text if it is correct.

    The correct root is the first revision with tables: the child of the engine's initial commit,
    so the last but one revision in a history that lists the newest first.
    """
    root = engine.find_branch(ROOT_BRANCH)
    if root and len([*engine.log(root.head, limit=3)]) == _ROOT_DEPTH:
        return ""
    heads = [branch.head for branch in engine.list_branches() if not is_reserved(branch.name)]
    for head in (*heads, *([root.head] if root else ()), *engine.all_remote_heads()):
        if engine.has_revision(head):
            history = [info.revision for info in engine.log(head)]
            if len(history) >= _ROOT_DEPTH:
                return history[-_ROOT_DEPTH]
    return ""
