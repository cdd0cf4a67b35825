"""Copy the revisions of one knowledge base into that of another engine: all that branches, pins and
anchors reach.

Each revision is written as its difference to its first parent, and read again. It is accepted if
its contents equal those of the old revision. Each new revision is noted in a line of a file, so
that a stopped run can continue.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Self

from vmrag_link import permissions
from vmrag_link.engines import contents
from vmrag_link.engines.base import ASIDE_PREFIX, KEEP_BRANCH, VECTORS_BRANCH, Engine, Write, is_reserved, read_root
from vmrag_link.engines.contents import RowSet, RowStep, StepReader
from vmrag_link.errors import EngineFailed, KnowledgeRefused, Uncommitted
from vmrag_link.models import Document, Record, RevisionInfo
from vmrag_link.progress import Progress
from vmrag_link.workspace.commits.ancestry import list_ancestors
from vmrag_link.workspace.remotes.revision_map import (
    MigratedRevision,
    count_successors,
    drop_contents,
    sort_parents_first,
)

_BATCH_ROWS = 500
_BATCH_CHARACTERS = 2_000_000

CarriedEntries = dict[str, MigratedRevision]
"""The new revision of each old one, by the old name."""


class CarriedRevisions(NamedTuple):
    """All new revisions, and how many of them this run made."""

    entries: CarriedEntries
    new: int


def carry_revisions(old: Engine, new: Engine, plan: MigrationPlan, notes: Path, progress: Progress) -> CarriedRevisions:
    """Copy the revisions that are not copied yet, and return all copies, including the root.

    `notes` is the file in which earlier runs noted their copies. Nothing anchors the new revisions.
    Raises `EngineFailed` if the contents of a copy differ.
    """
    entries = _read_notes(notes, new)
    root_rows = contents.read_row_set(old, plan.root)
    entries[plan.root] = MigratedRevision(read_root(new), root_rows.fingerprint)
    todo = [revision for revision in plan.revisions if revision not in entries]
    rows_by_revision: dict[str, RowSet] = {plan.root: root_rows}
    followers = count_successors(todo, plan.parents)
    old_steps, new_steps = StepReader(old), StepReader(new)
    infos = _read_infos(old, plan, set(todo))
    with progress.task("migrating", total=len(todo)) as task, new.write_lock("migrate"), _Notes(notes) as note_file:
        for revision in todo:
            first = plan.parents[revision][0]
            if first not in rows_by_revision:
                rows_by_revision[first] = contents.read_row_set(old, first)
            step = old_steps.read_step(first, revision)
            info = infos.get(revision) or old.read_revision(revision)
            parents = [entries[parent].revision for parent in info.parents]
            copy = new.recreate_revision(
                parents, _generate_writes(old, revision, step), message=info.message, author=info.author, date=info.date
            )
            rows_by_revision[revision] = rows_by_revision[first].apply_step(step)
            if rows_by_revision[first].apply_step(new_steps.read_step(parents[0], copy)) != rows_by_revision[revision]:
                raise EngineFailed(
                    f"revision {revision[:12]} became {copy[:12]}, whose contents differ. Your knowledge base was not changed.",
                    hint="run 'vmrag doctor --bug' to write a report",
                    revision=revision,
                )
            entries[revision] = MigratedRevision(copy, rows_by_revision[revision].fingerprint)
            note_file.add(revision, entries[revision])
            drop_contents(rows_by_revision, followers, first, revision)
            task.advance(1)
    return CarriedRevisions(entries, len(todo))


def _read_infos(engine: Engine, plan: MigrationPlan, todo: set[str]) -> Mapping[str, RevisionInfo]:
    """Read messages, authors and dates. One walk for each head is much faster than one query for
    each revision.
    """
    infos: dict[str, RevisionInfo] = {}
    for head in dict.fromkeys((*plan.branches.values(), *plan.anchors)):
        if head in todo and head not in infos:
            infos |= {info.revision: info for info in engine.log(head) if info.revision in todo}
    return infos


# -- rows


def _generate_writes(engine: Engine, revision: str, step: RowStep) -> Iterator[Write]:
    """Yield the writes that turn the first parent into the revision. Texts are read when they are
    needed.
    """
    documents, collections = step.rows.documents, step.rows.collections
    dropped = [collection.key for collection in collections if collection.after is None]
    projects = {project.key for project in step.projects}
    yield Write(
        remove_documents=[document.key for document in documents if document.after is None],
        remove_collections=dropped,
        put_collections=[collection.after for collection in collections if collection.after],
        remove_projects=[
            removed_project.key for removed_project in step.removed_projects if removed_project.key not in projects
        ],
        put_projects=step.projects,
    )
    changed: dict[str, list[str]] = {}
    for document in documents:
        if document.after:
            changed.setdefault(document.after.collection, []).append(document.after.doc_id)
    for name in dropped:  # removing the row removes its documents, but the revision may have some without the row
        changed[name] = [header.doc_id for header in engine.read_headers(revision, collection=name)]
    for name, ids in changed.items():
        for start in range(0, len(ids), _BATCH_ROWS):
            yield from _batch_documents(
                engine.read_documents(revision, collection=name, ids=ids[start : start + _BATCH_ROWS])
            )


def _batch_documents(documents: Iterator[Document]) -> Iterator[Write]:
    batch: list[Document] = []
    size = 0
    for document in documents:
        batch.append(document)
        size += len(document.content)
        if size > _BATCH_CHARACTERS:
            yield Write(put_documents=batch)
            batch, size = [], 0
    if batch:
        yield Write(put_documents=batch)


# -- the file of notes


class _Notes:
    """Appends a line to a file for each new revision."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> Self:
        permissions.make_file(self._path)
        self._file = self._path.open("a", encoding="ascii")
        if self._path.stat().st_size:
            self._file.write("\n")  # ends a line that a kill cut off
        return self

    def __exit__(self, *_: object) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()

    def add(self, old: str, entry: MigratedRevision) -> None:
        self._file.write(f"{old} {entry.revision} {entry.fingerprint}\n")
        self._file.flush()


def _read_notes(path: Path, new: Engine) -> CarriedEntries:
    """Return the copies of earlier runs that the new knowledge base has."""
    entries: CarriedEntries = {}
    if path.exists():
        for line in path.read_text(encoding="ascii", errors="replace").splitlines():
            parts = line.split()
            if len(parts) == 3 and len(parts[2]) == 64:  # noqa: PLR2004  old, new, SHA-256 in hex
                entries[parts[0]] = MigratedRevision(parts[1], parts[2])
    existing = new.map_parents([entry.revision for entry in entries.values()]) if entries else {}
    return {old: entry for old, entry in entries.items() if entry.revision in existing}


class MigrationPlan(Record, frozen=True):
    """The revisions to copy."""

    root: str
    """The first revision. Creating the new knowledge base also creates its copy."""
    revisions: tuple[str, ...]
    """The other revisions, parents first."""
    parents: Mapping[str, tuple[str, ...]]
    branches: Mapping[str, str]
    """The heads of the branches."""
    anchors: tuple[str, ...]
    """Revisions that no branch reaches, and that reach all other revisions that no branch reaches.
    """


def plan_migration(engine: Engine, pins: Sequence[str]) -> MigrationPlan:
    """Return what a migration would copy now. `pins` are names of revisions, which may not exist.

    Raises `Uncommitted`, and `KnowledgeRefused` for a revision that does not descend from the root.
    The contents of revisions are checked when they are copied.
    """
    branches = {}
    for branch in engine.list_branches():
        if branch.dirty:
            raise _uncommitted_error(branch.name)
        if is_carried(branch.name) or branch.name == VECTORS_BRANCH:
            branches[branch.name] = branch.head
    return _build_plan(engine, branches, sorted(engine.map_parents(pins).keys() & set(pins)))


def is_carried(branch: str) -> bool:
    """Return whether a branch is a user's branch, or one with stashed documents."""
    return not is_reserved(branch) or branch.startswith(ASIDE_PREFIX)


def _build_plan(engine: Engine, branches: Mapping[str, str], pins: Sequence[str]) -> MigrationPlan:
    """Plan the migration of these branches, and of `pins` that exist."""
    root, keep = read_root(engine), engine.find_branch(KEEP_BRANCH)
    before_root = engine.map_parents([root])
    parents = engine.map_parents([*branches.values(), *pins, *([keep.head] if keep else []), root])
    on_branches = set(list_ancestors(parents, branches.values()))
    pinned = set(list_ancestors(parents, pins)) - on_branches
    # The parents of anchors are commits without tables, which only reach others.
    anchored = {
        on_branch
        for on_branch in parents.keys() - on_branches - pinned - before_root.keys()
        if not engine.is_bare(on_branch)
    }
    unreached = (pinned | anchored) - before_root.keys()
    parents_of_apart = {parent for revision in unreached for parent in parents[revision]}
    revisions = (on_branches | unreached) - before_root.keys()
    _require_descent(revisions, parents, revisions | {root})
    return MigrationPlan(
        root,
        tuple(sort_parents_first(revisions, parents)),
        parents,
        branches,
        tuple(sorted(unreached - parents_of_apart)),
    )


def _require_descent(revisions: set[str], parents: Mapping[str, tuple[str, ...]], carried: set[str]) -> None:
    for revision in sorted(revisions):
        if not parents[revision] or any(parent not in carried for parent in parents[revision]):
            raise KnowledgeRefused(
                f"revision {revision[:12]} does not descend from the first revision of this knowledge base.",
                hint="run 'vmrag branch' to find the branch that reaches it, delete that branch, then migrate again",
                revision=revision,
            )


def _uncommitted_error(branch: str) -> Uncommitted:
    return Uncommitted(
        f"the branch {branch!r} has uncommitted documents; nothing was migrated.",
        hint="run 'vmrag commit' on their code branch, or 'vmrag restore .' to discard them",
        branch=branch,
    )
