"""Why an output cannot be read."""

from __future__ import annotations


class OutputUnreadable(Exception):
    """Its text completes `FILE …`."""
