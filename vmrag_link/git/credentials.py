"""Credentials for remotes: what the code's repository is configured with, for git processes in
vmrag's repositories next to it.

Those include the file `config` of the code's repository, but see neither a work tree's own file nor
conditional includes. Since version 6 actions/checkout keeps its token in such an include, for the
code's git directory alone. vmrag passes these settings to git in the environment, so none of its
files and no command line ever contains a secret.
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

_CREDENTIAL_KEYS = r"(http|credential|url|ssh|includeif)\.|core\.(sshcommand|askpass)$"
_HEADER, _HELPER, _SSH = ".extraheader", ".helper", "core.sshcommand"

_HELPER_SECONDS = 10.0

SILENT_SECONDS = 30
"""Seconds of silence that a host is allowed during unattended commands."""

_TIMEOUTS = f"-o ConnectTimeout={SILENT_SECONDS} -o ServerAliveInterval=10 -o ServerAliveCountMax=3"


def read_credentials(places: Places) -> list[Setting]:
    """Return the settings with which git in the code's repository authenticates, in git's order."""
    return [
        setting
        for setting in configuration.list_settings(places.code_places or places)
        if re.match(_CREDENTIAL_KEYS, setting.key)
    ]


def build_environment(places: Places, settings: Sequence[Setting], *, may_ask: bool) -> dict[str, str]:
    """Return the variables that let git in `places` authenticate like git in the code's repository.

    `may_ask`: whether git may ask the user at the terminal.
    """
    missing = _list_unseen(places.code_places, settings) if places.code_places else []
    return env.git_settings(below=missing) | _build_ssh_command(settings, may_ask=may_ask)


# -- settings that a repository next to the code's does not see


def _list_unseen(code: Places, settings: Sequence[Setting]) -> list[tuple[str, str]]:
    """Return the settings that give git the values of the code's repository, in the same order.

    All values of a key are repeated, because the other repository may see some of them. A list is
    emptied first, because servers reject two `Authorization` headers.
    """
    conditional = {setting.scope for setting in settings if setting.key.startswith("includeif.")}
    keys = {setting.key for setting in settings if _may_be_unseen(setting, code.common, conditional)}
    inheritable = [setting for setting in settings if setting.scope != "command"]  # inherited as it is
    plain = [setting for setting in inheritable if setting.key in keys and not setting.key.endswith((_HEADER, _HELPER))]
    missing = [(setting.key, setting.value) for setting in plain]
    if any(key.endswith(_HELPER) for key in keys):
        missing += _list_helpers(inheritable)
    if any(key.endswith(_HEADER) for key in keys):
        missing += _list_headers(inheritable)
    return missing


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


def _list_helpers(settings: Sequence[Setting]) -> Iterator[tuple[str, str]]:
    """Yield the credential helpers. git asks every helper that fits a URL, in turn. An empty helper
    cancels all earlier ones.
    """
    yield "credential.helper", ""
    for setting in settings:
        if setting.key.startswith("credential.") and setting.key.endswith(_HELPER):
            yield setting.key, setting.value


def _list_headers(settings: Sequence[Setting]) -> Iterator[tuple[str, str]]:
    """Yield the HTTP headers of each URL under its own key, together with those of its parents.

    git sends every header for a URL, except those that are less specific than an earlier one. An
    empty header cancels all earlier ones.
    """
    headers = [setting for setting in settings if setting.key.endswith(_HEADER)]
    for key, url in dict.fromkeys((header.key, header.url) for header in headers):
        yield key, ""
        longest = 0
        for header in headers:
            if _is_below(url, header.url) and len(header.url) >= longest:
                longest = len(header.url)
                yield key, header.value


def _is_below(url: str, parent: str) -> bool:
    return not parent or url == parent or url.startswith(parent.rstrip("/") + "/")


# -- whether credentials exist


def has_credentials(places: Places, server: str) -> bool:
    """Return whether git in this repository can authenticate at the server without asking the user.

    It can if an `Authorization` header applies to any part of the server, if the URL of a remote
    contains a user, or if a credential helper answers.
    """
    settings = read_credentials(places)
    headers = [setting for setting in settings if setting.key.endswith(_HEADER)]
    authorized = [header.url for header in headers if header.value.lower().startswith("authorization:")]
    if any(_is_below(url, server) or _is_below(server, url) for url in authorized):
        return True
    urls = [
        url
        for name in remotes.list_remotes(places)
        for url in (remotes.read_url(places, name), *remotes.read_push_urls(places, name))
    ]
    host = urlsplit(server).hostname
    if any(_find_user_host(url) == host for url in urls):
        return True
    if not any(setting.key.startswith("credential.") and setting.key.endswith(_HELPER) for setting in settings):
        return False
    url = next((remote_url for remote_url in urls if _is_below(remote_url, server)), server)
    return _helper_answers(places, url)


def _find_user_host(url: str) -> str | None:
    """Return the host for which a URL names a user. None if it names none or is not a URL."""
    with contextlib.suppress(ValueError):
        parts = urlsplit(url)
        return parts.hostname if parts.username else None
    return None


def _helper_answers(places: Places, url: str) -> bool:
    silent = env.SILENCED | {"GIT_TERMINAL_PROMPT": "0"}
    try:
        finished = run_git(
            places, "credential", "fill", stdin=f"url={url}\n\n".encode(), extra=silent, timeout=_HELPER_SECONDS
        )
    except TimeoutError:
        return False
    return finished.returncode == 0


# -- ssh


def _build_ssh_command(settings: Sequence[Setting], *, may_ask: bool) -> dict[str, str]:
    """Return variables that keep ssh from waiting forever and from asking at the terminal.

    If another program is configured instead of ssh, it is left alone.
    """
    configured = [setting.value for setting in settings if setting.key == _SSH]
    command = env.read_variable(env.SSH_COMMAND) or (configured[-1] if configured else None)
    if command is None:
        command = "" if env.read_variable(env.SSH_PROGRAM) else "ssh"
    if not _starts_ssh(command):
        return {}
    return {env.SSH_COMMAND: f"{command} {_TIMEOUTS}{'' if may_ask else ' -o BatchMode=yes'}"}


def _starts_ssh(command: str) -> bool:
    """Return whether a command starts ssh. actions/checkout writes the program's path in quotes."""
    with contextlib.suppress(ValueError):  # a quote is open
        words = shlex.split(command)
        return bool(words) and PurePosixPath(words[0]).name == "ssh"
    return False
