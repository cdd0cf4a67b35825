"""Time limits for tests on a busy machine."""

from __future__ import annotations

import os


def slack() -> float:
    """Return how many times longer a step may take now than on a quiet machine.

    A test with a time limit proves that a command does not wait for something. On a machine with
    more runnable processes than cores, each step takes longer in proportion.
    """
    return max(1.0, 2 * os.getloadavg()[0] / (os.cpu_count() or 1))
