"""List the files of the sources in a repository and in its submodules together.

`work_tree` and `commit_files` list the files of one repository. With the setting
`sources_submodules`, `workspace.sources` calls this module instead. Paths begin at the top of the
outermost repository. A submodule that this clone lacks is listed as missing.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
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
from vmrag_link.sources import commit_files, rules, selection, work_tree
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
    with commit_files.readable_tree(places, commit):
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

    def list_inner(submodule: Submodule, inside: Places, inner_sources: Sequence[SourceSettings]) -> SourceListing:
        digest = hashlib.sha256(os.fsencode(submodule.path)).hexdigest()[:16]
        inner_cache = cache.with_name(f"{cache.name}-{digest}")
        return work_tree.list_in_work_tree(
            inside, inner_sources, max_bytes=max_bytes, untracked=untracked, cache=inner_cache
        )

    outer = work_tree.list_in_work_tree(places, sources, max_bytes=max_bytes, untracked=untracked, cache=cache)
    return _add_submodules(outer, find_source_submodules(places, sources, None), sources, list_inner)


@readonly.share_deadline()
def list_at_commit(
    places: Places,
    commit: str,
    sources: Sequence[SourceSettings],
    *,
    max_bytes: int,
    before: SourceListing | None = None,
) -> SourceListing:
    """List files like `commit_files.list_at_commit`, including those of submodules at the commits
    that the tree names.
    """

    def list_inner(submodule: Submodule, inside: Places, inner_sources: Sequence[SourceSettings]) -> SourceListing:
        return commit_files.list_at_commit(inside, submodule.commit or "", inner_sources, max_bytes=max_bytes)

    outer = commit_files.list_at_commit(places, commit, sources, max_bytes=max_bytes, before=before)
    return _add_submodules(outer, find_source_submodules(places, sources, commit), sources, list_inner)


def _add_submodules(
    outer: SourceListing,
    nested: Iterable[Submodule],
    sources: Sequence[SourceSettings],
    list_inner: Callable[[Submodule, Places, Sequence[SourceSettings]], SourceListing],
) -> SourceListing:
    """Return the listing of a repository with the files that `list_inner` lists in its submodules.

    `list_inner` gets a submodule, its places, and the sources relative to it. Untracked files of
    submodules are not counted.
    """
    listings: dict[str, SourceListing | None] = {}
    for submodule in nested:
        listings[submodule.path] = None
        if submodule.places is not None:
            inner_sources = rules.select_sources_below(sources, submodule.path)
            with contextlib.suppress(GitFailed, GitReferenceMissing, HistoryMissing):
                listings[submodule.path] = list_inner(submodule, submodule.places, inner_sources)
    return _join_listings(outer, listings)


def _join_listings(outer: SourceListing, inner: Mapping[str, SourceListing | None]) -> SourceListing:
    """Return one listing. `inner`: the listings of submodules by path, None for missing ones."""
    files = {collection: list(group) for collection, group in outer.files.items()}
    paths_by_folded = {
        collection: {rules.fold_path(file.path): file.path for file in group} for collection, group in files.items()
    }
    submodule_paths = {terminal_text.escape_line(path) for path in inner}
    left_out = [entry for entry in outer.left_out if entry.path not in submodule_paths]
    missing = [*outer.missing]
    removed = [*outer.removed]
    for submodule_path, listing in inner.items():
        prefix = f"{submodule_path}/"
        escaped_prefix = terminal_text.escape_line(prefix)
        if listing is None:
            missing.append(escaped_prefix)
            continue
        left_out += [LeftOutFile(escaped_prefix + entry.path, entry.reason) for entry in listing.left_out]
        missing += [prefix + path for path in listing.missing]
        removed += [escaped_prefix + path for path in listing.removed]
        for collection, group in listing.files.items():
            for file in group:
                path = prefix + file.path
                if flaw := _find_path_flaw(path, paths_by_folded[collection]):
                    left_out.append(LeftOutFile(terminal_text.escape_line(path), flaw))
                else:
                    files[collection].append(file._replace(path=path))
    number = sum(map(len, files.values()))
    if number > MOST_FILES:
        raise selection.build_too_many_error(number)
    selection.require_few_bytes(sum(file.size for group in files.values() for file in group))
    return msgspec.structs.replace(
        outer,
        files={collection: sorted(group) for collection, group in files.items()},
        left_out=tuple(sorted(left_out, key=lambda entry: entry.path)),
        missing=tuple(sorted(missing)),
        removed=tuple(sorted(removed)),
    )


def _find_path_flaw(path: str, paths_by_folded: dict[str, str]) -> str:
    """Return why a path cannot be listed next to the others, or an empty text, and add it to
    them.
    """
    first = paths_by_folded.setdefault(rules.fold_path(path), path)
    return rules.find_name_flaw(path) or ("" if first == path else selection.format_twin_flaw(first))
