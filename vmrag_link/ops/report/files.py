"""Write a report into a file that the user named."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from vmrag_link.errors import FileFailed, quoted, system_failure
from vmrag_link.file_access import require_no_link


def require_writable_path(path: Path, directory: Path) -> None:
    """Check that a file can be written, before any work is done for it.

    Raises `FileFailed` if it cannot, or if its path contains a link inside the repository around
    `directory`.
    """
    require_no_link(path, directory)
    _require_folder(path)


def _require_folder(path: Path) -> None:
    if path.is_dir():
        raise FileFailed(f"{path} is a folder.", hint="name a file in the folder", path=str(path))
    if not path.parent.is_dir():
        raise FileFailed(
            f"no such folder: {path.parent}.", hint=f"run 'mkdir -p {quoted(path.parent)}'", path=str(path)
        )


def write_text(path: Path, pieces: Iterable[str]) -> None:
    """Write a text piece by piece.

    A file is replaced atomically when the whole text is written, and keeps its mode. Raises
    `FileFailed`, and the errors of producing the pieces. The file is unchanged then.
    """
    _require_folder(path)
    try:
        if path.exists() and not path.is_file():  # a pipe, /dev/stdout
            _write_pieces(path, "w", pieces)
        else:
            _replace_file(Path(os.path.realpath(path)), pieces)
    except OSError as error:
        unknown = FileFailed(f"cannot write {path}: {error.strerror}.", hint="name another file", path=str(path))
        raise system_failure(error) or unknown from error


def _replace_file(target: Path, pieces: Iterable[str]) -> None:
    temporary = target.with_name(f".{os.urandom(6).hex()}.tmp")
    try:
        _write_pieces(temporary, "x", pieces)
        if target.exists():
            shutil.copymode(target, temporary)
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _write_pieces(path: Path, mode: str, pieces: Iterable[str]) -> None:
    with path.open(mode, encoding="utf-8", newline="") as out:
        out.writelines(pieces)
