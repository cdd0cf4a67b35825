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
    """Ask the work tree's queries at earlier commits.

    These are the last `limit` commits in the first-parent history of `tip` that changed the pin,
    the settings, or files that today's sources match.

    Raises `GitReferenceMissing`, `QueriesMissing` and `QueriesInvalid`. Any other error of a commit
    is recorded in its entry.
    """
    sources = ws.config.sources
    names = [f":(top,literal){name}" for name in (PIN_NAME, CONFIG_NAME)]
    paths = [*names, *(attributes.list_relevant_names(sources) if sources else [])]
    commits = history.list_changing_commits(ws.places, plumbing.resolve_commit(ws.places, tip), paths, limit=limit)
    about = history.describe_commits(ws.places, commits)
    measured = tuple(_measure_commit(ws, commit, about[commit]) for commit in commits)
    return QualityHistory(measured, shallow=bool(history.read_shallow_boundary(ws.places)))


def _measure_commit(ws: Workspace, commit: str, about: Description) -> CommitQuality:
    try:
        report = check_queries(ws, ref=commit)
    except QueriesInvalid:  # the work tree's file is invalid, for every commit
        raise
    except VmragError as error:
        return CommitQuality(commit, about.date, about.subject, problem=error.message)
    return CommitQuality(commit, about.date, about.subject, report.missed, report.metrics)
