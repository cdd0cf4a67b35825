"""Issue logs of projects, and documents about tools."""

from vmrag_link.toolset import Toolset, ToolsetCommand

TOOLSET = Toolset(
    "knowledge",
    "issue logs",
    __name__,
    tools=(".tools", "vmrag_mcp.tools.any_document"),
    commands={
        "issue": ToolsetCommand("Records", "Write and find logs about issues.", ".commands:issue"),
        "doc": ToolsetCommand("Records", "Write and find documents about tools and libraries.", ".commands:doc"),
    },
)
