"""What every engine can store as the id of a document."""

from __future__ import annotations

import unicodedata

MAX_ID = 255
"""Characters."""


def id_problem(text: str) -> str | None:
    """The reason why a text cannot be part of an id, to follow a subject; None for one that can."""
    if len(text) > MAX_ID:
        return f"is longer than {MAX_ID} characters"
    for character in text:
        match unicodedata.category(character):
            case "Cs":
                return "is not UTF-8"
            case "Cc":
                return "has control characters"
    return None
