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
from typing import TYPE_CHECKING, NamedTuple

from vmrag_link import terminal_text
from vmrag_link.errors import NoChanges, VmragError, first_of
from vmrag_link.terminal_text import cut_text
from vmrag_mcp.results import ToolWarning

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from vmrag_link.ops.status.changes import PendingDocument
    from vmrag_link.workspace import Workspace
    from vmrag_link.workspace.remotes.unpushed import UnpushedPin
    from vmrag_mcp.registry import ToolInfo

_MAX_CLIENT_CHARACTERS = 80
_MAX_SUBJECT_CHARACTERS = 100
_MAX_LISTED_DOCUMENTS = 50
"""Maximum number of documents that the message of a commit names."""
_RETRY_SECONDS = 60.0
"""Pause after a failed push to a remote, so that not every call waits for it."""


def commit_written(ws: Workspace, tool: ToolInfo, agent: str) -> list[ToolWarning]:
    """Commit the documents that a call has left uncommitted. `agent` is the client's name.

    Returns warnings. If the commit fails, the documents are still stored: a warning gives the
    reason, and the next write also commits them. Tools that change history report uncommitted
    documents themselves.
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
        return " ".join(warning.message for warning in warnings)
    return f"branch {branch.name!r} has uncommitted documents; run 'vmrag commit' to commit them"


def _commit_uncommitted(ws: Workspace, tool: str, agent: str = "") -> list[ToolWarning]:
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
        return [ToolWarning("NOT_COMMITTED", f"Stored the documents, but could not commit them: {error.sentence}")]
    staged = (
        "is staged" if report.staged else "could not be staged because git's index was locked (git add .dolt-version)"
    )
    advice = f"; .dolt-version {staged}: commit it with git, together with the code" if report.pin else ""
    warnings = [ToolWarning("COMMITTED", f"Committed as {report.revision[:7]}{advice}.")]
    if report.pending:
        warnings.append(ToolWarning("INDEX_PENDING", report.pending))
    return warnings


def format_message(tool: str, agent: str, documents: Sequence[PendingDocument]) -> str:
    """Return the message of a commit: the tool, the client's name for itself, and the documents.

    The first line is short enough for a list of commits. If it names only some documents, the next
    lines name all of them, up to a limit.
    """
    client = " ".join(terminal_text.escape_controls(agent).split())[:_MAX_CLIENT_CHARACTERS]
    subject = f"{tool} by {client}" if client else tool
    if not documents:
        return subject
    names = [document.shown_name for document in documents]
    first = cut_text(f"{subject}: {first_of(names, 1)}", _MAX_SUBJECT_CHARACTERS)
    if len(names) == 1 and names[0] in first:
        return first
    more = [f"and {len(names) - _MAX_LISTED_DOCUMENTS} more"] if len(names) > _MAX_LISTED_DOCUMENTS else []
    lines = [f"{document.kind} {document.shown_name}" for document in documents[:_MAX_LISTED_DOCUMENTS]]
    return "\n".join([first, "", *lines, *more])


class _FailedPush(NamedTuple):
    time: float
    """From the monotonic clock, in seconds."""
    warning: ToolWarning


class UnpushedRevisions:
    """Revisions that pushed code pins and its remote lacks, over all calls of one server."""

    def __init__(self) -> None:
        self._reported: tuple[UnpushedPin, ...] = ()
        self._failed: _FailedPush | None = None

    def push_or_warn(self, ws: Workspace, lock: AbstractContextManager[object] | None) -> list[ToolWarning]:
        """Push missing revisions, or warn once that they are missing.

        Returns warnings, also about a successful push. `lock` keeps other threads from writing.
        With None, this server does not push.
        """
        from vmrag_link.ops.status import cautions

        unpushed = cautions.list_unpushed_quietly(ws)
        is_new = unpushed != self._reported
        if unpushed and lock and ws.config.mcp.auto_push:
            with lock:
                return [self._push(ws, unpushed, is_new=is_new)]
        self._reported = unpushed
        return _build_warning(ws, unpushed) if is_new else []

    def _push(self, ws: Workspace, unpushed: tuple[UnpushedPin, ...], *, is_new: bool) -> ToolWarning:
        if self._failed and not is_new and time.monotonic() - self._failed.time < _RETRY_SECONDS:
            return self._failed.warning
        from vmrag_link.ops import push

        self._reported = unpushed
        self._failed = None
        try:
            push.push_unpushed(ws, unpushed)
        except VmragError as error:
            [warning] = _build_warning(ws, unpushed)
            failure = ToolWarning("NOT_PUSHED", f"{warning.message} The push failed: {error.sentence}")
            self._failed = _FailedPush(time.monotonic(), failure)
            return failure
        remotes = " and ".join(dict.fromkeys(pin.remote for pin in unpushed))
        refs = ", ".join(pin.ref for pin in unpushed)
        message = f"Pushed the revisions that {refs} pins to {remotes}, because the code was pushed without them."
        return ToolWarning("PUSHED", message)


def _build_warning(ws: Workspace, unpushed: tuple[UnpushedPin, ...]) -> list[ToolWarning]:
    from vmrag_link.ops.status.cautions import build_not_pushed

    caution = build_not_pushed(ws, unpushed)
    return [ToolWarning(caution.code, caution.sentence)] if caution else []
