"""Chats, lessons from them, and the evidence for the lessons."""

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
