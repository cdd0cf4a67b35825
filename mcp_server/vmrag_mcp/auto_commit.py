"""Commits and pushes at the end of a call, if the user has enabled them.

With `mcp.auto_commit: write`, the documents that a tool has written are committed before its
answer. The pin is staged in the same call, as by `vmrag commit`. The documents are therefore part
of the next commit of the code, whichever program makes it, and whether or not it runs hooks. They
reach `main` with that commit, and no other branch pins them.

With `mcp.auto_push`, the server pushes the knowledge base for code that was pushed without it.
Otherwise the answer has a warning.
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
"""Maximum number of documents that the message of a commit names."""
_RETRY_SECONDS = 60.0
"""Pause after a failed push to a remote, so that not every call waits for it."""


def commit_written(ws: Workspace, tool: ToolInfo, agent: str) -> list[tuple[str, str]]:
    """Commit the documents that a call has left uncommitted. `agent` is the client's name.

    Returns the code and the sentence of each warning. If the commit fails, the documents are still
    stored: a warning gives the reason, and the next write also commits them. Tools that change
    history report uncommitted documents themselves.
    """
    if tool.changes_history:
        return []
    return _commit_uncommitted(ws, tool.name, agent)


def end_turn(ws: Workspace) -> str:
    """Commit uncommitted documents at the end of an agent's turn, if the user has enabled that.

    Returns a sentence about the commit, or about documents that stay uncommitted; empty if there
    are none.
    """
    warnings = _commit_uncommitted(ws, "end of turn")
    branch = ws.find_kb_branch() if ws.is_initialized else None
    if warnings or branch is None or not branch.dirty:
        return " ".join(sentence for _, sentence in warnings)
    return f"branch {branch.name!r} has uncommitted documents; run 'vmrag commit' to commit them"


def _commit_uncommitted(ws: Workspace, tool: str, agent: str = "") -> list[tuple[str, str]]:
    if not ws.is_initialized or ws.config.mcp.auto_commit == "off":
        return []
    from vmrag_link.ops.commit.commit import commit
    from vmrag_link.ops.status.changes import list_uncommitted
    from vmrag_link.workspace.merge import merge_state

    try:
        branch = ws.find_kb_branch()
        if branch is None or not branch.dirty or merge_state.recover_merge(ws):
            return []
        report = commit(ws, format_message(tool, agent, list_uncommitted(ws, branch)))
    except NoChanges:
        return []
    except VmragError as error:
        return [("NOT_COMMITTED", f"Stored the documents, but could not commit them: {error.sentence}")]
    staged = (
        "is staged" if report.staged else "could not be staged because git's index was locked (git add .dolt-version)"
    )
    advice = f"; .dolt-version {staged}: commit it with git, together with the code" if report.pin else ""
    warnings = [("COMMITTED", f"Committed as {report.revision[:7]}{advice}.")]
    return [*warnings, ("INDEX_PENDING", report.pending)] if report.pending else warnings


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


class UnpushedRevisions:
    """Revisions that pushed code pins and its remote lacks, over all calls of one server."""

    def __init__(self) -> None:
        self._reported: tuple[UnpushedPin, ...] = ()
        self._failed: tuple[float, tuple[str, str]] | None = None

    def push_or_warn(self, ws: Workspace, sending: AbstractContextManager[object] | None) -> list[tuple[str, str]]:
        """Push missing revisions, or warn once that they are missing.

        Returns the code and the sentence of each warning. `sending` keeps other threads from
        writing. With None, this server does not push.
        """
        from vmrag_link.ops.status import cautions

        unpushed = cautions.list_unpushed_quietly(ws)
        is_new = unpushed != self._reported
        if unpushed and sending and ws.config.mcp.auto_push:
            with sending:
                return [self._push(ws, unpushed, is_new=is_new)]
        self._reported = unpushed
        return self._build_warning(ws, unpushed) if is_new else []

    def _push(self, ws: Workspace, unpushed: tuple[UnpushedPin, ...], *, is_new: bool) -> tuple[str, str]:
        if self._failed and not is_new and time.monotonic() - self._failed[0] < _RETRY_SECONDS:
            return self._failed[1]
        from vmrag_link.ops import push

        self._reported, self._failed = unpushed, None
        try:
            push.push_unpushed(ws, unpushed)
        except VmragError as error:
            [(_, sentence)] = self._build_warning(ws, unpushed)
            self._failed = time.monotonic(), ("NOT_PUSHED", f"{sentence} The push failed: {error.sentence}")
            return self._failed[1]
        places = " and ".join(dict.fromkeys(pin.remote for pin in unpushed))
        refs = ", ".join(pin.ref for pin in unpushed)
        return "PUSHED", f"Pushed the revisions that {refs} pins to {places}, because the code was pushed without them."

    @staticmethod
    def _build_warning(ws: Workspace, unpushed: tuple[UnpushedPin, ...]) -> list[tuple[str, str]]:
        from vmrag_link.ops.status.cautions import build_not_pushed

        caution = build_not_pushed(ws, unpushed)
        return [(caution.code, caution.sentence)] if caution else []
