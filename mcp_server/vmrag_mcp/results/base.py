"""What every successful answer of a tool holds."""

from __future__ import annotations

from vmrag_link.models import Record


class ToolResult(Record, frozen=True, kw_only=True):
    """Base of all results. `message`: a sentence for people, after the fields of the subclass."""

    message: str


class ServerResult(ToolResult, frozen=True, kw_only=True):
    """Of a tool about the server itself: it comes from no knowledge, and has no block `kb`."""


class ToolWarning(Record, frozen=True):
    """What was worth saying although nothing failed."""

    code: str
    message: str
