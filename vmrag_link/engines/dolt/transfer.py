"""Fetching from remotes and pushing to them. The contracts are those of `engines.base.Engine`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from vmrag_link import permissions
from vmrag_link.engines import inspection as engine_inspection
from vmrag_link.engines.base import DOLT_FOLDER, ROOT_BRANCH, reserved
from vmrag_link.engines.dolt import files, history, inspection, program, remotes, schema
from vmrag_link.engines.dolt.access import DoltAccess
from vmrag_link.engines.dolt.remotes import Noted
from vmrag_link.engines.dolt.session import DoltSession
from vmrag_link.engines.dolt.shell_session import REMOTE_SECONDS
from vmrag_link.engines.limits import Limits, too_large
from vmrag_link.engines.looking import new_ancestors, vetted_heads
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


def clone(folder: Path, remote: str, url: str, limits: Limits, access: DoltAccess) -> None:
    """Make a knowledge base of what `url` holds, with the branch `vmrag_root`."""
    program.find(access.binary)
    heads: dict[str, str] = {}
    foreign: dict[str, str] = {}

    def fill(new: Path) -> None:
        schema.make_empty(new, access)
        with schema.opened(new, access, limits) as connection:
            session = DoltSession(new, connection, lock_timeout=30.0, limits=limits)
            _fetch(session, access, remote, url, user=access.user)
            heads.update(remotes.heads(new, remote))
            foreign.update(remotes.foreign_heads(new, remote))
            if ROOT_BRANCH not in heads:
                raise RemoteDamaged(
                    f"What is at {url} is no knowledge base of ours: it has no branch {ROOT_BRANCH!r}.",
                    hint="vmrag remote (shows what is contacted)",
                    remote=url,
                )
            connection.call("dolt_reset", "--hard", heads[ROOT_BRANCH], at=ROOT_BRANCH)

    schema.make(folder, fill)
    # After a kill before this, the remote is fetched and looked at once more.
    remotes.note(folder, remote, Noted(url, heads, foreign))


def peek(url: str, access: DoltAccess) -> dict[str, str] | None:
    """See `Engine.peek`. Dolt opens a copy of the manifest, with links to the files that it names:
    opening changes a folder, and the journal of one that is in use.
    """
    there = remotes.folder_of(url)
    if there is None:
        return None
    remotes.require_there(url)
    try:
        manifest = files.read_manifest(there)
    except OSError as error:
        raise remotes.damaged(url) from error
    names = [name for name in files.table_counts(manifest) or () if name != files.JOURNAL]
    tables = [path for name in names if (path := files.table_file(there, name))]
    try:
        with files.linked_repository(manifest, tables) as folder, schema.opened(folder, access) as connection:
            return {branch.name: branch.head for branch in history.branches(connection)}
    except EngineFailed as error:
        raise remotes.translated(error, url) from error


def fetch(session: DoltSession, access: DoltAccess, remote: str, url: str, *, user: str) -> None:
    with session.writing(f"fetch from {remote}"):
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
    with session.writing(f"push to {remote}"):
        if force:
            _require_unmoved(session, access, remote, url, wanted, user=user)
        _require_not_foreign(session, remote, url, wanted)
        foreign = _all_foreign(session)
        heads = {
            branch: head
            for branch, head in wanted.items()
            if head and not reserved(branch) and head not in foreign  # `vmrag gc --remote` pushes those again
        }
        with engine_inspection.before_push():
            inspection.require_sound(session, heads, known=remotes.heads(session.folder, remote), whose="")
        _prepare_session(session, url)
        remotes.register(session.folder, session.connection, remote, url)
        try:
            check = remotes.growth_check(session.folder, session.limits.file_bytes)
            remotes.push(session.connection, remote, url, wanted, force=force, user=user, check=check)
        finally:
            _note_pushed(session, remote, url, wanted)


def _require_unmoved(
    session: DoltSession, access: DoltAccess, remote: str, url: str, wanted: Iterable[str], *, user: str
) -> None:
    before = remotes.heads(session.folder, remote)
    _fetch(session, access, remote, url, user=user)
    now = remotes.heads(session.folder, remote)
    if any(before.get(branch) != now.get(branch) for branch in wanted):
        raise RemoteMoved(f"{url} has moved on meanwhile; nothing was pushed.", hint="vmrag pull", remote=url)


def _require_not_foreign(session: DoltSession, remote: str, url: str, wanted: Mapping[str, str]) -> None:
    there = remotes.foreign_heads(session.folder, remote)
    for branch, head in wanted.items():
        if head != there.get(branch, head):
            raise KnowledgeRefused(
                f"Nothing was pushed: the branch {branch!r} at {url} has tables of another program.",
                hint="ask who pushed that branch to rename it, or commit on a code branch with another name: git switch -c NAME",
                branch=branch,
            )


def _all_foreign(session: DoltSession) -> set[str]:
    return {head for each in remotes.noted(session.folder).values() for head in each.foreign.values()}


def _note_pushed(session: DoltSession, remote: str, url: str, wanted: Iterable[str]) -> None:
    """Of what was pushed, Dolt tracks what arrived; other branches are as they were looked at."""
    there = remotes.tracked(session.connection, remote)
    pushed, foreign = {name: there[name] for name in wanted if name in there}, _all_foreign(session)
    ours = {name: head for name, head in remotes.heads(session.folder, remote).items() if name not in set(wanted)}
    ours |= {name: head for name, head in pushed.items() if head not in foreign}
    theirs = remotes.foreign_heads(session.folder, remote)
    theirs |= {name: head for name, head in pushed.items() if head in foreign}
    remotes.note(session.folder, remote, Noted(url, ours, theirs))


def forget(session: DoltSession, remote: str) -> None:
    with session.writing(f"forget {remote}"):
        remotes.forget(session.folder, session.connection, remote)


def _fetch(session: DoltSession, access: DoltAccess, remote: str, url: str, *, user: str) -> None:
    folder, connection = session.folder, session.connection
    remotes.require_there(url)
    require_room(url, folder, session.limits)
    _prepare_session(session, url)
    remotes.register(folder, connection, remote, url)
    known, foreign = remotes.heads(folder, remote), remotes.foreign_heads(folder, remote)
    try:
        check = remotes.growth_check(folder, session.limits.file_bytes)
        remotes.fetch(connection, remote, url, user=user, check=check)
        heads = remotes.tracked(connection, remote)
        if set(heads.values()).difference(known.values(), foreign.values()):
            _require_true(session.folder, access)
        foreign = inspection.foreign_heads(session, heads, known=known)
    except (KnowledgeRefused, FileSystemError):
        _give_up(session, remote, known)
        raise
    ours = {name: head for name, head in heads.items() if name not in foreign}
    remotes.note(folder, remote, Noted(url, ours, foreign))


def _prepare_session(session: DoltSession, url: str) -> None:
    """Let Dolt see what the remote holds now, and give a server the present password."""
    if remotes.folder_of(url) is None:
        session.connection.release()
    else:
        session.connection.forget_remotes()


def _require_true(folder: Path, access: DoltAccess) -> None:
    """Refuse forged pieces: a pinned revision would hold what somebody put there later.

    A server's files are the server's.
    """
    if not (folder / DOLT_FOLDER).is_dir():
        return
    try:
        files.require_true(folder, access.binary)
    except EngineUnwritable:
        raise
    except EngineFailed as error:
        raise KnowledgeRefused(
            "Revisions there do not hold what their names say: they were damaged or forged. Nothing of them was taken.",
            hint="Ask who pushed there last; or it is damaged here: vmrag doctor",
        ) from error


def _give_up(session: DoltSession, remote: str, known: Mapping[str, str]) -> None:
    """Drop all that came; what was known of the remote before stays known, and here."""
    session.keep_sound(known.values())
    remotes.clear(session.folder, session.connection, remote)
    session.collect_garbage()


def require_room(url: str, folder: Path, limits: Limits) -> None:
    """Require that a `file://` remote is not too large, and that the disk has room for it.

    Raises `KnowledgeRefused`, `FileFailed`.
    """
    size = remotes.size_of(url)
    if size > limits.file_bytes:
        raise too_large(size, limits.file_bytes)
    require_space(folder, max(0, size - remotes.size_of(f"file://{folder}")), "the remote's knowledge base")


def vet(
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
    root, here = session.known_history(known)
    with _fetched(url, into.with_name("theirs"), limits, access) as theirs:
        connection = theirs.connection
        if not history.existing(connection, [root]):
            raise engine_inspection.refused(engine_inspection.STRANGE)
        there = history.existing(connection, revisions) - set(here)
        new = new_ancestors(history.parents(connection, there), there, here)
        engine_inspection.require_descent(new, limits)
        inspection.DoltLooker(theirs).require_all(new, sound)
        if new:
            permissions.make_folder(into)
            remotes.register(theirs.folder, connection, _VETTED, f"file://{into}")
            check = remotes.growth_check(theirs.folder, limits.file_bytes)
            heads = vetted_heads(new)
            remotes.push(connection, _VETTED, f"file://{into}", heads, force=False, user="", check=check)
    return list(new)


@contextlib.contextmanager
def _fetched(url: str, folder: Path, limits: Limits, access: DoltAccess) -> Iterator[DoltSession]:
    """All that is there, in a repository in a new folder; every piece is the one that its hash
    names.

    So what is known by name is known by content.
    """
    permissions.make_folder(folder)
    schema.make_empty(folder, access)
    with schema.opened(folder, access, limits) as connection:
        session = DoltSession(folder, connection, lock_timeout=30.0, limits=limits)
        remotes.register(folder, connection, _REMOTE, url)
        try:
            remotes.fetch(
                connection, _REMOTE, url, user=access.user, check=remotes.growth_check(folder, limits.file_bytes)
            )
            connection.release()
            program.check(folder, access.binary, timeout=REMOTE_SECONDS)
        except EngineFailed as error:
            raise engine_inspection.refused(error.message) from error
        yield session
