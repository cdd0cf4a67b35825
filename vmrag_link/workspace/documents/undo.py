"""Keep texts of notes that are replaced or deleted before git has them, for `vmrag restore --undo`.

`note_files` calls `keep_text` before it changes a file. Texts are kept for 30 days, up to 100 MB in
total. Each text is a file that contains a `KeptNote`:

    .git/vmrag/undo/<time in ns>-<random>
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from vmrag_link.file_access import write_atomically
from vmrag_link.models import Record
from vmrag_link.paths import Places

MAX_AGE_NS = 30 * 24 * 3600 * 1_000_000_000
MAX_TOTAL_BYTES = 100_000_000


class KeptNote(Record, frozen=True):
    """A file of a note, as it was before a command replaced or deleted it."""

    collection: str
    doc_id: str
    path: str
    """From the top of the repository."""
    data: bytes
    git_dir: str = ""
    """Git's folder of the work tree; empty in files of earlier programs."""


def keep_text(places: Places, note: KeptNote) -> None:
    """Keep a text. It survives a power cut. Raises `OSError`."""
    name = f"{time.time_ns():020d}-{os.urandom(4).hex()}"
    write_atomically(_undo_folder(places) / name, msgspec.msgpack.encode(note))
    _prune_texts(places)


def list_kept_notes(places: Places) -> Iterator[tuple[Path, KeptNote]]:
    """Yield the kept texts of this work tree and of removed work trees, newest first.

    Damaged files are left out.
    """
    for path in _list_files(places):
        with contextlib.suppress(OSError, msgspec.MsgspecError, UnicodeDecodeError):
            note = msgspec.msgpack.decode(path.read_bytes(), type=KeptNote)
            if note.git_dir in ("", str(places.git_dir)) or not Path(note.git_dir).is_dir():
                yield path, note


def _undo_folder(places: Places) -> Path:
    return places.shared / "undo"


def _list_files(places: Places) -> list[Path]:
    """Return the files of kept texts, newest first."""
    try:
        return sorted((path for path in _undo_folder(places).iterdir() if path.name[:1].isdigit()), reverse=True)
    except (FileNotFoundError, NotADirectoryError):
        return []


def _prune_texts(places: Places) -> None:
    """Delete texts above the limits of age and size. Other processes may delete the same files."""
    oldest = time.time_ns() - MAX_AGE_NS
    size = 0
    for path in _list_files(places):
        with contextlib.suppress(OSError, ValueError):
            size += path.stat().st_size
            if size > MAX_TOTAL_BYTES or int(path.name.partition("-")[0]) < oldest:
                path.unlink()
