"""What a call ends with where a person agreed to it.

`mcp.auto_commit: write`: what a tool has written is committed before its answer is given. The pin
is staged in the same call, as `vmrag commit` does it. So what an agent was told is kept goes with
the next commit of the code, whichever program makes that and whether it runs hooks, and comes to
`main` with that: no other branch pins it.

`mcp.auto_push`: code that such a program has pushed without its knowledge gets it. Without that,
the answer says so.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from vmrag_link import terminal_text
from vmrag_link.errors import NoChanges, VmragError, first_of
from vmrag_link.terminal_text import cut_text

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from vmrag_link.ops.status.changes import PendingDocument
    from vmrag_link.workspace import Workspace
    from vmrag_link.workspace.remotes.unpushed import UnpushedPin
    from vmrag_mcp.registry import ToolInfo

_LONGEST_NAME = 80
_LONGEST_SUBJECT = 100
_LISTED = 50
"""Documents that the message of a commit names."""
_RETRY_SECONDS = 60.0
"""How long a remote is left alone that could not be pushed to: no call should wait each time."""


def commit_written(ws: Workspace, tool: ToolInfo, agent: str) -> list[tuple[str, str]]:
    """Commit what a call has left uncommitted; `agent`: how the client calls itself. Tools that
    change history say themselves what becomes of uncommitted documents.

    Returns warnings by code. The documents are stored, whatever happens here: one says why they are
    not committed, and the next write commits them, too.
    """
    if "V" in tool.effect:
        return []
    return _commit(ws, tool.name, agent)


def end_turn(ws: Workspace) -> str:
    """At the end of an agent's turn: what is left uncommitted is committed where that is agreed to;
    elsewhere a sentence says so. Empty where there is nothing.
    """
    said = _commit(ws, "end of turn")
    branch = ws.find_kb_branch() if ws.is_initialized else None
    if said or branch is None or not branch.dirty:
        return " ".join(sentence for _, sentence in said)
    return f"Documents of {branch.name!r} are not committed: vmrag commit"


def _commit(ws: Workspace, what: str, agent: str = "") -> list[tuple[str, str]]:
    if not ws.is_initialized or ws.config.mcp.auto_commit == "off":
        return []
    from vmrag_link.ops.commit.commit import commit
    from vmrag_link.ops.status.changes import list_uncommitted
    from vmrag_link.workspace.merge import merge_state

    try:
        branch = ws.find_kb_branch()
        if branch is None or not branch.dirty or merge_state.recover_merge(ws):
            return []
        report = commit(ws, format_message(what, agent, list_uncommitted(ws, branch)))
    except NoChanges:
        return []
    except VmragError as why:
        return [("NOT_COMMITTED", f"The documents are stored, but not committed: {why.sentence}")]
    staged = "is staged" if report.staged else "could not be staged, because git held its index (git add .dolt-version)"
    then = f"; .dolt-version {staged}: commit it with git, with the code it belongs to" if report.pin else ""
    said = [("COMMITTED", f"Committed as {report.revision[:7]}{then}.")]
    return [*said, ("INDEX_PENDING", report.pending)] if report.pending else said


def format_message(tool: str, agent: str, documents: Sequence[PendingDocument]) -> str:
    """Return the message of a commit: the tool, the client's name for itself, and the documents.

    The first line is short enough for a list of commits. If it names only some documents, the next
    lines name all of them, up to a limit.
    """
    client = " ".join(terminal_text.escape_controls(agent).split())[:_LONGEST_NAME]
    subject = f"{tool} by {client}" if client else tool
    if not documents:
        return subject
    names = [document.shown_name for document in documents]
    first = cut_text(f"{subject}: {first_of(names, 1)}", _LONGEST_SUBJECT)
    if len(names) == 1 and names[0] in first:
        return first
    more = [f"and {len(names) - _LISTED} more"] if len(names) > _LISTED else []
    lines = [f"{document.kind} {document.shown_name}" for document in documents[:_LISTED]]
    return "\n".join([first, "", *lines, *more])


class Unsent:
    """Knowledge that pushed code lacks, over the calls of one server."""

    def __init__(self) -> None:
        self._said: tuple[UnpushedPin, ...] = ()
        self._failed: tuple[float, tuple[str, str]] | None = None

    def push_or_warn(self, ws: Workspace, sending: AbstractContextManager[object] | None) -> list[tuple[str, str]]:
        """Send it, while `sending` keeps others from writing, or say once that it is missing;
        warnings by code. None: this server sends nothing.
        """
        from vmrag_link.ops.status import cautions

        found = cautions.list_unsent(ws)
        news = found != self._said
        if found and sending and ws.config.mcp.auto_push:
            with sending:
                return [self._send(ws, found, news=news)]
        self._said = found
        return self._tell(ws, found) if news else []

    def _send(self, ws: Workspace, found: tuple[UnpushedPin, ...], *, news: bool) -> tuple[str, str]:
        if self._failed and not news and time.monotonic() - self._failed[0] < _RETRY_SECONDS:
            return self._failed[1]
        from vmrag_link.ops import push

        self._said, self._failed = found, None
        try:
            push.push_unpushed(ws, found)
        except VmragError as why:
            [(_, said)] = self._tell(ws, found)
            self._failed = time.monotonic(), ("NOT_PUSHED", f"{said} It could not be sent: {why.sentence}")
            return self._failed[1]
        places = " and ".join(dict.fromkeys(each.remote for each in found))
        which = ", ".join(each.ref for each in found)
        return "PUSHED", f"The knowledge that {which} pins was sent to {places}: the code was pushed without it."

    @staticmethod
    def _tell(ws: Workspace, found: tuple[UnpushedPin, ...]) -> list[tuple[str, str]]:
        from vmrag_link.ops.status.cautions import build_not_pushed

        caution = build_not_pushed(ws, found)
        return [(caution.code, caution.sentence)] if caution else []
