"""What differs between commits, git's index and the work tree, in git's raw format, and the copy of
the index by which the work tree is compared.

git knows by a file's times that it is unchanged, and learns them when it rewrites the index. We
never rewrite the person's, so after a `touch` of all files each look would read them all again. Our
copy learns instead. It is derived: named by the state of the index that it copies, and thrown away
with the next one.

**The racy rule is git's own**: a file that is not older than the index file may have changed since,
with the same size and times, and is compared by its content. So a copy keeps the time of what it
was copied from, and gets a later one only when every file in it was seen later.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from vmrag_link import permissions
from vmrag_link.errors import GitFailed, refuses_writing
from vmrag_link.git.beside import list_fields, require_fewer, run_readonly
from vmrag_link.models import Record
from vmrag_link.paths import FileStamp, Places, read_file_stamp, remove_stale_temporaries

MOST_FILES = 200_000
"""In one list."""

_MOST_PATHS = 2_000_000
"""Of a tree, whatever is asked of it."""

REGULAR = ("100644", "100755")
LINK, SUBMODULE = "120000", "160000"
_SUBMODULE = SUBMODULE.encode()


class RawChange(Record, frozen=True):
    """Modes and blobs before and after; the blob is zeros where git does not know it.

    `status`: `A`, `D`, `M`, `T` (another kind of file), `U` (unmerged).
    """

    path: str
    status: str
    old_mode: str
    mode: str
    old_blob: str
    blob: str


class IndexEntry(Record, frozen=True):
    """`stage` is 0, or 1 to 3 of an unmerged path. `absent`: left out of the work tree (sparse)."""

    path: str
    mode: str
    blob: str
    stage: int
    absent: bool


def require_countable(places: Places, commit: str) -> None:
    """Raise `LimitExceeded` for a tree with more paths than can be compared.

    Some kilobytes can have 10^12 of them: each level names one subtree ten times. git's diffs
    gather all that they find before they say the first.
    """
    require_fewer(places, "ls-tree", "-r", "-t", "-z", "--name-only", "--full-tree", commit, most=_MOST_PATHS)


def list_tree_files(places: Places, commit: str, empty_tree: str, pathspecs: Sequence[str]) -> Iterator[RawChange]:
    """All files of a commit, as what was added to the empty tree: `ls-tree` knows no pathspecs.

    Raises as `beside.fields`.
    """
    arguments = ("diff-tree", "--raw", "-r", "-z", "--no-renames", "--no-commit-id", empty_tree, commit, "--")
    return _changes(list_fields(places, *arguments, *pathspecs, most=2 * MOST_FILES))


def list_staged(places: Places, head: str, pathspecs: Sequence[str], *options: str) -> Iterator[RawChange]:
    """How the index differs from a tree. Raises as `beside.fields`."""
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
    return _changes(list_fields(places, *arguments, *pathspecs, most=4 * MOST_FILES))


def list_submodules(places: Places, commit: str | None, *, of_index: bool) -> dict[str, str | None]:
    """Return the commits that a tree names for its submodules, by path; with `of_index`, for those
    of the index. None: the tree has no such submodule. Raises `GitFailed` and `LimitExceeded`.
    """
    if not of_index:
        listed = list_fields(places, "ls-tree", "-r", "-z", "--full-tree", commit or "", most=_MOST_PATHS)
        entries = (entry.partition(b"\t") for entry in listed if entry.startswith(_SUBMODULE))
        return {os.fsdecode(path): about.split()[2].decode() for about, _, path in entries}
    listed = list_fields(places, "ls-files", "--stage", "-z", most=_MOST_PATHS)
    entries = (entry.partition(b"\t") for entry in listed if entry.startswith(_SUBMODULE))
    named: dict[str, str | None] = {os.fsdecode(path): about.split()[1].decode() for about, _, path in entries}
    if not named or commit is None:
        return dict.fromkeys(named)
    arguments = ("diff-index", "--cached", "--raw", "-z", "--no-renames", "--ignore-submodules=dirty", commit, "--")
    changes = _changes(list_fields(places, *arguments, most=4 * MOST_FILES))
    before = {change.path: change.old_blob if change.old_mode == SUBMODULE else None for change in changes}
    return named | {path: name for path, name in before.items() if path in named}


def list_entries(places: Places, pathspecs: Sequence[str]) -> Iterator[IndexEntry]:
    """What git tracks. Raises as `beside.fields`."""
    for entry in list_fields(places, "ls-files", "--stage", "-v", "-z", "--", *pathspecs, most=2 * MOST_FILES):
        described, _, path = os.fsdecode(entry).partition("\t")
        tag, mode, blob, stage = described.split(" ")
        yield IndexEntry(path, mode, blob, int(stage), tag in "Ss")


def list_untracked(places: Places, pathspecs: Sequence[str]) -> list[str]:
    """Files that git neither tracks nor ignores; of repositories in the work tree none.

    Raises as `beside.fields`.
    """
    found = list_fields(places, "ls-files", "--others", "--exclude-standard", "-z", "--", *pathspecs, most=MOST_FILES)
    return [os.fsdecode(each) for each in found if not each.endswith(b"/")]


def _changes(listed: Sequence[bytes]) -> Iterator[RawChange]:
    for described, path in zip(listed[::2], listed[1::2], strict=True):
        old_mode, mode, old_blob, blob, status = described[1:].decode().split(" ")
        yield RawChange(os.fsdecode(path), status[0], old_mode, mode, old_blob, blob)


def parse_statuses(listed: Sequence[bytes]) -> dict[str, str]:
    """The statuses of `diff-files --raw -z` by path: of an unmerged one `U`, whatever else is
    said.
    """
    found: dict[str, str] = {}
    for described, path in zip(listed[::2], listed[1::2], strict=True):
        name, status = os.fsdecode(path), described[-1:].decode()
        found[name] = "U" if "U" in (status, found.get(name)) else status
    return found


def list_names(places: Places, ref: str) -> list[str]:
    """The paths of all files in a commit's tree. Raises as `beside.fields`."""
    return [
        os.fsdecode(name) for name in list_fields(places, "ls-tree", "-r", "-z", "--name-only", ref, most=MOST_FILES)
    ]


def list_blobs(places: Places, ref: str) -> dict[str, str]:
    """Return the blobs of the regular files of a commit, by path. Raises `GitFailed`."""
    listed = list_fields(places, "ls-tree", "-r", "-z", "--full-tree", ref, most=MOST_FILES)
    entries = (entry.partition(b"\t") for entry in listed)
    return {os.fsdecode(path): about.split()[2].decode() for about, _, path in entries if about[:6].decode() in REGULAR}


_CHECKSUM = 32
"""Bytes at the end of an index; two have the same ones only if they are the same."""

_NEEDS_UPDATE = 1
_SECOND = 10**9

_KEPT = 3
"""Copies beside the one that is made: other processes may use them, with other questions."""

_SETTLED = 1
"""Nanoseconds of the time of a copy in which no file needs to be compared: later ones differ by
their times. Seconds decide, as in most builds of git.
"""


class IndexState(Record, frozen=True):
    """Another one after git has written the index. No stamp: there is none yet."""

    stamp: FileStamp | None
    checksum: bytes


def read_index_state(places: Places) -> IndexState:
    path = places.index_file
    stamp = read_file_stamp(path)
    try:
        with path.open("rb") as opened:
            opened.seek(-min(_CHECKSUM, os.fstat(opened.fileno()).st_size), os.SEEK_END)
            return IndexState(stamp, opened.read(_CHECKSUM))
    except FileNotFoundError:
        return IndexState(None, b"")


def read_clock(folder: Path) -> int:
    """The time, in nanoseconds, that a file gets which is written there now; 0 where none can be
    written.
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
    """Copy the index as it is, and remove the oldest copies beside it."""
    source = places.index_file
    permissions.make_folder(copy.parent)
    with contextlib.suppress(FileNotFoundError):  # no index yet: git takes a missing one for an empty one
        _temporary_of(source, copy).replace(copy)
    remove_stale_temporaries(copy.parent)
    name = copy.name.rpartition("@")[0]
    others = [
        (stamp[3], path) for path in copy.parent.glob(f"{name}@*") if (stamp := read_file_stamp(path)) and path != copy
    ]
    for _, each in sorted(others)[:-_KEPT]:
        each.unlink(missing_ok=True)


def refresh_copy(places: Places, copy: Path) -> None:
    """Let it know the times of all files that are unchanged. Raises as `beside.look`."""
    try:
        temporary = _temporary_of(copy, copy)
    except FileNotFoundError:  # no index yet, or removed by another process
        return
    try:
        options = ("-q", "--refresh", "--unmerged", "--ignore-missing", "--ignore-submodules")
        run_readonly(places, "update-index", *options, index_file=temporary, fine=(0, _NEEDS_UPDATE))
        temporary.replace(copy)
    finally:
        for leftover in (temporary, temporary.with_name(f"{temporary.name}.lock")):
            leftover.unlink(missing_ok=True)


def _temporary_of(source: Path, copy: Path) -> Path:
    """A temporary file with the content and the time of `source`. git takes a lock beside an index
    that it writes: each process has its own.
    """
    temporary = copy.with_name(f".{copy.name[:50]}.{os.urandom(6).hex()}.tmp")
    try:
        with source.open("rb") as opened, temporary.open("xb") as out:
            permissions.restore_mode(out.fileno(), temporary)
            # Its time first: what is written meanwhile replaces the file, so the content fits.
            written = os.fstat(opened.fileno()).st_mtime_ns
            shutil.copyfileobj(opened, out)
        os.utime(temporary, ns=(written, written))
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return temporary


def list_changed(places: Places, copy: Path | None, pathspecs: Sequence[str]) -> dict[str, str] | None:
    """Which files are not as the index has them, with git's status (`M`, `D`, `T`, `A`, `U`).

    `M` may be wrong where only the times of a file differ, until `refresh`. None: the copy was
    removed meanwhile, or was damaged and is removed now. Without a copy, git's own index is read.
    Raises as `beside.fields`.
    """
    seen = read_file_stamp(copy) if copy else None
    arguments = ("diff-files", "--raw", "-z", "--no-renames", "--ignore-submodules=all", "--", *pathspecs)
    try:
        listed = list_fields(places, *arguments, most=4 * MOST_FILES, index_file=copy)
    except GitFailed:
        if copy is None:
            raise
        list_fields(places, *arguments, most=4 * MOST_FILES)  # raises if the copy is not what is wrong
        copy.unlink(missing_ok=True)  # it is written without waiting for the disk: a power cut tears it
        return None
    found = parse_statuses(listed)
    if copy is None:
        return found
    # git takes a missing index for an empty one.
    removed = (seen is None or read_file_stamp(copy) is None) and places.index_file.exists()
    return None if removed else found


def settle_copy(copy: Path, seen: FileStamp | None, now: int, newest: int) -> None:
    """Spare git to compare again what was unchanged when it looked after `now`, by `clock`.

    `seen`: the copy's stamp before that. `newest`: the time of the newest file that is changed:
    with the copy's own second it may be one that only its content tells.
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
