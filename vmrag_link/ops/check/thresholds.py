"""Measure the answers to the golden queries, and compare the measures with thresholds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

from vmrag_link.errors import QueriesInvalid, plural
from vmrag_link.golden.queries import GoldenQuery, RankedChunk, list_documents
from vmrag_link.models import Record
from vmrag_link.paths import QUERIES_NAME

_DEVIATIONS = 1.959964
"""Number of standard deviations on each side of the mean that include 95 % of a normal
distribution.
"""


class GoldenMetrics(Record, frozen=True):
    """Means over the `judged` queries, which are the queries that name documents.

    The intervals contain the true mean with 95 % confidence, if the queries are a sample of those
    that people ask.
    """

    judged: int
    recall: float
    """The share of the named documents among the first k chunks."""
    mrr: float
    """1 / the rank of the first named document among the returned documents; 0 without one."""
    ndcg: float
    """The sum of the weights of the named documents (1 / log2(rank + 1)), divided by that of the
    best order.
    """
    mrr_interval: tuple[float, float]
    ndcg_interval: tuple[float, float]


class CommitQuality(Record, frozen=True, omit_defaults=True):
    """The answers at a commit."""

    commit: str
    date: str
    """The day of the author."""
    subject: str
    missed: int | None = None
    """Number of queries whose answer lacks something."""
    metrics: GoldenMetrics | None = None
    problem: str = ""
    """Why all queries failed."""


class QualityHistory(Record, frozen=True):
    """The quality of answers at several commits."""

    commits: tuple[CommitQuality, ...]
    """Newest first."""
    shallow: bool
    """True if older commits may be missing, because the clone is shallow."""


class ThresholdResult(Record, frozen=True, rename={"measured": "found"}):
    """A threshold and the measured value. `measured` must be at least `limit` or, for regressions,
    at most `limit`.
    """

    name: Literal["mrr", "recall", "regressions"]
    limit: float
    measured: float

    @property
    def holds(self) -> bool:
        return self.measured <= self.limit if self.name == "regressions" else self.measured >= self.limit

    @property
    def sentence(self) -> str:
        if self.name == "regressions":
            return f"{plural(int(self.measured), 'regression')}; at most {self.limit:g} allowed"
        return f"{self.name} {self.measured:.4f}; at least {self.limit:g} required"


class Thresholds(Record, frozen=True):
    """The requested thresholds."""

    min_mrr: float | None = None
    min_recall: float | None = None
    max_regressions: int | None = None
    base: str | None = None
    """A git ref. A query that it does not answer as expected is not counted as a regression."""

    def check_metrics(self, metrics: GoldenMetrics | None, *, regressions: int) -> Iterator[ThresholdResult]:
        """Yield the result of each threshold that is set. Raises `QueriesInvalid` if there is
        nothing to measure.
        """
        if self.min_mrr is not None:
            yield ThresholdResult("mrr", self.min_mrr, _require_metrics(metrics, "mrr").mrr)
        if self.min_recall is not None:
            yield ThresholdResult("recall", self.min_recall, _require_metrics(metrics, "recall").recall)
        if self.max_regressions is not None or self.base is not None:
            yield ThresholdResult("regressions", self.max_regressions or 0, regressions)


def _require_metrics(metrics: GoldenMetrics | None, name: str) -> GoldenMetrics:
    if metrics is None:
        raise QueriesInvalid(
            f"no query in {QUERIES_NAME} has expected documents, so {name} cannot be computed.",
            hint="add `expect:` or `first:` to a query",
            file=QUERIES_NAME,
        )
    return metrics


NO_THRESHOLDS = Thresholds()


def list_relevant(query: GoldenQuery) -> frozenset[str]:
    """Return the documents that the query names as its answer. A recorded ranking names none."""
    names = {*query.expect, *([query.first] if query.first else [])}
    return frozenset(names or query.order or ())


def measure_answers(answers: Iterable[tuple[frozenset[str], Sequence[RankedChunk]]]) -> GoldenMetrics | None:
    """Measure the answers, given the expected documents and the found chunks. Return None if no
    query names documents.
    """
    recalls: list[float] = []
    reciprocal_ranks: list[float] = []
    gains: list[float] = []
    for expected, chunks in answers:
        if not expected:
            continue
        documents = list_documents(chunks)
        ranks = (rank for rank, document in enumerate(documents, 1) if document in expected)
        first_rank = next(ranks, None)
        recalls.append(len(expected & {*documents}) / len(expected))
        reciprocal_ranks.append(1 / first_rank if first_rank else 0.0)
        gains.append(_measure_gain(expected, documents))
    judged = len(recalls)
    if not judged:
        return None
    mrr = sum(reciprocal_ranks) / judged
    ndcg = sum(gains) / judged
    return GoldenMetrics(
        judged=judged,
        recall=sum(recalls) / judged,
        mrr=mrr,
        ndcg=ndcg,
        mrr_interval=confidence_interval(mrr, judged),
        ndcg_interval=confidence_interval(ndcg, judged),
    )


def _measure_gain(expected: frozenset[str], documents: Sequence[str]) -> float:
    """Return the nDCG of one ranking, rounded, because logarithms differ between machines."""
    reached = sum(1 / math.log2(rank + 1) for rank, name in enumerate(documents, 1) if name in expected)
    best = sum(1 / math.log2(rank + 1) for rank in range(1, len(expected) + 1))
    return round(reached / best, 9)


def confidence_interval(mean: float, count: int) -> tuple[float, float]:
    """Return Wilson's 95 % interval of a mean of values between 0 and 1.

    It is never empty, unlike an interval made from the standard deviation: ten correct answers do
    not prove that the next one is correct. For values other than 0 and 1 it is wider than
    necessary.
    """
    spread = _DEVIATIONS**2 / count
    centre = (mean + spread / 2) / (1 + spread)
    half = math.sqrt(spread * (mean * (1 - mean) + spread / 4)) / (1 + spread)
    return round(max(0.0, centre - half), 6), round(min(1.0, centre + half), 6)
