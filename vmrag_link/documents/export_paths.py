"""Read and write files for documents below a folder.

The names of documents are untrusted. So this module decides which names can be files, and never
follows a link out of the folder.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import stat
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from io import BufferedReader
from pathlib import Path

MAX_NAME_BYTES = 255

_RESERVED = r"(?is)(?:con|conin\$|conout\$|prn|aux|nul|(?:com|lpt)[\d¹²³]) *(?:[.:].*)?"
"""Names that Windows reserves for devices."""

_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NO_FILE = (errno.ELOOP, errno.ENOTDIR, errno.EISDIR)


def find_name_problem(parts: Sequence[str]) -> str | None:
    """Return why these names cannot be folders and a file, to follow a subject; None if they can on
    every system.
    """
    if parts[0].startswith("."):  # collections have no such names, and editors run files in `.vscode`
        return "would be in a hidden folder"
    for part in parts:
        # Invisible characters are left out, because macOS ignores them.
        visible = "".join(character for character in part if unicodedata.category(character) != "Cf")
        if not part or part in (".", ".."):
            return "is not a path below a folder"
        if is_git_folder(part) or re.fullmatch(_RESERVED, visible):
            return f"has the reserved name {part!r}"
        if re.search(r"[\x00-\x1f\\]", part) or part != part.rstrip(". "):
            return f"has the name {part!r}, which is invalid on some systems"
        if len(os.fsencode(part)) > MAX_NAME_BYTES:
            return f"has a name of more than {MAX_NAME_BYTES} bytes"
    return None


def is_git_folder(name: str) -> bool:
    """Return whether a file system may treat this folder name as `.git`.

    Examples are other capital letters, letters that macOS ignores or replaces, Windows' rules for
    the end of a name, and its short name.
    """
    visible = "".join(
        character for character in unicodedata.normalize("NFKC", name) if unicodedata.category(character) != "Cf"
    )
    return bool(re.fullmatch(r"(?s)(?:\.git|git~\d+)[. ]*(?::.*)?", visible.casefold()))


def fold_case(parts: Sequence[str]) -> str:
    """Return a text that is equal for names of one file on file systems that ignore case."""
    return unicodedata.normalize("NFC", "/".join(parts)).casefold()


class PathBlocked(Exception):
    """A link, a folder or another special file is at the path of a file."""


class Folder:
    """A folder in which files are read and written. Links below it are never followed.

    `parts`: the names of the folders below it, and of the file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def hash_file(self, parts: Sequence[str]) -> str | None:
        """Return the SHA-256 of a file as lower-case hex; None if it does not exist.

        Raises `OSError`, and `PathBlocked` if it is behind a link or is not a regular file.
        """
        with self._open_file(parts) as opened:
            return hashlib.file_digest(opened, "sha256").hexdigest() if opened else None

    def read_file(self, parts: Sequence[str], limit: int) -> bytes | None:
        """Return the bytes of a file, at most `limit`; None if it does not exist. Raises the errors
        of `hash_file`.
        """
        with self._open_file(parts) as opened:
            return opened.read(limit) if opened else None

    @contextlib.contextmanager
    def _open_file(self, parts: Sequence[str]) -> Iterator[BufferedReader | None]:
        """Yield a file that is open for reading; None if it does not exist."""
        descriptor = None
        try:
            with contextlib.suppress(FileNotFoundError), self._open_parent(parts, make=False) as parent:
                descriptor = os.open(parts[-1], _FILE_FLAGS, dir_fd=parent)
        except OSError as error:
            if error.errno in _NO_FILE:
                raise PathBlocked("/".join(parts)) from error
            raise
        if descriptor is None:
            yield None
            return
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):  # before `fdopen`, which refuses a folder
            os.close(descriptor)
            raise PathBlocked("/".join(parts))
        with os.fdopen(descriptor, "rb") as opened:
            yield opened

    def replace_file(self, parts: Sequence[str], content: bytes, temporary: Path) -> None:
        """Create or replace a file in one step, so that it survives a power cut.

        `temporary`: a file outside of the folder, which a killed call may leave behind. The caller
        holds a lock for it. If it is on another disk, a file in the folder is used instead. Raises
        `OSError`.
        """
        with temporary.open("wb") as out:
            out.write(content)
            out.flush()
            os.fsync(out.fileno())
        try:
            with self._open_parent(parts, make=True) as parent:
                os.rename(temporary, parts[-1], dst_dir_fd=parent)
                os.fsync(parent)
        except OSError as error:
            temporary.unlink(missing_ok=True)
            if error.errno != errno.EXDEV:
                raise
            self.write_file(parts, content, durable=True)

    def write_file(self, parts: Sequence[str], content: bytes, *, durable: bool = False) -> None:
        """Create or replace a file in one step. Raises `OSError`.

        `durable`: the file survives a power cut when this returns.
        """
        temporary = f".{os.urandom(8).hex()}.tmp"
        with self._open_parent(parts, make=True) as parent:
            try:
                with open(temporary, "xb", opener=_make_opener(parent)) as out:
                    out.write(content)
                    if durable:
                        out.flush()
                        os.fsync(out.fileno())
                os.rename(temporary, parts[-1], src_dir_fd=parent, dst_dir_fd=parent)
                if durable:
                    os.fsync(parent)
            except BaseException:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(temporary, dir_fd=parent)
                raise

    def remove_file(self, parts: Sequence[str]) -> None:
        """Delete a file, and then empty folders above it, like git. Raises `OSError`."""
        with self._open_parent(parts, make=False) as parent:
            os.unlink(parts[-1], dir_fd=parent)
            os.fsync(parent)
        for length in range(len(parts) - 1, 0, -1):
            with contextlib.suppress(OSError), self._open_parent(parts[:length], make=False) as parent:
                os.rmdir(parts[length - 1], dir_fd=parent)

    def list_names(self, parts: Sequence[str]) -> list[str]:
        """Return the names in a folder; none if it does not exist. Raises `OSError`."""
        try:
            with self._open_parent([*parts, ""], make=False) as parent:
                return os.listdir(parent)  # noqa: PTH208  a descriptor has no path
        except (FileNotFoundError, NotADirectoryError):
            return []

    @contextlib.contextmanager
    def _open_parent(self, parts: Sequence[str], *, make: bool) -> Iterator[int]:
        """Yield a descriptor of the folder that contains the file."""
        if make:
            self.path.mkdir(parents=True, exist_ok=True)
        current = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for name in parts[:-1]:
                if make:
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(name, dir_fd=current)
                inner = os.open(name, _FOLDER_FLAGS, dir_fd=current)
                os.close(current)
                current = inner
            yield current
        finally:
            os.close(current)


def _make_opener(parent: int) -> Callable[[str, int], int]:
    return lambda name, flags: os.open(name, flags | os.O_NOFOLLOW, 0o666, dir_fd=parent)
