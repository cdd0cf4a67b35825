"""What people call issue logs and documents about tools: `PROJECT#NUMBER`, or how an id begins."""

from __future__ import annotations

import re
from collections.abc import Iterator

from vmrag_link.errors import DocumentMissing, UsageInvalid, plural, quoted
from vmrag_link.models import ISSUES, KNOWLEDGE, TABLE_OF_KIND, At
from vmrag_link.ops.follow.follow_pin import move_and_warn
from vmrag_link.toolsets.knowledge import issue_logs
from vmrag_link.toolsets.knowledge.records import LOG_TYPES
from vmrag_link.toolsets.knowledge.rows import WHAT
from vmrag_link.workspace import Workspace

FEWEST = 4
"""Characters of an id that may stand for it."""

_ISSUE = re.compile(r"(?:(?P<project>.+)#)?(?P<number>[0-9]{1,10})(?::(?P<type>[a-z]+))?", re.DOTALL)

_EXAMPLE = "For example: my-project#42"


def issue(ws: Workspace, name: str) -> tuple[str, int]:
    """Project and number of `PROJECT#NUMBER`; of `NUMBER` where there is one project.

    Raises `UsageInvalid`.
    """
    found = _ISSUE.fullmatch(name)
    if found is None or found["type"]:
        raise UsageInvalid(f"{name!r} names no issue: it is PROJECT#NUMBER.", hint=_EXAMPLE)
    return found["project"] or _only_project(ws, name), int(found["number"])


def log_id(ws: Workspace, name: str) -> str:
    """The id of the log that `PROJECT#NUMBER[:TYPE]`, `NUMBER[:TYPE]` or the beginning of an id
    names.

    Raises `DocumentMissing`, `UsageInvalid` where it names several.
    """
    move_and_warn(ws)
    at, found = ws.at(), _ISSUE.fullmatch(name)
    beginning = _with_beginning(ws, at, ISSUES, name)
    if found is None or (beginning and not found["project"]):
        return _one(name, ISSUES, beginning)
    project = found["project"] or _only_project(ws, name)
    number, kind = int(found["number"]), found["type"]
    logs = [each for each in issue_logs.of_issue(ws, at, project, number) if kind in (None, each[0])]
    if len(logs) == 1:
        return logs[0][1]
    if not logs:
        lacking = f" of type {kind}" if kind else ""
        raise DocumentMissing(
            f"Issue {number} of project {project!r} has no log{lacking}.",
            hint=f"vmrag issue add {quoted(f'{project}#{number}')}",
            table=issue_logs.TABLE,
        )
    types = [each for each in LOG_TYPES if any(each == log[0] for log in logs)]
    raise UsageInvalid(
        f"Issue {number} of project {project!r} has {plural(len(logs), 'log')}: {', '.join(types)}.",
        hint=f"Name one: {quoted(f'{project}#{number}:{types[0]}')}" if types else "vmrag issue list",
    )


def doc_id(ws: Workspace, name: str) -> str:
    """The id of the document about a tool that has this id, or whose id begins so.

    Raises `DocumentMissing`, `UsageInvalid` where several do.
    """
    move_and_warn(ws)
    return _one(name, KNOWLEDGE, _with_beginning(ws, ws.at(), KNOWLEDGE, name))


def _one(name: str, kind: str, ids: list[str]) -> str:
    what = WHAT[TABLE_OF_KIND[kind]]
    command = "vmrag issue list" if kind == ISSUES else "vmrag doc list"
    if not ids:
        raise DocumentMissing(f"There is no {what} {name!r}.", hint=command, table=TABLE_OF_KIND[kind])
    if len(ids) > 1:
        raise UsageInvalid(f"{plural(len(ids), 'id')} begin with {name!r}.", hint=f"{command}   (shows the ids)")
    return ids[0]


def _with_beginning(ws: Workspace, at: At, kind: str, name: str) -> list[str]:
    """The ids that begin so; the one that is the name itself goes before all others."""
    ids = list(_ids(ws, at, kind)) if len(name) >= FEWEST else []
    return [name] if name in ids else [each for each in ids if each.startswith(name)]


def _ids(ws: Workspace, at: At, kind: str) -> Iterator[str]:
    for each in ws.engine.collections(at):
        if each.kind == kind:
            yield from (header.doc_id for header in ws.engine.headers(at, collection=each.name))


def _only_project(ws: Workspace, name: str) -> str:
    """Raises `UsageInvalid` unless there is one project."""
    projects = [each.project_id for each in ws.engine.projects(ws.at())]
    if len(projects) == 1:
        return projects[0]
    why = f"there are several: {', '.join(projects[:5])}" if projects else "there is none yet"
    project = projects[0] if projects else ws.places.top.name
    raise UsageInvalid(
        f"{name} does not say which project, and {why}.", hint=f"For example: {quoted(f'{project}#{name}')}"
    )
