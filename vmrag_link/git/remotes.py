"""The configured git remotes: which of them `git:` names, their URLs without credentials, and the
errors for what git says about them.

git has no codes for these errors, so its words are read.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from vmrag_link import env, proc, terminal_text
from vmrag_link.errors import (
    AuthenticationFailed,
    RemoteDamaged,
    RemoteError,
    RemoteInvalid,
    RemoteMissing,
    RemoteMoved,
    RemoteRejected,
    RemoteUnreachable,
    quoted,
)
from vmrag_link.git import configuration
from vmrag_link.git.configuration import Entry, read_section
from vmrag_link.git.run import check_git, run_git
from vmrag_link.models import Record
from vmrag_link.paths import Places
from vmrag_link.pin_values import DATA_REF

_LISTED = r"(?P<url>.+) \((?P<way>fetch|push)\)(?: \[.*\])?"
"""What `git remote --verbose` says of a URL; in brackets what a partial clone leaves out."""

_HEADER = r"(?i)(\bauthorization:).*"

# A name and a password, whose / and @ may not be encoded as they should be.
_CREDENTIALS = r"(://)(?:[^/\s]*@|[^/\s:@\[]*:(?!\d+(?:/|$))\S*@)"


class Peer(NamedTuple):
    """The other side of git: `where` is the name of a configured remote or a URL.

    `schemes`: the only transports that may be used for it, within git's own configuration; None for
    all that it allows. `ask`: a person may be asked for a password. `ref`: where it holds a
    knowledge base.
    """

    remote: str
    schemes: tuple[str, ...] | None = None
    may_ask: bool = False
    ref: str = DATA_REF


class _Urls(Record, frozen=True):
    """A remote's URLs, with `insteadOf` applied. `fetch`: none for a remote of which only something
    else is set.
    """

    fetch: list[str]
    push: list[str]


def _read_remotes(places: Places) -> dict[str, _Urls]:
    """Return the configured remotes by name, in git's order."""
    entries = configuration.list_entries(places)
    if any(_needs_git(entry) for entry in entries):
        return _list_remotes(places)
    remotes: dict[str, _Urls] = {}
    pushed: dict[str, list[str]] = {}
    for key, value in entries:
        section, _, rest = key.partition(".")
        name, dot, setting = rest.rpartition(".")
        if section == "remote" and dot:
            urls = remotes.setdefault(name, _Urls([], []))
            if setting == "url":
                urls.fetch.append(value)
            elif setting == "pushurl":
                pushed.setdefault(name, []).append(value)
    return {name: _Urls(urls.fetch[:1], pushed.get(name, urls.fetch)) for name, urls in sorted(remotes.items())}


def _needs_git(entry: Entry) -> bool:
    """Return True if only git knows the result of this setting: it rewrites URLs (`insteadOf`),
    removes those before it (an empty value), or belongs to a remote that git ignores.
    """
    section, _, rest = entry.key.partition(".")
    return section == "url" or (section == "remote" and (rest.startswith("/") or not entry.value))


def _list_remotes(places: Places) -> dict[str, _Urls]:
    found: dict[str, _Urls] = {}
    for line in filter(None, check_git(places, "remote", "--verbose").text.split("\n")):
        name, _, rest = line.partition("\t")
        urls = found.setdefault(name, _Urls([], []))
        if told := re.fullmatch(_LISTED, rest):
            (urls.fetch if told["way"] == "fetch" else urls.push).append(told["url"])
    return found


def list_remotes(places: Places) -> list[str]:
    """The configured remotes."""
    return [*configuration.get_cached(places, _read_remotes)]


def find_name(places: Places, text: str) -> str | None:
    """The configured remote that has this name, or this URL in the configuration."""
    there = configuration.get_cached(places, _read_remotes)
    if text in there:
        return text
    return next((name for name, urls in there.items() if text in (*urls.fetch, *urls.push)), None)


def list_for_reading(places: Places, branch: str | None) -> list[str]:
    """The remotes that `git:` names on a code branch for reading, the preferred one first.

    These are `vmrag.remote` in git config, the branch's own remote, `upstream` and `origin`, or an
    only remote if none of them exists. Raises `RemoteInvalid` where `vmrag.remote` names no remote.
    """
    return _there(places, _preferred(places), *_branch_setting(places, branch, "remote"), "upstream", "origin")


def list_for_writing(places: Places, branch: str | None) -> list[str]:
    """As `nearest`, for writing: as `git push` chooses, `upstream` only if configured."""
    default = read_section(places, "remote").get("remote.pushdefault")
    own = _branch_setting(places, branch, "pushremote")
    return _there(places, _preferred(places), *own, default, *_branch_setting(places, branch, "remote"), "origin")


def _there(places: Places, *wanted: str | None) -> list[str]:
    there = list_remotes(places)
    found = [name for name in dict.fromkeys(wanted) if name in there and name]
    return found or (there if len(there) == 1 else [])


def _preferred(places: Places) -> str | None:
    chosen = read_section(places, "vmrag").get("vmrag.remote")
    if chosen is not None and chosen not in list_remotes(places):
        raise RemoteInvalid(
            f"vmrag.remote in git config names {chosen[:80]!r}, and there is no such git remote.",
            hint="git config --unset vmrag.remote (or see what there is: git remote -v)",
        )
    return chosen


def _branch_setting(places: Places, branch: str | None, key: str) -> list[str]:
    section = f"branch.{branch}"
    found = read_section(places, section).get(f"{section}.{key}") if branch else None
    return [found] if found else []


def read_url(places: Places, name: str) -> str:
    """The URL from which a configured remote is fetched, with `insteadOf` applied.

    It may carry credentials: not to be shown.
    """
    return _urls(places, name).fetch[0]


def read_push_urls(places: Places, name: str) -> list[str]:
    """All places that `git push NAME` goes to, as `url`."""
    return _urls(places, name).push


def _urls(places: Places, name: str) -> _Urls:
    found = configuration.get_cached(places, _read_remotes).get(name)
    if not found or not found.fetch:
        raise RemoteMissing(f"There is no git remote {name[:80]!r}.", hint="git remote -v", remote=name)
    return found


def is_mirror(places: Places, name: str) -> bool:
    """Whether `git push NAME` makes the other side's refs equal to ours, deletions included."""
    section = f"remote.{name}"
    return read_section(places, section).get(f"{section}.mirror", "false") != "false"


def read_default_branch(places: Places, name: str) -> str | None:
    """The tracking ref of a remote's default branch, as git noted it when it cloned.

    Only a symbolic ref counts: every pusher can make a branch `HEAD`, which is fetched under the
    same name.
    """
    head = f"refs/remotes/{name}/HEAD"
    target = run_git(places, "symbolic-ref", "--quiet", head).text.strip()
    return target if target.startswith(head.removesuffix("HEAD")) else None


def is_in_any_commit(places: Places, name: str) -> bool:
    """Whether a file is in the history of any ref, of HEAD, or of what was fetched last.

    Remotes' branches are not enough: a bare clone has none, and `git pull URL` and
    `git fetch origin pull/5/head:mine` make none.
    """
    options = ("-1", "--full-history", "--ignore-missing", "--all")
    return bool(check_git(places, "rev-list", *options, "FETCH_HEAD", "--", name).text.strip())


def list_tracked_commits(places: Places, name: str) -> list[str]:
    """Where the branches of a configured remote were when they were last fetched: commits."""
    return check_git(places, "for-each-ref", "--format=%(objectname)", f"refs/remotes/{name}/").text.split()


def redact_url(text: str) -> str:
    """A text with URLs, without credentials and terminal control sequences."""
    return redact_text(terminal_text.escape_controls(text))


def redact_text(text: str) -> str:
    """Any text, without what precedes the @ of the URLs in it, and without `Authorization` headers,
    which git prints where it is told to trace.
    """
    return re.sub(_HEADER, r"\1 …", re.sub(_CREDENTIALS, r"\1", text))


_MOST_SAID = 300

_VERDICT = r"(?m)^!\t[^\t]*\t(\[(?:remote )?rejected\].*)$"
"""What `push --porcelain` says of a ref that was not pushed."""

_MOVED = (
    r"\((?:stale info|fetch first|non-fast-forward|needs force|remote ref updated since checkout)\)"
    r"|cannot lock ref|failed to update ref|reference already exists|incorrect old value|failed to lock"
)
_NOT_WRITABLE = r"Unable to create '[^']*': (?!File exists)"
_AUTHENTICATION = (
    r"(?i)authentication failed|could not read (?:username|password)|permission denied|terminal prompts disabled"
    r"|returned error: 40[13]|access denied|not authorized|host key verification failed"
)
_ABSENT = (
    r"(?i)repository .*not found|does not appear to be a git repository|returned error: 404|no such remote"
    r"|not a git repository|invalid gitfile format|project you were looking for could not be found"
)
_DAMAGED = (
    r"repository corruption on the remote side|did not send all necessary objects|did not receive expected object"
    r"|fsck error|unresolved deltas"
)
_FORBIDDEN = r"transport '[^']*' not allowed|unable to find remote helper|remote-[a-z0-9+.-]+' is not a git command"
_BY_KEY = r"(?i)publickey|host key verification failed"

_KEY_ON_A_RUNNER = (
    "Give actions/checkout a key that may read this repository: ssh-key, and ssh-known-hosts of its server"
)

_OR_A_BRANCH = ", or let it travel on a branch: remote: git:refs/heads/vmrag/data in .vmrag.yaml, then vmrag pin"

_ON_A_RUNNER = (
    "Let actions/checkout keep its token (persist-credentials: true), or give the step's input `token` one that may read "
    "this repository (permissions: contents: read; write to push)"
)


def build_error(url: str, done: proc.FinishedProcess) -> RemoteError:
    """The error for a failed git command that talked to the remote."""
    said = redact_url(done.error_text)
    where, details, runner = redact_url(url), {"said": said, "remote": redact_url(url)}, env.in_github_actions()
    if re.search(_FORBIDDEN, said):
        return RemoteInvalid(
            f"git may not use that transport for {where}: {_essence(said)}", hint="git remote -v", **details
        )
    if re.search(_AUTHENTICATION, said):
        hint = f"See that git itself gets in: git ls-remote {quoted(where)}"
        if runner:
            hint = _KEY_ON_A_RUNNER if re.search(_BY_KEY, said) else _ON_A_RUNNER
        return AuthenticationFailed(f"{where} did not let us in: {_essence(said)}", hint=hint, **details)
    if re.search(_ABSENT, said):
        hint = f"git remote -v; or it is private. {_ON_A_RUNNER}" if runner else "git remote -v"
        return RemoteMissing(f"There is no git repository at {where}.", hint=hint, **details)
    if re.search(_DAMAGED, said):
        return RemoteDamaged(
            f"The knowledge base at {where} is damaged: {_essence(said)}. Nothing of it was taken.",
            hint="Somebody with a sound clone can put theirs there: vmrag gc --remote --apply",
            **details,
        )
    return RemoteUnreachable(
        f"{where} cannot be reached: {_essence(said)}", hint=f"git ls-remote {quoted(where)}", **details
    )


def build_push_error(url: str, ref: str, done: proc.FinishedProcess, content: str) -> RemoteError:
    """The error for a failed `git push --porcelain` of one ref.

    `content`: what is pushed.
    `RemoteMoved` has git's words in its detail `told`. Something in the way may look the same.
    """
    verdict = re.search(_VERDICT, done.text)
    if verdict is None:
        return build_error(url, done)
    where, said = redact_url(url), redact_url(done.error_text)
    if re.search(_MOVED, verdict[1]) and not re.search(_NOT_WRITABLE, said):
        return RemoteMoved(
            f"Somebody else pushed {content} to {where} meanwhile; nothing was pushed.",
            hint="vmrag push",
            said=redact_url(verdict[1]),
            told=said,
        )
    told = " ".join(line.partition(":")[2].strip() for line in said.splitlines() if line.startswith("remote:"))
    return RemoteRejected(
        f"{where} does not take {content}: {redact_url(verdict[1])} {told}".rstrip()[:_MOST_SAID],
        hint=f"Ask who runs it to allow pushes to {ref}{_OR_A_BRANCH if ref == DATA_REF else ''}.",
        said=said,
        remote=where,
    )


def build_stuck_error(url: str, ref: str, said: str) -> RemoteRejected:
    """The error for a ref that cannot be changed although nobody else changes it."""
    where = redact_url(url)
    return RemoteRejected(
        f"{where} cannot change {ref}, though nobody else does: {_essence(said)}"[:_MOST_SAID],
        hint=f"Ask who runs it to remove what is in the way of {ref}: a lock that a killed git has left, or a ref of a part of that name.",
        said=said,
        remote=where,
    )


def _essence(said: str) -> str:
    """The line that says what is wrong."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    telling = [line for line in lines if re.match(r"(?:fatal|error|remote|ssh|!)", line)]
    return (telling or lines or ["no reason was given"])[0][:_MOST_SAID]
