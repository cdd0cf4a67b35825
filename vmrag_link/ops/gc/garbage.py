"""What nothing needs on the disk: spare indexes, files of killed processes, surplus vectors."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from vmrag_link import locks
from vmrag_link.embedding.cache import EmbeddingCache, Excess
from vmrag_link.engines.base import LOCK_NAME
from vmrag_link.engines.limits import CREATING_NAME
from vmrag_link.errors import Busy, FileSystemError, IndexFailed, file_failures
from vmrag_link.git import refs, sidecar_repo
from vmrag_link.index import directories, upkeep, working
from vmrag_link.index.views import Segments
from vmrag_link.models import Record
from vmrag_link.ops.migrate import exchange
from vmrag_link.paths import CONFIG_NAME, PIN_NAME, QUERIES_NAME, Places, list_stale_temporaries, measure_size
from vmrag_link.sync import apply, source_views
from vmrag_link.sync import binding as bindings
from vmrag_link.transport import git_transport, quarantine
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.pins.pinning import ATTRIBUTES

_OLD_FOLDERS = ("snapshots", "working")
"""Their content is derived: views and segments have replaced it."""

CROWDED_BYTES = 20_000_000
"""Free bytes; with fewer even small operations fail."""


class RemovedFiles(Record, frozen=True):
    """Files and directories by name, and the bytes that they took."""

    names: tuple[str, ...] = ()
    bytes: int = 0


class Leftovers(Record, frozen=True):
    """`snapshots`: spare views, and the segments that no other view counts. `replaced`: the
    knowledge base of before a migration, and what is left of stopped ones.
    """

    snapshots: RemovedFiles
    chroma: RemovedFiles
    working_copies: RemovedFiles
    files: RemovedFiles
    vectors: Excess
    replaced: RemovedFiles = RemovedFiles()


def is_crowded(ws: Workspace) -> bool:
    """Whether the disk is so full that spare indexes and logs are worth less than their space."""
    return shutil.disk_usage(ws.places.shared).free < CROWDED_BYTES


def find_leftovers(ws: Workspace) -> Leftovers:
    """What `sweep` would remove."""
    spare, stores, copies, files = _spare(ws), _stores(ws), _copies(ws), _files(ws)
    limits = ws.config.embedding
    vectors = EmbeddingCache(ws.places.embeddings).measure_excess(megabytes=limits.cache_mb, days=limits.cache_days)
    return Leftovers(
        _describe(_sizes(spare)),
        _describe(_sizes(stores)),
        _describe(_sizes(copies)),
        _describe(_sizes(files)),
        vectors,
        _describe(_sizes(exchange.list_unneeded(ws.places))),
    )


def remove_leftovers(ws: Workspace) -> Leftovers:
    """Remove what is in no use at this moment, but no vectors.

    All of it serves speed alone, but for the knowledge base of before a migration. This takes no
    room on the disk but for names of lock files.
    """
    before = [_sizes(paths) for paths in (_spare(ws), _stores(ws), _copies(ws), _files(ws))]
    replaced = _describe(_sizes(exchange.list_unneeded(ws.places)))
    if replaced.names:
        shutil.rmtree(ws.places.migration)
    for path in _logs(ws):
        path.unlink(missing_ok=True)
    apply.remove_leftovers(ws.sync_context._replace(keep_bytes=_kept_bytes(ws)))
    _rewrite_segments(ws)
    ws.chroma.local.stores.evict_spare(needed=ws.chroma.local.list_needed)
    lonely = _orphaned_locks(ws)
    files = {**before[3], **_sizes(lonely)}
    for path in lonely:
        directories.remove_orphaned_lock(path)
    for path in (*_temporaries(ws), *_corrupt(ws)):
        path.unlink(missing_ok=True)
    for path, lock in _abandoned_files(ws.places).items():
        with contextlib.suppress(Busy), locks.hold_exclusive(lock, purpose="sweep", timeout=0):
            directories.remove_path(path)
    quarantine.remove_leftovers(ws.places)
    working.remove_unused_copies(ws.places.local_index, needed=tuple)  # its segments keep what was deleted
    local = Segments(ws.places.local_segments)
    local.remove_unfinished()
    local.collect_garbage([ws.places.local_index])
    spare, stores, copies, rest = (
        {path: size for path, size in sizes.items() if not path.exists()} for sizes in (*before[:3], files)
    )
    return Leftovers(_describe(spare), _describe(stores), _describe(copies), _describe(rest), Excess(), replaced)


def _rewrite_segments(ws: Workspace) -> None:
    """Write worn segments anew, where there is room for it."""
    if is_crowded(ws):
        return
    with (
        contextlib.suppress(Busy, IndexFailed, FileSystemError),
        file_failures(),
    ):  # queries tell of damage, and mend it
        upkeep.rewrite_segments(ws.views)
    ws.views.segments.collect_garbage(ws.places.view_folders)


def prune_vectors(ws: Workspace) -> Excess:
    """Drop the vectors beyond the limits. The cache is written anew, which needs room."""
    limits = ws.config.embedding
    cache = ws.embedding_cache
    return cache.prune(megabytes=limits.cache_mb, days=limits.cache_days)


def _spare(ws: Workspace) -> list[Path]:
    bound = bindings.list_bound_views(ws.places)
    spare = ws.views.list_spare(bound=bound, keep_bytes=_kept_bytes(ws))
    spare += ws.sources.views.list_spare(bound=source_views.list_bound_views(ws.places), keep_bytes=_kept_bytes(ws))
    return [*spare, *ws.views.segments.list_spare(ws.places.view_folders, without=spare)]


def _stores(ws: Workspace) -> list[Path]:
    return ws.chroma.local.stores.list_spare(needed=ws.chroma.local.list_needed())


def _kept_bytes(ws: Workspace) -> int:
    """What spare views may take."""
    return 0 if is_crowded(ws) else ws.sync_context.keep_bytes


def _logs(ws: Workspace) -> list[Path]:
    return sorted(ws.places.logs.glob("*.log")) if is_crowded(ws) else []


def _copies(ws: Workspace) -> list[Path]:
    """The copies of uncommitted documents that were committed since, or whose branch moved."""
    root = ws.places.working_copies
    there = [path for path in root.iterdir() if path.is_dir()] if root.is_dir() else []
    return sorted(set(there).difference(apply.list_needed_copies(ws.sync_context))) if there else []


def _files(ws: Workspace) -> list[Path]:
    """What killed processes left, and what only they could have continued."""
    return [*list_stray_files(ws), *_orphaned_locks(ws), *_logs(ws)]


def list_stray_files(ws: Workspace) -> list[Path]:
    """Files that only killed processes leave, and damaged caches that were set aside."""
    making = (ws.views, ws.sources.views, ws.views.segments, Segments(ws.places.local_segments), ws.chroma.local.stores)
    unfinished = [path for folders in making for path in folders.list_unfinished()]
    building = [each for each in unfinished if not locks.read_holder(directories.lock_path(each))]
    names = [path for path in _orphaned_locks(ws) if path.name.startswith(directories.BUILDING_PREFIX)]
    rest = [*_temporaries(ws), *_corrupt(ws), *quarantine.list_leftovers(ws.places), *_abandoned_files(ws.places)]
    return [*building, *names, *rest]


def _orphaned_locks(ws: Workspace) -> list[Path]:
    places = ws.places
    indexes = (places.views, places.source_views, places.segments, places.working_copies)
    local = (places.local_index, places.local_segments)
    return [path for root in (*indexes, places.chroma, *local) for path in directories.list_orphaned_files(root)]


def _temporaries(ws: Workspace) -> list[Path]:
    """Return temporary files of killed writers, in our folders, in git, and in work trees."""
    places = ws.places
    roots = (places.shared, *(folder / "vmrag" for folder in refs.list_git_dirs(places)[1:]), places.configured_hooks)
    folders = [Path(folder) for root in roots for folder, _, _ in os.walk(root)]
    tops = refs.list_tops(places)
    named = [path for name in (PIN_NAME, CONFIG_NAME, ATTRIBUTES) for path in list_stale_temporaries(*tops, name=name)]
    queries = [
        path for top in tops for path in list_stale_temporaries((top / QUERIES_NAME).parent, name="queries.yaml")
    ]
    return [*list_stale_temporaries(*folders, places.common / "hooks", places.common / "info"), *named, *queries]


def _abandoned_files(places: Places) -> dict[Path, Path]:
    """Return leftovers of killed fetches and half made stores, and folders of earlier versions.

    Each has the lock that its maker would hold.
    """
    locked = {places.shared / name: directories.lock_path(places.segments) for name in _OLD_FOLDERS}
    locked |= {kb / CREATING_NAME: kb / LOCK_NAME for kb in (places.kb, places.local_kb)}
    locked |= sidecar_repo.list_half_made(places, places.remote_objects) | git_transport.list_unfinished(places)
    return {path: lock for path, lock in locked.items() if path.exists() and not locks.is_held(lock)}


def _corrupt(ws: Workspace) -> list[Path]:
    """Damaged caches that were set aside: their vectors were computed again."""
    return sorted(ws.places.shared.glob(f"{ws.places.embeddings.name}.corrupt-*"))


def _sizes(paths: Iterable[Path]) -> dict[Path, int]:
    return {path: measure_size(path) for path in paths}


def _describe(sizes: dict[Path, int]) -> RemovedFiles:
    names = tuple(os.fsencode(path.name).decode(errors="replace") for path in sizes)
    return RemovedFiles(names, sum(sizes.values()))
