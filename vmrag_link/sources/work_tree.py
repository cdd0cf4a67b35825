"""Which files the sources have in the work tree: tracked ones, as they stand on the disk.

git is asked beside the person's own commands: the index is read and neither refreshed nor locked.
What differs from it is found by a copy (`git.raw_changes`), and hashed here once for each change.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from vmrag_link.errors import GitBusy, refuses_writing
from vmrag_link.git import beside, configuration, raw_changes
from vmrag_link.git.refs import read_head
from vmrag_link.paths import Places, read_file_stamp
from vmrag_link.settings import SourceSettings
from vmrag_link.sources import attributes, listings, rules
from vmrag_link.sources.disk import Disk
from vmrag_link.sources.listings import SeenState, SourceListing, compute_token
from vmrag_link.sources.survey import UNTRACKED, PreviousSurvey, Survey
from vmrag_link.sources.untracked import count_untracked_files, list_untracked_files

__all__ = ["count_untracked_files", "list_in_work_tree", "read_unchanged_token"]

_FORMAT = 2
"""Of the question: what was remembered by another version of these rules answers nothing."""

_ATTEMPTS = 4
_MOST_DOUBTFUL = 100
"""Files that are read again because of their times, before all is listed anew."""


@beside.share_deadline()
def list_in_work_tree(
    places: Places, sources: Sequence[SourceSettings], *, max_bytes: int, untracked: bool, cache: Path
) -> SourceListing:
    """`untracked`: files that git does not track, and does not ignore, are shown, too.

    `cache`: a file of ours for this work tree; files whose names begin with its name are ours, too.
    `listing.untracked` is of the last time that anything else had changed: `untracked_count` asks
    anew. Raises `LimitExceeded`, `HistoryMissing` where HEAD's tree is not here, `GitFailed`, and
    `GitBusy` while git goes on writing the index.
    """
    token = read_unchanged_token(places, sources, max_bytes=max_bytes, untracked=untracked, cache=cache)
    if token and (stored := listings.read_listing(cache)) and stored.token == token:
        return stored.listing
    question = _question(sources, max_bytes, untracked=untracked)
    known, before = listings.read_seen(cache), listings.read_listing(cache)
    for _ in range(_ATTEMPTS):
        where = _where(places, cache, question)
        copy = _index_copy(places, where)
        at = raw_changes.read_clock(cache.parent)
        with Disk(places.top) as disk:
            survey = Survey(places, sources, copy, where.commit, disk=disk, before=PreviousSurvey(at, known, before))
            listing = survey.build_listing(max_bytes=max_bytes, untracked=untracked)
            if listing is None or _where(places, cache, question) != where:
                continue
            changed = survey.changed_files()
        seen = SeenState(question, where.name, survey.storing, at, changed, compute_token(listing))
        try:
            listings.write_listing(cache, seen, listing)
        except OSError as error:
            if not refuses_writing(error):  # else the next call looks again
                raise
        return listing
    raise GitBusy("git goes on writing the index while the files of the sources are listed.", hint="Call again.")


@beside.share_deadline()
def read_unchanged_token(
    places: Places, sources: Sequence[SourceSettings], *, max_bytes: int, untracked: bool, cache: Path
) -> str | None:
    """The token (`listings.token_of`) of what `in_work_tree` listed last, if it would list that
    again.

    One git process, and a look at each file that differs from the index; with `untracked` another
    one. None: something may have changed. Raises as `in_work_tree`.
    """
    seen = listings.read_seen(cache)
    question = _question(sources, max_bytes, untracked=untracked)
    if seen is None or seen.question != question:
        return None
    where = _where(places, cache, question)
    stamp = read_file_stamp(where.copy)
    if seen.place != where.name:
        return None
    now = raw_changes.read_clock(cache.parent)
    statuses = raw_changes.list_changed(places, where.copy, attributes.list_relevant_names(sources))
    searched = [source for source in sources if rules.searches_untracked(source, untracked=untracked)]
    if statuses is not None and searched:
        statuses |= {path: UNTRACKED for named in list_untracked_files(places, searched) for path in named}
    if statuses != {os.fsdecode(each.path): each.status for each in seen.changed}:
        return None
    with Disk(places.top) as disk:
        states = [disk.read_state(os.fsdecode(each.path)) for each in seen.changed]
        pairs = [(each, state) for each, state in zip(seen.changed, states, strict=True) if each.listed]
        if any((state and state.stamp) != pair.stamp for pair, state in pairs):
            return None
        doubtful = [pair for pair, state in pairs if state and listings.may_have_changed(state.stamp, seen.at)]
        survey = Survey(places, sources, where.copy, where.commit, disk=disk, before=PreviousSurvey(seen=seen))
        if len(doubtful) > _MOST_DOUBTFUL or not survey.are_unchanged(doubtful, max_bytes):
            return None
    raw_changes.settle_copy(where.copy, stamp, now, max((state.changed_at for state in states if state), default=0))
    return seen.token


class _Where(NamedTuple):
    """`name`: of index, HEAD and configuration together. `copy`: of this index, for this
    configuration and question, because `raw_changes.settle` knows of no other files.
    """

    name: str
    copy: Path
    commit: str | None


def _index_copy(places: Places, where: _Where) -> Path | None:
    """Return a copy of the git index, or None if the disk takes no file."""
    if not where.copy.exists():
        try:
            raw_changes.copy_index(places, where.copy)
        except OSError as error:
            if not refuses_writing(error):
                raise
            return None
    return where.copy


def _where(places: Places, cache: Path, question: str) -> _Where:
    settings = [
        entry
        for entry in configuration.list_entries(places)
        if entry.key.startswith(("core.", "filter.", "extensions."))
    ]
    index = _digest(question, raw_changes.read_index_state(places), settings)
    commit = places.borrowed.commit if places.borrowed and places.borrowed.index_file else read_head(places).commit
    copy = cache.absolute().with_name(f"{cache.name}@{index[:24]}")
    return _Where(_digest(index, commit), copy, commit)


def _question(sources: Sequence[SourceSettings], max_bytes: int, *, untracked: bool) -> str:
    return _digest(_FORMAT, list(sources), max_bytes, untracked)


def _digest(*values: object) -> str:
    return hashlib.sha256(msgspec.msgpack.encode(values, enc_hook=repr)).hexdigest()
