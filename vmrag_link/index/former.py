"""Indexes of earlier formats, a whole one for each revision, which this version does not read.

    <git common dir>/vmrag/snapshots/   indexes of revisions
    <git common dir>/vmrag/working/     indexes of uncommitted documents

An earlier version of the program may still answer from them, so they stay until no work tree is
bound to one.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection
from pathlib import Path

import msgspec

from vmrag_link import locks, permissions
from vmrag_link.errors import Busy
from vmrag_link.index import seal
from vmrag_link.index.directories import lock_of, remove
from vmrag_link.models import Record

SNAPSHOTS, WORKING = "snapshots", "working"
IDLE_SECONDS = 86_400
"""After their last use: an earlier version that still runs would build one that is gone again."""

_SAID = ".said"
_BESIDE = (".lock", ".holder", ".behind", ".writing", _SAID)


class _Seal(Record, frozen=True):
    revision: str


def roots(shared: Path) -> list[Path]:
    """The folders of such indexes that are there."""
    return [root for root in (shared / SNAPSHOTS, shared / WORKING) if root.is_dir()]


def remove_all(shared: Path, *, heads: Collection[str], note: Callable[[str], None]) -> None:
    """Remove them, but for those that somebody reads or used a day ago, unless another process is
    at it.

    `heads` of KB branches: `note` says which vectors that clients gave on them are gone.
    """
    alone = locks.exclusive(shared / "locks" / "former.lock", purpose="remove indexes", timeout=0)
    with contextlib.suppress(Busy), alone:
        _remove_all(roots(shared), heads, note)


def _remove_all(found: Collection[Path], heads: Collection[str], note: Callable[[str], None]) -> None:
    for root in found:
        for folder in sorted(each for each in root.iterdir() if each.is_dir()):
            if root.name == WORKING:
                _say_what_is_given(folder, heads, note)
            if time.time() - folder.stat().st_mtime >= IDLE_SECONDS:
                with contextlib.suppress(Busy), locks.exclusive(lock_of(folder), purpose="remove an index", timeout=0):
                    remove(folder)
        if all(each.name.endswith(_BESIDE) for each in root.iterdir()):
            remove(root)


def _say_what_is_given(folder: Path, heads: Collection[str], note: Callable[[str], None]) -> None:
    """Say once that vectors which clients gave are not taken over."""
    said = folder.with_name(f"{folder.name}{_SAID}")
    if said.exists() or (revision := _given(folder)) not in heads:
        return
    permissions.make_file(said)
    note(
        f"Embeddings that a client gave on {revision[:7]} are not taken over from the index of an earlier version; "
        "their documents have those of their texts again. To have them back, give them again."
    )


def _given(folder: Path) -> str:
    """The revision of a working copy with vectors that clients gave; empty for any other."""
    import sqlite3  # every switch looks whether there are any, and hardly one finds some

    place = f"{(folder / 'manifest.sqlite').absolute().as_uri()}?mode=ro&immutable=1"
    with contextlib.suppress(sqlite3.Error), contextlib.closing(sqlite3.connect(place, uri=True)) as manifest:
        if manifest.execute("SELECT 1 FROM meta WHERE key = 'given_vectors'").fetchone():
            with contextlib.suppress(OSError, UnicodeDecodeError, msgspec.DecodeError):
                return msgspec.json.decode((folder / seal.SEAL).read_bytes(), type=_Seal).revision
    return ""
