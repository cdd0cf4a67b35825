"""`vmrag query --since`: compare the answer to a query with the answer at a git ref, and name the
revisions or commits that changed it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING

import msgspec

from vmrag_link.git import file_log, plumbing
from vmrag_link.golden.queries import RankChange, RankedChunk, compare_rankings, rank_chunks
from vmrag_link.models import At, ChangeKind, DocumentHeader, Record, WorkingSet
from vmrag_link.retrieval.query import Hit, Query
from vmrag_link.retrieval.search import Searcher
from vmrag_link.workspace import Workspace, source_tree
from vmrag_link.workspace.answers.passages import names_of_hits
from vmrag_link.workspace.answers.query import require_query, search_index
from vmrag_link.workspace.follow.provenance import KbBlock, find_view_origin
from vmrag_link.workspace.follow.search_scope import RankedRevision, ranked_at
from vmrag_link.workspace.history import log
from vmrag_link.workspace.history.document_names import DocumentName
from vmrag_link.workspace.history.file_history import FileCommit, file_commit
from vmrag_link.workspace.history.log import PinnedRevision
from vmrag_link.workspace.history.trail import Trail

if TYPE_CHECKING:
    from vmrag_link.workspace import View

MAX_REVISIONS = 10
"""Maximum number of revisions or commits to list for one document."""

Key = tuple[str, str]
"""Collection and id of a document."""


class ChangedSource(Record, frozen=True):
    """A document of either answer that has changed."""

    document: str
    kind: ChangeKind
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
    """Why the present answer is not from the pinned revision; empty if it is."""
    commit: str | None = None
    """The git commit whose files were searched in the earlier answer."""
    names: Mapping[str, str] = {}
    """Printed names by the full names of documents."""


def answer_since(ws: Workspace, query: Query, ref: str) -> AnswerSince:
    """Answer a query in the work tree and at the pin of a git ref.

    Raises the errors of `search_index` and `lazy_fetch.pinned_at`.
    """
    require_query(query.text)
    earlier = msgspec.structs.replace(ranked_at(ws, ref), retrieval=ws.config.retrieval)
    since = earlier.revision

    def answer_view(searcher: Searcher, view: View) -> tuple[list[Hit], View, KbBlock, dict[Key, str]]:
        hits = searcher.search(query)
        return hits, view, find_view_origin(ws, view).kb, names_of_hits(searcher, hits)

    old_hits, _, _, old_names = search_index(ws, answer_view, at=earlier)
    new_hits, view, kb, names = search_index(ws, answer_view)
    before = rank_chunks(old_hits)
    after = rank_chunks(new_hits)
    sources = (*(earlier.config.sources if earlier.config else ()), *ws.sources.configured)
    file_collections = {source.collection for source in sources}
    keys = dict.fromkeys((hit.collection, hit.doc_id) for hit in (*new_hits, *old_hits))
    stored = [key for key in keys if key[0] not in file_collections] if since and view.revision else []
    return AnswerSince(
        query=query.text,
        since=since,
        revision=view.revision,
        before=before,
        after=after,
        changes=tuple(compare_rankings(before, after)),
        documents=(
            *(_list_changed_documents(ws, stored, since, view) if stored else ()),
            *_list_changed_files(ws, [key for key in keys if key[0] in file_collections], earlier),
        ),
        kb=kb,
        notes=view.notes,
        commit=earlier.commit,
        names={"/".join(key): name for key, name in (old_names | names).items()},
    )


def _list_changed_files(ws: Workspace, keys: Sequence[Key], since: RankedRevision) -> Iterator[ChangedSource]:
    """Yield the files that have changed."""
    commit = since.commit
    old = source_tree.read_commit(ws, commit, since.config) if commit and keys else None
    new = source_tree.read_work_tree(ws) if keys else None
    head = plumbing.read_head(ws.places).commit
    for key in keys:
        before = old.get_tag(key) if old else None
        after = new.get_tag(key) if new else None
        if before == after:
            continue
        reached = [head] if head else []
        if head and commit:
            reached.append(f"^{commit}")  # like `git log COMMIT..HEAD`
        file = (new and new.files.get(key)) or (old and old.files.get(key))
        path = file.path if file else key[1]
        changes = file_log.read_file_log(ws.places, reached, path, limit=MAX_REVISIONS) if reached else []
        yield ChangedSource(
            "/".join(key),
            _classify_change(existed=bool(before), exists=bool(after)),
            (),
            uncommitted=bool(file and file.uncommitted),
            commits=tuple(file_commit(DocumentName(*key), path, change) for change in changes),
        )


def _list_changed_documents(ws: Workspace, keys: Sequence[Key], since: str, view: View) -> Iterator[ChangedSource]:
    """Yield the stored documents that have changed."""
    old = _read_headers(ws, since, keys)
    new = _read_headers(ws, view.at, keys)
    committed = _read_headers(ws, view.revision, keys) if isinstance(view.at, WorkingSet) else new
    without = {info.revision for info in ws.engine.log(since)} | log.list_hidden(ws.engine)
    trail = Trail(ws.engine, [view.revision], without)
    for key in keys:
        if old.get(key) == new.get(key):
            continue
        visits = trail.list_visits(DocumentName(*key)) if since != view.revision else ()
        revisions = islice((visit.info for visit in visits if visit.changed), MAX_REVISIONS)
        yield ChangedSource(
            "/".join(key),
            _classify_change(existed=key in old, exists=key in new),
            tuple(log.add_pins(ws, revisions)),
            uncommitted=committed.get(key) != new.get(key),
        )


def _classify_change(*, existed: bool, exists: bool) -> ChangeKind:
    if not existed:
        return "added"
    return "modified" if exists else "removed"


def _read_headers(ws: Workspace, at: At, keys: Iterable[Key]) -> dict[Key, DocumentHeader]:
    by_collection: dict[str, list[str]] = {}
    for name, doc_id in keys:
        by_collection.setdefault(name, []).append(doc_id)
    return {
        header.key: header
        for name, ids in by_collection.items()
        for header in ws.engine.read_headers(at, collection=name, ids=ids)
    }
