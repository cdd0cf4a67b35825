"""Files below a folder for documents whose names are strangers': which names can be files, and
writing them so that nothing outside of the folder is touched.
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

LONGEST = 255
"""Bytes of a name."""

_RESERVED = re.compile(r"(?i)(?:con|prn|aux|nul|com\d|lpt\d)(?:\..*)?")
"""What Windows keeps for devices."""

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def problem(parts: Sequence[str]) -> str | None:
    """The reason why these names cannot be folders and a file, to follow a subject; None if they
    can, on every system.
    """
    if parts[0].startswith("."):  # no collection of ours; below a project, editors run what is in `.vscode`
        return "would be in a hidden folder"
    for part in parts:
        shown = "".join(each for each in part if unicodedata.category(each) != "Cf")  # macOS ignores them
        if not part or part in (".", ".."):
            return "is no path below a folder"
        if is_git_folder(part) or _RESERVED.fullmatch(shown):
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


def key(parts: Sequence[str]) -> str:
    """Equal for names that are one file where small and capital letters are alike."""
    return unicodedata.normalize("NFC", "/".join(parts)).casefold()


class InTheWay(Exception):
    """A link, a folder or something else that is no file is where a file belongs."""


class Folder:
    """A folder in which files are written. Links below it are never followed."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def digest(self, parts: Sequence[str]) -> str | None:
        """SHA-256 of the file, lower-case hex; None if nothing is there.

        Raises `InTheWay` for what is no file, or lies behind something that is no folder, and
        `OSError`.
        """
        try:
            with self._parent(parts, make=False) as parent:
                descriptor = os.open(
                    parts[-1], os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=parent
                )
                with os.fdopen(descriptor, "rb") as opened:
                    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                        raise InTheWay(parts[-1])
                    return hashlib.file_digest(opened, "sha256").hexdigest()
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENOTDIR, errno.EISDIR):
                raise InTheWay("/".join(parts)) from error
            raise

    def write(self, parts: Sequence[str], content: bytes) -> None:
        """Put a file there in one step, in place of one that is there. Raises `OSError`."""
        temporary = f".{os.urandom(8).hex()}.tmp"
        with self._parent(parts, make=True) as parent:
            try:
                with open(temporary, "xb", opener=_in(parent)) as out:
                    out.write(content)
                os.rename(temporary, parts[-1], src_dir_fd=parent, dst_dir_fd=parent)
            except BaseException:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(temporary, dir_fd=parent)
                raise

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
