"""Fetching and pushing with Dolt, the heads that remotes had last, and Dolt's messages as errors.

Dolt's own tracking refs protect fetched data from garbage collection. They are trusted only after a
check: `read_known_remotes` returns what a remote held then. So a fetch that was killed or refused
leaves the previous state.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec
from msgspec import field

from vmrag_link import env, hosts
from vmrag_link.engines.dolt import program
from vmrag_link.engines.dolt.connection import SqlConnection, dolt_message, quote_literal, quote_literals
from vmrag_link.engines.folder import DOLT_FOLDER
from vmrag_link.engines.limits import too_large_error
from vmrag_link.engines.own_branches import UNFINISHED_BRANCH
from vmrag_link.engines.remote_errors import damaged_error, missing_error, moved_error
from vmrag_link.errors import (
    AuthenticationFailed,
    EngineFailed,
    EngineUnwritable,
    RemoteInvalid,
    RemoteRejected,
    RemoteUnreachable,
    VmragError,
    quoted,
)
from vmrag_link.file_access import require_space, write_atomically
from vmrag_link.models import Record
from vmrag_link.pin_values import is_hosted_database

_PREFIX = "at-"
_NAME = r"[A-Za-z0-9_-]{1,100}"
_FILE = "file://"
_KNOWN_NAME = "remotes.json"
_GIT_CACHE = "git-remote-cache"
_MANIFEST = "manifest"
_UNENCRYPTED_URL = r"http://(\[[^\]/?#@]*\]|[^/?#@:\\\[]+)(:[0-9]+)?(/|$)"
_UNOPENABLE = frozenset("#?%")
"""Characters that Dolt takes for the end of a folder's path, even if they are escaped."""

_MAX_SHOWN_CHARACTERS = 200

_MOVED = ("non-fast-forward", "branch not found", "optimistic lock", "stale info", "merge needed", "manifest changed")
_LOGIN_REFUSED = (
    "unauthenticated",
    "access denied",
    "permissiondenied",
    "dolt_remote_password",
    "authorization header",
)
_MISSING = ("database not found", "repository not found", "no such repository")
_UNREACHABLE = ("code = unavailable", "deadline", "no such host", "connection refused", "timeout", "tls:", "x509:")
_REJECTED = ("readonly", "read-only", "read only", "unimplemented", "not supported", "permission")


class KnownRemote(Record, frozen=True):
    """The URL of a remote, and the heads of its branches at the last fetch or push."""

    url: str
    heads: dict[str, str]
    foreign: dict[str, str] = field(default_factory=dict)
    """The heads of the branches that have tables of another program."""


# -- what is known of remotes


def read_known_remotes(folder: Path) -> dict[str, KnownRemote]:
    """Return the known remotes by their short names."""
    try:
        return msgspec.json.decode((folder / _KNOWN_NAME).read_bytes(), type=dict[str, KnownRemote])
    except (FileNotFoundError, UnicodeDecodeError, msgspec.DecodeError):
        return {}  # then a fetch checks everything again


def read_heads(folder: Path, remote: str) -> dict[str, str]:
    entry = read_known_remotes(folder).get(remote)
    return dict(entry.heads) if entry else {}


def read_foreign_heads(folder: Path, remote: str) -> dict[str, str]:
    entry = read_known_remotes(folder).get(remote)
    return dict(entry.foreign) if entry else {}


def write_known_remote(folder: Path, remote: str, entry: KnownRemote | None) -> None:
    """Write what is known of a remote, or remove it. Hold the write lock."""
    known_remotes = read_known_remotes(folder)
    known_remotes.pop(remote, None)
    if entry:
        known_remotes[remote] = entry
    write_atomically(folder / _KNOWN_NAME, msgspec.json.encode(known_remotes), durable=False)


# -- Dolt's own remotes


def register_remote(folder: Path, connection: SqlConnection, remote: str, url: str) -> None:
    """Add the remote to Dolt, which cannot change the URL of an existing one.

    Another URL under the same short name is the same place: its copy here was moved.
    """
    entry = read_known_remotes(folder).get(remote)
    address = _dolt_url(folder, url)
    if address == url and entry and entry.url == url and _is_registered(connection, remote):
        return
    unregister_remote(folder, connection, remote)
    connection.call("dolt_remote", "add", _dolt_name(remote), address)
    write_known_remote(folder, remote, msgspec.structs.replace(entry, url=url) if entry else KnownRemote(url, {}))


def forget_remote(folder: Path, connection: SqlConnection, remote: str) -> None:
    """Remove the remote with everything that is known of its branches."""
    unregister_remote(folder, connection, remote)
    write_known_remote(folder, remote, None)


def unregister_remote(folder: Path, connection: SqlConnection, remote: str) -> None:
    """Remove the remote from Dolt, so that nothing reaches its data.

    Its known heads stay.
    """
    if _is_registered(connection, remote):
        connection.call("dolt_remote", "remove", _dolt_name(remote))
    shutil.rmtree(folder / DOLT_FOLDER / _GIT_CACHE, ignore_errors=True)  # earlier versions used Dolt's support for git


def read_tracked_heads(connection: SqlConnection, remote: str) -> dict[str, str]:
    """Return the heads of the remote's branches as Dolt fetched them, checked or not.

    Names that no engine allows are left out.
    """
    start = f"remotes/{_dolt_name(remote)}/"
    heads = {}
    for row in connection.query_rows("SELECT name, hash FROM dolt_remote_branches"):
        name = str(row["name"]).removeprefix(start)
        if name != str(row["name"]) and name.isprintable() and name != UNFINISHED_BRANCH:
            heads[name] = str(row["hash"])
    return heads


def fetch(connection: SqlConnection, remote: str, url: str, *, user: str, check: Callable[[], None]) -> None:
    """Fetch everything that the branches at `url` reach.

    Dolt also fetches tags. They are deleted, because they would protect refused data from garbage
    collection.
    """
    require_remote_exists(url)
    before = _list_tags(connection)
    try:
        _run_remotely(
            connection, url, [("dolt_fetch", "--prune", *login_options(url, user), _dolt_name(remote))], check
        )
    finally:
        for tag in _list_tags(connection) - before:
            connection.call("dolt_tag", "-d", tag)


def _list_tags(connection: SqlConnection) -> set[str]:
    return {str(row["tag_name"]) for row in connection.query_rows("SELECT tag_name FROM dolt_tags")}


def push(
    connection: SqlConnection,
    remote: str,
    url: str,
    heads: Mapping[str, str],
    *,
    force: bool,
    user: str,
    check: Callable[[], None],
) -> None:
    """Make revisions the heads of branches at `url`, one after the other; an empty one deletes.

    Raises `RemoteMoved` if one is not a fast-forward, unless `force`.
    """
    options = (*login_options(url, user), *(("--force",) if force else ()), _dolt_name(remote))
    _run_remotely(connection, url, [("dolt_push", *options, f"{to}:{branch}") for branch, to in heads.items()], check)


def _run_remotely(connection: SqlConnection, url: str, calls: list[tuple[str, ...]], check: Callable[[], None]) -> None:
    try:
        connection.run_remotely([f"CALL {name}({quote_literals(args)})" for name, *args in calls], check=check)
    except EngineFailed as error:
        raise translate_error(error, url) from error


def make_growth_check(folder: Path, max_bytes: int) -> Callable[[], None]:
    """Return a function that raises `KnowledgeRefused` if the folder has grown too much.

    The limit is `max_bytes`. It raises `FileFailed` if the disk is nearly full. It is needed
    because not every remote reports its size in advance.
    """
    before = _folder_size(folder)

    def check_growth() -> None:
        grown = _folder_size(folder) - before
        if grown > max_bytes:
            raise too_large_error(grown, max_bytes)
        require_space(folder, 0, "the remote's knowledge base")

    return check_growth


def require_remote_exists(url: str) -> None:
    """Raise `RemoteMissing` for a folder without a remote, because Dolt would create one."""
    folder = parse_folder(url)
    if folder is not None and not (folder / _MANIFEST).exists():
        raise missing_error(url)


def parse_folder(url: str) -> Path | None:
    """Return the folder of a `file://` URL, or None for all other URLs."""
    return Path(url.removeprefix(_FILE)) if url.startswith(_FILE) else None


def measure_size(url: str) -> int:
    """Return the bytes of a `file://` remote, or 0 for other remotes."""
    folder = parse_folder(url)
    return _folder_size(folder) if folder and folder.exists() else 0


def _folder_size(folder: Path) -> int:
    total = 0
    for where, _, files in os.walk(folder):  # os.walk ignores a folder that disappears
        for name in files:
            with contextlib.suppress(FileNotFoundError):  # Dolt moves its files while it works
                total += Path(where, name).lstat().st_size
    return total


def login_options(url: str, user: str) -> tuple[str, ...]:
    """Return the options with which Dolt sends the password of the environment for this user.

    The password is never sent unencrypted to another machine. Without it, the server reports that
    it requires one.
    """
    match = re.match(_UNENCRYPTED_URL, url)
    safe = url.startswith("https://") or (match and hosts.is_loopback(match[1]))
    return ("--user", user) if user and safe and env.has_dolt_remote_password() else ()


def _dolt_url(folder: Path, url: str) -> str:
    """Return the URL by which Dolt opens a remote of the knowledge base in `folder`.

    Dolt escapes no character of a path. Raises `RemoteInvalid` for a folder of a server that has
    such a character.
    """
    if not url.startswith(_FILE):
        return url
    path = url.removeprefix(_FILE)
    if (folder / DOLT_FOLDER).is_dir():
        link = program.openable_path(Path(path))
        if link != Path(path):
            Path(path).mkdir(parents=True, exist_ok=True)  # Dolt creates the folder too, but not through a link
        return f"{_FILE}{link}"
    if _UNOPENABLE.intersection(path):
        raise RemoteInvalid(
            f"Dolt cannot open {path}: the path has one of the characters {' '.join(sorted(_UNOPENABLE))}.",
            hint="run 'vmrag push file:///PATH' to use a folder of the server without these characters",
            remote=url,
        )
    return url


def _is_registered(connection: SqlConnection, remote: str) -> bool:
    return bool(
        connection.query_rows(f"SELECT 1 AS v FROM dolt_remotes WHERE name = {quote_literal(_dolt_name(remote))}")
    )


def _dolt_name(remote: str) -> str:
    assert re.fullmatch(_NAME, remote)  # noqa: S101  `transport.address` creates the names
    return _PREFIX + remote


def translate_error(error: EngineFailed, url: str) -> VmragError:
    """Return the error for a failed fetch from this URL or push to it."""
    message = dolt_message(error)[:_MAX_SHOWN_CHARACTERS]
    is_server = not url.startswith(_FILE)
    details = {"remote": url, "said": message}
    if not message or (isinstance(error, EngineUnwritable) and not is_server):
        return error
    if _contains_phrase(message, _MOVED):
        return moved_error(url, message=message)
    if is_server:
        return _translate_server_error(message, url, details)
    if _contains_phrase(message, _REJECTED):
        return RemoteRejected(f"{url} rejected the push: {message}.", hint="check who may write there", **details)
    return damaged_error(url, message=message)


def _contains_phrase(message: str, phrases: tuple[str, ...]) -> bool:
    words = message.lower().replace(" ", "")
    return any(phrase.replace(" ", "") in words for phrase in phrases)


def _translate_server_error(message: str, url: str, details: Mapping[str, str]) -> VmragError:
    if _contains_phrase(message, _LOGIN_REFUSED):
        return AuthenticationFailed(
            f"{url} refused the login: {message}.",
            hint="run 'DOLT_REMOTE_PASSWORD=… vmrag fetch' with your password, or 'dolt login' for DoltHub",
            **details,
        )
    if _contains_phrase(message, _MISSING):
        return missing_error(url, message=details["said"])
    if _contains_phrase(message, _UNREACHABLE):
        server = "https://www.dolthub.com" if is_hosted_database(url) else url
        hint = "run 'vmrag remote' to check the address"
        if server.startswith("http"):
            hint = f"run 'curl -sS {quoted(server)}' to check the server"
        return RemoteUnreachable(f"cannot reach {url}: {message}.", hint=hint, **details)
    return RemoteRejected(
        f"{url} rejected the request: {message}.", hint="ask its administrator what may be pushed there", **details
    )
