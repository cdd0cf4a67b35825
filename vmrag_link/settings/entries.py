"""What a settings file states, key by key, and a record of it beside the work tree.

A command that reads an unchanged file does not parse it again: to load YAML takes longer than all
else that happens to settings.
"""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Sequence
from pathlib import Path

import msgspec

from vmrag_link import __version__
from vmrag_link.models import Record
from vmrag_link.paths import read_regular, write_atomically

MAX_BYTES = 64 * 1024
"""Largest settings file that is read."""

_MAX_RECORD = 20 * MAX_BYTES
_RULES = 1
"""Raise this number if the same file gives other entries than before."""


class SettingEntry(Record, frozen=True):
    """What the file says about one key: `retrieval: {k: 4}` and `retrieval.k: 4` both give the key
    `retrieval.k`.

    `text` is the value as written, None where a section begins, with commas between the values of
    a `listed` one, and JSON where these are sections themselves; `line` counts from 1. `section`:
    below which it stands, empty for none.
    """

    key: str
    text: str | None
    quoted: bool
    line: int
    listed: bool = False
    section: str = ""

    def format_key(self, name: str) -> str:
        """A setting as it has to be written in this place."""
        section, _, leaf = name.rpartition(".")
        return leaf if self.section and self.section == section else name


class _ParsedFile(Record, frozen=True):
    """The entries of a file with these bytes, by the parser of one version of the program."""

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
        if parsed.parser == _PARSER and parsed.data == data and _checksum(content[4:]) == content[:4]:
            return parsed.entries
    return None


def record_entries(record: Path, data: bytes, entries: Sequence[SettingEntry]) -> None:
    """Write the record if its folder exists. Nothing depends on that: a failure is ignored."""
    with contextlib.suppress(OSError):
        if record.parent.is_dir() and not record.parent.is_symlink():
            content = msgspec.msgpack.encode(_ParsedFile(_PARSER, data, [*entries]))
            write_atomically(record, _checksum(content) + content, durable=False)


def _checksum(content: bytes) -> bytes:
    return zlib.crc32(content).to_bytes(4)
