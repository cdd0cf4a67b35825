"""The copy of a remote's file that lies here, and the note that says for which commit it stands."""

from __future__ import annotations

from pathlib import Path

from vmrag_link import permissions
from vmrag_link.paths import Places, fsync, remove_temporaries, write_atomically

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
