"""A report in a file that somebody named."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from vmrag_link.errors import FileFailed, quoted, system_failure
from vmrag_link.paths import require_no_link


def require_writable_path(path: Path, directory: Path) -> None:
    """Raises `FileFailed` where no file can be, before anything is done for it, and for a link in
    the repository around `directory`.
    """
    require_no_link(path, directory)
    _require_folder(path)


def _require_folder(path: Path) -> None:
    if path.is_dir():
        raise FileFailed(f"{path} is a folder.", hint="Name a file in it.", path=str(path))
    if not path.parent.is_dir():
        raise FileFailed(f"There is no folder {path.parent}.", hint=f"mkdir -p {quoted(path.parent)}", path=str(path))


def write_text(path: Path, pieces: Iterable[str]) -> None:
    """Write a text while it is made. A file is replaced in one step, when the whole text is there,
    and keeps its mode.

    Raises `FileFailed`, and what making the text raises; then the file is as it was.
    """
    _require_folder(path)
    try:
        if path.exists() and not path.is_file():  # a pipe, /dev/stdout
            _write(path, "w", pieces)
        else:
            _replace(Path(os.path.realpath(path)), pieces)
    except OSError as error:
        unknown = FileFailed(f"{path} cannot be written: {error.strerror}.", hint="Name another file.", path=str(path))
        raise system_failure(error) or unknown from error


def _replace(target: Path, pieces: Iterable[str]) -> None:
    aside = target.with_name(f".{os.urandom(6).hex()}.tmp")
    try:
        _write(aside, "x", pieces)
        if target.exists():
            shutil.copymode(target, aside)
        aside.replace(target)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise


def _write(path: Path, mode: str, pieces: Iterable[str]) -> None:
    with path.open(mode, encoding="utf-8", newline="") as out:
        out.writelines(pieces)
