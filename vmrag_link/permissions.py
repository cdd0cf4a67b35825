"""How open the files and folders below `vmrag` are to other users of the machine.

One rule: what is made there is as open as the folder around it. The uppermost, `.git/vmrag`, is
0700 unless `core.sharedRepository` asks for more, which `git.sharing` knows; so files are 0600, or
what a group needs. Elsewhere the umask decides. It matters for lock files, too: a user that may
read one may hold its lock.
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
"""The name of the uppermost folder, in a git directory."""

_FILE = 0o666
_OWNERS = 0o7700
"""What is not about group and others."""


def make_folder(folder: Path, *, parents: bool = True) -> None:
    """The folder, and those around it that are missing; fine where it is there."""
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
        folder.chmod(_mode(folder.parent))


def make_file(path: Path) -> None:
    """An empty file; one that is there stays as it is, with a new time. Folders are made."""
    make_folder(path.parent)
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path, flags, choose_file_mode(path))
    try:
        restore_mode(descriptor, path)
        os.utime(descriptor)
    finally:
        os.close(descriptor)


def choose_file_mode(path: Path) -> int:
    """The mode to create it with; the umask may take something away, which `adjust` brings back."""
    return _mode(path.parent) & _FILE if _is_governed(path) else _FILE


def restore_mode(descriptor: int, path: Path) -> None:
    """Give a file that was just made what the umask took away."""
    if _is_governed(path):
        wanted = _mode(path.parent) & _FILE
        with contextlib.suppress(PermissionError):  # somebody else's was there
            if stat.S_IMODE(os.fstat(descriptor).st_mode) != wanted:
                os.fchmod(descriptor, wanted)


def apply_folder_mode(path: Path) -> None:
    """Make a file or folder that others wrote for us (SQLite, Chroma, `cp`), and all below, as open
    as the folder that it lies in.
    """
    if _is_governed(path) and path.exists():
        mode = _mode(path.parent)
        for each in (path, *_below(path)):
            _change(each, mode if each.is_dir() else mode & _FILE)


def restrict_mode(folder: Path, wanted: int) -> None:
    """Take from a folder and all below what `wanted`, the mode of a folder, does not give to group
    and others. Adds nothing.
    """
    for each in (folder, *_below(folder)):
        _change(each, stat.S_IMODE(each.lstat().st_mode) & (wanted | _OWNERS))


def _below(path: Path) -> Iterator[Path]:
    """No links: what they name is not ours."""
    for folder, folders, files in os.walk(path):
        for name in (*folders, *files):
            each = Path(folder, name)
            if not each.is_symlink():
                yield each


def _change(path: Path, mode: int) -> None:
    with contextlib.suppress(FileNotFoundError, PermissionError):  # another process's leftover; another user's file
        if _mode(path) != mode:
            path.chmod(mode)


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def _is_top(folder: Path) -> bool:
    return folder.name == TOP and (folder.parent / "HEAD").exists()


def _is_governed(path: Path) -> bool:
    return any(parent.name == TOP and _is_top(parent) for parent in (path, *path.parents))
