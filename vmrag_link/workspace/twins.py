"""Stored documents that were imported from files of the repository."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from vmrag_link import trust as trusted
from vmrag_link.errors import ConfigInvalid, GitFailed, GitReferenceMissing
from vmrag_link.models import WITHOUT_FILES, At
from vmrag_link.models import Collection as CollectionRow

# Each checkout imports this module, and hardly one needs what is imported below.

if TYPE_CHECKING:
    from vmrag_link.documents.import_base import ImportBase
    from vmrag_link.engines.base import Engine
    from vmrag_link.merging.threeway import Derived
    from vmrag_link.settings import SourceSettings
    from vmrag_link.workspace.worktree import WorkTree

Key = tuple[str, str]


def find_twins(ws: WorkTree, engine: Engine, at: At, paths: Collection[str]) -> Iterator[Key]:
    """The documents at a place whose files have one of these paths below the top."""
    return (key for key, path in list_files(ws, engine, at) if path in paths)


def list_files(ws: WorkTree, engine: Engine, at: At) -> Iterator[tuple[Key, str]]:
    """The documents at a place of files of this tree, each with its file's path below the top."""
    for collection in engine.list_collections(at):
        if collection.kind not in WITHOUT_FILES:
            yield from list_paths(ws, collection, engine.list_sources(at, collection.name)).items()


def list_paths(ws: WorkTree, collection: CollectionRow, sources: Iterable[tuple[str, str]]) -> dict[Key, str]:
    """Return the paths of files of this tree by document. `sources`: (id, source) as stored."""
    from vmrag_link.documents import import_base

    base = _base(collection, import_base.locate_path(ws.places.top))
    return {(collection.name, doc_id): path for doc_id, path in base.list_sources(sources)} if base else {}


def _base(collection: CollectionRow, top: Path) -> ImportBase | None:
    """The folder from which the files of a collection's documents count; None where none is of this
    tree.
    """
    from vmrag_link.documents import import_base
    from vmrag_link.documents.import_base import OUTSIDE, ROOT

    recorded = collection.import_base or ROOT
    if collection.kind in WITHOUT_FILES or recorded == OUTSIDE or import_base.find_base_problem(recorded):
        return None
    return import_base.restore_base(recorded, top)


def build_derived(ws: WorkTree, commits: Sequence[str] = ()) -> Derived:
    """Which files are documents of sources where knowledge is merged: those of the work tree and of
    the commits that git merges into it or, if they are named, of `commits` alone. A file that none
    of them has answers for nothing.

    Nothing is read before it is asked. Settings that cannot be read name no sources.
    """

    @functools.cache
    def sources() -> tuple[SourceSettings, ...]:
        from vmrag_link.git import pin_merge

        found: list[SourceSettings] = []
        if not commits:
            with contextlib.suppress(ConfigInvalid):
                found += ws.sources.configured
        for commit in commits or pin_merge.list_coming_parents(ws.places)[1:]:
            with contextlib.suppress(ConfigInvalid, GitReferenceMissing):
                found += trusted.load_at(ws.places, commit).config.sources
        return tuple(found)

    @functools.cache
    def paths() -> set[str]:
        from vmrag_link.git import listing, pin_merge, raw_changes

        found = set() if commits else set(listing.list_tracked_files(ws.places))
        for commit in commits or pin_merge.list_coming_parents(ws.places):
            with contextlib.suppress(GitFailed):
                found.update(raw_changes.list_names(ws.places, commit))
        return found

    def is_derived(collection: CollectionRow, source: str) -> bool:
        from vmrag_link.documents import import_base
        from vmrag_link.sources import rules

        base = _base(collection, import_base.locate_path(ws.places.top))
        stored = base.list_sources([("", source)]) if base else []
        return any(rules.find_source(sources(), path) and path in paths() for _, path in stored)

    return is_derived
