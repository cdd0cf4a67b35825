"""What lies here of a knowledge base that git carries: a place that the engine takes for the
remote.

Each engine's remotes look different, and so does what git holds of them. A note beside the copy
says for which commit it stands, and what the copy was like then.

The copy of the engine dolt is a folder that Dolt takes for a remote. git has the same files as
blobs on one ref, as Dolt itself writes them into a git repository. Dolt would start a hundred git
processes to push there. So the ref travels as everything else does, with the user's credentials,
within git's limits of time, and with a lease. The remote has one ref and no branch, and plain Dolt
reads it: `dolt clone --ref refs/vmrag/dolt git+https://…`.
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
from vmrag_link.engines.base import EngineName
from vmrag_link.engines.limits import Limits, too_large_error
from vmrag_link.errors import RemoteDamaged
from vmrag_link.git import objects
from vmrag_link.git.objects import TreeEntry
from vmrag_link.models import Record
from vmrag_link.paths import (
    Places,
    remove_stale_temporaries,
    remove_temporaries,
    require_space,
    sync_to_disk,
    write_atomically,
)
from vmrag_link.transport import segments


class Copy(Protocol):
    """The copy of one remote. `url`: how the engine names it."""

    @property
    def url(self) -> str: ...

    @property
    def exists(self) -> bool: ...

    def measure_size(self, there: Places, commit: str) -> int:
        """Bytes of the knowledge base that a commit holds. Raises `RemoteDamaged`."""

    def require_acceptable(self, there: Places, commit: str, *, limits: Limits) -> None:
        """Require that a stranger's commit describes a knowledge base within the limits, for which
        the disk has room.

        Called before any of it is looked at. Raises `KnowledgeRefused`, `RemoteDamaged`,
        `FileFailed`.
        """

    def check_out_commit(self, there: Places, commit: str) -> None:
        """Let the copy be what a commit of the repository `there` holds.

        An interruption leaves a mixture. Raises `RemoteDamaged`.
        """

    def is_at(self, commit: str) -> bool:
        """Whether the copy is what was noted for the commit."""

    def find_damage(self, commit: str) -> str:
        """Return what is damaged of a copy that holds the commit or more, or an empty text.

        Reads all of it.
        """

    def note_commit(self, commit: str) -> None:
        """Note that the copy stands for the commit, once it would survive a power cut."""

    def clear_note(self) -> None:
        """From here on the copy may be anything."""

    def store_commit(self, before: str | None) -> str:
        """The commit of what the engine pushed here, on top of the commit `before`; None: on none.

        It is `before` itself if nothing changed. Raises `RemoteDamaged` where that is not here.
        """

    def create_empty(self) -> Copy:
        """An empty copy beside this one."""

    def discard(self) -> None: ...


def open_copy(engine: EngineName, folder: Path, git: Places) -> Copy:
    """The copy in a folder of its own. `git`: the repository for what is pushed from it."""
    if engine == "dolt":
        return DoltCopy(folder, git)
    return FileCopy(folder / FILE_NAME, git)


class FileCopy:
    """A file of the embedded engine, of which git holds segments."""

    def __init__(self, file: Path, git: Places) -> None:
        self._file, self._git = file, git

    @property
    def url(self) -> str:
        return f"file://{self._file}"

    @property
    def exists(self) -> bool:
        return self._file.exists()

    def measure_size(self, there: Places, commit: str) -> int:
        return segments.read_size(there, commit)

    def require_acceptable(self, there: Places, commit: str, *, limits: Limits) -> None:
        segments.require_acceptable(there, commit, self._file, limits=limits)

    def check_out_commit(self, there: Places, commit: str) -> None:
        segments.restore_file(there, commit, self._file)

    def is_at(self, commit: str) -> bool:
        return is_file_at(self._file, commit)

    def find_damage(self, commit: str) -> str:
        try:
            whole = not self.exists or segments.begins_with(self._git, commit, self._file)
        except RemoteDamaged as error:
            return error.message
        return "" if whole else f"{self._file.name} is not what was fetched"

    def note_commit(self, commit: str) -> None:
        note_file(self._file, commit)

    def clear_note(self) -> None:
        permissions.make_folder(self._file.parent)
        note_path(self._file).unlink(missing_ok=True)

    def store_commit(self, before: str | None) -> str:
        return segments.store_file(self._git, self._file, before)

    def create_empty(self) -> Copy:
        file = self._file.with_name("new.doltlite")
        permissions.make_folder(file.parent)  # it may never have held anything that is sound
        discard_file(file)
        return FileCopy(file, self._git)

    def discard(self) -> None:
        discard_file(self._file)


FILE_NAME = "remote.doltlite"


def file_path(places: Places, key: str) -> Path:
    return places.remotes / key / FILE_NAME


def note_path(file: Path) -> Path:
    return file.with_name("stands-at")


def is_file_at(file: Path, commit: str) -> bool:
    """Whether the file is what was noted for the commit."""
    try:
        return note_path(file).read_bytes() == _note(file, commit)
    except FileNotFoundError:
        return False


def note_file(file: Path, commit: str) -> None:
    """Note that the file stands for the commit, once it would survive a power cut.

    A push adds to the file: what it lacked then would be gone from the remote.
    """
    sync_to_disk(file)
    permissions.apply_folder_mode(file.parent)  # doltlite's lock lies beside it
    noted = note_path(file)
    remove_temporaries(noted)
    write_atomically(noted, _note(file, commit), durable=False)


def _note(file: Path, commit: str) -> bytes:
    # Any other writer of the file changes its time.
    found = file.stat()
    return f"{commit} {found.st_size} {found.st_mtime_ns}".encode()


def discard_file(file: Path) -> None:
    """Remove a doltlite file with its lock."""
    file.unlink(missing_ok=True)
    file.with_name(f".{file.name}-lock").unlink(missing_ok=True)


DOLT_NAME = "remote"
_FORMER_NAME = "remote.git"
"""What earlier versions of this program called the copy, which was a git repository."""

_MESSAGE = "Knowledge base"
_SIGNATURE = "vmrag <vmrag@localhost>"
_NOTE = "stands-at"
_MANIFEST = "manifest"
_TABLE = re.compile(r"(?!v{32})[0-9a-v]{32}(\.darc)?")
_ENTRY = re.compile(rf"{_MANIFEST}|{_TABLE.pattern}(\.records|\.tail)?(/[0-9]{{1,8}})?")
_MOST_ENTRIES = 100_000
_PART = 50 << 20
"""Bytes of a blob, as Dolt cuts a large file: hosts refuse larger ones."""

_LARGEST_PART = 2 * _PART
_AT_ONCE = 64 << 20
"""Bytes of blobs that are in memory at a time, unless one alone is larger."""


class _File(Record, frozen=True):
    """The blobs that make a file, and its size and time when it was made of them."""

    blobs: tuple[str, ...]
    size: int
    changed_ns: int


class _DoltNote(Record, frozen=True):
    """`commit`: what the folder stands for; empty: maybe for nothing. `files`: by name."""

    commit: str
    files: dict[str, _File]


class DoltCopy:
    """See `copies.Copy`. The note keeps the blobs of each file, so a file is read once."""

    def __init__(self, folder: Path, git: Places, *, name: str = DOLT_NAME) -> None:
        self._folder, self._git = folder / name, git
        self._blobs: dict[str, tuple[str, ...]] = {}
        self._listed: tuple[str, dict[str, TreeEntry]] = "", {}

    @property
    def url(self) -> str:
        return f"file://{self._folder}"

    @property
    def exists(self) -> bool:
        return (self._folder / _MANIFEST).exists()

    def measure_size(self, there: Places, commit: str) -> int:
        return sum(entry.size for entry in self._entries(there, commit).values())

    def require_acceptable(self, there: Places, commit: str, *, limits: Limits) -> None:
        size = self.measure_size(there, commit)
        if size > limits.file_bytes:
            raise too_large_error(size, limits.file_bytes)
        require_space(self._folder, size, "the remote's knowledge base")

    def check_out_commit(self, there: Places, commit: str) -> None:
        """Tables go before the manifest that names them."""
        parts = _files(self._entries(there, commit))
        wanted = {name: tuple(entry.name for entry in entries) for name, entries in parts.items()}
        shutil.rmtree(self._folder.with_name(_FORMER_NAME), ignore_errors=True)
        permissions.make_folder(self._folder)
        noted = self._unchanged()
        for path in self._folder.iterdir():
            if path.name not in wanted and path.name != _NOTE:
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        missing = [(name, each) for name in parts if noted.get(name) != wanted[name] for each in parts[name]]
        for name, contents in itertools.groupby(_contents(there, missing), key=itemgetter(0)):
            unfinished = self._folder / f"{name}.unfinished"
            with unfinished.open("wb") as out:
                out.writelines(content for _, content in contents)
            unfinished.replace(self._folder / name)
        self._blobs = wanted

    def is_at(self, commit: str) -> bool:
        note = self._read_note()
        return note.commit == commit and self._unchanged().keys() == note.files.keys()

    def find_damage(self, commit: str) -> str:
        if not self.exists:
            return ""
        try:
            named, held = self._table_files(), _files(self._entries(self._git, commit))
        except RemoteDamaged as error:
            return error.message
        for path in named:
            entries = held.get(path.name)
            if entries and not _is_made_of(path, entries):
                return f"{path.name} is not what was fetched"
        return ""

    def note_commit(self, commit: str) -> None:
        permissions.apply_folder_mode(self._folder)
        noted, unchanged = self._read_note().files, self._unchanged()
        files = {
            name: noted[name] if unchanged.get(name) == blobs else _stamped(self._folder / name, blobs)
            for name, blobs in self._blobs.items()
        }
        self._write_note(_DoltNote(commit, files))

    def clear_note(self) -> None:
        permissions.make_folder(self._folder)
        self._write_note(_DoltNote("", self._read_note().files))

    def store_commit(self, before: str | None) -> str:
        noted, unchanged = self._read_note().files, self._unchanged()
        if before and not noted:
            raise RemoteDamaged("What was pushed does not build on what the remote held.", hint="vmrag push")
        writer = objects.ObjectWriter(self._git)
        found = {
            path.name: unchanged.get(path.name) or tuple(map(writer.write_blob, _parts(path)))
            for path in self._table_files()
        }
        found[_MANIFEST] = (writer.write_blob((self._folder / _MANIFEST).read_bytes()),)
        self._blobs = found
        if before and found == {name: each.blobs for name, each in noted.items()}:
            return before
        entries = {path: blob for name, blobs in found.items() for path, blob in _tree_paths(name, blobs)}
        return writer.write_commit(entries, parent=before, message=_MESSAGE, signature=_SIGNATURE)

    def create_empty(self) -> DoltCopy:
        made = DoltCopy(self._folder.parent, self._git, name=f"new-{DOLT_NAME}")
        made.discard()
        permissions.make_folder(made._folder)
        return made

    def discard(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    def _entries(self, there: Places, commit: str) -> dict[str, TreeEntry]:
        """As the function; a commit is listed once."""
        if self._listed[0] != commit:
            self._listed = commit, _entries(there, commit)
        return self._listed[1]

    def _table_files(self) -> list[Path]:
        """The files that Dolt's manifest names. Raises `RemoteDamaged` where one is missing."""
        from vmrag_link.engines.dolt import files

        try:
            names = files.parse_table_counts(files.read_manifest(self._folder))
        except OSError as error:
            raise _strange() from error
        paths = [path for name in names or () if (path := files.find_table_file(self._folder, name))]
        if names is None or len(paths) < len(names):
            raise RemoteDamaged("The copy of the remote lacks a file that its manifest names.", hint="vmrag push")
        return paths

    def _unchanged(self) -> dict[str, tuple[str, ...]]:
        """The blobs of the noted files that are as they were."""
        noted = self._read_note().files
        return {name: each.blobs for name, each in noted.items() if _is_unchanged(self._folder / name, each)}

    def _read_note(self) -> _DoltNote:
        try:
            return msgspec.json.decode((self._folder / _NOTE).read_bytes(), type=_DoltNote)
        except (FileNotFoundError, UnicodeDecodeError, msgspec.DecodeError):
            return _DoltNote("", {})

    def _write_note(self, note: _DoltNote) -> None:
        remove_stale_temporaries(self._folder)
        write_atomically(self._folder / _NOTE, msgspec.json.encode(note), durable=False)


def _entries(places: Places, commit: str) -> dict[str, TreeEntry]:
    """Dolt's files in a commit, by path. Raises `RemoteDamaged` for anything else."""
    found = objects.read_tree(places, commit, deep=True)
    odd = (path for path, each in found.items() if not 0 <= each.size <= _LARGEST_PART or not _ENTRY.fullmatch(path))
    if _MANIFEST not in found or len(found) > _MOST_ENTRIES or any(True for _ in odd):
        raise _strange()
    return found


def _files(entries: Mapping[str, TreeEntry]) -> dict[str, list[TreeEntry]]:
    """The parts of each file that Dolt opens, by name; the manifest comes last."""
    files: dict[str, list[TreeEntry]] = {}
    for path in sorted(entries.keys() - {_MANIFEST}):
        name = path.partition("/")[0]
        if _TABLE.fullmatch(name):
            files.setdefault(name, []).append(entries[path])
    return files | {_MANIFEST: [entries[_MANIFEST]]}


def _contents(places: Places, parts: Iterable[tuple[str, TreeEntry]]) -> Iterator[tuple[str, bytes]]:
    """The contents of the parts of files, in the given order."""
    group: list[tuple[str, TreeEntry]] = []
    for name, part in parts:
        if group and sum(each.size for _, each in group) + part.size > _AT_ONCE:
            yield from _group_contents(places, group)
            group = []
        group.append((name, part))
    yield from _group_contents(places, group)


def _group_contents(places: Places, group: Sequence[tuple[str, TreeEntry]]) -> Iterator[tuple[str, bytes]]:
    contents = objects.read_blobs(places, [each.name for _, each in group])
    return zip((name for name, _ in group), contents, strict=True)


def _tree_paths(name: str, blobs: tuple[str, ...]) -> Iterable[tuple[str, str]]:
    """The paths of a file's blobs in a tree, as Dolt has them: `NAME`, or `NAME/0001` and so on."""
    if len(blobs) == 1:
        return [(name, blobs[0])]
    return [(f"{name}/{number:04d}", blob) for number, blob in enumerate(blobs, 1)]


def _parts(path: Path) -> Iterator[bytes]:
    with path.open("rb") as source:
        yield source.read(_PART)
        while part := source.read(_PART):
            yield part


def _is_made_of(path: Path, entries: Sequence[TreeEntry]) -> bool:
    with path.open("rb") as source:
        same = all(objects.hash_blob(source.read(entry.size), like=entry.name) == entry.name for entry in entries)
        return same and not source.read(1)


def _stamped(path: Path, blobs: tuple[str, ...]) -> _File:
    """A file with its blobs, once it would survive a power cut."""
    sync_to_disk(path)
    found = path.stat()
    return _File(blobs, found.st_size, found.st_mtime_ns)


def _is_unchanged(path: Path, noted: _File) -> bool:
    try:
        found = path.stat()
    except FileNotFoundError:
        return False
    return (found.st_size, found.st_mtime_ns) == (noted.size, noted.changed_ns)


def _strange() -> RemoteDamaged:
    return RemoteDamaged(
        "What the remote holds there is none of Dolt's knowledge bases. Nothing of it was taken.",
        hint="Somebody with a sound clone can put theirs there: vmrag gc --remote --apply",
    )
