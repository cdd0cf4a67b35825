"""Baselines for answers about code: BM25 alone, semble's own program, and the way of a person,
who runs ripgrep for the words of the question and reads the files.

`python -m bench.code_baselines JOB` asks semble, in a virtual environment of its own.
"""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bench.default_model import DESCRIPTION
from bench.timing import Run, once

SEMBLE = "semble==0.7.0"
K1, B = 1.2, 0.75
WORD = re.compile(r"[^\W_]+")
SHORT = 3
"""Letters that a keyword has at least."""
STOPWORDS = frozenset(
    "about after all and any are before being both but can could did does during each few for from had has have how "
    "into its just may might more most neither nor not off once only other out over own same should some such than "
    "that the their then these they this through under until very was what when where which while who why will with "
    "would yet".split()
)


class Piece(NamedTuple):
    """A part of an answer. `tokens`: its characters by four, as semble counts its own."""

    path: str
    first: int
    last: int
    tokens: int


class Asked(NamedTuple):
    """Questions about the files below `root`, for another program."""

    root: Path
    questions: list[str]


class Answered(NamedTuple):
    """`runs`: the seconds of each question, in a process that has the index open."""

    answers: list[list[Piece]]
    runs: list[Run]
    pieces: int


# -- BM25


class PlainWords:
    """BM25 of pieces by their own words, between punctuation and underscores, in lower case."""

    def __init__(self, pieces: Sequence[Piece], texts: Sequence[str]) -> None:
        counts = [Counter(WORD.findall(text.lower())) for text in texts]
        lengths = [count.total() for count in counts]
        mean = sum(lengths) / (len(lengths) or 1)
        self._pieces = pieces
        self._norms = [K1 * (1 - B + B * length / mean) for length in lengths]
        self._postings: dict[str, list[tuple[int, int]]] = {}
        for number, count in enumerate(counts):
            for word, times in count.items():
                self._postings.setdefault(word, []).append((number, times))

    def answer(self, text: str, depth: int) -> list[Piece]:
        scores: dict[int, float] = {}
        for word in set(WORD.findall(text.lower())):
            holding = self._postings.get(word, [])
            rare = math.log(1 + (len(self._pieces) - len(holding) + 0.5) / (len(holding) + 0.5))
            for number, times in holding:
                scores[number] = scores.get(number, 0.0) + rare * times * (K1 + 1) / (times + self._norms[number])
        best = sorted(scores, key=lambda number: (-scores[number], self._pieces[number]))
        return [self._pieces[number] for number in best[:depth]]


# -- ripgrep


class Ripgrep:
    """Whole files, those first that have most lines with keywords of the question."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._lines: dict[str, Counter[str]] = {}
        self._files: dict[str, Piece] = {}

    @staticmethod
    def is_here() -> bool:
        return shutil.which("rg") is not None

    def answer(self, text: str) -> list[Piece]:
        words = dict.fromkeys(match.lower() for match in re.findall(r"[a-zA-Z][a-zA-Z0-9]*", text))
        keywords = [word for word in words if len(word) >= SHORT and word not in STOPWORDS]
        lines = sum((self._lines_with(keyword) for keyword in keywords or [text]), Counter[str]())
        return [self._file(path) for path in sorted(lines, key=lambda path: (-lines[path], path))]

    def _lines_with(self, pattern: str) -> Counter[str]:
        if pattern not in self._lines:
            argv = ["rg", "--count", "--fixed-strings", "--ignore-case", "--no-ignore", "--with-filename", "--null"]
            said = subprocess.run([*argv, "--", pattern, "."], cwd=self._root, capture_output=True, check=False).stdout
            counts = (line.partition("\0") for line in said.decode().splitlines())
            self._lines[pattern] = Counter({path.removeprefix("./"): int(times) for path, _, times in counts})
        return self._lines[pattern]

    def _file(self, path: str) -> Piece:
        if path not in self._files:
            text = (self._root / path).read_text("utf-8", "replace")
            self._files[path] = Piece(path, 1, text.count("\n") + 1, len(text) // 4)
        return self._files[path]


# -- semble


class Semble:
    """Its program in an environment below `folder`, with the vectors of our default model."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.absolute()
        self._python = self._folder / "venv/bin/python"
        if not (self._folder / "installed").exists():
            subprocess.run([sys.executable, "-m", "venv", str(self._folder / "venv")], check=True)
            subprocess.run([str(self._python), "-m", "pip", "install", "-q", SEMBLE], check=True)
            (self._folder / "installed").touch()
        _export_model(self._folder)
        self._run(self._folder)

    def _run(self, given: Path) -> None:
        argv = [str(self._python), "-m", "bench.code_baselines", str(given)]
        subprocess.run(argv, cwd=self._folder, env=self._env, check=True)

    @property
    def _env(self) -> dict[str, str]:
        """The environment of semble: it cannot reach a hub, and keeps its files in the folder."""
        return os.environ | {
            "HOME": str(self._folder),
            "PYTHONPATH": str(Path(__file__).parent.parent),
            "SEMBLE_CACHE_LOCATION": str(self._folder / "cache"),
            "SEMBLE_MODEL_NAME": str(self._folder / "model"),
            "HF_HUB_OFFLINE": "1",
        }

    def ask(self, sets: Sequence[Asked], depth: int) -> list[Answered]:
        job, answer = self._folder / "job.json", self._folder / "answer.json"
        requests = [{"root": str(code_set.root.absolute()), "questions": code_set.questions} for code_set in sets]
        job.write_text(json.dumps({"depth": depth, "sets": requests, "answer": str(answer)}))
        self._run(job)
        return [
            Answered(
                [[Piece(*piece) for piece in pieces] for pieces in load["answers"]],
                [Run(wall, cpu, 0) for wall, cpu in load["runs"]],
                load["pieces"],
            )
            for load in json.loads(answer.read_text())
        ]

    def once(self, question: str, root: Path) -> Run:
        """A whole process that asks it."""
        program = self._folder / "venv/bin/semble"
        return once([str(program), "search", question, str(root.absolute())], cwd=root, env=self._env)


def _export_model(folder: Path) -> None:
    """The rows of our tokens, weighted, and the tokenizer, for `_make_model`."""
    import numpy as np

    from vmrag_link.embedding import static

    weights, rows = static.StaticModel()._table  # noqa: SLF001  no text asks for the whole table
    np.save(folder / "table.npy", (weights[:, None] * rows).astype("f4"))
    shutil.copyfile(DESCRIPTION, folder / "tokenizer.json")


def _make_model(folder: Path) -> None:
    """A folder that model2vec opens."""
    import numpy as np
    from model2vec import StaticModel  # type: ignore[import-not-found]
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    StaticModel(np.load(folder / "table.npy"), tokenizer, normalize=True).save_pretrained(folder / "model")


def _ask_semble(job: dict[str, Any]) -> list[dict[str, Any]]:
    from semble import SembleIndex  # type: ignore[import-not-found]

    said = []
    for request in job["sets"]:
        index = SembleIndex.from_path(request["root"])
        answers, runs = [], []
        for question in request["questions"]:
            start = time.perf_counter(), time.process_time()
            results = index.search(question, top_k=job["depth"])
            runs.append((time.perf_counter() - start[0], time.process_time() - start[1]))
            chunks = [result.chunk for result in results]
            answers.append([(it.file_path, it.start_line, it.end_line, len(it.content) // 4) for it in chunks])
        said.append({"answers": answers, "runs": runs, "pieces": len(index.chunks)})
    return said


if __name__ == "__main__":
    given = Path(sys.argv[1])
    if given.is_dir():
        _make_model(given)
    else:
        job = json.loads(given.read_text())
        Path(job["answer"]).write_text(json.dumps(_ask_semble(job)))
