"""The files of the sources in a repository and in its submodules, by their paths from the top of
the repository.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from vmrag_link import terminal_text
from vmrag_link.errors import GitFailed, GitReferenceMissing, HistoryMissing
from vmrag_link.git import raw_changes, readonly, submodules
from vmrag_link.git.raw_changes import MOST_FILES
from vmrag_link.git.refs import read_head
from vmrag_link.git.submodules import Submodule
from vmrag_link.paths import Places
from vmrag_link.settings import SourceSettings
from vmrag_link.sources import rules, selection, work_tree
from vmrag_link.sources.listings import LeftOutFile, SourceListing


@readonly.share_deadline()
def find_source_submodules(places: Places, sources: Sequence[SourceSettings], commit: str | None) -> list[Submodule]:
    """Return the submodules in which a source may have files, at a commit or, without one, in the
    work tree.

    Raises `GitFailed`, `LimitExceeded`, `GitReferenceMissing` and `HistoryMissing`.
    """

    def is_wanted(path: str) -> bool:
        return bool(rules.select_sources_below(sources, path))

    if commit is None:
        return submodules.find_submodules(places, read_head(places).commit, of_work_tree=True, is_wanted=is_wanted)
    with selection.readable_tree(places, commit):
        return submodules.find_submodules(places, commit, of_work_tree=False, is_wanted=is_wanted)


@readonly.share_deadline()
def list_paths(nested: Iterable[Submodule], *, of_work_tree: bool) -> list[str]:
    """Return the paths of all files of submodules. Raises `GitFailed` and `LimitExceeded`."""
    paths = []
    for submodule in nested:
        if submodule.places is None:
            continue
        if of_work_tree:
            names = [entry.path for entry in raw_changes.list_entries(submodule.places, ())]
        else:
            names = [*raw_changes.list_blobs(submodule.places, submodule.commit or "")]
        paths += [f"{submodule.path}/{name}" for name in names]
    return paths


@readonly.share_deadline()
def list_in_work_tree(
    places: Places, sources: Sequence[SourceSettings], *, max_bytes: int, untracked: bool, cache: Path
) -> SourceListing:
    """List files like `work_tree.list_in_work_tree`, including those of submodules that are checked
    out.
    """
    listing = work_tree.list_in_work_tree(places, sources, max_bytes=max_bytes, untracked=untracked, cache=cache)
    parts: dict[str, SourceListing | None] = {}
    for submodule in find_source_submodules(places, sources, None):
        below = rules.select_sources_below(sources, submodule.path)
        digest = hashlib.sha256(os.fsencode(submodule.path)).hexdigest()[:16]
        own_cache = cache.with_name(f"{cache.name}-{digest}")
        try:
            parts[submodule.path] = submodule.places and work_tree.list_in_work_tree(
                submodule.places, below, max_bytes=max_bytes, untracked=untracked, cache=own_cache
            )
        except (GitFailed, HistoryMissing):
            parts[submodule.path] = None
    return _join_listings(listing, parts)


@readonly.share_deadline()
def list_at_commit(
    places: Places,
    commit: str,
    sources: Sequence[SourceSettings],
    *,
    max_bytes: int,
    before: SourceListing | None = None,
) -> SourceListing:
    """List files like `selection.list_at_commit`, including those of submodules at the commits that
    the tree names.
    """
    listing = selection.list_at_commit(places, commit, sources, max_bytes=max_bytes, before=before)
    parts: dict[str, SourceListing | None] = {}
    for submodule in find_source_submodules(places, sources, commit):
        below = rules.select_sources_below(sources, submodule.path)
        try:
            parts[submodule.path] = submodule.places and selection.list_at_commit(
                submodule.places, submodule.commit or "", below, max_bytes=max_bytes
            )
        except (GitFailed, GitReferenceMissing, HistoryMissing):
            parts[submodule.path] = None
    return _join_listings(listing, parts)


def _join_listings(listing: SourceListing, parts: Mapping[str, SourceListing | None]) -> SourceListing:
    """Return one listing.

    `parts`: the listings of submodules by path. None stands for a submodule that cannot be read in
    this clone. Its path with a slash is then listed as missing. Untracked files of submodules are
    not counted.
    """
    files = {name: list(group) for name, group in listing.files.items()}
    seen = {name: {rules.fold_path(file.path): file.path for file in group} for name, group in files.items()}
    is_submodule = {terminal_text.escape_line(path) for path in parts}
    left_out = [entry for entry in listing.left_out if entry.path not in is_submodule]
    missing, removed = [*listing.missing], [*listing.removed]
    for top, part in parts.items():
        if part is None:
            missing.append(f"{terminal_text.escape_line(top)}/")
            continue
        start = f"{top}/"
        left_out += [
            LeftOutFile(terminal_text.escape_line(start) + entry.path, entry.reason) for entry in part.left_out
        ]
        missing += [start + path for path in part.missing]
        removed += [terminal_text.escape_line(start) + path for path in part.removed]
        for name, group in part.files.items():
            for file in group:
                path = start + file.path
                twin = seen[name].setdefault(rules.fold_path(path), path)
                if why := rules.find_name_flaw(path) or (selection.format_twin_flaw(twin) if twin != path else ""):
                    left_out.append(LeftOutFile(terminal_text.escape_line(path), why))
                else:
                    files[name].append(file._replace(path=path))
    number = sum(map(len, files.values()))
    if number > MOST_FILES:
        raise selection.build_too_many_error(number)
    selection.require_few_bytes(sum(file.size for group in files.values() for file in group))
    return msgspec.structs.replace(
        listing,
        files={name: sorted(group) for name, group in files.items()},
        left_out=tuple(sorted(left_out, key=lambda entry: entry.path)),
        missing=tuple(sorted(missing)),
        removed=tuple(sorted(removed)),
    )
