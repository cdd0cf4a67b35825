"""`python -m bench.records [--into DIR]`: measure if records rank before incidental mentions.

A repository has sixty records: notes, decision records, and sections of a changelog and a README.
It also has about a thousand pages: the manuals and man pages of `quality_sets`. Each record answers
one question of `tests/data/record-questions.yaml`.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

import yaml

from bench import knowledge, quality, quality_sets
from vmrag_link.progress import QUIET
from vmrag_link.retrieval.query import Hit, Mode, Query
from vmrag_link.retrieval.search import Searcher
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.answers.query import search_index

QUESTIONS = Path(__file__).parent.parent / "tests/data/record-questions.yaml"
FIRST, DEPTH = 3, 30
MODES = (Mode.HYBRID, Mode.KEYWORD)
SETTINGS = "embedding:\n  model: default\n"
SOURCES = (
    '[{"collection":"docs","paths":["docs/","README.md","CHANGELOG.md"]},'
    '{"collection":"notes","paths":[".vmrag/notes/"],"write":true}]'
)
KINDS = ("note", "decision", "changelog", "readme")

T = TypeVar("T")


class Record(NamedTuple):
    """`answer`: words of the passage that answers the question. `kind`: one of `KINDS`."""

    kind: str
    path: str
    question: str
    answer: str
    text: str

    @property
    def doc_id(self) -> str:
        return f"docs/{self.path}" if self.kind == "decision" else self.path

    def is_in(self, hit: Hit) -> bool:
        """Return whether a hit is the passage that answers."""
        return hit.doc_id == self.doc_id and self.answer in " ".join(hit.text.split())


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.records", description=__doc__)
    parser.add_argument("--into", type=Path, help="keep packages and repositories here, for the next run")
    parser.add_argument("--misses", action="store_true", help="list questions whose record is not among three results")
    given = parser.parse_args()
    records = read_records()
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.into or Path(temporary)
        quality_sets.fetch(folder / "packages")
        make_repository(folder, records)
        ask(folder, lambda searcher: [_report(mode, searcher, records, misses=given.misses) for mode in MODES])


def read_records() -> list[Record]:
    return [Record(**row) for row in yaml.safe_load(QUESTIONS.read_text())]


def make_repository(folder: Path, records: list[Record]) -> None:
    """Write a repository with the pages and the records, if it does not exist."""
    repo, packages = folder / "records", folder / "packages"
    if (repo / ".git/done").exists():
        return
    pages = quality_sets.library(packages).documents | quality_sets.manual(packages).documents
    files = {f"docs/{doc_id.replace('/', '~')}.md": text for doc_id, text in pages.items()}
    files |= {f"docs/{record.path}": record.text for record in records if record.kind == "decision"}
    files |= {f".vmrag/notes/{record.path}.md": record.text for record in records if record.kind == "note"}
    for name, title in (("CHANGELOG.md", "Changelog"), ("README.md", "Acme Parts")):
        files[name] = "\n".join([f"# {title}\n", *(record.text for record in records if record.path == name)])
    files[".vmrag.yaml"] = SETTINGS
    for name, text in files.items():
        path = repo / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    env = knowledge.environment(folder / "home")
    for arguments in (("init", "-q", "-b", "main"), ("add", "-A"), ("commit", "-q", "-m", "Begin")):
        knowledge.git(repo, *arguments, env=env)
    (repo / ".git/done").touch()


def ask(folder: Path, look: Callable[[Searcher], T]) -> T:
    """Return what `look` returns for the index of the repository."""
    os.environ["VMRAG_SOURCES"] = SOURCES
    ws = Workspace.open(folder / "records", QUIET)
    with contextlib.closing(ws):
        return search_index(ws, lambda searcher, _: look(searcher))


def rank_of(hits: Sequence[Hit], record: Record) -> int:
    """Return the rank of the passage that answers, from 1, or 0 if no hit is this passage."""
    return next((hit.rank for hit in hits if record.is_in(hit)), 0)


def _report(mode: Mode, searcher: Searcher, records: Sequence[Record], *, misses: bool) -> None:
    ranks = {record: rank_of(searcher.search(Query(record.question, k=DEPTH, mode=mode)), record) for record in records}
    print(f"| {mode} | hit@1 | hit@3 | hit@10 | among {DEPTH} | MRR |\n|---|---|---|---|---|---|")
    for kind in (*KINDS, "all"):
        places = [rank for record, rank in ranks.items() if kind in (record.kind, "all")]
        cells = [f"{quality.hit(places, k):.3f}" for k in (1, 3, 10, DEPTH)]
        print(f"| {kind} ({len(places)}) | {' | '.join(cells)} | {quality.mrr(places):.3f} |")
    for record, rank in ranks.items():
        if misses and not 0 < rank <= FIRST:
            print(f"  {rank or '-':>3} {record.kind}: {record.question}")


if __name__ == "__main__":
    main()
