"""Open the index that answers, and search it by meaning and by words.

All searches go through `search_index`. It follows the pin, opens the index of the work tree or of a
git ref, and rebuilds a damaged index once. `answer_query` returns the best chunks, and
`passages.find_passages` also their places.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Literal, TypeVar

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from vmrag_link import hints, permissions
from vmrag_link.errors import NO_DOCUMENTS, CollectionMissing, EmbeddingFailed, IndexFailed, UsageInvalid
from vmrag_link.git import plumbing
from vmrag_link.index.view import require_verification
from vmrag_link.models import LONGEST_QUERY, Record
from vmrag_link.paths import TREE
from vmrag_link.retrieval.query import Hit, Query
from vmrag_link.retrieval.ranking import read_ranking
from vmrag_link.retrieval.search import Searcher
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.follow.follow_pin import read_consistently
from vmrag_link.workspace.follow.provenance import KbBlock, find_view_origin
from vmrag_link.workspace.follow.search_scope import RankedRevision, answer_from_files
from vmrag_link.workspace.reader import View

if TYPE_CHECKING:
    from vmrag_link.workspace import ReadableStore

T = TypeVar("T")
SHOWN_MARK = "said"
"""Name of a file in `.git/vmrag/tree`: `describe_setup` printed its text in this repository."""

MAX_UNTRACKED_FILES = 1_000
"""If there are more untracked files, for example in a folder of packages, none is read."""

NOT_SET_UP = "run 'vmrag init' to write .vmrag.yaml, because vmrag chose the searched files itself"


class QueryReport(Record, frozen=True):
    """The answer to a query."""

    results: list[Hit]
    kb: KbBlock
    notes: tuple[str, ...] = ()
    """Why the answer is not from the pinned revision; empty if it is."""
    weak: Literal[True] | UnsetType = UNSET
    """True for a weak answer (`retrieval.weakness`), otherwise UNSET."""


def require_query(text: str) -> None:
    """Require a query that is neither empty nor longer than `LONGEST_QUERY`.

    Raises `UsageInvalid`.
    """
    if not text.strip():
        raise UsageInvalid("the query is empty.", hint="write a question or some words", parameter="query")
    if len(text) > LONGEST_QUERY:
        raise UsageInvalid(
            f"the query has {len(text):,} characters; at most {LONGEST_QUERY:,} are accepted.",
            hint="shorten the query",
            parameter="query",
            value=len(text),
            maximum=LONGEST_QUERY,
        )


def answer_query(ws: ReadableStore, query: Query, *, at: RankedRevision | None = None) -> QueryReport:
    """Return the best chunks for a query.

    `at`: the commit to search instead of the work tree (`search_scope.ranked_at`). Raises
    `UsageInvalid` for an empty query, and the errors of `search_index`.
    """
    require_query(query.text)
    return search_index(ws, lambda searcher, view: answer_from_index(ws, searcher, view, query), at=at)


def answer_from_index(ws: ReadableStore, searcher: Searcher, view: View, query: Query) -> QueryReport:
    """Return the best chunks of an index that is open already."""
    try:
        results = searcher.search(query)
    except EmbeddingFailed as error:
        error.hint = hints.join_alternatives(
            error.hint, hints.suggest_command("vmrag query --mode keyword", "search by words alone")
        )
        raise
    except CollectionMissing as error:
        require_readable(view, error.details["collection_name"], error.details["collections"])
        raise
    weak: Literal[True] | UnsetType = True if searcher.is_weak(query, results) else UNSET
    return QueryReport(results, find_view_origin(ws, view).kb, view.notes, weak)


def require_readable(view: View, name: str, readable: Sequence[str]) -> None:
    """Raise `CollectionMissing` for a source whose files cannot be read here."""
    if reason := view.sources.unavailable.get(name) if view.sources else "":
        from vmrag_link.workspace.documents import collections

        raise collections.unreadable_source(name, reason, readable)


def search_index(
    ws: ReadableStore, search: Callable[[Searcher, View], T], *, at: RankedRevision | None = None, files: bool = True
) -> T:
    """Return the result of `search`, which gets an open index that does not change meanwhile.

    The pin is followed first. If that fails, the revision that was followed last answers, with a
    note. `search` may be called again if the pin moves, or if the index is damaged and rebuilt.
    `at`: the commit to search instead of the work tree. Stores without versions ignore it.

    Without a knowledge base, files of sources answer alone. Without `files`, only stored documents
    answer, and files of sources do not hide documents that were imported from them.
    """

    def open_searcher(view: View) -> T:
        ranking = read_ranking(at.retrieval) if at else ws.ranking
        searcher = Searcher(view.folder, ws.models.load_for, ranking, more=view.more)
        with contextlib.closing(searcher):
            return search(searcher, view)

    if not isinstance(ws, Workspace):
        return ws.reader.read(open_searcher)
    if at is None:
        try:
            return read_consistently(ws, lambda: ws.reader.read(open_searcher, files=files))
        except NO_DOCUMENTS as error:
            if not files:
                raise
            store = answer_from_files(ws, error)
        return store.reader.read(open_searcher)
    return _search_at(ws, open_searcher, at)


def _search_at(ws: Workspace, search: Callable[[View], T], at: RankedRevision) -> T:
    """Search a commit. A damaged index is rebuilt once."""
    from vmrag_link.sync import apply

    view: View | None = None
    try:
        with view_at(ws, at) as view:
            return search(view)
    except IndexFailed:
        # Opening verifies these indexes completely now, and rebuilds a damaged one.
        if view and view.sources:
            require_verification(view.sources.folder)
        if at.revision:
            apply.distrust_view(ws.sync_context, at.revision)
    with view_at(ws, at) as view:
        return search(view)


@contextlib.contextmanager
def view_at(ws: Workspace, at: RankedRevision) -> Iterator[View]:
    """Open the index of a commit, of its documents and files. No process removes it meanwhile."""
    head = plumbing.read_head(ws.places).commit
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(ws.reader.open_index(at.revision)) if at.revision else None
        opened = None
        if at.commit and at.config:
            opened = stack.enter_context(ws.source_index.open_commit(at.commit, at.config))
        answering = folder or (opened.folder if opened else None)
        assert answering is not None  # noqa: S101  `ranked_commit` gives one of them at least
        yield View(answering, at.revision, None, dirty=False, git_head=head, notes=at.notes, sources=opened)


def with_untracked_matches(ws: ReadableStore, query: Query, kb: KbBlock) -> KbBlock:
    """Return the origin with the number of untracked files that would be among the results.

    This searches again, with untracked files, if the setting `sources_untracked` is `ask`.
    """
    if not isinstance(ws, Workspace) or ws.config.sources_untracked != "ask" or kb.sources is None:
        return kb
    if not 0 < kb.sources.untracked <= MAX_UNTRACKED_FILES:
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
    """Return advice for the first query in a clone: how to set vmrag up, or remove an empty pin.

    Empty if neither applies, and after the first query.
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
