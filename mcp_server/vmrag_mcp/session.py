"""Calls of tools in threads, each with a workspace to itself.

A workspace serves the next call as well, while the files under it stay as they were.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from vmrag_link.engines import opening
from vmrag_link.errors import VmragError, system_failure
from vmrag_link.models import Record
from vmrag_link.progress import Task
from vmrag_link.trust import agreements
from vmrag_mcp import arguments as given
from vmrag_mcp import envelope
from vmrag_mcp.file_stamp import Looks, looks
from vmrag_mcp.options import EnabledTools
from vmrag_mcp.registry import ToolDeclaration, ToolInfo, function_of
from vmrag_mcp.results.base import ToolWarning

if TYPE_CHECKING:  # a server answers `tools/list` before any of this is imported
    from vmrag_link.embedding.base import Model
    from vmrag_link.embedding.registry import ModelChoice
    from vmrag_link.ops.compounding.mirror import ActiveProject
    from vmrag_link.ops.follow.provenance import KbBlock, Standing
    from vmrag_link.workspace import Workspace


class Behaviour(Record, frozen=True):
    """Settings of tools. `page_chars`: the most text in a result that holds several documents."""

    require_confirm: bool = True
    page_chars: int = 80_000


class Cancelled(BaseException):
    """The client gave the call up. No error: nothing that catches errors may take it for one."""


NOTHING: Mapping[str, bool] = {}
"""No address was put to the person."""

Report = Callable[[int, int, str], None]
"""Takes the steps done, the steps known so far, and a description; in the call's thread."""


class CallProgress:
    """What a call under way reports. Raises `Cancelled` from where the work can be stopped."""

    def __init__(self, report: Report | None = None) -> None:
        self.cancelled = threading.Event()
        self.notes: list[str] = []
        self._report = report
        self._before = 0

    @contextlib.contextmanager
    def task(self, description: str, total: int) -> Iterator[Task]:
        task = _CallTask(self, description, total)
        task.advance(0)
        yield task
        self._before += total  # of a call's steps, of which each piece of work is some: clients want to see them grow

    def note(self, sentence: str) -> None:
        if sentence not in self.notes:
            self.notes.append(sentence)

    def said(self, done: int, total: int, description: str) -> None:
        if self.cancelled.is_set():
            raise Cancelled
        if self._report:
            self._report(self._before + done, self._before + total, description)


class _CallTask:
    def __init__(self, progress: CallProgress, description: str, total: int) -> None:
        self._progress, self._description, self._total, self._done = progress, description, total, 0

    def advance(self, steps: int = 1) -> None:
        self._done += steps
        self._progress.said(self._done, self._total, self._description)


class ProcessState:
    """What calls leave for later ones of the same process. `project`: the one that is active."""

    def __init__(self) -> None:
        self.project: ActiveProject | None = None


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
        read_only: bool = False,
    ) -> None:
        self.ws = ws
        self.state = state or ProcessState()
        self.read_only = read_only
        self.behaviour = behaviour
        self.warnings: list[ToolWarning] = []
        self._progress = progress
        self._agreed = agreed
        self._standing: Standing | None = None

    def require_agreed(self, remote: str) -> None:
        """Require that this call may use a remote which its arguments name.

        The person's yes counts for this call, and for later ones if they said so as well. Raises
        `RemoteMissing`, `RemoteInvalid`, `RemoteNotTrusted`.
        """
        from vmrag_link.ops.remotes import destinations
        from vmrag_link.ops.remotes.remote import agree

        destinations.require_from_agent(self.ws, remote, agreed=self._agreed)
        if self._agreed.get(remote):
            agree(self.ws, remote)

    def warn(self, code: str, message: str) -> None:
        warning = ToolWarning(code, message)
        if warning not in self.warnings:
            self.warnings.append(warning)

    def pending(self, why: str) -> None:
        """`why` the index did not follow what was stored; empty if it did."""
        if why:
            self.warn("INDEX_PENDING", why)

    def standing(self) -> Standing:
        """Where this call reads documents, after the pin was followed; the answer's `kb` says it.

        The index may stand elsewhere still. A tool that uses the index says where it stood
        (`stands`).
        """
        from vmrag_link.ops.follow.follow_pin import read_consistently
        from vmrag_link.ops.follow.provenance import standing

        if self._standing is None:
            self._standing = read_consistently(self.ws, lambda: standing(self.ws), index=False)
        return self._standing

    def stands(self, at: Standing) -> None:
        """The tool has found out by itself where its answer comes from."""
        self._standing = at

    def kb(self) -> KbBlock:
        """The block `kb`; without a place that was read from, where the workspace stands now."""
        from vmrag_link.ops.follow.provenance import standing

        at = self._standing or standing(self.ws)
        for note in at.notes:
            self.warn("NOT_IN_SYNC", note)
        return at.kb

    def all_warnings(self) -> list[ToolWarning]:
        """What the operations had to tell a person is among them."""
        for note in self._progress.notes:
            if all(note != each.message for each in self.warnings):
                self.warn("NOTE", note)
        return self.warnings


class _IdleWorkspace(NamedTuple):
    """A workspace that nobody uses, and what the files under it looked like."""

    workspace: Workspace
    looks: Looks


class Session:
    """Runs calls for one repository, from several threads at once; writers wait for each other."""

    def __init__(self, directory: Path, behaviour: Behaviour) -> None:
        self.directory = directory
        self.behaviour = behaviour
        self.tools: EnabledTools | None = None
        self.state = ProcessState()
        self._idle: queue.LifoQueue[_IdleWorkspace] = queue.LifoQueue()
        self._models: dict[ModelChoice, Model] = {}
        self._writing = threading.Lock()

    @property
    def read_only(self) -> bool:
        """Whether its tools change nothing."""
        return self.tools is not None and self.tools.selection.chosen.read_only

    def run(
        self,
        tool: ToolInfo,
        arguments: Mapping[str, Any],
        progress: CallProgress,
        agreed: Mapping[str, bool] = NOTHING,
    ) -> tuple[dict[str, Any], bool]:
        """The result of a call, and whether it failed. Raises `Cancelled` only.

        `agreed`: addresses to which the person, not the agent, said yes, each with whether to
        remember it.
        """
        try:
            with contextlib.nullcontext() if tool.reads else self._writing:
                return self._answer(tool, arguments, progress, agreed), False
        except VmragError as error:
            return envelope.failure(error), True
        except Exception as error:  # noqa: BLE001  the outermost boundary
            return envelope.failure(system_failure(error) or self._bug(error, tool.name)), True

    def _answer(
        self, tool: ToolInfo, arguments: Mapping[str, Any], progress: CallProgress, agreed: Mapping[str, bool]
    ) -> dict[str, Any]:
        function = function_of(tool)
        warned: list[tuple[str, str]] = []
        keywords = given.parse_arguments(given.parameters(function), arguments, lambda *warning: warned.append(warning))
        declared: ToolDeclaration = function.__dict__["declared"]
        if declared.of_server:
            return envelope.success(function(self.tools, **keywords), None, [ToolWarning(*each) for each in warned])
        with self.call(progress, reads=tool.reads, founds=declared.founds, agreed=agreed) as call:
            for warning in warned:
                call.warn(*warning)
            result = function(call, **keywords)
            return envelope.success(result, call.kb(), call.all_warnings())

    @contextlib.contextmanager
    def call(
        self,
        progress: CallProgress,
        *,
        reads: bool = True,
        founds: bool = False,
        agreed: Mapping[str, bool] = NOTHING,
    ) -> Iterator[Call]:
        """For a tool, a resource or a prompt.

        Raises `NotInitialized` at once, unless it `founds`.
        """
        with self._workspace(progress, reads=reads) as ws:
            if not founds:
                if not ws.initialized:
                    from vmrag_link.ops.follow import lazy_fetch

                    lazy_fetch.bring(ws)
                ws.engine  # noqa: B018
            yield Call(ws, self.behaviour, progress, agreed, state=self.state, read_only=self.read_only)

    @contextlib.contextmanager
    def _workspace(self, progress: CallProgress, *, reads: bool) -> Iterator[Workspace]:
        """A workspace that nobody else uses meanwhile. Raises `GitRepositoryMissing`."""
        from vmrag_link.workspace import Workspace

        try:
            ws, seen = self._idle.get_nowait()
            if _looks(ws) != seen:
                ws.close()
                ws = Workspace.open(self.directory, progress, models=self._models)
        except queue.Empty:
            ws = Workspace.open(self.directory, progress, models=self._models)
        ws.progress = progress
        whole = False
        try:
            yield ws
            whole = True
        finally:
            # A failed call may have left the engine's connection in the middle of something. And
            # doltlite pushes nothing that was committed after a connection was opened.
            if not (whole and reads):
                ws.close()
            if whole:
                self._idle.put(_IdleWorkspace(ws, _looks(ws)))

    def warm_up(self) -> None:
        """Load the models that the first query needs. What goes wrong here, that query says."""
        with contextlib.suppress(VmragError), self._workspace(CallProgress(), reads=True) as ws:
            for each in ws.engine.collections(ws.revision()) if ws.initialized else ():
                if (model := ws.models.of(each)).local:
                    model.embed_queries([each.name])

    def _bug(self, error: Exception, tool: str) -> VmragError:
        from vmrag_link.ops.upkeep import buglog

        path = buglog.write(error, ["-C", str(self.directory), "mcp", tool])
        return envelope.internal(path.stem, str(path))


def _looks(ws: Workspace) -> Looks:
    """Of the files that a workspace has read: settings, agreements, the knowledge base."""
    places = ws.places
    settings = (places.config, places.common / "config", *agreements.files(places))
    return (*looks((*settings, places.git_dir)), opening.stamp(places.kb))
