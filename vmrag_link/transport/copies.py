"""What lies here of a knowledge base that git carries: a place that the engine takes for the
remote.

Each engine's remotes look different, and so does what git holds of them. A note beside the copy
says for which commit it stands, and what the copy was like then.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from vmrag_link import permissions
from vmrag_link.engines.base import EngineName
from vmrag_link.engines.limits import Limits
from vmrag_link.paths import Places, fsync, remove_temporaries, write_atomically
from vmrag_link.transport import segments


class Copy(Protocol):
    """The copy of one remote. `url`: how the engine names it."""

    @property
    def url(self) -> str: ...

    @property
    def exists(self) -> bool: ...

    def size(self, there: Places, commit: str) -> int:
        """Bytes of the knowledge base that a commit holds. Raises `RemoteDamaged`."""

    def require_acceptable(self, there: Places, commit: str, *, limits: Limits) -> None:
        """Require that a stranger's commit describes a knowledge base within the limits, for which
        the disk has room.

        Called before any of it is looked at. Raises `KnowledgeRefused`, `RemoteDamaged`,
        `FileFailed`.
        """

    def show(self, there: Places, commit: str) -> None:
        """Let the copy be what a commit of the repository `there` holds.

        An interruption leaves a mixture. Raises `RemoteDamaged`.
        """

    def stands_at(self, commit: str) -> bool:
        """Whether the copy is what was noted for the commit."""

    def note(self, commit: str) -> None:
        """Note that the copy stands for the commit, once it would survive a power cut."""

    def unnote(self) -> None:
        """From here on the copy may be anything."""

    def store(self, before: str | None) -> str:
        """The commit of what the engine pushed here, on top of the commit `before`; None: on none.

        It is `before` itself if nothing changed. Raises `RemoteDamaged` where that is not here.
        """

    def fresh(self) -> Copy:
        """An empty copy beside this one."""

    def discard(self) -> None: ...


def of(engine: EngineName, folder: Path, git: Places) -> Copy:
    """The copy in a folder of its own. `git`: the repository for what is pushed from it."""
    if engine == "dolt":
        from vmrag_link.transport.dolt_copy import DoltCopy  # most knowledge bases are the embedded engine's

        return DoltCopy(folder, git)
    return FileCopy(folder / NAME, git)


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

    def size(self, there: Places, commit: str) -> int:
        return segments.size(there, commit)

    def require_acceptable(self, there: Places, commit: str, *, limits: Limits) -> None:
        segments.require_acceptable(there, commit, self._file, limits=limits)

    def show(self, there: Places, commit: str) -> None:
        segments.restore(there, commit, self._file)

    def stands_at(self, commit: str) -> bool:
        return stands_at(self._file, commit)

    def note(self, commit: str) -> None:
        note(self._file, commit)

    def unnote(self) -> None:
        permissions.make_folder(self._file.parent)
        note_path(self._file).unlink(missing_ok=True)

    def store(self, before: str | None) -> str:
        return segments.store(self._git, self._file, before)

    def fresh(self) -> Copy:
        file = self._file.with_name("new.doltlite")
        permissions.make_folder(file.parent)  # it may never have held anything that is sound
        discard_file(file)
        return FileCopy(file, self._git)

    def discard(self) -> None:
        discard_file(self._file)


NAME = "remote.doltlite"


def path(places: Places, key: str) -> Path:
    return places.remotes / key / NAME


def note_path(file: Path) -> Path:
    return file.with_name("stands-at")


def stands_at(file: Path, commit: str) -> bool:
    """Whether the file is what was noted for the commit."""
    try:
        return note_path(file).read_bytes() == _note(file, commit)
    except FileNotFoundError:
        return False


def note(file: Path, commit: str) -> None:
    """Note that the file stands for the commit, once it would survive a power cut.

    A push adds to the file: what it lacked then would be gone from the remote.
    """
    fsync(file)
    permissions.settle(file.parent)  # doltlite's lock lies beside it
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
