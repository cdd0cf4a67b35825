"""`python -m bench.quality [--into DIR] [--test]`: how good answers are, ranking by ranking.

Without `--test` it asks the other half of the questions, by which settings may be chosen. Needs pip
and npm once, for the packages of `quality_sets`.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from bench import knowledge, quality_sets
from bench.quality_sets import Question, QuestionSet
from vmrag_link.progress import QUIET
from vmrag_link.retrieval.query import Hit, Mode, Query
from vmrag_link.retrieval.ranking import Ranking
from vmrag_link.retrieval.search import Searcher
from vmrag_link.workspace import Workspace

DEPTH = 100
RRF_K = 60
RESAMPLES = 10_000
BASELINE, WORDS, VECTORS, HYBRID = "reciprocal ranks (before)", "words alone", "vectors alone", "hybrid"

Answer = Callable[[str], list[Hit]]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.quality", description=__doc__)
    parser.add_argument("--into", type=Path, help="keep packages and repositories here, for the next run")
    parser.add_argument("--test", action="store_true", help="ask the half that nothing was chosen by")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.into or Path(temporary)
        quality_sets.fetch(folder / "packages")
        ranks: dict[str, dict[str, list[int]]] = {}
        passages: dict[int, list[bool]] = {}
        sets = {
            name: make(folder / "packages")
            for name, make in (("library", quality_sets.library), ("manual", quality_sets.manual))
        }
        for name, made in sets.items():
            chosen = asked_of(made, test=given.test)
            with open_index(folder / name, {"pages": made}) as searcher:
                ranked(ranks, searcher, chosen)
                for limit in (1, 2, 3, 0):
                    answer = direct(searcher, Mode.HYBRID, Ranking(per_document=limit), k=5)
                    passages.setdefault(limit, []).extend(
                        any(question.passage in hit.text for hit in answer(question.text))
                        for questions in chosen.values()
                        for question in questions
                        if question.passage
                    )
        together: dict[str, dict[str, list[int]]] = {}
        with open_index(folder / "together", sets) as searcher:
            ranked(
                together, searcher, {k: q for made in sets.values() for k, q in asked_of(made, test=given.test).items()}
            )
    report(ranks)
    print("\nThe same questions to both, each a collection of its own, without naming one:\n")
    report(together)
    print("\nThe passage itself among five results, by `retrieval.per_document`: ", end="")
    print(", ".join(f"{limit or 'any'} {np.mean(passage):.3f}" for limit, passage in passages.items()))


def asked_of(made: QuestionSet, *, test: bool) -> dict[str, list[Question]]:
    return {kind: [question for question in all_ if question.test == test] for kind, all_ in made.questions.items()}


def ranked(
    ranks: dict[str, dict[str, list[int]]],
    searcher: Callable[[Ranking], Searcher],
    questions_by_kind: dict[str, list[Question]],
) -> None:
    """Add the places of the right documents, by ranking and kind of question."""
    for title, answer in rankings(searcher).items():
        for kind, questions in questions_by_kind.items():
            ranks.setdefault(title, {})[kind] = [rank_of(answer(question.text), question) for question in questions]


def rankings(searcher: Callable[[Ranking], Searcher]) -> dict[str, Answer]:
    """Return the rankings to compare; the first one is the baseline."""
    words, vectors = (direct(searcher, mode, Ranking(document_weight=0.0)) for mode in (Mode.KEYWORD, Mode.VECTOR))
    return {
        BASELINE: lambda text: reciprocal(words(text), vectors(text)),
        "words alone, of the chunk (before)": words,
        VECTORS: vectors,
        WORDS: direct(searcher, Mode.KEYWORD, Ranking()),
        "convex sum, words of the chunk": direct(searcher, Mode.HYBRID, Ranking(document_weight=0.0)),
        HYBRID: direct(searcher, Mode.HYBRID, Ranking()),
    }


def direct(searcher: Callable[[Ranking], Searcher], mode: Mode, ranking: Ranking, k: int = DEPTH) -> Answer:
    opened = searcher(ranking)
    return lambda text: opened.search(Query(text, k=k, mode=mode))


def reciprocal(*parts: list[Hit]) -> list[Hit]:
    """Version 1 of the ranking: reciprocal rank fusion of the best hundred of each part."""
    scores: dict[tuple[str, str, int], float] = {}
    hits = {(hit.collection, hit.doc_id, hit.chunk): hit for part in parts for hit in part}
    for part in parts:
        for hit in part:
            place = (hit.collection, hit.doc_id, hit.chunk)
            scores[place] = scores.get(place, 0.0) + 1 / (RRF_K + hit.rank)
    return [hits[place] for place in sorted(scores, key=lambda place: (-scores[place], place))]


def rank_of(hits: list[Hit], question: Question) -> int:
    """The place of the right document among those of an answer, from 1; 0: it is not there."""
    documents = list(dict.fromkeys(hit.doc_id.rpartition("/")[2] for hit in hits))
    return documents.index(_file(question.doc_id)) + 1 if _file(question.doc_id) in documents else 0


# -- the index


@contextlib.contextmanager
def open_index(folder: Path, collections: Mapping[str, QuestionSet], model: str = "default"):
    """Searchers over the documents, by ranking; as `vmrag import` indexes them."""
    env = knowledge.environment(folder.parent / "home") | {"VMRAG_EMBEDDING_MODEL": model}
    if not (folder / ".git/done").exists():
        for name, made in collections.items():
            (folder / name).mkdir(parents=True, exist_ok=True)
            for doc_id, text in made.documents.items():
                (folder / name / _file(doc_id)).write_text(text)
        knowledge.git(folder, "init", "-q", "-b", "main", env=env)
        imports = (("import", name, "--collection", name) for name in collections)
        for command in (("init", "--knowledge-base", "--no-sources", "--no-hooks"), *imports):
            subprocess.run([*knowledge.VMRAG, *command, "-q"], cwd=folder, env=env, check=True)
        (folder / ".git/done").touch()
    workspace = Workspace.open(folder, QUIET)
    with contextlib.closing(workspace), workspace.reader.view() as view, contextlib.ExitStack() as opened:
        yield lambda ranking: opened.enter_context(
            contextlib.closing(Searcher(view.folder, workspace.models.load_for, ranking))
        )


def _file(doc_id: str) -> str:
    return doc_id.replace("/", "~").removesuffix(".txt") + ".txt"


# -- the report


def report(ranks: dict[str, dict[str, list[int]]]) -> None:
    kinds = list(ranks[BASELINE])
    counts = ", ".join(f"{kind} {len(ranks[BASELINE][kind])}" for kind in kinds)
    print(f"MRR (questions: {counts}); * = 95 % interval of the paired difference above, ° = below the first row\n")
    print(f"| ranking | {' | '.join(kinds)} | mean MRR | hit@1 | hit@5 | nDCG@10 |\n|{'---|' * (len(kinds) + 5)}")
    for title, rank in ranks.items():
        cells = [f"{mrr(rank[kind]):.3f}{difference(rank[kind], ranks[BASELINE][kind])}" for kind in kinds]
        means = [
            np.mean([measure(rank[kind]) for kind in kinds])
            for measure in (mrr, lambda all_: hit(all_, 1), lambda all_: hit(all_, 5), ndcg)
        ]
        print(f"| {title} | {' | '.join(cells)} | {' | '.join(f'{mean:.3f}' for mean in means)} |")
    print("\nThe mean MRR of hybrid above that of: ", end="")
    print(", ".join(f"{other} {_interval(ranks[HYBRID], ranks[other])}" for other in (BASELINE, WORDS, VECTORS)))


def reciprocals(ranks: list[int]) -> np.ndarray:
    return np.array([1 / rank if rank else 0.0 for rank in ranks])


def mrr(ranks: list[int]) -> float:
    return float(reciprocals(ranks).mean())


def hit(ranks: list[int], k: int) -> float:
    return float(np.mean([0 < rank <= k for rank in ranks]))


def ndcg(ranks: list[int], k: int = 10) -> float:
    """One document is right, so the ideal gain is 1."""
    return float(np.mean([1 / math.log2(1 + rank) if 0 < rank <= k else 0.0 for rank in ranks]))


def resampled(ranks: list[int], baseline: list[int]) -> np.ndarray:
    """Paired bootstrap of the difference of two MRR."""
    gains = reciprocals(ranks) - reciprocals(baseline)
    chosen = np.random.default_rng(1).integers(0, len(gains), (RESAMPLES, len(gains)))
    return gains[chosen].mean(axis=1)


def _interval(ranks: dict[str, list[int]], others: dict[str, list[int]]) -> str:
    """The mean difference over all sets, each resampled by itself, with its 95 % interval."""
    means = np.mean([resampled(ranks[kind], others[kind]) for kind in ranks], axis=0)
    low, high = np.quantile(means, (0.025, 0.975))
    return f"{np.mean([mrr(ranks[kind]) - mrr(others[kind]) for kind in ranks]):+.3f} ({low:+.3f} to {high:+.3f})"


def difference(ranks: list[int], baseline: list[int]) -> str:
    """Return the mark of a difference whose 95 % interval is above (`*`) or below (`°`) 0."""
    low, high = np.quantile(resampled(ranks, baseline), (0.025, 0.975))
    return "*" if low > 0 else "°" if high < 0 else ""


if __name__ == "__main__":
    main()
