"""Complete the set-up of a server during the first call.

A client can name the repository by its *roots*, the folders that are open in it. The server can ask
for them only after the handshake. Settings that were unreadable at the start are read again. Until
both have succeeded once, each call tries this first.
"""

from __future__ import annotations

import contextlib
import importlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import anyio
import anyio.to_thread
import mcp_types as types
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.shared.exceptions import MCPError

from vmrag_link.errors import UsageInvalid, VmragError
from vmrag_link.git import plumbing
from vmrag_mcp import options
from vmrag_mcp.call import Behaviour, ProcessState
from vmrag_mcp.call_progress import CallProgress
from vmrag_mcp.options import Flags
from vmrag_mcp.process import PATIENCE_SECONDS, log
from vmrag_mcp.repository import NamedDirectory, load_settings, require_project
from vmrag_mcp.server import KnowledgeServer
from vmrag_mcp.session import Session

if TYPE_CHECKING:  # a server answers `tools/list` before this is imported
    from vmrag_link.workspace import Workspace

ROOTS_SECONDS = 5
"""Maximum time for a client to send its roots."""

_METHODS_WITH_SET_UP = ("tools/call", "resources/", "prompts/get", "subscriptions/")
"""Beginnings of the methods that need the complete set-up."""

_QUERY_MODULES = (
    "vmrag_mcp.tools.documents",
    "vmrag_link.workspace.answers.query",
    "vmrag_link.chroma.bindings",
    "vmrag_link.retrieval.array_scores",
    "vmrag_link.retrieval.vectors",
    "vmrag_link.embedding.registry",
    "vmrag_link.embedding.byte_pairs",
)
"""Modules that the first query needs."""


class RepositorySession(Session):
    """A session for a directory and its settings. `problem` is the reason why every call fails."""

    def __init__(self, repository: NamedDirectory) -> None:
        super().__init__(repository.directory, Behaviour())
        self.repository = repository
        self.problem: VmragError | None = None

    def move_to(self, repository: NamedDirectory) -> None:
        self.repository = repository
        self.directory = repository.directory
        self.state = ProcessState()

    @contextlib.contextmanager
    def _open_workspace(self, progress: CallProgress) -> Iterator[Workspace]:
        if self.problem:
            raise self.problem
        require_project(self.repository, self.directory)
        with super()._open_workspace(progress) as ws:
            require_project(self.repository, ws.places.top)
            settings = ws.config.mcp
            self.behaviour = Behaviour(settings.require_confirm, settings.page_chars)
            yield ws


class FirstCall:
    """Middleware that completes the set-up before a server's handlers run.

    * `settled`: the set-up is already complete.
    * `roots`: ask the client for its roots.
    * `listed`: the client has its list of tools.
    """

    def __init__(
        self,
        server: KnowledgeServer,
        session: RepositorySession,
        flags: Flags,
        *,
        settled: bool,
        roots: bool,
        listed: bool,
    ) -> None:
        self._server = server
        self._session = session
        self._flags = flags
        self._settled = settled
        self._request_roots = roots
        self._set_up_lock = anyio.Lock()
        self._is_warming_up = False
        if listed:
            self._warm_up_soon()

    async def __call__(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        if not self._settled and ctx.method.startswith(_METHODS_WITH_SET_UP):
            async with self._set_up_lock:
                if not self._settled:
                    await self._finish_set_up(ctx)
        result = await call_next(ctx)
        if ctx.method == "tools/list" and not self._is_warming_up:
            self._warm_up_soon()
        return result

    def _warm_up_soon(self) -> None:
        """Import what the first query needs, in a thread, after a pause for the client."""
        self._is_warming_up = True
        timer = threading.Timer(PATIENCE_SECONDS, self._import_query)
        timer.daemon = True
        timer.start()

    async def _finish_set_up(self, context: ServerRequestContext[Any, Any]) -> None:
        if self._request_roots:
            roots = await _request_roots(context)
            repository = await anyio.to_thread.run_sync(_choose_root, roots)
            if repository:
                self._session.move_to(repository)
            self._request_roots = False
        before = self._server.clients.shared.selection.tools
        await anyio.to_thread.run_sync(self._read_settings)
        if self._server.clients.shared.selection.tools != before:
            await self._server.announce_tools(context)

    def _read_settings(self) -> None:
        """Read the settings as at the start. A running server reports problems with every call."""
        loaded = load_settings(self._session.repository)
        choice = options.resolve_choice(self._flags, loaded.config.mcp, stated=loaded.stated)
        try:
            self._server.replace_selection(options.select_tools(choice))
        except UsageInvalid as error:
            self._session.problem = error
            return
        self._session.problem = None
        self._settled = loaded.problem is None

    def _import_query(self) -> None:
        for name in _QUERY_MODULES:
            importlib.import_module(name)
        self._session.warm_up()


async def _request_roots(context: ServerRequestContext[Any, Any]) -> list[Path]:
    """Return the directories that are open in the client; empty if it does not send them."""
    client = context.session.client_params
    if client is None or client.capabilities.roots is None:
        return []
    try:
        with anyio.fail_after(ROOTS_SECONDS):
            # `session.list_roots` prints a warning of the SDK, which clients show as an error.
            answer = await context.session.send_request(types.ListRootsRequest(), types.ListRootsResult)
    except (MCPError, TimeoutError, ValueError) as error:  # ValueError: the answer is not a list of roots
        log(f"the client did not send its roots ({error}); using the current directory")
        return []
    urls = [urlsplit(str(root.uri)) for root in answer.roots]
    return [Path(unquote(url.path)) for url in urls if url.scheme == "file"]


def _choose_root(roots: list[Path]) -> NamedDirectory | None:
    """Return the first root in a work tree, or else the first root."""
    for root in roots:
        try:
            plumbing.locate_work_tree(root)
        except VmragError:
            continue
        return NamedDirectory(root)
    return NamedDirectory(roots[0]) if roots else None
