"""Issue logs of projects, and documents about tools."""

from vmrag_link.toolset import Toolset, ToolsetCommand

TOOLSET = Toolset(
    "knowledge",
    "issue logs",
    __name__,
    tools=(".tools", "vmrag_mcp.tools.any_document"),
    commands={
        "issue": ToolsetCommand(
            "Agents and tests", "Write down what was found out about an issue, and find it.", ".commands:issue"
        ),
        "doc": ToolsetCommand(
            "Agents and tests", "Write down what should be known of a tool, and find it.", ".commands:doc"
        ),
    },
)
