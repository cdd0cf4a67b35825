"""What evidence is worth, from 0 to 1.

Items add up as independent chances do: 1 minus the product of what each leaves open. One fixed test
alone reaches the usual threshold of 0.7. Each regression takes 30 % away.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

FIXED = 0.7
"""A test that failed, or was in error, and passes."""

VERIFIED = 0.6
"""An error whose resolution was seen to work."""

UNVERIFIED = 0.2
"""An error of which somebody says how it was resolved."""

QUALITY = 0.4
"""A check that found much less, at most."""

FULL_PERCENT, FULL_POINTS = 20, 10
"""By how much a number of messages sinks, or coverage rises, for all of `QUALITY`."""

REGRESSION = 0.7
"""What each regression leaves."""

THRESHOLD = 0.7
"""What is enough, where nobody says."""


def combined(weights: Iterable[float], regressions: int) -> float:
    """The score of items, to 4 digits."""
    found = (1 - math.prod(1 - weight for weight in weights)) * REGRESSION**regressions
    return round(found, 4)


def resolution(text: str, *, verified: bool) -> float:
    return 0.0 if not text.strip() else VERIFIED if verified else UNVERIFIED


def transition(before: str, after: str) -> float:
    return FIXED if before in ("fail", "error") and after == "pass" else 0.0


def quality(improvement: float | None, *, points: bool) -> float:
    """`improvement`: in percent, or in `points` of coverage; None: nothing before is known."""
    share = (improvement or 0) / (FULL_POINTS if points else FULL_PERCENT)
    return round(QUALITY * min(1.0, max(0.0, share)), 4)


def improvement(before: float, after: float, *, points: bool) -> float:
    """How much better it is: in percent of before, or in points where more is better."""
    if points:
        return round(after - before, 2)
    if not before:
        return -100.0 if after else 0.0
    return round(100 * (before - after) / before, 2)
