"""What lies here of a knowledge base that git carries: a place that the engine takes for the
remote.

Each engine's remotes look different, and so does what git holds of them. A note beside the copy
says for which commit it stands, and what the copy was like then.

The copy of the engine dolt is a bare git repository of this machine. Dolt can use one as a remote:
what it holds lies on one ref, as blobs. Dolt is let at none but this repository; from and to the
real remote, that ref travels by git itself, as everything else does: with the user's credentials,
within git's limits of time, and with a lease. So the remote has one ref, no branch, and plain Dolt
reads it: `dolt clone --ref refs/vmrag/dolt git+https://…`.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Protocol

from vmrag_link import permissions
from vmrag_link.engines.base import EngineName
from vmrag_link.engines.limits import Limits, too_large
from vmrag_link.errors import RemoteDamaged
from vmrag_link.git import objects, sidecar_repo, transfer
from vmrag_link.git.refs import BRANCHES
from vmrag_link.paths import Places, fsync, remove_temporaries, require_space, write_atomically
from vmrag_link.pin_values import DOLT_DATA
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

    def damage(self, commit: str) -> str:
        """Return what is damaged of a copy that holds the commit or more, or an empty text.

        Reads all of it.
        """

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

    def damage(self, commit: str) -> str:
        try:
            whole = not self.exists or segments.begins_with(self._git, commit, self._file)
        except RemoteDamaged as error:
            return error.message
        return "" if whole else f"{self._file.name} is not what was fetched"

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


DOLT_NAME = "remote.git"
_BRANCH = f"{BRANCHES}vmrag"
"""Dolt takes no repository without a branch."""

_MESSAGE = "Knowledge base"
_SIGNATURE = "vmrag <vmrag@localhost>"
_MANIFEST = "manifest"
_ENTRY = r"[0-9a-z.]{1,64}(/[0-9]{1,8})?"
_MOST_ENTRIES = 100_000


class DoltCopy:
    """See `copies.Copy`. The repository sees the objects of `git`, and of where it was shown from.

    What Dolt pushes into it goes on to `git`.
    """

    def __init__(self, folder: Path, git: Places, *, name: str = DOLT_NAME) -> None:
        self._folder, self._git = folder, git
        self._repo = sidecar_repo.at(git, folder / name)

    @property
    def url(self) -> str:
        return f"git+file://{self._repo.common}"

    @property
    def exists(self) -> bool:
        return self._repo.common.exists()

    def size(self, there: Places, commit: str) -> int:
        return sum(each.size for each in _entries(there, commit).values())

    def require_acceptable(self, there: Places, commit: str, *, limits: Limits) -> None:
        size = self.size(there, commit)
        if size > limits.file_bytes:
            raise too_large(size, limits.file_bytes)
        require_space(self._folder, size, "the remote's knowledge base")

    def show(self, there: Places, commit: str) -> None:
        self._make()
        sidecar_repo.see(self._repo, there, self._git, relative=True)
        transfer.set_ref(self._repo, DOLT_DATA, commit)

    def stands_at(self, commit: str) -> bool:
        try:
            noted = self._note.read_text()
        except FileNotFoundError:
            return False
        return noted == commit and transfer.tip(self._repo, DOLT_DATA) == commit

    def damage(self, commit: str) -> str:
        del commit  # git names objects by their content
        return sidecar_repo.find_damage(self._repo, made_from=self._git)

    def note(self, commit: str) -> None:
        write_atomically(self._note, commit.encode(), durable=False)

    def unnote(self) -> None:
        self._make()
        sidecar_repo.see(self._repo, self._git, relative=True)  # what else it was shown from is gone
        self._note.unlink(missing_ok=True)

    def store(self, before: str | None) -> str:
        """One commit, whatever Dolt made of the push."""
        sidecar_repo.keep(self._repo, self._git)
        made = transfer.tip(self._repo, DOLT_DATA)
        if made is None or (before and not transfer.contains(self._git, made, before)):
            raise RemoteDamaged("What was pushed does not build on what the remote held.", hint="vmrag push")
        if made == before:
            return made
        commit = objects.commit_tree(
            self._git, made, parents=[before] if before else [], message=_MESSAGE, signature=_SIGNATURE
        )
        transfer.set_ref(self._repo, DOLT_DATA, commit)
        return commit

    def fresh(self) -> DoltCopy:
        made = DoltCopy(self._folder, self._git, name=f"new-{DOLT_NAME}")
        made.discard()
        made.unnote()
        return made

    def discard(self) -> None:
        shutil.rmtree(self._repo.common, ignore_errors=True)

    @property
    def _note(self) -> Path:
        return self._repo.common / "stands-at"

    def _make(self) -> None:
        """The repository, unless it is there. A kill leaves none that is half made."""
        if self.exists:
            return
        unfinished = self._repo.common.with_name(f"{self._repo.common.name}.unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        permissions.make_folder(unfinished)
        made = sidecar_repo.make(self._git, unfinished)
        sidecar_repo.see(made, self._git, relative=True)
        branch = transfer.tip(self._git, _BRANCH)
        if branch is None:
            writer = objects.ObjectWriter(self._git)
            branch = writer.commit({}, parent=None, message="A branch for Dolt", signature=_SIGNATURE)
            transfer.set_ref(self._git, _BRANCH, branch)
        transfer.set_ref(made, _BRANCH, branch)
        unfinished.rename(self._repo.common)


def _entries(places: Places, commit: str) -> dict[str, objects.TreeEntry]:
    """Dolt's files in a commit. Raises `RemoteDamaged` for anything else."""
    found = objects.tree(places, commit, deep=True)
    strange = (name for name, each in found.items() if each.size < 0 or not re.fullmatch(_ENTRY, name))
    if _MANIFEST not in found or len(found) > _MOST_ENTRIES or any(True for _ in strange):
        raise RemoteDamaged(
            "What the remote holds there is none of Dolt's knowledge bases. Nothing of it was taken.",
            hint="Somebody with a sound clone can put theirs there: vmrag gc --remote --apply",
        )
    return found
