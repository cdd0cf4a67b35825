"""A few plain tools, which are what most agents need: search, read, write down, look back."""

from vmrag_link.toolset import Toolset

TOOLSET = Toolset(
    "essential",
    "search, read, notes",
    __name__,
    tools=(".tools", ".history", ".state", ".writing", "vmrag_mcp.tools.enabling"),
    instructions=(
        "Before you answer a question about the project, or edit its code: search, which packs the passages that answer, of documents and "
        "code, each with its place; read takes such a place. grep finds a text that is known exactly, history says what changed, when and "
        "why. What should be known later, and no file says, is written down with remember; status says what is not committed yet."
    ),
)
