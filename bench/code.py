"""`python -m bench.code [--into DIR] [--labels DIR] [--test]`: how good answers about code are.

Settings are chosen by one half of the packages. `--test` measures the other half, and `--kept-back`
measures docstrings of further packages. The program needs pip. For semble's labelled questions it
also needs npm, go, cargo and mvn once, for the packages of `code_sets`.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bench import code_docstrings, code_latency, code_sets, knowledge
from bench.code_baselines import SEMBLE, Asked, Piece, PlainWords, Ripgrep, Semble
from bench.code_sets import CodeSet, Question, Target, repository
from bench.quality import RESAMPLES
from vmrag_link.progress import QUIET
from vmrag_link.retrieval.query import Hit, Mode, Query
from vmrag_link.retrieval.ranking import Ranking
from vmrag_link.retrieval.search import Searcher
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.answers.query import search_index
from vmrag_link.workspace.reader import View

DEPTH = 100
BUDGETS = (500, 1000, 2000, 4000)
PLAIN, WORDS, VECTORS, HYBRID, RIPGREP = "plain BM25", "words alone", "vectors alone", "hybrid", "ripgrep, files read"

RANKINGS: dict[str, tuple[Mode, Ranking]] = {
    VECTORS: (Mode.VECTOR, Ranking()),
    WORDS: (Mode.KEYWORD, Ranking()),
    HYBRID: (Mode.HYBRID, Ranking()),
}
"""Ours; further ones are rows of the tables."""

Answers = dict[str, list[list[Piece]]]
"""Title of a ranking → its pieces for each question."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.code", description=__doc__)
    parser.add_argument("--into", type=Path, help="keep packages and repositories here, for the next run")
    parser.add_argument("--labels", type=Path, help="a checkout of semble's repository (github MinishLab/semble)")
    parser.add_argument("--test", action="store_true", help="ask the half that nothing was chosen by")
    parser.add_argument("--kept-back", action="store_true", help="ask about the packages that no setting is chosen by")
    parser.add_argument("--only", choices=("labelled", "docstrings", "latency"), help="one part of it")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = (given.into or Path(temporary)).absolute()
        os.environ |= knowledge.environment(folder / "home")
        semble = Semble(folder / "semble")
        if given.kept_back:
            documented(code_docstrings.documented(folder / "documented", kept_back=True), folder, semble)
            return
        if given.only in (None, "labelled"):
            if given.labels:
                labelled(code_sets.labelled(folder / "labelled", given.labels, test=given.test), folder, semble)
            else:
                print("Without --labels, semble's labelled questions are left out.\n")
        if given.only in (None, "docstrings"):
            documented(code_docstrings.documented(folder / "documented", test=given.test), folder, semble)
        if given.only in (None, "latency"):
            code_latency.report(folder, semble)


# -- answers


def answers(sets: Sequence[CodeSet], folder: Path, semble: Semble) -> Answers:
    """To the questions of all sets, in their order."""
    answers_by_title: Answers = {}
    requests = [Asked(made.root, [question.text for question in made.questions]) for made in sets]
    with_rg = Ripgrep.is_here()
    if not with_rg:
        print(f"Without rg on PATH, {RIPGREP!r} is left out.\n")
    for made, theirs in zip(sets, semble.ask(requests, DEPTH), strict=True):
        ours = _ours(repository(folder / "repositories" / made.name, {"": made.root}), made.questions)
        for title, our in (ours | {SEMBLE: theirs.answers}).items():
            answers_by_title.setdefault(title, []).extend(our)
        if with_rg:
            ripgrep = Ripgrep(made.root)
            answers_by_title.setdefault(RIPGREP, []).extend(
                ripgrep.answer(question.text) for question in made.questions
            )
    return answers_by_title


def _ours(repo: Path, questions: Sequence[Question]) -> Answers:
    with contextlib.closing(Workspace.open(repo, QUIET)) as ws:
        return search_index(ws, lambda _, view: _ranked(ws, view, questions))


def _ranked(ws: Workspace, view: View, questions: Sequence[Question]) -> Answers:
    answers_by_title: Answers = {PLAIN: []}
    with contextlib.ExitStack() as opened:

        def answering(mode: Mode, ranking: Ranking) -> Callable[[str, int], list[Hit]]:
            searcher = Searcher(view.folder, ws.models.load_for, ranking, more=view.more)
            opened.callback(searcher.close)
            return lambda text, k: searcher.search(Query(text, k=k, mode=mode))

        everything = answering(Mode.VECTOR, Ranking(per_document=0))("def", code_latency.ALL_OF_IT)
        plain = PlainWords([_piece(hit) for hit in everything], [hit.text for hit in everything])
        answers_by_title[PLAIN] = [plain.answer(question.text, DEPTH) for question in questions]
        for title, (mode, ranking) in RANKINGS.items():
            answer = answering(mode, ranking)
            answers_by_title[title] = [[_piece(hit) for hit in answer(question.text, DEPTH)] for question in questions]
    return answers_by_title


def _piece(hit: Hit) -> Piece:
    return Piece(hit.doc_id, hit.metadata["line"], hit.metadata["last_line"], len(hit.text) // 4)


# -- measures


def rank_of(pieces: Sequence[Piece], target: Target) -> int:
    """The place of the first piece that touches it, from 1; 0: none does."""
    return next((rank for rank, piece in enumerate(pieces, start=1) if target.hit_by(piece)), 0)


def ndcg(pieces: Sequence[Piece], question: Question, k: int = 10) -> float:
    """Return the NDCG as semble computes it: a piece counts once, a target at its first rank."""
    ranks = {rank for target in question.targets if (rank := rank_of(pieces[:k], target)) > 0}
    ideal = sum(1 / math.log2(1 + rank) for rank in range(1, min(k, len(question.targets)) + 1))
    return sum(1 / math.log2(1 + rank) for rank in ranks) / ideal


def reciprocal(pieces: Sequence[Piece], question: Question) -> float:
    rank = rank_of(pieces, question.relevant[0])
    return 1 / rank if rank else 0.0


def reciprocal_of_file(pieces: Sequence[Piece], question: Question) -> float:
    """Return the reciprocal rank of the first piece of the right file."""
    rank = rank_of(pieces, Target(question.relevant[0].path))
    return 1 / rank if rank else 0.0


def recalls(pieces: Sequence[Piece], question: Question) -> list[float]:
    """The share of the targets in the first pieces that fit each of `BUDGETS`."""
    total, within = 0, []
    for piece in pieces:
        total += piece.tokens
        within.append(total)
    kept = [pieces[: sum(tokens <= budget for tokens in within)] for budget in BUDGETS]
    return [float(np.mean([rank_of(few, target) > 0 for target in question.targets])) for few in kept]


# -- parts


class Column(NamedTuple):
    """A column of a table: a selection of questions, and the measure of their gains."""

    title: str
    of: np.ndarray
    measure: Callable[[np.ndarray], float] = lambda gains: float(gains.mean())


def labelled(sets: Sequence[CodeSet], folder: Path, semble: Semble) -> None:
    questions = [question for made in sets for question in made.questions]
    answers_by_title = answers(sets, folder, semble)
    languages = np.array([made.language for made in sets for _ in made.questions])
    categories = np.array([question.category for question in questions])
    all_of_them = np.full(len(questions), fill_value=True)
    columns = [
        Column("Python", languages == "python"),
        Column("other languages", languages != "python"),
        *(Column(category, categories == category) for category in sorted(set(categories))),
        Column("all", all_of_them),
        Column(
            "mean of languages", all_of_them, _mean_by(languages, [made.name for made in sets for _ in made.questions])
        ),
    ]
    dropped = sum(made.dropped for made in sets)
    print(f"semble's labelled questions, NDCG@10 ({len(sets)} repositories; {dropped} questions left out)\n")
    _table(_gains(answers_by_title, questions, ndcg), columns)
    _tokens(answers_by_title, questions)


def documented(sets: Sequence[CodeSet], folder: Path, semble: Semble) -> None:
    questions = [question for made in sets for question in made.questions]
    answers_by_title = answers(sets, folder, semble)
    names = np.array([made.name for made in sets for _ in made.questions])
    all_of_them = np.full(len(questions), fill_value=True)
    columns = [
        *(Column(made.name, names == made.name) for made in sets),
        Column("all", all_of_them),
        Column("hit@1", all_of_them, lambda gains: float((gains == 1).mean())),
        Column("hit@5", all_of_them, lambda gains: float((gains >= 0.2).mean())),
    ]
    print("\nFirst sentences of docstrings, MRR of the definition\n")
    piece_answers = {title: lists for title, lists in answers_by_title.items() if title != RIPGREP}
    _table(_gains(piece_answers, questions, reciprocal), columns)
    print("\nThe same, MRR of the file of the definition\n")
    _table(_gains(piece_answers, questions, reciprocal_of_file), columns)
    _tokens(answers_by_title, questions)


# -- the report


def _gains(
    answers_by_title: Answers, questions: Sequence[Question], measure: Callable[[Sequence[Piece], Question], float]
) -> dict[str, np.ndarray]:
    return {
        title: np.array([measure(pieces, question) for pieces, question in zip(lists, questions, strict=True)])
        for title, lists in answers_by_title.items()
    }


def _table(gains: dict[str, np.ndarray], columns: Sequence[Column]) -> None:
    first = gains[PLAIN]
    print(f"| ranking | {' | '.join(f'{column.title} ({column.of.sum()})' for column in columns)} |")
    print(f"|{'---|' * (len(columns) + 1)}")
    for title, gain in gains.items():
        cells = [f"{column.measure(gain[column.of]):.3f}{_mark((gain - first)[column.of])}" for column in columns]
        print(f"| {title} | {' | '.join(cells)} |")
    print(
        f"\n* = 95 % interval of the paired difference from {PLAIN!r} above 0, ° = below. {HYBRID} above that of: ",
        end="",
    )
    print(", ".join(f"{other} {_interval(gains[HYBRID] - gains[other])}" for other in gains if other != HYBRID))


def _tokens(answers_by_title: Answers, questions: Sequence[Question]) -> None:
    print("\nRecall of the targets by returned tokens (characters by four)\n")
    print(f"| ranking | {' | '.join(map(str, BUDGETS))} |\n|{'---|' * (len(BUDGETS) + 1)}")
    for title, lists in answers_by_title.items():
        means = np.mean([recalls(pieces, question) for pieces, question in zip(lists, questions, strict=True)], axis=0)
        print(f"| {title} | {' | '.join(f'{mean:.3f}' for mean in means)} |")


def resampled(differences: np.ndarray) -> np.ndarray:
    """Paired bootstrap of the mean difference."""
    chosen = np.random.default_rng(1).integers(0, len(differences), (RESAMPLES, len(differences)))
    return np.asarray(differences[chosen].mean(axis=1))


def _interval(differences: np.ndarray) -> str:
    low, high = np.quantile(resampled(differences), (0.025, 0.975))
    return f"{differences.mean():+.3f} ({low:+.3f} to {high:+.3f})"


def _mark(differences: np.ndarray) -> str:
    low, high = np.quantile(resampled(differences), (0.025, 0.975))
    return "*" if low > 0 else "°" if high < 0 else ""


def _mean_by(languages: np.ndarray, names: Sequence[str]) -> Callable[[np.ndarray], float]:
    """semble's way: the mean over languages of the mean over their repositories."""

    def mean(gains: np.ndarray) -> float:
        by_language: dict[str, dict[str, list[float]]] = {}
        for language, name, gain in zip(languages, names, gains, strict=True):
            by_language.setdefault(language, {}).setdefault(name, []).append(gain)
        return float(np.mean([np.mean([np.mean(gains) for gains in sets.values()]) for sets in by_language.values()]))

    return mean


if __name__ == "__main__":
    main()
