"""`python -m bench.thresholds [MODEL …]`: from which similarity on a text is near to a question.

For each embedding function and each use the lowest threshold that at most a share (`REACHED`) of
the unrelated pairs reach, which is what `retrieval.thresholds` holds. Beside it: the share of the
related pairs that reach it, and of the questions that have a word in common with their text, and
no answer there.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from bench.threshold_pairs import PAIRS, UNANSWERED
from vmrag_link.embedding.registry import load_model
from vmrag_link.retrieval.thresholds import SearchPurpose

REACHED: Mapping[SearchPurpose, float] = {
    SearchPurpose.ANSWER: 0.05,
    SearchPurpose.SEARCH: 0.1,
    SearchPurpose.EXTERNAL: 0.05,
    SearchPurpose.THOUGHTS: 0.05,
}
"""Share of the unrelated pairs that may reach the threshold.

It is higher for a search, because the reader of a list can skip what does not fit.
"""


class Cosines(NamedTuple):
    """Cosines of questions and texts. `related`: a question and its text. `unrelated`: a question
    and the text of another one. `unanswered`: both have a topic, but the text has no answer.
    """

    related: np.ndarray
    unrelated: np.ndarray
    unanswered: np.ndarray


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.thresholds", description=__doc__)
    parser.add_argument("models", nargs="*", default=["default", "minilm", "hash"])
    print("| embedding | use | threshold | related pairs found | unrelated | unanswered |\n|---|---|---|---|---|---|")
    for name in parser.parse_args().models:
        sample = cosines(name)
        for use in (SearchPurpose.ANSWER, SearchPurpose.SEARCH):
            at = threshold(sample.unrelated, REACHED[use])
            shares = " | ".join(
                f"{np.mean(cosine_values >= at):.1%} of {len(cosine_values):,}" for cosine_values in sample
            )
            print(f"| `{name}` | {use} | {at:.2f} | {shares} |")
        print(f"| | medians | | {' | '.join(f'{np.median(cosine_values):.2f}' for cosine_values in sample)} |")


def cosines(name: str) -> Cosines:
    model = load_model(name)
    questions = _rows(model.embed_queries([question for question, _ in PAIRS]))
    others = _rows(model.embed_queries([*UNANSWERED]))
    texts = _rows(model.embed([text for _, text in PAIRS]))
    every = questions @ texts.T
    return Cosines(np.diag(every), every[~np.eye(len(PAIRS), dtype=bool)], np.sum(others * texts, axis=1))


def _rows(vectors: list[bytes]) -> np.ndarray:
    return np.stack([np.frombuffer(vector, dtype=np.float32) for vector in vectors])


def threshold(unrelated: np.ndarray, share: float) -> float:
    """In hundredths."""
    return next(number / 100 for number in range(101) if np.mean(unrelated >= number / 100) <= share)


def measured(name: str) -> dict[SearchPurpose, float]:
    """Return the threshold of an embedding function for each purpose."""
    unrelated = cosines(name).unrelated
    return {use: threshold(unrelated, share) for use, share in REACHED.items()}


if __name__ == "__main__":
    main()
