"""What revisions are called since the knowledge base was migrated to another engine.

Pins of older code commits go on naming revisions of the engine of before. `read_pin` is the one
place where such a name becomes the revision that is here: whatever reads a pin goes through it. The
names lie in a file beside the knowledge base. It is made of the branch `vmrag_migrated`, of rows
that were checked (`ops.remotes.revision_map`).
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path

import msgspec

from vmrag_link import pin as pins
from vmrag_link.engines.base import EngineName, detect_engine
from vmrag_link.errors import PinMalformed
from vmrag_link.paths import PIN_NAME, FileStamp, read_file_stamp, write_atomically
from vmrag_link.pin import Pin

_HEADER = "vmrag-migrated 1"


def read_pin(kb: Path, data: bytes, *, source: str = PIN_NAME) -> Pin:
    """The pin, naming the revision that its own became in the knowledge base of a folder.

    Raises `PinMalformed`, as `pin.parse`.
    """
    pin = pins.parse_pin(data, source=source)
    revision = translate_revision(kb, pin.dolt_commit)
    return pin if revision == pin.dolt_commit else msgspec.structs.replace(pin, dolt_commit=revision)


def try_read_pin(kb: Path, data: bytes | None) -> Pin | None:
    """Return a pin as `read_pin` reads it, or None if there is none that can be read."""
    try:
        return read_pin(kb, data) if data is not None else None
    except PinMalformed:
        return None


def translate_revision(kb: Path, revision: str) -> str:
    """What a revision became in the knowledge base of a folder; itself where it was not
    migrated.
    """
    for engine in MAP_NAMES:
        stamp = read_file_stamp(map_path(kb, engine))
        if stamp is not None and engine == detect_engine(kb):
            return _names(str(map_path(kb, engine)), stamp)[1].get(revision, revision)
    return revision


def map_path(kb: Path, engine: EngineName) -> Path:
    """Where the names lie for a knowledge base of an engine.

    Each has its own: a migration makes it before its knowledge base takes the other one's place.
    """
    return kb / MAP_NAMES[engine]


def read_map_head(kb: Path, engine: EngineName) -> str:
    """The head of `vmrag_migrated` of which the file was made; empty where there is none."""
    stamp = read_file_stamp(map_path(kb, engine))
    return "" if stamp is None else _names(str(map_path(kb, engine)), stamp)[0]


def write_map(kb: Path, engine: EngineName, head: str, names: Mapping[str, str]) -> None:
    lines = [f"{_HEADER} {head}", *(f"{old} {new}" for old, new in sorted(names.items()))]
    write_atomically(map_path(kb, engine), "".join(f"{line}\n" for line in lines).encode())


MAP_NAMES: Mapping[EngineName, str] = {"doltlite": "migrated.doltlite", "dolt": "migrated.dolt"}


@functools.lru_cache(4)
def _names(file: str, _: FileStamp) -> tuple[str, Mapping[str, str]]:
    """The head that a file stands for, and its names. One of another format counts as empty: it
    is made again.
    """
    try:
        first, *lines = Path(file).read_text("ascii").splitlines()
    except (OSError, UnicodeDecodeError, ValueError):
        return "", {}
    if first.rpartition(" ")[0] != _HEADER:
        return "", {}
    return first.rpartition(" ")[2], dict(line.split(" ", 1) for line in lines if " " in line)
