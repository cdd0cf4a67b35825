"""What every reader raises for contents that it cannot convert."""

from __future__ import annotations


class ContentUnreadable(Exception):
    """`reason` completes a sentence that begins with the file's name: `is not UTF-8 (byte 3)`."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
