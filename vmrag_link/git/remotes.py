"""The configured git remotes: their URLs, and the remotes that the value `git:` of the setting
`remote` means.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from vmrag_link import terminal_text
from vmrag_link.errors import RemoteInvalid, RemoteMissing
from vmrag_link.git import configuration
from vmrag_link.git.configuration import Entry, read_section
from vmrag_link.git.run import check_git, run_git
from vmrag_link.models import Record
from vmrag_link.paths import Places
from vmrag_link.pin_values import DATA_REF

_LISTED = r"(?P<url>.+) \((?P<way>fetch|push)\)(?: \[.*\])?"
"""A URL as `git remote --verbose` lists it. A partial clone's filter follows in brackets."""

_HEADER = r"(?i)(\bauthorization:).*"

# A name and a password, in which / and @ may not be encoded.
_CREDENTIALS = r"(://)(?:[^/\s]*@|[^/\s:@\[]*:(?!\d+(?:/|$))\S*@)"


class Peer(NamedTuple):
    """The other side of a fetch or push, and how git may contact it."""

    remote: str
    """The name of a configured remote, or a URL."""
    schemes: tuple[str, ...] | None = None
    """The only transports that may be used, within git's own configuration. None: no further
    restriction.
    """
    may_ask: bool = False
    """True if git may ask the user for a password."""
    ref: str = DATA_REF
    """The ref that contains the knowledge base."""


class _Urls(Record, frozen=True):
    """A remote's URLs, with `insteadOf` applied."""

    fetch: list[str]
    """Empty for a remote without a URL."""
    push: list[str]


def list_remotes(places: Places) -> list[str]:
    """Return the names of the configured remotes."""
    return [*configuration.get_cached(places, _read_remotes)]


def find_name(places: Places, text: str) -> str | None:
    """Return the configured remote that has this name, or this URL in the configuration, or
    None.
    """
    remotes = configuration.get_cached(places, _read_remotes)
    if text in remotes:
        return text
    return next((name for name, urls in remotes.items() if text in (*urls.fetch, *urls.push)), None)


def _read_remotes(places: Places) -> dict[str, _Urls]:
    """Return the configured remotes by name, in git's order."""
    entries = configuration.list_entries(places)
    if any(_needs_git(entry) for entry in entries):
        return _list_remotes(places)
    urls: dict[str, list[str]] = {}
    push_urls: dict[str, list[str]] = {}
    for key, value in entries:
        section, _, rest = key.partition(".")
        name, dot, setting = rest.rpartition(".")
        if section == "remote" and dot:
            urls.setdefault(name, [])
            if setting == "url":
                urls[name].append(value)
            elif setting == "pushurl":
                push_urls.setdefault(name, []).append(value)
    return {name: _Urls(urls[name][:1], push_urls.get(name, urls[name])) for name in sorted(urls)}


def _needs_git(entry: Entry) -> bool:
    """Return whether only git can evaluate this setting: it rewrites URLs (`insteadOf`), removes
    earlier values (an empty value), or belongs to a remote that git ignores.
    """
    section, _, rest = entry.key.partition(".")
    return section == "url" or (section == "remote" and (rest.startswith("/") or not entry.value))


def _list_remotes(places: Places) -> dict[str, _Urls]:
    remotes: dict[str, _Urls] = {}
    for line in filter(None, check_git(places, "remote", "--verbose").text.split("\n")):
        name, _, rest = line.partition("\t")
        urls = remotes.setdefault(name, _Urls([], []))
        if listed := re.fullmatch(_LISTED, rest):
            (urls.fetch if listed["way"] == "fetch" else urls.push).append(listed["url"])
    return remotes


def list_for_reading(places: Places, branch: str | None) -> list[str]:
    """Return the remotes that `git:` names for reading on a code branch, the preferred one first.

    These are `vmrag.remote` in git config, the branch's own remote, `upstream` and `origin`. If
    none of them exists, a single remote is used. Raises `RemoteInvalid` if `vmrag.remote` is not a
    remote.
    """
    branch_remote = _read_branch_setting(places, branch, "remote")
    return _select_existing(places, _read_preferred(places), branch_remote, "upstream", "origin")


def list_for_writing(places: Places, branch: str | None) -> list[str]:
    """Return the remotes that `git:` names for writing, in the order of `git push`. `upstream` is
    used only if configured.
    """
    push_remote = _read_branch_setting(places, branch, "pushremote")
    default = read_section(places, "remote").get("remote.pushdefault")
    branch_remote = _read_branch_setting(places, branch, "remote")
    return _select_existing(places, _read_preferred(places), push_remote, default, branch_remote, "origin")


def _select_existing(places: Places, *candidates: str | None) -> list[str]:
    existing = list_remotes(places)
    selected = [name for name in dict.fromkeys(candidates) if name and name in existing]
    return selected or (existing if len(existing) == 1 else [])


def _read_preferred(places: Places) -> str | None:
    chosen = read_section(places, "vmrag").get("vmrag.remote")
    if chosen is not None and chosen not in list_remotes(places):
        raise RemoteInvalid(
            f"vmrag.remote in git config names {chosen[:80]!r}, which is not a git remote.",
            hint="run 'git config --unset vmrag.remote', or 'git remote -v' to list remotes",
        )
    return chosen


def _read_branch_setting(places: Places, branch: str | None, key: str) -> str | None:
    section = f"branch.{branch}"
    return read_section(places, section).get(f"{section}.{key}") if branch else None


def read_url(places: Places, name: str) -> str:
    """Return the URL from which a configured remote is fetched, with `insteadOf` applied.

    It may contain credentials, so it must not be shown. Raises `RemoteMissing`.
    """
    return _read_urls(places, name).fetch[0]


def read_push_urls(places: Places, name: str) -> list[str]:
    """Return all URLs to which `git push NAME` pushes. They may contain credentials. Raises
    `RemoteMissing`.
    """
    return _read_urls(places, name).push


def _read_urls(places: Places, name: str) -> _Urls:
    urls = configuration.get_cached(places, _read_remotes).get(name)
    if not urls or not urls.fetch:
        raise RemoteMissing(
            f"unknown git remote {name[:80]!r}.", hint="run 'git remote -v' to list the remotes", remote=name
        )
    return urls


def is_mirror(places: Places, name: str) -> bool:
    """Return whether `git push NAME` makes the other side's refs equal to ours, including
    deletions.
    """
    section = f"remote.{name}"
    return read_section(places, section).get(f"{section}.mirror", "false") != "false"


def read_default_branch(places: Places, name: str) -> str | None:
    """Return the tracking ref of a remote's default branch, which git recorded when it cloned, or
    None.

    Only a symbolic ref is accepted: everyone with push access can create a branch `HEAD`, which is
    fetched under the same name.
    """
    head = f"refs/remotes/{name}/HEAD"
    target = run_git(places, "symbolic-ref", "--quiet", head).text.strip()
    return target if target.startswith(head.removesuffix("HEAD")) else None


def is_in_any_commit(places: Places, name: str) -> bool:
    """Return whether a file is in the history of any ref, of HEAD, or of the last fetch.

    Remote branches are not enough: a bare clone has none, and `git pull URL` and `git fetch origin
    pull/5/head:mine` create none.
    """
    options = ("-1", "--full-history", "--ignore-missing", "--all")
    return bool(check_git(places, "rev-list", *options, "FETCH_HEAD", "--", name).text.strip())


def list_tracked_commits(places: Places, name: str) -> list[str]:
    """Return the commits of a configured remote's branches at the last fetch."""
    return check_git(places, "for-each-ref", "--format=%(objectname)", f"refs/remotes/{name}/").text.split()


def redact_url(text: str) -> str:
    """Return a text with URLs, without credentials and terminal control sequences."""
    return redact_text(terminal_text.escape_controls(text))


def redact_text(text: str) -> str:
    """Return a text without the part before the @ of its URLs, and without `Authorization` headers,
    which git prints in traces.
    """
    return re.sub(_HEADER, r"\1 …", re.sub(_CREDENTIALS, r"\1", text))
