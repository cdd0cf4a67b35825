"""The messages between the process that converts files and the process that starts it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from vmrag_link.models import Record


class ConversionTask(Record, frozen=True):
    """A file to convert; its bytes are the next frame. `reader`: as of a `Format`."""

    file_type: str
    charset: str
    reader: str = ""


class ConversionAnswer(Record, frozen=True):
    """What became of a task. `failed` is the reason, with a `hint`; empty: the rest is the result.

    After the `last` one the child ends: it has used too much to go on.
    """

    failed: str = ""
    hint: str = ""
    text: str = ""
    title: str = ""
    metadata: Mapping[str, Any] = {}
    last: bool = False


def encode(message: Record) -> bytes:
    return msgspec.msgpack.encode(message)
