"""Run calls of tools in threads. Each running call has a workspace of its own.

The next call uses the same workspace if the files below it have not changed.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from vmrag_link import agreements, terminal_text
from vmrag_link.engines import opening
from vmrag_link.errors import NotInitialized, UsageError, VmragError, system_failure
from vmrag_link.file_access import read_file_stamps
from vmrag_link.git import configuration, plumbing
from vmrag_link.git.run import answering_agent
from vmrag_link.models import Record
from vmrag_mcp import envelope
from vmrag_mcp.arguments import format_usage, parse_arguments, read_parameters
from vmrag_mcp.auto_commit import UnpushedRevisions
from vmrag_mcp.client_tools import EnabledTools
from vmrag_mcp.options import ToolSelection
from vmrag_mcp.process import CallProgress
from vmrag_mcp.registry import ToolDeclaration, ToolInfo, import_function
from vmrag_mcp.results import TextResult, ToolResult, ToolWarning

if TYPE_CHECKING:  # a server answers `tools/list` before any of this is imported
    from vmrag_link.embedding.base import Model
    from vmrag_link.embedding.registry import ModelChoice
    from vmrag_link.workspace import DocumentStore, ReadableStore, Workspace
    from vmrag_link.workspace.documents.writing import WriteResult
    from vmrag_link.workspace.follow.provenance import AnswerOrigin, KbBlock


R = TypeVar("R")


class CallOutcome(NamedTuple):
    """The answer to a call of a tool."""

    content: dict[str, Any] | str
    """An object; the text of an essential tool; the envelope of an error if the call failed."""
    failed: bool

    @property
    def failure(self) -> Mapping[str, Any]:
        """The envelope of the error; empty if the call succeeded."""
        return self.content if self.failed and isinstance(self.content, dict) else {}


class Behaviour(Record, frozen=True):
    """Settings of tools."""

    require_confirm: bool = True
    page_chars: int = 30_000
    """Maximum number of characters of a result (`envelope.cut_lists`). One whole document may be
    longer.
    """


Stamps = tuple[object, ...]
"""Stamps of files. They are equal if no file has changed."""

NOTHING: Mapping[str, bool] = {}
"""The user has not confirmed anything."""


class ProcessState:
    """State that calls leave for later calls of the same process."""

    def __init__(self) -> None:
        self.toolset_values: dict[str, object] = {}
        """State of toolsets, by the name of the toolset."""
        self.warned_not_set_up = False
        """An answer has explained how to set up the repository."""


class Call:
    """One call of a tool. The function of the tool gets it as its first argument."""

    def __init__(
        self,
        ws: Workspace,
        behaviour: Behaviour,
        progress: CallProgress,
        agreed: Mapping[str, bool] = NOTHING,
        *,
        state: ProcessState | None = None,
        tools: ToolSelection | None = None,
    ) -> None:
        self.ws = ws
        self.state = state or ProcessState()
        self.tools = tools
        self.read_only = tools is not None and tools.choice.read_only
        self.behaviour = behaviour
        self.warnings: list[ToolWarning] = []
        self._progress = progress
        self.agreed = agreed
        self._origin: AnswerOrigin | None = None
        self._quoted: dict[tuple[str, str], None] = {}
        self.writer: tuple[ToolInfo, str] | None = None
        """The tool that writes, and the name of its client."""

    def commit_written(self) -> None:
        """Commit the documents that the call has stored, if `mcp.auto_commit` allows it.

        The session does so at the end of each call. A tool that reports uncommitted documents does
        so earlier.
        """
        if self.writer:
            from vmrag_mcp import auto_commit

            self.report_commit(auto_commit.commit_written(self.ws, *self.writer))

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
        (`options.adapt_text`).
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
        if warning not in self.warnings:
            self.warnings.append(warning)

    def warn_pending(self, reason: str) -> None:
        """Warn that the index does not have what was stored. An empty reason means that it does."""
        if reason:
            self.warn("INDEX_PENDING", reason)

    def warn_pending_note(self, reason: str) -> None:
        """Warn that git's index does not have a new note. An empty reason means that it does."""
        if reason:
            self.warn("NOTE", reason)

    def accept_write(self, result: WriteResult[R]) -> R:
        """Return the report of a write, and warn if the index does not have its documents."""
        self.warn_pending(result.pending)
        return result.report

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

    def find_store(self, collection: str) -> DocumentStore:
        """Return the store of a collection: the knowledge base, or the store of this machine."""
        from vmrag_link.ops.stores import stores

        return stores.find_store(self.ws, collection)

    def find_readable(self, collection: str) -> ReadableStore:
        """Return what reads a collection: its store, or the files of its source."""
        from vmrag_link.ops.stores import stores

        return stores.find_readable(self.ws, collection)

    def set_origin(self, origin: AnswerOrigin) -> None:
        """Use this origin, which the tool has found itself, for the `kb` of the answer."""
        self._origin = origin

    def report_commit(self, warnings: Iterable[tuple[str, str]]) -> None:
        """Add the warnings of a commit by code. If there are any, `kb` shows the new revision."""
        for code, message in warnings:
            self.warn(code, message)
            self._origin = None

    def add_quoted(self, documents: Iterable[tuple[str, str]]) -> None:
        """Record that the answer shows texts of these documents, by collection and id."""
        self._quoted.update(dict.fromkeys(documents))

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

    def find_copies(self) -> list[str]:
        """Return the shown documents of HEAD that are copies of tracked files, and warn of them."""
        if self._origin is None or not (self._origin.kb.versioned and self._origin.kb.in_sync):
            return []
        files = self._origin.kb.sources
        commit = files.commit if files else self._origin.kb.git_head
        if (commit or "") != (plumbing.read_head(self.ws.places).commit or ""):
            return []  # a copy at another ref is as old as its file
        quoted = [key for key in self._quoted if files is None or key[0] not in files.collections]
        if not quoted:
            return []
        from vmrag_link.workspace.documents import copies

        stored = copies.find_copies_by_name(self.ws, self._origin.at, quoted)
        if stored:
            self.warn(copies.CODE, copies.form_sentence(stored))
        return [f"{copy.collection}/{copy.doc_id}" for copy in stored]

    def collect_warnings(self) -> list[ToolWarning]:
        """Return the warnings of the call and the notes of its operations."""
        for note in self._progress.notes:
            if all(terminal_text.escape_controls(note) != warning.message for warning in self.warnings):
                self.warn("NOTE", note)
        return self.warnings


class _IdleWorkspace(NamedTuple):
    """A workspace without a call, and the stamps of its files."""

    workspace: Workspace
    settings_stamps: Stamps
    """From the time of opening, because a person can change these files during a call."""
    kb_stamps: Stamps
    """From the end of the last call, which can have written to these files."""


class Session:
    """Runs calls for one repository, from several threads at once. Writers wait for each other.

    `tools` are the tools of clients that the server cannot tell apart.
    """

    def __init__(self, directory: Path, behaviour: Behaviour) -> None:
        self.directory = directory
        self.behaviour = behaviour
        self.tools: EnabledTools | None = None
        self.state = ProcessState()
        self._unpushed = UnpushedRevisions()
        self._idle: queue.LifoQueue[_IdleWorkspace] = queue.LifoQueue()
        self._models: dict[ModelChoice, Model] = {}
        self._writing = threading.Lock()
        self._kb_fetched = threading.Event()
        """A call has fetched the knowledge base, and no answer has named the next command yet."""

    def run_tool(
        self,
        tool: ToolInfo,
        arguments: Mapping[str, Any],
        progress: CallProgress,
        agreed: Mapping[str, bool] = NOTHING,
        tools: EnabledTools | None = None,
        *,
        agent: str = "",
    ) -> CallOutcome:
        """Call a tool, and return its answer or the envelope of its error.

        `agreed` has the addresses, hosts, toolsets and files that the user, not the agent, has
        confirmed. Its values decide if vmrag remembers each one. `tools` are the client's tools,
        and `agent` is its name. Raises only `Cancelled`.
        """
        enabled = tools or self.tools
        try:
            with contextlib.nullcontext() if tool.reads else self._writing:
                answer = self._run_function(tool, arguments, progress, agreed, enabled, agent=agent)
            return CallOutcome(answer, failed=False)
        except VmragError as error:
            failure = error
        except Exception as error:  # noqa: BLE001  the outermost boundary
            failure = system_failure(error) or self._log_bug(error, tool.name)
        selection = enabled.selection if enabled else None
        content = envelope.build_failure(failure, selection, max_characters=self.behaviour.page_chars)
        return CallOutcome(content, failed=True)

    def _run_function(
        self,
        tool: ToolInfo,
        arguments: Mapping[str, Any],
        progress: CallProgress,
        agreed: Mapping[str, bool],
        tools: EnabledTools | None,
        *,
        agent: str,
    ) -> dict[str, Any] | str:
        selection = tools.selection if tools else None
        function = import_function(tool)
        keywords, warnings = _parse_arguments(tool, function, arguments, selection)
        declaration: ToolDeclaration = function.__dict__["declared"]
        if declaration.about_server:
            return self._build_answer(function(tools, agreed, **keywords), None, warnings)
        with self.open_call(
            progress,
            without_kb=declaration.without_kb,
            reads_files=declaration.reads_files,
            reads_git=declaration.reads_git,
            agreed=agreed,
            tools=selection,
        ) as call:
            for warning in warnings:
                call.warn(warning.code, warning.message)
            call.writer = None if tool.reads else (tool, agent)
            result = function(call, **keywords)
            call.commit_written()
            self._push_revisions(call, tool)
            kb, copies = call.build_kb(), call.find_copies()
            return self._build_answer(result, kb, call.collect_warnings(), offset=keywords.get("offset"), copies=copies)

    def _push_revisions(self, call: Call, tool: ToolInfo) -> None:
        """Push revisions of pushed code if `mcp.auto_push` allows it, or else warn of them."""
        lock = self._writing if tool.reads else contextlib.nullcontext()  # a writer holds it already
        for code, message in self._unpushed.push_or_warn(call.ws, None if call.read_only else lock):
            call.warn(code, message)
        if self._kb_fetched.is_set():
            self._kb_fetched.clear()
            call.warn_of_push()

    def _build_answer(
        self,
        result: ToolResult,
        kb: KbBlock | None,
        warnings: list[ToolWarning],
        *,
        offset: int | None = None,
        copies: Sequence[str] = (),
    ) -> dict[str, Any] | str:
        if isinstance(result, TextResult):
            return envelope.build_success_text(result, kb, warnings)
        max_characters = self.behaviour.page_chars
        return envelope.build_success(result, kb, warnings, max_characters=max_characters, offset=offset, copies=copies)

    @contextlib.contextmanager
    def open_call(
        self,
        progress: CallProgress,
        *,
        without_kb: bool = False,
        reads_files: bool = False,
        reads_git: bool = False,
        agreed: Mapping[str, bool] = NOTHING,
        tools: ToolSelection | None = None,
    ) -> Iterator[Call]:
        """Open the call of a tool, a resource or a prompt.

        Raises `NotInitialized` if the knowledge base is missing and cannot be fetched. There are
        three exceptions: the call works `without_kb`, it `reads_files` and sources match files, or
        it `reads_git`.
        """
        with answering_agent(), self._open_workspace(progress) as ws:
            if not without_kb:
                self._require_documents(ws, progress, reads_files=reads_files, reads_git=reads_git)
            yield Call(ws, self.behaviour, progress, agreed, state=self.state, tools=tools)

    def _require_documents(self, ws: Workspace, progress: CallProgress, *, reads_files: bool, reads_git: bool) -> None:
        """Fetch a missing knowledge base, or require that files or git can answer (`open_call`)."""
        if not ws.is_initialized:
            from vmrag_link.workspace.follow import lazy_fetch

            try:
                if lazy_fetch.fetch_pinned(ws):
                    self._kb_fetched.set()
            except VmragError as error:
                if not reads_git and not (reads_files and ws.sources.configured and isinstance(error, NotInitialized)):
                    raise
                progress.notes.clear()  # the answer reports what is missing
        if not ws.is_initialized and (reads_git or (reads_files and ws.sources.configured)):
            return
        if reads_files and not reads_git and ws.stores_nothing:
            raise NotInitialized(
                "this repository has nothing to search yet.", hint="run 'vmrag init' to set up this repository"
            )
        if not reads_git:
            ws.engine  # noqa: B018  raises if there is no knowledge base
        if ws.current_revision is None:
            _follow_first_pin(ws)

    @contextlib.contextmanager
    def _open_workspace(self, progress: CallProgress) -> Iterator[Workspace]:
        """Yield a workspace that no other call uses. Raises `GitRepositoryMissing`."""
        from vmrag_link.workspace import Workspace

        def open_workspace() -> tuple[Workspace, Stamps]:
            ws = Workspace.open(self.directory, progress, models=self._models)
            return ws, _read_settings_stamps(ws)

        try:
            ws, settings_stamps, kb_stamps = self._idle.get_nowait()
            if (_read_settings_stamps(ws), _read_kb_stamps(ws)) != (settings_stamps, kb_stamps):
                ws.close()
                ws, settings_stamps = open_workspace()
        except queue.Empty:
            ws, settings_stamps = open_workspace()
        ws.progress = progress
        succeeded = False
        try:
            yield ws
            succeeded = True
        finally:
            if succeeded:
                ws.release_files()
                self._idle.put(_IdleWorkspace(ws, settings_stamps, _read_kb_stamps(ws)))
            else:  # the engine's connection may be inside a transaction
                ws.close()

    def source_state(self) -> str:
        """Return a text that changes with the files of sources; empty without sources.

        Raises `VmragError` if the files cannot be listed.
        """
        from vmrag_link.sources.listings import compute_token
        from vmrag_link.workspace import source_tree

        with self._open_workspace(CallProgress()) as ws:
            tree = source_tree.read_work_tree(ws)
            return compute_token(tree.listing) if tree else ""

    def warm_up(self) -> None:
        """Load the models that the first query needs. If that fails, the first query reports it."""
        with contextlib.suppress(VmragError), self._open_workspace(CallProgress()) as ws:
            for collection in ws.engine.list_collections(ws.require_revision()) if ws.is_initialized else ():
                if (model := ws.models.load_for(collection)).local:
                    model.embed_queries([collection.name])

    def _log_bug(self, error: Exception, tool: str) -> VmragError:
        from vmrag_link.ops import buglog

        return envelope.build_internal_error(buglog.write_log(error, ["-C", str(self.directory), "mcp", tool]))


def _parse_arguments(
    tool: ToolInfo, function: Callable[..., Any], arguments: Mapping[str, Any], selection: ToolSelection | None
) -> tuple[dict[str, Any], list[ToolWarning]]:
    """Return the keywords for the function of a tool, and warnings about them.

    Raises `UsageError` with the usage of the tool as its hint, and `ToolDisabled`.
    """
    warnings: list[ToolWarning] = []
    parameters = read_parameters(function)
    try:
        keywords = parse_arguments(parameters, arguments, lambda *warning: warnings.append(ToolWarning(*warning)))
    except UsageError as error:
        names = selection.tools if selection else {}
        name = next((name for name, other in names.items() if other is tool), tool.name)
        error.hint = error.hint or format_usage(name, parameters)
        raise
    if selection:
        selection.require_arguments(tool, keywords)
    return keywords, warnings


def _follow_first_pin(ws: Workspace) -> None:
    """Follow the pin of a work tree that has no revision yet, such as a fresh clone.

    Errors are ignored here: a tool that reads reports them.
    """
    from vmrag_link.workspace.follow.follow_pin import follow

    with contextlib.suppress(VmragError):
        follow(ws, index=False, tolerate="failures")


def _read_settings_stamps(ws: Workspace) -> Stamps:
    """Return the stamps of the settings and trust files that a workspace has read."""
    places = ws.places
    return configuration.read_stamp(places), read_file_stamps((places.config, *agreements.list_files(places)))


def _read_kb_stamps(ws: Workspace) -> Stamps:
    """Return the stamps of the open knowledge base."""
    places = ws.places
    return _read_inode(places.git_dir), opening.read_stamp(places.kb), opening.read_stamp(places.local_kb)


def _read_inode(path: Path) -> int | None:
    """Return the number of a folder, which changes if the folder is replaced."""
    try:
        return path.stat().st_ino
    except OSError:
        return None
