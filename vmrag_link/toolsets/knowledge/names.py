"""Names on the command line for issues, issue logs and documents about tools.

A name is `PROJECT#NUMBER`, `PROJECT#NUMBER:TYPE` for one of several logs, or the begin of an id.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from vmrag_link.errors import DocumentMissing, UsageInvalid, plural, quoted
from vmrag_link.models import ISSUES, KNOWLEDGE, TABLE_OF_KIND, At
from vmrag_link.toolsets.knowledge.issue_logs import TABLE, list_logs_of_issue
from vmrag_link.toolsets.knowledge.records import LOG_TYPES
from vmrag_link.toolsets.knowledge.rows import TABLE_WORDS
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.follow.follow_pin import follow_and_warn

MIN_ID_CHARS = 4
"""Minimum number of characters of an abbreviated id."""

_ISSUE = re.compile(r"(?:(?P<project>.+)#)?(?P<number>[0-9]{1,10})(?::(?P<type>[a-z]+))?", re.DOTALL)

_EXAMPLE = "name an issue, such as my-project#42"


def issue_named(ws: Workspace, name: str) -> tuple[str, int]:
    """Return project and number of `PROJECT#NUMBER`, or of `NUMBER` if there is only one project.

    Raises `UsageInvalid`.
    """
    match = _ISSUE.fullmatch(name)
    if match is None or match["type"]:
        raise UsageInvalid(f"{name!r} is not an issue. An issue is PROJECT#NUMBER.", hint=_EXAMPLE)
    return match["project"] or _require_only_project(ws, name), int(match["number"])


def id_of_log(ws: Workspace, name: str) -> str:
    """Return the id of a log from `PROJECT#NUMBER[:TYPE]`, `NUMBER[:TYPE]` or the begin of an id.

    Raises `DocumentMissing`, and `UsageInvalid` if several logs match.
    """
    follow_and_warn(ws)
    at = ws.locate_documents()
    match = _ISSUE.fullmatch(name)
    ids = _match_ids(ws, at, ISSUES, name)
    is_begin_of_id = bool(ids) and match is not None and not match["project"]  # such as `12` of `12ab-…`
    if match is None or is_begin_of_id:
        return _require_one(name, ISSUES, ids)
    project = match["project"] or _require_only_project(ws, name)
    number = int(match["number"])
    given_type = match["type"]
    logs = [log for log in list_logs_of_issue(ws, at, project, number) if given_type in (None, log.log_type)]
    if len(logs) == 1:
        return logs[0].log_id
    if not logs:
        lacking = f" of type {given_type}" if given_type else ""
        raise DocumentMissing(
            f"issue {number} of project {project!r} has no log{lacking}.",
            hint=f"run 'vmrag issue add {quoted(f'{project}#{number}')}'",
            table=TABLE,
        )
    types = [log_type for log_type in LOG_TYPES if any(log_type == log.log_type for log in logs)]
    raise UsageInvalid(
        f"issue {number} of project {project!r} has {plural(len(logs), 'log')}: {', '.join(types)}.",
        hint=f"name one type, such as {quoted(f'{project}#{number}:{types[0]}')}"
        if types
        else "run 'vmrag issue list'",
    )


def id_of_doc(ws: Workspace, name: str) -> str:
    """Return the id of a document about a tool from the begin of the id.

    Raises `DocumentMissing`, and `UsageInvalid` if several documents match.
    """
    follow_and_warn(ws)
    return _require_one(name, KNOWLEDGE, _match_ids(ws, ws.locate_documents(), KNOWLEDGE, name))


def _require_one(name: str, kind: str, ids: list[str]) -> str:
    what = TABLE_WORDS[TABLE_OF_KIND[kind]]
    hint = f"run 'vmrag {'issue' if kind == ISSUES else 'doc'} list' to list the ids"
    if not ids:
        raise DocumentMissing(f"no such {what}: {name!r}.", hint=hint, table=TABLE_OF_KIND[kind])
    if len(ids) > 1:
        raise UsageInvalid(f"{plural(len(ids), 'id')} begin with {name!r}.", hint=hint)
    return ids[0]


def _match_ids(ws: Workspace, at: At, kind: str, name: str) -> list[str]:
    """Return the ids that begin with a name. An exact match is the only result."""
    ids = list(_list_ids(ws, at, kind)) if len(name) >= MIN_ID_CHARS else []
    return [name] if name in ids else [identifier for identifier in ids if identifier.startswith(name)]


def _list_ids(ws: Workspace, at: At, kind: str) -> Iterator[str]:
    for collection in ws.engine.list_collections(at):
        if collection.kind == kind:
            yield from (header.doc_id for header in ws.engine.read_headers(at, collection=collection.name))


def _require_only_project(ws: Workspace, name: str) -> str:
    """Return the only project. Raises `UsageInvalid` if there is another number of projects."""
    projects = [project.project_id for project in ws.engine.read_projects(ws.locate_documents())]
    if len(projects) == 1:
        return projects[0]
    why = f"there are several: {', '.join(projects[:5])}" if projects else "there is none yet"
    project = projects[0] if projects else ws.places.top.name
    raise UsageInvalid(
        f"{name} has no project, and {why}.", hint=f"name an issue, such as {quoted(f'{project}#{name}')}"
    )
