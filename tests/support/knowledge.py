"""A knowledge base on the embedded engine with its index, without git: the parts of
`vmrag_link.sync` by hand.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.support.repos import ENGINE
from vmrag_link.embedding import registry
from vmrag_link.embedding.base import Model
from vmrag_link.embedding.cache import EmbeddingCache
from vmrag_link.engines import opening
from vmrag_link.engines.base import Write
from vmrag_link.engines.own_branches import ROOT_BRANCH
from vmrag_link.index import view as views
from vmrag_link.index.draft import Draft
from vmrag_link.index.view import find_view_problem
from vmrag_link.index.views import Views
from vmrag_link.models import At, Collection, Document, WorkingSet, content_hash, encode_canonical_json, format_json
from vmrag_link.progress import QUIET
from vmrag_link.retrieval.query import Query
from vmrag_link.retrieval.ranking import DEFAULT_RANKING, Ranking
from vmrag_link.retrieval.search import Searcher
from vmrag_link.sync.build import Base, Built, build_view
from vmrag_link.sync.indexer import Indexer, IndexUpdate

ROOT = Path(__file__).parents[2]
AUTHOR = "Ada <ada@example.org>"
DATE = "2026-01-02T03:04:05Z"
BRANCH = "main"
CHILDREN: list[subprocess.Popen[str]] = []


def doc(doc_id: str, content: str = "text", *, collection: str = "guide", title: str = "", metadata=None) -> Document:
    return Document(collection, doc_id, title, content, content_hash(content), encode_canonical_json(metadata or {}))


def collection(name: str = "guide", *, model: str = "hash", **fields) -> Collection:
    loaded = registry.load_model(model)
    return Collection(
        name,
        embedding_function=model,
        embedding_model=loaded.fingerprint,
        embedding_dimensions=loaded.dimensions,
        **fields,
    )


class Knowledge:
    """One branch of documents in `folder/kb`, its views in `folder/views`; made if
    absent.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        kb = folder / "kb"
        engine = opening.open_engine(kb) if kb.exists() else opening.create_engine(ENGINE, kb, author=AUTHOR, date=DATE)
        self.engine = engine
        if self.engine.find_branch(BRANCH) is None:
            root = self.engine.find_branch(ROOT_BRANCH)
            assert root is not None
            self.engine.create_branch(BRANCH, root.head)
        self.views = Views(folder / "views")
        self.views.root.mkdir(exist_ok=True)
        self.cache = EmbeddingCache(folder / "embeddings.sqlite")
        self.indexer = Indexer(self.engine, self.cache, self.model_for, QUIET)
        self.models: dict[str, Model] = {}

    def close(self) -> None:
        """Ends the children that a failed test left, too."""
        self.engine.close()
        while CHILDREN:
            process = CHILDREN.pop()
            if process.poll() is None:
                process.kill()
            process.communicate()

    def model_for(self, row: Collection) -> Model:
        return self.models.setdefault(row.embedding_function, registry.load_model(row.embedding_function))

    # -- documents ---------------------------------------------------------------------------------

    @property
    def head(self) -> str:
        branch = self.engine.find_branch(BRANCH)
        assert branch is not None
        return branch.head

    def write(
        self,
        *documents: Document,
        collections: Sequence[Collection] = (),
        remove: Sequence[tuple[str, str]] = (),
        drop: Sequence[str] = (),
    ) -> None:
        """Uncommitted."""
        rows = Write(
            put_collections=collections, put_documents=documents, remove_documents=remove, remove_collections=drop
        )
        self.engine.write(BRANCH, rows, expected=self.head)

    def commit(self, *documents: Document, **changes) -> str:
        self.write(*documents, **changes)
        return self.engine.commit(BRANCH, message="a change", author=AUTHOR, date=DATE, expected=self.head)

    # -- index -------------------------------------------------------------------------------------

    def base(self, revision: str) -> Base:
        path = self.views.view_path(revision)

        @contextlib.contextmanager
        def holding() -> Iterator[str]:
            with self.views.lock_for_reading(path):
                yield find_view_problem(path, revision=revision)

        return Base(path, revision, holding)

    def index(self, revision: str, *, base: str | None = None) -> Built:
        """The view of a revision; derived from that of `base`, or made from nothing."""
        return build_view(
            revision,
            engine=self.engine,
            existing=self.views,
            bases=[self.base(base)] if base else [],
            indexer=lambda: self.indexer,
        )

    def draft(self, base: Path | None = None, *, segments: Path | None = None) -> Draft:
        """A view in the making, derived from the one in `base`, if given."""
        return Draft(segments or self.views.segments.root, views.read_view(base) if base else None)

    def fresh(self, at: At, folder: Path, *, revision: str = "") -> None:
        """An index that is made from nothing, in `folder`."""
        with self.draft() as draft:
            self.indexer.update_index(draft, at, base=None)
            draft.clear_touched()
            draft.publish(folder, revision=revision or (at if isinstance(at, str) else ""))

    def copied(self, revision: str, name: str) -> Path:
        """A copy of a revision's view, with the same segments, that a test may change."""
        target = self.folder / "copies" / name
        shutil.copytree(self.views.view_path(revision), target)
        return target

    def bring_working(self, folder: Path, revision: str, *, base: Path | None = None) -> IndexUpdate:
        """Update an index at a revision to the uncommitted documents, or make it from the view
        `base`.
        """
        with self.draft(base or folder) as draft:
            brought = self.indexer.update_index(draft, WorkingSet(BRANCH), base=revision)
            draft.publish(folder, revision=revision, durable=False)
        return brought

    def search(self, path: Path, text: str, *, ranking: Ranking = DEFAULT_RANKING, **fields) -> list:
        searcher = Searcher(path, self.model_for, ranking)
        try:
            return searcher.search(Query(text, **fields))
        finally:
            searcher.close()

    def answers(self, path: Path, queries: Sequence[Query]) -> str:
        """The JSON of all answers: what has to be the same byte by byte."""
        searcher = Searcher(path, self.model_for)
        try:
            return format_json([searcher.search(query) for query in queries])
        finally:
            searcher.close()


def child(body: str, **variables: str) -> subprocess.Popen[str]:
    """A process that runs `body` with everything of this module at hand; stdin and stdout piped."""
    program = "import os, sys, time\nfrom pathlib import Path\nfrom tests.support.knowledge import *\n" + body
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env=os.environ | variables,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    CHILDREN.append(process)
    return process


def said(process: subprocess.Popen[str]) -> str:
    """The next line that a child printed."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


def end(process: subprocess.Popen[str]) -> str:
    """Close the child's stdin and wait for it; what it printed since."""
    out, _ = process.communicate()
    CHILDREN.remove(process)
    assert process.returncode == 0
    return out


def open_files(folder: Path) -> list[str]:
    """The files under a folder that this process has open (Linux)."""
    result = []
    for descriptor in Path("/proc/self/fd").iterdir():
        try:
            target = str(descriptor.readlink())
        except FileNotFoundError:
            continue
        if target.startswith(f"{folder}/"):
            result.append(target)
    return result


@pytest.fixture
def kb(tmp_path: Path) -> Iterator[Knowledge]:
    made = Knowledge(tmp_path)
    yield made
    made.close()
