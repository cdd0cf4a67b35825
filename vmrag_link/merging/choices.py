"""A user's decisions about the conflicts of a merge, in the form in which they are stored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from vmrag_link.models import Record


class Choice(Record, frozen=True):
    """The result for one field in conflict, or for a part of it. `edited` uses `text`.

    `neither` is for a base that git makes of several: a value that equals neither side's.
    """

    take: Literal["ours", "theirs", "union", "edited", "neither"]
    text: str = ""


Choices = Mapping[str, Choice]
"""By field, by `content#KEY` for a hunk, or by `metadata.KEY` for a key. The choice for a part
overrides the choice for its field.
"""

Decisions = Mapping[str, Choices]
"""Choices by a conflict's id."""
