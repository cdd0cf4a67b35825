"""The configured git remotes, which of them `git:` names, and URLs without credentials."""

from __future__ import annotations

import re
from typing import NamedTuple

from vmrag_link import terminal_text
from vmrag_link.errors import RemoteInvalid, RemoteMissing
from vmrag_link.git import configuration
from vmrag_link.git.run import demand, git
from vmrag_link.git.settings import config_section
from vmrag_link.paths import Places

_LISTED = r"(?P<url>.+) \((?P<way>fetch|push)\)(?: \[.*\])?"
"""What `git remote --verbose` says of a URL; in brackets what a partial clone leaves out."""

_HEADER = re.compile(r"(\bauthorization:).*", re.IGNORECASE)

# A name and a password, whose / and @ may not be encoded as they should be.
_CREDENTIALS = re.compile(r"(://)(?:[^/\s]*@|[^/\s:@\[]*:(?!\d+(?:/|$))\S*@)")


class _Urls(NamedTuple):
    """With `insteadOf` applied. `fetch`: none for a remote of which only something else is set."""

    fetch: list[str]
    push: list[str]


def _all(places: Places) -> dict[str, _Urls]:
    found: dict[str, _Urls] = {}
    for line in filter(None, demand(places, "remote", "--verbose").text.split("\n")):
        name, _, rest = line.partition("\t")
        urls = found.setdefault(name, _Urls([], []))
        if told := re.fullmatch(_LISTED, rest):
            (urls.fetch if told["way"] == "fetch" else urls.push).append(told["url"])
    return found


def names(places: Places) -> list[str]:
    """The configured remotes."""
    return [*configuration.derived(places, _all)]


def find_name(places: Places, text: str) -> str | None:
    """The configured remote that has this name, or this URL in the configuration."""
    there = configuration.derived(places, _all)
    if text in there:
        return text
    return next((name for name, urls in there.items() if text in (*urls.fetch, *urls.push)), None)


def nearest(places: Places, branch: str | None) -> list[str]:
    """The remotes that `git:` names on a code branch for reading, the preferred one first.

    These are `vmrag.remote` in git config, the branch's own remote, `upstream` and `origin`, or an
    only remote if none of them exists. Raises `RemoteInvalid` where `vmrag.remote` names no remote.
    """
    return _there(places, _preferred(places), *_branch_setting(places, branch, "remote"), "upstream", "origin")


def for_writing(places: Places, branch: str | None) -> list[str]:
    """As `nearest`, for writing: as `git push` chooses, `upstream` only if configured."""
    default = config_section(places, "remote").get("remote.pushdefault")
    own = _branch_setting(places, branch, "pushremote")
    return _there(places, _preferred(places), *own, default, *_branch_setting(places, branch, "remote"), "origin")


def _there(places: Places, *wanted: str | None) -> list[str]:
    there = names(places)
    found = [name for name in dict.fromkeys(wanted) if name in there and name]
    return found or (there if len(there) == 1 else [])


def _preferred(places: Places) -> str | None:
    chosen = config_section(places, "vmrag").get("vmrag.remote")
    if chosen is not None and chosen not in names(places):
        raise RemoteInvalid(
            f"vmrag.remote in git config names {chosen[:80]!r}, and there is no such git remote.",
            hint="git config --unset vmrag.remote (or see what there is: git remote -v)",
        )
    return chosen


def _branch_setting(places: Places, branch: str | None, key: str) -> list[str]:
    section = f"branch.{branch}"
    found = config_section(places, section).get(f"{section}.{key}") if branch else None
    return [found] if found else []


def url(places: Places, name: str) -> str:
    """The URL from which a configured remote is fetched, with `insteadOf` applied.

    It may carry credentials: not to be shown.
    """
    return _urls(places, name).fetch[0]


def push_urls(places: Places, name: str) -> list[str]:
    """All places that `git push NAME` goes to, as `url`."""
    return _urls(places, name).push


def _urls(places: Places, name: str) -> _Urls:
    found = configuration.derived(places, _all).get(name)
    if not found or not found.fetch:
        raise RemoteMissing(f"There is no git remote {name[:80]!r}.", hint="git remote -v", remote=name)
    return found


def is_mirror(places: Places, name: str) -> bool:
    """Whether `git push NAME` makes the other side's refs equal to ours, deletions included."""
    section = f"remote.{name}"
    return config_section(places, section).get(f"{section}.mirror", "false") != "false"


def default_branch(places: Places, name: str) -> str | None:
    """The tracking ref of a remote's default branch, as git noted it when it cloned.

    Only a symbolic ref counts: every pusher can make a branch `HEAD`, which is fetched under the
    same name.
    """
    head = f"refs/remotes/{name}/HEAD"
    target = git(places, "symbolic-ref", "--quiet", head).text.strip()
    return target if target.startswith(head.removesuffix("HEAD")) else None


def is_in_any_commit(places: Places, name: str) -> bool:
    """Whether a file is in the history of any ref, of HEAD, or of what was fetched last.

    Remotes' branches are not enough: a bare clone has none, and `git pull URL` and
    `git fetch origin pull/5/head:mine` make none.
    """
    options = ("-1", "--full-history", "--ignore-missing", "--all")
    return bool(demand(places, "rev-list", *options, "FETCH_HEAD", "--", name).text.strip())


def tracked(places: Places, name: str) -> list[str]:
    """Where the branches of a configured remote were when they were last fetched: commits."""
    return demand(places, "for-each-ref", "--format=%(objectname)", f"refs/remotes/{name}/").text.split()


def shown(text: str) -> str:
    """A text with URLs, without credentials and terminal control sequences."""
    return masked(terminal_text.visible(text))


def masked(text: str) -> str:
    """Any text, without what precedes the @ of the URLs in it, and without `Authorization` headers,
    which git prints where it is told to trace.
    """
    return _HEADER.sub(r"\1 …", _CREDENTIALS.sub(r"\1", text))
