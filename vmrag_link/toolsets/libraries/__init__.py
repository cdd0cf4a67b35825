"""Libraries: files and web pages as documents, each identified by its source."""

from vmrag_link.toolset import Toolset, ToolsetCommand

TOOLSET = Toolset(
    "ingest",
    "web pages and files",
    __name__,
    tools=(".tools", "vmrag_mcp.tools.any_document"),
    commands={
        "refresh": ToolsetCommand(
            "Documents", "Update documents that were imported from web pages.", ".refresh_command:command"
        )
    },
    imports=dict.fromkeys(("http", "https", "file"), ".import_command:take"),
)
