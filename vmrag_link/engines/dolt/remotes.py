"""The contents of other places, as Dolt fetched them last; how it is told to fetch and push; and
what it says when that fails, as errors of ours.

Dolt's own tracking refs keep what was fetched from being collected as garbage. What they say
counts only once it was looked at: `noted` says what a remote held then. So a fetch that was killed,
or that brought what is refused, leaves the state before it.
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
from vmrag_link.engines.base import DOLT_FOLDER, UNFINISHED_BRANCH
from vmrag_link.engines.dolt import program
from vmrag_link.engines.dolt.connection import SqlConnection, dolt_message, quote_literal, quote_literals
from vmrag_link.engines.limits import too_large_error
from vmrag_link.errors import (
    AuthenticationFailed,
    EngineFailed,
    EngineUnwritable,
    RemoteDamaged,
    RemoteInvalid,
    RemoteMissing,
    RemoteMoved,
    RemoteRejected,
    RemoteUnreachable,
    VmragError,
)
from vmrag_link.models import Record
from vmrag_link.paths import require_space, write_atomically
from vmrag_link.pin_values import is_hosted_database

_PREFIX = "at-"
_NAME = r"[A-Za-z0-9_-]{1,100}"
_FILE = "file://"
_NOTES = "remotes.json"
_GIT_CACHE = "git-remote-cache"
_MANIFEST = "manifest"
_IN_THE_CLEAR = r"http://(\[[^\]/?#@]*\]|[^/?#@:\\\[]+)(:[0-9]+)?(/|$)"
_UNOPENABLE = frozenset("#?%")
"""Dolt takes them for the end of the path of a folder, however they are written."""

_MOST_SAID = 200

_MOVED = ("non-fast-forward", "branch not found", "optimistic lock", "stale info", "merge needed", "manifest changed")
_SHUT_OUT = ("unauthenticated", "access denied", "permissiondenied", "dolt_remote_password", "authorization header")
_MISSING = ("database not found", "repository not found", "no such repository")
_UNREACHABLE = ("code = unavailable", "deadline", "no such host", "connection refused", "timeout", "tls:", "x509:")
_REJECTED = ("readonly", "read-only", "read only", "unimplemented", "not supported", "permission")


class RemoteNote(Record, frozen=True):
    """`url` of a remote, and the `heads` of its branches when it was fetched or pushed last.

    `foreign`: the heads of the branches that have tables of another program.
    """

    url: str
    heads: dict[str, str]
    foreign: dict[str, str] = field(default_factory=dict)


# -- what is noted


def read_notes(folder: Path) -> dict[str, RemoteNote]:
    """By the short names of the remotes."""
    try:
        return msgspec.json.decode((folder / _NOTES).read_bytes(), type=dict[str, RemoteNote])
    except (
        FileNotFoundError,
        UnicodeDecodeError,
        msgspec.DecodeError,
    ):  # what is not noted is fetched and looked at again
        return {}


def read_heads(folder: Path, remote: str) -> dict[str, str]:
    known = read_notes(folder).get(remote)
    return dict(known.heads) if known else {}


def read_foreign_heads(folder: Path, remote: str) -> dict[str, str]:
    known = read_notes(folder).get(remote)
    return dict(known.foreign) if known else {}


def write_note(folder: Path, remote: str, known: RemoteNote | None) -> None:
    """Hold the write lock."""
    found = {name: each for name, each in read_notes(folder).items() if name != remote}
    if known:
        found[remote] = known
    write_atomically(folder / _NOTES, msgspec.json.encode(found), durable=False)


# -- Dolt's own remotes


def register_remote(folder: Path, connection: SqlConnection, remote: str, url: str) -> None:
    """Let Dolt know the remote. There is no changing the URL of one.

    Another URL under the same short name is the same place: its copy here was moved.
    """
    known, address = read_notes(folder).get(remote), _address(folder, url)
    if address == url and known and known.url == url and _is_registered(connection, remote):
        return
    unregister_remote(folder, connection, remote)
    connection.call("dolt_remote", "add", _name(remote), address)
    write_note(folder, remote, RemoteNote(url, known.heads, known.foreign) if known else RemoteNote(url, {}))


def forget_remote(folder: Path, connection: SqlConnection, remote: str) -> None:
    """The remote with all that was known of its branches."""
    unregister_remote(folder, connection, remote)
    write_note(folder, remote, None)


def unregister_remote(folder: Path, connection: SqlConnection, remote: str) -> None:
    """Let nothing reach what came from the remote; what was noted of its heads stays."""
    if _is_registered(connection, remote):
        connection.call("dolt_remote", "remove", _name(remote))
    shutil.rmtree(folder / DOLT_FOLDER / _GIT_CACHE, ignore_errors=True)  # earlier versions let Dolt use git


def read_tracked_heads(connection: SqlConnection, remote: str) -> dict[str, str]:
    """The heads of the remote's branches as Dolt fetched them, looked at or not.

    Names that no engine allows are left out.
    """
    start = f"remotes/{_name(remote)}/"
    rows = connection.query_rows("SELECT name, hash FROM dolt_remote_branches")
    found = {str(row["name"]): str(row["hash"]) for row in rows}
    names = {each.removeprefix(start): head for each, head in found.items() if each.startswith(start)}
    return {name: head for name, head in names.items() if name.isprintable() and name != UNFINISHED_BRANCH}


def fetch(connection: SqlConnection, remote: str, url: str, *, user: str, check: Callable[[], None]) -> None:
    """Fetch everything that the branches at `url` reach.

    Dolt brings tags along, which would keep what is refused from being collected as garbage.
    """
    require_remote_exists(url)
    before = _tags(connection)
    try:
        _remotely(connection, url, [("dolt_fetch", "--prune", *login_options(url, user), _name(remote))], check)
    finally:
        for tag in _tags(connection) - before:
            connection.call("dolt_tag", "-d", tag)


def _tags(connection: SqlConnection) -> set[str]:
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

    Raises `RemoteMoved` for one that is no fast-forward, unless `force`.
    """
    options = (*login_options(url, user), *(("--force",) if force else ()), _name(remote))
    _remotely(connection, url, [("dolt_push", *options, f"{to}:{branch}") for branch, to in heads.items()], check)


def _remotely(connection: SqlConnection, url: str, calls: list[tuple[str, ...]], check: Callable[[], None]) -> None:
    try:
        connection.run_remotely([f"CALL {name}({quote_literals(args)})" for name, *args in calls], check=check)
    except EngineFailed as error:
        raise translate_error(error, url) from error


def make_growth_check(folder: Path, most: int) -> Callable[[], None]:
    """A function that raises `KnowledgeRefused` once the folder has grown by more than `most`
    bytes, and `FileFailed` where the disk is nearly full.

    Not every remote tells its size before.
    """
    before = _size(folder)

    def check() -> None:
        grown = _size(folder) - before
        if grown > most:
            raise too_large_error(grown, most)
        require_space(folder, 0, "the remote's knowledge base")

    return check


def require_remote_exists(url: str) -> None:
    """Raises `RemoteMissing` for a folder that holds no remote; Dolt would make one."""
    folder = parse_folder(url)
    if folder is not None and not (folder / _MANIFEST).exists():
        raise RemoteMissing(f"There is no knowledge base at {url}.", hint="vmrag remote", remote=url)


def parse_folder(url: str) -> Path | None:
    """Where the remote of a `file://` URL lies; None for all others."""
    return Path(url.removeprefix(_FILE)) if url.startswith(_FILE) else None


def measure_size(url: str) -> int:
    """Bytes of a `file://` remote; 0 for what does not tell them before."""
    folder = parse_folder(url)
    return _size(folder) if folder and folder.exists() else 0


def _size(folder: Path) -> int:
    total = 0
    for where, _, files in os.walk(folder):  # it passes over a folder that is gone
        for name in files:
            with contextlib.suppress(FileNotFoundError):  # Dolt moves its files while it works
                total += Path(where, name).lstat().st_size
    return total


def login_options(url: str, user: str) -> tuple[str, ...]:
    """Dolt sends the password of the environment as this user's.

    Never in the clear to another machine: without it a server says what it wants.
    """
    found = re.match(_IN_THE_CLEAR, url)
    safe = url.startswith("https://") or (found and hosts.is_loopback(found[1]))
    return ("--user", user) if user and safe and env.has_dolt_remote_password() else ()


def _address(folder: Path, url: str) -> str:
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
            Path(path).mkdir(parents=True, exist_ok=True)  # as Dolt does, which creates nothing by a link
        return f"{_FILE}{link}"
    if _UNOPENABLE.intersection(path):
        raise RemoteInvalid(
            f"Dolt cannot open {path}: the path has one of the characters {' '.join(sorted(_UNOPENABLE))}.",
            hint="use a folder of the server without these characters: vmrag push file:///PATH",
            remote=url,
        )
    return url


def _is_registered(connection: SqlConnection, remote: str) -> bool:
    return bool(connection.query_rows(f"SELECT 1 AS v FROM dolt_remotes WHERE name = {quote_literal(_name(remote))}"))


def _name(remote: str) -> str:
    assert re.fullmatch(_NAME, remote)  # noqa: S101  `transport.address` makes them
    return _PREFIX + remote


def translate_error(error: EngineFailed, url: str) -> VmragError:
    """The error for a failed fetch from this URL or push to it."""
    told = dolt_message(error)[:_MOST_SAID]
    words = told.lower().replace(" ", "")
    served = not url.startswith(_FILE)
    details = {"remote": url, "said": told}

    def says(parts: tuple[str, ...]) -> bool:
        return any(part.replace(" ", "") in words for part in parts)

    if not told or (isinstance(error, EngineUnwritable) and not served):
        return error
    if says(_MOVED):
        return RemoteMoved(f"{url} has moved on meanwhile; nothing was pushed.", hint="vmrag pull", **details)
    if served:
        return _of_server(says, told, url, details)
    if says(_REJECTED):
        return RemoteRejected(f"{url} does not take that: {told}.", hint="See who may write there.", **details)
    return damaged_error(url, said=told)


def damaged_error(url: str, *, said: str = "") -> RemoteDamaged:
    return RemoteDamaged(
        f"The knowledge base at {url} is damaged, or is none. Nothing of it was taken.",
        hint="vmrag remote (shows what is contacted)",
        remote=url,
        said=said,
    )


def _of_server(says: Callable[[tuple[str, ...]], bool], told: str, url: str, details: Mapping[str, str]) -> VmragError:
    if says(_SHUT_OUT):
        return AuthenticationFailed(
            f"{url} did not let us in: {told}.",
            hint="DOLT_REMOTE_PASSWORD=… vmrag fetch (the user is git config vmrag.dolt.user); on DoltHub: dolt login",
            **details,
        )
    if says(_MISSING):
        return RemoteMissing(f"There is no knowledge base at {url}.", hint="vmrag remote", **details)
    if says(_UNREACHABLE):
        where = url if url.startswith("http") else "https://www.dolthub.com" if is_hosted_database(url) else ""
        hint = f"See who answers: curl -sS {where}" if where else "vmrag remote (shows what is contacted)"
        return RemoteUnreachable(f"{url} cannot be reached: {told}.", hint=hint, **details)
    return RemoteRejected(
        f"{url} does not take that: {told}.", hint="Ask who runs it what may be pushed there.", **details
    )
