"""Fetching from remotes and pushing to them. `engines.base.Engine` documents the contracts."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from vmrag_link import permissions
from vmrag_link.engines import inspection as engine_inspection
from vmrag_link.engines.dolt import files, history, inspection, program, remotes, schema
from vmrag_link.engines.dolt.access import DoltAccess
from vmrag_link.engines.dolt.remotes import KnownRemote
from vmrag_link.engines.dolt.session import DoltSession
from vmrag_link.engines.dolt.shell_session import REMOTE_SECONDS
from vmrag_link.engines.folder import DOLT_FOLDER
from vmrag_link.engines.inspector import collect_new_ancestors, name_vetted_heads
from vmrag_link.engines.limits import Limits, too_large_error
from vmrag_link.engines.own_branches import ROOT_BRANCH, is_reserved
from vmrag_link.engines.remote_errors import damaged_error, moved_error
from vmrag_link.errors import (
    EngineFailed,
    EngineUnwritable,
    FileSystemError,
    KnowledgeRefused,
    RemoteDamaged,
    VmragError,
)
from vmrag_link.file_access import require_space
from vmrag_link.models import Row
from vmrag_link.thread_task import ThreadTask

_UNTRUSTED = "theirs"
"""Dolt's name of the remote from which revisions to be vetted are fetched."""
_VETTED = "vetted"
"""Dolt's name of the remote that receives vetted revisions."""


def clone_repository(folder: Path, remote: str, url: str, limits: Limits, access: DoltAccess) -> None:
    """Create a knowledge base from the contents at `url`, with the branch `vmrag_root`."""
    program.find_program(access.binary)
    heads: dict[str, str] = {}
    foreign: dict[str, str] = {}

    def fill_repository(new: Path) -> None:
        schema.create_empty_repository(new, access)
        with schema.open_repository(new, access, limits) as connection:
            session = DoltSession(new, connection, lock_timeout=30.0, limits=limits)
            _fetch_locked(session, access, remote, url, user=access.user)
            heads.update(remotes.read_heads(new, remote))
            foreign.update(remotes.read_foreign_heads(new, remote))
            if ROOT_BRANCH not in heads:
                raise RemoteDamaged(
                    f"{url} is not a knowledge base of vmrag: it has no branch {ROOT_BRANCH!r}.",
                    hint="run 'vmrag remote' to check the address",
                    remote=url,
                )
            connection.call("dolt_reset", "--hard", heads[ROOT_BRANCH], at=ROOT_BRANCH)

    schema.install_repository(folder, fill_repository)
    # After a kill before this, the next fetch checks the remote again.
    remotes.write_known_remote(folder, remote, KnownRemote(url, heads, foreign))


def peek_heads(url: str, access: DoltAccess) -> dict[str, str] | None:
    """See `Engine.peek_heads`.

    Dolt opens a copy of the manifest, with links to the files that it names, because opening
    changes a folder, and the journal of one that is in use.
    """
    remote_folder = remotes.parse_folder(url)
    if remote_folder is None:
        return None
    remotes.require_remote_exists(url)
    try:
        manifest = files.read_manifest(remote_folder)
    except OSError as error:
        raise damaged_error(url) from error
    names = [name for name in files.parse_table_counts(manifest) or () if name != files.JOURNAL]
    tables = [path for name in names if (path := files.find_table_file(remote_folder, name))]
    try:
        with files.linked_repository(manifest, tables) as folder, schema.open_repository(folder, access) as connection:
            return {branch.name: branch.head for branch in history.list_branches(connection)}
    except EngineFailed as error:
        raise remotes.translate_error(error, url) from error


def fetch(session: DoltSession, access: DoltAccess, remote: str, url: str, *, user: str) -> None:
    with session.write_lock(f"fetch from {remote}"):
        _fetch_locked(session, access, remote, url, user=user)


def push(
    session: DoltSession,
    access: DoltAccess,
    remote: str,
    url: str,
    targets: Mapping[str, str],
    *,
    force: bool,
    user: str,
) -> None:
    """See `Engine.push`. Dolt has no lease, so with `force` the heads are fetched right before."""
    if not targets:
        return
    with session.write_lock(f"push to {remote}"):
        if force:
            _require_unmoved(session, access, remote, url, targets, user=user)
        _require_not_foreign(session, remote, url, targets)
        foreign = _all_foreign(session)
        # `vmrag gc --remote` pushes foreign heads again, so they are not checked.
        heads = {
            branch: head for branch, head in targets.items() if head and not is_reserved(branch) and head not in foreign
        }
        with engine_inspection.translate_push_refusal():
            inspection.require_sound_heads(
                session, heads, checked_heads=remotes.read_heads(session.folder, remote), whose=""
            )
        _prepare_session(session, url)
        remotes.register_remote(session.folder, session.connection, remote, url)
        try:
            check = remotes.make_growth_check(session.folder, session.limits.file_bytes)
            remotes.push(session.connection, remote, url, targets, force=force, user=user, check=check)
        finally:
            _record_pushed(session, remote, url, targets)


def _require_unmoved(
    session: DoltSession, access: DoltAccess, remote: str, url: str, branches: Iterable[str], *, user: str
) -> None:
    before = remotes.read_heads(session.folder, remote)
    _fetch_locked(session, access, remote, url, user=user)
    now = remotes.read_heads(session.folder, remote)
    if any(before.get(branch) != now.get(branch) for branch in branches):
        raise moved_error(url)


def _require_not_foreign(session: DoltSession, remote: str, url: str, targets: Mapping[str, str]) -> None:
    foreign_heads = remotes.read_foreign_heads(session.folder, remote)
    for branch, head in targets.items():
        if head != foreign_heads.get(branch, head):
            raise KnowledgeRefused(
                f"nothing was pushed: the branch {branch!r} at {url} has tables of another program.",
                hint="ask who pushed that branch to rename it, or run 'git switch -c NAME' to commit on another code "
                "branch",
                branch=branch,
            )


def _all_foreign(session: DoltSession) -> set[str]:
    return {head for entry in remotes.read_known_remotes(session.folder).values() for head in entry.foreign.values()}


def _record_pushed(session: DoltSession, remote: str, url: str, branches: Collection[str]) -> None:
    """Record the heads after a push.

    Dolt tracks the heads that arrived. Other branches keep their known heads.
    """
    known_heads = remotes.read_heads(session.folder, remote)
    foreign_heads = remotes.read_foreign_heads(session.folder, remote)
    tracked = remotes.read_tracked_heads(session.connection, remote)
    foreign = _all_foreign(session)
    for name in branches:
        known_heads.pop(name, None)
        if name in tracked:
            heads = foreign_heads if tracked[name] in foreign else known_heads
            heads[name] = tracked[name]
    remotes.write_known_remote(session.folder, remote, KnownRemote(url, known_heads, foreign_heads))


def forget_remote(session: DoltSession, remote: str) -> None:
    with session.write_lock(f"forget {remote}"):
        remotes.forget_remote(session.folder, session.connection, remote)


def _fetch_locked(session: DoltSession, access: DoltAccess, remote: str, url: str, *, user: str) -> None:
    folder, connection = session.folder, session.connection
    remotes.require_remote_exists(url)
    require_room(url, folder, session.limits)
    _prepare_session(session, url)
    remotes.register_remote(folder, connection, remote, url)
    known_heads = remotes.read_heads(folder, remote)
    known_foreign = remotes.read_foreign_heads(folder, remote)
    try:
        check = remotes.make_growth_check(folder, session.limits.file_bytes)
        remotes.fetch(connection, remote, url, user=user, check=check)
        heads = remotes.read_tracked_heads(connection, remote)
        check_chunks = None
        if set(heads.values()).difference(known_heads.values(), known_foreign.values()):
            check_chunks = ThreadTask(lambda: _require_valid_chunks(folder, access))
        try:
            foreign = inspection.find_foreign_heads(session, heads, checked_heads=known_heads)
        except Exception as error:  # whichever it is, forged chunks may have caused it
            if check_chunks:
                _raise_refusal(check_chunks, error)
            raise
        if check_chunks:
            check_chunks.result()
    except (KnowledgeRefused, FileSystemError):
        _discard_fetched(session, remote, known_heads)
        raise
    ours = {name: head for name, head in heads.items() if name not in foreign}
    remotes.write_known_remote(folder, remote, KnownRemote(url, ours, foreign))


def _raise_refusal(check_chunks: ThreadTask[None], error: Exception) -> None:
    """Raise the refusal of forged chunks instead of another error, which they may have caused."""
    try:
        check_chunks.result()
    except KnowledgeRefused as refusal:
        raise refusal from error
    except (VmragError, OSError):  # the other error decides whether the fetch is discarded
        return


def _prepare_session(session: DoltSession, url: str) -> None:
    """Make Dolt read the remote again, and give a server the current password."""
    if remotes.parse_folder(url) is None:
        session.connection.end_session()
    else:
        session.connection.forget_remotes()


def _require_valid_chunks(folder: Path, access: DoltAccess) -> None:
    """Refuse forged chunks: otherwise the content of a pinned revision could be replaced later.

    The files of a server belong to the server.
    """
    if not (folder / DOLT_FOLDER).is_dir():
        return
    try:
        files.require_valid_tables(folder, access.binary)
    except EngineUnwritable:
        raise
    except EngineFailed as error:
        raise KnowledgeRefused(
            "revisions on the remote do not match their hashes (damaged or forged); nothing was fetched.",
            hint="ask who pushed last, or run 'vmrag doctor' to check for local damage",
        ) from error


def _discard_fetched(session: DoltSession, remote: str, known_heads: Mapping[str, str]) -> None:
    """Discard everything that was fetched. The heads that were known before are kept."""
    session.anchor_sound_heads(known_heads.values())
    remotes.unregister_remote(session.folder, session.connection, remote)
    session.collect_garbage()


def require_room(url: str, folder: Path, limits: Limits) -> None:
    """Require that a `file://` remote is not too large, and that the disk has room for it.

    Raises `KnowledgeRefused` and `FileFailed`.
    """
    size = remotes.measure_size(url)
    if size > limits.file_bytes:
        raise too_large_error(size, limits.file_bytes)
    require_space(folder, max(0, size - remotes.measure_size(f"file://{folder}")), "the remote's knowledge base")


def vet_revisions(
    session: DoltSession,
    access: DoltAccess,
    url: str,
    revisions: Sequence[str],
    *,
    known_heads: Iterable[str],
    into: Path,
    limits: Limits,
    check_row: Callable[[Row], None],
) -> list[str]:
    """See `Engine.vet_revisions`. The contents are fetched into a separate repository."""
    root, known_revisions = session.read_known_history(known_heads)
    with _fetched_repository(url, into.with_name("theirs"), limits, access) as theirs:
        connection = theirs.connection
        if not history.find_existing(connection, [root]):
            raise engine_inspection.vetting_error(engine_inspection.UNRELATED)
        arrived = history.find_existing(connection, revisions) - set(known_revisions)
        new = collect_new_ancestors(history.map_parents(connection, arrived), arrived, known_revisions)
        engine_inspection.require_descent(new, limits)
        inspection.DoltInspector(theirs).require_valid_revisions(new, check_row)
        if new:
            permissions.make_folder(into)
            remotes.register_remote(theirs.folder, connection, _VETTED, f"file://{into}")
            check = remotes.make_growth_check(theirs.folder, limits.file_bytes)
            heads = name_vetted_heads(new)
            remotes.push(connection, _VETTED, f"file://{into}", heads, force=False, user="", check=check)
    return list(new)


@contextlib.contextmanager
def _fetched_repository(url: str, folder: Path, limits: Limits, access: DoltAccess) -> Iterator[DoltSession]:
    """Fetch everything into a repository in a new folder, and check the hash of every chunk.

    So a revision that is known by its hash has known contents.
    """
    permissions.make_folder(folder)
    schema.create_empty_repository(folder, access)
    with schema.open_repository(folder, access, limits) as connection:
        session = DoltSession(folder, connection, lock_timeout=30.0, limits=limits)
        remotes.register_remote(folder, connection, _UNTRUSTED, url)
        try:
            remotes.fetch(
                connection,
                _UNTRUSTED,
                url,
                user=access.user,
                check=remotes.make_growth_check(folder, limits.file_bytes),
            )
            connection.end_session()
            program.check_repository(folder, access.binary, timeout=REMOTE_SECONDS)
        except EngineFailed as error:
            raise engine_inspection.vetting_error(error.message) from error
        yield session
