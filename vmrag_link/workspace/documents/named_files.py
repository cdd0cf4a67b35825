"""Files that a person or an agent names: which one a path means, whether it may be read, and what
it holds.

A path may come from an agent that read it in a stranger's text, so links are resolved before it is
compared with the folders that are allowed, and the file that is read must be the one that was.
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
"""How often a file is read that changes meanwhile."""

_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


class SourceContent(Record, frozen=True):
    """`key`: by what it is known, the same on every machine where that can be: the path of a
    file below the top of the work tree, else its absolute path; a page's URL without credentials.

    `hash` is SHA-256 of the bytes. `data` is empty where a server says that they are those of the
    document that is there. `name`: what a converter and a missing title take for its file's name.
    `file_type`: empty where the converter decides. `last_modified`: ISO 8601 UTC, empty if not
    known. The rest is what a server said.
    """

    key: str
    name: str
    hash: str
    data: bytes
    last_modified: str = ""
    file_type: str = ""
    media_type: str = ""
    charset: str = ""
    etag: str = ""


class NamedFile(NamedTuple):
    """`path`: absolute, through no link but its own. `target`: what is read, through none."""

    path: Path
    target: Path


def resolve_file(path: Path) -> NamedFile:
    """The file that a person means by an absolute path."""
    return NamedFile(Path(_real(path.parent), path.name), _real(path))


def find_file(ws: Workspace, path: str) -> NamedFile:
    """The file that an agent means, from the working directory or else from the top of the work
    tree.

    Raises `AccessDenied` for what lies outside of `ingest.allowed_roots`, whether it is there or
    not, and for what is git's own.
    """
    if "\0" in path:
        raise _failed(Path(path), "no file's name has a NUL character", hint="Check the path.")
    here = _working_directory()
    roots = _roots(ws, here)
    given = Path(os.path.expanduser(path))  # noqa: PTH111  never raises
    starts = [*([here] if here and _is_below(_real(here), roots) else []), ws.places.top]
    candidates = [resolve_file(start / given) for start in starts]
    for candidate in candidates:
        if _may_be_read(ws.places, candidate.target, roots) and os.path.exists(candidate.target):  # noqa: PTH110  never raises
            return candidate
    for candidate in candidates:
        if not _may_be_read(ws.places, candidate.target, roots):
            raise _denied(candidate.path, roots)
    return candidates[-1]


def read_file(ws: Workspace, file: NamedFile) -> SourceContent:
    """A regular file, whole and of one moment.

    Raises `FileFailed` for anything else, for one of more than `ingest.max_bytes`, and for one that
    does not stop changing.
    """
    most = ws.config.ingest.max_bytes
    key = key_of(ws.places, file)
    for _ in range(_ATTEMPTS):
        data, modified = _read(file.target, most)
        if modified is not None:
            return SourceContent(
                key, file.path.name, hash_of(data), data, last_modified=clock.format_file_time(int(modified))
            )
    raise _failed(file.path, "it changed while it was read", hint="Try again when what writes it has finished.")


def key_of(places: Places, file: NamedFile) -> str:
    """By what a library knows the file: as `Source.key`. Raises `FileFailed` for a path that is no
    text.
    """
    top = _real(places.top)
    key = file.path.relative_to(top).as_posix() if file.path.is_relative_to(top) else str(file.path)
    try:
        key.encode()
    except UnicodeEncodeError:
        raise _failed(file.path, "its path is not UTF-8, and cannot be stored", hint="Rename it.") from None
    return key


def _roots(ws: Workspace, here: Path | None) -> list[Path]:
    """Where an agent may read: the settings say, else the work tree and the working directory.

    Not a working directory in which programs are started that belong to no project.
    """
    roots = [Path(each.strip()) for each in ws.config.ingest.allowed_roots.split(",") if each.strip()]
    usual = [ws.places.top, *([here] if here and not is_outside_projects(here) else [])]
    return [_real(root) for root in roots or usual]


def _may_be_read(places: Places, target: Path, roots: Sequence[Path]) -> bool:
    gits = (_real(places.git_dir), _real(places.common))
    # Of whatever repository, because credentials stand there; `.GIT` is the same folder on macOS.
    own = any(map(is_git_folder, target.parts)) or _is_below(target, gits)
    return _is_below(target, roots) and not own


def _is_below(path: Path, folders: Iterable[Path]) -> bool:
    return any(map(path.is_relative_to, folders))


def _read(path: Path, most: int) -> tuple[bytes, float | None]:
    """The bytes of a file and its time; None for the time if it changed meanwhile."""
    try:
        # A pipe that nobody writes to would keep the open waiting; a link would lead elsewhere.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
        with os.fdopen(descriptor, "rb") as opened:
            before = os.fstat(descriptor)
            _require_regular(path, before, most)
            data = opened.read(most + 1)
            after = os.fstat(descriptor)
    except OSError as error:
        raise _unreadable(path, error) from error
    if len(data) > most:
        raise _too_large(path, most)
    whole = _version(before) == _version(after) and len(data) == after.st_size and _leads_to(path, after)
    return data, after.st_mtime if whole else None


def _require_regular(path: Path, status: os.stat_result, most: int) -> None:
    """Raises `FileFailed`."""
    if not stat.S_ISREG(status.st_mode):
        what = _KINDS.get(stat.S_IFMT(status.st_mode), "no file")
        raise _failed(path, f"it is {what}", hint=f"ls -la {quoted(path)}")
    if status.st_size > most:
        raise _too_large(path, most)


def _version(status: os.stat_result) -> tuple[int, ...]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _leads_to(path: Path, status: os.stat_result) -> bool:
    """Whether the path still leads to this file, through no link."""
    try:
        return _real(path) == path and os.path.samestat(path.lstat(), status)
    except OSError:
        return False


def _unreadable(path: Path, error: OSError) -> FileFailed:
    """A socket or a folder may not be opened at all: that says more than the system does."""
    try:
        kind = _KINDS.get(stat.S_IFMT(path.stat().st_mode))
    except OSError:
        kind = None
    return _failed(path, f"it is {kind}" if kind else (error.strerror or str(error)), hint=f"ls -la {quoted(path)}")


def _too_large(path: Path, most: int) -> FileFailed:
    return _failed(
        path,
        f"it has more than {most:,} bytes",
        hint="Take a larger limit, if the machine can bear it: git config vmrag.ingest.max-bytes NUMBER",
    )


def _failed(path: Path, why: str, *, hint: str) -> FileFailed:
    name = terminal_text.escape_line(str(path))
    return FileFailed(f"{name} cannot be read: {why}.", hint=hint, path=name)


def _denied(path: Path, roots: Sequence[Path]) -> AccessDenied:
    name = terminal_text.escape_line(str(path))
    return AccessDenied(
        f"{name} was not read: it lies outside of the folders that are allowed, or is git's own.",
        hint="Take a file of the work tree. Only the user can allow more: git config vmrag.ingest.allowed-roots FOLDER,FOLDER",
        path=name,
        allowed=[str(root) for root in roots],
    )


def _working_directory() -> Path | None:
    try:
        return Path.cwd()
    except FileNotFoundError:
        return None


def _real(path: Path) -> Path:
    """`..` and links resolved, as far as there is anything; a ring of links is not followed."""
    return Path(os.path.realpath(path))


def hash_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def is_url(source: str) -> bool:
    """Whether a document's source is a page. No path is: one never has two slashes in a row."""
    return "://" in source


def shown_source(ws: Workspace, document: Document) -> str:
    """Where a document comes from, as a person on this machine knows it.

    What is stored of a file in the work tree is its path there, the same on every machine.
    """
    source = document.source
    return source if not source or is_url(source) else str(ws.places.top / Path(source))
