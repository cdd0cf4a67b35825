"""Differences between commits, git's index and the work tree, in git's raw format, and a copy of
the index with which the work tree is compared.

git recognizes unchanged files by their times, and stores the times when it rewrites the index.
vmrag never rewrites the user's index, so after a `touch` of all files each comparison would read
all of them. Instead vmrag's copy stores the times. The copy is derived: its name contains the state
of the index that it copies, and it is discarded with the next one.

**git's racy rule applies.** A file that is not older than the index file may have changed since
with the same size and times, so git compares its content. So a copy keeps the time of its source,
and gets a later time only after every file in it was seen later.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from vmrag_link import permissions
from vmrag_link.errors import GitFailed, refuses_writing
from vmrag_link.file_access import FileStamp, read_file_stamp, remove_stale_temporaries
from vmrag_link.git.readonly import list_fields, require_fewer, run_readonly
from vmrag_link.models import Record
from vmrag_link.paths import Places

MOST_FILES = 200_000
"""Maximum number of files in one list."""

_MOST_PATHS = 2_000_000
"""Maximum number of paths of a tree."""

REGULAR = ("100644", "100755")
LINK, SUBMODULE = "120000", "160000"
_SUBMODULE = SUBMODULE.encode()


class RawChange(Record, frozen=True):
    """A changed file with its modes and blobs before and after. The blob is zeros if git does not
    know it.
    """

    path: str
    status: str
    """`A`, `D`, `M`, `T` (another kind of file), `U` (unmerged)."""
    old_mode: str
    mode: str
    old_blob: str
    blob: str


class IndexEntry(Record, frozen=True):
    """An entry of the index."""

    path: str
    mode: str
    blob: str
    stage: int
    """Stage in the index: 0, or 1 to 3 for an unmerged path."""
    absent: bool
    """True if a sparse checkout leaves it out of the work tree."""


def require_countable(places: Places, commit: str) -> None:
    """Raise `LimitExceeded` for a tree with too many paths to compare.

    A tree of some kilobytes can have 10^12 paths, because each level can name one subtree ten
    times. git's diffs collect all results before they print the first.
    """
    require_fewer(places, "ls-tree", "-r", "-t", "-z", "--name-only", "--full-tree", commit, limit=_MOST_PATHS)


def list_tree_files(places: Places, commit: str, empty_tree: str, pathspecs: Sequence[str]) -> Iterator[RawChange]:
    """Yield all files of a commit as additions to the empty tree, because `ls-tree` does not
    support pathspecs.

    Raises `GitFailed` and `LimitExceeded`.
    """
    arguments = ("diff-tree", "--raw", "-r", "-z", "--no-renames", "--no-commit-id", empty_tree, commit, "--")
    return _parse_changes(list_fields(places, *arguments, *pathspecs, limit=2 * MOST_FILES))


def list_staged(places: Places, head: str, pathspecs: Sequence[str], *options: str) -> Iterator[RawChange]:
    """Yield the differences between a tree and the index. Raises `GitFailed` and
    `LimitExceeded`.
    """
    arguments = (
        "diff-index",
        "--cached",
        "--raw",
        "-z",
        "--no-renames",
        "--ignore-submodules=all",
        *options,
        head,
        "--",
    )
    return _parse_changes(list_fields(places, *arguments, *pathspecs, limit=4 * MOST_FILES))


def list_submodules(places: Places, commit: str | None, *, of_index: bool) -> dict[str, str | None]:
    """Return the commits of the submodules that a tree names, by path.

    With `of_index`, the submodules are those of the index. A submodule that the tree lacks has
    None. Raises `GitFailed` and `LimitExceeded`.
    """
    if not of_index:
        fields = list_fields(places, "ls-tree", "-r", "-z", "--full-tree", commit or "", limit=_MOST_PATHS)
        entries = (entry.partition(b"\t") for entry in fields if entry.startswith(_SUBMODULE))
        return {os.fsdecode(path): attributes.split()[2].decode() for attributes, _, path in entries}
    fields = list_fields(places, "ls-files", "--stage", "-z", limit=_MOST_PATHS)
    entries = (entry.partition(b"\t") for entry in fields if entry.startswith(_SUBMODULE))
    named: dict[str, str | None] = {
        os.fsdecode(path): attributes.split()[1].decode() for attributes, _, path in entries
    }
    if not named or commit is None:
        return dict.fromkeys(named)
    arguments = ("diff-index", "--cached", "--raw", "-z", "--no-renames", "--ignore-submodules=dirty", commit, "--")
    changes = _parse_changes(list_fields(places, *arguments, limit=4 * MOST_FILES))
    before = {change.path: change.old_blob if change.old_mode == SUBMODULE else None for change in changes}
    return named | {path: name for path, name in before.items() if path in named}


def list_entries(places: Places, pathspecs: Sequence[str]) -> Iterator[IndexEntry]:
    """Yield the entries of the index. Raises `GitFailed` and `LimitExceeded`."""
    for entry in list_fields(places, "ls-files", "--stage", "-v", "-z", "--", *pathspecs, limit=2 * MOST_FILES):
        described, _, path = os.fsdecode(entry).partition("\t")
        tag, mode, blob, stage = described.split(" ")
        yield IndexEntry(path, mode, blob, int(stage), tag in "Ss")


def list_untracked(places: Places, pathspecs: Sequence[str]) -> list[str]:
    """Return the files that git neither tracks nor ignores, without those of nested repositories.

    Raises `GitFailed` and `LimitExceeded`.
    """
    paths = list_fields(places, "ls-files", "--others", "--exclude-standard", "-z", "--", *pathspecs, limit=MOST_FILES)
    return [os.fsdecode(path) for path in paths if not path.endswith(b"/")]


def _parse_changes(fields: Sequence[bytes]) -> Iterator[RawChange]:
    for described, path in zip(fields[::2], fields[1::2], strict=True):
        old_mode, mode, old_blob, blob, status = described[1:].decode().split(" ")
        yield RawChange(
            path=os.fsdecode(path), status=status[0], old_mode=old_mode, mode=mode, old_blob=old_blob, blob=blob
        )


def parse_statuses(fields: Sequence[bytes]) -> dict[str, str]:
    """Return the statuses of `diff-files --raw -z` by path. An unmerged file has `U`, even if git
    lists another status too.
    """
    statuses: dict[str, str] = {}
    for described, path in zip(fields[::2], fields[1::2], strict=True):
        name, status = os.fsdecode(path), described[-1:].decode()
        statuses[name] = "U" if "U" in (status, statuses.get(name)) else status
    return statuses


def list_names(places: Places, ref: str) -> list[str]:
    """Return the paths of all files in a commit's tree. Raises `GitFailed` and `LimitExceeded`."""
    return [
        os.fsdecode(name) for name in list_fields(places, "ls-tree", "-r", "-z", "--name-only", ref, limit=MOST_FILES)
    ]


def list_blobs(places: Places, ref: str) -> dict[str, str]:
    """Return the blobs of the regular files of a commit, by path. Raises `GitFailed`."""
    fields = list_fields(places, "ls-tree", "-r", "-z", "--full-tree", ref, limit=MOST_FILES)
    entries = (entry.partition(b"\t") for entry in fields)
    return {
        os.fsdecode(path): attributes.split()[2].decode()
        for attributes, _, path in entries
        if attributes[:6].decode() in REGULAR
    }


_CHECKSUM = 32
"""Bytes at the end of an index. Two indexes have the same checksum only if they are equal."""

_NEEDS_UPDATE = 1
_SECOND = 10**9

_KEPT = 3
"""Number of copies that are kept next to the new one, because other processes may use them with
other pathspecs.
"""

_SETTLED = 1
"""Nanoseconds in the time of a copy in which no file needs to be compared, because later files
differ by their times. Only seconds matter, as in most builds of git.
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
            opened.seek(-min(_CHECKSUM, os.fstat(opened.fileno()).st_size), os.SEEK_END)
            return IndexState(stamp, opened.read(_CHECKSUM))
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
        (stamp[3], path) for path in copy.parent.glob(f"{name}@*") if (stamp := read_file_stamp(path)) and path != copy
    ]
    for _, path in sorted(others)[:-_KEPT]:
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
        fields = list_fields(places, *arguments, limit=4 * MOST_FILES, index_file=copy)
    except GitFailed:
        if copy is None:
            raise
        list_fields(places, *arguments, limit=4 * MOST_FILES)  # raises if the copy is not the reason
        copy.unlink(missing_ok=True)  # damaged by a power cut, because it is written without flushing to disk
        return None
    statuses = parse_statuses(fields)
    if copy is None:
        return statuses
    # git treats a missing index as empty.
    removed = (seen is None or read_file_stamp(copy) is None) and places.index_file.exists()
    return None if removed else statuses


def settle_copy(copy: Path, seen: FileStamp | None, now: int, newest: int) -> None:
    """Let git skip the files that were unchanged when it compared them after `now`, a time of
    `read_clock`.

    `seen`: the copy's stamp before that. `newest`: the time of the newest changed file. If it is in
    the copy's own second, only its content may show the change, so nothing is done.
    """
    if seen is None:
        return
    inode, _, written, made = seen
    if written % _SECOND == _SETTLED or now // _SECOND <= made // _SECOND or newest // _SECOND >= written // _SECOND:
        return
    with contextlib.suppress(OSError):
        descriptor = os.open(copy, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            if os.fstat(descriptor).st_ino == inode:
                settled = now // _SECOND * _SECOND + _SETTLED
                os.utime(descriptor, ns=(settled, settled))
        finally:
            os.close(descriptor)
