"""Stage files in the index of git, and unstage them."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Sequence
from pathlib import Path

from vmrag_link.git.plumbing import read_blob
from vmrag_link.git.run import build_failure, check_git, run_git
from vmrag_link.paths import Places

INDEX_LOCK_SECONDS = 2.0
_POLL_SECONDS = 0.02


def stage_path(places: Places, path: Path, *, index_file: Path | None = None) -> bool:
    """Stage one path, even if it is ignored or outside a sparse checkout. Returns False if
    index.lock is held for 2 s.

    `index_file`: the index of the commit in progress, from a commit hook. By default the work
    tree's own.
    """
    # Flushed to disk, because commands report success. Forced, because the pin belongs into the
    # commit even if `.*` is ignored.
    return _write_index(places, "--literal-pathspecs", "add", "--force", "--sparse", "--", str(path), file=index_file)


def stage_files(places: Places, paths: Sequence[str]) -> bool:
    """Stage files of the work tree as they are, deleted ones as well. `paths` are from the top.

    Returns False if another process holds index.lock for 2 s. Raises `GitFailed`.
    """
    names = b"".join(os.fsencode(path) + b"\0" for path in paths)
    return _write_index(places, "update-index", "--add", "--remove", "-z", "--stdin", stdin=names)


def _write_index(places: Places, *arguments: str, file: Path | None = None, stdin: bytes | None = None) -> bool:
    durable = ("-c", "core.fsync=added")
    deadline = time.monotonic() + INDEX_LOCK_SECONDS
    while True:
        result = run_git(places, *durable, *arguments, index_file=file, stdin=stdin)
        if result.returncode == 0:
            return True
        if not re.search(r"index.*\.lock': File exists", result.error_text):
            raise build_failure(arguments[1:], result)
        if time.monotonic() >= deadline:
            return False
        time.sleep(_POLL_SECONDS)


def unstage_files(places: Places, names: Sequence[str]) -> None:
    """Remove files from git's index that HEAD does not have, and stage those that equal HEAD's
    version again.
    """
    new = [
        name
        for name in names
        if read_blob(places, f"HEAD:{name}") is None and read_blob(places, f":{name}") is not None
    ]
    if new:
        check_git(places, "rm", "--cached", "--force", "--quiet", "--ignore-unmatch", "--", *new)
    for path in (places.top / name for name in names if name not in new):
        if path.is_file() and path.read_bytes() == read_blob(places, f"HEAD:{path.name}"):
            stage_path(places, path)
