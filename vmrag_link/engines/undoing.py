"""What is taken back: of a merge that an engine made, and of what a branch has not committed."""

from __future__ import annotations

from collections.abc import Iterable

from vmrag_link.engines.base import Engine, Write
from vmrag_link.engines.logical import table_implied
from vmrag_link.errors import EngineFailed, Uncommitted
from vmrag_link.models import TABLE_OF_KIND, Difference, Document, Working


def undo_of_merge(engine: Engine, revision: str, joining: str) -> Write:
    """The rows that turn the engine's own merge of two revisions into `revision` again.

    An engine merges from its own merge base and cannot be told what to make of it. So whatever
    `joining` changed since then is undone. Raises `EngineFailed` for unrelated histories.
    """
    base = engine.merge_base(revision, joining)
    if base is None:
        raise EngineFailed(
            f"The revisions {revision[:12]} and {joining[:12]} have no history in common.",
            hint="They come from two knowledge bases; take the documents over by: vmrag show, vmrag import",
            revisions=[revision, joining],
        )
    brought = engine.diff(base, joining)
    names = [change.key for change in brought.collections]
    held = {each.name: each for each in engine.collections(revision)}
    documents = {each.key: each for each in _documents(engine, revision, brought)}
    projects = {each.key: each for each in engine.projects(revision, ids=[each.key for each in brought.projects])}
    return Write(
        put_collections=[held[name] for name in names if name in held],
        remove_collections=[name for name in names if name not in held],
        put_documents=list(documents.values()),
        remove_documents=[change.key for change in brought.documents if change.key not in documents],
        put_projects=list(projects.values()),
        remove_projects=[change.key for change in brought.projects if change.key not in projects],
    )


def require_kept(engine: Engine, branch: str, kept: str) -> None:
    """Raises `Uncommitted` unless a revision holds all that is uncommitted on a branch."""
    if not engine.diff(kept, Working(branch)).empty:
        raise Uncommitted(
            f"The revision {kept[:12]} does not hold all uncommitted documents of {branch!r}.",
            hint="Commit them: vmrag commit",
            branch=branch,
        )


def _documents(engine: Engine, revision: str, brought: Difference) -> Iterable[Document]:
    """What a revision holds of the documents of a difference.

    A row of another table may lie in another collection there.
    """
    for name in dict.fromkeys(change.key[0] for change in brought.documents):
        ids = [change.key[1] for change in brought.documents if change.key[0] == name]
        yield from engine.documents(revision, collection=name, ids=ids, table="documents")
    for table in TABLE_OF_KIND.values():
        ids = [doc_id for name, doc_id in (change.key for change in brought.documents) if _implies(name, table)]
        if ids:
            yield from engine.documents(revision, ids=ids, table=table)


def _implies(collection: str, table: str) -> bool:
    found = table_implied(collection)
    return found is not None and found.name == table
