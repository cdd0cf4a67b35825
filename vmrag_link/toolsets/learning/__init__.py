"""Chats, what was learnt in them, and the evidence for it."""

from vmrag_link.toolset import Toolset, ToolsetCommand

TOOLSET = Toolset(
    "learning",
    "chats, lessons",
    __name__,
    tools=(".tools",),
    commands={
        "learning": ToolsetCommand(
            "Records",
            "Store test results, checks, errors and lessons.",
            ".command:command",
        )
    },
    settings={"learning": ".chats:LearningSettings"},
)
