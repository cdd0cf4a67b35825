"""How git gets in at a remote: what the code's repository is configured with, for git processes in
our repositories beside it.

Those include the file `config` of the code's repository, but see neither a work tree's own file nor
what is included on a condition. actions/checkout keeps its token so since version 6, for the code's
git directory alone. What they lack is handed to git in the environment: no file of ours and no
command line ever holds a secret.
"""

from __future__ import annotations

import contextlib
import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from urllib.parse import urlsplit

from vmrag_link import env
from vmrag_link.git import configuration, remotes
from vmrag_link.git.configuration import Setting
from vmrag_link.git.run import run_git
from vmrag_link.paths import Places

_ASKED = r"(http|credential|url|ssh|includeif)\.|core\.(sshcommand|askpass)$"
_HEADER, _HELPER, _SSH = ".extraheader", ".helper", "core.sshcommand"

_HELPER_SECONDS = 10.0

SILENT_SECONDS = 30
"""Seconds of silence that a host is allowed while nobody watches."""

_TIMEOUTS = f"-o ConnectTimeout={SILENT_SECONDS} -o ServerAliveInterval=10 -o ServerAliveCountMax=3"


def read_credentials(places: Places) -> list[Setting]:
    """What git in the code's repository gets in with, in the order in which it counts."""
    return [
        setting
        for setting in configuration.list_settings(places.code_places or places)
        if re.match(_ASKED, setting.key)
    ]


def build_environment(places: Places, found: Sequence[Setting], *, ask: bool) -> dict[str, str]:
    """The variables with which git in `places` gets in where git in the code's repository does.

    `ask`: a person may be asked at the terminal.
    """
    missing = _missing(places.code_places, found) if places.code_places else []
    return env.git_settings(below=missing) | _ssh(found, ask=ask)


# -- what a repository beside the code's does not see


def _missing(code: Places, found: Sequence[Setting]) -> list[tuple[str, str]]:
    """Settings after which git has the values of the code's repository, in the same order.

    All values of a key are repeated, because it may see some of them. A list is emptied first: two
    `Authorization` headers are refused.
    """
    conditional = {each.scope for each in found if each.key.startswith("includeif.")}
    keys = {each.key for each in found if _may_be_unseen(each, code.common, conditional)}
    there = [each for each in found if each.scope != "command"]  # inherited as it is
    plain = [each for each in there if each.key in keys and not each.key.endswith((_HEADER, _HELPER))]
    settings = [(each.key, each.value) for each in plain]
    if any(key.endswith(_HELPER) for key in keys):
        settings += _helpers(there)
    if any(key.endswith(_HEADER) for key in keys):
        settings += _headers(there)
    return settings


def _may_be_unseen(setting: Setting, common: Path, conditional: set[str]) -> bool:
    match setting:
        case Setting(key=key) if key.startswith("includeif."):
            return False
        case Setting("local", origin):
            return origin != f"file:{common / 'config'}"
        case Setting("worktree"):
            return True
        case Setting("system" | "global" as scope):
            return scope in conditional
    return False


def _helpers(found: Sequence[Setting]) -> Iterator[tuple[str, str]]:
    """Git asks every helper that fits a URL, in turn; an empty one takes back all before it."""
    yield "credential.helper", ""
    for each in found:
        if each.key.startswith("credential.") and each.key.endswith(_HELPER):
            yield each.key, each.value


def _headers(found: Sequence[Setting]) -> Iterator[tuple[str, str]]:
    """Git sends every header for a URL, but none that is less specific than one before it; an empty
    one takes back all before it.

    So the headers of each URL are repeated under its own key, together with those of its parents.
    """
    headers = [each for each in found if each.key.endswith(_HEADER)]
    for key, url in dict.fromkeys((header.key, header.url) for header in headers):
        yield key, ""
        longest = 0
        for header in headers:
            if _is_below(url, header.url) and len(header.url) >= longest:
                longest = len(header.url)
                yield key, header.value


def _is_below(url: str, parent: str) -> bool:
    return not parent or url == parent or url.startswith(parent.rstrip("/") + "/")


# -- whether there is any


def has_credentials(places: Places, server: str) -> bool:
    """Whether git in this repository gets in at the server by itself, without asking a person.

    It does by an `Authorization` header for any part of the server, by the URL of a remote there,
    or because a credential helper answers.
    """
    found = read_credentials(places)
    headers = [each for each in found if each.key.endswith(_HEADER)]
    if any(_authorizes(header.value) and _overlap(header.url, server) for header in headers):
        return True
    there = [
        url
        for name in remotes.list_remotes(places)
        for url in (remotes.read_url(places, name), *remotes.read_push_urls(places, name))
    ]
    host = urlsplit(server).hostname
    if any(_user_at(url) == host for url in there):
        return True
    if not any(each.key.startswith("credential.") and each.key.endswith(_HELPER) for each in found):
        return False
    url = next((each for each in there if _is_below(each, server)), server)
    return _helper_answers(places, url)


def _user_at(url: str) -> str | None:
    """The host for which a URL names a user; None if it names none, or is no URL."""
    with contextlib.suppress(ValueError):
        parts = urlsplit(url)
        return parts.hostname if parts.username else None
    return None


def _authorizes(header: str) -> bool:
    return header.lower().startswith("authorization:")


def _overlap(one: str, other: str) -> bool:
    return _is_below(one, other) or _is_below(other, one)


def _helper_answers(places: Places, url: str) -> bool:
    silent = env.SILENCED | {"GIT_TERMINAL_PROMPT": "0"}
    try:
        done = run_git(
            places, "credential", "fill", stdin=f"url={url}\n\n".encode(), extra=silent, timeout=_HELPER_SECONDS
        )
    except TimeoutError:
        return False
    return done.returncode == 0


# -- ssh


def _ssh(found: Sequence[Setting], *, ask: bool) -> dict[str, str]:
    """Keep ssh from waiting for ever and from asking at the terminal.

    Another program in its place is left alone.
    """
    configured = [each.value for each in found if each.key == _SSH]
    command = env.read_variable(env.SSH_COMMAND) or (configured[-1] if configured else None)
    if command is None:
        command = "" if env.read_variable(env.SSH_PROGRAM) else "ssh"
    if not _starts_ssh(command):
        return {}
    return {env.SSH_COMMAND: f"{command} {_TIMEOUTS}{'' if ask else ' -o BatchMode=yes'}"}


def _starts_ssh(command: str) -> bool:
    """actions/checkout writes the program's path in quotes."""
    with contextlib.suppress(ValueError):  # a quote is open
        words = shlex.split(command)
        return bool(words) and PurePosixPath(words[0]).name == "ssh"
    return False
