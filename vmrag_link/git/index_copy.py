"""A private copy of the index, with which vmrag compares the work tree.

git recognizes unchanged files by their times, and stores the times when it rewrites the index.
vmrag never rewrites the user's index, so after a `touch` of all files each comparison would read
all of them. Instead vmrag's copy stores the times. The copy is derived: its name contains the state
of the index that it copies, and it is discarded with the next one.

**git's racy rule applies.** A file that is not older than the index file may have changed since
with the same size and times, so git compares its content. So a copy keeps the time of its source,
and gets a later time only after every file in it was seen later.

A comparison calls `copy_index` if the copy does not exist, then `list_changed`. If that lists many
files whose contents are equal, it calls `refresh_copy`, and at the end `settle_copy`.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from vmrag_link import permissions
from vmrag_link.errors import GitFailed, refuses_writing
from vmrag_link.file_access import FileStamp, read_file_stamp, remove_stale_temporaries
from vmrag_link.git import raw_changes
from vmrag_link.git.readonly import list_fields, run_readonly
from vmrag_link.models import Record
from vmrag_link.paths import Places

_CHECKSUM_BYTES = 32
"""Bytes at the end of an index. Two indexes have the same checksum only if they are equal."""

_NEEDS_UPDATE = 1  # exit code of `git update-index --refresh`
_SECOND_NS = 10**9

_MAX_OTHER_COPIES = 3
"""Number of copies that are kept next to the new one, because other processes may use them with
other pathspecs.
"""

_SETTLED_NS = 1
"""Fraction of a second in the time of a settled copy: git does not compare its files, because each
later change has another second. Most builds of git ignore fractions.
"""


class IndexState(Record, frozen=True):
    """A value that differs after git has written the index. Without an index, `stamp` has no
    value.
    """

    stamp: FileStamp | None
    checksum: bytes


def read_index_state(places: Places) -> IndexState:
    """Return the present state of the index."""
    path = places.index_file
    stamp = read_file_stamp(path)
    try:
        with path.open("rb") as opened:
            opened.seek(-min(_CHECKSUM_BYTES, os.fstat(opened.fileno()).st_size), os.SEEK_END)
            return IndexState(stamp, opened.read(_CHECKSUM_BYTES))
    except FileNotFoundError:
        return IndexState(None, b"")


def read_clock(folder: Path) -> int:
    """Return the time, in nanoseconds, of a file that is written in the folder now. 0 if the folder
    is not writable.
    """
    path = folder / f".clock.{os.urandom(6).hex()}.tmp"
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.write(descriptor, b"\0")
            return os.fstat(descriptor).st_mtime_ns
        finally:
            os.close(descriptor)
            path.unlink(missing_ok=True)
    except OSError as error:
        if not (refuses_writing(error) or isinstance(error, FileNotFoundError)):
            raise
        return 0


def copy_index(places: Places, copy: Path) -> None:
    """Copy the index unchanged, and remove the oldest copies next to it."""
    source = places.index_file
    permissions.make_folder(copy.parent)
    with contextlib.suppress(FileNotFoundError):  # no index yet: git treats a missing index as empty
        _copy_to_temporary(source, copy).replace(copy)
    remove_stale_temporaries(copy.parent)
    name = copy.name.rpartition("@")[0]
    others = [
        (stamp.changed_ns, path)
        for path in copy.parent.glob(f"{name}@*")
        if path != copy and (stamp := read_file_stamp(path))
    ]
    for _, path in sorted(others)[:-_MAX_OTHER_COPIES]:
        path.unlink(missing_ok=True)


def refresh_copy(places: Places, copy: Path) -> None:
    """Update the times of all unchanged files in the copy. Raises `GitFailed` and
    `LimitExceeded`.
    """
    try:
        temporary = _copy_to_temporary(copy, copy)
    except FileNotFoundError:  # no index yet, or removed by another process
        return
    try:
        options = ("-q", "--refresh", "--unmerged", "--ignore-missing", "--ignore-submodules")
        run_readonly(places, "update-index", *options, index_file=temporary, fine=(0, _NEEDS_UPDATE))
        temporary.replace(copy)
    finally:
        for leftover in (temporary, temporary.with_name(f"{temporary.name}.lock")):
            leftover.unlink(missing_ok=True)


def _copy_to_temporary(source: Path, copy: Path) -> Path:
    """Return a temporary file with the content and the time of `source`. Each process has its own
    file, because git creates a lock next to an index that it writes.
    """
    temporary = copy.with_name(f".{copy.name[:50]}.{os.urandom(6).hex()}.tmp")
    try:
        with source.open("rb") as opened, temporary.open("xb") as out:
            permissions.restore_mode(out.fileno(), temporary)
            # The time is read first. A writer replaces the file, so the content belongs to it.
            written = os.fstat(opened.fileno()).st_mtime_ns
            shutil.copyfileobj(opened, out)
        os.utime(temporary, ns=(written, written))
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return temporary


def list_changed(places: Places, copy: Path | None, pathspecs: Sequence[str]) -> dict[str, str] | None:
    """Return the files that differ from the index, with git's status (`M`, `D`, `T`, `A`, `U`).

    `M` may be wrong for files that differ only in their times, until `refresh_copy`. None if the
    copy was removed by another process, or was damaged and is removed now. Without a copy, git's
    own index is read. Raises `GitFailed` and `LimitExceeded`.
    """
    seen = read_file_stamp(copy) if copy else None
    arguments = ("diff-files", "--raw", "-z", "--no-renames", "--ignore-submodules=all", "--", *pathspecs)
    try:
        fields = list_fields(places, *arguments, limit=4 * raw_changes.MOST_FILES, index_file=copy)
    except GitFailed:
        if copy is None:
            raise
        list_fields(places, *arguments, limit=4 * raw_changes.MOST_FILES)  # raises if the copy is not the reason
        copy.unlink(missing_ok=True)  # damaged by a power cut, because it is written without flushing to disk
        return None
    statuses = _parse_statuses(fields)
    if copy is None:
        return statuses
    # git treats a missing index as empty.
    removed = (seen is None or read_file_stamp(copy) is None) and places.index_file.exists()
    return None if removed else statuses


def _parse_statuses(fields: Sequence[bytes]) -> dict[str, str]:
    """Return the statuses of `diff-files --raw -z` by path. An unmerged file has `U`, even if git
    lists another status too.
    """
    statuses: dict[str, str] = {}
    for described, path in zip(fields[::2], fields[1::2], strict=True):
        name, status = os.fsdecode(path), described[-1:].decode()
        statuses[name] = "U" if "U" in (status, statuses.get(name)) else status
    return statuses


def settle_copy(copy: Path, seen: FileStamp | None, now: int, newest: int) -> None:
    """Let git skip the files that were unchanged when it compared them after `now`, a time of
    `read_clock`.

    `seen`: the copy's stamp before that. `newest`: the time of the newest changed file. If it is in
    the copy's own second, only its content may show the change, so nothing is done.
    """
    if seen is None or seen.modified_ns % _SECOND_NS == _SETTLED_NS:
        return
    is_older = seen.changed_ns // _SECOND_NS < now // _SECOND_NS
    if not is_older or newest // _SECOND_NS >= seen.modified_ns // _SECOND_NS:
        return
    with contextlib.suppress(OSError):
        descriptor = os.open(copy, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            if os.fstat(descriptor).st_ino == seen.inode:
                settled = now // _SECOND_NS * _SECOND_NS + _SETTLED_NS
                os.utime(descriptor, ns=(settled, settled))
        finally:
            os.close(descriptor)
