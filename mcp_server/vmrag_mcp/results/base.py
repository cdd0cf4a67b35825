"""What every successful answer of a tool holds."""

from __future__ import annotations

from vmrag_link.models import Record


class ToolResult(Record, frozen=True, kw_only=True):
    """Base of all results. `message`: a sentence for people, after the fields of the subclass."""

    message: str


class ToolWarning(Record, frozen=True):
    """What was worth saying although nothing failed."""

    code: str
    message: str
