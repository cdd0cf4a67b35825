"""Chroma's stores of sealed indexes, one directory each, which any Chroma client may open.

    chroma/<revision>-<settings>/           a revision; <settings>: what decides a store besides
    chroma/<revision>~<files>-<settings>/   a revision, and files of a commit; without a knowledge
                                            base, <revision> is that of the view of the files
    chroma/<revision>+<contents>-<settings>/    with uncommitted documents, of a working copy
        chroma.sqlite3 and folders          Chroma's own files
        held                                what it was made of: collections and documents
        seal.json                           that it is finished, and the checksums of the rest

Nobody changes a store. Its database changes by being read, so that one has no checksum; stores are
compared with their index when they are made (`check`). Whoever was given a store's path holds a
lease: for `LEASE_SECONDS` it is not removed. Locks: the index's first, then the store's.
"""

from __future__ import annotations

import contextlib
import errno
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import msgspec

from vmrag_link import paths, permissions
from vmrag_link.chroma import DATABASE_FILE
from vmrag_link.errors import IndexFailed
from vmrag_link.index.directories import READ_TIMEOUT, Directories, copy_tree, remove_orphaned_lock
from vmrag_link.index.seal import SEAL, hash_file
from vmrag_link.index.view import directory_suffix
from vmrag_link.models import Collection as CollectionDefinition
from vmrag_link.models import Record

STORE_FORMAT = "3"
"""Rises with every change of what a store holds of an index."""

REVISION_SEPARATOR = "~"
"""Between the revisions of the views that a store is made of."""

FILES_DIGITS = 12

LEASE_SECONDS = 3600.0

HNSW_WRITTEN_OUT = "index_metadata.pickle"
"""The file beside an HNSW index that holds something. Chroma writes it after 1,000 changes; until
then everything that opens the collection writes the files of the folder again.
"""


CONTENTS_FILE = "held"


class StoreContents(Record, frozen=True):
    """A collection, and of each document id, title, content hash, metadata and number of chunks."""

    collection: CollectionDefinition
    documents: list[tuple[str, str, str, str, int]]


ContentsByCollection = dict[str, StoreContents]
"""By the collections' names."""


class _File(Record, frozen=True):
    size: int
    sha256: str


class Seal(Record, frozen=True):
    """`stand_ins`: collections without vectors of their own; `dead`: rows that were removed, whose
    space Chroma does not use again; `boot`: the start of the machine since which every row has been
    compared, in this store or in the one that it was copied from.
    """

    format: str
    revision: str
    settings: str
    stand_ins: tuple[str, ...]
    dead: int
    boot: str
    database: int
    files: dict[str, _File]


class Stores(Directories):
    """All stores of a knowledge base, under the present settings."""

    def __init__(self, root: Path, *, store_documents: bool) -> None:
        super().__init__(root, kind="store of Chroma")
        self.store_documents = store_documents
        self.settings = directory_suffix(store=STORE_FORMAT, store_documents=store_documents)

    def store_path(self, revision: str, contents: str = "") -> Path:
        """The store of an index with this revision; `contents`: of its uncommitted documents, too.

        Of a second revision the name has only the first digits, because a database needs a short
        path.
        """
        first, joint, files = revision.partition(REVISION_SEPARATOR)
        name = f"{first}{joint}{files[:FILES_DIGITS]}{'+' if contents else ''}{contents}"
        return self.root / f"{name}-{self.settings}"

    # -- verifying ---------------------------------------------------------------------------------

    def find_problem(self, path: Path, stand_ins: Callable[[], Collection[str]]) -> str:
        """Why a store of an index cannot be handed out; empty if it can. Reads sizes alone.

        `stand_ins`: the collections of the index without vectors of their own, asked for if needed.
        """
        seal = read_seal(path)
        if seal is None:
            return "it is not there" if not path.is_dir() else "it was never finished"
        if seal.format != STORE_FORMAT or seal.settings != self.settings:
            return "it is of another format"
        for name, file in seal.files.items():
            if (size := _size(path / name)) != file.size:
                return f"{name} has {size} bytes instead of {file.size}"
        if _size(path / DATABASE_FILE) < seal.database:
            return f"{DATABASE_FILE} is shorter than it was"
        return _stand_ins_problem(seal, stand_ins)

    def find_mismatch(self, path: Path) -> str:
        """The first sealed file of a store that is not what was written; empty if all are."""
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
        """Seal a store that nobody has open, so that it survives a power cut."""
        files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
        written_out = {path.parent for path in files if path.name == HNSW_WRITTEN_OUT}
        lasting = [path for path in files if path.parent in written_out or path == folder / CONTENTS_FILE]
        sealed = {path.relative_to(folder).as_posix(): _File(path.stat().st_size, hash_file(path)) for path in lasting}
        seal = Seal(
            STORE_FORMAT,
            revision,
            self.settings,
            tuple(sorted(stand_ins)),
            dead,
            boot,
            _size(folder / DATABASE_FILE),
            sealed,
        )
        paths.write_atomically(folder / SEAL, msgspec.json.encode(seal), durable=False)
        permissions.apply_folder_mode(folder)
        for path in (*files, folder / SEAL, *{file.parent for file in files}, folder):
            paths.sync_to_disk(path)

    def write_contents(self, folder: Path, held: ContentsByCollection) -> None:
        """Write down what a store was made of, for `read_held`."""
        paths.write_atomically(folder / CONTENTS_FILE, msgspec.msgpack.encode(held), durable=False)

    # -- handing out and removing ------------------------------------------------------------------

    def write_lease(self, path: Path) -> None:
        """Leave a lease. Hold the store's lock."""
        try:
            permissions.make_file(_lease(path))
        except OSError as error:
            if error.errno not in (errno.EROFS, errno.EACCES, errno.EPERM):  # where nothing can be removed either
                raise

    def is_lent(self, path: Path) -> bool:
        """Whether a lease of the store has not run out."""
        with contextlib.suppress(FileNotFoundError):
            age = time.time() - _lease(path).stat().st_mtime
            return abs(age) < LEASE_SECONDS  # one of years to come is of a clock that was wrong
        return False

    def list_spare(self, *, needed: Collection[Path]) -> list[Path]:
        """The stores that `evict` would remove."""
        return [path for path in self.list_newest_first() if path not in needed and not self.is_lent(path)]

    def evict_spare(self, *, needed: Callable[[], Collection[Path]]) -> list[Path]:
        """Remove the stores that are neither needed nor lent nor being read.

        `needed` is called again under each store's lock.
        """

        def kept() -> set[Path]:
            return {*needed(), *filter(self.is_lent, self.list_newest_first())}

        removed = [path for path in self.list_spare(needed=needed()) if self.remove_if_unused(path, unless=kept)]
        for path in removed:
            remove_orphaned_lock(_lease(path))  # unless the store is made and lent again by now
        return removed

    # -- copying -----------------------------------------------------------------------------------

    def list_bases(self) -> list[Path]:
        """The finished stores of revisions under the present settings."""
        sealed = ((path, read_seal(path)) for path in self.list_newest_first() if "+" not in path.name)
        return [path for path, seal in sealed if seal and seal.settings == self.settings]

    def copy_store(self, source: Path, target: Path) -> None:
        """Copy a finished store, which clients may read meanwhile. Raises `IndexFailed`.

        Even a reader's query writes a row into the database. A read transaction keeps such writers
        out while another process copies the bytes: closing the file in this one would drop the
        locks that SQLite holds on it.
        """
        import sqlite3

        try:
            with self.lock_for_reading(source), _unchanging(source / DATABASE_FILE):
                copy_tree(source, target)
        except sqlite3.Error as error:
            raise _unusable(source, str(error)) from error
        if problem := self.find_mismatch(target):
            raise _unusable(source, problem)


def read_seal(folder: Path) -> Seal | None:
    """What a store was sealed with; None if it is not finished."""
    try:
        return msgspec.json.decode((folder / SEAL).read_bytes(), type=Seal)
    except (FileNotFoundError, NotADirectoryError, UnicodeDecodeError, msgspec.DecodeError):
        return None


def read_contents(folder: Path) -> ContentsByCollection | None:
    """What a store was made of; None if that cannot be read."""
    with contextlib.suppress(OSError, UnicodeDecodeError, msgspec.DecodeError):
        return msgspec.msgpack.decode((folder / CONTENTS_FILE).read_bytes(), type=ContentsByCollection)
    return None


@contextlib.contextmanager
def _unchanging(database: Path) -> Iterator[None]:
    import sqlite3

    location = f"{database.absolute().as_uri()}?mode=rw"
    with contextlib.closing(sqlite3.connect(location, uri=True, timeout=READ_TIMEOUT)) as connection:
        connection.execute("BEGIN")
        connection.execute("SELECT count(*) FROM sqlite_master")
        yield


def _stand_ins_problem(seal: Seal, stand_ins: Callable[[], Collection[str]]) -> str:
    """Why stand-ins for vectors are not what the store should hold by now."""
    if not seal.stand_ins:
        return ""
    try:
        made = set(seal.stand_ins) != set(stand_ins())
    except IndexFailed as error:  # it was removed, or damaged, since it was bound
        return error.message.rstrip(".")
    return "vectors were made since" if made else ""


def _unusable(path: Path, problem: str) -> IndexFailed:
    return IndexFailed(
        f"Chroma's store {path.name} does not verify: {problem}.",
        hint="It is derived: vmrag sync --wait",
        folder=str(path),
    )


def _lease(path: Path) -> Path:
    return path.with_name(path.name + ".lease")


def _size(path: Path) -> int:
    """Bytes of a file; -1 if it is not there."""
    try:
        return path.stat().st_size
    except (FileNotFoundError, NotADirectoryError):
        return -1
