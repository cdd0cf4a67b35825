"""What every successful answer of a tool holds."""

from __future__ import annotations

from vmrag_link.models import Record


class ToolResult(Record, frozen=True, kw_only=True):
    """The fields of a tool's answer, in the order of the wire; those of subclasses come first. `message`: a sentence for people."""

    message: str


class ToolWarning(Record, frozen=True):
    """What was worth saying although nothing failed."""

    code: str
    message: str
