"""An agent over stdio, through the official client and a server in a process of its own."""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters

from tests.support.terminal import Project

SERVER = ("-P", "-m", "vmrag_link.cli.main", "mcp", "--toolsets")

Call = Callable[..., Awaitable[dict[str, Any]]]


def run_story(project: Project, body: Callable[[Call], Awaitable[None]], *, toolsets: str) -> None:
    """Run an agent's story; `call` returns what a tool answers, an error's envelope, too."""

    async def story() -> None:
        server = StdioServerParameters(
            command=sys.executable, args=[*SERVER, toolsets], cwd=project.top, env=dict(os.environ)
        )
        async with Client(server) as client:

            async def call(name: str, **arguments: Any) -> dict[str, Any]:
                structured_content: dict[str, Any] = (await client.call_tool(name, arguments)).structured_content
                return structured_content

            await body(call)

    anyio.run(story)
