"""Calls of tools in threads, each with a workspace to itself.

A workspace serves the next call as well, while the files under it stay as they were.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from vmrag_link import terminal_text
from vmrag_link import trust as agreements
from vmrag_link.engines import opening
from vmrag_link.errors import NotInitialized, UsageError, VmragError, system_failure
from vmrag_link.git import configuration
from vmrag_link.git.run import answering_agent
from vmrag_link.models import Record
from vmrag_link.paths import read_file_stamps
from vmrag_mcp import arguments as given
from vmrag_mcp import envelope
from vmrag_mcp.auto_commit import Unsent
from vmrag_mcp.client_tools import EnabledTools
from vmrag_mcp.options import ToolSelection
from vmrag_mcp.process import CallProgress
from vmrag_mcp.registry import ToolDeclaration, ToolInfo, import_function
from vmrag_mcp.results import TextResult, ToolWarning

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
    """Settings of tools. `page_chars`: the most text in a result (`envelope.cut`), unless it is one
    document's.
    """

    require_confirm: bool = True
    page_chars: int = 30_000


Looks = tuple[object, ...]
"""Equal as long as nobody has changed what was looked at."""

NOTHING: Mapping[str, bool] = {}
"""Nothing was put to the person."""


class ProcessState:
    """What calls leave for later ones of the same process. `kept`: by toolset, what is its own;
    `told_of_setup`: an answer has said how to go on where nothing is set up.
    """

    def __init__(self) -> None:
        self.toolset_values: dict[str, object] = {}
        self.warned_not_set_up = False


class Call:
    """One call of a tool: what its function gets."""

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
        self._standing: AnswerOrigin | None = None
        self._quoted: dict[tuple[str, str], None] = {}
        self.writer: tuple[ToolInfo, str] | None = None
        """The tool that writes, and how its client calls itself."""

    def commit_written(self) -> None:
        """Commit what the call has stored, if the settings say so (`mcp.auto_commit`).

        The session does so at the end of each call. A tool that reports what is uncommitted does so
        before.
        """
        if self.writer:
            from vmrag_mcp import auto_commit

            self.warn_moved(auto_commit.commit_written(self.ws, *self.writer))

    def require_agreed(self, remote: str) -> None:
        """Require that this call may use a remote which its arguments name.

        The person's yes counts for this call, and for later ones if they said so as well. Raises
        `RemoteMissing`, `RemoteInvalid`, `RemoteNotTrusted`.
        """
        from vmrag_link.workspace.remotes import destinations

        destinations.require_from_agent(self.ws, remote, agreed=self.agreed)
        if self.agreed.get(remote):
            destinations.trust_remote(self.ws, remote)

    def adapt_text(self, text: str) -> str:
        """A text without what names a tool that this server does not have (`options.worded`)."""
        return self.tools.adapt_text(text) if self.tools else text

    def format_tail(self, advice: str) -> str:
        """`; ADVICE` for the end of a message; empty where it names a tool that is not there."""
        said = self.adapt_text(advice)
        return f"; {said}" if said else ""

    def warn(self, code: str, message: str) -> None:
        warning = ToolWarning(code, terminal_text.escape_controls(message))
        if warning not in self.warnings:
            self.warnings.append(warning)

    def warn_pending(self, why: str) -> None:
        """`why` the index did not follow what was stored; empty if it did."""
        if why:
            self.warn("INDEX_PENDING", why)

    def warn_pending_note(self, why: str) -> None:
        """Warn why git's index does not have a note that was written; `why` is empty if it does."""
        if why:
            self.warn("NOTE", why)

    def accept_write(self, done: WriteResult[R]) -> R:
        """The report of what was stored; a warning says why the index did not follow."""
        self.warn_pending(done.pending)
        return done.report

    def accept_read(self, found: tuple[R, AnswerOrigin]) -> R:
        """What was read; the answer's `kb` says where."""
        report, self._standing = found
        return report

    def warn_of_push(self) -> None:
        """What the next push would not take along, or the last one did not. Asks no network."""
        from vmrag_link.ops.status.cautions import list_cautions

        sends = self.ws.config.mcp.auto_push and not self.read_only  # when the call ends
        for caution in list_cautions(self.ws):
            if not (sends and caution.code == "KNOWLEDGE_NOT_PUSHED"):
                self.warn(caution.code, caution.sentence)

    def find_origin(self) -> AnswerOrigin:
        """Where this call reads documents, after the pin was followed; the answer's `kb` says it.

        The index may stand elsewhere still. A tool that uses the index says where it stood
        (`stands`).
        """
        from vmrag_link.workspace.follow.follow_pin import read_consistently
        from vmrag_link.workspace.follow.provenance import find_origin

        if self._standing is None:
            self._standing = read_consistently(self.ws, lambda: find_origin(self.ws), index=False)
        return self._standing

    def find_store(self, collection: str) -> DocumentStore:
        """Where a collection of that name is: in the knowledge base, or on this machine alone."""
        from vmrag_link.ops.stores import stores

        return stores.find_store(self.ws, collection)

    def find_readable(self, collection: str) -> ReadableStore:
        """Where a collection of that name is read: there, or in the files that it is made of."""
        from vmrag_link.ops.stores import stores

        return stores.find_readable(self.ws, collection)

    def set_origin(self, at: AnswerOrigin) -> None:
        """The tool has found out by itself where its answer comes from."""
        self._standing = at

    def warn_moved(self, said: Iterable[tuple[str, str]]) -> None:
        """What was said of a commit that the call ended with, by code; the answer says where the
        workspace stands after that.
        """
        for code, message in said:
            self.warn(code, message)
            self._standing = None

    def add_quoted(self, documents: Iterable[tuple[str, str]]) -> None:
        """The answer shows texts of these documents, by collection and id."""
        self._quoted.update(dict.fromkeys(documents))

    def build_kb(self) -> KbBlock:
        """The block `kb`; without a place that was read from, where the workspace stands now."""
        from vmrag_link.workspace.follow.provenance import coded_source_warnings, find_origin

        at = self._standing or find_origin(self.ws)
        for note in at.notes:
            self.warn("NOT_IN_SYNC", note)
        for code, sentence in coded_source_warnings(at.kb):
            self.warn(code, sentence)
        if at.kb.sources and not self.state.warned_not_set_up and self.ws.sources.is_proposed:
            self.state.warned_not_set_up = True
            from vmrag_link.workspace.answers.query import NOT_SET_UP

            self.warn("NOT_SET_UP", NOT_SET_UP)
        return at.kb

    def find_copies(self) -> list[str]:
        """Return the documents that the answer shows and that are copies of tracked files."""
        if self._standing is None or not (self._standing.kb.versioned and self._standing.kb.in_sync):
            return []
        files = self._standing.kb.sources
        quoted = [each for each in self._quoted if files is None or each[0] not in files.collections]
        if not quoted:
            return []
        from vmrag_link.workspace.documents import copies

        stored = copies.find_copies_by_name(self.ws, self._standing.at, quoted)
        if stored:
            self.warn(copies.CODE, copies.form_sentence(stored, command=False))
        return [f"{copy.collection}/{copy.doc_id}" for copy in stored]

    def collect_warnings(self) -> list[ToolWarning]:
        """What the operations had to tell a person is among them."""
        for note in self._progress.notes:
            if all(terminal_text.escape_controls(note) != warning.message for warning in self.warnings):
                self.warn("NOTE", note)
        return self.warnings


class _IdleWorkspace(NamedTuple):
    """A workspace that nobody uses, and what the files under it looked like: those of `settings`
    when it was opened, because a person may change them during a call; the others after its last
    call, which may have written to them.
    """

    workspace: Workspace
    settings: Looks
    knowledge: Looks


class Session:
    """Runs calls for one repository, from several threads at once; writers wait for each other.

    `tools`: of a client that is not told apart from others.
    """

    def __init__(self, directory: Path, behaviour: Behaviour) -> None:
        self.directory = directory
        self.behaviour = behaviour
        self.tools: EnabledTools | None = None
        self.state = ProcessState()
        self._unsent = Unsent()
        self._idle: queue.LifoQueue[_IdleWorkspace] = queue.LifoQueue()
        self._models: dict[ModelChoice, Model] = {}
        self._writing = threading.Lock()
        self._fetched = threading.Event()
        """The knowledge base came with a call, and no tool's answer has said yet what to run."""

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
        """Call a tool. Raises `Cancelled` only.

        `agreed`: addresses, hosts, toolsets and files to which the person, not the agent, said
        yes, each with whether to remember it. `tools`: those of the client that calls. `agent`: how
        it calls itself.
        """
        having = tools or self.tools
        try:
            with contextlib.nullcontext() if tool.reads else self._writing:
                return CallOutcome(self._answer(tool, arguments, progress, agreed, having, agent=agent), failed=False)
        except VmragError as error:
            return CallOutcome(self._failure(error, having), failed=True)
        except Exception as error:  # noqa: BLE001  the outermost boundary
            return CallOutcome(self._failure(system_failure(error) or self._bug(error, tool.name), having), failed=True)

    def _failure(self, error: VmragError, tools: EnabledTools | None) -> dict[str, Any]:
        return envelope.build_failure(error, tools.selection if tools else None, most=self.behaviour.page_chars)

    def _answer(
        self,
        tool: ToolInfo,
        arguments: Mapping[str, Any],
        progress: CallProgress,
        agreed: Mapping[str, bool],
        tools: EnabledTools | None,
        *,
        agent: str,
    ) -> dict[str, Any] | str:
        function = import_function(tool)
        warned: list[tuple[str, str]] = []
        takes = given.read_parameters(function)
        try:
            keywords = given.parse_arguments(takes, arguments, lambda *warning: warned.append(warning))
        except UsageError as error:
            listed = tools.selection.tools if tools else {}
            name = next((name for name, other in listed.items() if other is tool), tool.name)
            error.hint = error.hint or given.format_usage(name, takes)
            raise
        declared: ToolDeclaration = function.__dict__["declared"]
        if tools:
            tools.selection.require_arguments(tool, keywords)
        if declared.of_server:
            about, warnings = function(tools, agreed, **keywords), [ToolWarning(*each) for each in warned]
            if isinstance(about, TextResult):
                return envelope.build_success_text(about, None, warnings)
            return envelope.build_success(about, None, warnings, most=self.behaviour.page_chars)
        selection = tools.selection if tools else None
        with self.open_call(
            progress,
            founds=declared.founds,
            of_files=declared.of_files,
            of_git=declared.of_git,
            agreed=agreed,
            tools=selection,
        ) as call:
            for warning in warned:
                call.warn(*warning)
            call.writer = None if tool.reads else (tool, agent)
            result = function(call, **keywords)
            call.commit_written()
            sending = self._writing if tool.reads else contextlib.nullcontext()
            for code, message in self._unsent.push_or_warn(call.ws, None if call.read_only else sending):
                call.warn(code, message)
            if self._fetched.is_set():
                self._fetched.clear()
                call.warn_of_push()
            kb, copies = call.build_kb(), call.find_copies()
            if isinstance(result, TextResult):
                return envelope.build_success_text(result, kb, call.collect_warnings())
            most, offset = self.behaviour.page_chars, keywords.get("offset")
            return envelope.build_success(result, kb, call.collect_warnings(), most=most, offset=offset, copies=copies)

    @contextlib.contextmanager
    def open_call(
        self,
        progress: CallProgress,
        *,
        founds: bool = False,
        of_files: bool = False,
        of_git: bool = False,
        agreed: Mapping[str, bool] = NOTHING,
        tools: ToolSelection | None = None,
    ) -> Iterator[Call]:
        """For a tool, a resource or a prompt.

        Raises `NotInitialized` at once, unless it `founds`, or is also `of_files` of sources and
        there are such files, or `of_git`.
        """
        with answering_agent(), self._workspace(progress) as ws:
            if not founds:
                if not ws.is_initialized:
                    from vmrag_link.workspace.follow import lazy_fetch

                    try:
                        if lazy_fetch.fetch_pinned(ws):
                            self._fetched.set()
                    except VmragError as why:
                        files = of_files and ws.sources.configured and isinstance(why, NotInitialized)
                        if not (of_git or files):
                            raise
                        progress.notes.clear()  # the answer tells what is missing
                if ws.is_initialized or not (of_git or (of_files and ws.sources.configured)):
                    if of_files and not of_git and ws.stores_nothing:
                        raise NotInitialized("This repository has nothing to search yet.", hint="vmrag init")
                    if not of_git:
                        ws.engine  # noqa: B018
                    if ws.current_revision is None:
                        _arrive(ws)
            yield Call(ws, self.behaviour, progress, agreed, state=self.state, tools=tools)

    @contextlib.contextmanager
    def _workspace(self, progress: CallProgress) -> Iterator[Workspace]:
        """A workspace that nobody else uses meanwhile. Raises `GitRepositoryMissing`."""
        from vmrag_link.workspace import Workspace

        def opened() -> tuple[Workspace, Looks]:
            ws = Workspace.open(self.directory, progress, models=self._models)
            return ws, _settings_look(ws)

        try:
            ws, settings, knowledge = self._idle.get_nowait()
            if (_settings_look(ws), _knowledge_look(ws)) != (settings, knowledge):
                ws.close()
                ws, settings = opened()
        except queue.Empty:
            ws, settings = opened()
        ws.progress = progress
        whole = False
        try:
            yield ws
            whole = True
        finally:
            if whole:
                ws.release_files()
                self._idle.put(_IdleWorkspace(ws, settings, _knowledge_look(ws)))
            else:  # it may have left the engine's connection in the middle of something
                ws.close()

    def source_state(self) -> str:
        """Return a text that changes with the files of sources; empty where there are no sources.

        Raises `VmragError` if they cannot be listed.
        """
        from vmrag_link.sources.listings import compute_token
        from vmrag_link.workspace import source_tree

        with self._workspace(CallProgress()) as ws:
            tree = source_tree.read_work_tree(ws)
            return compute_token(tree.listing) if tree else ""

    def warm_up(self) -> None:
        """Load the models that the first query needs. What goes wrong here, that query says."""
        with contextlib.suppress(VmragError), self._workspace(CallProgress()) as ws:
            for collection in ws.engine.list_collections(ws.require_revision()) if ws.is_initialized else ():
                if (model := ws.models.load_for(collection)).local:
                    model.embed_queries([collection.name])

    def _bug(self, error: Exception, tool: str) -> VmragError:
        from vmrag_link.ops import buglog

        return envelope.build_internal_error(buglog.write_log(error, ["-C", str(self.directory), "mcp", tool]))


def _arrive(ws: Workspace) -> None:
    """Bring a work tree to its pin that never stood anywhere, such as a fresh clone's: every answer
    says where it stands. What is in the way, a tool that reads says.
    """
    from vmrag_link.workspace.follow.follow_pin import follow

    with contextlib.suppress(VmragError):
        follow(ws, index=False, tolerate="failures")


def _settings_look(ws: Workspace) -> Looks:
    """Of the settings and agreements that a workspace has read."""
    places = ws.places
    return configuration.read_stamp(places), read_file_stamps((places.config, *agreements.list_files(places)))


def _knowledge_look(ws: Workspace) -> Looks:
    """Of the knowledge base that a workspace has open."""
    places = ws.places
    return _folder(places.git_dir), opening.read_stamp(places.kb), opening.read_stamp(places.local_kb)


def _folder(path: Path) -> int | None:
    """Another one when a folder was replaced."""
    try:
        return path.stat().st_ino
    except OSError:
        return None
