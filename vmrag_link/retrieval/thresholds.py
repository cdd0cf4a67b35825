"""The similarity from which a document is a result, for tools that search by meaning.

Models have different ranges of cosines: a matching text gets 0.8 from a model for retrieval, and
0.4 from a static model. So each model has its own threshold, which applies if neither the call nor
the project sets one. Other models have the default thresholds of the tools.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping


class SearchPurpose(enum.StrEnum):
    """The purpose of a search."""

    ANSWER = "answer"
    """Documents that an answer is composed of."""

    SEARCH = "search"
    """Documents from which a person chooses."""

    EXTERNAL = "external"
    """Documents of a project's external documentation."""

    THOUGHTS = "thoughts"
    """Thoughts that resemble a thought."""


DEFAULT_THRESHOLDS: Mapping[SearchPurpose, float] = {
    SearchPurpose.ANSWER: 0.7,
    SearchPurpose.SEARCH: 0.5,
    SearchPurpose.EXTERNAL: 0.7,
    SearchPurpose.THOUGHTS: 0.75,
}
"""The thresholds that the tools document. They were chosen for embedding services."""


def _make_thresholds(near: float, search: float) -> Mapping[SearchPurpose, float]:
    return {
        SearchPurpose.ANSWER: near,
        SearchPurpose.SEARCH: search,
        SearchPurpose.EXTERNAL: near,
        SearchPurpose.THOUGHTS: near,
    }


MEASURED_THRESHOLDS: Mapping[str, Mapping[SearchPurpose, float]] = {
    "default": _make_thresholds(0.18, 0.14),
    "minilm": _make_thresholds(0.20, 0.16),
    "hash": _make_thresholds(0.25, 0.22),
}
"""Thresholds by embedding function, from 60 questions and 60 texts (`bench/thresholds.py`). At most
5 of 100 unrelated pairs reach them, or 10 if a person chooses. 68 % of the related pairs reach them
with `default`, 97 % with `minilm`, and none reaches the default of 0.75.
"""


def choose_threshold(
    purpose: SearchPurpose, embedding_function: str, *, given: float | None = None, configured: float | None = None
) -> float:
    """Return the minimum similarity: of the call, or else of the project, the model, or the
    default.
    """
    threshold = given if given is not None else configured
    return (
        threshold if threshold is not None else MEASURED_THRESHOLDS.get(embedding_function, DEFAULT_THRESHOLDS)[purpose]
    )
