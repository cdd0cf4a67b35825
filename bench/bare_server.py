"""The yardstick of a start: a process that answers `tools/list` over stdio with the SDK's bare
server.
"""

from __future__ import annotations

import anyio
import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server


async def listed(_, __) -> types.ListToolsResult:
    return types.ListToolsResult(tools=[])


async def main() -> None:
    server = Server("bare", on_list_tools=listed)
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


anyio.run(main)
