"""Carry vectors from one machine to the next, by a store whose files anybody may have written.

    embeddings.sqlite                 the vectors by content

That is what CI services call a cache. Neither the knowledge base nor its index is in it: the index
is made from the documents, with these vectors. So what comes back is compared with what an exact
model makes of a sample of the texts.
"""

from __future__ import annotations

import stat
from pathlib import Path

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


class ProvidedIndex(Record, frozen=True):
    """An index that stands at the pin, verified.

    `vectors`: how many came back, and `reused`: they were all that it needed. `rejected`: what was
    wrong with them.
    """

    sync: SyncReport
    verified: VerifiedIndex
    vectors: int
    reused: bool
    rejected: tuple[str, ...]


def provide_index(ws: Workspace, folder: Path) -> ProvidedIndex:
    """Bring the work tree to its pin with the vectors that `folder` holds, if they are there, and
    compare the index with the documents.

    What came back and is not what they make is thrown away, and the index built again. Raises as
    `sync`, and `IndexFailed` for an index that was built here and is wrong all the same.
    """
    vectors = _take_in(ws, folder / VECTORS)
    report, verified, problems = _synced(ws, rebuild=False)
    rejected: tuple[str, ...] = ()
    if problems and vectors:
        rejected = problems
        ws.embedding_cache.delete_vectors()
        report, verified, problems = _synced(ws, rebuild=True)
    if problems or verified is None:
        raise IndexFailed(f"The index does not verify: {' '.join(problems)}", hint=fingerprint_check.REBUILD)
    reused = bool(vectors) and not rejected and not report.chunks.embedded
    return ProvidedIndex(report, verified, vectors, reused, rejected)


def _synced(ws: Workspace, *, rebuild: bool) -> tuple[SyncReport, VerifiedIndex | None, tuple[str, ...]]:
    report = sync_to_pin(ws, rebuild=rebuild)
    try:
        verified = fingerprint_check.verify_index(ws, files=False)
    except IndexFailed as error:  # sealed, and no index all the same
        return report, None, (error.message,)
    return report, verified, verified.problems


def pack_vectors(ws: Workspace, folder: Path) -> int:
    """Write what `provide` takes to a folder that is emptied first. Returns the number of bytes.

    Raises as the embedding cache.
    """
    remove_path(folder)
    folder.mkdir(parents=True)
    ws.embedding_cache.export_vectors(folder / VECTORS)
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _take_in(ws: Workspace, path: Path) -> int:
    """The number of vectors that were taken in. None of them replaces one that is here."""
    if path.parent.is_symlink() or not _is_plain(path):
        return 0
    permissions.make_folder(ws.places.shared)
    return ws.embedding_cache.import_vectors(path)


def _is_plain(path: Path) -> bool:
    """Whether it is a file of one name: no link, pipe or device."""
    try:
        found = path.lstat()
    except OSError:
        return False
    return stat.S_ISREG(found.st_mode) and found.st_nlink == 1
