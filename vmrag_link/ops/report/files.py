"""A report in a file that somebody named."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from vmrag_link.errors import FileFailed, file_failures, quoted


def write_text(path: Path, pieces: Iterable[str]) -> None:
    """Write a text while it is made. A file is replaced in one step, when the whole text is there.

    Raises `FileFailed`, and what making the text raises; then the file is as it was.
    """
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise FileFailed(f"{path} is a folder.", hint="Name a file in it.", path=str(path))
    if not target.parent.is_dir():
        raise FileFailed(f"There is no folder {path.parent}.", hint=f"mkdir -p {quoted(path.parent)}", path=str(path))
    with file_failures():
        if target.exists() and not target.is_file():  # a pipe, /dev/stdout
            _write(target, "w", pieces)
            return
        aside = target.with_name(f".{target.name}.{os.urandom(6).hex()}.tmp")
        try:
            _write(aside, "x", pieces)
            aside.replace(target)
        except BaseException:
            aside.unlink(missing_ok=True)
            raise


def _write(path: Path, mode: str, pieces: Iterable[str]) -> None:
    with path.open(mode, encoding="utf-8", newline="") as out:
        out.writelines(pieces)
