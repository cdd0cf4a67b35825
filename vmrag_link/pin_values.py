"""Validation of the four values of a pin.

The values are untrusted, and reach command lines and terminals.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from typing import Literal

GIT_REMOTE = "git:"
"""The remote `git:`, which is a remote of the code repository."""

DATA_REF = "refs/vmrag/data"
"""The ref with the knowledge base in a git repository. It is not a branch, so that clones do not
fetch it.
"""

DOLT_DATA_REF = "refs/vmrag/dolt"
"""The ref with a knowledge base of the engine dolt, which Dolt's git remotes also use. Both refs
can exist.
"""

ENGINE_DATA_REFS = {"doltlite": DATA_REF, "dolt": DOLT_DATA_REF}

RESERVED_PREFIX = "vmrag"
MAX_REMOTE = 1024
MAX_BRANCH = 255
MAX_SHOWN = 80

REVISION = r"[0-9a-v]{32}|[0-9a-f]{40}"
"""Pattern of a full revision: of the engine dolt, or of doltlite."""

_DOLTLITE_LENGTH = 40

TIME = r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,6})?Z"
_ILLEGAL_IN_BRANCH = r"[\s~^:?*\[\\]|\.\.|@\{|//|^/|/$|\.$|(?:^|/)\.|\.lock(?:/|$)|^@$"

_HELPER = r"[A-Za-z0-9+.-]*::"
_URL = (
    r"(?P<scheme>[a-z0-9+]+)://(?:(?P<user>[^/?#]*)@)?"
    r"(?P<host>\[[^\s/?#\\@\]]+\]|[^\s/?#\\@:\[\]]*)(?::[0-9]{1,5})?(?P<path>/[^\\]*)?"
)
# Plain text for ssh, a user's ProxyCommand, a shell and a reader: no encoding, and no letters that
# look like others.
_USER = r"[A-Za-z0-9_.~+-]*"
_HOST = r"[A-Za-z0-9_.-]*|\[(?!-)[A-Za-z0-9_.:-]+\]"
_OWN_SCHEMES = frozenset(("git+file", "git+http", "git+https", "git+ssh", "file", "http", "https", "ssh"))
_CLOUD_SCHEMES = frozenset(("aws", "gs", "az", "oci", "oss", "s3"))
_DOLTHUB = r"[A-Za-z0-9_][A-Za-z0-9_.-]*/[A-Za-z0-9_][A-Za-z0-9_.-]*"
_OWN_BRANCHES = f"{GIT_REMOTE}refs/heads/{RESERVED_PREFIX}"
_REMOTE_FORMS = (
    "git:, git:refs/heads/vmrag…, git+https|http|ssh|file://…, file://…, https|http|ssh://…, aws|gs|az|oci|oss|s3://… "
    "or organisation/repository"
)


def find_remote_flaw(value: str) -> str | None:
    """Return why a text cannot be the remote of a pin, or None if it can."""
    if value == GIT_REMOTE:
        return None
    if flaw := _find_unsafe(value, MAX_REMOTE):
        return flaw
    if value.startswith(f"{GIT_REMOTE}refs"):
        return _own_branch_flaw(value)
    return None if is_hosted_database(value) else _url_flaw(value)


def _url_flaw(value: str) -> str | None:
    if re.match(_HELPER, value):
        return f"names a transport helper, which would run a program: {quote_untrusted(value)}"
    url = re.fullmatch(_URL, value)
    if not url or url["scheme"] not in _OWN_SCHEMES | _CLOUD_SCHEMES:
        return f"must be {_REMOTE_FORMS}; found {quote_untrusted(value)}"
    return _place_flaw(value, url["scheme"], url["user"] or "", url["host"], url["path"] or "")


def parse_git_ref(value: str, *, data: str = DATA_REF) -> str | None:
    """Return the ref with the knowledge base in the code repository's remote; None for other
    remotes.

    For `git:` it is the ref of the engine (`data`). For `git:refs/heads/…` it is that branch.
    """
    if value == GIT_REMOTE:
        return data
    return (
        value.removeprefix(GIT_REMOTE)
        if value.startswith(f"{GIT_REMOTE}refs") and not find_remote_flaw(value)
        else None
    )


def _own_branch_flaw(value: str) -> str | None:
    """Return why a `git:refs/…` remote is not allowed, or None if it is.

    A pin is untrusted, and vmrag pushes to the ref that it names. So it can never name a branch of
    code.
    """
    name = value.removeprefix(f"{GIT_REMOTE}refs/heads/")
    if not value.startswith(_OWN_BRANCHES) or re.search(_ILLEGAL_IN_BRANCH, name) or len(name) > MAX_BRANCH:
        return f"must be {_OWN_BRANCHES}…, a branch that no code is on: {quote_untrusted(value)}"
    return None


def engine_of_revision(revision: str) -> Literal["doltlite", "dolt"]:
    """Return the engine that writes revisions in this form."""
    return "doltlite" if len(revision) == _DOLTLITE_LENGTH else "dolt"


def is_hosted_database(value: str) -> bool:
    """Return whether the value has the form `organisation/repository`, for a service that hosts
    both.
    """
    return re.fullmatch(_DOLTHUB, value) is not None


def _place_flaw(value: str, scheme: str, user: str, host: str, path: str) -> str | None:
    # ssh needs a user name (git@…). Over HTTP, the name is that of one user, or a token.
    if ":" in user or "%3a" in user.lower() or (user and "http" in scheme):
        return "carries a user name or password, which everybody who clones could read; leave out what precedes the @"
    if flaw := _host_flaw(value, user, host):
        return flaw
    if "file" in scheme and (user or host):
        return f"names a host, where a folder of this machine is written {scheme}:///PATH: {quote_untrusted(value)}"
    if not host and ("file" not in scheme or path in ("", "/")):
        return f"names no place: {quote_untrusted(value)}"
    if "%" in path and not _can_be_shown(path):
        return f"holds characters that cannot be shown, percent-encoded: {quote_untrusted(value)}"
    return None


def _host_flaw(value: str, user: str, host: str) -> str | None:
    if user.startswith("-") or host.startswith("-"):
        return f"names a host that reads like an option: {quote_untrusted(value)}"
    if not re.fullmatch(_USER, user) or not re.fullmatch(_HOST, host):
        return f"names a host with other characters than A-Z a-z 0-9 . _ - (other letters are written xn--…): {quote_untrusted(value)}"
    return None


def _can_be_shown(path: str) -> bool:
    """Return whether percent-encoding in a path hides only UTF-8 without control characters."""
    from urllib.parse import unquote  # few paths are encoded

    try:
        return unquote(path, errors="strict").isprintable()
    except UnicodeDecodeError:
        return False


def _branch_flaw(value: str) -> str | None:
    if flaw := _find_unsafe(value, MAX_BRANCH):
        return flaw
    if value.lower().startswith(RESERVED_PREFIX):
        return f"names a reserved branch; names that begin with {RESERVED_PREFIX!r} are the tool's own: {quote_untrusted(value)}"
    if re.search(_ILLEGAL_IN_BRANCH, value):
        return f"is not a branch name: {quote_untrusted(value)}"
    return None


def _commit_flaw(value: str) -> str | None:
    if re.fullmatch(REVISION, value):
        return None
    return (
        "must be a full revision (32 characters 0-9a-v, or 40 hexadecimal digits); "
        f"found {quote_untrusted(value)} with {len(value)} characters"
    )


def _time_flaw(value: str) -> str | None:
    if re.fullmatch(TIME, value):
        try:
            datetime.fromisoformat(value)
        except ValueError:
            return f"is not a time that exists: {quote_untrusted(value)}"
        return None
    return f"must be a time in UTC such as 2026-01-31T12:00:00Z; found {quote_untrusted(value)}"


FLAWS: dict[str, Callable[[str], str | None]] = {
    "dolt_remote": find_remote_flaw,
    "dolt_branch": _branch_flaw,
    "dolt_commit": _commit_flaw,
    "linked_at": _time_flaw,
}
"""For each key, the function that returns why a text cannot be its value."""


def _find_unsafe(value: str, longest: int) -> str | None:
    """Return why a text cannot be in a command line or on a terminal, or None if it can."""
    if not value or value != value.strip():
        return f"is empty or has blanks around it: {quote_untrusted(value)}"
    if len(value) > longest:
        return f"is longer than {longest} characters"
    if not value.isprintable():
        return f"holds characters that cannot be shown: {quote_untrusted(value)}"
    if value.startswith("-"):
        return f"reads like an option of a command: {quote_untrusted(value)}"
    return None


def quote_untrusted(value: str) -> str:
    """Quote an untrusted text for a message: short, on one line, without escape sequences or
    secrets.
    """
    text = repr(re.sub(r"//.*@", "//…@", value)[:MAX_SHOWN])
    return text if len(text) <= MAX_SHOWN else f"{text[: MAX_SHOWN - 4]}…'"
