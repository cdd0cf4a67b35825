"""Fetching from remotes and pushing to them. The contracts are those of `engines.base.Engine`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from vmrag_link import permissions
from vmrag_link.engines import inspection as engine_inspection
from vmrag_link.engines.base import DOLT_FOLDER, ROOT_BRANCH, is_reserved
from vmrag_link.engines.dolt import files, history, inspection, program, remotes, schema
from vmrag_link.engines.dolt.access import DoltAccess
from vmrag_link.engines.dolt.remotes import RemoteNote
from vmrag_link.engines.dolt.session import DoltSession
from vmrag_link.engines.dolt.shell_session import REMOTE_SECONDS
from vmrag_link.engines.limits import Limits, too_large_error
from vmrag_link.engines.looking import collect_new_ancestors, name_vetted_heads
from vmrag_link.errors import (
    EngineFailed,
    EngineUnwritable,
    FileSystemError,
    KnowledgeRefused,
    RemoteDamaged,
    RemoteMoved,
)
from vmrag_link.models import Row
from vmrag_link.paths import require_space

_REMOTE = "theirs"
_VETTED = "vetted"


def clone_repository(folder: Path, remote: str, url: str, limits: Limits, access: DoltAccess) -> None:
    """Make a knowledge base of what `url` holds, with the branch `vmrag_root`."""
    program.find_program(access.binary)
    heads: dict[str, str] = {}
    foreign: dict[str, str] = {}

    def fill(new: Path) -> None:
        schema.create_empty_repository(new, access)
        with schema.open_repository(new, access, limits) as connection:
            session = DoltSession(new, connection, lock_timeout=30.0, limits=limits)
            _fetch(session, access, remote, url, user=access.user)
            heads.update(remotes.read_heads(new, remote))
            foreign.update(remotes.read_foreign_heads(new, remote))
            if ROOT_BRANCH not in heads:
                raise RemoteDamaged(
                    f"What is at {url} is no knowledge base of ours: it has no branch {ROOT_BRANCH!r}.",
                    hint="vmrag remote (shows what is contacted)",
                    remote=url,
                )
            connection.call("dolt_reset", "--hard", heads[ROOT_BRANCH], at=ROOT_BRANCH)

    schema.install_repository(folder, fill)
    # After a kill before this, the remote is fetched and looked at once more.
    remotes.write_note(folder, remote, RemoteNote(url, heads, foreign))


def peek_heads(url: str, access: DoltAccess) -> dict[str, str] | None:
    """See `Engine.peek`. Dolt opens a copy of the manifest, with links to the files that it names:
    opening changes a folder, and the journal of one that is in use.
    """
    there = remotes.parse_folder(url)
    if there is None:
        return None
    remotes.require_remote_exists(url)
    try:
        manifest = files.read_manifest(there)
    except OSError as error:
        raise remotes.damaged_error(url) from error
    names = [name for name in files.parse_table_counts(manifest) or () if name != files.JOURNAL]
    tables = [path for name in names if (path := files.find_table_file(there, name))]
    try:
        with files.linked_repository(manifest, tables) as folder, schema.open_repository(folder, access) as connection:
            return {branch.name: branch.head for branch in history.list_branches(connection)}
    except EngineFailed as error:
        raise remotes.translate_error(error, url) from error


def fetch(session: DoltSession, access: DoltAccess, remote: str, url: str, *, user: str) -> None:
    with session.write_lock(f"fetch from {remote}"):
        _fetch(session, access, remote, url, user=user)


def push(
    session: DoltSession,
    access: DoltAccess,
    remote: str,
    url: str,
    wanted: Mapping[str, str],
    *,
    force: bool,
    user: str,
) -> None:
    """Dolt has no lease; with `force`, what is there is asked right before."""
    if not wanted:
        return
    with session.write_lock(f"push to {remote}"):
        if force:
            _require_unmoved(session, access, remote, url, wanted, user=user)
        _require_not_foreign(session, remote, url, wanted)
        foreign = _all_foreign(session)
        heads = {
            branch: head
            for branch, head in wanted.items()
            if head and not is_reserved(branch) and head not in foreign  # `vmrag gc --remote` pushes those again
        }
        with engine_inspection.translate_push_refusal():
            inspection.require_sound_heads(session, heads, known=remotes.read_heads(session.folder, remote), whose="")
        _prepare_session(session, url)
        remotes.register_remote(session.folder, session.connection, remote, url)
        try:
            check = remotes.make_growth_check(session.folder, session.limits.file_bytes)
            remotes.push(session.connection, remote, url, wanted, force=force, user=user, check=check)
        finally:
            _note_pushed(session, remote, url, wanted)


def _require_unmoved(
    session: DoltSession, access: DoltAccess, remote: str, url: str, wanted: Iterable[str], *, user: str
) -> None:
    before = remotes.read_heads(session.folder, remote)
    _fetch(session, access, remote, url, user=user)
    now = remotes.read_heads(session.folder, remote)
    if any(before.get(branch) != now.get(branch) for branch in wanted):
        raise RemoteMoved(f"{url} has moved on meanwhile; nothing was pushed.", hint="vmrag pull", remote=url)


def _require_not_foreign(session: DoltSession, remote: str, url: str, wanted: Mapping[str, str]) -> None:
    there = remotes.read_foreign_heads(session.folder, remote)
    for branch, head in wanted.items():
        if head != there.get(branch, head):
            raise KnowledgeRefused(
                f"Nothing was pushed: the branch {branch!r} at {url} has tables of another program.",
                hint="ask who pushed that branch to rename it, or commit on a code branch with another name: git switch -c NAME",
                branch=branch,
            )


def _all_foreign(session: DoltSession) -> set[str]:
    return {head for each in remotes.read_notes(session.folder).values() for head in each.foreign.values()}


def _note_pushed(session: DoltSession, remote: str, url: str, wanted: Iterable[str]) -> None:
    """Of what was pushed, Dolt tracks what arrived; other branches are as they were looked at."""
    there = remotes.read_tracked_heads(session.connection, remote)
    pushed, foreign = {name: there[name] for name in wanted if name in there}, _all_foreign(session)
    ours = {name: head for name, head in remotes.read_heads(session.folder, remote).items() if name not in set(wanted)}
    ours |= {name: head for name, head in pushed.items() if head not in foreign}
    theirs = remotes.read_foreign_heads(session.folder, remote)
    theirs |= {name: head for name, head in pushed.items() if head in foreign}
    remotes.write_note(session.folder, remote, RemoteNote(url, ours, theirs))


def forget_remote(session: DoltSession, remote: str) -> None:
    with session.write_lock(f"forget {remote}"):
        remotes.forget_remote(session.folder, session.connection, remote)


def _fetch(session: DoltSession, access: DoltAccess, remote: str, url: str, *, user: str) -> None:
    folder, connection = session.folder, session.connection
    remotes.require_remote_exists(url)
    require_room(url, folder, session.limits)
    _prepare_session(session, url)
    remotes.register_remote(folder, connection, remote, url)
    known, foreign = remotes.read_heads(folder, remote), remotes.read_foreign_heads(folder, remote)
    try:
        check = remotes.make_growth_check(folder, session.limits.file_bytes)
        remotes.fetch(connection, remote, url, user=user, check=check)
        heads = remotes.read_tracked_heads(connection, remote)
        if set(heads.values()).difference(known.values(), foreign.values()):
            _require_true(session.folder, access)
        foreign = inspection.find_foreign_heads(session, heads, known=known)
    except (KnowledgeRefused, FileSystemError):
        _give_up(session, remote, known)
        raise
    ours = {name: head for name, head in heads.items() if name not in foreign}
    remotes.write_note(folder, remote, RemoteNote(url, ours, foreign))


def _prepare_session(session: DoltSession, url: str) -> None:
    """Let Dolt see what the remote holds now, and give a server the present password."""
    if remotes.parse_folder(url) is None:
        session.connection.end_session()
    else:
        session.connection.forget_remotes()


def _require_true(folder: Path, access: DoltAccess) -> None:
    """Refuse forged pieces: a pinned revision would hold what somebody put there later.

    A server's files are the server's.
    """
    if not (folder / DOLT_FOLDER).is_dir():
        return
    try:
        files.require_valid_tables(folder, access.binary)
    except EngineUnwritable:
        raise
    except EngineFailed as error:
        raise KnowledgeRefused(
            "Revisions there do not hold what their names say: they were damaged or forged. Nothing of them was taken.",
            hint="Ask who pushed there last; or it is damaged here: vmrag doctor",
        ) from error


def _give_up(session: DoltSession, remote: str, known: Mapping[str, str]) -> None:
    """Drop all that came; what was known of the remote before stays known, and here."""
    session.anchor_sound_heads(known.values())
    remotes.unregister_remote(session.folder, session.connection, remote)
    session.collect_garbage()


def require_room(url: str, folder: Path, limits: Limits) -> None:
    """Require that a `file://` remote is not too large, and that the disk has room for it.

    Raises `KnowledgeRefused`, `FileFailed`.
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
    known: Iterable[str],
    into: Path,
    limits: Limits,
    sound: Callable[[Row], None],
) -> list[str]:
    """See `Engine.vet`. What is there is fetched into a repository of its own."""
    root, here = session.read_known_history(known)
    with _fetched(url, into.with_name("theirs"), limits, access) as theirs:
        connection = theirs.connection
        if not history.find_existing(connection, [root]):
            raise engine_inspection.vetting_error(engine_inspection.UNRELATED)
        there = history.find_existing(connection, revisions) - set(here)
        new = collect_new_ancestors(history.map_parents(connection, there), there, here)
        engine_inspection.require_descent(new, limits)
        inspection.DoltInspector(theirs).require_sound_revisions(new, sound)
        if new:
            permissions.make_folder(into)
            remotes.register_remote(theirs.folder, connection, _VETTED, f"file://{into}")
            check = remotes.make_growth_check(theirs.folder, limits.file_bytes)
            heads = name_vetted_heads(new)
            remotes.push(connection, _VETTED, f"file://{into}", heads, force=False, user="", check=check)
    return list(new)


@contextlib.contextmanager
def _fetched(url: str, folder: Path, limits: Limits, access: DoltAccess) -> Iterator[DoltSession]:
    """All that is there, in a repository in a new folder; every piece is the one that its hash
    names.

    So what is known by name is known by content.
    """
    permissions.make_folder(folder)
    schema.create_empty_repository(folder, access)
    with schema.open_repository(folder, access, limits) as connection:
        session = DoltSession(folder, connection, lock_timeout=30.0, limits=limits)
        remotes.register_remote(folder, connection, _REMOTE, url)
        try:
            remotes.fetch(
                connection, _REMOTE, url, user=access.user, check=remotes.make_growth_check(folder, limits.file_bytes)
            )
            connection.end_session()
            program.check_repository(folder, access.binary, timeout=REMOTE_SECONDS)
        except EngineFailed as error:
            raise engine_inspection.vetting_error(error.message) from error
        yield session
