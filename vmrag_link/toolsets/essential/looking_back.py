"""The tools that say what was and what is: history, status; and their results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar

from msgspec import UNSET, Meta, UnsetType

from vmrag_link.errors import plural
from vmrag_link.models import Record
from vmrag_link.ops.status import status as statuses
from vmrag_link.toolsets.essential import changes, texts
from vmrag_link.toolsets.essential.changes import KnownStep
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


@tool("R", of_files=True, includes=("dolt_commits", "dolt_show", "get_diff"))
def history(
    call: Call,
    *,
    name: Annotated[str, Given("document, file, folder or collection; left out: everything")] = "",
    since: Annotated[str, Given("what differs from this branch, tag or commit, e.g. v1.0")] = "",
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
        report = changes.differing(ws, name, since)
        files = {each.collection for each in ws.sources.configured}
        names = [
            each.doc_id if each.collection in files else f"{each.collection}/{each.doc_id}" for each in report.documents
        ]
        changed = [f"{each.kind} {name}" for each, name in zip(report.documents, names, strict=True)]
        more = f", the first {LISTED}" if len(changed) > LISTED else ""
        said = f"{plural(len(changed), 'document')} changed since {since}{more}; "
        changed = changed[:LISTED]
    found = changes.steps(ws, name, since, limit)
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


class StateResult(ToolResult, frozen=True):
    """`pin`: the revision that the code pins; `revision`: what is read. `uncommitted` documents,
    and `files` that differ from HEAD or from what was imported from them, as `KIND NAME`.
    `unpushed`: revisions; null where there is no remote, or nothing is known of it. `next`: the
    command that helps.
    """

    whole_kb: ClassVar[bool] = True

    state: str
    code_branch: str | None
    pin: str | None
    revision: str | None
    documents: int
    uncommitted: list[str]
    files: list[str]
    unpushed: int | None
    reasons: list[str]
    next: str


@tool("R", of_files=True, includes=("dolt_status",))
def status(call: Call) -> StateResult:
    """Whether knowledge and code agree, which documents are not committed or not pinned, what is
    not pushed, and what to type next.
    """
    call.stands(texts.here(call.ws))
    found = statuses.status(call.ws, with_changes=True)
    pending, sources = found.changes, found.sources
    uncommitted = [f"{each.kind} {each.collection}/{each.doc_id}" for each in pending.documents] if pending else []
    files = [f"{each.kind} {each.path}" for each in pending.files.files] if pending else []
    files += [f"uncommitted {each.partition('/')[2]}" for each in sources.uncommitted] if sources else []
    more = _more(uncommitted, "uncommitted documents") + _more(files, "files")
    return StateResult(
        state=found.state,
        code_branch=found.git.branch,
        pin=found.pin.dolt_commit[:12] if found.pin else None,
        revision=found.kb.revision[:12] if found.kb.revision else None,
        documents=found.kb.documents,
        uncommitted=uncommitted[:LISTED],
        files=files[:LISTED],
        unpushed=pending.unpushed.revisions if pending and pending.unpushed else None,
        reasons=[*found.reasons, *more],
        next=found.hint or ("vmrag commit -m MESSAGE" if uncommitted else ""),
        message=f"{found.state.replace('_', ' ')}: {plural(len(uncommitted), 'uncommitted document')}.",
    )


def _more(names: Sequence[str], what: str) -> list[str]:
    return [f"{len(names) - LISTED} more {what}: vmrag status -v"] if len(names) > LISTED else []
