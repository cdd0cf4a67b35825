"""The same files of code, whatever segments they lie in and in whatever order they came, are found
and ranked equally.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.support.knowledge import collection, doc
from vmrag_link.code.cutting import cut_code
from vmrag_link.documents.chunking import split_document
from vmrag_link.embedding import registry
from vmrag_link.index import draft as drafts
from vmrag_link.index import upkeep
from vmrag_link.index import view as views
from vmrag_link.index.draft import ChunkedDocument, Draft
from vmrag_link.index.views import Views
from vmrag_link.models import PIECES, SOURCE, Chunking, Document, IndexedPiece, format_json
from vmrag_link.retrieval import ranker
from vmrag_link.retrieval.bm25 import WordScores
from vmrag_link.retrieval.narrowing import make_narrowing
from vmrag_link.retrieval.query import Mode, Query
from vmrag_link.retrieval.search import Searcher

MODEL = registry.load_model("hash")
CODE = Chunking("code", 200, 0)
COLLECTIONS = [
    collection("code", kind=SOURCE, chunking=CODE),
    collection("more", kind=SOURCE, chunking=CODE),
    collection("guide"),
]
NAMES = "refresh Session handlerStack open_file Öffnen HTTPServer x1".split()
QUESTIONS = (
    "Session",
    "session",
    "Session.refresh",
    "open_file",
    "how does handlerStack open_file",
    "where is the http server opened",
    "x1 öffnen nothing",
)
QUERIES = [
    *(Query(text, k=40, mode=mode) for mode in Mode for text in QUESTIONS),
    *(Query("Session open", k=7, mode=mode, narrowing=make_narrowing(symbols=["session"])) for mode in Mode),
    *(Query("Session", k=7, mode=mode, narrowing=make_narrowing(paths=["src/**/*.py"])) for mode in Mode),
    *(Query("open_file", k=7, mode=mode, collections=("more",)) for mode in Mode),
]

Files = dict[tuple[str, str], str]
"""Texts by collection and path."""


def text(rng: random.Random) -> str:
    """Declarations, many of them equal to those of other files."""
    lines = []
    for _ in range(rng.randrange(1, 5)):
        lines.append(f"class {rng.choice(NAMES)}:")
        for _ in range(rng.randrange(1, 4)):
            lines += [
                f"    def {rng.choice(NAMES)}(self):",
                f"        return {rng.choice(NAMES)} # {rng.choice(NAMES)}",
            ]
    return "\n".join(lines)


def indexed(name: str, path: str, content: str) -> ChunkedDocument:
    metadata = {}
    if name != "guide":
        pieces = cut_code(content, "python", CODE.size)
        metadata = {
            PIECES: [
                IndexedPiece(
                    piece.start,
                    content.count("\n", 0, piece.start) + 1,
                    piece.symbol,
                    piece.kind,
                    piece.signature,
                    piece.declared,
                )
                for piece in pieces
            ]
        }
    document: Document = doc(path, content, collection=name, metadata=metadata)
    chunks = tuple(split_document(document, CODE if metadata else Chunking()))
    return ChunkedDocument(document, chunks, tuple(MODEL.embed([chunk.text for chunk in chunks])))


def write(draft: Draft, files: Mapping[tuple[str, str], str | None], order: list[tuple[str, str]]) -> None:
    for name, path in order:
        content = files[name, path]
        draft.remove_documents(name, [path])
        if content is not None:
            draft.add_documents(name, [indexed(name, path, content)])


def answers(folder: Path) -> str:
    searcher = Searcher(folder, lambda _: MODEL)
    try:
        return format_json([searcher.search(query) for query in QUERIES])
    finally:
        searcher.close()


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few documents make several segments."""
    monkeypatch.setattr(drafts, "SMALL_SEGMENT", 0)
    monkeypatch.setattr(drafts, "MOST_PARTS", 10)


@pytest.mark.parametrize("seed", range(2))
def test_any_split_of_code_into_segments_gives_identical_ranking(small, tmp_path, seed):
    rng, root = random.Random(seed), tmp_path / str(seed)
    made = Views(root / "views")
    made.root.mkdir(parents=True)
    try:
        files: Files = {}
        base = None
        for number in range(6):
            changes = {
                (
                    rng.choice(("code", "more", "guide")),
                    rng.choice(("src/a", "src/test", "b")) + f"/f{rng.randrange(6)}.py",
                ): (text(rng) if rng.random() < 0.8 else None)
                for _ in range(rng.randrange(4, 12))
            }
            with Draft(made.segments.root, views.read_view(base) if base else None) as draft:
                for collection in COLLECTIONS if base is None else ():
                    draft.create_collection(collection)
                write(draft, changes, rng.sample([*changes], len(changes)))
                base = made.view_path(f"{number:040}")
                draft.publish(base, revision=f"{number:040}")
            files = {key: file for key, file in (files | changes).items() if file is not None}
        assert base is not None
        fresh = made.root / "fresh"
        with Draft(made.segments.root) as draft:
            for collection in COLLECTIONS:
                draft.create_collection(collection)
            write(draft, files, rng.sample([*files], len(files)))
            draft.publish(fresh, revision="")
        expected = answers(fresh)
        assert answers(base) == expected
        assert views.read_view(base).collections == views.read_view(fresh).collections
        (root / "locks").mkdir()
        assert len(views.read_view(base).parts) > 1
        for collection in made.list_views():
            if collection.path != base:
                shutil.rmtree(collection.path)
        assert upkeep.rewrite_segments(made)
        assert answers(base) == expected
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(ranker, "_choose_scores", lambda _: WordScores)
            assert answers(base) == expected, "words are counted equally with and without numpy"
    finally:
        shutil.rmtree(root)
