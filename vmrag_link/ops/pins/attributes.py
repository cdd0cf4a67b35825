"""The line of `.gitattributes` by which our driver merges the pin; without it git does, by line."""

from __future__ import annotations

from pathlib import Path

from vmrag_link.git import pin_merge, plumbing
from vmrag_link.models import Record
from vmrag_link.paths import Places, require_files, write_atomically

ATTRIBUTES = ".gitattributes"


class Attributes(Record, frozen=True):
    """What became of `.gitattributes`; `edited`: it has changes of the user's that are not staged.

    Then it is not staged here, and neither where git was busy.
    """

    written: bool
    edited: bool
    staged: bool


def send_to_driver(places: Places) -> Attributes:
    """Have git merge the pin by our driver, and stage that, unless the user has edited the file.

    Raises `FileFailed` for a link in its place: the file would be what a stranger's link leads to.
    """
    path = places.top / ATTRIBUTES
    require_files(path)
    before = path.read_bytes() if path.exists() else b""
    if pin_merge.names_driver(before):
        return Attributes(written=False, edited=False, staged=True)
    edited = before != (plumbing.blob(places, f":{ATTRIBUTES}") or b"")
    _append(path, before)
    return Attributes(written=True, edited=edited, staged=not edited and plumbing.stage(places, path))


def _append(path: Path, before: bytes) -> None:
    line_end = b"" if not before or before.endswith(b"\n") else b"\n"
    write_atomically(path, before + line_end + pin_merge.ATTRIBUTE.encode() + b"\n")
