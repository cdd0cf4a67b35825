"""The local copy of a knowledge base that git transfers. The engine uses it as the remote.

The remotes of each engine have another form, and so has their content in git. A record
next to the copy contains the commit to which the copy corresponds, and the state of its files then.

The copy of the engine dolt is a folder in the format of a Dolt remote. git has the same files as
blobs on one ref, in the format in which Dolt itself writes them into a git repository. Dolt would
start a hundred git processes for a push, so vmrag transfers the ref like any other, with the user's
credentials, within git's time limits, and with a lease. The remote has one ref and no branch, and
plain Dolt can read it: `dolt clone --ref refs/vmrag/dolt git+https://…`.
"""

from __future__ import annotations

import itertools
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Protocol

import msgspec

from vmrag_link import permissions
from vmrag_link.engines.folder import EngineName
from vmrag_link.engines.limits import Limits, too_large_error
from vmrag_link.errors import RemoteDamaged
from vmrag_link.file_access import (
    remove_stale_temporaries,
    remove_temporaries,
    require_space,
    sync_to_disk,
    write_atomically,
)
from vmrag_link.git import objects
from vmrag_link.git.objects import TreeEntry
from vmrag_link.models import Record
from vmrag_link.paths import Places
from vmrag_link.transport import segments

FILE_NAME = "remote.doltlite"
_RECORD_NAME = "stands-at"
"""The name of the file that records the state of a copy."""


class Copy(Protocol):
    """The copy of one remote. `url` is the engine's address of it."""

    @property
    def url(self) -> str: ...

    @property
    def exists(self) -> bool: ...

    def measure_size(self, repository: Places, commit: str) -> int:
        """Return the bytes of the knowledge base in a commit. Raises `RemoteDamaged`."""

    def require_acceptable(self, repository: Places, commit: str, *, limits: Limits) -> None:
        """Require that the knowledge base in an untrusted commit is within the limits.

        It must also fit on the disk. Call this before any of it is read. Raises `KnowledgeRefused`,
        `RemoteDamaged` and `FileFailed`.
        """

    def check_out_commit(self, repository: Places, commit: str) -> None:
        """Replace the content of the copy by a commit of `repository`.

        An interruption leaves a mixture. Raises `RemoteDamaged`.
        """

    def is_at(self, commit: str) -> bool:
        """Return whether the copy is unchanged since it was recorded for the commit."""

    def find_damage(self, commit: str) -> str:
        """Describe the damage of a copy at this commit or later, or return an empty text.

        This reads the whole copy.
        """

    def record_commit(self, commit: str) -> None:
        """Record that the copy corresponds to the commit, once it would survive a power cut."""

    def forget_commit(self) -> None:
        """Remove the record of a commit, before the copy changes."""

    def store_commit(self, before: str | None) -> str:
        """Return the commit with the copy's content, on top of the commit `before`, or on none.

        It is `before` itself if nothing changed. Raises `RemoteDamaged` if the copy does not build
        on it.
        """

    def create_empty(self) -> Copy:
        """Create an empty copy next to this one."""

    def discard(self) -> None: ...


def open_copy(engine: EngineName, folder: Path, git: Places) -> Copy:
    """Return the copy in a folder. `git` is the repository for commits of its content."""
    if engine == "dolt":
        return DoltCopy(folder, git)
    return FileCopy(folder / FILE_NAME, git)


# -- the embedded engine: a file


class FileCopy:
    """A file of the embedded engine. git holds it in segments."""

    def __init__(self, file: Path, git: Places) -> None:
        self._file = file
        self._git = git

    @property
    def url(self) -> str:
        return f"file://{self._file}"

    @property
    def exists(self) -> bool:
        return self._file.exists()

    def measure_size(self, repository: Places, commit: str) -> int:
        return segments.read_size(repository, commit)

    def require_acceptable(self, repository: Places, commit: str, *, limits: Limits) -> None:
        segments.require_acceptable(repository, commit, self._file, limits=limits)

    def check_out_commit(self, repository: Places, commit: str) -> None:
        segments.restore_file(repository, commit, self._file)

    def is_at(self, commit: str) -> bool:
        return is_file_at(self._file, commit)

    def find_damage(self, commit: str) -> str:
        try:
            is_intact = not self.exists or segments.begins_with(self._git, commit, self._file)
        except RemoteDamaged as error:
            return error.message
        return "" if is_intact else f"{self._file.name} differs from the fetched data"

    def record_commit(self, commit: str) -> None:
        record_file(self._file, commit)

    def forget_commit(self) -> None:
        permissions.make_folder(self._file.parent)
        record_path(self._file).unlink(missing_ok=True)

    def store_commit(self, before: str | None) -> str:
        return segments.store_file(self._git, self._file, before)

    def create_empty(self) -> Copy:
        file = self._file.with_name("new.doltlite")
        permissions.make_folder(file.parent)  # it may not exist yet
        discard_file(file)
        return FileCopy(file, self._git)

    def discard(self) -> None:
        discard_file(self._file)


def has_record(folder: Path) -> bool:
    """Return whether the state of the copy in a folder is recorded, for any engine."""
    return any(path.exists() for path in (folder / _RECORD_NAME, *folder.glob(f"*/{_RECORD_NAME}")))


def record_path(file: Path) -> Path:
    return file.with_name(_RECORD_NAME)


def is_file_at(file: Path, commit: str) -> bool:
    """Return whether the file is unchanged since it was recorded for the commit."""
    try:
        return record_path(file).read_bytes() == _format_record(file, commit)
    except FileNotFoundError:
        return False


def record_file(file: Path, commit: str) -> None:
    """Record that the file corresponds to the commit, once it would survive a power cut.

    A push adds to the file: data that it lacked then would be lost on the remote.
    """
    sync_to_disk(file)
    permissions.apply_folder_mode(file.parent)  # including doltlite's lock file
    path = record_path(file)
    remove_temporaries(path)
    write_atomically(path, _format_record(file, commit), durable=False)


def _format_record(file: Path, commit: str) -> bytes:
    # Any other writer changes the time of the file.
    state = file.stat()
    return f"{commit} {state.st_size} {state.st_mtime_ns}".encode()


def discard_file(file: Path) -> None:
    """Remove a doltlite file with its lock."""
    file.unlink(missing_ok=True)
    file.with_name(f".{file.name}-lock").unlink(missing_ok=True)


# -- the engine dolt: a folder

DOLT_NAME = "remote"
_FORMER_NAME = "remote.git"
"""The name of the copy in earlier versions of this program, which was a git repository."""

_MESSAGE = "Knowledge base"
_SIGNATURE = "vmrag <vmrag@localhost>"
_MANIFEST = "manifest"
_TABLE_NAME = re.compile(r"(?!v{32})[0-9a-v]{32}(\.darc)?")
_ENTRY_PATH = re.compile(rf"{_MANIFEST}|{_TABLE_NAME.pattern}(\.records|\.tail)?(/[0-9]{{1,8}})?")
_MAX_ENTRIES = 100_000
_PART_BYTES = 50 << 20
"""Bytes of a blob. Dolt cuts a large file into such parts, because hosts refuse larger blobs."""

_MAX_PART_BYTES = 2 * _PART_BYTES
_MAX_GROUP_BYTES = 64 << 20
"""Bytes of blobs in memory at a time, unless one blob alone is larger."""


class _RecordedFile(Record, frozen=True):
    """The blobs of a file, and its size and time when it was created from them."""

    blobs: tuple[str, ...]
    size: int
    changed_ns: int


class _DoltRecord(Record, frozen=True):
    """The record of a folder."""

    commit: str
    """The commit to which the folder corresponds; empty if it may correspond to none."""
    files: dict[str, _RecordedFile]
    """The files by name."""


class DoltCopy:
    """A folder in the format of a Dolt remote; see `Copy`.

    The record keeps the blobs of each file, so a file is read once.
    """

    def __init__(self, folder: Path, git: Places, *, name: str = DOLT_NAME) -> None:
        self._folder = folder / name
        self._git = git
        self._blobs: dict[str, tuple[str, ...]] = {}
        """The blobs of each file, since `check_out_commit` or `store_commit`."""
        self._listed_commit = ""
        self._listed_entries: dict[str, TreeEntry] = {}

    @property
    def url(self) -> str:
        return f"file://{self._folder}"

    @property
    def exists(self) -> bool:
        return (self._folder / _MANIFEST).exists()

    def measure_size(self, repository: Places, commit: str) -> int:
        return sum(entry.size for entry in self._list_entries(repository, commit).values())

    def require_acceptable(self, repository: Places, commit: str, *, limits: Limits) -> None:
        size = self.measure_size(repository, commit)
        if size > limits.file_bytes:
            raise too_large_error(size, limits.file_bytes)
        require_space(self._folder, size, "the remote's knowledge base")

    def check_out_commit(self, repository: Places, commit: str) -> None:
        """Write table files before the manifest that names them."""
        parts = _group_parts(self._list_entries(repository, commit))
        blobs = {name: tuple(entry.name for entry in entries) for name, entries in parts.items()}
        shutil.rmtree(self._folder.with_name(_FORMER_NAME), ignore_errors=True)
        permissions.make_folder(self._folder)
        unchanged = self._read_unchanged_blobs()
        for path in self._folder.iterdir():
            if path.name not in blobs and path.name != _RECORD_NAME:
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        missing = [(name, part) for name in parts if unchanged.get(name) != blobs[name] for part in parts[name]]
        for name, contents in itertools.groupby(_read_contents(repository, missing), key=itemgetter(0)):
            unfinished = self._folder / f"{name}.unfinished"
            with unfinished.open("wb") as out:
                out.writelines(content for _, content in contents)
            unfinished.replace(self._folder / name)
        self._blobs = blobs

    def is_at(self, commit: str) -> bool:
        record = self._read_record()
        return record.commit == commit and self._read_unchanged_blobs().keys() == record.files.keys()

    def find_damage(self, commit: str) -> str:
        if not self.exists:
            return ""
        try:
            table_files = self._list_table_files()
            parts = _group_parts(self._list_entries(self._git, commit))
        except RemoteDamaged as error:
            return error.message
        for path in table_files:
            entries = parts.get(path.name)
            if entries and not _consists_of(path, entries):
                return f"{path.name} differs from the fetched data"
        return ""

    def record_commit(self, commit: str) -> None:
        permissions.apply_folder_mode(self._folder)
        recorded_files = self._read_record().files
        unchanged = self._read_unchanged_blobs()
        files = {
            name: recorded_files[name] if unchanged.get(name) == blobs else _record_contents(self._folder / name, blobs)
            for name, blobs in self._blobs.items()
        }
        self._write_record(_DoltRecord(commit, files))

    def forget_commit(self) -> None:
        permissions.make_folder(self._folder)
        self._write_record(_DoltRecord("", self._read_record().files))

    def store_commit(self, before: str | None) -> str:
        recorded_files = self._read_record().files
        unchanged = self._read_unchanged_blobs()
        if before and not recorded_files:
            raise RemoteDamaged(
                "the pushed data does not build on the content of the remote.",
                hint="run 'vmrag push' to push the revision",
            )
        writer = objects.ObjectWriter(self._git)
        blobs_by_file = {
            path.name: unchanged.get(path.name) or tuple(map(writer.write_blob, _read_parts(path)))
            for path in self._list_table_files()
        }
        blobs_by_file[_MANIFEST] = (writer.write_blob((self._folder / _MANIFEST).read_bytes()),)
        self._blobs = blobs_by_file
        if before and blobs_by_file == {name: file.blobs for name, file in recorded_files.items()}:
            return before
        entries = {path: blob for name, blobs in blobs_by_file.items() for path, blob in _list_tree_paths(name, blobs)}
        return writer.write_commit(entries, parent=before, message=_MESSAGE, signature=_SIGNATURE)

    def create_empty(self) -> DoltCopy:
        copy = DoltCopy(self._folder.parent, self._git, name=f"new-{DOLT_NAME}")
        copy.discard()
        permissions.make_folder(copy._folder)
        return copy

    def discard(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    def _list_entries(self, repository: Places, commit: str) -> dict[str, TreeEntry]:
        """Return the files in a commit. A commit is listed once."""
        if self._listed_commit != commit:
            self._listed_entries = _list_entries(repository, commit)
            self._listed_commit = commit
        return self._listed_entries

    def _list_table_files(self) -> list[Path]:
        """Return the files that Dolt's manifest names. Raises `RemoteDamaged` if one is missing."""
        from vmrag_link.engines.dolt import files

        try:
            names = files.parse_table_counts(files.read_manifest(self._folder))
        except OSError as error:
            raise _foreign_content_error() from error
        paths = [path for name in names or () if (path := files.find_table_file(self._folder, name))]
        if names is None or len(paths) < len(names):
            raise RemoteDamaged(
                "the copy of the remote lacks a file in its manifest.", hint="run 'vmrag push' to push the revision"
            )
        return paths

    def _read_unchanged_blobs(self) -> dict[str, tuple[str, ...]]:
        """Return the blobs of the recorded files that have not changed."""
        recorded_files = self._read_record().files
        return {name: file.blobs for name, file in recorded_files.items() if _is_unchanged(self._folder / name, file)}

    def _read_record(self) -> _DoltRecord:
        try:
            return msgspec.json.decode((self._folder / _RECORD_NAME).read_bytes(), type=_DoltRecord)
        except (FileNotFoundError, UnicodeDecodeError, msgspec.DecodeError):
            return _DoltRecord("", {})

    def _write_record(self, record: _DoltRecord) -> None:
        remove_stale_temporaries(self._folder)
        write_atomically(self._folder / _RECORD_NAME, msgspec.json.encode(record), durable=False)


def _list_entries(places: Places, commit: str) -> dict[str, TreeEntry]:
    """Return Dolt's files in a commit, by path. Raises `RemoteDamaged` for other content."""
    entries = objects.read_tree(places, commit, deep=True)
    if _MANIFEST not in entries or len(entries) > _MAX_ENTRIES:
        raise _foreign_content_error()
    for path, entry in entries.items():
        if not 0 <= entry.size <= _MAX_PART_BYTES or not _ENTRY_PATH.fullmatch(path):
            raise _foreign_content_error()
    return entries


def _group_parts(entries: Mapping[str, TreeEntry]) -> dict[str, list[TreeEntry]]:
    """Return the parts of each file that Dolt opens, by name. The manifest comes last."""
    files: dict[str, list[TreeEntry]] = {}
    for path in sorted(entries.keys() - {_MANIFEST}):
        name = path.partition("/")[0]
        if _TABLE_NAME.fullmatch(name):
            files.setdefault(name, []).append(entries[path])
    return files | {_MANIFEST: [entries[_MANIFEST]]}


def _read_contents(places: Places, parts: Iterable[tuple[str, TreeEntry]]) -> Iterator[tuple[str, bytes]]:
    """Yield the contents of the parts of files, in the given order."""
    group: list[tuple[str, TreeEntry]] = []
    for name, part in parts:
        if group and sum(entry.size for _, entry in group) + part.size > _MAX_GROUP_BYTES:
            yield from _read_group(places, group)
            group = []
        group.append((name, part))
    yield from _read_group(places, group)


def _read_group(places: Places, group: Sequence[tuple[str, TreeEntry]]) -> Iterator[tuple[str, bytes]]:
    contents = objects.read_blobs(places, [part.name for _, part in group])
    return zip((name for name, _ in group), contents, strict=True)


def _list_tree_paths(name: str, blobs: tuple[str, ...]) -> Iterable[tuple[str, str]]:
    """Return the paths of a file's blobs in a tree, like Dolt: `NAME`, or `NAME/0001` and so on."""
    if len(blobs) == 1:
        return [(name, blobs[0])]
    return [(f"{name}/{number:04d}", blob) for number, blob in enumerate(blobs, 1)]


def _read_parts(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        yield file.read(_PART_BYTES)  # also of an empty file
        while part := file.read(_PART_BYTES):
            yield part


def _consists_of(path: Path, entries: Sequence[TreeEntry]) -> bool:
    with path.open("rb") as file:
        are_equal = all(objects.hash_blob(file.read(entry.size), like=entry.name) == entry.name for entry in entries)
        return are_equal and not file.read(1)


def _record_contents(path: Path, blobs: tuple[str, ...]) -> _RecordedFile:
    """Return the record of a file with its blobs, once the file would survive a power cut."""
    sync_to_disk(path)
    state = path.stat()
    return _RecordedFile(blobs, state.st_size, state.st_mtime_ns)


def _is_unchanged(path: Path, recorded: _RecordedFile) -> bool:
    try:
        state = path.stat()
    except FileNotFoundError:
        return False
    return (state.st_size, state.st_mtime_ns) == (recorded.size, recorded.changed_ns)


def _foreign_content_error() -> RemoteDamaged:
    return RemoteDamaged(
        "the ref on the remote does not hold a Dolt knowledge base; nothing was fetched.",
        hint="run 'vmrag gc --remote --apply' in a sound clone to replace it",
    )
