"""A new knowledge base in a folder: all of it or nothing, whatever happens meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from vmrag_link import locks, paths, permissions
from vmrag_link.engines.base import DOLTLITE_FILE, LOCK_NAME, ROOT_BRANCH
from vmrag_link.engines.doltlite import remotes, schema
from vmrag_link.engines.doltlite.connection import Connection
from vmrag_link.engines.limits import UNFINISHED, Limits, already_there, first_message, writable

FILE_NAME = DOLTLITE_FILE


def create(folder: Path, *, author: str, date: str, origin: str = "") -> None:
    """Make a knowledge base whose first revision, `vmrag_root`'s head, holds the empty tables.

    `origin`: see `opening.create`.
    """

    def fill(connection: Connection) -> None:
        if origin:
            schema.commit(connection, first_message(origin), author, date, "--amend", "--allow-empty")
        # The name `main` belongs to the code branch main. Renaming the default branch keeps it the
        # default.
        connection.execute("SELECT dolt_branch('-m', dolt_default_branch(), ?)", (ROOT_BRANCH,))
        with connection.transaction():
            schema.create(connection)
            schema.commit(connection, "Create the knowledge base", author, date)

    _make(folder, fill)


def clone(folder: Path, remote: str, url: str, limits: Limits) -> None:
    """Make a knowledge base of what `url` holds; its branches are those of the remote."""
    from vmrag_link.engines.doltlite import inspection

    def fill(connection: Connection) -> None:
        inspection.require_room(url, connection.path, limits)
        remotes.clone(connection, remote, url, ROOT_BRANCH, most=limits.file_bytes)
        inspection.require_sound(connection.path, remotes.heads(connection, remote), known={}, limits=limits)

    _make(folder, fill)


def _make(folder: Path, fill: Callable[[Connection], None]) -> None:
    """Raises `AlreadyInitialized`. A kill leaves no knowledge base, a failure no trace."""
    path, unfinished = folder / FILE_NAME, folder / UNFINISHED
    with writable(folder), locks.exclusive(folder / LOCK_NAME, purpose="create the knowledge base", timeout=30.0):
        if path.exists():
            raise already_there(folder)
        import shutil  # not for every opening

        shutil.rmtree(unfinished, ignore_errors=True)
        permissions.make_folder(unfinished)
        try:
            with Connection(unfinished / FILE_NAME, access="create") as connection:
                fill(connection)
            permissions.settle(unfinished)
            # The engine's lock file goes first: a kill after the rename leaves an empty folder.
            for other in unfinished.iterdir():
                if other.name != FILE_NAME:
                    other.unlink()
            (unfinished / FILE_NAME).rename(path)
        finally:
            shutil.rmtree(unfinished)
        paths.fsync(folder)
