"""Search by meaning and by words, in the knowledge of HEAD or of another git ref."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Literal, TypeVar

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from vmrag_link import permissions
from vmrag_link.errors import NO_DOCUMENTS, CollectionMissing, EmbeddingFailed, IndexFailed, UsageInvalid
from vmrag_link.git import plumbing
from vmrag_link.index.view import require_verification
from vmrag_link.models import LONGEST_QUERY, Record
from vmrag_link.paths import TREE
from vmrag_link.retrieval import fusion
from vmrag_link.retrieval.query import Hit, Query
from vmrag_link.retrieval.search import Searcher
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.follow.follow_pin import read_consistently
from vmrag_link.workspace.follow.provenance import KbBlock, RankedRevision, answer_from_files, find_view_origin
from vmrag_link.workspace.reader import View

if TYPE_CHECKING:
    from vmrag_link.workspace import ReadableStore

T = TypeVar("T")
SHOWN_MARK = "said"
"""In `.git/vmrag/tree`: it was said in this repository."""

MOST_UNTRACKED = 1_000
"""If more files are untracked, such as a folder of packages, none of them is read."""

NOT_SET_UP = "There is no .vmrag.yaml, so vmrag searched the tracked files that it would propose. To commit this choice, run: vmrag init"


class QueryReport(Record, frozen=True):
    """`notes`: why the answer is not from the pinned revision, if so."""

    results: list[Hit]
    kb: KbBlock
    notes: tuple[str, ...] = ()
    weak: Literal[True] | UnsetType = UNSET
    """True for a weak answer (`retrieval.weakness`), otherwise UNSET."""


def require_query(text: str) -> None:
    """Raises `UsageInvalid` for one without a character, and above `LONGEST_QUERY`."""
    if not text.strip():
        raise UsageInvalid("The query is empty.", hint="Write a question or some words.", parameter="query")
    if len(text) > LONGEST_QUERY:
        raise UsageInvalid(
            f"the query has {len(text):,} characters; at most {LONGEST_QUERY:,} are accepted.",
            hint="Shorten the query.",
            parameter="query",
            value=len(text),
            maximum=LONGEST_QUERY,
        )


def answer_query(ws: ReadableStore, asked: Query, *, at: RankedRevision | None = None) -> QueryReport:
    """The best chunks.

    A pin that moved is followed first; one that cannot be followed leaves the bound revision
    answering. `at`: answer from there, without touching the workspace. Raises `UsageInvalid` for an
    empty query.
    """
    require_query(asked.text)
    return search_index(ws, lambda searcher, view: answer_from_index(ws, searcher, view, asked), at=at)


def answer_from_index(ws: ReadableStore, searcher: Searcher, view: View, asked: Query) -> QueryReport:
    """The best chunks of an index that is open."""
    try:
        results = searcher.search(asked)
    except EmbeddingFailed as error:
        error.hint += "   (or, by words alone: vmrag query --mode keyword)"
        raise
    except CollectionMissing as error:
        require_readable(view, error.details["collection_name"], error.details["collections"])
        raise
    weak: Literal[True] | UnsetType = True if searcher.is_weak(asked, results) else UNSET
    return QueryReport(results, find_view_origin(ws, view).kb, view.notes, weak)


def require_readable(view: View, name: str, there: Sequence[str]) -> None:
    """Raises `CollectionMissing` for a source of that name, if its files cannot be read here."""
    if why := view.sources.unavailable.get(name) if view.sources else "":
        from vmrag_link.workspace.documents import collections

        raise collections.unreadable_source(name, why, there)


def search_index(
    ws: ReadableStore, look: Callable[[Searcher, View], T], *, at: RankedRevision | None = None, files: bool = True
) -> T:
    """What `look` returns for an index that stays open and unchanged until then. It may be called
    again, where the pin moves meanwhile, or where the index proves damaged and is built again.

    What is not versioned has no revision to be asked `at`. Where there is no knowledge base, the
    files of sources answer alone. `files` False: what is asked for is stored, and files of sources
    neither answer nor hide what was imported from them.
    """

    def open_searcher(view: View) -> T:
        ranking = fusion.read_ranking(at.retrieval) if at else ws.ranking
        searcher = Searcher(view.folder, ws.models.load_for, ranking, more=view.more)
        with contextlib.closing(searcher):
            return look(searcher, view)

    if not isinstance(ws, Workspace):
        return ws.reader.read(open_searcher)
    if at is None:
        try:
            return read_consistently(ws, lambda: ws.reader.read(open_searcher, files=files))
        except NO_DOCUMENTS as why:
            if not files:
                raise
            store = answer_from_files(ws, why)
        return store.reader.read(open_searcher)
    return _searching_at(ws, open_searcher, at)


def _searching_at(ws: Workspace, look: Callable[[View], T], at: RankedRevision) -> T:
    """An index that proves damaged is built again, once."""
    from vmrag_link.sync import apply

    view: View | None = None
    for last in (False, True):
        try:
            with view_at(ws, at) as view:
                return look(view)
        except IndexFailed:
            if last:
                raise
            if view and view.sources:
                require_verification(view.sources.folder)
            if at.revision:
                apply.distrust_view(ws.sync_context, at.revision)
    raise AssertionError  # the second attempt returns or raises


@contextlib.contextmanager
def view_at(ws: Workspace, at: RankedRevision) -> Iterator[View]:
    """The index of another place than the work tree. No process removes it while it is open."""
    head = plumbing.read_head(ws.places).commit
    with contextlib.ExitStack() as held:
        folder = held.enter_context(ws.reader.open_index(at.revision)) if at.revision else None
        opened = None
        if at.commit and at.config:
            opened = held.enter_context(ws.sources.open_commit(at.commit, at.config))
        answering = folder or (opened.folder if opened else None)
        assert answering is not None  # noqa: S101  `ranked_commit` gives one of them at least
        yield View(answering, at.revision, None, dirty=False, git_head=head, notes=at.notes, sources=opened)


def with_untracked_matches(ws: ReadableStore, query: Query, kb: KbBlock) -> KbBlock:
    """Return where an answer comes from, with the number of untracked files that `--untracked`
    would add to its results. It searches these files, so that the number is about the query.
    """
    if not isinstance(ws, Workspace) or ws.config.sources_untracked != "ask" or kb.sources is None:
        return kb
    if not 0 < kb.sources.untracked <= MOST_UNTRACKED:
        return kb
    from vmrag_link.sources.untracked import list_untracked_files

    available, _ = ws.sources.select_available(ws.sources.config, ws.list_stored_collections())
    untracked = set[str]().union(*list_untracked_files(ws.places, available))
    with ws.sources.searching_untracked():
        hits = search_index(ws, lambda searcher, _: searcher.search(query))
    names = {source.collection for source in available}
    matches = {hit.doc_id for hit in hits if hit.collection in names and hit.doc_id in untracked}
    return replace(kb, sources=replace(kb.sources, untracked_matches=len(matches)))


def describe_setup(ws: Workspace, kb: KbBlock) -> str:
    """Return how to set up a repository that was searched, or how to remove its empty pin.

    Empty if neither applies, and if a query in this clone has returned it.
    """
    if kb.commit and kb.sources:
        from vmrag_link.workspace.pins.empty_pin import describe_once

        return describe_once(ws)
    if kb.commit or kb.sources is None or not ws.sources.is_proposed:
        return ""
    folder = ws.places.shared / TREE
    marker = folder / SHOWN_MARK
    if marker.exists():
        return ""
    with contextlib.suppress(OSError):
        permissions.make_folder(folder)
        permissions.make_file(marker)
    return NOT_SET_UP
