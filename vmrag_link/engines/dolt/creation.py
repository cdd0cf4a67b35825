"""A new Dolt repository in a folder: all of it or nothing, whatever happens meanwhile."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from vmrag_link import locks, paths, permissions
from vmrag_link.engines.base import DOLT_FOLDER, LOCK_NAME, ROOT_BRANCH, SERVER_FILE
from vmrag_link.engines.dolt import program, schema
from vmrag_link.engines.dolt.access import DoltAccess
from vmrag_link.engines.dolt.connection import SqlConnection
from vmrag_link.engines.dolt.shell import Shell, longest_answer
from vmrag_link.engines.limits import UNFINISHED, USUAL_LIMITS, Limits, already_there, first_message, writable
from vmrag_link.errors import EngineFailed

_AUTHOR = r"(?s)(?P<name>[^<]*[^< ]) *<(?P<email>[^<>]+)>"


def create(folder: Path, *, author: str, date: str, access: DoltAccess, origin: str = "") -> None:
    """Make a repository whose branch `vmrag_root` holds the empty tables in its first revision.

    `origin`: see `opening.create`.
    """
    program.find(access.binary)
    who = require_author(author)

    def fill(new: Path) -> None:
        identity = ["--name", who["name"], "--email", who["email"]]
        # The name `main` belongs to the code branch main.
        program.run(["init", *identity, "-b", ROOT_BRANCH, "--date", date], cwd=new, binary=access.binary)
        with opened(new, access) as connection:
            fill_root(connection, author=author, date=date, origin=origin)

    make(folder, fill)


def require_author(author: str) -> re.Match[str]:
    """The `name` and the `email` of `Name <email>`."""
    who = re.fullmatch(_AUTHOR, author)
    if who is None:
        raise EngineFailed(
            f"{author[:80]!r} is no author.", hint="git config user.name NAME; git config user.email ADDRESS"
        )
    return who


def make_empty(folder: Path, access: DoltAccess) -> None:
    """Make a repository in an empty folder, for what will be fetched into it.

    Its only branch is `vmrag_root`, with a revision that nobody keeps. Its configuration names no
    author: a person who commits there by hand does so under their own name.
    """
    identity = ["--name", "vmrag", "--email", "vmrag@localhost"]
    program.run(["init", *identity, "-b", ROOT_BRANCH], cwd=folder, binary=access.binary)
    (folder / DOLT_FOLDER / "config.json").write_text("{}")


def fill_root(connection: SqlConnection, *, author: str, date: str, origin: str) -> None:
    """Make the tables on the branch `vmrag_root`, and commit them."""
    if origin:
        schema.commit(connection, ROOT_BRANCH, first_message(origin), author, date, "--amend", "--allow-empty")
    schema.create(connection, ROOT_BRANCH)
    schema.commit(connection, ROOT_BRANCH, "Create the knowledge base", author, date)


@contextlib.contextmanager
def opened(folder: Path, access: DoltAccess, limits: Limits = USUAL_LIMITS) -> Iterator[SqlConnection]:
    """A connection to a repository that nobody else knows."""
    connection = Shell(folder, access, longest=longest_answer(limits), timeout=30.0)
    try:
        yield connection
    finally:
        connection.release()


def make(folder: Path, fill: Callable[[Path], None]) -> None:
    """Let `fill` make a repository in an empty folder, and move it here.

    Raises `AlreadyInitialized`. A kill leaves no knowledge base, a failure no trace.
    """
    unfinished = folder / UNFINISHED
    with writable(folder), locks.exclusive(folder / LOCK_NAME, purpose="create the knowledge base", timeout=30.0):
        require_none(folder)
        shutil.rmtree(unfinished, ignore_errors=True)
        permissions.make_folder(unfinished)
        try:
            fill(unfinished)
            _configure(unfinished / DOLT_FOLDER / "config.json")
            permissions.settle(unfinished / DOLT_FOLDER)
            (unfinished / DOLT_FOLDER).rename(folder / DOLT_FOLDER)
        finally:
            shutil.rmtree(unfinished)
        paths.fsync(folder)


def require_none(folder: Path) -> None:
    """Raise `AlreadyInitialized` where the folder holds a knowledge base, its own or a server's."""
    if (folder / DOLT_FOLDER).exists() or (folder / SERVER_FILE).exists():
        raise already_there(folder)


def _configure(configuration: Path) -> None:
    """Keep Dolt from noting what is run here for its makers, in this user's home directory, and
    from statistics, which it would write while it reads, for queries that are never made.
    """
    stated = json.loads(configuration.read_text()) if configuration.exists() else {}
    ours = {"metrics.disabled": "true", "sqlserver.global.dolt_stats_enabled": "0"}
    configuration.write_text(json.dumps(stated | ours))
