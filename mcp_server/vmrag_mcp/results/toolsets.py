"""Results of the toolset `toolsets`."""

from __future__ import annotations

from vmrag_link.models import Record
from vmrag_mcp.results.base import ServerResult


class ListedToolset(Record, frozen=True):
    """`tools`: those that this server may have of it."""

    name: str
    tools: list[str]
    enabled: bool
    description: str


class ListToolsetsResult(ServerResult, frozen=True):
    toolsets: list[ListedToolset]


class EnableToolsetResult(ServerResult, frozen=True):
    """`enabled`: all toolsets that are on; `tools`: those that the call added."""

    enabled: list[str]
    tools: list[str]
