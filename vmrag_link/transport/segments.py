"""A doltlite file cut into segments for git. Most segments stay the same and are transferred only
once.

A ref has one commit per push. Its tree holds `manifest.json` and the segments `000000`, `000001`
and so on, all but the last `segment_size` bytes long. Any pusher may have written them, so
everything is checked before use.
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
from vmrag_link.file_access import require_space
from vmrag_link.git import objects
from vmrag_link.models import Record
from vmrag_link.paths import Places

FORMAT = 1
SEGMENT_SIZE = 256 * 1024
MANIFEST = "manifest.json"
_MAX_SEGMENTS = 999_999
_MAX_SEGMENT_BYTES = 1024 * 1024
_MAX_MANIFEST_BYTES = 1000
"""Limit of a manifest without segments, somewhat more than ours need."""
_MAX_MANIFEST_BYTES_PER_SEGMENT = 100

_SMALL_SEGMENT_BYTES = 16 * 1024
"""vmrag writes no smaller segments. Each segment costs a git process."""
_MAX_SMALL_SEGMENTS = 4096

_SIGNATURE = "vmrag <vmrag@localhost>"


class SegmentManifest(Record, frozen=True):
    """The sizes of the file and of a segment in bytes, and the hashes of the segments.

    The hashes are SHA-256 in lower-case hexadecimal.
    """

    format: int
    size: int
    segment_size: int
    sha256: tuple[str, ...]


def store_file(places: Places, file: Path, parent: str | None, *, segment_size: int = SEGMENT_SIZE) -> str:
    """Write the file as a child of the commit `parent`, and return the new commit.

    The size of its segments is kept and equal segments are shared. Return `parent` itself if
    nothing changed. No ref moves. Raises `RemoteDamaged` if the file does not begin with the
    parent's content: the engine only appends.
    """
    stored = _Stored.read(places, parent) if parent else None
    length = stored.manifest.segment_size if stored else segment_size
    blobs = dict(zip(stored.manifest.sha256, stored.blobs, strict=True)) if stored else {}
    writer = objects.ObjectWriter(places)
    digests, size = [], 0
    with file.open("rb") as source:
        for number, segment in enumerate(_read_pieces(source, length)):
            digest = _hash_segment(segment)
            if stored and not _is_kept(stored.manifest, number, segment, digest):
                raise RemoteDamaged(
                    f"the local copy {file} is damaged; nothing was pushed.",
                    hint="run 'vmrag push' to push the revision",
                )
            if digest not in blobs:
                blobs[digest] = writer.write_blob(segment)
            digests.append(digest)
            size += len(segment)
    if stored and size < stored.manifest.size:
        raise RemoteDamaged(
            f"the end of the local copy {file} is missing; nothing was pushed.",
            hint="run 'vmrag push' to push the revision",
        )
    manifest = SegmentManifest(FORMAT, size, length, tuple(digests))
    if stored and manifest == stored.manifest and parent:
        return parent
    entries = {_segment_name(number): blobs[digest] for number, digest in enumerate(digests)}
    entries[MANIFEST] = writer.write_blob(json.dumps(msgspec.to_builtins(manifest), indent=0).encode())
    return writer.write_commit(entries, parent=parent, message="Knowledge base", signature=_SIGNATURE)


def require_acceptable(places: Places, commit: str, file: Path, *, limits: Limits) -> None:
    """Require that an untrusted commit describes a file within the limits that fits on the disk.

    Call this before any of it is written. Raises `KnowledgeRefused`, `FileFailed` (no room),
    `RemoteDamaged` and `RemoteTooNew`.
    """
    stored = _Stored.read(places, commit)
    manifest = stored.manifest
    if manifest.size > limits.file_bytes:
        raise too_large_error(manifest.size, limits.file_bytes)
    if len(stored.blobs) > _MAX_SMALL_SEGMENTS and manifest.segment_size < _SMALL_SEGMENT_BYTES:
        raise _implausible_error(f"it has {len(stored.blobs):,} segments of {manifest.segment_size:,} bytes")
    lengths = {blob: _segment_length(manifest, number) for number, blob in enumerate(stored.blobs)}
    distinct = sum(lengths.values())
    # Repetitive text produces equal segments. Without this check, a few hundred bytes on the remote
    # could fill the disk.
    if manifest.size - distinct > distinct + limits.text_bytes:
        repetitions = max(Counter(stored.blobs).values())
        raise _implausible_error(
            f"it lists one segment {repetitions:,} times, and only {distinct:,} of its {manifest.size:,} bytes are distinct"
        )
    existing_size = file.stat().st_size if file.exists() else 0
    require_space(file.parent, max(0, manifest.size - existing_size), "the remote's knowledge base")


def restore_file(places: Places, commit: str, file: Path) -> None:
    """Make the file equal to the commit's.

    Only differing segments are read. An interruption leaves a mixture. Raises `RemoteDamaged` for
    anything that `store_file` does not write, and `RemoteTooNew`.
    """
    stored = _Stored.read(places, commit)
    manifest = stored.manifest
    permissions.make_folder(file.parent)
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(file, flags, permissions.choose_file_mode(file))
    permissions.restore_mode(descriptor, file)
    with os.fdopen(descriptor, "r+b") as target:
        missing = dict(enumerate(stored.blobs))
        for number, segment in enumerate(_read_pieces(target, manifest.segment_size)):
            blob = missing.get(number)
            # Check both: the manifest may match the file while the commit holds other data.
            if not blob or _hash_segment(segment) != manifest.sha256[number]:
                continue
            if objects.hash_blob(segment, like=blob) == blob:
                del missing[number]
        for number, segment in _read_segments(places, missing):
            if _hash_segment(segment) != manifest.sha256[number]:
                raise _damage_error(f"segment {_segment_name(number)} does not match its checksum")
            target.seek(number * manifest.segment_size)
            target.write(segment)
        target.truncate(manifest.size)


def begins_with(places: Places, commit: str, file: Path) -> bool:
    """Return whether the file begins with the content of the commit. Raises `RemoteDamaged`."""
    manifest = _Stored.read(places, commit).manifest
    with file.open("rb") as source:
        segments = enumerate(_read_pieces(source, manifest.segment_size))
        is_kept = all(_is_kept(manifest, number, segment, _hash_segment(segment)) for number, segment in segments)
        return is_kept and source.seek(0, os.SEEK_END) >= manifest.size


def _is_kept(manifest: SegmentManifest, number: int, segment: bytes, digest: str) -> bool:
    """Return whether a segment begins with the one in the manifest, if the manifest has one."""
    if number >= len(manifest.sha256):
        return True
    before = manifest.sha256[number]
    length = _segment_length(manifest, number)
    return digest == before or (len(segment) > length and _hash_segment(segment[:length]) == before)


def read_size(places: Places, commit: str) -> int:
    """Return the bytes of the file in a commit. Raises `RemoteDamaged`."""
    return _Stored.read(places, commit).manifest.size


class _Stored(Record, frozen=True):
    """The contents of a commit: the manifest, and the blob of each segment."""

    manifest: SegmentManifest
    blobs: tuple[str, ...]

    @classmethod
    @functools.lru_cache(maxsize=2)
    def read(cls, places: Places, commit: str) -> _Stored:
        """Read a commit once, because its name determines its content. Raises `RemoteDamaged`."""
        tree = objects.read_tree(places, commit)
        entry = tree.pop(MANIFEST, None)
        if entry is None or not 0 <= entry.size <= _limit_manifest(_MAX_SEGMENTS):
            raise _damage_error("its manifest.json is missing or too long")
        manifest = _parse_manifest(objects.read_blob(places, entry.name))
        if entry.size > _limit_manifest(len(tree)):
            raise _damage_error("its manifest is too long")
        expected = {_segment_name(number): _segment_length(manifest, number) for number in range(len(manifest.sha256))}
        actual = {name: segment.size for name, segment in tree.items()}
        if expected != actual:
            differing = sorted(expected.items() ^ actual.items())
            raise _damage_error(f"segment {differing[0][0]} is missing, superfluous, or has a wrong length")
        return cls(manifest, tuple(tree[name].name for name in expected))


class _Format(Record, frozen=True):
    """The part of a manifest that is known in any format."""

    format: int


def _parse_manifest(data: bytes) -> SegmentManifest:
    """Parse a manifest. Raises `RemoteTooNew` for any manifest of a newer program."""
    try:
        header = msgspec.json.decode(data, type=_Format)
        if header.format > FORMAT:
            raise RemoteTooNew(
                f"the remote's knowledge base has format {header.format}; this program supports {FORMAT}. Nothing was fetched.",
                hint="run 'python -m pip install --upgrade vmrag-link' to install a newer vmrag-link",
            )
        manifest = msgspec.json.decode(data, type=SegmentManifest)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _damage_error(f"its manifest cannot be parsed: {error}") from error
    if manifest.format != FORMAT:
        raise _damage_error(f"unknown format {manifest.format}")
    fits = 0 < manifest.segment_size <= _MAX_SEGMENT_BYTES and manifest.size > 0
    if not fits or len(manifest.sha256) != -(-manifest.size // manifest.segment_size) <= _MAX_SEGMENTS:
        raise _damage_error("its manifest is inconsistent")
    return manifest


def _limit_manifest(segments: int) -> int:
    return _MAX_MANIFEST_BYTES + _MAX_MANIFEST_BYTES_PER_SEGMENT * segments


def _segment_length(manifest: SegmentManifest, number: int) -> int:
    return min(manifest.segment_size, manifest.size - number * manifest.segment_size)


def _hash_segment(segment: bytes) -> str:
    return hashlib.sha256(segment).hexdigest()


def _read_pieces(source: BinaryIO, length: int) -> Iterator[bytes]:
    while segment := source.read(length):
        yield segment


def _read_segments(places: Places, blobs: Mapping[int, str]) -> Iterator[tuple[int, bytes]]:
    contents = objects.read_blobs(places, blobs.values())
    yield from zip(blobs, contents, strict=True)


def _segment_name(number: int) -> str:
    return f"{number:06d}"


def _implausible_error(why: str) -> KnowledgeRefused:
    return KnowledgeRefused(
        f"refused the knowledge base on the remote: {why}. Nothing was fetched.",
        hint="ask who pushed it, or run 'vmrag gc --remote --apply' in a sound clone to replace it",
    )


def _damage_error(why: str) -> RemoteDamaged:
    return RemoteDamaged(
        f"the knowledge base on the remote is damaged: {why}. Nothing was fetched.",
        hint="run 'vmrag gc --remote --apply' in a sound clone to replace it",
    )
