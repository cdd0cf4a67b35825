"""A person's decisions about the conflicts of a merge, as they are stored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from vmrag_link.models import Record


class Choice(Record, frozen=True):
    """The result for one field in conflict, or for a part of it; `edited` takes `text`.

    `neither` is for the base that git makes of several: a value that equals neither side's.
    """

    take: Literal["ours", "theirs", "union", "edited", "neither"]
    text: str = ""


Choices = Mapping[str, Choice]
"""By field; by `content#KEY` for a hunk, by `metadata.KEY` for a key. A part's counts more than its
field's.
"""

Decisions = Mapping[str, Choices]
"""Choices by a conflict's id."""
