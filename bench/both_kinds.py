"""`python -m bench.both_kinds [--into DIR] [--test]`: search pages and code of a package together.

A question is a heading, removed from its page, or the first sentence of a docstring, removed from
the code. The program searches the right collection alone, and both. Without `--test`, it uses the
packages by which settings may be chosen. pip downloads the packages once.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from bench import code_docstrings, knowledge, quality_sets
from vmrag_link.progress import QUIET
from vmrag_link.retrieval.query import Mode, Query
from vmrag_link.retrieval.search import Searcher
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.answers.query import search_index

PACKAGES = ("anyio==4.16.0", "falcon==4.4.0", "marshmallow==4.4.0", "peewee==4.5.3", "pytest==9.2.0")
HELD_BACK = ("aiohttp==3.14.5", "black==26.10.1", "mypy==2.4.1", "pyramid==2.1", "tornado==6.6.1")
EACH = 60
"""Questions of one kind about one package."""

ALONE, FIRST, SECOND = 3, 3, 6
"""Number of results that are searched for the file: in the right collection, and in both."""

SETTINGS = """\
sources:
  - {collection: docs, paths: [docs]}
  - {collection: code, kind: code, paths: [code]}
"""
TITLES = {"docs": "headings", "code": "docstrings"}


class Wanted(NamedTuple):
    """A question, the collection that answers it, and the file in that collection."""

    text: str
    collection: str
    path: str


class Found(NamedTuple):
    """True if the file is among `ALONE`, `FIRST` and `SECOND` results. `right_kind`: True if the
    first result is of its kind.
    """

    collection: str
    alone: bool
    first: bool
    second: bool
    right_kind: bool


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.both_kinds", description=__doc__)
    parser.add_argument("--into", type=Path, help="keep packages and repositories here, for the next run")
    parser.add_argument("--test", action="store_true", help="ask about the packages that no setting was chosen by")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = (given.into or Path(temporary)).absolute()
        os.environ |= knowledge.environment(folder / "home")
        made = [repository(folder, package) for package in (HELD_BACK if given.test else PACKAGES)]
        for mode in (Mode.HYBRID, Mode.KEYWORD, Mode.VECTOR):
            print(
                f"\n{mode}\n\n| package, questions | alone at {ALONE} | both at {FIRST} | both at {SECOND} | right kind |"
            )
            print("|---|---|---|---|---|")
            rows = {repo.name: answers(repo, questions, mode) for repo, questions in made}
            for name, results in (rows | {"all": [row for some in rows.values() for row in some]}).items():
                report(name, results)


def report(package: str, results: list[Found]) -> None:
    for collection, title in TITLES.items():
        some = [row for row in results if row.collection == collection]
        alone, *both = (sum(column) / len(some) for column in list(zip(*some, strict=True))[1:])
        cells = [f"{alone:.3f}", *(f"{share:.3f} ({share / alone:.2f})" for share in both[:2]), f"{both[2]:.3f}"]
        print(f"| {package}, {len(some)} {title} | {' | '.join(cells)} |")


def answers(repo: Path, questions: list[Wanted], mode: Mode) -> list[Found]:
    """Return a result for each question, by one ranking."""
    with contextlib.closing(Workspace.open(repo, QUIET)) as ws:
        return search_index(ws, lambda searcher, _: [search_both(searcher, question, mode) for question in questions])


def search_both(searcher: Searcher, question: Wanted, mode: Mode) -> Found:
    def search(k: int, collections: tuple[str, ...] | None = None) -> list[tuple[str, str]]:
        hits = searcher.search(Query(question.text, collections, k=k, mode=mode))
        return [(hit.collection, hit.doc_id) for hit in hits]

    place = (question.collection, question.path)
    alone, first, second = search(ALONE, (question.collection,)), search(FIRST), search(SECOND)
    right_kind = bool(first) and first[0][0] == question.collection
    return Found(question.collection, place in alone, place in first, place in second, right_kind)


# -- the repositories


def repository(folder: Path, package: str) -> tuple[Path, list[Wanted]]:
    """Return the repository of a package's pages and code, and the questions. Make it once."""
    name = package.partition("==")[0]
    repo, whole = folder / name, fetched(folder / "archives", package)
    pages, headings = _pages(whole)
    code, docstrings = _code(whole)
    if not (repo / ".git/done").exists():
        for place, text in (pages | code | {".vmrag.yaml": SETTINGS}).items():
            (repo / place).parent.mkdir(parents=True, exist_ok=True)
            (repo / place).write_text(text)
        for command in (("init", "-q", "-b", "main"), ("add", "-f", "-A"), ("commit", "-q", "-m", "all")):
            knowledge.git(repo, *command, env=dict(os.environ))
        (repo / ".git/done").touch()
    return repo, [*headings, *docstrings]


def fetched(archives: Path, package: str) -> Path:
    """Return the folder of the unpacked source distribution, downloaded once."""
    name = package.partition("==")[0]
    archives.mkdir(parents=True, exist_ok=True)
    if not list(archives.glob(f"{name}-*.tar.gz")):
        pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", name, "-d", str(archives)]
        subprocess.run([*pip, package], check=True)
    archive = next(archives.glob(f"{name}-*.tar.gz"))
    if not (archives / name).exists():
        with tarfile.open(archive) as packed:
            packed.extractall(archives / name, filter="data")
    return next(path for path in (archives / name).iterdir() if path.is_dir())


def _pages(whole: Path) -> tuple[dict[str, str], list[Wanted]]:
    """Return the pages of a manual without some headings, and these headings as questions."""
    pages = {}
    for path in sorted(whole.rglob("*")):
        place = path.relative_to(whole)
        if path.suffix in quality_sets.PAGES and {"doc", "docs"}.intersection(place.parts[:-1]):
            text = path.read_text("utf-8", "replace").replace("\r", "")
            if not quality_sets.is_beside(place) and len(text) >= 500:
                pages[f"docs/{place}"] = text
    questions = quality_sets.headings_of(pages)[:EACH]
    for question in questions:
        pages[question.doc_id] = quality_sets.without(pages[question.doc_id], question.text)
    return pages, [Wanted(row.text, "docs", row.doc_id) for row in questions]


def _code(whole: Path) -> tuple[dict[str, str], list[Wanted]]:
    """Return the modules without docstrings, and the first sentences of docstrings as questions."""
    files, questions = {}, []
    for path, place in _modules(whole):
        try:
            text = path.read_text("utf-8")
            definitions = code_docstrings.definitions(code_docstrings.ast.parse(text))
            files[f"code/{place}"] = code_docstrings.without_docstrings(text)
        except (SyntaxError, ValueError):  # templates of code
            continue
        sentences = (code_docstrings.first_sentence(row.docstring, row.name) for row in definitions)
        questions += [Wanted(sentence, "code", f"code/{place}") for sentence in sentences if sentence]
    times = Counter(row.text.lower() for row in questions)
    once = [row for row in questions if times[row.text.lower()] == 1]
    return files, sorted(once, key=lambda row: quality_sets.order(row.text))[:EACH]


def _modules(whole: Path) -> Iterator[tuple[Path, str]]:
    """Yield the modules that are neither tests nor part of a manual, with their paths."""
    for path in sorted(whole.rglob("*.py")):
        place = path.relative_to(whole).as_posix()
        if not re.search(
            r"(?:^|/)(?:docs?|examples?|_?tests?|testing|test-data)/|(?:^|/)(?:test_|conftest|setup)", place
        ):
            yield path, place


if __name__ == "__main__":
    main()
