"""Names of revisions after a migration to another engine.

Pins of older code commits still contain revisions of the previous engine. `read_pin` is the only
place that translates such a revision to the current one, so all code that reads a pin calls it. The
names are in a file next to the knowledge base. It is built from the branch `vmrag_migrated`, from
rows that were checked (`workspace.remotes.revision_map`).
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from vmrag_link import pin as pins
from vmrag_link.engines.folder import EngineName, detect_engine
from vmrag_link.errors import PinMalformed
from vmrag_link.file_access import FileStamp, read_file_stamp, write_atomically
from vmrag_link.paths import PIN_NAME
from vmrag_link.pin import Pin

_HEADER = "vmrag-migrated 1"

MAP_NAMES: Mapping[EngineName, str] = {"doltlite": "migrated.doltlite", "dolt": "migrated.dolt"}
"""The files with the names, by engine of the knowledge base."""


def read_pin(kb: Path, data: bytes, *, source: str = PIN_NAME) -> Pin:
    """Parse a pin, and translate its revision to the one in the knowledge base of a folder.

    Raises `PinMalformed`.
    """
    pin = pins.parse_pin(data, source=source)
    revision = translate_revision(kb, pin.dolt_commit)
    return pin if revision == pin.dolt_commit else msgspec.structs.replace(pin, dolt_commit=revision)


def try_read_pin(kb: Path, data: bytes | None) -> Pin | None:
    """Return the pin, or None if there is none that can be parsed."""
    try:
        return read_pin(kb, data) if data is not None else None
    except PinMalformed:
        return None


def translate_revision(kb: Path, revision: str) -> str:
    """Return the revision that replaced this one in the knowledge base of a folder.

    Return the revision itself if it was not migrated.
    """
    for engine in MAP_NAMES:
        stamp = read_file_stamp(map_path(kb, engine))
        if stamp is not None and engine == detect_engine(kb):
            return _read_map(map_path(kb, engine), stamp).names.get(revision, revision)
    return revision


def map_path(kb: Path, engine: EngineName) -> Path:
    """Return the path of the file with the names for a knowledge base of an engine.

    Each engine has its own file: a migration writes it before the new knowledge base replaces the
    old one.
    """
    return kb / MAP_NAMES[engine]


def read_map_head(kb: Path, engine: EngineName) -> str:
    """Return the head of `vmrag_migrated` from which the file was built, or an empty text."""
    stamp = read_file_stamp(map_path(kb, engine))
    return "" if stamp is None else _read_map(map_path(kb, engine), stamp).head


def write_map(kb: Path, engine: EngineName, head: str, names: Mapping[str, str]) -> None:
    lines = [f"{_HEADER} {head}", *(f"{old} {new}" for old, new in sorted(names.items()))]
    write_atomically(map_path(kb, engine), "".join(f"{line}\n" for line in lines).encode())


class _Map(NamedTuple):
    head: str = ""
    """The head of `vmrag_migrated` from which the file was built."""
    names: Mapping[str, str] = {}
    """The new name of each revision."""


@functools.lru_cache(4)
def _read_map(path: Path, _: FileStamp) -> _Map:
    """Return the content of a file, empty for a file of another format, which will be rebuilt."""
    try:
        first, *lines = path.read_text("ascii").splitlines()
    except (OSError, UnicodeDecodeError, ValueError):
        return _Map()
    format_name, head = first.rpartition(" ")[::2]
    if format_name != _HEADER:
        return _Map()
    return _Map(head, dict(line.split(" ", 1) for line in lines if " " in line))
