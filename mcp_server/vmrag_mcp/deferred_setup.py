"""What the first call settles: the client's roots, and what could not be read at the start."""

from __future__ import annotations

import importlib
import threading
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import anyio
import anyio.to_thread
import mcp_types as types
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.shared.exceptions import MCPError

from vmrag_link.errors import UsageInvalid, VmragError
from vmrag_link.git import plumbing
from vmrag_mcp import options
from vmrag_mcp.options import Flags
from vmrag_mcp.process import log
from vmrag_mcp.repository import Place, PlacedSession, load_settings
from vmrag_mcp.server import KnowledgeServer

ROOTS_SECONDS = 5
"""How long a client may take to say its roots."""

_PATIENCE_SECONDS = 0.2
"""The client has its list of tools before this process is busy with imports."""

_NEED = ("tools/call", "resources/", "prompts/get", "subscriptions/")

_QUERY = (
    "vmrag_mcp.tools.documents",
    "vmrag_link.ops.index.query",
    "vmrag_link.chroma.bindings",
    "vmrag_link.retrieval.array_scores",
    "vmrag_link.retrieval.vectors",
    "vmrag_link.embedding.registry",
)
"""What the first query imports."""


class FirstCall:
    """Stands before a server's handlers. `settled`: the start has found out everything already."""

    def __init__(
        self, server: KnowledgeServer, session: PlacedSession, flags: Flags, *, settled: bool, roots: bool
    ) -> None:
        self._server = server
        self._session = session
        self._flags = flags
        self._settled = settled
        self._roots = roots
        self._one = anyio.Lock()
        self._warm = False

    async def __call__(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        if not self._settled and ctx.method.startswith(_NEED):
            async with self._one:
                if not self._settled:
                    await self._settle(ctx)
        result = await call_next(ctx)
        if ctx.method == "tools/list" and not self._warm:
            self._warm = True
            timer = threading.Timer(_PATIENCE_SECONDS, self._warm_up)
            timer.daemon = True
            timer.start()
        return result

    async def _settle(self, context: ServerRequestContext[Any, Any]) -> None:
        if self._roots:
            roots = await _roots(context)
            place = await anyio.to_thread.run_sync(_work_tree, roots)
            if place:
                self._session.move(place)
            self._roots = False
        await anyio.to_thread.run_sync(self._look)

    def _look(self) -> None:
        """As at the start; but a server that runs already says what is wrong with every call."""
        found = load_settings(self._session.place)
        try:
            self._server.follow(options.selection(options.chosen(self._flags, found.config.mcp, stated=found.stated)))
        except UsageInvalid as error:
            self._session.problem = error
            return
        self._session.problem = None
        self._settled = found.problem is None

    def _warm_up(self) -> None:
        for name in _QUERY:
            importlib.import_module(name)
        self._session.warm_up()


async def _roots(context: ServerRequestContext[Any, Any]) -> list[Path]:
    """The directories that the client has open; none if it says nothing of that."""
    client = context.session.client_params
    if client is None or client.capabilities.roots is None:
        return []
    try:
        with anyio.fail_after(ROOTS_SECONDS):
            # `session.list_roots` prints a warning of the SDK, which clients show as an error.
            found = await context.session.send_request(types.ListRootsRequest(), types.ListRootsResult)
    except (MCPError, TimeoutError, ValueError) as error:  # ValueError: the answer is not a list of roots
        log(f"the client does not say its roots ({error}); going by the current directory")
        return []
    urls = [urlsplit(str(each.uri)) for each in found.roots]
    return [Path(unquote(url.path)) for url in urls if url.scheme == "file"]


def _work_tree(roots: list[Path]) -> Place | None:
    """The first root that is in a work tree; none: the first."""
    for each in roots:
        try:
            plumbing.locate(each)
        except VmragError:
            continue
        return Place(each)
    return Place(roots[0]) if roots else None
