"""One bit of a file."""

from __future__ import annotations

import json
import os
from pathlib import Path

from vmrag_link.index import seal


def flip(path: Path, byte: int, bit: int) -> None:
    """Change it in place. The times of the file stay as they are: so does a disk that forgets."""
    before = path.stat()
    with path.open("r+b") as file:
        file.seek(byte)
        [value] = file.read(1)
        file.seek(byte)
        file.write(bytes([value ^ (1 << bit)]))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def mark_verified(index: Path) -> None:
    """Mark an index's files as verified: the damage happened while the machine ran, and did not
    change their times.
    """
    proven = json.loads((index / seal.VERIFIED).read_text())
    proven["files"] = {name: _identity(index / name) for name in proven["files"]}
    (index / seal.VERIFIED).write_text(json.dumps(proven))


def simulate_reboot(index: Path) -> None:
    """Simulate a reboot of the machine since the index was verified."""
    proven = json.loads((index / seal.VERIFIED).read_text())
    (index / seal.VERIFIED).write_text(json.dumps(proven | {"boot": "an earlier one"}))


def _identity(path: Path) -> list[int]:
    status = path.stat()
    return [status.st_ino, status.st_mtime_ns, status.st_ctime_ns]
