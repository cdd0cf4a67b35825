"""Chats, what was learnt in them, and the evidence for it."""

from vmrag_link.toolset import Toolset, ToolsetCommand

TOOLSET = Toolset(
    "learning",
    "chats, lessons",
    __name__,
    tools=(".tools",),
    commands={
        "learning": ToolsetCommand(
            "Agents and tests",
            "Write down test results, checks and errors as evidence, and what was learnt.",
            ".command:command",
        )
    },
    settings={"learning": ".chats:LearningSettings"},
)
