"""The tool status, and its result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from vmrag_link.errors import plural
from vmrag_link.ops.status import status as statuses
from vmrag_link.toolsets.essential import texts
from vmrag_mcp.registry import tool
from vmrag_mcp.results import ToolResult
from vmrag_mcp.session import Call

LISTED = 50
"""Documents and files that an answer names of each kind."""


class StateResult(ToolResult, frozen=True):
    """`pin`: the revision that the code pins; `revision`: what is read. `uncommitted` documents,
    and `files` of sources that differ from HEAD, as `KIND NAME`. `unpushed`: revisions; null where
    there is no remote, or nothing is known of it. `next`: the command that helps.
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


@tool("R", of_files=True, includes=("dolt_status",), same_effect=("dolt_status",))
def status(call: Call) -> StateResult:
    """Whether knowledge and code agree, which documents are not committed or not pinned, what is
    not pushed, and what to type next.
    """
    call.stands(texts.here(call.ws))
    found = statuses.status(call.ws, with_changes=True)
    pending, sources = found.changes, found.sources
    uncommitted = [f"{each.kind} {each.collection}/{each.doc_id}" for each in pending.documents] if pending else []
    files = [f"uncommitted {path}" for path in sources.edited] if sources else []
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
