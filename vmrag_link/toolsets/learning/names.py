"""Names in calls and on command lines: lists of them, and of files as the repository knows them."""

from __future__ import annotations

import os.path
from collections.abc import Iterable
from pathlib import Path


def split(given: Iterable[str]) -> list[str]:
    """Each name once. An element may hold several, with commas between."""
    parts = (part.strip() for each in given for part in each.split(","))
    return [*dict.fromkeys(part for part in parts if part)]


def file_name(name: str, top: Path) -> str:
    """A file's path from the top of the work tree on, if it lies there; else as it is given."""
    path = Path(os.path.normpath(name))
    return path.relative_to(top).as_posix() if path.is_relative_to(top) else path.as_posix()
