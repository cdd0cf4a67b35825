"""Run calls of tools for one repository, in the threads of the server.

Each running call has a workspace of its own. A later call uses the same workspace if the files that
it has read have not changed. `server` has one `Session`, and calls `run_tool` for tools and
`open_call` for resources and prompts.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from vmrag_link import agreements
from vmrag_link.engines import opening
from vmrag_link.errors import NotInitialized, UsageError, VmragError, system_failure
from vmrag_link.file_access import read_file_stamps
from vmrag_link.git import configuration
from vmrag_link.git.run import answering_agent
from vmrag_mcp import envelope
from vmrag_mcp.arguments import format_usage, parse_arguments, read_parameters
from vmrag_mcp.auto_commit import UnpushedRevisions
from vmrag_mcp.call import NO_CONSENT, AnswerContext, Behaviour, Call, ProcessState, Writer
from vmrag_mcp.call_progress import CallProgress
from vmrag_mcp.client_tools import EnabledTools
from vmrag_mcp.options import ToolSelection
from vmrag_mcp.registry import ToolDeclaration, ToolInfo, import_function
from vmrag_mcp.results import TextResult, ToolResult, ToolWarning

if TYPE_CHECKING:  # a server answers `tools/list` before any of this is imported
    from vmrag_link.embedding.base import Model
    from vmrag_link.embedding.registry import ModelChoice
    from vmrag_link.workspace import Workspace


class CallOutcome(NamedTuple):
    """The answer to a call of a tool."""

    content: dict[str, Any] | str
    """An object; the text of an essential tool; the envelope of an error if the call failed."""
    failed: bool

    @property
    def failure(self) -> Mapping[str, Any]:
        """The envelope of the error; empty if the call succeeded."""
        return self.content if self.failed and isinstance(self.content, dict) else {}


Stamps = tuple[object, ...]
"""Times, sizes or inodes of files. Stamps are equal if no file has changed."""


class _IdleWorkspace(NamedTuple):
    """A workspace without a call, and the stamps of its files."""

    workspace: Workspace
    settings_stamps: Stamps
    """From the time of opening, because a person can change these files during a call."""
    kb_stamps: Stamps
    """From the end of the last call, which can have written to these files."""


class Session:
    """Runs calls for one repository, from several threads at once. Writers wait for each other."""

    def __init__(self, directory: Path, behaviour: Behaviour) -> None:
        self.directory = directory
        self.behaviour = behaviour
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
        agreed: Mapping[str, bool] = NO_CONSENT,
        tools: EnabledTools | None = None,
        *,
        agent: str = "",
    ) -> CallOutcome:
        """Call a tool, and return its answer or the envelope of its error. Raises only `Cancelled`.

        * `agreed`: the addresses, hosts, toolsets and files that the user, not the agent, has
          confirmed. Its values decide if vmrag remembers each one.
        * `tools`: the client's tools. With None, an error can suggest any tool.
        * `agent`: the name of the client.
        """
        try:
            with contextlib.nullcontext() if tool.reads else self._writing:
                answer = self._run_function(tool, arguments, progress, agreed, tools, agent=agent)
            return CallOutcome(answer, failed=False)
        except VmragError as error:
            failure = error
        except Exception as error:  # noqa: BLE001  the outermost boundary
            failure = system_failure(error) or self._log_bug(error, tool.name)
        selection = tools.selection if tools else None
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
        """Return the answer of a successful call: an object, or the text of an essential tool."""
        selection = tools.selection if tools else None
        function = import_function(tool)
        keywords, warnings = _parse_arguments(tool, function, arguments, selection)
        declaration: ToolDeclaration = function.__dict__["declared"]
        if declaration.about_server:
            return self._build_answer(function(tools, agreed, **keywords), AnswerContext(warnings=tuple(warnings)))
        with self.open_call(
            progress,
            without_kb=declaration.without_kb,
            reads_files=declaration.reads_files,
            reads_git=declaration.reads_git,
            agreed=agreed,
            tools=selection,
            writer=None if tool.reads else Writer(tool, agent),
        ) as call:
            for warning in warnings:
                call.warn(warning.code, warning.message)
            result = function(call, **keywords)
            call.commit_written()
            self._push_revisions(call, tool)
            return self._build_answer(result, call.build_context(), offset=keywords.get("offset"))

    def _push_revisions(self, call: Call, tool: ToolInfo) -> None:
        """Push revisions of pushed code if `mcp.auto_push` allows it, or else warn of them."""
        lock = self._writing if tool.reads else contextlib.nullcontext()  # a writer holds it already
        for warning in self._unpushed.push_or_warn(call.ws, None if call.read_only else lock):
            call.warn(warning.code, warning.message)
        if self._kb_fetched.is_set():
            self._kb_fetched.clear()
            call.warn_of_push()

    def _build_answer(
        self, result: ToolResult, context: AnswerContext, *, offset: int | None = None
    ) -> dict[str, Any] | str:
        kb, copies, warnings = context
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
        agreed: Mapping[str, bool] = NO_CONSENT,
        tools: ToolSelection | None = None,
        writer: Writer | None = None,
    ) -> Iterator[Call]:
        """Open the call of a tool, a resource or a prompt.

        Raises `NotInitialized` if the knowledge base is missing and cannot be fetched. There are
        three exceptions: the call works `without_kb`, it `reads_files` and sources match files, or
        it `reads_git`. A call without `writer` commits nothing.
        """
        with answering_agent(), self._open_workspace(progress) as ws:
            if not without_kb:
                self._require_documents(ws, progress, reads_files=reads_files, reads_git=reads_git)
            yield Call(ws, self.behaviour, progress, agreed=agreed, state=self.state, tools=tools, writer=writer)

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
        ws, settings_stamps = self._take_workspace(progress)
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

    def _take_workspace(self, progress: CallProgress) -> tuple[Workspace, Stamps]:
        """Return a workspace of an earlier call if its files have not changed, or else a new one,
        with the stamps of its settings.
        """
        from vmrag_link.workspace import Workspace

        with contextlib.suppress(queue.Empty):
            ws, settings_stamps, kb_stamps = self._idle.get_nowait()
            if (_read_settings_stamps(ws), _read_kb_stamps(ws)) == (settings_stamps, kb_stamps):
                return ws, settings_stamps
            ws.close()
        ws = Workspace.open(self.directory, progress, models=self._models)
        return ws, _read_settings_stamps(ws)

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
        """Return the error for a bug. Its traceback is in the log, unless no log can be written."""
        from vmrag_link.ops import buglog

        log = buglog.write_log(error, ["-C", str(self.directory), "mcp", tool])
        return VmragError(
            "internal error: no stored data was lost.",
            hint=buglog.suggest_report(log),
            incident=log.stem if log else "",
            log=str(log or ""),
        )


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
