"""Thoughts of agents, stored step by step and found again."""

from vmrag_link.toolset import Toolset

TOOLSET = Toolset(
    "thinking",
    "thoughts",
    __name__,
    tools=(".tools",),
    settings={"thinking": ".think:ThinkingSettings"},
)
