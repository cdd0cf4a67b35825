"""Knowledge bases and remotes: making one in a folder, all of it or nothing, whatever happens
meanwhile; fetching and pushing. The contracts are those of `engines.base.Engine`.
"""

from __future__ import annotations

import contextlib
import functools
import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path

from vmrag_link import locks, paths, permissions
from vmrag_link.engines import inspection as engine_inspection
from vmrag_link.engines.base import DOLTLITE_FILE, LOCK_NAME, ROOT_BRANCH, UNCOMMITTED_NAME
from vmrag_link.engines.doltlite import extent, history, inspection, remotes, schema
from vmrag_link.engines.doltlite.connection import Connection
from vmrag_link.engines.doltlite.session import DoltliteSession
from vmrag_link.engines.limits import (
    CREATING_NAME,
    Limits,
    already_exists_error,
    continuation_message,
    translate_os_errors,
)
from vmrag_link.engines.looking import ParentMap, name_vetted_heads
from vmrag_link.errors import EngineFailed, FileSystemError, KnowledgeRefused, RemoteMissing
from vmrag_link.models import Row


def create_file(folder: Path, *, author: str, date: str, origin: str = "") -> None:
    """Make a knowledge base whose first revision, `vmrag_root`'s head, holds the empty tables.

    `origin`: see `opening.create`.
    """

    def fill(connection: Connection) -> None:
        if origin:
            schema.commit(connection, continuation_message(origin), author, date, "--amend", "--allow-empty")
        # The name `main` belongs to the code branch main. Renaming the default branch keeps it the
        # default.
        connection.execute("SELECT dolt_branch('-m', dolt_default_branch(), ?)", (ROOT_BRANCH,))
        with connection.transaction():
            schema.create_tables(connection)
            schema.commit(connection, "Create the knowledge base", author, date)

    _make(folder, fill)


def clone_file(folder: Path, remote: str, url: str, limits: Limits) -> None:
    """Make a knowledge base of what `url` holds; its branches are those of the remote."""

    def fill(connection: Connection) -> None:
        inspection.require_room(url, connection.path, limits)
        remotes.clone(connection, remote, url, ROOT_BRANCH, most=limits.file_bytes)
        inspection.require_sound_heads(connection.path, remotes.read_heads(connection, remote), known={}, limits=limits)

    _make(folder, fill)


def _make(folder: Path, fill: Callable[[Connection], None]) -> None:
    """Raises `AlreadyInitialized`. A kill leaves no knowledge base, a failure no trace."""
    path, unfinished = folder / DOLTLITE_FILE, folder / CREATING_NAME
    with (
        translate_os_errors(folder),
        locks.hold_exclusive(folder / LOCK_NAME, purpose="create the knowledge base", timeout=30.0),
    ):
        if path.exists():
            raise already_exists_error(folder)
        import shutil  # not for every opening

        shutil.rmtree(unfinished, ignore_errors=True)
        permissions.make_folder(unfinished)
        try:
            with Connection(unfinished / DOLTLITE_FILE, access="create") as connection:
                fill(connection)
            permissions.apply_folder_mode(unfinished)
            # The engine's lock file goes first: a kill after the rename leaves an empty folder.
            for other in unfinished.iterdir():
                if other.name != DOLTLITE_FILE:
                    other.unlink()
            extent.forget_length(path)  # of a file that was here before
            (folder / UNCOMMITTED_NAME).unlink(missing_ok=True)
            (unfinished / DOLTLITE_FILE).rename(path)
        finally:
            shutil.rmtree(unfinished)
        paths.sync_to_disk(folder)


_VETTED = "vetted"
_PARENTS = """
    SELECT commit_hash, parent_hash FROM dolt_commit_ancestors
    WHERE commit_hash IN (SELECT value FROM json_each(?)) ORDER BY parent_index"""


def fetch(session: DoltliteSession, remote: str, url: str) -> None:
    with session.write_lock(f"fetch from {remote}"), session.open_connection(None) as connection:
        _fetch(session, connection, remote, url)


def push(session: DoltliteSession, remote: str, url: str, heads: Mapping[str, str], *, force: bool) -> None:
    remotes.require_file(url)
    with session.write_lock(f"push to {remote}"), session.open_connection(None) as connection:
        if remotes.read_heads(connection, remote) and not remotes.is_registered_at(connection, remote, url):
            with contextlib.suppress(RemoteMissing):  # its copy here was moved: what it has stays known
                _fetch(session, connection, remote, url)
        refresh = functools.partial(_fetch, session, connection, remote, url) if force else None
        remotes.push(connection, remote, url, heads, refresh=refresh)


def forget_remote(session: DoltliteSession, remote: str) -> None:
    with session.write_lock(f"forget {remote}"), session.open_connection(None) as connection:
        remotes.forget_remote(connection, remote)


def _fetch(session: DoltliteSession, connection: Connection, remote: str, url: str) -> None:
    known, there = remotes.read_heads(connection, remote), remotes.peek_heads(url)
    inspection.require_room(url, connection.path, session.limits)
    if there is not None and (file := remotes.parse_file(url)):
        inspection.require_sound_heads(file, there, known=known, limits=session.limits)
    try:
        remotes.fetch(connection, remote, url, most=session.limits.file_bytes)
        if there is None:  # a server shows nothing before it has sent it
            heads = remotes.read_heads(connection, remote)
            inspection.require_sound_heads(connection.path, heads, known=known, limits=session.limits)
    except (KnowledgeRefused, FileSystemError):
        session.anchor_sound_heads(known.values())
        remotes.forget_remote(connection, remote)
        session.collect_garbage()
        raise


def vet_revisions(
    session: DoltliteSession,
    url: str,
    revisions: Sequence[str],
    *,
    known: Iterable[str],
    into: Path,
    limits: Limits,
    sound: Callable[[Row], None],
) -> list[str]:
    """See `Engine.vet`. What is new is copied first: what is looked at is what will be taken."""
    root, here = session.read_known_history(known)
    file = remotes.parse_file(url)
    assert file is not None  # noqa: S101  `transport.quarantine` makes it
    try:
        with Connection(file, access="read", longest=limits.text_bytes) as connection:
            _require_whole(connection)
            if not history.revision_exists(connection, root):
                raise engine_inspection.vetting_error(engine_inspection.UNRELATED)
            there = [
                revision
                for revision in revisions
                if revision not in here and history.revision_exists(connection, revision)
            ]
            new = _new(connection, there, here, limits)
    except EngineFailed as error:
        raise engine_inspection.vetting_error(
            inspection.DoltliteInspector(file, limits).describe_error(error)
        ) from error
    if new:
        with Connection(file) as connection:
            remotes.push(connection, _VETTED, f"file://{into}", name_vetted_heads(new))
        inspection.DoltliteInspector(into, limits).require_sound_revisions(new, sound)
    return list(new)


def _require_whole(connection: Connection) -> None:
    """Every piece is the one that its hash names: so what is known by name is known by content."""
    if connection.execute_long("PRAGMA integrity_check") != [("ok",)]:
        raise engine_inspection.vetting_error("its file is damaged")


def _new(connection: Connection, revisions: Sequence[str], known: Collection[str], limits: Limits) -> ParentMap:
    """What is not known of these revisions and their ancestors."""
    found: dict[str, tuple[str, ...]] = {}
    left = set(revisions)
    while left:
        layer: dict[str, tuple[str, ...]] = dict.fromkeys(left, ())
        for revision, parent in connection.stream(_PARENTS, (json.dumps(sorted(left)),)):
            layer[revision] += (parent,) if parent else ()
        found |= layer
        engine_inspection.require_descent(found, limits)
        left = {parent for parents in layer.values() for parent in parents} - found.keys() - set(known)
    return found
