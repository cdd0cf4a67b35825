"""Carry the revisions of one knowledge base into another one, of another engine: all that branches,
pins and anchors reach.

Each is written as its difference to its first parent, and read again: it counts when it holds what
the old one holds. What was made is noted line by line, so a run that was stopped is gone on with.
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
"""By its old name, what a revision became."""


class CarriedRevisions(NamedTuple):
    """All that was made, and how many `new` ones there are among them."""

    entries: CarriedEntries
    new: int


def carry_revisions(old: Engine, new: Engine, plan: MigrationPlan, notes: Path, progress: Progress) -> CarriedRevisions:
    """Make what is not made yet; returns everything, the root included.

    `notes`: the file in which earlier runs noted what they made. Nothing anchors the revisions.
    Raises `EngineFailed` for one that does not hold what the old one holds.
    """
    made = _read_notes(notes, new)
    beginning = contents.read_row_set(old, plan.root)
    made[plan.root] = MigratedRevision(read_root(new), beginning.fingerprint)
    todo = [each for each in plan.revisions if each not in made]
    known: dict[str, RowSet] = {plan.root: beginning}
    left = count_successors(todo, plan.parents)
    there, here = StepReader(old), StepReader(new)
    infos = _infos(old, plan, set(todo))
    with progress.task("migrating", total=len(todo)) as task, new.write_lock("migrate"), _Notes(notes) as written:
        for revision in todo:
            first = plan.parents[revision][0]
            if first not in known:
                known[first] = contents.read_row_set(old, first)
            step = there.read_step(first, revision)
            info = infos.get(revision) or old.read_revision(revision)
            parents = [made[parent].revision for parent in info.parents]
            again = new.recreate_revision(
                parents, _rows(old, revision, step), message=info.message, author=info.author, date=info.date
            )
            known[revision] = known[first].apply_step(step)
            if known[first].apply_step(here.read_step(parents[0], again)) != known[revision]:
                raise EngineFailed(
                    f"Revision {revision[:12]} became {again[:12]}, which does not hold the same; nothing was replaced.",
                    hint="vmrag doctor --bug",
                    revision=revision,
                )
            made[revision] = MigratedRevision(again, known[revision].fingerprint)
            written.add(revision, made[revision])
            drop_contents(known, left, first, revision)
            task.advance(1)
    return CarriedRevisions(made, len(todo))


def _infos(engine: Engine, plan: MigrationPlan, todo: set[str]) -> Mapping[str, RevisionInfo]:
    """Messages, authors and dates: one walk a head is much faster than a question a revision."""
    found: dict[str, RevisionInfo] = {}
    for head in dict.fromkeys((*plan.branches.values(), *plan.anchors)):
        if head in todo and head not in found:
            found |= {each.revision: each for each in engine.log(head) if each.revision in todo}
    return found


# -- rows


def _rows(engine: Engine, revision: str, step: RowStep) -> Iterator[Write]:
    """What turns the first parent into the revision; texts are read as they are needed."""
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
    for name in dropped:  # with the row go the documents, and some may be there without it
        changed[name] = [header.doc_id for header in engine.read_headers(revision, collection=name)]
    for name, ids in changed.items():
        for start in range(0, len(ids), _BATCH_ROWS):
            yield from _batches(engine.read_documents(revision, collection=name, ids=ids[start : start + _BATCH_ROWS]))


def _batches(documents: Iterator[Document]) -> Iterator[Write]:
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


# -- notes


class _Notes:
    """Lines at the end of a file, each there when the revision is."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> Self:
        permissions.make_file(self._path)
        self._file = self._path.open("a", encoding="ascii")
        if self._path.stat().st_size:
            self._file.write("\n")  # after a line that was cut off
        return self

    def __exit__(self, *_: object) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()

    def add(self, old: str, entry: MigratedRevision) -> None:
        self._file.write(f"{old} {entry.revision} {entry.fingerprint}\n")
        self._file.flush()


def _read_notes(path: Path, new: Engine) -> CarriedEntries:
    """What earlier runs made, as far as it is there."""
    found: CarriedEntries = {}
    if path.exists():
        for line in path.read_text(encoding="ascii", errors="replace").splitlines():
            parts = line.split()
            if len(parts) == 3 and len(parts[2]) == 64:  # noqa: PLR2004  old, new, SHA-256 in hex
                found[parts[0]] = MigratedRevision(parts[1], parts[2])
    here = new.map_parents([entry.revision for entry in found.values()]) if found else {}
    return {old: entry for old, entry in found.items() if entry.revision in here}


class MigrationPlan(Record, frozen=True):
    """`revisions`: what is carried, each after its parents; the `root` is made with the knowledge
    base. `branches`: their heads. `anchors`: revisions that no branch reaches, and that reach all
    others of the kind.
    """

    root: str
    revisions: tuple[str, ...]
    parents: Mapping[str, tuple[str, ...]]
    branches: Mapping[str, str]
    anchors: tuple[str, ...]


def plan_migration(engine: Engine, pins: Sequence[str]) -> MigrationPlan:
    """What would be carried now; `pins`: any texts.

    Raises `Uncommitted`, and `KnowledgeRefused` for what does not descend from the root. What a
    revision holds is looked at when it is carried.
    """
    branches = {}
    for branch in engine.list_branches():
        if branch.dirty:
            raise _uncommitted(branch.name)
        if is_carried(branch.name) or branch.name == VECTORS_BRANCH:
            branches[branch.name] = branch.head
    return _plan_of(engine, branches, sorted(engine.map_parents(pins).keys() & set(pins)))


def is_carried(branch: str) -> bool:
    """Whether it is a branch of a person's; those with documents set aside are."""
    return not is_reserved(branch) or branch.startswith(ASIDE_PREFIX)


def _plan_of(engine: Engine, branches: Mapping[str, str], pins: Sequence[str]) -> MigrationPlan:
    """As `plan_migration`, of these branches, and of `pins` that are here."""
    root, keep = read_root(engine), engine.find_branch(KEEP_BRANCH)
    before = engine.map_parents([root])
    parents = engine.map_parents([*branches.values(), *pins, *([keep.head] if keep else []), root])
    on_branches = set(list_ancestors(parents, branches.values()))
    stated = set(list_ancestors(parents, pins)) - on_branches
    # Anchors hang on commits without tables, whose only use is to reach others.
    kept = {
        on_branch
        for on_branch in parents.keys() - on_branches - stated - before.keys()
        if not engine.is_bare(on_branch)
    }
    apart = (stated | kept) - before.keys()
    below = {parent for each in apart for parent in parents[each]}
    wanted = (on_branches | apart) - before.keys()
    _require_descent(wanted, parents, wanted | {root})
    return MigrationPlan(
        root, tuple(sort_parents_first(wanted, parents)), parents, branches, tuple(sorted(apart - below))
    )


def _require_descent(wanted: set[str], parents: Mapping[str, tuple[str, ...]], carried: set[str]) -> None:
    for revision in sorted(wanted):
        if not parents[revision] or any(each not in carried for each in parents[revision]):
            raise KnowledgeRefused(
                f"Revision {revision[:12]} does not descend from the beginning of this knowledge base.",
                hint="It was made by another program. Delete the branch that reaches it, then run it again: vmrag branch",
                revision=revision,
            )


def _uncommitted(branch: str) -> Uncommitted:
    return Uncommitted(
        f"The branch {branch!r} has uncommitted documents, which no revision holds; nothing was migrated.",
        hint="Commit them on their code branch: vmrag commit; or discard them: vmrag restore .",
        branch=branch,
    )
