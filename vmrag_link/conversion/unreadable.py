"""What every reader raises for contents that it cannot convert."""

from __future__ import annotations


class ContentUnreadable(Exception):
    """`reason` completes a sentence that begins with the file's name: `is not UTF-8 (byte 3)`.

    `hint` is a command that may help; empty where only another file does.
    """

    def __init__(self, reason: str, hint: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.hint = hint
