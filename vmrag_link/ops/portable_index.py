"""Keep vectors for the next machine, in a folder that anyone may have written.

The Action uses this for the cache of GitHub. The folder has only the file `embeddings.sqlite`: the
vectors by content, not the knowledge base and not its index. The index is built from the documents
with these vectors. So the vectors of the cache are compared with what an exact model computes for a
sample of the texts.
"""

from __future__ import annotations

import stat
from pathlib import Path
from typing import NamedTuple

from vmrag_link import permissions
from vmrag_link.errors import IndexFailed
from vmrag_link.index.directories import remove_path
from vmrag_link.models import Record
from vmrag_link.ops.fingerprint import fingerprint_check
from vmrag_link.ops.fingerprint.fingerprint_check import VerifiedIndex
from vmrag_link.sync.apply import SyncReport
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.follow.sync import sync_to_pin

VECTORS = "embeddings.sqlite"


class _CheckedSync(NamedTuple):
    """A sync, and the check of its index."""

    report: SyncReport
    verified: VerifiedIndex | None
    """None if the index cannot be read."""
    problems: tuple[str, ...]


class ProvidedIndex(Record, frozen=True):
    """A verified index of the pinned revision."""

    sync: SyncReport
    verified: VerifiedIndex
    vectors: int
    """Number of vectors that were imported."""
    reused: bool
    """True if the index needed no other vectors."""
    rejected: tuple[str, ...]
    """Problems of the imported vectors, which were discarded."""


def provide_index(ws: Workspace, folder: Path) -> ProvidedIndex:
    """Bring the work tree to its pin with the vectors in `folder`, and verify the index.

    Wrong vectors are discarded, and the index is rebuilt. Raises the errors of `sync_to_pin`, and
    `IndexFailed` if an index that was built here is also wrong.
    """
    vectors = _import_vectors(ws, folder / VECTORS)
    checked = _sync_and_verify(ws, rebuild=False)
    rejected: tuple[str, ...] = ()
    if checked.problems and vectors:
        rejected = checked.problems
        ws.embedding_cache.delete_vectors()
        checked = _sync_and_verify(ws, rebuild=True)
    if checked.problems or checked.verified is None:
        raise IndexFailed(
            f"the index is damaged: {' '.join(checked.problems)}",
            hint=f"run '{fingerprint_check.REBUILD}' to rebuild it",
        )
    reused = bool(vectors) and not rejected and not checked.report.chunks.embedded
    return ProvidedIndex(checked.report, checked.verified, vectors, reused, rejected)


def _sync_and_verify(ws: Workspace, *, rebuild: bool) -> _CheckedSync:
    report = sync_to_pin(ws, rebuild=rebuild)
    try:
        verified = fingerprint_check.verify_index(ws, files=False)
    except IndexFailed as error:  # sealed, but not a valid index
        return _CheckedSync(report, None, (error.message,))
    return _CheckedSync(report, verified, verified.problems)


def pack_vectors(ws: Workspace, folder: Path) -> int:
    """Write the vectors for `provide_index` to a folder, which is emptied first.

    Return the number of bytes. Raises the errors of the embedding cache.
    """
    remove_path(folder)
    folder.mkdir(parents=True)
    ws.embedding_cache.export_vectors(folder / VECTORS)
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _import_vectors(ws: Workspace, path: Path) -> int:
    """Import vectors, and return their number. Existing vectors are not replaced."""
    if path.parent.is_symlink() or not _is_regular_file(path):
        return 0
    permissions.make_folder(ws.places.shared)
    return ws.embedding_cache.import_vectors(path)


def _is_regular_file(path: Path) -> bool:
    """Return whether a path is a regular file with one name, not a link, pipe or device."""
    try:
        status = path.lstat()
    except OSError:
        return False
    return stat.S_ISREG(status.st_mode) and status.st_nlink == 1
