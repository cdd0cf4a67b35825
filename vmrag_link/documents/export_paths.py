"""Files that a person names, read up to a document's limit; and files below a folder for documents
whose names are strangers': which names can be files, and writing them so that nothing outside of
the folder is touched.
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
from pathlib import Path
from typing import BinaryIO

from vmrag_link import terminal_text
from vmrag_link.conversion.limits import MAX_BYTES
from vmrag_link.errors import FileFailed, quoted


def read_text(path: Path) -> str:
    """The text of a regular file; raises as `open_file`."""
    with open_regular_file(path) as opened:
        return _decode(opened.read(MAX_BYTES + 1), terminal_text.escape_line(str(path)))


def open_regular_file(path: Path) -> BinaryIO:
    """A regular file, to read it.

    Raises `FileFailed` for anything else, without reading any of it.
    """
    name = terminal_text.escape_line(str(path))
    try:
        # A pipe that nobody writes to would keep the open waiting.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        kind = _kind(path)
        reason = f"it is {kind}" if kind else error.strerror
        raise FileFailed(f"Cannot read {name}: {reason}.", hint=f"ls -la {quoted(path)}", path=name) from error
    if kind := _kind(descriptor):
        os.close(descriptor)
        hint = "vmrag import FOLDER" if kind == "a folder" else f"cat {quoted(path)} | vmrag … -"
        raise FileFailed(f"{name} is {kind}, and a document comes from a file.", hint=hint, path=name)
    return os.fdopen(descriptor, "rb")


def read_stream(stream: BinaryIO) -> str:
    """The text of standard input, to its end."""
    return _decode(stream.read(MAX_BYTES + 1), "Standard input")


def _kind(place: Path | int) -> str | None:
    """What it is instead of a regular file; None for one, and for what is not there."""
    try:
        mode = os.stat(place).st_mode  # noqa: PTH116  a descriptor has no path
    except OSError:
        return None
    kinds = {
        stat.S_IFDIR: "a folder",
        stat.S_IFIFO: "a pipe",
        stat.S_IFSOCK: "a socket",
        stat.S_IFCHR: "a device",
        stat.S_IFBLK: "a device",
    }
    return kinds.get(stat.S_IFMT(mode))


def _decode(data: bytes, name: str) -> str:
    if len(data) > MAX_BYTES:
        raise FileFailed(
            f"{name} holds more than {MAX_BYTES >> 20} MiB, the most that a document can have.",
            hint="Cut it into several documents.",
            path=name,
        )
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise FileFailed(
            f"{name}: the text is not UTF-8 (byte {error.start}).", hint="iconv -t UTF-8 FILE | vmrag … -", path=name
        ) from None


LONGEST = 255
"""Bytes of a name."""

_RESERVED = r"(?is)(?:con|conin\$|conout\$|prn|aux|nul|(?:com|lpt)[\d¹²³]) *(?:[.:].*)?"
"""What Windows keeps for devices."""

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_REGULAR = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NO_FILE = (errno.ELOOP, errno.ENOTDIR, errno.EISDIR)


def find_name_problem(parts: Sequence[str]) -> str | None:
    """The reason why these names cannot be folders and a file, to follow a subject; None if they
    can, on every system.
    """
    if parts[0].startswith("."):  # no collection of ours; below a project, editors run what is in `.vscode`
        return "would be in a hidden folder"
    for part in parts:
        shown = "".join(each for each in part if unicodedata.category(each) != "Cf")  # macOS ignores them
        if not part or part in (".", ".."):
            return "is no path below a folder"
        if is_git_folder(part) or re.fullmatch(_RESERVED, shown):
            return f"has the reserved name {part!r}"
        if re.search(r"[\x00-\x1f\\]", part) or part != part.rstrip(". "):
            return f"has the name {part!r}, which not every system can have"
        if len(os.fsencode(part)) > LONGEST:
            return f"has a name of more than {LONGEST} bytes"
    return None


def is_git_folder(name: str) -> bool:
    """Whether some file system takes this name of a folder for `.git`: with other capitals, with
    letters that macOS leaves out or takes for others, by Windows' rules for the end of a name, by
    its short name.
    """
    shown = "".join(each for each in unicodedata.normalize("NFKC", name) if unicodedata.category(each) != "Cf")
    return bool(re.fullmatch(r"(?s)(?:\.git|git~\d+)[. ]*(?::.*)?", shown.casefold()))


def fold_case(parts: Sequence[str]) -> str:
    """Equal for names that are one file where small and capital letters are alike."""
    return unicodedata.normalize("NFC", "/".join(parts)).casefold()


class PathBlocked(Exception):
    """A link, a folder or something else that is no file is where a file belongs."""


class Folder:
    """A folder in which files are written. Links below it are never followed."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def hash_file(self, parts: Sequence[str]) -> str | None:
        """SHA-256 of the file, lower-case hex; None if nothing is there.

        Raises `InTheWay` for what is no file, or lies behind something that is no folder, and
        `OSError`.
        """
        try:
            with self._parent(parts, make=False) as parent:
                descriptor = os.open(parts[-1], _REGULAR, dir_fd=parent)
                with os.fdopen(descriptor, "rb") as opened:
                    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                        raise PathBlocked(parts[-1])
                    return hashlib.file_digest(opened, "sha256").hexdigest()
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno in _NO_FILE:
                raise PathBlocked("/".join(parts)) from error
            raise

    def replace_file(self, parts: Sequence[str], content: bytes, temporary: Path) -> None:
        """Write a file in one step; an existing one is replaced. It survives a power cut.

        `temporary`: a file outside of the folder, which a killed call may leave; the caller holds a
        lock for it. On another disk, a file in the folder is used in its place. Raises `OSError`.
        """
        with temporary.open("wb") as out:
            out.write(content)
            out.flush()
            os.fsync(out.fileno())
        try:
            with self._parent(parts, make=True) as parent:
                os.rename(temporary, parts[-1], dst_dir_fd=parent)
                os.fsync(parent)
        except OSError as error:
            temporary.unlink(missing_ok=True)
            if error.errno != errno.EXDEV:
                raise
            self.write_file(parts, content, durable=True)

    def write_file(self, parts: Sequence[str], content: bytes, *, durable: bool = False) -> None:
        """Write or replace a file in one step. Raises `OSError`.

        `durable`: on return, the file survives a power cut.
        """
        temporary = f".{os.urandom(8).hex()}.tmp"
        with self._parent(parts, make=True) as parent:
            try:
                with open(temporary, "xb", opener=_in(parent)) as out:
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

    def read_file(self, parts: Sequence[str], limit: int) -> bytes | None:
        """Return the bytes of a file, at most `limit`; None if there is none.

        Raises `OSError`, and `InTheWay` if it is behind a link or is not a regular file.
        """
        try:
            with self._parent(parts, make=False) as parent:
                descriptor = os.open(parts[-1], _REGULAR, dir_fd=parent)
                with os.fdopen(descriptor, "rb") as opened:
                    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                        raise PathBlocked("/".join(parts))
                    return opened.read(limit)
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno in _NO_FILE:
                raise PathBlocked("/".join(parts)) from error
            raise

    def remove_file(self, parts: Sequence[str]) -> None:
        """Delete a file, and the folders that are empty then, as git does. Raises `OSError`."""
        with self._parent(parts, make=False) as parent:
            os.unlink(parts[-1], dir_fd=parent)
            os.fsync(parent)
        for length in range(len(parts) - 1, 0, -1):
            with contextlib.suppress(OSError), self._parent(parts[:length], make=False) as parent:
                os.rmdir(parts[length - 1], dir_fd=parent)

    def list_names(self, parts: Sequence[str]) -> list[str]:
        """Return the names in a folder; none if it does not exist. Raises `OSError`."""
        try:
            with self._parent([*parts, ""], make=False) as parent:
                return os.listdir(parent)  # noqa: PTH208  a descriptor has no path
        except (FileNotFoundError, NotADirectoryError):
            return []

    @contextlib.contextmanager
    def _parent(self, parts: Sequence[str], *, make: bool) -> Iterator[int]:
        """A descriptor of the folder that the file is in."""
        if make:
            self.path.mkdir(parents=True, exist_ok=True)
        current = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for name in parts[:-1]:
                if make:
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(name, dir_fd=current)
                inner = os.open(name, _FOLDER, dir_fd=current)
                os.close(current)
                current = inner
            yield current
        finally:
            os.close(current)


def _in(parent: int) -> Callable[[str, int], int]:
    return lambda name, flags: os.open(name, flags | os.O_NOFOLLOW, 0o666, dir_fd=parent)
