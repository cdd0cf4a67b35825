"""From which similarity on a document counts as found, where neither call nor project says.

Models spread their cosines differently: one that was made for retrieval gives a text that answers
0.8, a static one 0.4. So each model has its own, and the tools' usual ones hold for all others.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping


class Use(enum.StrEnum):
    """What is looked for: documents that an answer is made of, that a person chooses from, of a
    project's other documentation, or thoughts like one.
    """

    ANSWER = "answer"
    SEARCH = "search"
    EXTERNAL = "external"
    THOUGHTS = "thoughts"


USUAL: Mapping[Use, float] = {Use.ANSWER: 0.7, Use.SEARCH: 0.5, Use.EXTERNAL: 0.7, Use.THOUGHTS: 0.75}
"""As the tools state them. They were chosen for models that are asked as services."""


def _table(near: float, search: float) -> Mapping[Use, float]:
    return {Use.ANSWER: near, Use.SEARCH: search, Use.EXTERNAL: near, Use.THOUGHTS: near}


MEASURED: Mapping[str, Mapping[Use, float]] = {
    "default": _table(0.18, 0.14),
    "minilm": _table(0.20, 0.16),
    "hash": _table(0.25, 0.22),
}
"""By embedding function, from 60 questions and 60 texts (`bench/thresholds.py`): what at most 5 of
100 unrelated pairs reach; where a person chooses, 10. Of the related ones 68 % do with `default`,
97 % with `minilm`, and none the usual 0.75.
"""


def threshold(
    use: Use, embedding_function: str, *, given: float | None = None, configured: float | None = None
) -> float:
    """The least similarity: the call's, else the project's, the model's, or the usual one."""
    stated = given if given is not None else configured
    return stated if stated is not None else MEASURED.get(embedding_function, USUAL)[use]
