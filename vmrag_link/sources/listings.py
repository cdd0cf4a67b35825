"""Which files a source has at a commit or in the work tree, and a record of the latest list.

The record is derived. If it is damaged, it is ignored.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from vmrag_link.models import Record
from vmrag_link.paths import FileStamp, write_atomically


class TreeFile(NamedTuple):
    """A file of a source.

    `path`: below the top of the repository, with `/`. `blob`: how git names what it holds; in the
    work tree of what would be committed now, as far as git's settings and attributes decide it.
    `size` in bytes. `uncommitted`: how it differs from HEAD, which is empty at a commit.
    `handwritten`: attributes say that nothing generated it, whatever it looks like. `encoding`:
    that of the file on the disk, where attributes name one; blobs are UTF-8. `note_id`: the id of a
    note, which is not its path. `text_limit`: bytes that its text may have, if the file has more.
    """

    path: str
    blob: str
    size: int
    uncommitted: Literal["", "added", "modified", "unmerged"] = ""
    handwritten: bool = False
    encoding: str = ""
    note_id: str = ""
    text_limit: int = 0

    @property
    def doc_id(self) -> str:
        """The id of the document."""
        return self.note_id or self.path


class LeftOutFile(Record, frozen=True):
    """`reason` completes `PATH is left out: it …`."""

    path: str
    reason: str


class NoDocument(Record, frozen=True):
    """Why a file is no document, completing `it …`. `here`: on another machine it may be one."""

    reason: str
    here: bool = False


class SourceListing(Record, frozen=True):
    """The files of all sources at one place, by collection, each sorted by path.

    `left_out`: files that a source names and that are no documents. `missing`: paths whose blobs
    this clone does not have. `removed`: files of HEAD that the work tree has no more. `untracked`:
    how many files would be of a source if git tracked them. `claims`: the ids in the front matter
    of notes, by blob.
    """

    files: Mapping[str, Sequence[TreeFile]]
    left_out: tuple[LeftOutFile, ...] = ()
    missing: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    untracked: int = 0
    claims: Mapping[str, str] = {}


def compute_token(listing: SourceListing) -> str:
    """Names what is listed, but for the number of untracked files: equal listings have one."""
    counted = msgspec.structs.replace(listing, untracked=0)
    return hashlib.sha256(msgspec.msgpack.encode(counted, order="deterministic")).hexdigest()


_TICK = 50_000_000
_COARSE = 2_000_000_000
"""Nanoseconds within which two changes of a file may have one time; the other for disks that know
seconds only.
"""


class ChangedFile(Record, frozen=True):
    """A file that differs from the index: by git's status, or `?` where git does not track it.

    `listed`: a source names it, or it holds attributes, so each change of it matters. `blob` is
    empty for what was not read.
    """

    path: bytes
    status: str
    listed: bool
    stamp: FileStamp | None
    blob: str


class SeenState(Record, frozen=True):
    """`question`: what was asked; `place`: which index, HEAD and configuration; `storing`: what
    decided blobs. `at`: when, by the disk's clock, in nanoseconds, before a file was read.
    """

    question: str
    place: str
    storing: str
    at: int
    changed: list[ChangedFile]
    token: str


class StoredListing(Record, frozen=True):
    """The listing that `token` names."""

    token: str
    listing: SourceListing


def may_have_changed(stamp: FileStamp, at: int) -> bool:
    """Whether a file with an unchanged stamp may be another one than when it was read after `at`:
    git's racy rule.
    """
    coarse = not any(time % 1_000_000_000 for time in stamp[2:])
    return max(stamp[2:]) >= at - (_COARSE if coarse else _TICK)


def read_seen(cache: Path) -> SeenState | None:
    with contextlib.suppress(OSError, msgspec.MsgspecError, ValueError):
        return msgspec.msgpack.decode(cache.read_bytes(), type=SeenState)
    return None


def read_listing(cache: Path) -> StoredListing | None:
    with contextlib.suppress(OSError, msgspec.MsgspecError, ValueError):
        return msgspec.msgpack.decode(_listing(cache).read_bytes(), type=StoredListing)
    return None


def write_listing(cache: Path, seen: SeenState, listing: SourceListing) -> None:
    """Raises OSError."""
    stored = StoredListing(seen.token, listing)
    write_atomically(_listing(cache), msgspec.msgpack.encode(stored), durable=False)
    write_atomically(cache, msgspec.msgpack.encode(seen), durable=False)


def _listing(cache: Path) -> Path:
    return cache.with_name(f"{cache.name}.listing")
