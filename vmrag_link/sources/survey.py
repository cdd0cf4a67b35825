"""Compare the files of the sources on disk with git's index and with HEAD.

`work_tree` calls `survey_files` after something has changed. git decides which files differ from
the index. Only these are read and hashed, and only once for each change: the caller stores what was
hashed, and passes it to the next survey.
"""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from vmrag_link import terminal_text
from vmrag_link.errors import refuses_writing
from vmrag_link.file_access import FileStamp
from vmrag_link.git import index_copy, raw_changes, readonly
from vmrag_link.git.objects import hash_blob
from vmrag_link.git.raw_changes import LINK, REGULAR, IndexEntry, RawChange
from vmrag_link.paths import Places
from vmrag_link.settings import SourceSettings
from vmrag_link.sources import attributes, listings, rules
from vmrag_link.sources.attributes import TreeAttributes
from vmrag_link.sources.commit_files import get_empty_tree
from vmrag_link.sources.disk import Disk
from vmrag_link.sources.listings import ChangedFile, SeenState, SourceListing, Uncommitted
from vmrag_link.sources.selection import Candidate, select_files
from vmrag_link.sources.stored_blobs import HashedFile, StoringRules, get_sample_name, read_storing_rules
from vmrag_link.sources.untracked import count_untracked_files, list_searched_untracked

UNTRACKED = "?"
"""Status of a file that git does not track, in addition to git's own statuses."""

_DELETED, _MODIFIED, _UNMERGED = "D", "M", "U"
_OURS = 2
"""The stage of our side of a conflict in the index."""

_UNKNOWN = "?"
"""Recorded instead of the blob of a file that could not be read or converted."""

_NO_MODE = "000000"


class Checkout(NamedTuple):
    """The work tree to survey."""

    places: Places
    disk: Disk
    commit: str | None
    """HEAD's, or None on an unborn branch."""
    index_copy: Path | None
    """A copy of the index for `raw_changes`, or None if the disk is not writable."""
    statuses: Mapping[str, str] | None = None
    """The result of `index_copy.list_changed` for the sources, if the caller has it."""
    is_countable: bool = False
    """True if HEAD's tree has few enough files (`raw_changes.require_countable`)."""


class Survey(NamedTuple):
    """Result of a survey."""

    listing: SourceListing
    changed: list[ChangedFile]
    """The files that differ from the index, for the next survey."""
    storing: str
    """`StoringRules.digest` of the rules under which they were hashed."""


def survey_files(
    checkout: Checkout,
    sources: Sequence[SourceSettings],
    *,
    max_bytes: int,
    untracked: bool,
    seen: SeenState | None,
    before: SourceListing | None,
) -> Survey | None:
    """List the files of the sources. Return None if the copy of the index is gone or damaged: then
    the caller copies it again, and repeats the survey.

    `seen`, `before`: the record and the listing of an earlier survey. Raises `GitFailed`,
    `LimitExceeded` and `HistoryMissing`.
    """
    places = checkout.places
    recorded = {os.fsdecode(file.path): file for file in seen.changed} if seen else {}
    statuses = _compare_with_index(checkout, sources, recorded)
    if statuses is None:
        return None
    untracked_paths = list_searched_untracked(places, sources, untracked=untracked)
    statuses |= dict.fromkeys(itertools.chain.from_iterable(untracked_paths), UNTRACKED)
    staged = _list_staged(checkout, sources)
    entries = [list(raw_changes.list_entries(places, rules.build_pathspecs(source))) for source in sources]
    candidates = [
        _build_candidates(checkout.disk, tracked, paths, statuses, staged)
        for tracked, paths in zip(entries, untracked_paths, strict=True)
    ]
    storing = read_storing_rules(places, checkout.disk, statuses)
    reusable = _select_reusable(recorded, seen, storing)
    hashed: dict[str, HashedFile] = {}

    def hash_candidate(candidate: Candidate) -> Candidate:
        path = candidate.path
        if path not in hashed:
            record = reusable.get(path)
            if record and candidate.stamp == record.stamp:
                hashed[path] = HashedFile(record.stamp, record.blob, candidate.size or 0)
            else:
                hashed[path] = storing.hash_file(checkout.disk, path, max_bytes)
        return _add_blob(candidate, hashed[path])

    existing = [{path: file for path, file in files.items() if file is not None} for files in candidates]
    selected = select_files(
        sources,
        existing,
        TreeAttributes(storing.attribute_files, attributes.FOR_LISTING),
        _read_sizes(places, existing, before),
        max_bytes=max_bytes,
        read=hash_candidate,
    )
    removed = _list_removed(checkout, sources, entries, statuses, staged).difference(*existing)
    unsearched = [source for source in sources if not rules.searches_untracked(source, untracked=untracked)]
    listing = msgspec.structs.replace(
        selected,
        removed=tuple(sorted(map(terminal_text.escape_line, removed))),
        untracked=count_untracked_files(places, unsearched),
    )
    if any(source.write for source in sources):
        from vmrag_link.sources import documents, notes

        read_texts = functools.partial(documents.read_texts_in_work_tree, places)
        listing = notes.identify_notes(sources, listing, read_texts, before)

    changed = _describe_changes(checkout.disk, statuses, candidates, hashed, storing)
    return Survey(listing, changed, storing.digest)


def _compare_with_index(
    checkout: Checkout, sources: Sequence[SourceSettings], recorded: Mapping[str, ChangedFile]
) -> dict[str, str] | None:
    """Return git's statuses of the files that differ from the index, by path, or None if the copy
    of the index is gone or damaged.

    git first reports each file with a new time. The copy of the index can learn the times of
    unchanged files, so that git compares again without them.
    """
    places, copy = checkout.places, checkout.index_copy
    pathspecs = attributes.list_relevant_names(sources)
    given = checkout.statuses
    statuses = index_copy.list_changed(places, copy, pathspecs) if given is None else dict(given)
    if statuses is None or copy is None:
        return statuses
    if all(
        _is_recorded(recorded.get(path), checkout.disk.read_stamp(path))
        for path, status in statuses.items()
        if status == _MODIFIED
    ):
        return statuses
    try:
        index_copy.refresh_copy(places, copy)
    except OSError as error:
        if not refuses_writing(error):  # on a read-only disk, files with only new times are read instead
            raise
    return index_copy.list_changed(places, copy, pathspecs)


def _is_recorded(record: ChangedFile | None, stamp: FileStamp | None) -> bool:
    """Return whether an earlier survey saw this modification of a file."""
    return record is not None and record.status == _MODIFIED and stamp is not None and record.stamp == stamp


def _list_staged(checkout: Checkout, sources: Sequence[SourceSettings]) -> dict[str, RawChange]:
    """Return the differences between HEAD and the index, by path."""
    places = checkout.places
    tree = checkout.commit or get_empty_tree(get_sample_name(places))
    if not checkout.is_countable:
        raw_changes.require_countable(places, tree)
    changes = raw_changes.list_staged(places, tree, attributes.list_relevant_names(sources))
    return {change.path: change for change in changes}


def _build_candidates(
    disk: Disk,
    entries: Iterable[IndexEntry],
    untracked_paths: Iterable[str],
    statuses: Mapping[str, str],
    staged: Mapping[str, RawChange],
) -> dict[str, Candidate | None]:
    """Return the candidates of one source by path, None for missing files."""
    candidates: dict[str, Candidate | None] = {}
    for entry in entries:
        path = entry.path
        status = statuses.get(path)
        if entry.absent or path in candidates:
            continue
        if entry.stage or status == _UNMERGED:
            candidate = _build_disk_candidate(disk, path, None, None)
            candidates[path] = candidate and candidate._replace(uncommitted="unmerged")
        elif status == _DELETED:
            candidates[path] = None
        elif status:
            candidates[path] = _build_disk_candidate(disk, path, staged.get(path), entry)
        else:
            candidates[path] = Candidate(path, entry.mode, entry.blob, _compare_with_head(staged.get(path)))
    for path in untracked_paths:
        candidates[path] = _build_disk_candidate(disk, path, staged.get(path), None)
    return candidates


def _build_disk_candidate(
    disk: Disk, path: str, staged: RawChange | None, entry: IndexEntry | None
) -> Candidate | None:
    """Return a candidate for a file that must be read, with the blob that it has in HEAD. Return
    None if the file does not exist.
    """
    state = disk.read_state(path)
    if state is None:
        return None
    mode = REGULAR[0] if state.is_regular else LINK if state.is_link else "other"
    blob = entry.blob if entry else ""
    if staged is not None:
        blob = "" if staged.old_mode == _NO_MODE else staged.old_blob
    return Candidate(path, mode, blob, "modified" if blob else "added", state.size, state.stamp)


def _compare_with_head(staged: RawChange | None) -> Uncommitted:
    """Return how a file that equals the index differs from HEAD."""
    if staged is None or staged.status == _DELETED or staged.old_blob == staged.blob:
        return ""
    return "added" if staged.old_mode == _NO_MODE else "modified"


def _select_reusable(
    recorded: Mapping[str, ChangedFile], seen: SeenState | None, storing: StoringRules
) -> dict[str, ChangedFile]:
    """Return the records whose blobs are still valid if the file's stamp is the same."""
    if seen is None or seen.storing != storing.digest:
        return {}
    return {
        path: file
        for path, file in recorded.items()
        if file.blob not in ("", _UNKNOWN)
        and path not in storing.attribute_blobs
        and file.stamp
        and not listings.may_have_changed(file.stamp, seen.started)
    }


def _add_blob(candidate: Candidate, file: HashedFile) -> Candidate:
    """Return a candidate with the blob on disk instead of HEAD's."""
    is_same = candidate.uncommitted == "modified" and file.blob == candidate.blob
    return candidate._replace(
        blob=file.blob, size=file.size, flaw=file.flaw, uncommitted="" if is_same else candidate.uncommitted
    )


def _read_sizes(
    places: Places, candidates: Iterable[Mapping[str, Candidate]], before: SourceListing | None
) -> dict[str, int]:
    """Return the sizes of the blobs of unchanged files, from the earlier listing or from git."""
    sizes = {hash_blob(b"", like=get_sample_name(places)): 0}  # no listing has empty files
    sizes |= {file.blob: file.size for files in before.files.values() for file in files} if before else {}
    blobs = dict.fromkeys(
        file.blob
        for files in candidates
        for file in files.values()
        if file.size is None and file.mode in REGULAR and file.blob not in sizes
    )
    return sizes | readonly.read_blob_sizes(places, blobs)


def _list_removed(
    checkout: Checkout,
    sources: Sequence[SourceSettings],
    entries: Iterable[Iterable[IndexEntry]],
    statuses: Mapping[str, str],
    staged: Mapping[str, RawChange],
) -> set[str]:
    """Return the files of HEAD that are missing on disk, or that git no longer tracks."""
    removed = set()
    is_any_missing = not {_DELETED, _UNMERGED}.isdisjoint(statuses.values())
    for entry in itertools.chain.from_iterable(entries) if is_any_missing else ():
        change = staged.get(entry.path)
        if entry.absent or entry.stage not in (0, _OURS):
            continue
        is_missing = statuses.get(entry.path) == _DELETED or (
            entry.stage and checkout.disk.read_state(entry.path) is None
        )
        old_mode = entry.mode if change is None or entry.stage else change.old_mode
        if is_missing and old_mode in REGULAR:
            removed.add(entry.path)
    if checkout.commit and any(change.status == _DELETED for change in staged.values()):
        for source in sources:
            specs = rules.build_pathspecs(source)
            deletions = raw_changes.list_staged(checkout.places, checkout.commit, specs, "--diff-filter=D")
            removed |= {deletion.path for deletion in deletions if deletion.old_mode in REGULAR}
    return removed


def _describe_changes(
    disk: Disk,
    statuses: Mapping[str, str],
    candidates: Iterable[Mapping[str, Candidate | None]],
    hashed: Mapping[str, HashedFile],
    storing: StoringRules,
) -> list[ChangedFile]:
    """Return the files with a status, with the stamps and blobs that this survey has read."""
    listed = set[str]()
    stamps: dict[str, FileStamp | None] = {}
    for files in candidates:
        listed.update(files)
        stamps |= {path: file.stamp for path, file in files.items() if file and file.stamp}
    stamps |= {path: file.stamp for path, file in hashed.items()}
    blobs = {path: file.blob or _UNKNOWN for path, file in hashed.items()} | dict(storing.attribute_blobs)
    return [
        ChangedFile(
            path=os.fsencode(path),
            status=status,
            listed=path in listed or _holds_attributes(path),
            stamp=stamps[path] if path in stamps else disk.read_stamp(path),
            blob=blobs.get(path, ""),
        )
        for path, status in statuses.items()
    ]


def _holds_attributes(path: str) -> bool:
    return path == attributes.FILE_NAME or path.endswith(f"/{attributes.FILE_NAME}")
