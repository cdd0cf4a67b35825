"""Enable a toolset for the connected client."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from vmrag_link.errors import plural
from vmrag_mcp.client_tools import START_OPTION, EnabledTools
from vmrag_mcp.options import ToolSelection
from vmrag_mcp.registry import ToolInfo, tool
from vmrag_mcp.results import TextResult

CALL_ANYWAY = "You can call them even if your list of tools does not show them."


@tool("W", idempotent=True, on_read_only=True, about_server=True)
def enable_toolset(tools: EnabledTools, agreed: Collection[str], *, toolset: str) -> TextResult:
    """Switch on more tools for this session. The user confirms network access and deletion."""
    before, now = tools.selection, tools.enable_toolset(toolset, agreed=agreed)
    shown, asks = now.list_tools_of(toolset), tools.list_unconfirmed(toolset)
    added = now.tools.keys() - before.tools.keys()
    lines = [*_describe_tools(shown, now), *_describe_missing(toolset, asks, now)]
    count = f"{plural(len(added), 'more tool')}. {CALL_ANYWAY}" if added else "no further tool."
    rest = f", except {plural(len(asks), 'tool')}" if asks else ""
    return TextResult(text="\n".join(lines), message=f"{toolset} is on{rest}: {count}")


def _describe_tools(shown: dict[str, ToolInfo], now: ToolSelection) -> Iterator[str]:
    """Yield each tool with its parameters, and the reason for each unusual name."""
    for name, info in shown.items():
        required = info.schema.get("required", ())
        parameters = [key if key in required else f"{key}?" for key in info.schema["properties"]]
        yield f"on: {name}({', '.join(parameters)})"
    for name, info in shown.items():
        common_name = f"{now.choice.prefix}{info.name}"
        if common_name != name and common_name in now.tools:
            yield f"{name} is {common_name} of the toolset {info.toolsets[0]}, because another tool has the name {common_name}"


def _describe_missing(toolset: str, asks: list[str], now: ToolSelection) -> Iterator[str]:
    """Yield the tools of a toolset that stay off, and why."""
    if asks:
        yield f"off: {', '.join(asks)}: they use the network or delete, and the user has not confirmed them"
        yield f"hint: {START_OPTION.format(now.start_option(toolset))}"
    if ruled_out := now.list_ruled_out(toolset):
        yield f"off: {', '.join(ruled_out)}: the server was started without them"
