"""Fetching from remotes and pushing to them. The contracts are those of `engines.base.Engine`."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from vmrag_link.engines.base import ROOT_BRANCH
from vmrag_link.engines.doltlite import history, inspection, remotes, validation
from vmrag_link.engines.doltlite.connection import Connection
from vmrag_link.engines.doltlite.session import DoltliteSession
from vmrag_link.engines.limits import Limits
from vmrag_link.errors import FileSystemError, KnowledgeRefused, RemoteMissing
from vmrag_link.models import Row


def fetch(session: DoltliteSession, remote: str, url: str) -> None:
    with session.writing(f"fetch from {remote}"), session.connection(None) as connection:
        _fetch(session, connection, remote, url)


def push(session: DoltliteSession, remote: str, url: str, heads: Mapping[str, str], *, force: bool) -> None:
    remotes.require_file(url)
    with session.writing(f"push to {remote}"), session.connection(None) as connection:
        if remotes.heads(connection, remote) and not remotes.is_at(connection, remote, url):
            with contextlib.suppress(RemoteMissing):  # its copy here was moved: what it has stays known
                _fetch(session, connection, remote, url)
        refresh = functools.partial(_fetch, session, connection, remote, url) if force else None
        remotes.push(connection, remote, url, heads, refresh=refresh)


def forget(session: DoltliteSession, remote: str) -> None:
    with session.writing(f"forget {remote}"), session.connection(None) as connection:
        remotes.forget(connection, remote)


def _fetch(session: DoltliteSession, connection: Connection, remote: str, url: str) -> None:
    known, there = remotes.heads(connection, remote), remotes.peek(url)
    inspection.require_room(url, connection.path, session.limits)
    if there is not None and (file := remotes.file_of(url)):
        inspection.require_sound(file, there, known=known, limits=session.limits)
    try:
        remotes.fetch(connection, remote, url, most=session.limits.file_bytes)
        if there is None:  # a server shows nothing before it has sent it
            heads = remotes.heads(connection, remote)
            inspection.require_sound(connection.path, heads, known=known, limits=session.limits)
    except (KnowledgeRefused, FileSystemError):
        session.keep_sound(known.values())
        remotes.forget(connection, remote)
        session.collect_garbage()
        raise


def vet(
    session: DoltliteSession,
    url: str,
    revisions: Sequence[str],
    *,
    known: Iterable[str],
    into: Path,
    limits: Limits,
    sound: Callable[[Row], None],
) -> list[str]:
    root = session.require_branch(ROOT_BRANCH).head
    before = history.parents(session.main, [root]).keys() - {root}
    here = history.parents(session.main, [root, *known]).keys() - before
    file = remotes.file_of(url)
    assert file is not None  # noqa: S101  `transport.quarantine` makes it
    return validation.take(file, revisions, root=root, known=here, into=into, limits=limits, sound=sound)
