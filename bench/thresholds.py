"""`python -m bench.thresholds [MODEL …]`: from which similarity on two texts are about the same.

For each embedding function the lowest threshold that at most `MISTAKEN` of the unrelated pairs
reach, which is what `retrieval.thresholds` holds, and the share of the related pairs that do.
"""

from __future__ import annotations

import argparse

import numpy as np

from bench.threshold_pairs import PAIRS
from vmrag_link.embedding.registry import load

MISTAKEN = 0.05
OTHER = 0.75
"""The one threshold for all models that is shown beside it."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.thresholds", description=__doc__)
    parser.add_argument("models", nargs="*", default=["default", "minilm"])
    print("| embedding | threshold | related pairs found | unrelated | at 0.75 | medians |\n|---|---|---|---|---|---|")
    for name in parser.parse_args().models:
        related, unrelated = cosines(name)
        at = threshold(unrelated)
        found = f"{np.mean(related >= at):.0%} of {len(related)} | {np.mean(unrelated >= at):.1%} of {len(unrelated):,}"
        medians = f"{np.median(related):.2f}, {np.median(unrelated):.2f}"
        print(f"| `{name}` | {at:.2f} | {found} | {np.mean(related >= OTHER):.0%} | {medians} |")


def cosines(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Of the pairs, and of each question with every text that is another one's."""
    model = load(name)
    questions = _rows(model.embed_queries([question for question, _ in PAIRS]))
    texts = _rows(model.embed([text for _, text in PAIRS]))
    every = questions @ texts.T
    return np.diag(every), every[~np.eye(len(PAIRS), dtype=bool)]


def _rows(vectors: list[bytes]) -> np.ndarray:
    return np.stack([np.frombuffer(each, dtype=np.float32) for each in vectors])


def threshold(unrelated: np.ndarray) -> float:
    """In hundredths."""
    return next(number / 100 for number in range(101) if np.mean(unrelated >= number / 100) <= MISTAKEN)


if __name__ == "__main__":
    main()
