"""A file cut into segments for git; most stay the same from push to push and travel once.

A ref has one commit per push. Its tree holds `manifest.json` and the segments `000000`, `000001` …,
all but the last `segment_size` bytes long. Any pusher may have written them, so nothing is believed
before it was measured.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

import msgspec

from vmrag_link import permissions
from vmrag_link.engines.limits import Limits, too_large_error
from vmrag_link.errors import KnowledgeRefused, RemoteDamaged, RemoteTooNew
from vmrag_link.git import objects
from vmrag_link.models import Record
from vmrag_link.paths import Places, require_space

FORMAT = 1
SEGMENT_SIZE = 256 * 1024
MANIFEST = "manifest.json"
MOST_SEGMENTS = 999_999
_MOST_SEGMENT_SIZE = 1024 * 1024
_MOST_MANIFEST = (1000, 100)
"""Bytes, and bytes a segment: somewhat more than one has."""

_MANY, _SMALL = 4096, 16 * 1024
"""The limit for segments smaller than so many bytes: each costs a git process, and we write none.
"""

_SIGNATURE = "vmrag <vmrag@localhost>"


class SegmentManifest(Record, frozen=True):
    """`size` of the file and of a segment in bytes; SHA-256 of each segment, lower-case
    hexadecimal.
    """

    format: int
    size: int
    segment_size: int
    sha256: tuple[str, ...]


def store_file(places: Places, file: Path, parent: str | None, *, segment_size: int = SEGMENT_SIZE) -> str:
    """Write the file as a child of the commit `parent`, whose size of segments is kept and whose
    segments are shared.

    Returns the commit, or `parent` itself if nothing changed. No ref moves. Raises `RemoteDamaged`
    if the file does not begin with what the parent holds: the engine only appends.
    """
    stored = _Stored.read(places, parent) if parent else None
    length = stored.manifest.segment_size if stored else segment_size
    blobs = dict(zip(stored.manifest.sha256, stored.blobs, strict=True)) if stored else {}
    writer = objects.ObjectWriter(places)
    digests, size = [], 0
    with file.open("rb") as source:
        for number, segment in enumerate(_pieces(source, length)):
            digest = _digest(segment)
            if stored and not _is_kept(stored.manifest, number, segment, digest):
                raise RemoteDamaged(f"{file} is damaged here; nothing was pushed.", hint="vmrag push")
            if digest not in blobs:
                blobs[digest] = writer.write_blob(segment)
            digests.append(digest)
            size += len(segment)
    if stored and size < stored.manifest.size:
        raise RemoteDamaged(f"{file} was cut off here; nothing was pushed.", hint="vmrag push")
    manifest = SegmentManifest(FORMAT, size, length, tuple(digests))
    if stored and manifest == stored.manifest and parent:
        return parent
    entries = {_name(number): blobs[digest] for number, digest in enumerate(digests)}
    entries[MANIFEST] = writer.write_blob(json.dumps(msgspec.to_builtins(manifest), indent=0).encode())
    return writer.write_commit(entries, parent=parent, message="Knowledge base", signature=_SIGNATURE)


def require_acceptable(places: Places, commit: str, file: Path, *, limits: Limits) -> None:
    """Require that a stranger's commit describes a file within the limits, for which the disk has
    room.

    Called before any of it is written. Raises `KnowledgeRefused`, `FileFailed` (no room), and as
    `restore`.
    """
    stored = _Stored.read(places, commit)
    manifest = stored.manifest
    if manifest.size > limits.file_bytes:
        raise too_large_error(manifest.size, limits.file_bytes)
    if len(stored.blobs) > _MANY and manifest.segment_size < _SMALL:
        raise _implausible(f"it is cut into {len(stored.blobs):,} segments of {manifest.segment_size:,} bytes")
    distinct = sum({blob: _length(manifest, number) for number, blob in enumerate(stored.blobs)}.values())
    # A text that repeats itself makes equal segments. A few hundred bytes on the remote would fill
    # the disk that way.
    if manifest.size - distinct > distinct + limits.text_bytes:
        most = max(Counter(stored.blobs).values())
        raise _implausible(
            f"it lists one segment {most:,} times, and has {distinct:,} bytes that differ of {manifest.size:,}"
        )
    held = file.stat().st_size if file.exists() else 0
    require_space(file.parent, max(0, manifest.size - held), "the remote's knowledge base")


def restore_file(places: Places, commit: str, file: Path) -> None:
    """Make the file equal to the commit's.

    Only differing segments are read; an interruption leaves a mixture. Raises `RemoteDamaged` for
    anything that `store` does not write, `RemoteTooNew`.
    """
    stored = _Stored.read(places, commit)
    manifest = stored.manifest
    permissions.make_folder(file.parent)
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(file, flags, permissions.choose_file_mode(file))
    permissions.restore_mode(descriptor, file)
    with os.fdopen(descriptor, "r+b") as target:
        wanted = dict(enumerate(stored.blobs))
        for number, segment in enumerate(_pieces(target, manifest.segment_size)):
            blob = wanted.get(number)
            # Both: the manifest may be right about what lies here, and the commit hold something
            # else.
            if blob and _digest(segment) == manifest.sha256[number] and objects.hash_blob(segment, like=blob) == blob:
                del wanted[number]
        for number, segment in _segments(places, wanted):
            if _digest(segment) != manifest.sha256[number]:
                raise _damage_error(f"segment {_name(number)} is not the one that its checksum names")
            target.seek(number * manifest.segment_size)
            target.write(segment)
        target.truncate(manifest.size)


def begins_with(places: Places, commit: str, file: Path) -> bool:
    """Return whether the file begins with what the commit holds. Raises `RemoteDamaged`."""
    manifest = _Stored.read(places, commit).manifest
    with file.open("rb") as source:
        pieces = enumerate(_pieces(source, manifest.segment_size))
        kept = all(_is_kept(manifest, number, segment, _digest(segment)) for number, segment in pieces)
        return kept and source.seek(0, os.SEEK_END) >= manifest.size


def _is_kept(manifest: SegmentManifest, number: int, segment: bytes, digest: str) -> bool:
    """Return whether a segment begins with the one that the manifest has, if it has one."""
    if number >= len(manifest.sha256):
        return True
    before, length = manifest.sha256[number], _length(manifest, number)
    return digest == before or (len(segment) > length and _digest(segment[:length]) == before)


def read_size(places: Places, commit: str) -> int:
    """Bytes of the file that a commit holds. Raises `RemoteDamaged`."""
    return _Stored.read(places, commit).manifest.size


class _Stored(Record, frozen=True):
    """What a commit holds: the manifest, and the blob of each segment."""

    manifest: SegmentManifest
    blobs: tuple[str, ...]

    @classmethod
    @functools.lru_cache(maxsize=2)
    def read(cls, places: Places, commit: str) -> _Stored:
        """Read a commit once: its name decides its content. Raises `RemoteDamaged`."""
        tree = objects.read_tree(places, commit)
        entry = tree.pop(MANIFEST, None)
        if entry is None or not 0 <= entry.size <= _longest_manifest(MOST_SEGMENTS):
            raise _damage_error("it has no manifest.json, or one that is too long")
        manifest = _parse_manifest(objects.read_blob(places, entry.name))
        if entry.size > _longest_manifest(len(tree)):
            raise _damage_error("its manifest is too long")
        expected = {_name(number): _length(manifest, number) for number in range(len(manifest.sha256))}
        if expected != {name: each.size for name, each in tree.items()}:
            odd = sorted(set(expected.items()) ^ {(name, each.size) for name, each in tree.items()})
            raise _damage_error(f"segment {odd[0][0]} is missing, is too much, or has another length")
        return cls(manifest, tuple(tree[name].name for name in expected))


class _Format(Record, frozen=True):
    """All that is known of a manifest of any format."""

    format: int


def _parse_manifest(data: bytes) -> SegmentManifest:
    """Raises `RemoteTooNew`, whatever else a newer program's manifest says."""
    try:
        known = msgspec.json.decode(data, type=_Format)
        if known.format > FORMAT:
            raise RemoteTooNew(
                f"The remote's knowledge base has format {known.format}; this program knows {FORMAT}. Nothing of it was taken.",
                hint="Install a newer vmrag-link: python -m pip install --upgrade vmrag-link",
            )
        manifest = msgspec.json.decode(data, type=SegmentManifest)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _damage_error(f"its manifest cannot be read: {error}") from error
    if manifest.format != FORMAT:
        raise _damage_error(f"there is no format {manifest.format}")
    fits = 0 < manifest.segment_size <= _MOST_SEGMENT_SIZE and manifest.size > 0
    if not fits or len(manifest.sha256) != -(-manifest.size // manifest.segment_size) <= MOST_SEGMENTS:
        raise _damage_error("its manifest contradicts itself")
    return manifest


def _longest_manifest(segments: int) -> int:
    return _MOST_MANIFEST[0] + _MOST_MANIFEST[1] * segments


def _length(manifest: SegmentManifest, number: int) -> int:
    return min(manifest.segment_size, manifest.size - number * manifest.segment_size)


def _digest(segment: bytes) -> str:
    return hashlib.sha256(segment).hexdigest()


def _pieces(source: BinaryIO, length: int) -> Iterator[bytes]:
    while segment := source.read(length):
        yield segment


def _segments(places: Places, wanted: Mapping[int, str]) -> Iterator[tuple[int, bytes]]:
    contents = objects.read_blobs(places, wanted.values())
    yield from zip(wanted, contents, strict=True)


def _name(number: int) -> str:
    return f"{number:06d}"


def _implausible(why: str) -> KnowledgeRefused:
    return KnowledgeRefused(
        f"The knowledge base on the remote was refused: {why}. Nothing of it was taken.",
        hint="Ask who pushed it. Somebody with a sound clone can put theirs there: vmrag gc --remote --apply",
    )


def _damage_error(why: str) -> RemoteDamaged:
    return RemoteDamaged(
        f"The knowledge base on the remote is damaged: {why}. Nothing of it was taken.",
        hint="Somebody with a sound clone can put theirs there: vmrag gc --remote --apply",
    )
