"""One survey of the work tree: the state of the sources' files in the index, HEAD and on disk."""

from __future__ import annotations

import functools
import hashlib
import itertools
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from vmrag_link.conversion.limits import ContentUnreadable
from vmrag_link.errors import refuses_writing
from vmrag_link.git import configuration, raw_changes, readonly
from vmrag_link.git.objects import hash_blob
from vmrag_link.git.raw_changes import LINK, REGULAR, IndexEntry, RawChange
from vmrag_link.paths import Places
from vmrag_link.settings import SourceSettings
from vmrag_link.sources import attributes, listings, rules
from vmrag_link.sources.attributes import TreeAttributes
from vmrag_link.sources.disk import Disk, FileState, convert_to_stored
from vmrag_link.sources.listings import ChangedFile, SeenState, SourceListing, StoredListing
from vmrag_link.sources.selection import Candidate, Uncommitted, get_empty_tree, read_attribute_files, select_files
from vmrag_link.sources.untracked import count_untracked_files, list_untracked_files

UNTRACKED = "?"
"""Status of a file that git does not track, in addition to git's own statuses."""

_DELETED, _MODIFIED, _UNMERGED = "D", "M", "U"
_OURS = 2  # a stage
_UNKNOWN = "?"
"""Stands for the blob of a file that could not be read or converted."""

_NO_MODE = "000000"
_SOME_NAME = {"sha256": "0" * 64}


class PreviousSurvey(NamedTuple):
    """Results of an earlier survey."""

    seen: SeenState | None = None
    stored: StoredListing | None = None


class Survey:
    """Survey of files on `disk`. Raises `GitFailed`, `LimitExceeded` and `HistoryMissing`.

    `copy`: copy of the index for `raw_changes`, if it exists. `commit`: HEAD's, None on an unborn
    branch. After `build_listing`, `changed_files` and `storing` describe what it read. Call
    `are_unchanged` instead, on a new survey.
    """

    def __init__(
        self,
        places: Places,
        sources: Sequence[SourceSettings],
        copy: Path | None,
        commit: str | None,
        *,
        disk: Disk,
        before: PreviousSurvey = PreviousSurvey(),  # noqa: B008  immutable
    ) -> None:
        self._places, self._sources, self._copy, self._commit, self._disk = places, sources, copy, commit, disk
        self._before = before
        settings = dict(configuration.list_entries(places))
        self._autocrlf = settings.get("core.autocrlf", "")
        self._like = commit or _SOME_NAME.get(settings.get("extensions.objectformat", ""), "0" * 40)
        self._changes_before: dict[str, ChangedFile] = {}
        seen = before.seen
        self._statuses = {os.fsdecode(file.path): file.status for file in seen.changed} if seen else {}
        self._read: dict[str, tuple[FileState | None, Candidate]] = {}
        self._listed: set[str] = set()
        self._attribute_blobs: dict[str, str] = {}
        self._storing: TreeAttributes | None = None
        self.storing = ""

    def build_listing(self, *, max_bytes: int, untracked: bool) -> SourceListing | None:
        """Return the listing, or None if the caller must survey again."""
        seen = self._before.seen
        self._changes_before = {os.fsdecode(file.path): file for file in seen.changed} if seen else {}
        if (statuses := self._compare_with_index()) is None:
            return None
        self._statuses = statuses
        staged = self._list_staged()
        entries = [
            list(raw_changes.list_entries(self._places, rules.build_pathspecs(source))) for source in self._sources
        ]
        candidates = [self._build_candidates(entry, staged) for entry in entries]
        tree_attributes = self._read_attributes()
        searched = [source for source in self._sources if rules.searches_untracked(source, untracked=untracked)]
        if searched:
            others = dict(zip(searched, list_untracked_files(self._places, searched), strict=True))
            for source, named in zip(self._sources, candidates, strict=True):
                named |= {
                    path: self._build_disk_candidate(path, staged.get(path), None) for path in others.get(source, ())
                }
            self._statuses |= dict.fromkeys(set().union(*others.values()), UNTRACKED)
        shown = [
            {path: candidate for path, candidate in named.items() if candidate is not None} for named in candidates
        ]
        sizes = self._read_sizes(
            candidate.blob
            for named in shown
            for candidate in named.values()
            if candidate.size is None and candidate.mode in REGULAR
        )
        self._listed = {path for named in candidates for path in named}
        selected = select_files(
            self._sources,
            shown,
            tree_attributes,
            sizes,
            max_bytes=max_bytes,
            read=lambda candidate: self._hash_candidate(candidate, max_bytes),
        )
        removed = self._list_removed(entries, staged).difference(*shown)
        unsearched = [source for source in self._sources if source not in searched]
        listing = selected.build_listing(
            removed=removed, untracked=count_untracked_files(self._places, unsearched) if unsearched else 0
        )
        if not any(source.write for source in self._sources):
            return listing
        from vmrag_link.sources import documents, notes

        before = self._before.stored.listing if self._before.stored else None
        return notes.identify_notes(
            self._sources, listing, functools.partial(documents.read_texts_in_work_tree, self._places), before
        )

    def changed_files(self) -> list[ChangedFile]:
        """Return the files that the next survey compares."""
        changed = []
        for path, status in self._statuses.items():
            listed = path in self._listed or _holds_attributes(path)
            state, candidate = self._read.get(path) or (self._disk.read_state(path), None)
            blob = self._attribute_blobs.get(path) or (
                candidate.blob or (_UNKNOWN if candidate.flaw else "") if candidate else ""
            )
            changed.append(ChangedFile(os.fsencode(path), status, listed, state.stamp if state else None, blob))
        return changed

    def are_unchanged(self, files: Sequence[ChangedFile], max_bytes: int) -> bool:
        """Return whether these files still have the recorded blobs. Files without a recorded blob
        are skipped.
        """
        read = {os.fsdecode(file.path): file.blob for file in files if file.blob}
        if not read:
            return True
        self._read_attributes()
        return all(
            (self._attribute_blobs.get(path) or self._read_file(path, max_bytes)[1]) == blob
            for path, blob in read.items()
        )

    def _compare_with_index(self) -> dict[str, str] | None:
        """Return the files that differ from the index, or None if the copy is gone or damaged.

        Files with only new times are left out if the copy can be written, because it learns the
        times.
        """
        names = attributes.list_relevant_names(self._sources)
        statuses = raw_changes.list_changed(self._places, self._copy, names)
        if statuses is None or not any(
            self._is_new_change(path) for path, status in statuses.items() if status == _MODIFIED
        ):
            return statuses
        if self._copy is None:
            return statuses
        try:
            raw_changes.refresh_copy(self._places, self._copy)
        except OSError as error:
            if not refuses_writing(error):  # on a read-only disk, files with only new times are read instead
                raise
        return raw_changes.list_changed(self._places, self._copy, names)

    def _is_new_change(self, path: str) -> bool:
        recorded, state = self._changes_before.get(path), self._disk.read_state(path)
        return recorded is None or recorded.status != _MODIFIED or state is None or recorded.stamp != state.stamp

    def _list_staged(self) -> dict[str, RawChange]:
        """Return the differences between HEAD and the index, by path."""
        tree = self._commit or get_empty_tree(self._like)
        raw_changes.require_countable(self._places, tree)
        return {
            change.path: change
            for change in raw_changes.list_staged(self._places, tree, attributes.list_relevant_names(self._sources))
        }

    def _build_candidates(
        self, entries: Iterable[IndexEntry], staged: Mapping[str, RawChange]
    ) -> dict[str, Candidate | None]:
        """Return the candidates by path, None for missing files."""
        candidates: dict[str, Candidate | None] = {}
        for entry in entries:
            path = entry.path
            status = self._statuses.get(path)
            if entry.absent or path in candidates:
                continue
            if entry.stage or status == _UNMERGED:
                candidate = self._build_disk_candidate(path, None, None)
                candidates[path] = candidate and candidate._replace(uncommitted="unmerged")
            elif status == _DELETED:
                candidates[path] = None
            elif status:
                candidates[path] = self._build_disk_candidate(path, staged.get(path), entry)
            else:
                candidates[path] = Candidate(path, entry.mode, entry.blob, _compare_with_head(staged.get(path)))
        return candidates

    def _build_disk_candidate(self, path: str, staged: RawChange | None, entry: IndexEntry | None) -> Candidate | None:
        """Return a candidate for a file that must be read, or None if it does not exist."""
        state = self._disk.read_state(path)
        if state is None:
            return None
        mode = REGULAR[0] if state.is_regular else LINK if state.is_link else "other"
        uncommitted: Uncommitted = "added" if staged is None and entry is None else "modified"
        if staged is not None and staged.old_mode == _NO_MODE:
            uncommitted = "added"
        # HEAD's blob, until `_hash_candidate` computes the file's blob.
        in_head = "" if uncommitted == "added" else staged.old_blob if staged else entry.blob if entry else ""
        self._read[path] = (state, Candidate(path, mode, ""))
        return Candidate(path, mode, in_head, uncommitted, state.size)

    def _hash_candidate(self, candidate: Candidate, max_bytes: int) -> Candidate:
        path = candidate.path
        if path not in self._read:  # not changed
            return candidate
        state, finished = self._read[path]
        if not finished.blob and not finished.flaw:
            state, blob, size, flaw = self._find_blob(path, state, max_bytes)
            finished = Candidate(path, candidate.mode, blob, size=size, flaw=flaw)
            self._read[path] = (state, finished)
        same = candidate.uncommitted == "modified" and finished.blob == candidate.blob
        return candidate._replace(
            blob=finished.blob,
            size=finished.size,
            flaw=finished.flaw,
            uncommitted="" if same else candidate.uncommitted,
        )

    def _find_blob(self, path: str, state: FileState | None, max_bytes: int) -> tuple[FileState | None, str, int, str]:
        """Return the file's state, blob, size and flaw. The recorded blob is used if the file's
        times prove that it is unchanged.
        """
        recorded, seen = self._changes_before.get(path), self._before.seen
        if (
            recorded
            and recorded.blob not in ("", _UNKNOWN)
            and path not in self._attribute_blobs
            and seen
            and state
            and seen.storing == self.storing
            and recorded.stamp == state.stamp
            and not listings.may_have_changed(state.stamp, seen.at)
        ):
            return state, recorded.blob, state.size, ""
        return self._read_file(path, max_bytes)

    def _read_file(self, path: str, max_bytes: int) -> tuple[FileState | None, str, int, str]:
        """Read the file now, and return its state, blob, size and flaw."""
        try:
            data, state = self._disk.read_file(path, rules.get_byte_limit(path, max_bytes))
            stored = convert_to_stored(data, self._storing.get_values(path) if self._storing else {}, self._autocrlf)
        except ContentUnreadable as error:
            return self._disk.read_state(path), "", 0, str(error)
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            return self._disk.read_state(path), "", 0, f"cannot be read: {reason}"
        return state, hash_blob(stored, like=self._like), len(stored), ""

    def _read_attributes(self) -> TreeAttributes:
        """Return the attributes of the tracked files, from the work tree, or from the index if an
        attribute file is missing there.
        """
        contents: dict[str, bytes] = {}
        blobs: dict[str, str] = {}
        for entry in raw_changes.list_entries(self._places, (attributes.PATHSPEC,)):
            if entry.mode not in REGULAR:
                continue
            is_changed = self._statuses.get(entry.path, _DELETED) != _DELETED
            if is_changed:
                contents[entry.path] = self._read_attribute_file(entry.path)
                self._attribute_blobs[entry.path] = hash_blob(contents[entry.path], like=self._like)
            else:
                blobs[entry.path] = entry.blob
        attributes.require_few_bytes(sum(map(len, contents.values())))
        contents |= read_attribute_files(self._places, blobs)
        self._storing = TreeAttributes(contents, attributes.FOR_STORING)
        state = msgspec.msgpack.encode(
            [self._autocrlf, [(os.fsencode(path), content) for path, content in contents.items()]]
        )
        self.storing = hashlib.sha256(state).hexdigest()
        return TreeAttributes(contents, attributes.FOR_LISTING)

    def _read_attribute_file(self, path: str) -> bytes:
        """Return an attribute file on disk. Like git, treat an unreadable file as empty."""
        try:
            return self._disk.read_file(path, attributes.MOST_BYTES)[0]
        except OSError:
            return b""

    def _read_sizes(self, blobs: Iterable[str]) -> dict[str, int]:
        stored = self._before.stored
        recorded = {file.blob: file.size for files in stored.listing.files.values() for file in files} if stored else {}
        names = dict.fromkeys(blobs)
        return recorded | readonly.read_blob_sizes(self._places, [blob for blob in names if blob not in recorded])

    def _list_removed(self, entries: Iterable[Iterable[IndexEntry]], staged: Mapping[str, RawChange]) -> set[str]:
        """Return the files of HEAD that are missing, or that git no longer tracks."""
        removed = set()
        is_any_missing = not {_DELETED, _UNMERGED}.isdisjoint(self._statuses.values())
        for entry in itertools.chain.from_iterable(entries) if is_any_missing else ():
            change = staged.get(entry.path)
            if entry.absent or entry.stage not in (0, _OURS):
                continue
            is_missing = self._statuses.get(entry.path) == _DELETED or (
                entry.stage and self._disk.read_state(entry.path) is None
            )
            old_mode = entry.mode if change is None or entry.stage else change.old_mode
            if is_missing and old_mode in REGULAR:
                removed.add(entry.path)
        if self._commit and any(change.status == _DELETED for change in staged.values()):
            for source in self._sources:
                specs = rules.build_pathspecs(source)
                deletions = raw_changes.list_staged(self._places, self._commit, specs, "--diff-filter=D")
                removed |= {deletion.path for deletion in deletions if deletion.old_mode in REGULAR}
        return removed


def _holds_attributes(path: str) -> bool:
    return path == attributes.FILE_NAME or path.endswith(f"/{attributes.FILE_NAME}")


def _compare_with_head(staged: RawChange | None) -> Uncommitted:
    """Return how a file that equals the index differs from HEAD."""
    if staged is None or staged.status == _DELETED or staged.old_blob == staged.blob:
        return ""
    return "added" if staged.old_mode == _NO_MODE else "modified"
