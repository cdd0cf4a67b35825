"""The tool `history`: what changed, when, by whom and why, of a document, a file, a collection or
everything.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Annotated

from msgspec import UNSET, Meta, UnsetType

from vmrag_link.errors import CollectionMissing, DocumentMissing, GitReferenceMissing, plural
from vmrag_link.git import file_log
from vmrag_link.models import Record
from vmrag_link.ops.follow.follow_pin import move_and_warn
from vmrag_link.ops.history import file_history, known
from vmrag_link.ops.history.compare import compare
from vmrag_link.ops.history.file_history import FileHistory
from vmrag_link.ops.history.history import history as revisions
from vmrag_link.ops.history.log import PinnedRevision
from vmrag_link.ops.history.revparse import WORKING
from vmrag_link.ops.history.word_diff import DiffReport
from vmrag_link.settings import SourceSettings
from vmrag_link.sources import rules
from vmrag_link.toolsets.essential import texts
from vmrag_link.toolsets.essential.texts import FIND
from vmrag_link.workspace import Workspace
from vmrag_mcp.arguments import Given
from vmrag_mcp.registry import tool
from vmrag_mcp.results import ToolResult
from vmrag_mcp.session import Call

LISTED = 50
"""Documents, files and differences that an answer names of each kind."""


class HistoryStep(Record, frozen=True):
    """A commit of git's, for a file; else a revision of the knowledge base, with the `commits` that
    pin it.
    """

    id: str
    date: str
    author: str
    message: str
    kind: Annotated[str | UnsetType, Meta(description="of one document: what became of it")] = UNSET
    commits: Annotated[list[str] | UnsetType, Meta(description="commits of git pin the revision")] = UNSET


class HistoryResult(ToolResult, frozen=True):
    """`steps`: newest first. `changed`: the documents that differ from those at since, as
    `KIND NAME`.
    """

    steps: list[HistoryStep]
    changed: Annotated[list[str] | UnsetType, Meta(description="since was given")] = UNSET


@tool(
    "R",
    of_files=True,
    includes=("dolt_commits", "dolt_show", "get_diff"),
    same_effect=("dolt_commits", "dolt_show", "get_diff"),
)
def history(
    call: Call,
    *,
    name: Annotated[str, Given("document, file, folder or collection; left out: everything")] = "",
    since: Annotated[str, Given("what differs from this branch, tag or commit, e.g. v1.0", ref=True)] = "",
    limit: Annotated[int, Given(low=1, high=100, clamped=True)] = 10,
) -> HistoryResult:
    """What changed, when, by whom and why: of one document or file, of a collection, or of all that
    is known. Uncommitted changes count with since.
    """
    ws = call.ws
    call.stands(texts.here(ws))
    changed: list[str] | UnsetType = UNSET
    said = ""
    if since:
        report = differing(ws, name, since)
        files = {source.collection for source in ws.sources.configured if not source.write}
        names = [
            each.doc_id if each.collection in files else f"{each.collection}/{each.doc_id}" for each in report.documents
        ]
        changed = [f"{each.kind} {name}" for each, name in zip(report.documents, names, strict=True)]
        more = f", the first {LISTED}" if len(changed) > LISTED else ""
        said = f"{plural(len(changed), 'document')} changed since {since}{more}; "
        changed = changed[:LISTED]
    found = steps(ws, name, since, limit)
    older = "; there are older ones" if found.more else ""
    said += f"{plural(len(found.steps), 'step')}{older}."
    return HistoryResult(steps=[_step(each) for each in found.steps], changed=changed, message=said)


def _step(found: KnownStep) -> HistoryStep:
    return HistoryStep(
        found.id[:12],
        found.date,
        found.author,
        found.message,
        kind=found.kind or UNSET,
        commits=list(found.commits) or UNSET,
    )


_SEARCHED = 500
"""Revisions that are looked through for those that changed a collection."""


class KnownStep(Record, frozen=True):
    """A commit of git's that changed a file, or a revision of the knowledge base. `kind`: what it
    did to the document that was asked for. `commits` of git that pin the revision, as `HASH
    SUBJECT`.
    """

    id: str
    date: str
    author: str
    message: str
    kind: str = ""
    commits: tuple[str, ...] = ()


class KnownSteps(Record, frozen=True):
    """Newest first; `more`: there are older ones."""

    steps: Sequence[KnownStep]
    more: bool


def steps(ws: Workspace, name: str, since: str, limit: int) -> KnownSteps:
    """The latest `limit` steps of a document or collection, of everything for an empty name;
    `since`: those after this ref, none for a folder.

    Raises `DocumentMissing` for another name, and as `file_history` and `history`.
    """
    try:
        return _steps(ws, name, since, limit)
    except (CollectionMissing, DocumentMissing, GitReferenceMissing):
        if not name:
            raise
        if since:  # what differs was found: it is the name of several files
            return KnownSteps((), more=False)
        raise DocumentMissing(f"Nothing here is or was called {name!r}.", hint=FIND, doc_id=name) from None


def _steps(ws: Workspace, name: str, since: str, limit: int) -> KnownSteps:
    reach = [f"{since}..{WORKING}"] if since else []
    if not name and ws.initialized:
        history_of_all = revisions(ws, _reached(reach), limit=limit)
        return KnownSteps([_revision(step.info) for step in history_of_all.steps], history_of_all.more)
    sources, _ = ws.sources.available(ws.sources.config, ws.stored_collections())
    if chosen := [source for source in sources if name.rstrip("/") in ("", source.collection)]:
        return _of_sources(ws, chosen, reach, limit)
    if name.rstrip("/") in _collections(ws):
        return _of_collection(ws, name.rstrip("/"), _reached(reach), limit)
    if file := file_history.file_history(ws, [*reach, name], limit=limit):
        return _of_file(file)
    with known.naming_files(ws, name):
        found = revisions(ws, [*_reached(reach), name], limit=limit)
    return KnownSteps(
        [_revision(each.info, each.document.kind if each.document else "") for each in found.steps], found.more
    )


def _reached(reach: Sequence[str]) -> Sequence[str]:
    """A log ends at a revision: `HEAD` is what the checked-out commit pins."""
    return [each.removesuffix(WORKING) for each in reach]


def _collections(ws: Workspace) -> set[str]:
    if not ws.initialized:
        return set()
    move_and_warn(ws)
    return {each.name for each in ws.engine.collections(ws.at())}


def _of_collection(ws: Workspace, name: str, reach: Sequence[str], limit: int) -> KnownSteps:
    every = revisions(ws, reach, limit=_SEARCHED)
    changed = (each.info for each in every.steps if _changed(ws, each.info, name))
    found = list(islice(changed, limit + 1))
    return KnownSteps([_revision(each) for each in found[:limit]], len(found) > limit or every.more)


def _changed(ws: Workspace, info: PinnedRevision, name: str) -> bool:
    """Whether a revision changed documents of a collection, against its first parent."""
    if not info.parents:
        return ws.engine.count(info.revision, collection=name) > 0
    found = ws.engine.diff_headers(info.parents[0], info.revision)
    return any(each.key[0] == name for each in found.documents)


def _of_sources(ws: Workspace, sources: Sequence[SourceSettings], reach: Sequence[str], limit: int) -> KnownSteps:
    """Return git's commits that changed files of these sources."""
    commits = file_history.reached_commits(ws, reach[0] if reach else None)
    listed = rules.included if len(sources) > 1 else rules.arguments  # git applies an exclude to all sources
    pathspecs = [pathspec for source in sources for pathspec in listed(source)]
    infos = file_log.commit_log(ws.places, commits, pathspecs, limit=limit + 1) if commits else []
    shown = [KnownStep(info.commit, info.date, info.author, info.message) for info in infos[:limit]]
    return KnownSteps(shown, len(infos) > limit)


def _of_file(found: FileHistory) -> KnownSteps:
    made = [
        KnownStep(each.info.commit, each.info.date, each.info.author, each.info.message, each.info.kind)
        for each in found.steps
    ]
    return KnownSteps(made, found.more)


def _revision(info: PinnedRevision, kind: str = "") -> KnownStep:
    commits = tuple(f"{each.commit[:7]} {each.subject}" for each in info.commits)
    return KnownStep(info.revision, info.date, info.author, info.message, kind, commits)


def differing(ws: Workspace, name: str, since: str) -> DiffReport:
    """The documents that differ from those at a ref, uncommitted ones among them. Raises as
    `compare`.
    """
    return compare(ws, [since], only=[name] if name else (), detail="stat", code=True).report()
