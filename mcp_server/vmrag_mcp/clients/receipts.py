"""What was put into clients' files on this computer, so that exactly that can be taken out again.

A receipt holds no text of a person's file, which may have keys of services in it: only our entry,
what had to be made for it, and the white space that stood there.
"""

from __future__ import annotations

import contextlib
import hashlib
from pathlib import Path
from typing import Any

import msgspec

from vmrag_link.models import Record, json_text
from vmrag_link.paths import write_atomically
from vmrag_mcp.clients.edits import Addition
from vmrag_mcp.clients.settings_file import notes


class InstallReceipt(Record, frozen=True):
    """`new`: there was no file, and for its sake `folders` were made, the innermost first."""

    file: str
    name: str
    entry: dict[str, Any]
    added: Addition
    new: bool = False
    folders: tuple[str, ...] = ()


def find(path: Path, name: str) -> InstallReceipt | None:
    """None: this computer has not put the entry there, or knows no more of it."""
    with contextlib.suppress(OSError, msgspec.DecodeError, UnicodeDecodeError):
        return msgspec.json.decode(_place(path, name).read_bytes(), type=InstallReceipt)
    return None


def keep(receipt: InstallReceipt) -> None:
    write_atomically(_place(Path(receipt.file), receipt.name), json_text(receipt).encode())


def drop(path: Path, name: str) -> None:
    _place(path, name).unlink(missing_ok=True)


def _place(path: Path, name: str) -> Path:
    digest = hashlib.sha256(f"{path}\0{name}".encode(errors="surrogateescape")).hexdigest()
    return notes() / f"{digest[:32]}.json"
