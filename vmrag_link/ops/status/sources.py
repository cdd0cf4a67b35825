"""Files that are documents, and how the work tree differs from HEAD in them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from vmrag_link.errors import EngineError, GitError, LimitExceeded, NotInitialized, PinError
from vmrag_link.models import Record
from vmrag_link.workspace import Workspace, source_tree, twins
from vmrag_link.workspace.source_tree import SourceTree


class SourceCollection(Record, frozen=True):
    """`files`: how many there are; a few of them may say nothing, and be no documents."""

    collection: str
    kind: Literal["document", "code"]
    files: int


class SourcesStatus(Record, frozen=True):
    """`uncommitted`: `COLLECTION/PATH`, as they stand; `removed`: paths that the work tree has no
    more; `untracked`: how many more files git does not track. `missing`: paths of which this clone
    has no contents. `unavailable`: why collections cannot be asked, by name. `problem`: why nothing
    is known of the files; empty otherwise. `shadowed`: stored documents of these files, which do
    not answer (`COLLECTION/DOC`).
    """

    collections: tuple[SourceCollection, ...] = ()
    uncommitted: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    untracked: int = 0
    missing: tuple[str, ...] = ()
    unavailable: Mapping[str, str] = {}
    problem: str = ""
    shadowed: tuple[str, ...] = ()


def sources_status(ws: Workspace) -> SourcesStatus | None:
    """None where no sources are configured. Reads no file that did not change, and needs no index.

    Raises `ConfigInvalid`.
    """
    if not ws.sources.configured:
        return None
    from vmrag_link.sources import work_tree

    try:
        tree = source_tree.in_work_tree(ws)
        assert tree is not None  # noqa: S101  there are sources
        untracked = 0 if ws.config.sources_untracked else work_tree.untracked_count(ws.places, tree.sources)
    except (GitError, LimitExceeded) as why:  # a status has to answer
        return SourcesStatus(problem=why.message)
    counts = {name: len(files) for name, files in tree.listing.files.items()}
    return SourcesStatus(
        collections=tuple(
            SourceCollection(each.collection, each.kind, counts.get(each.collection, 0)) for each in tree.sources
        ),
        uncommitted=tuple(f"{key[0]}/{key[1]}" for key, file in sorted(tree.files.items()) if file.uncommitted),
        removed=tree.listing.removed,
        untracked=untracked,
        missing=tree.listing.missing,
        unavailable=tree.unavailable,
        shadowed=_shadowed(ws, tree),
    )


def _shadowed(ws: Workspace, tree: SourceTree) -> tuple[str, ...]:
    if not ws.initialized:
        return ()
    try:
        found = list(twins.find(ws, ws.engine, ws.at(), {path for _, path in tree.files}))
    except (EngineError, NotInitialized, PinError):  # of which the rest of the status speaks
        return ()
    return tuple(sorted("/".join(key) for key in found))
