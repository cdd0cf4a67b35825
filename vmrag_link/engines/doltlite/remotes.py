"""The contents of other files and servers, as doltlite fetched them last, and how they are fetched.

A database whose remote is called `origin` reports every unknown revision as its own damage, so that
name is never used. A connection that was open before a commit was made elsewhere cannot push it, so
each call needs a fresh one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from vmrag_link.engines.doltlite.connection import Connection
from vmrag_link.engines.limits import too_large_error
from vmrag_link.errors import (
    DOLTLITE_PATH_BYTES,
    AuthenticationFailed,
    EngineFailed,
    RemoteDamaged,
    RemoteInvalid,
    RemoteMissing,
    RemoteMoved,
    RemoteRejected,
    RemoteUnreachable,
    VmragError,
    is_too_long,
    path_too_long,
)
from vmrag_link.paths import require_space

_PREFIX = "at-"
_NAME = r"[A-Za-z0-9_-]{1,100}"
_FILE = "file://"
_DEFAULT = "main"
"""What doltlite takes for the default branch of every remote, whatever is pushed there first."""

_MOST_SAID = 200
_ERROR, _CANTOPEN, _CONSTRAINT, _UNAUTHORIZED = 1, 14, 19, 23
_DAMAGED = (11, 26)


def read_heads(connection: Connection, remote: str) -> dict[str, str]:
    """The head of each of the remote's branches, as last fetched or pushed.

    Names that no engine allows are left out.
    """
    start = f"remotes/{_name(remote)}/"
    rows = connection.execute("SELECT name, hash FROM dolt_remote_branches")
    return {name.removeprefix(start): head for name, head in rows if name.startswith(start) and name.isprintable()}


def read_all_heads(connection: Connection, branch: str | None = None) -> set[str]:
    """The heads of the branches of every remote, or of those with one name, as last fetched or
    pushed.
    """
    rows = connection.execute("SELECT name, hash FROM dolt_remote_branches")
    return {head for name, head in rows if branch is None or name.split("/", 2)[2:] == [branch]}


def fetch(connection: Connection, remote: str, url: str, *, most: int) -> None:
    """Fetch everything that the branches at `url` reach.

    A server does not tell its size before, so the fetch is given up when our file grows by more
    than `most` bytes. Raises `KnowledgeRefused`, and `FileFailed` where the disk is nearly full.
    """
    _register(connection, remote, url)
    _bring(connection, url, most, "SELECT dolt_fetch(?)", _name(remote))
    there = peek_heads(url)
    if there is not None and set(read_heads(connection, remote)) - set(there):  # of branches that are gone
        forget_remote(connection, remote)
        _register(connection, remote, url)
        _bring(connection, url, most, "SELECT dolt_fetch(?)", _name(remote))


def push(
    connection: Connection,
    remote: str,
    url: str,
    heads: Mapping[str, str],
    *,
    refresh: Callable[[], None] | None = None,
) -> None:
    """Make revisions the heads of branches at `url`, one after the other.

    Raises `RemoteMoved` for one that is no fast-forward. `refresh` fetches and lets them move
    anywhere; then `RemoteMoved` is for a branch that moved since it was last fetched. Doltlite has
    no lease, so this is checked right before.
    """
    _register(connection, remote, url)
    for branch, revision in heads.items():
        if refresh:
            _require_unmoved(connection, remote, url, branch, refresh)
        options = ("--force",) if refresh else ()
        marks = ", ".join("?" * (len(options) + 2))
        _remotely(connection, url, f"SELECT dolt_push({marks})", *options, _name(remote), f"{revision}:{branch}")


def _require_unmoved(connection: Connection, remote: str, url: str, branch: str, refresh: Callable[[], None]) -> None:
    known = read_heads(connection, remote).get(branch)
    refresh()
    if read_heads(connection, remote).get(branch) != known:
        raise RemoteMoved(f"{url} has moved on meanwhile; nothing was pushed.", hint="vmrag pull", remote=url)


def _register(connection: Connection, remote: str, url: str) -> None:
    """There is no changing a remote's URL."""
    if not is_registered_at(connection, remote, url):
        forget_remote(connection, remote)
        connection.execute("SELECT dolt_remote('add', ?, ?)", (_name(remote), url))


def is_registered_at(connection: Connection, remote: str, url: str) -> bool:
    """Whether that is where the remote was fetched from or pushed to last."""
    return connection.execute("SELECT url FROM dolt_remotes WHERE name = ?", (_name(remote),)) == [(url,)]


def peek_heads(url: str) -> dict[str, str] | None:
    """The branches in a file with their heads; None for a server, which does not say."""
    file = parse_file(url)
    if file is None:
        return None
    try:
        with Connection(file, access="read") as connection:
            return dict(connection.execute("SELECT name, hash FROM dolt_branches"))
    except EngineFailed as error:
        raise _failure(error, url) from error


def parse_file(url: str) -> Path | None:
    """Where the file of a `file://` URL lies; None for a server."""
    return Path(url.removeprefix(_FILE)) if url.startswith(_FILE) else None


def require_file(url: str) -> None:
    """Raises `RemoteInvalid` for a server. The engine's own knows one right: who may push there may
    overwrite everything.
    """
    if parse_file(url) is None:
        raise RemoteInvalid(
            f"Knowledge is fetched from a doltlite server, not pushed to it: {url}.",
            hint='vmrag push git:   (for pins to say so, too: remote: "git:" in .vmrag.yaml, '
            "then vmrag trust && vmrag pin && git commit -am MESSAGE)",
            remote=url,
        )


def forget_remote(connection: Connection, remote: str) -> None:
    """The remote with all that was known of its branches."""
    name = _name(remote)
    if connection.execute("SELECT 1 FROM dolt_remotes WHERE name = ?", (name,)):
        connection.execute("SELECT dolt_remote('remove', ?)", (name,))


def list_remotes(connection: Connection) -> list[str]:
    rows = connection.execute("SELECT name FROM dolt_remotes ORDER BY name")
    return [name.removeprefix(_PREFIX) for (name,) in rows if name.startswith(_PREFIX)]


def clone(connection: Connection, remote: str, url: str, branch: str, *, most: int) -> None:
    """Fill a new, empty database from `url`, with one local branch, its default. `most`: as for
    `fetch`.
    """
    _bring(connection, url, most, "SELECT dolt_clone('--branch', ?, '--remote', ?, ?)", branch, _name(remote), url)


def _name(remote: str) -> str:
    assert re.fullmatch(_NAME, remote)  # noqa: S101  `transport.address` makes them
    return _PREFIX + remote


def _bring(connection: Connection, url: str, most: int, sql: str, *args: str) -> None:
    def check() -> None:
        grown = connection.path.stat().st_size - before
        if grown > most:
            raise too_large_error(grown, most)
        require_space(connection.path.parent, 0, "the remote's knowledge base")

    before = connection.path.stat().st_size
    _remotely(connection, url, sql, *args, check=check)
    if connection.path.stat().st_size - before > most:
        raise too_large_error(connection.path.stat().st_size - before, most)


def _remotely(connection: Connection, url: str, sql: str, *args: str, check: Callable[[], None] = lambda: None) -> None:
    try:
        connection.execute_long(sql, args, check=check)
    except EngineFailed as error:
        if (file := parse_file(url)) and is_too_long(file, most=DOLTLITE_PATH_BYTES):
            raise path_too_long(file, most=DOLTLITE_PATH_BYTES) from error
        raise _failure(error, url) from error


def _failure(error: EngineFailed, url: str) -> VmragError:
    """Doltlite reports the other side's errors as our own file's. A server's words are a
    stranger's.
    """
    code = error.result_code & 0xFF
    told = re.sub(r"[^ -~]+", " ", error.result_message)[:_MOST_SAID]
    details = {"remote": url, "said": told}
    if code == _UNAUTHORIZED:
        hint = "Who runs the server must have the public half of your key: ls ~/.doltlite/creds"
        return AuthenticationFailed(f"{url} did not let us in: {told}.", hint=hint, **details)
    if code == _CONSTRAINT and "fast-forward" in told:
        return RemoteMoved(f"{url} has moved on meanwhile; nothing was pushed.", hint="vmrag pull", **details)
    if code == _CONSTRAINT:
        return _refusal(url, told, details)
    if (code == _ERROR and "not found" in told) or not _may_be_there(url):
        return RemoteMissing(f"There is no knowledge base at {url}.", hint="vmrag remote", **details)
    served = url.startswith("http")
    if code in _DAMAGED or (not served and code == _CANTOPEN):
        return RemoteDamaged(
            f"The knowledge base at {url} is damaged, or is none. Nothing of it was taken.",
            hint="vmrag remote (shows what is contacted)",
            **details,
        )
    return _of_server(told, url, details) if served else error


def _may_be_there(url: str) -> bool:
    """False for a file that does not exist."""
    return not url.startswith(_FILE) or Path(url.removeprefix(_FILE)).exists()


def _of_server(told: str, url: str, details: Mapping[str, str]) -> VmragError:
    if "failed to open remote" in told:
        return RemoteInvalid(f"{url} is no address of a knowledge base.", hint="http://HOST:PORT/NAME", **details)
    return RemoteUnreachable(f"{url} cannot be reached: {told}.", hint=f"See who answers: curl -sS {url}", **details)


def _refusal(url: str, told: str, details: Mapping[str, str]) -> RemoteRejected:
    if "default branch" in told:
        return RemoteRejected(
            f"The KB branch {_DEFAULT!r} of a remote can be moved, but not deleted.",
            hint=f"vmrag push --branch {_DEFAULT}   (… with --force takes from it what only the remote has)",
            **details,
        )
    return RemoteRejected(
        f"{url} does not take that: {told}.", hint="Ask who runs it what may be pushed there.", **details
    )
