"""How similar is similar enough, where nobody says so.

Cosines of one embedding model mean nothing to another: unrelated texts have 0.1 with one and 0.7
with the other. So a default belongs to a model.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

Purpose = Literal["thoughts"]

USUAL: Mapping[Purpose, float] = {"thoughts": 0.75}
"""For models of which nothing is known."""

MEASURED: Mapping[Purpose, Mapping[str, float]] = {"thoughts": {}}
"""By the name of the embedding function."""


def threshold(purpose: Purpose, model: str, given: float | None, configured: float) -> float:
    """The least similarity that counts: as a call gives it, else as configured (0: not), else the
    model's.
    """
    if given is not None:
        return given
    return configured or MEASURED[purpose].get(model, USUAL[purpose])
