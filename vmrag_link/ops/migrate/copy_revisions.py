"""Copy the revisions of a plan from one knowledge base into another, of a different engine.

Each revision is written as its difference to its first parent, and read again. It is accepted if
its contents equal those of the old revision. A log file gets a line for each copy, so that a
stopped run can continue.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple, TextIO

from vmrag_link import permissions
from vmrag_link.engines import contents
from vmrag_link.engines.base import Engine, Write
from vmrag_link.engines.contents import RowSet, RowStep, StepReader
from vmrag_link.engines.own_branches import read_root
from vmrag_link.errors import EngineFailed
from vmrag_link.models import Document, RevisionInfo
from vmrag_link.ops.migrate.plan import MigrationPlan
from vmrag_link.progress import Progress
from vmrag_link.workspace.remotes.revision_map import (
    MigratedRevision,
    count_successors,
    drop_contents,
)

_MAX_BATCH_ROWS = 500
_MAX_BATCH_CHARACTERS = 2_000_000

CopiesByName = dict[str, MigratedRevision]
"""The name and contents of each new revision, by the name of the old one."""


class CopiedRevisions(NamedTuple):
    """The result of `copy_revisions`."""

    by_name: CopiesByName
    """All copies, also of earlier runs."""
    made: int
    """Number of copies that this run made."""


def copy_revisions(
    old: Engine, new: Engine, plan: MigrationPlan, log_path: Path, progress: Progress
) -> CopiedRevisions:
    """Copy the revisions that are not copied yet, and return all copies, including the root.

    `log_path` is the file of the copies that earlier runs made. No branch reaches the copies.
    Raises `EngineFailed` if the contents of a copy differ.
    """
    copies = _read_log(log_path, new)
    root_rows = contents.read_row_set(old, plan.root)
    copies[plan.root] = MigratedRevision(read_root(new), root_rows.fingerprint)
    todo = [revision for revision in plan.revisions if revision not in copies]
    rows_by_revision: dict[str, RowSet] = {plan.root: root_rows}
    successor_counts = count_successors(todo, plan.parents)
    old_steps = StepReader(old)
    new_steps = StepReader(new)
    infos = _read_infos(old, plan, set(todo))
    with progress.task("migrating", total=len(todo)) as task, new.write_lock("migrate"), _open_log(log_path) as log:
        for revision in todo:
            first_parent = plan.parents[revision][0]
            if first_parent not in rows_by_revision:
                rows_by_revision[first_parent] = contents.read_row_set(old, first_parent)
            step = old_steps.read_step(first_parent, revision)
            info = infos.get(revision) or old.read_revision(revision)
            parents = [copies[parent].revision for parent in info.parents]
            writes = _generate_writes(old, revision, step)
            copy = new.recreate_revision(parents, writes, message=info.message, author=info.author, date=info.date)
            rows = rows_by_revision[first_parent].apply_step(step)
            if rows_by_revision[first_parent].apply_step(new_steps.read_step(parents[0], copy)) != rows:
                raise EngineFailed(
                    f"revision {revision[:12]} became {copy[:12]}, whose contents differ. Your knowledge base was not changed.",
                    hint="run 'vmrag doctor --bug' to write a report",
                    revision=revision,
                )
            rows_by_revision[revision] = rows
            copies[revision] = MigratedRevision(copy, rows.fingerprint)
            log.write(f"{revision} {copy} {rows.fingerprint}\n")
            log.flush()
            drop_contents(rows_by_revision, successor_counts, first_parent, revision)
            task.advance(1)
    return CopiedRevisions(copies, len(todo))


def _read_log(path: Path, new: Engine) -> CopiesByName:
    """Return the copies of earlier runs that the new knowledge base has."""
    copies: CopiesByName = {}
    if path.exists():
        for line in path.read_text(encoding="ascii", errors="replace").splitlines():
            parts = line.split()
            if len(parts) == 3 and len(parts[2]) == 64:  # noqa: PLR2004  old, new, SHA-256 in hex
                copies[parts[0]] = MigratedRevision(parts[1], parts[2])
    existing = new.map_parents([copy.revision for copy in copies.values()]) if copies else {}
    return {old: copy for old, copy in copies.items() if copy.revision in existing}


@contextlib.contextmanager
def _open_log(path: Path) -> Iterator[TextIO]:
    """Open the log to append to it. It is durable when the block ends."""
    permissions.make_file(path)
    with path.open("a", encoding="ascii") as log:
        if path.stat().st_size:
            log.write("\n")  # ends a line that a kill cut off
        try:
            yield log
        finally:
            log.flush()
            os.fsync(log.fileno())


def _read_infos(engine: Engine, plan: MigrationPlan, todo: set[str]) -> Mapping[str, RevisionInfo]:
    """Read messages, authors and dates. One walk for each head is much faster than one query for
    each revision.
    """
    infos: dict[str, RevisionInfo] = {}
    for head in dict.fromkeys((*plan.branches.values(), *plan.anchors)):
        if head in todo and head not in infos:
            infos |= {info.revision: info for info in engine.log(head) if info.revision in todo}
    return infos


def _generate_writes(engine: Engine, revision: str, step: RowStep) -> Iterator[Write]:
    """Yield the writes that turn the first parent into the revision. Texts are read when they are
    needed.
    """
    documents = step.rows.documents
    collections = step.rows.collections
    removed_collections = [collection.key for collection in collections if collection.after is None]
    put_projects = {project.key for project in step.projects}
    yield Write(
        remove_documents=[document.key for document in documents if document.after is None],
        remove_collections=removed_collections,
        put_collections=[collection.after for collection in collections if collection.after],
        remove_projects=[project.key for project in step.removed_projects if project.key not in put_projects],
        put_projects=step.projects,
    )
    ids_by_collection: dict[str, list[str]] = {}
    for document in documents:
        if document.after:
            ids_by_collection.setdefault(document.after.collection, []).append(document.after.doc_id)
    # Removing a collection also removes its documents. The revision may still have some.
    for name in removed_collections:
        ids_by_collection[name] = [header.doc_id for header in engine.read_headers(revision, collection=name)]
    for name, ids in ids_by_collection.items():
        for start in range(0, len(ids), _MAX_BATCH_ROWS):
            yield from _batch_documents(
                engine.read_documents(revision, collection=name, ids=ids[start : start + _MAX_BATCH_ROWS])
            )


def _batch_documents(documents: Iterator[Document]) -> Iterator[Write]:
    """Yield writes that store these documents, each with a limited number of characters."""
    batch: list[Document] = []
    size = 0
    for document in documents:
        batch.append(document)
        size += len(document.content)
        if size > _MAX_BATCH_CHARACTERS:
            yield Write(put_documents=batch)
            batch = []
            size = 0
    if batch:
        yield Write(put_documents=batch)
