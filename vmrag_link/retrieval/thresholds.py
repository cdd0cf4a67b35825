"""How similar is similar enough, where nobody says so.

Cosines of one embedding model mean nothing to another: with ours, texts about the same thing have
0.2 to 0.5, and a usual default of 0.75 found none of 60 (`bench/thresholds.py`). So a default
belongs to a model.
"""

from __future__ import annotations

from collections.abc import Mapping

MEASURED: Mapping[str, float] = {"default": 0.18, "hash": 0.25, "minilm": 0.20}
"""By embedding function: what at most 5 % of unrelated pairs reach. 68 % of the related ones do
with `default`, and 97 % with `minilm`.
"""


def threshold(model: str, given: float | None, configured: float, usual: float) -> float:
    """The least similarity that counts: as a call gives it, else as configured (0: not), else what
    was measured of the model, else the usual one.
    """
    if given is not None:
        return given
    return configured or MEASURED.get(model, usual)
