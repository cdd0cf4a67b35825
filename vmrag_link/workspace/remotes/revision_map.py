"""The map of migrated revisions: the new name of each revision of the former engine.

`vmrag migrate` repeats all revisions with another engine, so their hashes change, but old pins have
the old hashes. The map has both. It consists of rows in the KB branch `vmrag_migrated`, which is
never pinned and is pushed with the others. `engines.migrated` has a copy of it in a file, with
which it translates pins.

The map of a remote is untrusted. An entry is accepted if its revision exists here, has the contents
that the entry states, and does not contradict known entries.
"""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Collection as Container

import msgspec

from vmrag_link import pin_values
from vmrag_link.engines import contents, migrated
from vmrag_link.engines.base import Engine, Write
from vmrag_link.engines.contents import RowSet, StepReader
from vmrag_link.engines.own_branches import MIGRATED_BRANCH, read_root
from vmrag_link.errors import KnowledgeRefused
from vmrag_link.models import Collection, Document, Record, encode_canonical_json
from vmrag_link.pin import Pin
from vmrag_link.progress import QUIET, Progress

MAX_ENTRIES = 200_000
"""A larger map is refused."""

_COLLECTION = Collection("vmrag_migrated", kind="system")
_AUTHOR = "vmrag <vmrag@localhost>"
_FINGERPRINT = "[0-9a-f]{64}"
_BATCH = 1000
_SECONDS = len("2026-01-31T12:00:00")
"""Number of characters of a date that are compared."""
_REPAIR = (
    "run 'vmrag push --force' in the clone that ran 'vmrag migrate', although it loses entries that only the remote has"
)


class MigratedRevision(Record, frozen=True):
    """An entry of the map."""

    revision: str
    """The new name."""
    fingerprint: str
    """The hash of all rows, which both revisions have."""


Entries = Mapping[str, MigratedRevision]
"""The entries by old name."""


def read_map(engine: Engine, at: str | None = None) -> dict[str, MigratedRevision]:
    """Return the entries of the map. Empty without a map.

    `at`: the head of a remote's branch, by default the local branch. Raises `KnowledgeRefused` if
    the rows are not a map.
    """
    if at is None:
        branch = engine.find_branch(MIGRATED_BRANCH)
        if branch is None:
            return {}
        at = branch.head
    if engine.count_documents(at) > MAX_ENTRIES:
        raise _refused_error(f"it has more than {MAX_ENTRIES:,} entries")
    return dict(_parse_entry(engine, row) for row in engine.read_documents(at))


def store_entries(engine: Engine, entries: Entries) -> None:
    """Add entries of a migration to the local map. Equal entries give equal revisions."""
    with engine.write_lock("note what was migrated"):
        if engine.find_branch(MIGRATED_BRANCH) is None:
            engine.create_branch(MIGRATED_BRANCH, read_root(engine))
        former = read_map(engine)
        new = {old: entry for old, entry in entries.items() if former.get(old) != entry}
        if new:
            revision = engine.recreate_revision([_read_head(engine)], _generate_writes(new), **_build_signature(engine))
            engine.move_branch(MIGRATED_BRANCH, revision, expected=_read_head(engine))
        reload_map(engine)


def import_entries(
    engine: Engine, remote: str, *, pinned: Callable[[], Iterable[Pin]], progress: Progress = QUIET
) -> int:
    """Add new entries of a remote's map to the local one, as of the last fetch.

    Return the number of new entries. `pinned`: returns the pins in git's history, whose dates are
    compared. Raises `KnowledgeRefused` if an entry is invalid. No entry is imported then.
    """
    remote_head = engine.remote_heads(remote).get(MIGRATED_BRANCH)
    own_branch = engine.find_branch(MIGRATED_BRANCH)
    if remote_head is None or (own_branch and engine.is_ancestor(remote_head, own_branch.head)):
        reload_map(engine)
        return 0
    remote_entries = read_map(engine, remote_head)
    known_entries = read_map(engine)
    new = {old: entry for old, entry in remote_entries.items() if known_entries.get(old) != entry}
    require_sound_entries(engine, new, known_entries, progress=progress)
    _require_times(engine, new, pinned())
    with engine.write_lock("take what was migrated elsewhere"):
        if own_branch is None:
            engine.create_branch(MIGRATED_BRANCH, remote_head)
        elif engine.is_ancestor(own_branch.head, remote_head) and known_entries.keys() <= remote_entries.keys():
            engine.move_branch(MIGRATED_BRANCH, remote_head, expected=own_branch.head)
        else:
            writes = list(_generate_writes({**new, **known_entries}))
            revision = engine.commit_onto(own_branch.head, writes, joining=remote_head, **_build_signature(engine))
            engine.move_branch(MIGRATED_BRANCH, revision, expected=own_branch.head)
        reload_map(engine)
    return len(new)


def reload_map(engine: Engine) -> None:
    """Update the file with which `engines.migrated` translates pins, if the map has changed."""
    branch = engine.find_branch(MIGRATED_BRANCH)
    if branch is not None and migrated.read_map_head(engine.folder, engine.name) != branch.head:
        names = {old: entry.revision for old, entry in read_map(engine).items()}
        migrated.write_map(engine.folder, engine.name, branch.head, names)


# -- checks of untrusted entries


def require_sound_entries(engine: Engine, new: Entries, known_entries: Entries, *, progress: Progress = QUIET) -> None:
    """Raise `KnowledgeRefused` unless each new entry is valid, as far as this clone can check.

    Its revision must exist with the stated contents, and all ancestors must be in the map as well.
    The old name must be neither a revision here nor have another new name.
    """
    if not new:
        return
    revisions = [entry.revision for entry in new.values()]
    parents = engine.map_parents(revisions)
    _require_names(engine, new, known_entries, parents)
    _require_whole(engine, revisions, known_entries, parents)
    stated = {entry.revision: (old, entry.fingerprint) for old, entry in new.items()}
    with progress.task("checking what was migrated", total=len(stated)) as task:
        for revision, actual in fingerprint_revisions(engine, stated, parents):
            old, fingerprint = stated[revision]
            if actual != fingerprint:
                raise _refused_error(f"the contents of {revision[:12]} differ from those of {old[:12]}")
            task.advance(1)


def _require_names(engine: Engine, new: Entries, known_entries: Entries, existing: Container[str]) -> None:
    """Require that old names are free, and that new names are revisions in `existing`."""
    conflicting = engine.map_parents([*new])
    for old, entry in new.items():
        if old in conflicting:
            raise _refused_error(f"it renames {old[:12]}, which is a revision of this knowledge base")
        if old in known_entries and known_entries[old].revision != entry.revision:
            raise _refused_error(
                f"in it {old[:12]} became {entry.revision[:12]}, but here it became {known_entries[old].revision[:12]}"
            )
        if entry.revision not in existing:
            raise _refused_error(f"in it {old[:12]} became {entry.revision[:12]}, which does not exist")


def _require_whole(
    engine: Engine, revisions: Iterable[str], known_entries: Entries, parents: Mapping[str, tuple[str, ...]]
) -> None:
    """Require that the map has the parents of each revision, except those before `init`."""
    before_init = engine.map_parents([read_root(engine)]).keys() - {read_root(engine)}
    targets = {*revisions, *(entry.revision for entry in known_entries.values()), *before_init}
    for revision in revisions:
        for parent in parents[revision]:
            if parent not in targets:
                raise _refused_error(f"an entry is missing: {parent[:12]}, which precedes {revision[:12]}")


def _require_times(engine: Engine, new: Entries, pinned: Iterable[Pin]) -> None:
    """Check the dates of new entries by pins, which contain the date of their revision."""
    for pin in pinned:
        entry = new.get(pin.dolt_commit)
        date = engine.read_revision(entry.revision).date if entry else ""
        if entry and date[:_SECONDS] != pin.linked_at[:_SECONDS]:
            raise _refused_error(
                f"{pin.dolt_commit[:12]} is pinned with the date {pin.linked_at}, but {entry.revision[:12]} has the date {date}"
            )


def fingerprint_revisions(
    engine: Engine, revisions: Iterable[str], parents: Mapping[str, tuple[str, ...]]
) -> Iterator[tuple[str, str]]:
    """Yield each revision with the fingerprint of its contents, parents first.

    `parents`: the parents of these revisions and of all their ancestors. The contents of a revision
    are those of its first parent and the difference to it, so that only differences are read.
    """
    rows_by_revision: dict[str, RowSet] = {}
    steps = StepReader(engine)
    requested = set(revisions)
    successors = count_successors(requested, parents)
    for revision in sort_parents_first(requested, parents):
        if refusal := engine.find_refusal(revision):
            raise refusal
        first = parents[revision][0] if parents[revision] else ""
        if first in rows_by_revision:
            rows_by_revision[revision] = rows_by_revision[first].apply_step(steps.read_step(first, revision))
        else:
            rows_by_revision[revision] = contents.read_row_set(engine, revision)
        yield revision, rows_by_revision[revision].fingerprint
        drop_contents(rows_by_revision, successors, first, revision)


def count_successors(revisions: Iterable[str], parents: Mapping[str, tuple[str, ...]]) -> dict[str, int]:
    """Return for how many of the revisions each one is the first parent."""
    counts: dict[str, int] = {}
    for revision in revisions:
        for first in parents[revision][:1]:
            counts[first] = counts.get(first, 0) + 1
    return counts


def drop_contents(rows_by_revision: dict[str, RowSet], successors: dict[str, int], first: str, revision: str) -> None:
    """Delete the contents of a revision and its first parent if no further revision needs them.

    `successors`: the result of `count_successors` for the remaining revisions, which this updates.
    """
    if first in successors:
        successors[first] -= 1
    for candidate in (first, revision):
        if not successors.get(candidate):
            rows_by_revision.pop(candidate, None)


def sort_parents_first(revisions: set[str], parents: Mapping[str, tuple[str, ...]]) -> list[str]:
    """Return the revisions, each after its ancestors, in an order that is equal in all clones."""
    ordered: dict[str, None] = {}  # an ordered set
    for start in sorted(revisions):
        path = [start]
        while path:
            pending = [parent for parent in parents[path[-1]] if parent in revisions and parent not in ordered]
            if pending:
                path.append(pending[0])
            else:
                ordered.setdefault(path.pop())
    return list(ordered)


# -- rows


def _parse_entry(engine: Engine, row: Document) -> tuple[str, MigratedRevision]:
    """Return the old name and the entry of a row. Raises `KnowledgeRefused`."""
    try:
        stated = msgspec.json.decode(row.metadata, type=dict[str, str]).get("fingerprint", "")
    except (msgspec.DecodeError, UnicodeDecodeError):
        stated = ""
    is_valid = (
        row.collection == _COLLECTION.name
        and re.fullmatch(pin_values.REVISION, row.doc_id)
        and re.fullmatch(pin_values.REVISION, row.content)
        and pin_values.engine_of_revision(row.content) == engine.name
        and re.fullmatch(_FINGERPRINT, stated)
    )
    if not is_valid:
        raise _refused_error(f"it has an invalid row: {row.doc_id[:60]!r}")
    return row.doc_id, MigratedRevision(row.content, stated)


def _generate_writes(entries: Entries) -> Iterator[Write]:
    """Yield the rows of the entries in batches."""
    rows = sorted(entries.items())
    for start in range(0, len(rows), _BATCH):
        batch = itertools.islice(rows, start, start + _BATCH)
        yield Write(put_collections=[_COLLECTION], put_documents=[_build_row(old, entry) for old, entry in batch])


def _build_row(old: str, entry: MigratedRevision) -> Document:
    digest = hashlib.sha256(entry.revision.encode()).hexdigest()
    stated = encode_canonical_json({"fingerprint": entry.fingerprint})
    return Document(
        collection=_COLLECTION.name, doc_id=old, title="", content=entry.revision, content_hash=digest, metadata=stated
    )


def _read_head(engine: Engine) -> str:
    branch = engine.find_branch(MIGRATED_BRANCH)
    assert branch is not None  # noqa: S101  the caller created it, under the write lock
    return branch.head


def _build_signature(engine: Engine) -> dict[str, str]:
    """Return a signature that is equal in all clones."""
    return {
        "message": "Note what was migrated",
        "author": _AUTHOR,
        "date": engine.read_revision(read_root(engine)).date,
    }


def _refused_error(reason: str) -> KnowledgeRefused:
    return KnowledgeRefused(
        f"refused the remote's map of migrated revisions: {reason}. Nothing of it was imported.", hint=_REPAIR
    )
