"""The result of dolt_link_git."""

from __future__ import annotations

from vmrag_link.ops.links.link import Bidirectional, LinkBlock
from vmrag_mcp.results.base import ToolResult


class DoltLinkGitResult(ToolResult, frozen=True):
    link: LinkBlock
    bidirectional: Bidirectional
