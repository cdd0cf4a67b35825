"""The loss of a revision that nobody has any more, as a person accepted it.

The message of a revision records it, so the record travels as the knowledge does that goes on from
there. It counts only while the lost revision is not here: nobody drops by it what there is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from vmrag_link.engines.base import Engine

_LOST = re.compile(r"^Vmrag-Lost: (\w+)$", re.MULTILINE)


def recorded(message: str) -> list[str]:
    """The revisions whose loss a message accepts."""
    return list(dict.fromkeys(_LOST.findall(message)))


def trailers(lost: Iterable[str]) -> str:
    return "".join(f"Vmrag-Lost: {each}\n" for each in lost)


def is_accepted(engine: Engine, revision: str, lost: str) -> bool:
    """Whether a revision that is here, or one that it contains, accepts the loss of one that is
    not.
    """
    if engine.has_revision(lost) or not engine.has_revision(revision):
        return False
    return any(lost in recorded(info.message) for info in engine.log(revision))


def record(engine: Engine, revision: str, *, message: str, author: str, date: str) -> str:
    """A revision with the documents of another one, and a message that records a loss."""
    with engine.writing("accept a loss"):
        made = engine.recreate([revision], [], message=message, author=author, date=date)
        engine.anchor(made, reason="a loss was accepted")
    return made
