"""Carry an index from one machine to the next, by a store whose files anybody may have written.

    snapshots/<revision>-<format>/    the index that answered
    embeddings.sqlite                 the vectors by content

That is what CI services call a cache. The knowledge base is not in it: what its remote says counts,
and proves nothing else right. So an index that comes back is compared with the documents.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Iterator
from pathlib import Path

import msgspec

from vmrag_link import permissions
from vmrag_link.errors import IndexFailed, VmragError
from vmrag_link.index import definitions, keywords, manifest, seal, snapshots
from vmrag_link.index.directories import remove
from vmrag_link.index.verify import SUFFIX, problem_of
from vmrag_link.models import Record
from vmrag_link.ops.follow.sync import sync
from vmrag_link.ops.index import check
from vmrag_link.ops.index.check import VerifiedIndex
from vmrag_link.sync.apply import SyncReport
from vmrag_link.workspace import Workspace

INDEXES = "snapshots"
VECTORS = "embeddings.sqlite"

_NAME = re.compile(rf"([0-9a-v]{{32,40}})-{SUFFIX}")


class Restored(Record, frozen=True):
    """`revisions` of the indexes that were taken in, number of `vectors`, and what was `refused`:
    sentences.
    """

    revisions: tuple[str, ...] = ()
    vectors: int = 0
    refused: tuple[str, ...] = ()


class Provided(Record, frozen=True):
    """An index that stands at the pin, verified.

    `reused`: it is one that came back, and nothing was built. `rejected`: what was wrong with what
    came back.
    """

    sync: SyncReport
    verified: VerifiedIndex
    reused: bool
    rejected: tuple[str, ...]


def provide(ws: Workspace, folder: Path) -> Provided:
    """Bring the work tree to its pin with what `folder` holds, if it is there, and compare the
    index with the documents.

    What came back and is not what they make is thrown away, and built again. Raises as `sync`, and
    `IndexFailed` for an index that was built here and is wrong all the same.
    """
    restored = _restore(ws, folder) if folder.is_dir() else Restored()
    report, verified, problems = _synced(ws, rebuild=False)
    if problems and (restored.revisions or restored.vectors):
        for revision in restored.revisions:
            if revision != report.to:
                ws.snapshots.discard(ws.snapshots.path(revision))
        ws.embedding_cache.discard()
        report, verified, again = _synced(ws, rebuild=True)
        reused, rejected = False, (*restored.refused, *problems)
    else:
        again, rejected = problems, restored.refused
        reused = report.to in restored.revisions and report.snapshot is not None and report.snapshot.how == "reused"
    if again or verified is None:
        raise IndexFailed(f"The index does not verify: {' '.join(again)}", hint=check.REBUILD)
    return Provided(report, verified, reused, rejected)


def _synced(ws: Workspace, *, rebuild: bool) -> tuple[SyncReport, VerifiedIndex | None, tuple[str, ...]]:
    report = sync(ws, rebuild=rebuild)
    try:
        verified = check.verify(ws)
    except IndexFailed as error:  # sealed, and no index all the same
        return report, None, (error.message,)
    return report, verified, verified.problems


def pack(ws: Workspace, folder: Path) -> int:
    """Write what `provide` takes to a folder that is emptied first. Returns the number of bytes.

    Raises `IndexFailed` for an index that is not what was sealed, and as the embedding cache.
    """
    remove(folder)
    target = folder / INDEXES
    target.mkdir(parents=True)
    path = ws.snapshots.path(ws.revision())
    with ws.snapshots.reading(path):
        snapshots.copy(path, target / path.name)
    (target / path.name / seal.PROVEN).unlink(missing_ok=True)  # of this machine only
    ws.embedding_cache.export(folder / VECTORS)
    return sum(each.stat().st_size for each in folder.rglob("*") if each.is_file())


# -- taking in -------------------------------------------------------------------------------------


def _restore(ws: Workspace, folder: Path) -> Restored:
    """Take in the files that are whole. None of them replaces one that is here."""
    revisions: list[str] = []
    refused: list[str] = []
    for path in _found(folder / INDEXES):
        try:
            revisions.append(_take_in(ws, path))
        except VmragError as error:
            refused.append(error.message)
    vectors = 0
    if _is_plain(folder / VECTORS):
        permissions.make_folder(ws.places.shared)
        vectors = ws.embedding_cache.take_in(folder / VECTORS)
    return Restored(tuple(revisions), vectors, tuple(refused))


def _found(folder: Path) -> Iterator[Path]:
    if folder.is_dir() and not folder.is_symlink():
        yield from sorted(folder.iterdir())


def _take_in(ws: Workspace, path: Path) -> str:
    """Copy one index; returns its revision. Raises `IndexFailed`, `FileFailed`."""
    named = _NAME.fullmatch(path.name)
    if named is None or path.is_symlink() or not path.is_dir():
        raise _refusal(path, "it is no index of this version")
    revision = named[1]
    if not ws.snapshots.problem(revision):
        return revision
    _require_sealed_files(path)
    _require_own_tables(path, manifest.FILE, manifest.SCHEMA)
    _require_own_tables(path, keywords.FILE, keywords.TABLE)
    permissions.make_folder(ws.snapshots.root)
    with ws.snapshots.building() as built:
        snapshots.copy(path, built)
        permissions.settle(built)
        if problem := problem_of(built, revision=revision):
            raise _refusal(path, problem)
        ws.snapshots.publish(built, revision)
    return revision


def _require_sealed_files(path: Path) -> None:
    """Raise `IndexFailed` unless the folder holds the files that its seal names, and nothing else.

    A seal could name `../../dev/zero`.
    """
    (path / seal.PROVEN).unlink(missing_ok=True)  # of another machine
    files = {each.name for each in path.iterdir() if _is_plain(each)}
    if len(files) < sum(1 for _ in path.iterdir()):
        raise _refusal(path, "it holds more than files")
    if seal.SEAL not in files:
        raise _refusal(path, "it was never finished")
    try:
        named = set(seal.read(path).files)
    except (UnicodeDecodeError, msgspec.DecodeError) as error:
        raise _refusal(path, f"{seal.SEAL} cannot be read ({error})") from error
    if named != files - {seal.SEAL}:
        raise _refusal(path, "its files are not those that were sealed")


def _require_own_tables(path: Path, name: str, made: str) -> None:
    """Raise `IndexFailed` unless a database has the tables that are `made` and nothing else."""
    if problem := definitions.problem_of(path / name, made):
        raise _refusal(path, f"{name} {problem}")


def _is_plain(path: Path) -> bool:
    """Whether it is a file of one name: no link, pipe or device."""
    try:
        found = path.lstat()
    except OSError:
        return False
    return stat.S_ISREG(found.st_mode) and found.st_nlink == 1


def _refusal(path: Path, problem: str) -> IndexFailed:
    return IndexFailed(f"An index that was brought here is not taken: {problem}.", hint=check.REBUILD, path=str(path))
