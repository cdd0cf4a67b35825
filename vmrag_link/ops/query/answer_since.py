"""Compare the answer to a query with the answer at a git ref, and name the revisions that changed
it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Literal

import msgspec

from vmrag_link.git import file_log, plumbing
from vmrag_link.golden.queries import RankChange, RankedChunk, compare_rankings, rank_chunks
from vmrag_link.models import At, DocumentHeader, Record, WorkingSet
from vmrag_link.retrieval.query import Hit, Query
from vmrag_link.retrieval.search import Searcher
from vmrag_link.workspace import Workspace, source_tree
from vmrag_link.workspace.answers.passages import names_of_hits
from vmrag_link.workspace.answers.query import require_query, search_index
from vmrag_link.workspace.follow.provenance import KbBlock, RankedRevision, find_view_origin, ranked_at
from vmrag_link.workspace.history import log
from vmrag_link.workspace.history.document_names import DocumentName
from vmrag_link.workspace.history.file_history import FileCommit, file_commit
from vmrag_link.workspace.history.log import PinnedRevision
from vmrag_link.workspace.history.trail import Trail

if TYPE_CHECKING:
    from vmrag_link.workspace import View

MOST_REVISIONS = 10
"""Maximum number of revisions to list for one document."""

Key = tuple[str, str]


class ChangedSource(Record, frozen=True):
    """A document of either answer that has changed."""

    document: str
    kind: Literal["added", "modified", "removed"]
    revisions: tuple[PinnedRevision, ...]
    """Revisions that changed it since then, newest first; none if only the other side of diverged
    histories did.
    """
    uncommitted: bool = False
    """True if it also has uncommitted changes."""
    commits: tuple[FileCommit, ...] = ()
    """Git commits that changed it, for a file."""


class AnswerSince(Record, frozen=True):
    """Two answers to a query, ranked with the same settings."""

    query: str
    since: str
    """The earlier revision; empty if only files were searched."""
    revision: str
    """The present revision; empty if only files were searched."""
    before: tuple[RankedChunk, ...]
    after: tuple[RankedChunk, ...]
    changes: tuple[RankChange, ...]
    """Changes of the chunks in either answer. A chunk whose document is not in `documents` moved
    because of other documents.
    """
    documents: tuple[ChangedSource, ...]
    kb: KbBlock
    notes: tuple[str, ...] = ()
    """The same as in `QueryReport`."""
    commit: str | None = None
    """The git commit whose files were searched in the earlier answer."""
    names: Mapping[str, str] = {}
    """Printed names by the full names of documents."""


def answer_since(ws: Workspace, query: Query, ref: str) -> AnswerSince:
    """Answer a query in the work tree and at the pin of a git ref.

    Raises the errors of `search_index` and `lazy_fetch.pinned_at`.
    """
    require_query(query.text)
    place = msgspec.structs.replace(ranked_at(ws, ref), retrieval=ws.config.retrieval)
    since = place.revision

    def answer_view(searcher: Searcher, view: View) -> tuple[list[Hit], View, KbBlock, dict[Key, str]]:
        hits = searcher.search(query)
        return hits, view, find_view_origin(ws, view).kb, names_of_hits(searcher, hits)

    old, *_, old_names = search_index(ws, answer_view, at=place)
    new, view, kb, names = search_index(ws, answer_view)
    before, after = rank_chunks(old), rank_chunks(new)
    files = {source.collection for source in (*(place.config.sources if place.config else ()), *ws.sources.configured)}
    keys = dict.fromkeys((hit.collection, hit.doc_id) for hit in (*new, *old))
    stored = [key for key in keys if key[0] not in files] if since and view.revision else []
    return AnswerSince(
        query=query.text,
        since=since,
        revision=view.revision,
        before=before,
        after=after,
        changes=tuple(compare_rankings(before, after)),
        documents=(
            *(_list_changed(ws, stored, since, view) if stored else ()),
            *_list_changed_files(ws, [key for key in keys if key[0] in files], place),
        ),
        kb=kb,
        notes=view.notes,
        commit=place.commit,
        names={"/".join(key): name for key, name in (old_names | names).items()},
    )


def _list_changed_files(ws: Workspace, keys: Sequence[Key], since: RankedRevision) -> Iterator[ChangedSource]:
    """Yield the files that have changed."""
    commit = since.commit
    old = source_tree.read_commit(ws, commit, since.config) if commit and keys else None
    new = source_tree.read_work_tree(ws) if keys else None
    head = plumbing.read_head(ws.places).commit
    for key in keys:
        before, after = (tree.get_tag(key) if tree else None for tree in (old, new))
        if before == after:
            continue
        reached = [head, *([f"^{commit}"] if commit else [])] if head else []
        file = (new and new.files.get(key)) or (old and old.files.get(key))
        path = file.path if file else key[1]
        changes = file_log.read_file_log(ws.places, reached, path, limit=MOST_REVISIONS) if reached else []
        yield ChangedSource(
            "/".join(key),
            "modified" if before and after else "added" if after else "removed",
            (),
            uncommitted=bool(file and file.uncommitted),
            commits=tuple(file_commit(DocumentName(*key), path, change) for change in changes),
        )


def _list_changed(ws: Workspace, keys: Iterable[Key], since: str, view: View) -> Iterable[ChangedSource]:
    stored_keys = list(keys)
    old, new = _read_headers(ws, since, stored_keys), _read_headers(ws, view.at, stored_keys)
    committed = _read_headers(ws, view.revision, stored_keys) if isinstance(view.at, WorkingSet) else new
    without = {info.revision for info in ws.engine.log(since)} | log.list_hidden(ws.engine)
    trail = Trail(ws.engine, [view.revision], without)
    for key in stored_keys:
        if old.get(key) == new.get(key):
            continue
        visits = trail.list_visits(DocumentName(*key)) if since != view.revision else ()
        changing = islice((visit.info for visit in visits if visit.changed), MOST_REVISIONS)
        yield ChangedSource(
            "/".join(key),
            "added" if key not in old else "removed" if key not in new else "modified",
            tuple(log.add_pins(ws, changing)),
            uncommitted=committed.get(key) != new.get(key),
        )


def _read_headers(ws: Workspace, at: At, keys: Iterable[Key]) -> dict[Key, DocumentHeader]:
    by_collection: dict[str, list[str]] = {}
    for name, doc_id in keys:
        by_collection.setdefault(name, []).append(doc_id)
    return {
        header.key: header
        for name, ids in by_collection.items()
        for header in ws.engine.read_headers(at, collection=name, ids=ids)
    }
