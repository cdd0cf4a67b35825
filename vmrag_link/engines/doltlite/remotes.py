"""Fetching and pushing with doltlite, and the heads that remotes had last.

If a remote is called `origin`, doltlite reports every unknown revision as damage of its own
database, so that name is never used. A connection that was open before another one committed cannot
push that commit, so each call needs a new one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from vmrag_link.engines.doltlite.connection import Connection
from vmrag_link.engines.limits import too_large_error
from vmrag_link.engines.remote_errors import damaged_error, missing_error, moved_error
from vmrag_link.errors import (
    DOLTLITE_PATH_BYTES,
    AuthenticationFailed,
    EngineFailed,
    RemoteInvalid,
    RemoteRejected,
    RemoteUnreachable,
    VmragError,
    is_too_long,
    path_too_long,
    quoted,
)
from vmrag_link.file_access import require_space

_PREFIX = "at-"
_NAME = r"[A-Za-z0-9_-]{1,100}"
_FILE = "file://"
_DEFAULT = "main"
"""The default branch of every remote to doltlite, regardless of the first pushed branch."""

_MAX_SHOWN_CHARACTERS = 200
_ERROR, _CANTOPEN, _CONSTRAINT, _UNAUTHORIZED = 1, 14, 19, 23
_DAMAGED = (11, 26)


def read_heads(connection: Connection, remote: str) -> dict[str, str]:
    """Return the head of each of the remote's branches, as of the last fetch or push.

    Names that no engine allows are left out.
    """
    start = f"remotes/{_doltlite_name(remote)}/"
    rows = connection.execute("SELECT name, hash FROM dolt_remote_branches")
    return {name.removeprefix(start): head for name, head in rows if name.startswith(start) and name.isprintable()}


def read_all_heads(connection: Connection, branch: str | None = None) -> set[str]:
    """Return the heads of the branches of every remote, as of the last fetch or push.

    With `branch`, return only those of the branches with this name.
    """
    rows = connection.execute("SELECT name, hash FROM dolt_remote_branches")
    return {head for name, head in rows if branch is None or name.split("/", 2)[2:] == [branch]}


def fetch(connection: Connection, remote: str, url: str, *, max_bytes: int) -> None:
    """Fetch everything that the branches at `url` reach.

    A server does not report its size, so the fetch is aborted if our file grows by more than
    `max_bytes` bytes. Raises `KnowledgeRefused`, and `FileFailed` if the disk is nearly full.
    """
    _register_remote(connection, remote, url)
    _fetch_with_limit(connection, url, max_bytes, "SELECT dolt_fetch(?)", _doltlite_name(remote))
    remote_heads = peek_heads(url)
    # If a branch was deleted there, fetch again without its head.
    if remote_heads is not None and set(read_heads(connection, remote)) - set(remote_heads):
        forget_remote(connection, remote)
        _register_remote(connection, remote, url)
        _fetch_with_limit(connection, url, max_bytes, "SELECT dolt_fetch(?)", _doltlite_name(remote))


def push(
    connection: Connection,
    remote: str,
    url: str,
    heads: Mapping[str, str],
    *,
    refresh: Callable[[], None] | None = None,
) -> None:
    """Make revisions the heads of branches at `url`, one after the other.

    Raises `RemoteMoved` if a push is not a fast-forward. `refresh` fetches and forces the push;
    then `RemoteMoved` is for a branch that moved since it was last fetched. Doltlite has no lease,
    so this is checked right before the push.
    """
    _register_remote(connection, remote, url)
    for branch, revision in heads.items():
        if refresh:
            _require_unmoved(connection, remote, url, branch, refresh)
        options = ("--force",) if refresh else ()
        placeholders = ", ".join("?" * (len(options) + 2))
        _run_remotely(
            connection,
            url,
            f"SELECT dolt_push({placeholders})",
            *options,
            _doltlite_name(remote),
            f"{revision}:{branch}",
        )


def _require_unmoved(connection: Connection, remote: str, url: str, branch: str, refresh: Callable[[], None]) -> None:
    known_head = read_heads(connection, remote).get(branch)
    refresh()
    if read_heads(connection, remote).get(branch) != known_head:
        raise moved_error(url)


def _register_remote(connection: Connection, remote: str, url: str) -> None:
    """Add the remote, because the URL of an existing remote cannot be changed."""
    if not is_registered_at(connection, remote, url):
        forget_remote(connection, remote)
        connection.execute("SELECT dolt_remote('add', ?, ?)", (_doltlite_name(remote), url))


def is_registered_at(connection: Connection, remote: str, url: str) -> bool:
    """Return whether the remote was last fetched from or pushed to this URL."""
    return connection.execute("SELECT url FROM dolt_remotes WHERE name = ?", (_doltlite_name(remote),)) == [(url,)]


def peek_heads(url: str) -> dict[str, str] | None:
    """Return the branches in a file with their heads, or None for a server."""
    file = parse_file(url)
    if file is None:
        return None
    try:
        with Connection(file, access="read") as connection:
            return dict(connection.execute("SELECT name, hash FROM dolt_branches"))
    except EngineFailed as error:
        raise _translate_error(error, url) from error


def parse_file(url: str) -> Path | None:
    """Return the file of a `file://` URL, or None for a server."""
    return Path(url.removeprefix(_FILE)) if url.startswith(_FILE) else None


def require_file(url: str) -> None:
    """Raise `RemoteInvalid` for a server.

    The engine's own server has only one right: a user who may push may overwrite everything.
    """
    if parse_file(url) is None:
        raise RemoteInvalid(
            f"vmrag cannot push to a doltlite server, only fetch from it: {url}.",
            hint="run 'vmrag push git:' to push it there, or set 'remote: \"git:\"' in .vmrag.yaml to also pin this "
            "remote",
            remote=url,
        )


def forget_remote(connection: Connection, remote: str) -> None:
    """Remove the remote with everything that is known of its branches."""
    name = _doltlite_name(remote)
    if connection.execute("SELECT 1 FROM dolt_remotes WHERE name = ?", (name,)):
        connection.execute("SELECT dolt_remote('remove', ?)", (name,))


def clone(connection: Connection, remote: str, url: str, branch: str, *, max_bytes: int) -> None:
    """Fill a new, empty database from `url`, with one local branch, its default.

    `max_bytes` is the same limit as in `fetch`.
    """
    _fetch_with_limit(
        connection,
        url,
        max_bytes,
        "SELECT dolt_clone('--branch', ?, '--remote', ?, ?)",
        branch,
        _doltlite_name(remote),
        url,
    )


def _doltlite_name(remote: str) -> str:
    assert re.fullmatch(_NAME, remote)  # noqa: S101  `transport.address` creates the names
    return _PREFIX + remote


def _fetch_with_limit(connection: Connection, url: str, max_bytes: int, sql: str, *args: str) -> None:
    def check_growth() -> None:
        grown = connection.path.stat().st_size - before
        if grown > max_bytes:
            raise too_large_error(grown, max_bytes)
        require_space(connection.path.parent, 0, "the remote's knowledge base")

    before = connection.path.stat().st_size
    _run_remotely(connection, url, sql, *args, check=check_growth)
    grown = connection.path.stat().st_size - before
    if grown > max_bytes:
        raise too_large_error(grown, max_bytes)


def _run_remotely(
    connection: Connection, url: str, sql: str, *args: str, check: Callable[[], None] = lambda: None
) -> None:
    try:
        connection.execute_long(sql, args, check=check)
    except EngineFailed as error:
        if (file := parse_file(url)) and is_too_long(file, max_bytes=DOLTLITE_PATH_BYTES):
            raise path_too_long(file, max_bytes=DOLTLITE_PATH_BYTES) from error
        raise _translate_error(error, url) from error


def _translate_error(error: EngineFailed, url: str) -> VmragError:
    """Return the error for a failed transfer. The server's message may be untrusted.

    Doltlite reports errors of the remote as errors of our own file.
    """
    code = error.result_code & 0xFF
    message = re.sub(r"[^ -~]+", " ", error.result_message)[:_MAX_SHOWN_CHARACTERS]
    details = {"remote": url, "said": message}
    if code == _UNAUTHORIZED:
        hint = "run 'ls ~/.doltlite/creds' to find your key, and give its public half to the server's administrator"
        return AuthenticationFailed(f"{url} refused the login: {message}.", hint=hint, **details)
    if code == _CONSTRAINT and "fast-forward" in message:
        return moved_error(url, message=message)
    if code == _CONSTRAINT:
        return _rejected_error(url, message, details)
    file = parse_file(url)
    if (code == _ERROR and "not found" in message) or (file and not file.exists()):
        return missing_error(url, message=message)
    is_served = url.startswith("http")
    if code in _DAMAGED or (not is_served and code == _CANTOPEN):
        return damaged_error(url, message=message)
    return _server_error(message, url, details) if is_served else error


def _server_error(message: str, url: str, details: Mapping[str, str]) -> VmragError:
    if "failed to open remote" in message:
        return RemoteInvalid(
            f"invalid address of a knowledge base: {url}.", hint="use the form http://HOST:PORT/NAME", **details
        )
    return RemoteUnreachable(
        f"cannot reach {url}: {message}.", hint=f"run 'curl -sS {quoted(url)}' to check the server", **details
    )


def _rejected_error(url: str, message: str, details: Mapping[str, str]) -> RemoteRejected:
    if "default branch" in message:
        return RemoteRejected(
            f"cannot delete the KB branch {_DEFAULT!r} of a remote; it can only be moved.",
            hint=f"run 'vmrag push --branch {_DEFAULT}' to move it",
            **details,
        )
    return RemoteRejected(
        f"{url} rejected the request: {message}.", hint="ask its administrator what may be pushed there", **details
    )
