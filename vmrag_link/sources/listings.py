"""Listings: the files of all sources at a commit or in the work tree, and the cached listing of the
work tree.

`commit_files` and `work_tree` build listings. The cache is two files: `SeenState`, with which
`work_tree` finds out cheaply whether anything changed, and the listing itself. A damaged cache is
ignored.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from vmrag_link.file_access import FileStamp, write_atomically
from vmrag_link.models import Record

Uncommitted = Literal["", "added", "modified", "unmerged"]
"""How a file differs from HEAD. Empty for an equal file, and for all files of a commit."""

_SECOND_NS = 1_000_000_000
_TICK_NS = 50_000_000
"""Nanoseconds within which two changes of a file may have the same time."""

_COARSE_TICK_NS = 2 * _SECOND_NS
"""The same for disks that store only seconds."""


class TreeFile(NamedTuple):
    """A file of a source."""

    path: str
    """Path from the top of the repository, with `/`."""
    blob: str
    """Name of its content in git. In the work tree, it is the content that a commit would store,
    according to git's settings and attributes.
    """
    size: int
    """Bytes of the blob."""
    uncommitted: Uncommitted = ""
    handwritten: bool = False
    """True if attributes mark it as not generated, even if it looks generated."""
    encoding: str = ""
    """The encoding on disk, if attributes name one. Blobs are UTF-8."""
    note_id: str = ""
    """The id of a note, if it is not its path."""
    text_limit: int = 0
    """Maximum bytes of its text, if the file has more."""

    @property
    def doc_id(self) -> str:
        """The id of the document."""
        return self.note_id or self.path


class LeftOutFile(Record, frozen=True):
    """A file that a source names and that is not a document. `reason` completes `PATH is left out:
    it …`.
    """

    path: str
    reason: str


class NoDocument(Record, frozen=True):
    """Why a file is not a document: `reason` completes `it …`."""

    reason: str
    is_local: bool = msgspec.field(default=False, name="here")
    """True if the reason is limited to this machine."""


class SourceListing(Record, frozen=True):
    """The files of all sources at one commit or in the work tree."""

    files: Mapping[str, Sequence[TreeFile]]
    """The documents by collection, each sorted by path."""
    left_out: tuple[LeftOutFile, ...] = ()
    """Files that a source names and that are not documents."""
    missing: tuple[str, ...] = ()
    """Paths whose blobs are missing in this clone."""
    removed: tuple[str, ...] = ()
    """Files of HEAD that are missing in the work tree."""
    untracked: int = 0
    """Number of files that would belong to a source if git tracked them."""
    claims: Mapping[str, str] = {}
    """The ids in the front matter of notes, by blob."""


def compute_token(listing: SourceListing) -> str:
    """Return a text that identifies the listing, regardless of the number of untracked files. Equal
    listings have equal tokens.
    """
    counted = msgspec.structs.replace(listing, untracked=0)
    return hashlib.sha256(msgspec.msgpack.encode(counted, order="deterministic")).hexdigest()


class ChangedFile(Record, frozen=True):
    """A file that differs from the index."""

    path: bytes
    status: str
    """Status in git, or `?` for an untracked file."""
    listed: bool
    """True if a source names it, or it contains attributes, so each change of it matters."""
    stamp: FileStamp | None
    blob: str
    """Empty for a file that was not read."""


class SeenState(Record, frozen=True):
    """All that decides about a listing. While nothing of it changes, the listing is valid."""

    snapshot: str
    """Text that identifies index, HEAD, configuration and the arguments of the listing."""
    storing: str
    """Text that identifies the rules by which git stores files (`stored_blobs.StoringRules`)."""
    started: int
    """The time before the first file was read, by the disk's clock, in nanoseconds."""
    changed: list[ChangedFile]
    token: str
    """`compute_token` of the listing."""


class StoredListing(Record, frozen=True):
    """A listing and its token."""

    token: str
    listing: SourceListing


def may_have_changed(stamp: FileStamp, read_at: int) -> bool:
    """Return whether a file that still has this stamp may have changed since it was read.

    This is git's racy rule: a change within the same tick of the disk's clock leaves the times
    equal. `read_at`: a time of the disk's clock before the file was read, in nanoseconds.
    """
    times = stamp[2:]
    is_coarse = all(time % _SECOND_NS == 0 for time in times)
    return max(times) >= read_at - (_COARSE_TICK_NS if is_coarse else _TICK_NS)


def read_seen(cache: Path) -> SeenState | None:
    """Return the record of the cached listing, or None if it is missing or damaged."""
    with contextlib.suppress(OSError, msgspec.MsgspecError, ValueError):
        return msgspec.msgpack.decode(cache.read_bytes(), type=SeenState)
    return None


def read_listing(cache: Path) -> StoredListing | None:
    """Return the cached listing, or None if it is missing or damaged."""
    with contextlib.suppress(OSError, msgspec.MsgspecError, ValueError):
        return msgspec.msgpack.decode(_listing_path(cache).read_bytes(), type=StoredListing)
    return None


def write_listing(cache: Path, seen: SeenState, listing: SourceListing) -> None:
    """Replace the cached listing and its record. Raises OSError."""
    stored = StoredListing(seen.token, listing)
    write_atomically(_listing_path(cache), msgspec.msgpack.encode(stored), durable=False)
    write_atomically(cache, msgspec.msgpack.encode(seen), durable=False)


def _listing_path(cache: Path) -> Path:
    return cache.with_name(f"{cache.name}.listing")
