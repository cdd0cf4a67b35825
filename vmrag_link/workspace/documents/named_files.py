"""Find and read files that a user or an agent names, to add them as documents.

An agent may take a path from an untrusted text. So symbolic links are resolved before the path is
compared with the allowed folders, and the file that is read must be the file that was checked. A
user may read any file.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from vmrag_link import clock, terminal_text
from vmrag_link.documents.export_paths import is_git_folder
from vmrag_link.errors import AccessDenied, FileFailed, quoted
from vmrag_link.models import Document, Record
from vmrag_link.paths import Places, is_outside_projects
from vmrag_link.workspace import Workspace

_ATTEMPTS = 3
"""Number of attempts to read a file that changes at the same time."""

_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


class SourceContent(Record, frozen=True):
    """A file or page that was read."""

    key: str
    """Its identity, the same on every machine if possible.

    For a file in the work tree, this is the path from the top, for another file the absolute path,
    and for a page the URL without credentials.
    """
    name: str
    """The file's name, from which the converter guesses format and title."""
    hash: str
    """SHA-256 of the bytes."""
    data: bytes
    """The bytes; empty if a server reported that the stored document is current."""
    last_modified: str = ""
    """ISO 8601 UTC; empty if unknown."""
    file_type: str = ""
    """Empty if the converter decides."""
    media_type: str = ""
    """From the server, as are the fields below."""
    charset: str = ""
    etag: str = ""


class NamedFile(NamedTuple):
    """A file that a user or an agent named."""

    path: Path
    """An absolute path, in which only the last part may be a symbolic link."""
    target: Path
    """The file to read, without symbolic links."""


def resolve_file(path: Path) -> NamedFile:
    """Return the file that an absolute path means, for a user."""
    return NamedFile(Path(_resolve_links(path.parent), path.name), _resolve_links(path))


def find_file(ws: Workspace, path: str) -> NamedFile:
    """Return the file that an agent means. A relative path begins in the working directory or top.

    Raises `AccessDenied` for a path outside of `ingest.allowed_roots`, whether it exists or not,
    and for files in git folders.
    """
    if "\0" in path:
        raise _read_error(Path(path), "its name has a NUL character", hint="check the path")
    directory = _working_directory()
    roots = _allowed_roots(ws, directory)
    given = Path(os.path.expanduser(path))  # noqa: PTH111  never raises
    starts = [ws.places.top]
    if directory and _is_below(_resolve_links(directory), roots):
        starts.insert(0, directory)
    candidates = [resolve_file(start / given) for start in starts]
    for candidate in candidates:
        if _may_be_read(ws.places, candidate.target, roots) and os.path.exists(candidate.target):  # noqa: PTH110  never raises
            return candidate
    for candidate in candidates:
        if not _may_be_read(ws.places, candidate.target, roots):
            raise _access_error(candidate.path, roots)
    return candidates[-1]


def read_file(ws: Workspace, file: NamedFile) -> SourceContent:
    """Read a regular file as a whole, in one consistent state.

    Raises `FileFailed` for anything else, for a file larger than `ingest.max_bytes`, and for a file
    that keeps changing.
    """
    max_bytes = ws.config.ingest.max_bytes
    key = key_of(ws.places, file)
    for _ in range(_ATTEMPTS):
        data, modified = _read_once(file.target, max_bytes)
        if modified is not None:
            return SourceContent(
                key, file.path.name, hash_of(data), data, last_modified=clock.format_file_time(int(modified))
            )
    raise _read_error(
        file.path, "it changed while it was read", hint="try again when the program that writes it has finished"
    )


def key_of(places: Places, file: NamedFile) -> str:
    """Return the `SourceContent.key` of a file. Raises `FileFailed` if the path is not UTF-8."""
    top = _resolve_links(places.top)
    key = file.path.relative_to(top).as_posix() if file.path.is_relative_to(top) else str(file.path)
    try:
        key.encode()
    except UnicodeEncodeError:
        raise _read_error(file.path, "its path is not UTF-8, and cannot be stored", hint="rename it") from None
    return key


def _allowed_roots(ws: Workspace, directory: Path | None) -> list[Path]:
    """Return the folders below which an agent may read.

    These are the folders in the settings, by default work tree and working directory. A working
    directory outside of all projects, such as that of a desktop program, is left out.
    """
    roots = [Path(folder.strip()) for folder in ws.config.ingest.allowed_roots.split(",") if folder.strip()]
    if not roots:
        roots = [ws.places.top]
        if directory and not is_outside_projects(directory):
            roots.append(directory)
    return [_resolve_links(root) for root in roots]


def _may_be_read(places: Places, target: Path, roots: Sequence[Path]) -> bool:
    """Return whether a path without links is below a root and not in a git folder."""
    git_folders = (_resolve_links(places.git_dir), _resolve_links(places.common))
    # Git folders of any repository may have credentials. `.GIT` is the same folder on macOS.
    is_in_git = any(map(is_git_folder, target.parts)) or _is_below(target, git_folders)
    return _is_below(target, roots) and not is_in_git


def _is_below(path: Path, folders: Iterable[Path]) -> bool:
    return any(map(path.is_relative_to, folders))


def _read_once(path: Path, max_bytes: int) -> tuple[bytes, float | None]:
    """Return the bytes of a file and its time. Without a time, the file changed meanwhile."""
    try:
        # A pipe without a writer would block, and a link would lead to another file.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
        with os.fdopen(descriptor, "rb") as opened:
            before = os.fstat(descriptor)
            _require_regular(path, before, max_bytes)
            data = opened.read(max_bytes + 1)
            after = os.fstat(descriptor)
    except OSError as error:
        raise _open_error(path, error) from error
    if len(data) > max_bytes:
        raise _size_error(path, max_bytes)
    is_unchanged = _file_state(before) == _file_state(after) and len(data) == after.st_size
    return data, after.st_mtime if is_unchanged and _is_same_file(path, after) else None


def _require_regular(path: Path, status: os.stat_result, max_bytes: int) -> None:
    """Require a regular file of allowed size. Raises `FileFailed`."""
    if not stat.S_ISREG(status.st_mode):
        kind = _KINDS.get(stat.S_IFMT(status.st_mode), "not a file")
        raise _read_error(path, f"it is {kind}", hint="use a regular file")
    if status.st_size > max_bytes:
        raise _size_error(path, max_bytes)


def _file_state(status: os.stat_result) -> tuple[int, ...]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _is_same_file(path: Path, status: os.stat_result) -> bool:
    """Return whether the path is still this file, without links."""
    try:
        return _resolve_links(path) == path and os.path.samestat(path.lstat(), status)
    except OSError:
        return False


def _open_error(path: Path, error: OSError) -> FileFailed:
    """Return the error for a file that cannot be opened, with its kind if it is not a file."""
    try:
        kind = _KINDS.get(stat.S_IFMT(path.stat().st_mode))
    except OSError:
        kind = None
    reason = f"it is {kind}" if kind else error.strerror or str(error)
    return _read_error(path, reason, hint=f"run 'ls -la {quoted(path)}' to check its permissions")


def _size_error(path: Path, max_bytes: int) -> FileFailed:
    return _read_error(
        path,
        f"it has more than {max_bytes:,} bytes",
        hint="run 'git config vmrag.ingest.max-bytes NUMBER' to set a larger limit, if the machine has enough memory",
    )


def _read_error(path: Path, reason: str, *, hint: str) -> FileFailed:
    name = terminal_text.escape_line(str(path))
    return FileFailed(f"cannot read {name}: {reason}.", hint=hint, path=name)


def _access_error(path: Path, roots: Sequence[Path]) -> AccessDenied:
    name = terminal_text.escape_line(str(path))
    return AccessDenied(
        f"{name} was not read, because it is outside of the allowed folders or in a git folder.",
        hint="use a file in the working tree, or let the user run 'git config vmrag.ingest.allowed-roots "
        "FOLDER,FOLDER'",
        path=name,
        allowed=[str(root) for root in roots],
    )


def _working_directory() -> Path | None:
    try:
        return Path.cwd()
    except FileNotFoundError:
        return None


def _resolve_links(path: Path) -> Path:
    """Return the path without `..` and symbolic links, as far as it exists."""
    return Path(os.path.realpath(path))


def hash_of(data: bytes) -> str:
    """Return the `SourceContent.hash` of some bytes."""
    return hashlib.sha256(data).hexdigest()


def is_url(source: str) -> bool:
    """Return whether a document's source is a page. A path never has two slashes in a row."""
    return "://" in source


def shown_source(ws: Workspace, document: Document) -> str:
    """Return the source of a document for this machine: a URL or an absolute path.

    The stored source of a file in the work tree is its path from the top.
    """
    source = document.source
    return source if not source or is_url(source) else str(ws.places.top / Path(source))
