"""Creating and cloning knowledge bases, fetching and pushing.

A knowledge base is created completely or not at all, even if the process is killed.
`engines.base.Engine` documents the contracts.
"""

from __future__ import annotations

import contextlib
import functools
import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path

from vmrag_link import file_access, locks, permissions
from vmrag_link.engines import inspection as engine_inspection
from vmrag_link.engines.creation import already_exists_error, continuation_message, translate_os_errors
from vmrag_link.engines.doltlite import extent, history, inspection, remotes, schema
from vmrag_link.engines.doltlite.connection import Connection
from vmrag_link.engines.doltlite.session import DoltliteSession
from vmrag_link.engines.folder import CREATING_NAME, DOLTLITE_FILE, LOCK_NAME, UNCOMMITTED_NAME
from vmrag_link.engines.inspector import ParentMap, name_vetted_heads
from vmrag_link.engines.limits import Limits
from vmrag_link.engines.own_branches import ROOT_BRANCH
from vmrag_link.errors import EngineFailed, FileSystemError, KnowledgeRefused, RemoteMissing
from vmrag_link.models import Row


def create_file(folder: Path, *, author: str, date: str, origin: str = "") -> None:
    """Create a knowledge base. Its first revision, `vmrag_root`, holds the empty tables.

    `origin`: see `opening.create_engine`.
    """

    def fill_database(connection: Connection) -> None:
        if origin:
            schema.commit(connection, continuation_message(origin), author, date, "--amend", "--allow-empty")
        # The name `main` belongs to the code branch main. Renaming the default branch keeps it the
        # default.
        connection.execute("SELECT dolt_branch('-m', dolt_default_branch(), ?)", (ROOT_BRANCH,))
        with connection.transaction():
            schema.create_tables(connection)
            schema.commit(connection, "Create the knowledge base", author, date)

    _install_file(folder, fill_database)


def clone_file(folder: Path, remote: str, url: str, limits: Limits) -> None:
    """Create a knowledge base from the contents at `url`. Its branches are heads of the remote."""

    def fill_database(connection: Connection) -> None:
        inspection.require_room(url, connection.path, limits)
        remotes.clone(connection, remote, url, ROOT_BRANCH, max_bytes=limits.file_bytes)
        inspection.require_sound_heads(
            connection.path, remotes.read_heads(connection, remote), checked_heads={}, limits=limits
        )

    _install_file(folder, fill_database)


def _install_file(folder: Path, fill: Callable[[Connection], None]) -> None:
    """Let `fill` create a database in an empty folder, and move it to `folder`.

    Raises `AlreadyInitialized`. A kill leaves no knowledge base, and a failure leaves no files.
    """
    path, unfinished = folder / DOLTLITE_FILE, folder / CREATING_NAME
    with (
        translate_os_errors(folder),
        locks.hold_exclusive(folder / LOCK_NAME, purpose="create the knowledge base", timeout=30.0),
    ):
        if path.exists():
            raise already_exists_error(folder)
        import shutil  # not needed to open a knowledge base

        shutil.rmtree(unfinished, ignore_errors=True)
        permissions.make_folder(unfinished)
        try:
            with Connection(unfinished / DOLTLITE_FILE, access="create") as connection:
                fill(connection)
            permissions.apply_folder_mode(unfinished)
            # Delete the engine's lock file first: a kill after the rename leaves an empty folder.
            for other in unfinished.iterdir():
                if other.name != DOLTLITE_FILE:
                    other.unlink()
            extent.forget_length(path)  # left from a previous file
            (folder / UNCOMMITTED_NAME).unlink(missing_ok=True)
            (unfinished / DOLTLITE_FILE).rename(path)
        finally:
            shutil.rmtree(unfinished)
        file_access.sync_to_disk(folder)


_VETTED = "vetted"
_PARENTS = """
    SELECT commit_hash, parent_hash FROM dolt_commit_ancestors
    WHERE commit_hash IN (SELECT value FROM json_each(?)) ORDER BY parent_index"""


def fetch(session: DoltliteSession, remote: str, url: str) -> None:
    with session.write_lock(f"fetch from {remote}"), session.open_connection(None) as connection:
        _fetch_locked(session, connection, remote, url)


def push(session: DoltliteSession, remote: str, url: str, heads: Mapping[str, str], *, force: bool) -> None:
    remotes.require_file(url)
    with session.write_lock(f"push to {remote}"), session.open_connection(None) as connection:
        if remotes.read_heads(connection, remote) and not remotes.is_registered_at(connection, remote, url):
            with contextlib.suppress(RemoteMissing):  # the local copy was moved; keep its heads
                _fetch_locked(session, connection, remote, url)
        refresh = functools.partial(_fetch_locked, session, connection, remote, url) if force else None
        remotes.push(connection, remote, url, heads, refresh=refresh)


def forget_remote(session: DoltliteSession, remote: str) -> None:
    with session.write_lock(f"forget {remote}"), session.open_connection(None) as connection:
        remotes.forget_remote(connection, remote)


def _fetch_locked(session: DoltliteSession, connection: Connection, remote: str, url: str) -> None:
    known_heads = remotes.read_heads(connection, remote)
    remote_heads = remotes.peek_heads(url)
    inspection.require_room(url, connection.path, session.limits)
    if remote_heads is not None and (file := remotes.parse_file(url)):
        inspection.require_sound_heads(file, remote_heads, checked_heads=known_heads, limits=session.limits)
    try:
        remotes.fetch(connection, remote, url, max_bytes=session.limits.file_bytes)
        if remote_heads is None:  # a server only lists what it has sent
            heads = remotes.read_heads(connection, remote)
            inspection.require_sound_heads(connection.path, heads, checked_heads=known_heads, limits=session.limits)
    except (KnowledgeRefused, FileSystemError):
        session.anchor_sound_heads(known_heads.values())
        remotes.forget_remote(connection, remote)
        session.collect_garbage()
        raise


def vet_revisions(
    session: DoltliteSession,
    url: str,
    revisions: Sequence[str],
    *,
    known_heads: Iterable[str],
    into: Path,
    limits: Limits,
    check_row: Callable[[Row], None],
) -> list[str]:
    """See `Engine.vet_revisions`. New revisions are copied first, and then the copy is checked."""
    root, known_revisions = session.read_known_history(known_heads)
    file = remotes.parse_file(url)
    assert file is not None  # noqa: S101  `transport.quarantine` creates a file
    try:
        with Connection(file, access="read", max_text_bytes=limits.text_bytes) as connection:
            _require_whole(connection)
            if not history.revision_exists(connection, root):
                raise engine_inspection.vetting_error(engine_inspection.UNRELATED)
            arrived = [
                revision
                for revision in revisions
                if revision not in known_revisions and history.revision_exists(connection, revision)
            ]
            new = _collect_new_ancestors(connection, arrived, known_revisions, limits)
    except EngineFailed as error:
        raise engine_inspection.vetting_error(
            inspection.DoltliteInspector(file, limits).describe_error(error)
        ) from error
    if new:
        with Connection(file) as connection:
            remotes.push(connection, _VETTED, f"file://{into}", name_vetted_heads(new))
        inspection.DoltliteInspector(into, limits).require_valid_revisions(new, check_row)
    return list(new)


def _require_whole(connection: Connection) -> None:
    """Require that every chunk matches the hash that names it.

    So a revision that is known by its hash has known contents.
    """
    if connection.execute_long("PRAGMA integrity_check") != [("ok",)]:
        raise engine_inspection.vetting_error("its file is damaged")


def _collect_new_ancestors(
    connection: Connection, revisions: Sequence[str], known_revisions: Collection[str], limits: Limits
) -> ParentMap:
    """Return those of the revisions and their ancestors that are not known, with their parents."""
    ancestors: dict[str, tuple[str, ...]] = {}
    unread = set(revisions)
    while unread:
        layer: dict[str, tuple[str, ...]] = dict.fromkeys(unread, ())
        for revision, parent in connection.stream(_PARENTS, (json.dumps(sorted(unread)),)):
            layer[revision] += (parent,) if parent else ()
        ancestors |= layer
        engine_inspection.require_descent(ancestors, limits)
        unread = {parent for parents in layer.values() for parent in parents} - ancestors.keys() - set(known_revisions)
    return ancestors
