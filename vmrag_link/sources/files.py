"""Which files a source has, at a commit or in the work tree."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import msgspec

from vmrag_link.models import Record


class TreeFile(NamedTuple):
    """A file of a source.

    `path`: below the top of the repository, with `/`. `blob`: how git names what it holds; in the
    work tree of what would be committed now, as far as git's settings and attributes decide it.
    `size` in bytes. `uncommitted`: how it differs from HEAD, which is empty at a commit.
    `handwritten`: attributes say that nothing generated it, whatever it looks like. `encoding`:
    that of the file on the disk, where attributes name one; blobs are UTF-8.
    """

    path: str
    blob: str
    size: int
    uncommitted: Literal["", "added", "modified", "unmerged"] = ""
    handwritten: bool = False
    encoding: str = ""


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
    how many files would be of a source if git tracked them.
    """

    files: Mapping[str, Sequence[TreeFile]]
    left_out: tuple[LeftOutFile, ...] = ()
    missing: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    untracked: int = 0


def token_of(listing: SourceListing) -> str:
    """Names what is listed, but for the number of untracked files: equal listings have one."""
    counted = msgspec.structs.replace(listing, untracked=0)
    return hashlib.sha256(msgspec.msgpack.encode(counted, order="deterministic")).hexdigest()
