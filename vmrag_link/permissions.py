"""The modes of the files and folders in `.git/vmrag`, which decide about access by other users.

Each file and folder is as open as the folder around it. The top folder, `.git/vmrag`, has the mode
0700 unless `core.sharedRepository` asks for more (`git.folder_modes`). So files are 0600, or what a
group needs. Elsewhere the umask decides. Lock files follow the rule too, because a user that can
read a lock file can hold its lock.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

PRIVATE = 0o700
TOP = "vmrag"
"""The name of the top folder, in a git directory."""

_FILE = 0o666
_OWNERS = 0o7700
"""The bits of a mode that are not for the group and others."""


def make_folder(folder: Path, *, parents: bool = True) -> None:
    """Create a folder, and missing folders around it, unless it exists."""
    if folder.is_dir():
        return
    if parents:
        make_folder(folder.parent)
    governed = _is_governed(folder)
    try:
        folder.mkdir(mode=PRIVATE if governed else 0o777)
    except FileExistsError:
        if not folder.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder)) from None
        return
    if governed and not _is_top(folder):
        folder.chmod(_read_mode(folder.parent))


def make_file(path: Path) -> None:
    """Create an empty file and its folder.

    An existing file keeps its content and gets a new time.
    """
    make_folder(path.parent)
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path, flags, choose_file_mode(path))
    try:
        restore_mode(descriptor, path)
        os.utime(descriptor)
    finally:
        os.close(descriptor)


def choose_file_mode(path: Path) -> int:
    """Return the mode with which to create a file.

    The umask can remove bits, which `restore_mode` adds again.
    """
    return _read_mode(path.parent) & _FILE if _is_governed(path) else _FILE


def restore_mode(descriptor: int, path: Path) -> None:
    """Restore the bits that the umask removed from the mode of a new file."""
    if _is_governed(path):
        mode = _read_mode(path.parent) & _FILE
        with contextlib.suppress(PermissionError):  # the file of another user existed
            if stat.S_IMODE(os.fstat(descriptor).st_mode) != mode:
                os.fchmod(descriptor, mode)


def apply_folder_mode(path: Path) -> None:
    """Make files that other programs wrote (SQLite, Chroma, `cp`) as open as the folder around
    them.

    It applies to `path` and everything in it.
    """
    if _is_governed(path) and path.exists():
        mode = _read_mode(path.parent)
        for entry in (path, *_list_below(path)):
            _change_mode(entry, mode if entry.is_dir() else mode & _FILE)


def restrict_mode(folder: Path, allowed: int) -> None:
    """Remove access by group and others that `allowed`, the mode of a folder, does not give.

    It applies to the folder and everything in it, and adds no access.
    """
    for entry in (folder, *_list_below(folder)):
        _change_mode(entry, stat.S_IMODE(entry.lstat().st_mode) & (allowed | _OWNERS))


def _list_below(path: Path) -> Iterator[Path]:
    """Yield the files and folders in a folder, without links, whose targets can be anywhere."""
    for folder, folders, files in os.walk(path):
        for name in (*folders, *files):
            entry = Path(folder, name)
            if not entry.is_symlink():
                yield entry


def _change_mode(path: Path, mode: int) -> None:
    with contextlib.suppress(FileNotFoundError, PermissionError):  # another process's leftover; another user's file
        if _read_mode(path) != mode:
            path.chmod(mode)


def _read_mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def _is_top(folder: Path) -> bool:
    return folder.name == TOP and (folder.parent / "HEAD").exists()


def _is_governed(path: Path) -> bool:
    return any(parent.name == TOP and _is_top(parent) for parent in (path, *path.parents))
