"""The messages between the process that converts files and the process that starts it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from vmrag_link.models import Record


class ConversionTask(Record, frozen=True):
    """A file to convert. Its bytes are the next frame."""

    file_type: str
    charset: str
    reader: str = ""
    """See `Format.reader`."""


class ConversionAnswer(Record, frozen=True):
    """The result of a task."""

    failed: str = ""
    """Why the conversion failed, to follow the name of the file; empty if it succeeded."""

    hint: str = ""
    text: str = ""
    title: str = ""
    metadata: Mapping[str, Any] = {}
    last: bool = False
    """True if the child ends after this answer, because it has used too much memory."""


def encode(message: Record) -> bytes:
    return msgspec.msgpack.encode(message)
