"""Which revisions of another engine became which ones here.

A migration writes that down in rows of the branch `vmrag_migrated`, which is never pinned and
travels with the others. What a remote holds of it is a stranger's: an entry counts when its
revision is here, holds what the entry says, and agrees with what is known already. Of entries that
count, `engines.migrated` makes the names by which pins are read.
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
"""Entries: a larger map is refused."""

_COLLECTION = Collection("vmrag_migrated", kind="system")
_AUTHOR = "vmrag <vmrag@localhost>"
_FINGERPRINT = "[0-9a-f]{64}"
_BATCH = 1000
_SECONDS = len("2026-01-31T12:00:00")
_MEND = (
    "Whoever moved the knowledge base (vmrag migrate), or fetched the map before, puts theirs in its place: "
    "vmrag push … with --force, which costs what only the map there has"
)


class MigratedRevision(Record, frozen=True):
    """`revision`: what another one became; `fingerprint`: of the contents of both."""

    revision: str
    fingerprint: str


Entries = Mapping[str, MigratedRevision]
"""By the name of the revision that was migrated."""


def read_map(engine: Engine, at: str | None = None) -> dict[str, MigratedRevision]:
    """The entries of our branch, or of another one's head. None where there is no such branch.

    Raises `KnowledgeRefused` for what is no map.
    """
    if at is None:
        branch = engine.find_branch(MIGRATED_BRANCH)
        if branch is None:
            return {}
        at = branch.head
    if engine.count_documents(at) > MAX_ENTRIES:
        raise _refused(f"it has more than {MAX_ENTRIES:,} entries")
    return dict(_entry(engine, row) for row in engine.read_documents(at))


def store_entries(engine: Engine, entries: Entries) -> None:
    """Add these to our branch, and let pins be read by them.

    Equal entries in an equal knowledge base give an equal revision.
    """
    with engine.write_lock("note what was migrated"):
        if engine.find_branch(MIGRATED_BRANCH) is None:
            engine.create_branch(MIGRATED_BRANCH, read_root(engine))
        held = read_map(engine)
        new = {old: entry for old, entry in entries.items() if held.get(old) != entry}
        if new:
            made = engine.recreate_revision([_head(engine)], _writes(new), **_signed(engine))
            engine.move_branch(MIGRATED_BRANCH, made, expected=_head(engine))
        reload_map(engine)


def import_entries(
    engine: Engine, remote: str, *, pinned: Callable[[], Iterable[Pin]], progress: Progress = QUIET
) -> int:
    """Add what a remote's map has beyond ours, as it was last fetched; how many entries.

    `pinned`: what the code's history pins. Raises `KnowledgeRefused` if an entry is wrong, and
    takes none.
    """
    head = engine.remote_heads(remote).get(MIGRATED_BRANCH)
    ours = engine.find_branch(MIGRATED_BRANCH)
    if head is None or (ours and engine.is_ancestor(head, ours.head)):
        reload_map(engine)
        return 0
    theirs, held = read_map(engine, head), read_map(engine)
    new = {old: entry for old, entry in theirs.items() if held.get(old) != entry}
    require_sound_entries(engine, new, held, progress=progress)
    _require_times(engine, new, pinned())
    with engine.write_lock("take what was migrated elsewhere"):
        if ours is None:
            engine.create_branch(MIGRATED_BRANCH, head)
        elif engine.is_ancestor(ours.head, head) and held.keys() <= theirs.keys():
            engine.move_branch(MIGRATED_BRANCH, head, expected=ours.head)
        else:
            made = engine.commit_onto(ours.head, list(_writes({**new, **held})), joining=head, **_signed(engine))
            engine.move_branch(MIGRATED_BRANCH, made, expected=ours.head)
        reload_map(engine)
    return len(new)


def reload_map(engine: Engine) -> None:
    """Let pins be read by the entries of our branch."""
    branch = engine.find_branch(MIGRATED_BRANCH)
    if branch is not None and migrated.read_map_head(engine.folder, engine.name) != branch.head:
        names = {old: entry.revision for old, entry in read_map(engine).items()}
        migrated.write_map(engine.folder, engine.name, branch.head, names)


# -- what is not believed


def require_sound_entries(engine: Engine, new: Entries, held: Entries, *, progress: Progress = QUIET) -> None:
    """Raise `KnowledgeRefused` unless each new entry is right, as far as can be told here.

    Its revision is here with the contents that it states, so are all that it descends from, and no
    other revision is known by that name.
    """
    if not new:
        return
    revisions = [entry.revision for entry in new.values()]
    parents = engine.map_parents(revisions)
    _require_names(engine, new, held, parents)
    _require_whole(engine, revisions, held, parents)
    stated = {entry.revision: (old, entry.fingerprint) for old, entry in new.items()}
    with progress.task("checking what was migrated", total=len(stated)) as task:
        for revision, found in fingerprint_revisions(engine, stated, parents):
            old, fingerprint = stated[revision]
            if found != fingerprint:
                raise _refused(f"{revision[:12]} does not hold what {old[:12]} held")
            task.advance(1)


def _require_names(engine: Engine, new: Entries, held: Entries, there: Container[str]) -> None:
    here = engine.map_parents([*new])
    for old, entry in new.items():
        if old in here:
            raise _refused(f"it renames {old[:12]}, which is a revision of this knowledge base")
        if old in held and held[old].revision != entry.revision:
            raise _refused(f"in it {old[:12]} became {entry.revision[:12]}, and it became {held[old].revision[:12]}")
        if entry.revision not in there:
            raise _refused(f"in it {old[:12]} became {entry.revision[:12]}, which is not there")


def _require_whole(
    engine: Engine, revisions: Iterable[str], held: Entries, parents: Mapping[str, tuple[str, ...]]
) -> None:
    before = engine.map_parents([read_root(engine)]).keys() - {read_root(engine)}
    targets = {*revisions, *(entry.revision for entry in held.values()), *before}
    for revision in revisions:
        for parent in parents[revision]:
            if parent not in targets:
                raise _refused(f"an entry is missing: {parent[:12]}, which precedes {revision[:12]}")


def _require_times(engine: Engine, new: Entries, pinned: Iterable[Pin]) -> None:
    """A pin says when its revision was made: that is known without the knowledge base of before."""
    for pin in pinned:
        entry = new.get(pin.dolt_commit)
        if entry and (date := engine.read_revision(entry.revision).date)[:_SECONDS] != pin.linked_at[:_SECONDS]:
            raise _refused(
                f"{pin.dolt_commit[:12]} is pinned as of {pin.linked_at}, and {entry.revision[:12]} is of {date}"
            )


def fingerprint_revisions(
    engine: Engine, revisions: Iterable[str], parents: Mapping[str, tuple[str, ...]]
) -> Iterator[tuple[str, str]]:
    """The fingerprint of the contents of each revision, parents first.

    Costs by what differs from one to the next. `parents`: of these and all their ancestors.
    """
    known: dict[str, RowSet] = {}
    steps = StepReader(engine)
    asked = set(revisions)
    left = count_successors(asked, parents)
    for revision in sort_parents_first(asked, parents):
        if refusal := engine.find_refusal(revision):
            raise refusal
        first = parents[revision][0] if parents[revision] else ""
        if first in known:
            known[revision] = known[first].apply_step(steps.read_step(first, revision))
        else:
            known[revision] = contents.read_row_set(engine, revision)
        yield revision, known[revision].fingerprint
        drop_contents(known, left, first, revision)


def count_successors(revisions: Iterable[str], parents: Mapping[str, tuple[str, ...]]) -> dict[str, int]:
    """How many of the revisions follow each one as their first parent."""
    counted: dict[str, int] = {}
    for revision in revisions:
        for first in parents[revision][:1]:
            counted[first] = counted.get(first, 0) + 1
    return counted


def drop_contents(known: dict[str, RowSet], left: dict[str, int], first: str, revision: str) -> None:
    """Drop contents from which nothing more follows."""
    if first in left:
        left[first] -= 1
    for each in (first, revision):
        if not left.get(each):
            known.pop(each, None)


def sort_parents_first(revisions: set[str], parents: Mapping[str, tuple[str, ...]]) -> list[str]:
    """The revisions, each after those of them that it descends from. The order depends on nothing
    but them.
    """
    ordered: dict[str, None] = {}
    for start in sorted(revisions):
        path = [start]
        while path:
            open_ones = [each for each in parents[path[-1]] if each in revisions and each not in ordered]
            if open_ones:
                path.append(open_ones[0])
            else:
                ordered.setdefault(path.pop())
    return list(ordered)


# -- rows


def _entry(engine: Engine, row: Document) -> tuple[str, MigratedRevision]:
    try:
        stated = msgspec.json.decode(row.metadata, type=dict[str, str]).get("fingerprint", "")
    except (msgspec.DecodeError, UnicodeDecodeError):
        stated = ""
    sound = (
        row.collection == _COLLECTION.name
        and re.fullmatch(pin_values.REVISION, row.doc_id)
        and re.fullmatch(pin_values.REVISION, row.content)
        and pin_values.engine_of_revision(row.content) == engine.name
        and re.fullmatch(_FINGERPRINT, stated)
    )
    if not sound:
        raise _refused(f"a row in it is no entry: {row.doc_id[:60]!r}")
    return row.doc_id, MigratedRevision(row.content, stated)


def _writes(entries: Entries) -> Iterator[Write]:
    rows = sorted(entries.items())
    for start in range(0, len(rows), _BATCH):
        some = itertools.islice(rows, start, start + _BATCH)
        yield Write(put_collections=[_COLLECTION], put_documents=[_row(old, entry) for old, entry in some])


def _row(old: str, entry: MigratedRevision) -> Document:
    digest = hashlib.sha256(entry.revision.encode()).hexdigest()
    stated = encode_canonical_json({"fingerprint": entry.fingerprint})
    return Document(_COLLECTION.name, old, "", entry.revision, digest, stated)


def _head(engine: Engine) -> str:
    found = engine.find_branch(MIGRATED_BRANCH)
    assert found is not None  # noqa: S101  made before, under the write lock
    return found.head


def _signed(engine: Engine) -> dict[str, str]:
    """Nothing that differs from one clone to the next."""
    return {
        "message": "Note what was migrated",
        "author": _AUTHOR,
        "date": engine.read_revision(read_root(engine)).date,
    }


def _refused(why: str) -> KnowledgeRefused:
    return KnowledgeRefused(
        f"The remote's map of migrated revisions is refused: {why}. Nothing of it was taken.", hint=_MEND
    )
