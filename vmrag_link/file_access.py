"""Read, check and write single files: untrusted ones, and ones that must survive a power cut."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import re
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from vmrag_link import permissions
from vmrag_link.errors import in_the_way, too_little_space

STALE_SECONDS = 600
"""A temporary file that is older was left by a killed process."""
TEMPORARY_LENGTH = 50
"""Number of characters of a file's name that its temporary file's name contains."""
_TEMPORARY = r"(?s)\.(.*)\.[0-9a-f]{12}\.tmp"  # compiled if there is one
"""Pattern of a temporary file's name."""
SPARE_BYTES = 32_000_000
"""Bytes that stay free on the disk after a large write."""
_FILE_TYPES = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a named pipe", stat.S_IFSOCK: "a socket"}


def read_regular(path: Path, limit: int) -> bytes:
    """Read at most `limit` bytes of a file that can be untrusted.

    Raises OSError for links, devices and pipes.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", str(path))
        return os.read(descriptor, limit)
    finally:
        os.close(descriptor)


def read_recorded_path(file: Path) -> Path | None:
    """Return the absolute path in a state file, or None if the file is missing or damaged."""
    try:
        data = file.read_bytes().removesuffix(b"\n")
    except OSError:
        return None
    return Path(os.fsdecode(data)) if data.startswith(b"/") and b"\0" not in data else None


def describe_file_type(path: Path) -> str:
    """Return what is at a path, such as `a link to TARGET` or `a folder`.

    The result is empty for a regular file and for a missing one.
    """
    try:
        mode = path.lstat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return ""
    if stat.S_ISLNK(mode):
        return f"a link to {os.readlink(path)}"  # noqa: PTH115  a Path would tidy it up
    if stat.S_ISREG(mode):
        return ""
    return _FILE_TYPES.get(stat.S_IFMT(mode), "a device")


def require_files(*paths: Path) -> None:
    """Raise `FileFailed` if a path exists and is not a regular file.

    Through a link, another file would be read or written.
    """
    for path in paths:
        if file_type := describe_file_type(path):
            raise in_the_way(path, f"{file_type}, not a file")


def require_folders(*paths: Path) -> None:
    """Raise `FileFailed` if a path exists and is not a folder.

    Through a link, another folder would be read or written.
    """
    for path in paths:
        file_type = describe_file_type(path) or ("a file" if path.exists() else "")
        if file_type not in ("", _FILE_TYPES[stat.S_IFDIR]):
            raise in_the_way(path, f"{file_type}, and no folder")


def require_no_link(path: Path, directory: Path) -> None:
    """Raise `FileFailed` if the path to a file has a link in the repository around `directory`.

    A pull request can have added the link.
    """
    target, start = (Path(os.path.abspath(part)) for part in (path, directory))  # noqa: PTH100  links stay
    top = next((folder for folder in (start, *start.parents) if (folder / ".git").exists()), None)
    if top is None or not target.is_relative_to(top):
        return
    for part in [target, *target.parents][: len(target.parts) - len(top.parts)]:
        if part.is_symlink():
            raise in_the_way(part, describe_file_type(part))


def write_atomically(path: Path, content: bytes, *, durable: bool = True, mode: int | None = None) -> None:
    """Replace a file in one step; readers see the old or the new bytes.

    The new bytes survive a power cut, unless `durable` is False. That saves two waits for the disk,
    for files that can be rebuilt and can be empty after a power cut. `mode` is the mode of the
    file. By default, it depends on the folder.
    """
    parents = (path.parent, *path.parent.parents)
    missing_parents = [*itertools.takewhile(lambda parent: not parent.exists(), parents)]
    permissions.make_folder(path.parent)
    # The name is cut, so that the longest name has room for the rest. A character has at most 4
    # bytes.
    temporary = path.with_name(f".{path.name[:TEMPORARY_LENGTH]}.{os.urandom(6).hex()}.tmp")
    try:
        with temporary.open("xb") as out:
            permissions.restore_mode(out.fileno(), temporary)
            if mode is not None:
                os.fchmod(out.fileno(), mode)
            out.write(content)
            if durable:
                out.flush()
                os.fsync(out.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    if durable:
        for folder in dict.fromkeys((path.parent, *(created.parent for created in missing_parents))):
            sync_to_disk(folder)


def sync_to_disk(path: Path) -> None:
    """Return when the content of a file, or the names in a folder, would survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_file_and_folder(path: Path) -> None:
    """Return when a replaced file, and its name, would survive a power cut."""
    sync_to_disk(path)
    sync_to_disk(path.parent)


def list_stale_temporaries(*folders: Path, name: str = "") -> list[Path]:
    """Return the temporary files of killed `write_atomically` calls, for files of this name or of
    any name.
    """
    leftovers = []
    for folder in folders:
        for path in _list_temporaries(folder, name):
            with contextlib.suppress(FileNotFoundError):
                if time.time() - path.stat().st_mtime > STALE_SECONDS:
                    leftovers.append(path)
    return leftovers


def remove_temporaries(path: Path) -> None:
    """Remove temporary files of killed writers.

    The caller holds the lock under which the file is written.
    """
    for leftover in _list_temporaries(path.parent, path.name):
        leftover.unlink(missing_ok=True)


def _list_temporaries(folder: Path, name: str) -> Iterator[Path]:
    with contextlib.suppress(FileNotFoundError, NotADirectoryError), os.scandir(folder) as entries:
        for entry in entries:
            match = re.fullmatch(_TEMPORARY, entry.name) if entry.name.endswith(".tmp") else None
            if match and (not name or match[1] == name[:TEMPORARY_LENGTH]):
                yield Path(entry)


def remove_stale_temporaries(*folders: Path) -> None:
    for path in list_stale_temporaries(*folders):
        path.unlink(missing_ok=True)


def require_space(folder: Path, needed: int, what: str) -> None:
    """Raise `FileFailed` unless `needed` bytes for `what` fit on the disk, with some to spare.

    The error names both numbers. `folder` does not have to exist yet.
    """
    import shutil  # a checkout should not wait for it

    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    if needed + SPARE_BYTES > free:
        raise too_little_space(folder, what, needed + SPARE_BYTES, free)


def measure_size(folder: Path) -> int:
    """Return the number of bytes of all files in a folder.

    Other processes can remove files in the meantime.
    """
    total = 0
    for path in folder.rglob("*") if folder.is_dir() else [folder]:
        with contextlib.suppress(FileNotFoundError):
            total += path.stat().st_size if path.is_file() else 0
    return total


class FileStamp(NamedTuple):
    """A value that differs after a file was written, or replaced like git does it."""

    inode: int
    size: int
    modified_ns: int
    changed_ns: int


def read_file_stamp(path: Path) -> FileStamp | None:
    """Return the stamp of a file, or None without the file."""
    try:
        status = os.stat(path)  # noqa: PTH116  Path's own is slower, and every call of a tool asks for several
    except OSError:
        return None
    return FileStamp(status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def read_file_stamps(paths: Iterable[Path]) -> tuple[FileStamp | None, ...]:
    return tuple(map(read_file_stamp, paths))


def append_line(content: bytes, line: bytes) -> bytes:
    """Append a line, which ends like the last one, so that `remove_lines` restores every byte."""
    if content and not content.endswith(b"\n"):
        return content + b"\n" + line
    return content + line + b"\n"


def remove_lines(content: bytes, is_ours: Callable[[bytes], bool]) -> bytes:
    """Remove the lines that `append_line` appended."""
    lines = content.splitlines(keepends=True)
    rest = b"".join(line for line in lines if not is_ours(line))
    joined = bool(lines) and not lines[-1].endswith(b"\n") and is_ours(lines[-1])
    return rest.removesuffix(b"\n") if joined else rest
