"""The entries of a settings file, and a record of them in the git directory.

A command that reads an unchanged file does not parse it again, because loading YAML takes longer
than all other work on settings.
"""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Sequence
from pathlib import Path

import msgspec

from vmrag_link import __version__
from vmrag_link.file_access import read_regular, write_atomically
from vmrag_link.models import Record

MAX_BYTES = 64 * 1024
"""Maximum size of a settings file."""

_MAX_RECORD = 20 * MAX_BYTES
_RULES = 1
"""Raise this number if the same file gives other entries than before."""


class SettingEntry(Record, frozen=True):
    """The value of one key in the file.

    `retrieval: {k: 4}` and `retrieval.k: 4` both have the key `retrieval.k`.
    """

    key: str
    text: str | None
    """The value as it is written, or None at the beginning of a section. The values of a list have
    commas between them, or are JSON if they are sections.
    """
    quoted: bool
    line: int
    """The line, from 1."""
    listed: bool = False
    section: str = ""
    """The section around the entry; an empty text without one."""

    def format_key(self, name: str) -> str:
        """Return the key for a setting in this section."""
        section, _, leaf = name.rpartition(".")
        return leaf if self.section and self.section == section else name


class _ParsedFile(Record, frozen=True):
    """The entries of a file with these bytes, by the parser of one version of vmrag."""

    parser: str
    data: bytes
    entries: list[SettingEntry]


_PARSER = f"{__version__}.{_RULES}"


def recall_entries(record: Path, data: bytes) -> list[SettingEntry] | None:
    """Return the recorded entries of a file with these bytes, or None if there is no such record.

    A damaged record is ignored.
    """
    with contextlib.suppress(OSError, msgspec.MsgspecError, ValueError):
        content = read_regular(record, _MAX_RECORD)
        parsed = msgspec.msgpack.decode(content[4:], type=_ParsedFile)
        if parsed.parser == _PARSER and parsed.data == data and _compute_checksum(content[4:]) == content[:4]:
            return parsed.entries
    return None


def record_entries(record: Path, data: bytes, entries: Sequence[SettingEntry]) -> None:
    """Write the record if its folder exists.

    Failures are ignored, because nothing depends on the record.
    """
    with contextlib.suppress(OSError):
        if record.parent.is_dir() and not record.parent.is_symlink():
            content = msgspec.msgpack.encode(_ParsedFile(_PARSER, data, [*entries]))
            write_atomically(record, _compute_checksum(content) + content, durable=False)


def _compute_checksum(content: bytes) -> bytes:
    return zlib.crc32(content).to_bytes(4)
