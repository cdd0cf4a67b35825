"""Describe the two sides of a merge: their names, their last changes and their merge base.

git merges pins with a conflict in `.dolt-version`, and `vmrag merge` merges a KB branch or a
revision. Messages and conflict markers name the sides equally for both.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from vmrag_link import pin as pins
from vmrag_link.engines.base import Engine
from vmrag_link.errors import GitReferenceMissing
from vmrag_link.git import pin_conflict, plumbing, transfer
from vmrag_link.git.pin_conflict import Operation, Stages, StoppedOperation
from vmrag_link.git.refs import BRANCHES
from vmrag_link.models import Project, Record, RevisionInfo, Row
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.history.ranges import find_base, find_pinned, pair_with_head

if TYPE_CHECKING:
    from vmrag_link.merging.conflicts import Conflict
    from vmrag_link.merging.text import Labels

_MAX_REVISIONS = 200
"""Maximum number of revisions of a side that are searched for the last change of a document."""


class _Names(NamedTuple):
    """The names of a merged commit. `{}` is replaced by its short hash."""

    source: str
    """The name in a sentence."""
    label: str
    """The name in a conflict marker."""


_NAMES_BY_OPERATION: Mapping[Operation, _Names] = {
    "rebase": _Names("your commit {}, which is being rebased,", "yours, being rebased ({})"),
    "cherry-pick": _Names("the picked commit {}", "{}, being picked"),
    "revert": _Names("the revert of {}", "before {}, being reverted"),
    "stash": _Names("your stash", "yours, stashed"),
}
"""Names of the commit that git applies. For a merge, the name of the branch is used instead."""


class LastChanges(Record, frozen=True):
    """The newest revision of each side that changed a document.

    None if the side did not change it, or if the change is too far back.
    """

    ours: RevisionInfo | None
    theirs: RevisionInfo | None


def describe_git_source(ws: Workspace, stages: Stages) -> str:
    """Return the name of what git merges, for the sentence `the merge of … is open`.

    `stages`: the versions of the pin in git's index.
    """
    stopped = pin_conflict.find_stopped_operation(ws.places)
    names = _format_names(stopped)
    return names.source if names else f"git's {_name_merged_branch(ws, stopped, stages)}"


def label_git_sides(ws: Workspace, stages: Stages) -> Labels:
    """Return the names of the sides of a merge by git."""
    from vmrag_link.merging.text import Labels

    stopped = pin_conflict.find_stopped_operation(ws.places)
    ours = ws.read_trigger().branch or _read_branch(stages.ours)
    return Labels(ours=ours, theirs=_label_theirs(ws, stopped, stages, ours))


def label_sides(symbolic: str, source: str) -> Labels:
    """Return the names of the sides of a merge by vmrag: HEAD's branch, and the source.

    `symbolic`: HEAD's full name, empty if HEAD is detached.
    """
    from vmrag_link.merging.text import Labels

    return Labels(ours=symbolic.removeprefix(BRANCHES) or "ours", theirs=source)


def find_last_changes(engine: Engine, conflict: Conflict, *, base: str, ours: str, theirs: str) -> LastChanges:
    """Return the last change of a conflict's row on each side since the base."""
    return LastChanges(
        ours=_find_last_change(engine, conflict, base, ours), theirs=_find_last_change(engine, conflict, base, theirs)
    )


def find_source_base(ws: Workspace, source: str, *, ours: str, theirs: str) -> str:
    """Return the base of a merge with the revision that `source` names.

    If `source` is a code commit that pins the revision, git's merge base is also considered.
    """
    commit = _resolve_code_commit(ws, source, theirs)
    return find_base(ws, ours, theirs, pair_with_head(ws, ours, commit) if commit else None)


def is_code_behind(ws: Workspace, source: str, theirs: str) -> bool:
    """Return whether `source` is a code commit that pins `theirs`, and HEAD lacks this commit."""
    head = plumbing.read_head(ws.places).commit
    commit = _resolve_code_commit(ws, source, theirs)
    return bool(head and commit and not transfer.contains_commit(ws.places, head, commit))


def _label_theirs(ws: Workspace, stopped: StoppedOperation | None, stages: Stages, ours: str) -> str:
    if names := _format_names(stopped):
        return names.label
    branch = _name_merged_branch(ws, stopped, stages)
    return branch if branch != ours else f"{branch}, being merged"


def _format_names(stopped: StoppedOperation | None) -> _Names | None:
    """Return the names of the commit that git applies. None for a merge."""
    if stopped is None or stopped.operation not in _NAMES_BY_OPERATION:
        return None
    names = _NAMES_BY_OPERATION[stopped.operation]
    return _Names(names.source.format(stopped.commit[:7]), names.label.format(stopped.commit[:7]))


def _name_merged_branch(ws: Workspace, stopped: StoppedOperation | None, stages: Stages) -> str:
    """Return the name of the merged code branch, or of its KB branch without one."""
    kb_branch = _read_branch(stages.theirs)
    names = pin_conflict.list_branches_at(ws.places, stopped.commit) if stopped and stopped.commit else []
    return names[0] if names and kb_branch not in names else kb_branch


def _read_branch(pin: bytes | None) -> str:
    return pins.parse_pin(pin).dolt_branch if pin else ""


def _find_last_change(engine: Engine, conflict: Conflict, base: str, side: str) -> RevisionInfo | None:
    """Return the newest revision of a side since the base in which the row differs from all
    parents.
    """
    for info in itertools.islice(engine.log(side), _MAX_REVISIONS):
        if info.revision == base or not info.parents:
            return None
        row = _read_row(engine, conflict, info.revision)
        if all(_read_row(engine, conflict, parent) != row for parent in info.parents):
            return info
    return None


def _read_row(engine: Engine, conflict: Conflict, revision: str) -> Row | None:
    """Return the project, collection or document of a conflict at a revision."""
    if isinstance(conflict.ours or conflict.theirs, Project):
        return next(engine.read_projects(revision, ids=[conflict.doc_id]), None)
    if not conflict.doc_id:
        collections = {collection.name: collection for collection in engine.list_collections(revision)}
        return collections.get(conflict.collection)
    return engine.find_document(revision, conflict.collection, conflict.doc_id)


def _resolve_code_commit(ws: Workspace, source: str, theirs: str) -> str | None:
    """Return the code commit that `source` names if it pins the revision `theirs`, or None."""
    if ws.engine.has_revision(source):
        return None
    try:
        commit = plumbing.resolve_commit(ws.places, source)
    except GitReferenceMissing:
        return None
    return commit if find_pinned(ws, commit) == theirs else None
