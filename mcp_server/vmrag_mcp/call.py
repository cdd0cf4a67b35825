"""One running call, as the function of a tool sees it.

A `Call` has the workspace, the client's tools and the user's consent. It collects the warnings of
the answer, and the block `kb` of the answer, which names the revision and the files that the answer
comes from (its *origin*). `session` creates one for each call of a tool, a resource or a prompt.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from vmrag_link import terminal_text
from vmrag_link.git import plumbing
from vmrag_link.models import Record
from vmrag_mcp.call_progress import CallProgress
from vmrag_mcp.options import ToolSelection
from vmrag_mcp.registry import ToolInfo
from vmrag_mcp.results import ToolWarning

if TYPE_CHECKING:  # a server answers `tools/list` before any of this is imported
    from vmrag_link.workspace import Workspace
    from vmrag_link.workspace.follow.provenance import AnswerOrigin, KbBlock


R = TypeVar("R")

NO_CONSENT: Mapping[str, bool] = {}
"""The user has not confirmed anything."""


class Behaviour(Record, frozen=True):
    """Settings of tools."""

    require_confirm: bool = True
    page_chars: int = 30_000
    """Maximum number of characters of a result (`cutting.cut_lists`). One whole document may be
    longer.
    """


class ProcessState:
    """State that calls leave for later calls of the same process."""

    def __init__(self) -> None:
        self.toolset_values: dict[str, object] = {}
        """State of toolsets, by the name of the toolset."""
        self.warned_not_set_up = False
        """An answer has explained how to set up the repository."""


class AnswerContext(NamedTuple):
    """The fields of an answer next to the tool's result."""

    kb: KbBlock | None = None
    copies: tuple[str, ...] = ()
    """Shown documents that are copies of tracked files, as COLLECTION/ID."""
    warnings: tuple[ToolWarning, ...] = ()


class Writer(NamedTuple):
    """The tool that writes, and the name of its client."""

    tool: ToolInfo
    agent: str


class Call:
    """One call of a tool, whose function gets it as its first argument."""

    def __init__(
        self,
        ws: Workspace,
        behaviour: Behaviour,
        progress: CallProgress,
        *,
        agreed: Mapping[str, bool] = NO_CONSENT,
        state: ProcessState,
        tools: ToolSelection | None = None,
        writer: Writer | None = None,
    ) -> None:
        self.ws = ws
        self.behaviour = behaviour
        self.agreed = agreed
        """Names that the user has confirmed, and whether vmrag remembers each one."""
        self.state = state
        self.tools = tools
        """The client's tools; None for all."""
        self.read_only = tools is not None and tools.choice.read_only
        self._progress = progress
        self._writer = writer
        self._warnings: list[ToolWarning] = []
        self._origin: AnswerOrigin | None = None
        self._shown: dict[tuple[str, str], None] = {}

    def commit_written(self) -> None:
        """Commit the documents that the call has stored, if `mcp.auto_commit` allows it.

        The session does so at the end of each call. A tool that reports uncommitted documents does
        so earlier.
        """
        if self._writer:
            from vmrag_mcp import auto_commit

            for warning in auto_commit.commit_written(self.ws, *self._writer):
                self.warn(warning.code, warning.message)
                self._origin = None  # `kb` shows the new revision

    def require_agreed(self, remote: str) -> None:
        """Require that this call may use a remote which its arguments name.

        The user's consent applies to this call. If the user asked to remember it, it also applies
        to later calls. Raises `RemoteMissing`, `RemoteInvalid` and `RemoteNotTrusted`.
        """
        from vmrag_link.workspace.remotes import destinations

        destinations.require_from_agent(self.ws, remote, agreed=self.agreed)
        if self.agreed.get(remote):
            destinations.trust_remote(self.ws, remote)

    def adapt_text(self, text: str) -> str:
        """Return a text without the parts that name tools which this server lacks
        (`advice.adapt_text`).
        """
        return self.tools.adapt_text(text) if self.tools else text

    def format_tail(self, advice: str) -> str:
        """Return `; ADVICE` for the end of a message; empty if the server lacks the tool that it
        names.
        """
        text = self.adapt_text(advice)
        return f"; {text}" if text else ""

    def warn(self, code: str, message: str) -> None:
        warning = ToolWarning(code, terminal_text.escape_controls(message))
        if warning not in self._warnings:
            self._warnings.append(warning)

    def warn_pending(self, reason: str) -> None:
        """Warn that the index does not have what was stored. An empty reason means that it does."""
        if reason:
            self.warn("INDEX_PENDING", reason)

    def accept_read(self, result: tuple[R, AnswerOrigin]) -> R:
        """Return the report of a read, and use its origin for the `kb` of the answer."""
        report, self._origin = result
        return report

    def warn_of_push(self) -> None:
        """Warn of commits and revisions that are not pushed together. Does not use the network."""
        from vmrag_link.ops.status.cautions import list_cautions

        pushes = self.ws.config.mcp.auto_push and not self.read_only  # when the call ends
        for caution in list_cautions(self.ws):
            if not (pushes and caution.code == "KNOWLEDGE_NOT_PUSHED"):
                self.warn(caution.code, caution.sentence)

    def find_origin(self) -> AnswerOrigin:
        """Follow the pin, and return the revision and files that this call reads.

        The answer's `kb` shows them. The index can be at another revision: a tool that uses the
        index calls `set_origin` with that revision.
        """
        from vmrag_link.workspace.follow.follow_pin import read_consistently
        from vmrag_link.workspace.follow.provenance import find_origin

        if self._origin is None:
            self._origin = read_consistently(self.ws, lambda: find_origin(self.ws), index=False)
        return self._origin

    def set_origin(self, origin: AnswerOrigin) -> None:
        """Use this origin, which the tool has found itself, for the `kb` of the answer."""
        self._origin = origin

    def add_quoted(self, documents: Iterable[tuple[str, str]]) -> None:
        """Record that the answer shows texts of these documents, by collection and id."""
        self._shown.update(dict.fromkeys(documents))

    def build_kb(self) -> KbBlock:
        """Return the block `kb`, and add its warnings.

        If the tool has not set an origin, the block shows where the workspace is now.
        """
        from vmrag_link.workspace.follow.provenance import coded_source_warnings, find_origin

        origin = self._origin or find_origin(self.ws)
        for note in origin.notes:
            self.warn("NOT_IN_SYNC", note)
        for code, sentence in coded_source_warnings(origin.kb):
            self.warn(code, sentence)
        if origin.kb.sources and not self.state.warned_not_set_up and self.ws.sources.is_proposed:
            self.state.warned_not_set_up = True
            from vmrag_link.workspace.answers.query import NOT_SET_UP

            self.warn("NOT_SET_UP", NOT_SET_UP)
        return origin.kb

    def build_context(self) -> AnswerContext:
        """Return the block `kb` and all warnings, at the end of the call."""
        kb = self.build_kb()
        copies = self._find_copies()
        for note in self._progress.notes:
            if all(terminal_text.escape_controls(note) != warning.message for warning in self._warnings):
                self.warn("NOTE", note)
        return AnswerContext(kb, copies, tuple(self._warnings))

    def _find_copies(self) -> tuple[str, ...]:
        """Return the shown documents of HEAD that are copies of tracked files, and warn of them."""
        if self._origin is None or not (self._origin.kb.versioned and self._origin.kb.in_sync):
            return ()
        files = self._origin.kb.sources
        stored_keys = [key for key in self._shown if files is None or key[0] not in files.collections]
        if not stored_keys:
            return ()
        commit = files.commit if files else self._origin.kb.git_head
        if (commit or "") != (plumbing.read_head(self.ws.places).commit or ""):
            return ()  # a copy at another ref is as old as its file
        from vmrag_link.workspace.documents import copies

        stored_copies = copies.find_copies_by_name(self.ws, self._origin.at, stored_keys)
        if stored_copies:
            self.warn(copies.CODE, copies.form_sentence(stored_copies))
        return tuple(f"{copy.collection}/{copy.doc_id}" for copy in stored_copies)
