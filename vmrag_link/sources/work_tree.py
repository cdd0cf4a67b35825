"""List the files of the sources in the work tree: tracked files as they are on disk.

Commands list them often, and little changes. So the last listing is stored next to a record of what
it was made from (`listings.SeenState`). `compare_last_listing` compares this record, and only after
a change `survey` lists the files again.

git runs next to the user's own commands: the index is read and neither refreshed nor locked. git
compares the work tree with a copy of the index (`git.raw_changes`).
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from vmrag_link.errors import GitBusy, refuses_writing
from vmrag_link.file_access import read_file_stamp
from vmrag_link.git import configuration, index_copy, readonly
from vmrag_link.git.refs import read_head
from vmrag_link.paths import Places
from vmrag_link.settings import SourceSettings
from vmrag_link.sources import attributes, listings
from vmrag_link.sources.disk import Disk
from vmrag_link.sources.listings import ChangedFile, SeenState, SourceListing, compute_token
from vmrag_link.sources.stored_blobs import read_storing_rules
from vmrag_link.sources.survey import UNTRACKED, Checkout, survey_files
from vmrag_link.sources.untracked import count_untracked_files, list_searched_untracked

__all__ = ["compare_last_listing", "count_untracked_files", "list_in_work_tree", "survey_work_tree"]

_FORMAT = 3
"""Version of the record. A record of another version is ignored."""

_ATTEMPTS = 4
_MAX_DOUBTFUL_FILES = 100
"""If the times of more files prove nothing, all files are listed again."""


@readonly.share_deadline()
def list_in_work_tree(
    places: Places, sources: Sequence[SourceSettings], *, max_bytes: int, untracked: bool, cache: Path
) -> SourceListing:
    """Return the files of the sources in the work tree.

    `untracked`: include files that git neither tracks nor ignores. `cache`: a vmrag file for this
    work tree. Files whose names begin with its name are also vmrag's. `listing.untracked` is from
    the last time that anything else had changed. `count_untracked_files` counts again. Raises
    `LimitExceeded`, `HistoryMissing` if HEAD's tree is missing, `GitFailed`, and `GitBusy` while
    git keeps writing the index.
    """
    last = compare_last_listing(places, sources, max_bytes=max_bytes, untracked=untracked, cache=cache)
    if last.token and (stored := listings.read_listing(cache)) and stored.token == last.token:
        return stored.listing
    return survey_work_tree(places, sources, max_bytes=max_bytes, untracked=untracked, cache=cache, last=last)


@readonly.share_deadline()
def survey_work_tree(
    places: Places,
    sources: Sequence[SourceSettings],
    *,
    max_bytes: int,
    untracked: bool,
    cache: Path,
    last: LastListing,
) -> SourceListing:
    """Return what `list_in_work_tree` returns. `last`: what `compare_last_listing` has found."""
    comparison = last.comparison
    request = _build_request(sources, max_bytes, untracked=untracked)
    seen, stored = listings.read_seen(cache), listings.read_listing(cache)
    for _ in range(_ATTEMPTS):
        snapshot = _read_snapshot(places, cache, request)
        copy = _provide_index_copy(places, snapshot.index_copy)
        if comparison and comparison.snapshot != snapshot:
            comparison = None
        started = comparison.started if comparison else index_copy.read_clock(cache.parent)
        with Disk(places.top) as disk:
            checkout = Checkout(
                places,
                disk,
                snapshot.commit,
                copy,
                statuses=comparison.statuses if comparison else None,
                is_countable=seen is not None and seen.snapshot == snapshot.digest,
            )
            survey = survey_files(
                checkout,
                sources,
                max_bytes=max_bytes,
                untracked=untracked,
                seen=seen,
                before=stored.listing if stored else None,
            )
        comparison = None  # another attempt compares again
        if survey is None or _read_snapshot(places, cache, request) != snapshot:
            continue
        _write_listing(
            cache,
            SeenState(
                snapshot=snapshot.digest,
                storing=survey.storing,
                started=started,
                changed=survey.changed,
                token=compute_token(survey.listing),
            ),
            survey.listing,
        )
        return survey.listing
    raise GitBusy(
        "git keeps writing the index while the files of the sources are listed.", hint="run the command again"
    )


def _provide_index_copy(places: Places, copy: Path) -> Path | None:
    """Copy the index if the copy does not exist. Return None if the disk is not writable."""
    if not copy.exists():
        try:
            index_copy.copy_index(places, copy)
        except OSError as error:
            if not refuses_writing(error):
                raise
            return None
    return copy


def _write_listing(cache: Path, seen: SeenState, listing: SourceListing) -> None:
    try:
        listings.write_listing(cache, seen, listing)
    except OSError as error:
        if not refuses_writing(error):  # on a read-only disk, the next call lists the files again
            raise


class _Comparison(NamedTuple):
    """The files that differ from the index, by git's status (`index_copy.list_changed`)."""

    snapshot: _Snapshot
    started: int
    """The time before the comparison, by the disk's clock, in nanoseconds."""
    statuses: dict[str, str]


class LastListing(NamedTuple):
    """The last listing, compared with the present files."""

    token: str | None
    """`listings.compute_token` of the last listing, if `list_in_work_tree` would list the same.

    None if something may have changed.
    """
    comparison: _Comparison | None = None
    """The result of git if something may have changed. `survey_work_tree` uses it."""


@readonly.share_deadline()
def compare_last_listing(
    places: Places, sources: Sequence[SourceSettings], *, max_bytes: int, untracked: bool, cache: Path
) -> LastListing:
    """Return whether `list_in_work_tree` would list the same as the last time.

    Starts one git process, with `untracked` two, and reads the state of each file that differs from
    the index. Raises the errors of `list_in_work_tree`.
    """
    seen = listings.read_seen(cache)
    request = _build_request(sources, max_bytes, untracked=untracked)
    snapshot = _read_snapshot(places, cache, request) if seen else None
    if seen is None or snapshot is None or seen.snapshot != snapshot.digest:
        return LastListing(None)
    copy_stamp = read_file_stamp(snapshot.index_copy)
    now = index_copy.read_clock(cache.parent)
    statuses = index_copy.list_changed(places, snapshot.index_copy, attributes.list_relevant_names(sources))
    if statuses is None:
        return LastListing(None)
    changed_listing = LastListing(None, _Comparison(snapshot, now, statuses))
    for paths in list_searched_untracked(places, sources, untracked=untracked):
        statuses = statuses | dict.fromkeys(paths, UNTRACKED)
    if statuses != {os.fsdecode(changed.path): changed.status for changed in seen.changed}:
        return changed_listing
    with Disk(places.top) as disk:
        states = [disk.read_state(os.fsdecode(changed.path)) for changed in seen.changed]
        pairs = [(changed, state) for changed, state in zip(seen.changed, states, strict=True) if changed.listed]
        if any((state and state.stamp) != changed.stamp for changed, state in pairs):
            return changed_listing
        doubtful = [
            changed for changed, state in pairs if state and listings.may_have_changed(state.stamp, seen.started)
        ]
        if not _have_recorded_blobs(places, disk, statuses, doubtful, max_bytes):
            return changed_listing
    newest = max((state.changed_at for state in states if state), default=0)
    index_copy.settle_copy(snapshot.index_copy, copy_stamp, now, newest)
    return LastListing(seen.token)


def _have_recorded_blobs(
    places: Places, disk: Disk, statuses: Mapping[str, str], doubtful: Sequence[ChangedFile], max_bytes: int
) -> bool:
    """Read files whose times prove nothing, and return whether they still have the recorded blobs.

    Files without a recorded blob are skipped. Too many files count as changed.
    """
    if len(doubtful) > _MAX_DOUBTFUL_FILES:
        return False
    blobs = {os.fsdecode(changed.path): changed.blob for changed in doubtful if changed.blob}
    if not blobs:
        return True
    storing = read_storing_rules(places, disk, statuses)
    return all(
        (storing.attribute_blobs.get(path) or storing.hash_file(disk, path, max_bytes).blob) == blob
        for path, blob in blobs.items()
    )


class _Snapshot(NamedTuple):
    """Index, HEAD and configuration at one moment, for one request."""

    digest: str
    """Text that identifies all four."""
    index_copy: Path
    """The path for a copy of this index. Each request has its own copy, because
    `index_copy.settle_copy` considers only the files of the request.
    """
    commit: str | None
    """HEAD's, or None on an unborn branch."""


def _read_snapshot(places: Places, cache: Path, request: str) -> _Snapshot:
    settings = [
        entry
        for entry in configuration.list_entries(places)
        if entry.key.startswith(("core.", "filter.", "extensions."))
    ]
    index = _compute_digest(request, index_copy.read_index_state(places), settings)
    commit = places.borrowed.commit if places.borrowed and places.borrowed.index_file else read_head(places).commit
    copy = cache.absolute().with_name(f"{cache.name}@{index[:24]}")
    return _Snapshot(_compute_digest(index, commit), copy, commit)


def _build_request(sources: Sequence[SourceSettings], max_bytes: int, *, untracked: bool) -> str:
    """Return a text that identifies the arguments of a listing."""
    return _compute_digest(_FORMAT, list(sources), max_bytes, untracked)


def _compute_digest(*values: object) -> str:
    return hashlib.sha256(msgspec.msgpack.encode(values, enc_hook=repr)).hexdigest()
