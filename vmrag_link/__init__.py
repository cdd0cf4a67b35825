"""One commit for code and knowledge: a knowledge base and its vector index at the revision that the
code pins.

In a program, open the knowledge base with `vmrag_link.open` (see `vmrag_link.api`).
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vmrag_link.api import KnowledgeBase, open  # noqa: A004  `vmrag.open`, as in other libraries

__all__ = ["KnowledgeBase", "open"]

__version__ = "0.2.0"


def __getattr__(name: str) -> Any:
    """Import the API on first use, so that commands and hooks start without it."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from vmrag_link import api

    return getattr(api, name)
