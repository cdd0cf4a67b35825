"""`vmrag check --history`: how well earlier commits answer the queries of today."""

from __future__ import annotations

from vmrag_link.errors import QueriesInvalid, VmragError
from vmrag_link.git import history, plumbing
from vmrag_link.git.history import Description
from vmrag_link.ops.check.check_queries import check_queries
from vmrag_link.ops.check.thresholds import CommitQuality, QualityHistory
from vmrag_link.paths import CONFIG_NAME, PIN_NAME
from vmrag_link.sources import attributes
from vmrag_link.workspace import Workspace


def measure_history(ws: Workspace, tip: str, *, limit: int) -> QualityHistory:
    """Ask the work tree's queries of `limit` commits of the first-parent history of `tip`: those
    that changed the pin, the settings, or files that today's sources name.

    Raises `GitReferenceMissing`, `QueriesMissing`, `QueriesInvalid`. What else is wrong with one
    commit is said of it, and the others are asked all the same.
    """
    sources = ws.config.sources
    names = [f":(top,literal){name}" for name in (PIN_NAME, CONFIG_NAME)]
    wanted = [*names, *(attributes.list_relevant_names(sources) if sources else [])]
    commits = history.list_changing_commits(ws.places, plumbing.resolve_commit(ws.places, tip), wanted, limit=limit)
    about = history.describe_commits(ws.places, commits)
    found = tuple(_quality(ws, commit, about[commit]) for commit in commits)
    return QualityHistory(found, shallow=bool(history.read_shallow_boundary(ws.places)))


def _quality(ws: Workspace, commit: str, about: Description) -> CommitQuality:
    try:
        report = check_queries(ws, ref=commit)
    except QueriesInvalid:  # the work tree's, and so the same for each commit
        raise
    except VmragError as error:
        return CommitQuality(commit, about.date, about.subject, problem=error.message)
    return CommitQuality(commit, about.date, about.subject, report.missed, report.metrics)
