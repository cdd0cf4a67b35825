"""The few tools that most agents need: search, read, write and look back."""

from vmrag_link.toolset import Toolset

TOOLSET = Toolset(
    "essential",
    "search, read, notes",
    __name__,
    tools=(".tools", ".history", ".state", ".writing", "vmrag_mcp.tools.enabling"),
    instructions=(
        "Before you answer a question about the project or edit its code, call search. To find where a name is defined, call search with "
        "symbol alone. For an exact text, call grep. Then read a place (PATH:LINES) from the results; ref=v1.0 reads an older version, "
        "and a folder (docs/) lists its documents. history lists what changed since a tag. remember stores what the user wants to know "
        "later and no file contains. Tell the user if an answer has a line 'warning:'."
    ),
)
