"""One look at the work tree: what the index, HEAD and the disk say of the files of the sources."""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from vmrag_link.conversion.limits import ContentUnreadable
from vmrag_link.errors import refuses_writing
from vmrag_link.git import beside, configuration, raw_changes
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
"""The status of a file that git does not know, beside git's own."""

_DELETED, _MODIFIED, _UNMERGED = "D", "M", "U"
_OURS = 2  # a stage
_UNKNOWN = "?"
"""In place of the blob of a file that could not be read as it has to be."""

_NO_MODE = "000000"
_SOME_NAME = {"sha256": "0" * 64}


class PreviousSurvey(NamedTuple):
    """`at`: when this look began, by the disk's clock. The rest: what an earlier one saw."""

    at: int = 0
    seen: SeenState | None = None
    stored: StoredListing | None = None


class Survey:
    """Files are looked at by `disk`. Raises as `beside.look`, and `HistoryMissing`.

    `copy`: of the index, for `raw_changes`, if there is one. `commit`: HEAD's, None before the
    first one.
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
        self._known: dict[str, ChangedFile] = {}
        seen = before.seen
        self._statuses = {os.fsdecode(each.path): each.status for each in seen.changed} if seen else {}
        self._read: dict[str, tuple[FileState | None, Candidate]] = {}
        self._listed: set[str] = set()
        self._stated: dict[str, str] = {}
        self._storing: TreeAttributes | None = None
        self.storing = ""

    def build_listing(self, *, max_bytes: int, untracked: bool) -> SourceListing | None:
        """None: look again."""
        seen = self._before.seen
        self._known = {os.fsdecode(each.path): each for each in seen.changed} if seen else {}
        if (statuses := self._look()) is None:
            return None
        self._statuses = statuses
        staged = self._staged()
        entries = [
            list(raw_changes.list_entries(self._places, rules.build_pathspecs(source))) for source in self._sources
        ]
        found = [self._candidates(entry, staged) for entry in entries]
        stated = self._attributes()
        searched = [source for source in self._sources if rules.searches_untracked(source, untracked=untracked)]
        if searched:
            others = dict(zip(searched, list_untracked_files(self._places, searched), strict=True))
            for source, named in zip(self._sources, found, strict=True):
                named |= {path: self._on_disk(path, staged.get(path), None) for path in others.get(source, ())}
            self._statuses |= dict.fromkeys(set().union(*others.values()), UNTRACKED)
        shown = [{path: each for path, each in named.items() if each is not None} for named in found]
        sizes = self._sizes(
            each.blob for named in shown for each in named.values() if each.size is None and each.mode in REGULAR
        )
        self._listed = {path for named in found for path in named}
        selected = select_files(
            self._sources, shown, stated, sizes, max_bytes=max_bytes, read=lambda each: self._hashed(each, max_bytes)
        )
        every = {path for named in shown for path in named}
        removed = self._removed(entries, staged) - every
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
        """What the next look compares."""
        found = []
        for path, status in self._statuses.items():
            listed = path in self._listed or _holds_attributes(path)
            state, candidate = self._read.get(path) or (self._disk.read_state(path), None)
            blob = self._stated.get(path) or (
                candidate.blob or (_UNKNOWN if candidate.flaw else "") if candidate else ""
            )
            found.append(ChangedFile(os.fsencode(path), status, listed, state.stamp if state else None, blob))
        return found

    def are_unchanged(self, files: Sequence[ChangedFile], max_bytes: int) -> bool:
        """Whether these files have the blobs that were seen. What was not read is skipped."""
        read = {os.fsdecode(file.path): file.blob for file in files if file.blob}
        if not read:
            return True
        self._attributes()
        return all(
            (self._stated.get(path) or self._read_file(path, max_bytes)[1]) == blob for path, blob in read.items()
        )

    def _look(self) -> dict[str, str] | None:
        """Which files differ from the index. Times alone make no difference: the copy learns."""
        wanted = attributes.list_relevant_names(self._sources)
        statuses = raw_changes.list_changed(self._places, self._copy, wanted)
        if statuses is None or not any(self._is_news(path) for path, status in statuses.items() if status == _MODIFIED):
            return statuses
        if self._copy is None:
            return statuses
        try:
            raw_changes.refresh_copy(self._places, self._copy)
        except OSError as error:
            if not refuses_writing(error):  # else files with other times alone are read
                raise
        return raw_changes.list_changed(self._places, self._copy, wanted)

    def _is_news(self, path: str) -> bool:
        known, state = self._known.get(path), self._disk.read_state(path)
        return known is None or known.status != _MODIFIED or state is None or known.stamp != state.stamp

    def _staged(self) -> dict[str, RawChange]:
        """How the index differs from HEAD."""
        tree = self._commit or get_empty_tree(self._like)
        raw_changes.require_countable(self._places, tree)
        return {
            each.path: each
            for each in raw_changes.list_staged(self._places, tree, attributes.list_relevant_names(self._sources))
        }

    def _candidates(
        self, entries: Iterable[IndexEntry], staged: Mapping[str, RawChange]
    ) -> dict[str, Candidate | None]:
        """None: not there."""
        found: dict[str, Candidate | None] = {}
        for entry in entries:
            path = entry.path
            status = self._statuses.get(path)
            if entry.absent or path in found:
                continue
            if entry.stage or status == _UNMERGED:
                each = self._on_disk(path, None, None)
                found[path] = each and each._replace(uncommitted="unmerged")
            elif status == _DELETED:
                found[path] = None
            elif status:
                found[path] = self._on_disk(path, staged.get(path), entry)
            else:
                found[path] = Candidate(path, entry.mode, entry.blob, _compared(staged.get(path)))
        return found

    def _on_disk(self, path: str, staged: RawChange | None, entry: IndexEntry | None) -> Candidate | None:
        """A file that is to be read; None if it is not there."""
        state = self._disk.read_state(path)
        if state is None:
            return None
        mode = REGULAR[0] if state.is_regular else LINK if state.is_link else "other"
        uncommitted: Uncommitted = "added" if staged is None and entry is None else "modified"
        if staged is not None and staged.old_mode == _NO_MODE:
            uncommitted = "added"
        # What HEAD has, until `_hashed` knows what the file has.
        in_head = "" if uncommitted == "added" else staged.old_blob if staged else entry.blob if entry else ""
        self._read[path] = (state, Candidate(path, mode, ""))
        return Candidate(path, mode, in_head, uncommitted, state.size)

    def _hashed(self, candidate: Candidate, max_bytes: int) -> Candidate:
        path = candidate.path
        if path not in self._read:  # not changed
            return candidate
        state, done = self._read[path]
        if not done.blob and not done.flaw:
            state, blob, size, flaw = self._blob_of(path, state, max_bytes)
            done = Candidate(path, candidate.mode, blob, size=size, flaw=flaw)
            self._read[path] = (state, done)
        same = candidate.uncommitted == "modified" and done.blob == candidate.blob
        return candidate._replace(
            blob=done.blob, size=done.size, flaw=done.flaw, uncommitted="" if same else candidate.uncommitted
        )

    def _blob_of(self, path: str, state: FileState | None, max_bytes: int) -> tuple[FileState | None, str, int, str]:
        """What is known of it from before counts if its times say so."""
        known, seen = self._known.get(path), self._before.seen
        if (
            known
            and known.blob not in ("", _UNKNOWN)
            and path not in self._stated
            and seen
            and state
            and seen.storing == self.storing
            and known.stamp == state.stamp
            and not listings.may_have_changed(state.stamp, seen.at)
        ):
            return state, known.blob, state.size, ""
        return self._read_file(path, max_bytes)

    def _read_file(self, path: str, max_bytes: int) -> tuple[FileState | None, str, int, str]:
        """The file as it is now: state, blob, size, and why there is none."""
        try:
            data, state = self._disk.read_file(path, rules.get_byte_limit(path, max_bytes))
            stored = convert_to_stored(data, self._storing.get_values(path) if self._storing else {}, self._autocrlf)
        except ContentUnreadable as error:
            return self._disk.read_state(path), "", 0, str(error)
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            return self._disk.read_state(path), "", 0, f"cannot be read: {reason}"
        return state, hash_blob(stored, like=self._like), len(stored), ""

    def _attributes(self) -> TreeAttributes:
        """The attributes of the files that git tracks, as they stand; of one that is not there, the
        index's.
        """
        contents: dict[str, bytes] = {}
        blobs: dict[str, str] = {}
        for entry in raw_changes.list_entries(self._places, (attributes.PATHSPEC,)):
            if entry.mode not in REGULAR:
                continue
            changed = self._statuses.get(entry.path, _DELETED) != _DELETED
            if changed:
                contents[entry.path] = self._stating(entry.path)
                self._stated[entry.path] = hash_blob(contents[entry.path], like=self._like)
            else:
                blobs[entry.path] = entry.blob
        attributes.require_few_bytes(sum(map(len, contents.values())))
        contents |= read_attribute_files(self._places, blobs)
        self._storing = TreeAttributes(contents, attributes.FOR_STORING)
        said = msgspec.msgpack.encode([self._autocrlf, [(os.fsencode(path), each) for path, each in contents.items()]])
        self.storing = hashlib.sha256(said).hexdigest()
        return TreeAttributes(contents, attributes.FOR_LISTING)

    def _stating(self, path: str) -> bytes:
        """An attribute file on the disk; git, too, takes one that it cannot read for empty."""
        try:
            return self._disk.read_file(path, attributes.MOST_BYTES)[0]
        except OSError:
            return b""

    def _sizes(self, blobs: Iterable[str]) -> dict[str, int]:
        stored = self._before.stored
        known = {file.blob: file.size for files in stored.listing.files.values() for file in files} if stored else {}
        asked = dict.fromkeys(blobs)
        return known | beside.read_blob_sizes(self._places, [blob for blob in asked if blob not in known])

    def _removed(self, entries: Iterable[Iterable[IndexEntry]], staged: Mapping[str, RawChange]) -> set[str]:
        """The files of HEAD that are not there, or that git does not track any more."""
        found = set()
        absent = {_DELETED, _UNMERGED} & set(self._statuses.values())
        for entry in (each for some in entries for each in some) if absent else ():
            change = staged.get(entry.path)
            if entry.absent or entry.stage not in (0, _OURS):
                continue
            gone = self._statuses.get(entry.path) == _DELETED or (
                entry.stage and self._disk.read_state(entry.path) is None
            )
            was = entry.mode if change is None or entry.stage else change.old_mode
            if gone and was in REGULAR:
                found.add(entry.path)
        if self._commit and any(each.status == _DELETED for each in staged.values()):
            for source in self._sources:
                specs = rules.build_pathspecs(source)
                gone_files = raw_changes.list_staged(self._places, self._commit, specs, "--diff-filter=D")
                found |= {gone_file.path for gone_file in gone_files if gone_file.old_mode in REGULAR}
        return found


def _holds_attributes(path: str) -> bool:
    return path == attributes.FILE_NAME or path.endswith(f"/{attributes.FILE_NAME}")


def _compared(staged: RawChange | None) -> Uncommitted:
    """Of a file that is as the index has it."""
    if staged is None or staged.status == _DELETED or staged.old_blob == staged.blob:
        return ""
    return "added" if staged.old_mode == _NO_MODE else "modified"
