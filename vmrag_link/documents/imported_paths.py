"""The paths of which documents were imported, for the shims of git's hooks: a commit or a push that
touches none of them starts no program.

A few paths that hold all of them; that they hold others, too, costs a look.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

from vmrag_link.documents.import_base import leads_out
from vmrag_link.errors import FileFailed
from vmrag_link.paths import write_atomically

MOST = 100
"""Paths in the list: arguments of a git command."""


def remember(file: Path, sources: Iterable[str]) -> None:
    """Write the list, an empty one where nothing was imported. `sources`: below the root."""
    listed = "".join(f"{each}\n" for each in covering(sources)).encode(errors="surrogateescape")
    with contextlib.suppress(OSError, FileFailed):  # derived: without it nothing is said at a commit
        if _content(file) != listed:
            write_atomically(file, listed, durable=False)


def covering(sources: Iterable[str]) -> list[str]:
    """At most `MOST` paths, as short a list as needs be: files, their folders, or all."""
    paths = {each for each in sources if each and not leads_out(each) and "://" not in each}
    if any("\n" in each for each in paths):
        return ["."]
    folders = {os.path.dirname(each) or each for each in paths}  # noqa: PTH120  thousands of them
    tops = {each.partition("/")[0] for each in folders}
    return sorted(next((some for some in (paths, folders, tops) if len(some) <= MOST), {"."}))


def _content(file: Path) -> bytes | None:
    try:
        return file.read_bytes()
    except OSError:
        return None
