"""The blobs that git would store for files on disk, computed without git.

`survey` and `work_tree` compare changed files by these blobs. git's configuration and the
`.gitattributes` files of the whole work tree decide about line ends and encodings, so
`read_storing_rules` reads them once, and then `StoringRules.hash_file` reads any number of files.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from vmrag_link.conversion.limits import ContentUnreadable
from vmrag_link.file_access import FileStamp
from vmrag_link.git import configuration, raw_changes
from vmrag_link.git.objects import hash_blob
from vmrag_link.git.raw_changes import REGULAR
from vmrag_link.paths import Places
from vmrag_link.sources import attributes, rules
from vmrag_link.sources.attributes import TreeAttributes
from vmrag_link.sources.commit_files import read_attribute_files
from vmrag_link.sources.disk import Disk, convert_to_stored


class HashedFile(NamedTuple):
    """A file on disk, as git would store it."""

    stamp: FileStamp | None
    """The stamp when its bytes were read. None for a missing file."""
    blob: str
    """Empty if the file cannot be read or converted."""
    size: int
    flaw: str = ""
    """Why it cannot be read or converted, or an empty text."""


class StoringRules(NamedTuple):
    """All that decides which blob git would store for a file."""

    attribute_files: Mapping[str, bytes]
    """Contents of the tracked `.gitattributes` files, by path."""
    attribute_blobs: Mapping[str, str]
    """Blobs of those that differ from the index, by path. No rule converts these."""
    attributes: TreeAttributes
    autocrlf: str
    """The setting `core.autocrlf`, or an empty text."""
    sample_name: str
    """A text with the length of the repository's object names."""
    digest: str
    """Text that identifies these rules. Under equal rules, equal files have equal blobs."""

    def hash_file(self, disk: Disk, path: str, max_bytes: int) -> HashedFile:
        """Read a file now, and return its blob or the flaw. `max_bytes`: limit for its text."""
        try:
            data, state = disk.read_file(path, rules.get_byte_limit(path, max_bytes))
            stored = convert_to_stored(data, self.attributes.get_values(path), self.autocrlf)
        except ContentUnreadable as error:
            flaw = str(error)
        except (OSError, ValueError) as error:
            flaw = f"cannot be read: {error.strerror if isinstance(error, OSError) else error}"
        else:
            return HashedFile(state.stamp, hash_blob(stored, like=self.sample_name), len(stored))
        return HashedFile(disk.read_stamp(path), "", 0, flaw)


def read_storing_rules(places: Places, disk: Disk, statuses: Mapping[str, str]) -> StoringRules:
    """Read the configuration, and the attribute files of the work tree.

    `statuses`: git's statuses of the files that differ from the index. An attribute file that is
    missing on disk is read from the index. Raises `GitFailed` and `LimitExceeded`.
    """
    contents: dict[str, bytes] = {}
    indexed: dict[str, str] = {}
    for entry in raw_changes.list_entries(places, (attributes.PATHSPEC,)):
        if entry.mode not in REGULAR:
            continue
        if statuses.get(entry.path, "D") == "D":
            indexed[entry.path] = entry.blob
        else:
            contents[entry.path] = _read_attribute_file(disk, entry.path)
    attributes.require_few_bytes(sum(map(len, contents.values())))
    sample_name = get_sample_name(places)
    blobs = {path: hash_blob(content, like=sample_name) for path, content in contents.items()}
    contents |= read_attribute_files(places, indexed)
    autocrlf = dict(configuration.list_entries(places)).get("core.autocrlf", "")
    encoded = msgspec.msgpack.encode([autocrlf, [(os.fsencode(path), content) for path, content in contents.items()]])
    return StoringRules(
        attribute_files=contents,
        attribute_blobs=blobs,
        attributes=TreeAttributes(contents, attributes.FOR_STORING),
        autocrlf=autocrlf,
        sample_name=sample_name,
        digest=hashlib.sha256(encoded).hexdigest(),
    )


def _read_attribute_file(disk: Disk, path: str) -> bytes:
    """Return an attribute file on disk. Like git, treat an unreadable file as empty."""
    try:
        return disk.read_file(path, attributes.MAX_FILE_BYTES)[0]
    except OSError:
        return b""


def get_sample_name(places: Places) -> str:
    """Return a text with the length of the repository's object names, which shows their hash
    function.
    """
    return "0" * (64 if configuration.read_object_format(places) == "sha256" else 40)
