"""The files of sources at a commit or in the work tree, and a record of the latest list.

The record is derived. If it is damaged, it is ignored.
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


class TreeFile(NamedTuple):
    """A file of a source.

    `size` in bytes.
    """

    path: str
    """Path from the top of the repository, with `/`."""
    blob: str
    """Name of its content in git. In the work tree, it is the content that a commit would store,
    according to git's settings and attributes.
    """
    size: int
    uncommitted: Literal["", "added", "modified", "unmerged"] = ""
    """How it differs from HEAD, empty at a commit."""
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
    """The files of all sources at one place, by collection, each sorted by path."""

    files: Mapping[str, Sequence[TreeFile]]
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


_TICK = 50_000_000
_COARSE = 2_000_000_000
"""Nanoseconds within which two changes of a file may have the same time. The second value is for
disks that store seconds only.
"""


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
    at: int
    """The time before the first file was read, by the disk's clock, in nanoseconds."""
    changed: list[ChangedFile]
    token: str
    """`compute_token` of the listing."""


class StoredListing(Record, frozen=True):
    """A listing and its token."""

    token: str
    listing: SourceListing


def may_have_changed(stamp: FileStamp, at: int) -> bool:
    """Return whether a file with an unchanged stamp may have changed since it was read after `at`,
    by git's racy rule.
    """
    coarse = not any(time % 1_000_000_000 for time in stamp[2:])
    return max(stamp[2:]) >= at - (_COARSE if coarse else _TICK)


def read_seen(cache: Path) -> SeenState | None:
    """Return the stored state, or None if it is missing or damaged."""
    with contextlib.suppress(OSError, msgspec.MsgspecError, ValueError):
        return msgspec.msgpack.decode(cache.read_bytes(), type=SeenState)
    return None


def read_listing(cache: Path) -> StoredListing | None:
    """Return the stored listing, or None if it is missing or damaged."""
    with contextlib.suppress(OSError, msgspec.MsgspecError, ValueError):
        return msgspec.msgpack.decode(_listing_path(cache).read_bytes(), type=StoredListing)
    return None


def write_listing(cache: Path, seen: SeenState, listing: SourceListing) -> None:
    """Store a state and its listing. Raises OSError."""
    stored = StoredListing(seen.token, listing)
    write_atomically(_listing_path(cache), msgspec.msgpack.encode(stored), durable=False)
    write_atomically(cache, msgspec.msgpack.encode(seen), durable=False)


def _listing_path(cache: Path) -> Path:
    return cache.with_name(f"{cache.name}.listing")
