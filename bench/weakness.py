"""`python -m bench.weakness [--into DIR] [--model NAME]`: weak answers, and passages worth reading.

It asks the questions of `bench.quality` and sixty about other subjects. For each set it prints the
cosines that unrelated questions reach, the shares that are marked weak, and what `search` saves and
loses by leaving out hits that are far below the best.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from bench import quality, quality_sets
from bench.quality_sets import Question
from vmrag_link.retrieval import weakness
from vmrag_link.retrieval.query import FIRST_HITS, MAX_PACKED_HITS, Hit, Query
from vmrag_link.retrieval.ranking import Ranking
from vmrag_link.retrieval.search import Searcher
from vmrag_link.workspace.answers.packing import estimate_tokens

UNRELATED = Path(__file__).parent.parent / "tests/data/unrelated-questions.txt"
BUDGET, HEAD = 2_000, 15
"""Tokens of an answer of `search`, and of one head line in it, about."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.weakness", description=__doc__)
    parser.add_argument("--into", type=Path, help="keep packages and repositories here, for the next run")
    parser.add_argument("--model", default="default", help="embedding model (default: default)")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.into or Path(temporary)
        quality_sets.fetch(folder / "packages")
        made = {
            "library": quality_sets.library(folder / "packages"),
            "manual": quality_sets.manual(folder / "packages"),
        }
        for name, some in {**{name: {"pages": pages} for name, pages in made.items()}, "together": made}.items():
            questions = [
                question for one in some.values() for question in one.questions.values() for question in question
            ]
            with quality.open_index(folder / given.model / name, some, given.model) as searcher:
                _report(name, searcher(Ranking()), questions)


def _report(name: str, searcher: Searcher, questions: Sequence[Question]) -> None:
    others = [Query(text, k=MAX_PACKED_HITS) for text in UNRELATED.read_text().splitlines()]
    hits = [searcher.search(query) for query in others]
    reached = [
        max(searcher.compute_cosines(query.text, some[:FIRST_HITS])) for query, some in zip(others, hits, strict=True)
    ]
    weak = np.mean([searcher.is_weak(query, some) for query, some in zip(others, hits, strict=True)])
    answered, used, saved, lost = [], 0, 0, 0
    for question in questions:
        query = Query(question.text, k=MAX_PACKED_HITS)
        results = searcher.search(query)
        if not quality.rank_of(results, question):
            continue
        answered.append(searcher.is_weak(query, results))
        whole, part = _fitting(results), _fitting(weakness.select_relevant(results))
        used += _cost(whole)
        saved += _cost(whole) - _cost(part)
        lost += bool(quality.rank_of(whole, question)) and not quality.rank_of(part, question)
    print(f"{name}: the best cosine of an unrelated question, at 50, 80, 90 and 100 %: ", end="")
    print(", ".join(f"{cosine:.2f}" for cosine in np.quantile(reached, (0.5, 0.8, 0.9, 1))))
    print(
        f"  weak: {weak:.1%} of {len(others)} unrelated, {np.mean(answered):.1%} of {len(answered)} answered questions"
    )
    print(f"  worth reading: {saved / used:.1%} of the tokens saved, {lost / len(answered):.2%} of the documents lost")


def _fitting(hits: Sequence[Hit]) -> list[Hit]:
    """Return the hits that fit the budget, about as `packing.pack` does."""
    kept, used = list[Hit](), 0
    for hit in hits:
        if used + (cost := _cost([hit])) <= BUDGET:
            kept.append(hit)
            used += cost
    return kept


def _cost(hits: Sequence[Hit]) -> int:
    return sum(estimate_tokens(hit.text) + HEAD for hit in hits)


if __name__ == "__main__":
    main()
