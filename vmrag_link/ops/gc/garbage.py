"""Find and remove unneeded files for `vmrag gc` and `vmrag doctor`: spare indexes, files of killed
processes, surplus vectors.

A spare view or store is one that no work tree uses, but that would save time after a checkout. It
stays within a limit of bytes. With a full disk, the limit is 0.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from vmrag_link import locks
from vmrag_link.embedding.cache import EmbeddingCache, Excess
from vmrag_link.engines.folder import CREATING_NAME, LOCK_NAME
from vmrag_link.errors import Busy, FileSystemError, IndexFailed, file_failures
from vmrag_link.file_access import list_stale_temporaries, measure_size
from vmrag_link.git import sidecar_repo, work_trees
from vmrag_link.index import directories, upkeep, working
from vmrag_link.index.views import Segments
from vmrag_link.models import Record
from vmrag_link.ops.migrate import exchange
from vmrag_link.paths import CONFIG_NAME, PIN_NAME, QUERIES_NAME, Places
from vmrag_link.sync import apply, source_views
from vmrag_link.sync import binding as bindings
from vmrag_link.transport import git_transport, quarantine
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.pins.pinning import ATTRIBUTES

_OLD_FOLDERS = ("snapshots", "working")
"""Folders of earlier versions. Their contents were derived, and views and segments replaced them.
"""

MIN_FREE_BYTES = 20_000_000
"""If less is free, even small operations fail."""


class RemovedFiles(Record, frozen=True):
    """Names of files and directories, and their total size."""

    names: tuple[str, ...] = ()
    bytes: int = 0


class Leftovers(Record, frozen=True, rename={"views": "snapshots"}):
    """Files that are not needed."""

    views: RemovedFiles
    """Spare views, and the segments that no other view uses."""
    chroma: RemovedFiles
    working_copies: RemovedFiles
    files: RemovedFiles
    vectors: Excess
    replaced: RemovedFiles = RemovedFiles()
    """The knowledge base before a migration, and files of stopped migrations."""


def is_crowded(ws: Workspace) -> bool:
    """Return whether the disk is so full that spare indexes and logs must make room."""
    return shutil.disk_usage(ws.places.shared).free < MIN_FREE_BYTES


def find_leftovers(ws: Workspace) -> Leftovers:
    """Return what `remove_leftovers` and `prune_vectors` would remove."""
    limits = ws.config.embedding
    vectors = EmbeddingCache(ws.places.embeddings).measure_excess(megabytes=limits.cache_mb, days=limits.cache_days)
    replaced = _describe_files(_measure_files(exchange.list_unneeded(ws.places)))
    return _measure_unneeded(ws).build_report(vectors=vectors, replaced=replaced)


def remove_leftovers(ws: Workspace) -> Leftovers:
    """Remove all files that are not in use at this moment, except vectors.

    They all only save time, except the knowledge base before a migration. This needs no disk space,
    except for names of lock files.
    """
    unneeded = _measure_unneeded(ws)
    replaced = _describe_files(_measure_files(exchange.list_unneeded(ws.places)))
    if replaced.names:
        shutil.rmtree(ws.places.migration)
    for path in _list_logs(ws):
        path.unlink(missing_ok=True)
    apply.remove_leftovers(ws.sync_context._replace(keep_bytes=_limit_spare_bytes(ws)))
    _rewrite_segments(ws)
    ws.chroma.local.stores.evict_spare(needed=ws.chroma.local.list_needed)
    orphaned_locks = _measure_files(_list_orphaned_locks(ws))  # also those of files that were just removed
    for path in orphaned_locks:
        directories.remove_orphaned_lock(path)
    for path in (*_list_temporaries(ws), *_list_corrupt_caches(ws)):
        path.unlink(missing_ok=True)
    for path, lock in _list_abandoned_files(ws.places).items():
        with contextlib.suppress(Busy), locks.hold_exclusive(lock, purpose="sweep", timeout=0):
            directories.remove_path(path)
    quarantine.remove_leftovers(ws.places)
    working.remove_unused_copies(ws.places.local_index, needed=tuple)  # its segments still contain deleted documents
    local_segments = Segments(ws.places.local_segments)
    local_segments.remove_unfinished()
    local_segments.collect_garbage([ws.places.local_index])
    unneeded = unneeded._replace(files=unneeded.files | orphaned_locks)
    removed = _Unneeded(*map(_select_removed, unneeded))
    return removed.build_report(vectors=Excess(), replaced=replaced)


def prune_vectors(ws: Workspace) -> Excess:
    """Remove the vectors beyond the limits. This rewrites the cache, which needs space."""
    limits = ws.config.embedding
    cache = ws.embedding_cache
    return cache.prune(megabytes=limits.cache_mb, days=limits.cache_days)


def list_stray_files(ws: Workspace) -> list[Path]:
    """Return files that only killed processes leave, and renamed damaged caches."""
    unfinished = [
        *ws.views.list_unfinished(),
        *ws.source_index.views.list_unfinished(),
        *ws.views.segments.list_unfinished(),
        *Segments(ws.places.local_segments).list_unfinished(),
        *ws.chroma.local.stores.list_unfinished(),
    ]
    return [
        *(path for path in unfinished if not locks.read_holder(directories.lock_path(path))),
        *(path for path in _list_orphaned_locks(ws) if path.name.startswith(directories.BUILDING_PREFIX)),
        *_list_temporaries(ws),
        *_list_corrupt_caches(ws),
        *quarantine.list_leftovers(ws.places),
        *_list_abandoned_files(ws.places),
    ]


class _Unneeded(NamedTuple):
    """Sizes of unneeded files and directories, by path."""

    views: dict[Path, int]
    chroma: dict[Path, int]
    working_copies: dict[Path, int]
    files: dict[Path, int]

    def build_report(self, *, vectors: Excess, replaced: RemovedFiles) -> Leftovers:
        views, chroma, working_copies, files = map(_describe_files, self)
        return Leftovers(views, chroma, working_copies, files, vectors, replaced)


def _measure_unneeded(ws: Workspace) -> _Unneeded:
    return _Unneeded(
        views=_measure_files(_list_spare_views(ws)),
        chroma=_measure_files(ws.chroma.local.stores.list_spare(needed=ws.chroma.local.list_needed())),
        working_copies=_measure_files(_list_old_copies(ws)),
        files=_measure_files([*list_stray_files(ws), *_list_orphaned_locks(ws), *_list_logs(ws)]),
    )


def _measure_files(paths: Iterable[Path]) -> dict[Path, int]:
    return {path: measure_size(path) for path in paths}


def _select_removed(sizes: dict[Path, int]) -> dict[Path, int]:
    return {path: size for path, size in sizes.items() if not path.exists()}


def _describe_files(sizes: dict[Path, int]) -> RemovedFiles:
    names = tuple(os.fsencode(path.name).decode(errors="replace") for path in sizes)
    return RemovedFiles(names, sum(sizes.values()))


def _list_spare_views(ws: Workspace) -> list[Path]:
    """Return the spare views beyond the limit, and the segments that only they use."""
    keep_bytes = _limit_spare_bytes(ws)
    bound = bindings.list_bound_views(ws.places)
    bound_sources = source_views.list_bound_views(ws.places)
    spare = [
        *ws.views.list_spare(bound=bound, keep_bytes=keep_bytes),
        *ws.source_index.views.list_spare(bound=bound_sources, keep_bytes=keep_bytes),
    ]
    return [*spare, *ws.views.segments.list_spare(ws.places.view_folders, without=spare)]


def _limit_spare_bytes(ws: Workspace) -> int:
    """Return the maximum size of spare views."""
    return 0 if is_crowded(ws) else ws.sync_context.keep_bytes


def _list_logs(ws: Workspace) -> list[Path]:
    return sorted(ws.places.logs.glob("*.log")) if is_crowded(ws) else []


def _list_old_copies(ws: Workspace) -> list[Path]:
    """Return the indexes of uncommitted documents that were committed since, or whose
    branch moved.
    """
    root = ws.places.working_copies
    copies = {path for path in root.iterdir() if path.is_dir()} if root.is_dir() else set()
    return sorted(copies.difference(apply.list_needed_copies(ws.sync_context))) if copies else []


def _list_orphaned_locks(ws: Workspace) -> list[Path]:
    """Return locks of directories that no longer exist."""
    places = ws.places
    folders = [places.views, places.source_views, places.segments, places.working_copies]
    folders += [places.chroma, places.local_index, places.local_segments]
    return [path for folder in folders for path in directories.list_orphaned_files(folder)]


def _list_temporaries(ws: Workspace) -> list[Path]:
    """Return temporary files of killed writers in vmrag's folders, in git, and in work trees."""
    places = ws.places
    worktree_folders = [git_dir / "vmrag" for git_dir in work_trees.list_git_dirs(places)[1:]]
    roots = (places.shared, *worktree_folders, places.configured_hooks)
    folders = [Path(folder) for root in roots for folder, _, _ in os.walk(root)]
    temporaries = list_stale_temporaries(*folders, places.common / "hooks", places.common / "info")
    tops = work_trees.list_work_trees(places)
    for name in (PIN_NAME, CONFIG_NAME, ATTRIBUTES):
        temporaries += list_stale_temporaries(*tops, name=name)
    query_folders = [(top / QUERIES_NAME).parent for top in tops]
    temporaries += list_stale_temporaries(*query_folders, name="queries.yaml")
    return temporaries


def _list_abandoned_files(places: Places) -> dict[Path, Path]:
    """Return leftovers of killed fetches and half-made stores, and folders of earlier versions.

    Each has the lock that its creator would hold.
    """
    locked = {places.shared / name: directories.lock_path(places.segments) for name in _OLD_FOLDERS}
    locked |= {kb / CREATING_NAME: kb / LOCK_NAME for kb in (places.kb, places.local_kb)}
    locked |= sidecar_repo.list_half_made(places, places.remote_objects) | git_transport.list_unfinished(places)
    return {path: lock for path, lock in locked.items() if path.exists() and not locks.is_held(lock)}


def _list_corrupt_caches(ws: Workspace) -> list[Path]:
    """Return renamed damaged caches. Their vectors were computed again."""
    return sorted(ws.places.shared.glob(f"{ws.places.embeddings.name}.corrupt-*"))


def _rewrite_segments(ws: Workspace) -> None:
    """Rewrite worn segments if there is enough space."""
    if is_crowded(ws):
        return
    # Queries report and repair damage.
    with contextlib.suppress(Busy, IndexFailed, FileSystemError), file_failures():
        upkeep.rewrite_segments(ws.views)
    ws.views.segments.collect_garbage(ws.places.view_folders)
