"""Find stored documents that were imported from files of the repository: twins of these files.

If a file is later a document of a source, its twin is a duplicate. Merges and `vmrag sources
dedupe` need to know the twins.
"""

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

# Each checkout imports this module, and few need the imports in the functions.

if TYPE_CHECKING:
    from vmrag_link.documents.import_base import ImportBase
    from vmrag_link.engines.base import Engine
    from vmrag_link.merging.threeway import Derived
    from vmrag_link.settings import SourceSettings
    from vmrag_link.workspace.worktree import WorkTree

Key = tuple[str, str]


def find_twins(ws: WorkTree, engine: Engine, at: At, paths: Collection[str]) -> Iterator[Key]:
    """Yield the stored documents whose files have one of these paths, from the top.

    `at`: the revision or branch to read.
    """
    return (key for key, path in list_files(ws, engine, at) if path in paths)


def list_files(ws: WorkTree, engine: Engine, at: At) -> Iterator[tuple[Key, str]]:
    """Yield the stored documents that were imported from files of this repository.

    Each has the path of its file from the top. `at`: the revision or branch to read.
    """
    for collection in engine.list_collections(at):
        if collection.kind not in WITHOUT_FILES:
            yield from list_paths(ws, collection, engine.list_sources(at, collection.name)).items()


def list_paths(ws: WorkTree, collection: CollectionRow, sources: Iterable[tuple[str, str]]) -> dict[Key, str]:
    """Return the paths of files, from the top, by document.

    `sources`: pairs (id, source) of documents in the collection. Files outside of the repository
    are left out.
    """
    from vmrag_link.documents import import_base

    base = _find_base(collection, import_base.locate_path(ws.places.top))
    return {(collection.name, doc_id): path for doc_id, path in base.list_sources(sources)} if base else {}


def _find_base(collection: CollectionRow, top: Path) -> ImportBase | None:
    """Return the folder to which the sources of a collection's documents are relative.

    None if they are not files of this repository.
    """
    from vmrag_link.documents import import_base
    from vmrag_link.documents.import_base import OUTSIDE, ROOT

    recorded = collection.import_base or ROOT
    if collection.kind in WITHOUT_FILES or recorded == OUTSIDE or import_base.find_base_problem(recorded):
        return None
    return import_base.restore_base(recorded, top)


def build_derived(ws: WorkTree, commits: Sequence[str] = ()) -> Derived:
    """Return a function for merges: does a stored document have a twin that is a document of a
    source?

    Files and sources are those of the work tree and of the commits that git merges into it. If
    `commits` are given, only these are considered. Files and settings are read on the first call.
    Unreadable settings have no sources.
    """

    @functools.cache
    def load_sources() -> tuple[SourceSettings, ...]:
        from vmrag_link.git import pin_merge

        configured: list[SourceSettings] = []
        if not commits:
            with contextlib.suppress(ConfigInvalid):
                configured += ws.sources.configured
        for commit in commits or pin_merge.list_coming_parents(ws.places)[1:]:
            with contextlib.suppress(ConfigInvalid, GitReferenceMissing):
                configured += trusted.load_at(ws.places, commit).config.sources
        return tuple(configured)

    @functools.cache
    def list_names() -> set[str]:
        from vmrag_link.git import listing, pin_merge, raw_changes

        names = set() if commits else set(listing.list_tracked_files(ws.places))
        for commit in commits or pin_merge.list_coming_parents(ws.places):
            with contextlib.suppress(GitFailed):
                names.update(raw_changes.list_names(ws.places, commit))
        return names

    def is_derived(collection: CollectionRow, source: str) -> bool:
        from vmrag_link.documents import import_base
        from vmrag_link.sources import rules

        base = _find_base(collection, import_base.locate_path(ws.places.top))
        stored = base.list_sources([("", source)]) if base else []
        return any(rules.find_source(load_sources(), path) and path in list_names() for _, path in stored)

    return is_derived
