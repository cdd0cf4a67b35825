"""The map of migrated revisions: which revision of another engine became which one.

A migration writes it in rows of the branch `vmrag_migrated`, which is never pinned and is pushed
with the others. A remote's map is untrusted. An entry is accepted if its revision exists, has the
contents that the entry states, and does not contradict known entries. `engines.migrated` turns
accepted entries into the names by which pins are read.
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
from vmrag_link.engines.base import MIGRATED_BRANCH, Engine, Write, read_root
from vmrag_link.engines.contents import RowSet, StepReader
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
_REPAIR = (
    "run 'vmrag push --force' in the clone that ran 'vmrag migrate', although it loses entries that only the remote has"
)


class MigratedRevision(Record, frozen=True):
    """The new revision of a migrated one."""

    revision: str
    fingerprint: str
    """The fingerprint of the contents of both."""


Entries = Mapping[str, MigratedRevision]
"""The entries by the name of the migrated revision."""


def read_map(engine: Engine, at: str | None = None) -> dict[str, MigratedRevision]:
    """Return the entries of the local branch, or of the head of another one; empty without a
    branch.

    Raises `KnowledgeRefused` if the branch is not a map.
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
    """Add entries to the local branch, so that pins are read by them.

    Equal entries in equal knowledge bases result in equal revisions.
    """
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
    """Add the entries that a remote's map has beyond the local one, as of the last fetch. Return
    their number.

    `pinned` returns the pins in the code's history. Raises `KnowledgeRefused` if an entry is
    invalid, and imports none.
    """
    head = engine.remote_heads(remote).get(MIGRATED_BRANCH)
    own_branch = engine.find_branch(MIGRATED_BRANCH)
    if head is None or (own_branch and engine.is_ancestor(head, own_branch.head)):
        reload_map(engine)
        return 0
    remote_entries, known_entries = read_map(engine, head), read_map(engine)
    new = {old: entry for old, entry in remote_entries.items() if known_entries.get(old) != entry}
    require_sound_entries(engine, new, known_entries, progress=progress)
    _require_times(engine, new, pinned())
    with engine.write_lock("take what was migrated elsewhere"):
        if own_branch is None:
            engine.create_branch(MIGRATED_BRANCH, head)
        elif engine.is_ancestor(own_branch.head, head) and known_entries.keys() <= remote_entries.keys():
            engine.move_branch(MIGRATED_BRANCH, head, expected=own_branch.head)
        else:
            revision = engine.commit_onto(
                own_branch.head,
                list(_generate_writes({**new, **known_entries})),
                joining=head,
                **_build_signature(engine),
            )
            engine.move_branch(MIGRATED_BRANCH, revision, expected=own_branch.head)
        reload_map(engine)
    return len(new)


def reload_map(engine: Engine) -> None:
    """Make pins be read by the entries of the local branch."""
    branch = engine.find_branch(MIGRATED_BRANCH)
    if branch is not None and migrated.read_map_head(engine.folder, engine.name) != branch.head:
        names = {old: entry.revision for old, entry in read_map(engine).items()}
        migrated.write_map(engine.folder, engine.name, branch.head, names)


# -- checks of untrusted entries


def require_sound_entries(engine: Engine, new: Entries, known_entries: Entries, *, progress: Progress = QUIET) -> None:
    """Raise `KnowledgeRefused` unless each new entry is valid, as far as this clone can tell.

    Its revision must exist with the stated contents, all ancestors must be in the map as well, and
    no other revision may have the name.
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
    own_names = engine.map_parents([*new])
    for old, entry in new.items():
        if old in own_names:
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
    before = engine.map_parents([read_root(engine)]).keys() - {read_root(engine)}
    targets = {*revisions, *(entry.revision for entry in known_entries.values()), *before}
    for revision in revisions:
        for parent in parents[revision]:
            if parent not in targets:
                raise _refused_error(f"an entry is missing: {parent[:12]}, which precedes {revision[:12]}")


def _require_times(engine: Engine, new: Entries, pinned: Iterable[Pin]) -> None:
    """Check the dates of new entries by pins, which contain the date of their revision."""
    for pin in pinned:
        entry = new.get(pin.dolt_commit)
        if entry and (date := engine.read_revision(entry.revision).date)[:_SECONDS] != pin.linked_at[:_SECONDS]:
            raise _refused_error(
                f"{pin.dolt_commit[:12]} is pinned with the date {pin.linked_at}, but {entry.revision[:12]} has the date {date}"
            )


def fingerprint_revisions(
    engine: Engine, revisions: Iterable[str], parents: Mapping[str, tuple[str, ...]]
) -> Iterator[tuple[str, str]]:
    """Yield the fingerprint of the contents of each revision, parents first.

    The cost depends on the differences between consecutive revisions. `parents` contains these
    revisions and all their ancestors.
    """
    rows_by_revision: dict[str, RowSet] = {}
    steps = StepReader(engine)
    requested = set(revisions)
    followers = count_successors(requested, parents)
    for revision in sort_parents_first(requested, parents):
        if refusal := engine.find_refusal(revision):
            raise refusal
        first = parents[revision][0] if parents[revision] else ""
        if first in rows_by_revision:
            rows_by_revision[revision] = rows_by_revision[first].apply_step(steps.read_step(first, revision))
        else:
            rows_by_revision[revision] = contents.read_row_set(engine, revision)
        yield revision, rows_by_revision[revision].fingerprint
        drop_contents(rows_by_revision, followers, first, revision)


def count_successors(revisions: Iterable[str], parents: Mapping[str, tuple[str, ...]]) -> dict[str, int]:
    """Count how many of the revisions follow each one as their first parent."""
    counts: dict[str, int] = {}
    for revision in revisions:
        for first in parents[revision][:1]:
            counts[first] = counts.get(first, 0) + 1
    return counts


def drop_contents(rows_by_revision: dict[str, RowSet], followers: dict[str, int], first: str, revision: str) -> None:
    """Delete contents that no further revision needs."""
    if first in followers:
        followers[first] -= 1
    for candidate in (first, revision):
        if not followers.get(candidate):
            rows_by_revision.pop(candidate, None)


def sort_parents_first(revisions: set[str], parents: Mapping[str, tuple[str, ...]]) -> list[str]:
    """Return the revisions, each after its ancestors.

    The order depends only on the revisions.
    """
    ordered: dict[str, None] = {}
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
