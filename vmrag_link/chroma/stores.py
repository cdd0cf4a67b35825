"""Chroma's stores of sealed indexes, one folder each, which any Chroma client may open.

    chroma/<revision>-<settings>/           a revision; <settings> is a hash of settings of stores
    chroma/<revision>~<files>-<settings>/   a revision, and files of a commit; without a knowledge
                                            base, <revision> is that of the view of the files
    chroma/<revision>+<contents>-<settings>/    with the uncommitted documents of a working copy
        chroma.sqlite3 and folders          Chroma's own files
        held                                the collections and documents of the store
        seal.json                           shows that it is finished; checksums of other files

Nothing changes a store after it is finished. Reading a store changes its database, so the database
has no checksum. A store is compared with its index when it is built (`check`). A process that got
the path of a store has a lease: for `LEASE_SECONDS`, the store is not removed. Always lock the
index first, then the store.
"""

from __future__ import annotations

import contextlib
import errno
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import msgspec

from vmrag_link import file_access, permissions
from vmrag_link.chroma import DATABASE_FILE
from vmrag_link.errors import IndexFailed
from vmrag_link.index.directories import READ_TIMEOUT, Directories, copy_tree, remove_orphaned_lock
from vmrag_link.index.seal import SEAL, hash_file
from vmrag_link.index.view import directory_suffix
from vmrag_link.models import Collection as CollectionDefinition
from vmrag_link.models import Record

STORE_FORMAT = "3"
"""Increase it with every change of the contents of a store."""

REVISION_SEPARATOR = "~"
"""Separator between the revisions of the views of a store."""

FILES_DIGITS = 12

LEASE_SECONDS = 3600.0

HNSW_WRITTEN_OUT = "index_metadata.pickle"
"""The file next to an HNSW index with contents. Chroma writes it after 1,000 changes. Until then,
every process that opens the collection writes the files of the folder again.
"""


CONTENTS_FILE = "held"


class StoreContents(Record, frozen=True):
    """The documents of a collection in a store."""

    collection: CollectionDefinition
    documents: list[tuple[str, str, str, str, int]]
    """Id, title, content hash, metadata and number of chunks of each document."""


ContentsByCollection = dict[str, StoreContents]
"""Contents by the name of the collection."""


class _File(Record, frozen=True):
    size: int
    sha256: str


class Seal(Record, frozen=True):
    """The seal of a finished store."""

    format: str
    revision: str
    settings: str
    stand_ins: tuple[str, ...]
    """Collections that have placeholders instead of vectors."""

    dead: int
    """Number of removed rows. Chroma does not reuse their space."""

    boot: str
    """The boot of the machine since which every row has been compared, in this store or in the
    store from which it was copied.
    """

    database: int
    """Bytes of the database."""

    files: dict[str, _File]


class Stores(Directories):
    """All stores of a knowledge base with the current settings."""

    def __init__(self, root: Path, *, store_documents: bool) -> None:
        super().__init__(root, kind="store of Chroma")
        self.store_documents = store_documents
        self.settings = directory_suffix(store=STORE_FORMAT, store_documents=store_documents)

    def store_path(self, revision: str, contents: str = "") -> Path:
        """Return the path of the store of an index with this revision.

        `contents`: a hash of uncommitted documents. The name has only the first digits of a second
        revision, because a database needs a short path.
        """
        first, joint, files = revision.partition(REVISION_SEPARATOR)
        name = f"{first}{joint}{files[:FILES_DIGITS]}{'+' if contents else ''}{contents}"
        return self.root / f"{name}-{self.settings}"

    def find_problem(self, path: Path, stand_ins: Callable[[], Collection[str]]) -> str:
        """Return why a store of an index cannot be used; empty if it can. This reads sizes only.

        `stand_ins` returns the collections of the index that have placeholders instead of vectors.
        It is called only if needed.
        """
        seal = read_seal(path)
        if seal is None:
            return "it does not exist" if not path.is_dir() else "it was never finished"
        if seal.format != STORE_FORMAT or seal.settings != self.settings:
            return "it has another format"
        for name, file in seal.files.items():
            size = _measure_file(path / name)
            if size != file.size:
                return f"{name} has {size} bytes instead of {file.size}"
        if _measure_file(path / DATABASE_FILE) < seal.database:
            return f"{DATABASE_FILE} was truncated"
        return _find_placeholder_problem(seal, stand_ins)

    def find_mismatch(self, path: Path) -> str:
        """Return which sealed file of a store has changed; empty if none has."""
        seal = read_seal(path)
        if seal is None:
            return f"{SEAL} cannot be read"
        with contextlib.suppress(FileNotFoundError):
            for name, file in seal.files.items():
                if hash_file(path / name) != file.sha256:
                    return f"{name} is not what was written"
            return ""
        return "a file is missing"

    def seal_store(self, folder: Path, *, revision: str, stand_ins: Collection[str], dead: int, boot: str) -> None:
        """Seal a store that no process has open, so that it survives a power cut."""
        files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
        written_out = {path.parent for path in files if path.name == HNSW_WRITTEN_OUT}
        sealed_files = [path for path in files if path.parent in written_out or path == folder / CONTENTS_FILE]
        sealed = {
            path.relative_to(folder).as_posix(): _File(path.stat().st_size, hash_file(path)) for path in sealed_files
        }
        seal = Seal(
            format=STORE_FORMAT,
            revision=revision,
            settings=self.settings,
            stand_ins=tuple(sorted(stand_ins)),
            dead=dead,
            boot=boot,
            database=_measure_file(folder / DATABASE_FILE),
            files=sealed,
        )
        file_access.write_atomically(folder / SEAL, msgspec.json.encode(seal), durable=False)
        permissions.apply_folder_mode(folder)
        for path in (*files, folder / SEAL, *{file.parent for file in files}, folder):
            file_access.sync_to_disk(path)

    def write_contents(self, folder: Path, contents: ContentsByCollection) -> None:
        """Write the contents of a store into its folder, for `read_contents`."""
        file_access.write_atomically(folder / CONTENTS_FILE, msgspec.msgpack.encode(contents), durable=False)

    def write_lease(self, path: Path) -> None:
        """Write a lease. The caller holds the lock of the store."""
        try:
            permissions.make_file(_find_lease_path(path))
        except OSError as error:
            if error.errno not in (errno.EROFS, errno.EACCES, errno.EPERM):  # no process can remove the store either
                raise

    def is_lent(self, path: Path) -> bool:
        """Return whether a lease of the store is still valid."""
        with contextlib.suppress(FileNotFoundError):
            age = time.time() - _find_lease_path(path).stat().st_mtime
            return abs(age) < LEASE_SECONDS  # a lease from the future was written with a wrong clock
        return False

    def list_spare(self, *, needed: Collection[Path]) -> list[Path]:
        """Return the stores that `evict_spare` would remove."""
        return [path for path in self.list_newest_first() if path not in needed and not self.is_lent(path)]

    def evict_spare(self, *, needed: Callable[[], Collection[Path]]) -> list[Path]:
        """Remove the stores that are neither needed nor lent nor being read, and return them.

        `needed` is called again under the lock of each store.
        """

        def list_kept() -> set[Path]:
            return {*needed(), *filter(self.is_lent, self.list_newest_first())}

        removed = [path for path in self.list_spare(needed=needed()) if self.remove_if_unused(path, unless=list_kept)]
        for path in removed:
            remove_orphaned_lock(_find_lease_path(path))  # unless the store was built and lent again in the meantime
        return removed

    def list_bases(self) -> list[Path]:
        """Return the finished stores of revisions with the current settings."""
        sealed = ((path, read_seal(path)) for path in self.list_newest_first() if "+" not in path.name)
        return [path for path, seal in sealed if seal and seal.settings == self.settings]

    def copy_store(self, source: Path, target: Path) -> None:
        """Copy a finished store, which clients may be reading. Raises `IndexFailed`.

        Even the query of a reader writes a row into the database. A read transaction blocks such
        writers while another process copies the bytes. If this process copied the file, closing it
        would drop the locks that SQLite holds on the file.
        """
        import sqlite3

        try:
            with self.lock_for_reading(source), _lock_database(source / DATABASE_FILE):
                copy_tree(source, target)
        except sqlite3.Error as error:
            raise _make_error(source, str(error)) from error
        problem = self.find_mismatch(target)
        if problem:
            raise _make_error(source, problem)


def read_seal(folder: Path) -> Seal | None:
    """Return the seal of a store; None if the store is not finished."""
    try:
        return msgspec.json.decode((folder / SEAL).read_bytes(), type=Seal)
    except (FileNotFoundError, NotADirectoryError, UnicodeDecodeError, msgspec.DecodeError):
        return None


def read_contents(folder: Path) -> ContentsByCollection | None:
    """Return the contents of a store; None if they cannot be read."""
    with contextlib.suppress(OSError, UnicodeDecodeError, msgspec.DecodeError):
        return msgspec.msgpack.decode((folder / CONTENTS_FILE).read_bytes(), type=ContentsByCollection)
    return None


@contextlib.contextmanager
def _lock_database(database: Path) -> Iterator[None]:
    """Keep other processes from writing to a database during the block."""
    import sqlite3

    location = f"{database.absolute().as_uri()}?mode=rw"
    with contextlib.closing(sqlite3.connect(location, uri=True, timeout=READ_TIMEOUT)) as connection:
        connection.execute("BEGIN")
        connection.execute("SELECT count(*) FROM sqlite_master")
        yield


def _find_placeholder_problem(seal: Seal, stand_ins: Callable[[], Collection[str]]) -> str:
    """Return why the placeholders in a store are outdated; empty if they are not."""
    if not seal.stand_ins:
        return ""
    try:
        have_changed = set(seal.stand_ins) != set(stand_ins())
    except IndexFailed as error:  # the index was removed or damaged in the meantime
        return error.message.rstrip(".")
    return "vectors were computed in the meantime" if have_changed else ""


def _make_error(path: Path, problem: str) -> IndexFailed:
    return IndexFailed(
        f"Chroma's store {path.name} is damaged: {problem}.",
        hint="run 'vmrag sync --wait' to build it again",
        folder=str(path),
    )


def _find_lease_path(path: Path) -> Path:
    return path.with_name(path.name + ".lease")


def _measure_file(path: Path) -> int:
    """Return the size of a file in bytes; -1 if it does not exist."""
    try:
        return path.stat().st_size
    except (FileNotFoundError, NotADirectoryError):
        return -1
