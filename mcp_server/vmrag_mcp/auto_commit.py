"""`mcp.auto_commit: write`: what a tool has written is committed before its answer is given.

The pin is staged in the same call, as `vmrag commit` does it. So what an agent was told is kept
goes with the next commit of the code, whichever program makes that and whether it runs hooks, and
comes to `main` with that: no other branch pins it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vmrag_link import terminal_text
from vmrag_link.errors import NoChanges, VmragError

if TYPE_CHECKING:
    from vmrag_link.workspace import Workspace
    from vmrag_mcp.registry import ToolInfo

_LONGEST_NAME = 80


def commit_written(ws: Workspace, tool: ToolInfo, agent: str) -> list[tuple[str, str]]:
    """Commit what a call has left uncommitted; `agent`: how the client calls itself. Tools that
    change history say themselves what becomes of uncommitted documents.

    Returns warnings by code. The documents are stored, whatever happens here: one says why they are
    not committed, and the next write commits them, too.
    """
    if "V" in tool.effect or not ws.initialized or ws.config.mcp.auto_commit == "off":
        return []
    from vmrag_link.ops.branches.commit import commit
    from vmrag_link.ops.merge import merge_state

    try:
        branch = ws.kb_branch()
        if branch is None or not branch.dirty or merge_state.opened(ws):
            return []
        report = commit(ws, message(tool.name, agent))
    except NoChanges:
        return []
    except VmragError as why:
        return [("NOT_COMMITTED", f"The documents are stored, but not committed: {why.sentence}")]
    staged = "is staged" if report.staged else "could not be staged, because git held its index (git add .dolt-version)"
    then = f"; .dolt-version {staged}: commit it with git, with the code it belongs to" if report.pin else ""
    said = [("COMMITTED", f"Committed as {report.revision[:7]}{then}.")]
    return [*said, ("INDEX_PENDING", report.pending)] if report.pending else said


def message(tool: str, agent: str) -> str:
    """Of the commit; the agent's name is the client's word."""
    name = " ".join(terminal_text.visible(agent).split())[:_LONGEST_NAME]
    return f"{tool} by {name}" if name else tool
