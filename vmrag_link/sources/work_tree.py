"""The files of the sources in the work tree: tracked files in their state on disk.

git runs next to the user's own commands: the index is read and neither refreshed nor locked. A copy
of the index (`git.raw_changes`) finds the differences, and changed files are hashed here once for
each change.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from vmrag_link.errors import GitBusy, refuses_writing
from vmrag_link.file_access import read_file_stamp
from vmrag_link.git import configuration, raw_changes, readonly
from vmrag_link.git.refs import read_head
from vmrag_link.paths import Places
from vmrag_link.settings import SourceSettings
from vmrag_link.sources import attributes, listings, rules
from vmrag_link.sources.disk import Disk
from vmrag_link.sources.listings import SeenState, SourceListing, compute_token
from vmrag_link.sources.survey import UNTRACKED, PreviousSurvey, Survey
from vmrag_link.sources.untracked import count_untracked_files, list_untracked_files

__all__ = ["count_untracked_files", "list_in_work_tree", "read_unchanged_token", "survey_work_tree"]

_FORMAT = 2
"""Version of the question. A record of another version is ignored."""

_ATTEMPTS = 4
_MOST_DOUBTFUL = 100
"""Maximum number of files that are read again because of their times, before everything is listed
again.
"""


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
    token = read_unchanged_token(places, sources, max_bytes=max_bytes, untracked=untracked, cache=cache)
    if token and (stored := listings.read_listing(cache)) and stored.token == token:
        return stored.listing
    return survey_work_tree(places, sources, max_bytes=max_bytes, untracked=untracked, cache=cache)


@readonly.share_deadline()
def survey_work_tree(
    places: Places, sources: Sequence[SourceSettings], *, max_bytes: int, untracked: bool, cache: Path
) -> SourceListing:
    """Return what `list_in_work_tree` returns, without comparing the last listing first. For a
    caller that knows of a change.
    """
    question = _build_question(sources, max_bytes, untracked=untracked)
    seen_before, listing_before = listings.read_seen(cache), listings.read_listing(cache)
    for _ in range(_ATTEMPTS):
        place = _find_place(places, cache, question)
        copy = _provide_index_copy(places, place)
        started = raw_changes.read_clock(cache.parent)
        with Disk(places.top) as disk:
            survey = Survey(
                places,
                sources,
                copy,
                place.commit,
                disk=disk,
                before=PreviousSurvey(seen_before, listing_before),
            )
            listing = survey.build_listing(max_bytes=max_bytes, untracked=untracked)
            if listing is None or _find_place(places, cache, question) != place:
                continue
            changed_files = survey.changed_files()
        seen = SeenState(
            question=question,
            place=place.name,
            storing=survey.storing,
            at=started,
            changed=changed_files,
            token=compute_token(listing),
        )
        try:
            listings.write_listing(cache, seen, listing)
        except OSError as error:
            if not refuses_writing(error):  # on a read-only disk, the next call lists the files again
                raise
        return listing
    raise GitBusy(
        "git keeps writing the index while the files of the sources are listed.", hint="run the command again"
    )


@readonly.share_deadline()
def read_unchanged_token(
    places: Places, sources: Sequence[SourceSettings], *, max_bytes: int, untracked: bool, cache: Path
) -> str | None:
    """Return the token of `listings.compute_token` for the last listing, if `list_in_work_tree`
    would list the same. None if something may have changed.

    Starts one git process, with `untracked` two, and reads the state of each file that differs from
    the index. Raises the errors of `list_in_work_tree`.
    """
    seen = listings.read_seen(cache)
    question = _build_question(sources, max_bytes, untracked=untracked)
    if seen is None or seen.question != question:
        return None
    place = _find_place(places, cache, question)
    stamp = read_file_stamp(place.copy)
    if seen.place != place.name:
        return None
    now = raw_changes.read_clock(cache.parent)
    statuses = raw_changes.list_changed(places, place.copy, attributes.list_relevant_names(sources))
    searched = [source for source in sources if rules.searches_untracked(source, untracked=untracked)]
    if statuses is not None and searched:
        statuses |= {path: UNTRACKED for named in list_untracked_files(places, searched) for path in named}
    if statuses != {os.fsdecode(changed.path): changed.status for changed in seen.changed}:
        return None
    with Disk(places.top) as disk:
        states = [disk.read_state(os.fsdecode(changed.path)) for changed in seen.changed]
        pairs = [(changed, state) for changed, state in zip(seen.changed, states, strict=True) if changed.listed]
        if any((state and state.stamp) != pair.stamp for pair, state in pairs):
            return None
        doubtful = [pair for pair, state in pairs if state and listings.may_have_changed(state.stamp, seen.at)]
        survey = Survey(places, sources, place.copy, place.commit, disk=disk, before=PreviousSurvey(seen=seen))
        if len(doubtful) > _MOST_DOUBTFUL or not survey.are_unchanged(doubtful, max_bytes):
            return None
    raw_changes.settle_copy(place.copy, stamp, now, max((state.changed_at for state in states if state), default=0))
    return seen.token


class _IndexPlace(NamedTuple):
    """State of the index."""

    name: str
    """Text that identifies index, HEAD and configuration together."""
    copy: Path
    """A copy of this index, for this configuration and question, because `raw_changes.settle_copy`
    considers no other files.
    """
    commit: str | None


def _provide_index_copy(places: Places, place: _IndexPlace) -> Path | None:
    """Return a copy of the git index, or None if the disk is not writable."""
    if not place.copy.exists():
        try:
            raw_changes.copy_index(places, place.copy)
        except OSError as error:
            if not refuses_writing(error):
                raise
            return None
    return place.copy


def _find_place(places: Places, cache: Path, question: str) -> _IndexPlace:
    settings = [
        entry
        for entry in configuration.list_entries(places)
        if entry.key.startswith(("core.", "filter.", "extensions."))
    ]
    index = _compute_digest(question, raw_changes.read_index_state(places), settings)
    commit = places.borrowed.commit if places.borrowed and places.borrowed.index_file else read_head(places).commit
    copy = cache.absolute().with_name(f"{cache.name}@{index[:24]}")
    return _IndexPlace(_compute_digest(index, commit), copy, commit)


def _build_question(sources: Sequence[SourceSettings], max_bytes: int, *, untracked: bool) -> str:
    return _compute_digest(_FORMAT, list(sources), max_bytes, untracked)


def _compute_digest(*values: object) -> str:
    return hashlib.sha256(msgspec.msgpack.encode(values, enc_hook=repr)).hexdigest()
