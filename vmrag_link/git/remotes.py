"""Other repositories: one ref is fetched from them and pushed to them, by git itself with the user's own credentials.

Nothing here asks at a terminal unless `ask` says that somebody sits there; what git says about a URL is shown without what precedes its @.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from vmrag_link import proc
from vmrag_link.errors import (
    AuthenticationFailed,
    Remote,
    RemoteInvalid,
    RemoteMissing,
    RemoteMoved,
    RemoteRejected,
    RemoteUnreachable,
    quoted,
)
from vmrag_link.git.run import git
from vmrag_link.git.settings import config_section
from vmrag_link.paths import Places

_CREDENTIALS = re.compile(r"(://)[^/@\s]*@")

# Of the user's configuration only what says how to get there should count: who pushes one ref pushes that ref alone, unsigned,
# and leaves housekeeping to the user's own commands. A host that has stopped sending is given up after half a minute.
_OPTIONS = (
    "gc.auto=0",
    "maintenance.auto=false",
    "push.followTags=false",
    "push.gpgSign=false",
    "push.recurseSubmodules=no",
    "fetch.recurseSubmodules=no",
    "http.lowSpeedLimit=100",
    "http.lowSpeedTime=30",
)

_MOVED = re.compile(
    r"\((?:stale info|fetch first|non-fast-forward|needs force|remote ref updated since checkout)\)"
    r"|cannot lock ref|failed to update ref|reference already exists|incorrect old value|failed to lock"
)
_REFUSED = re.compile(r"\[remote rejected\]|pre-receive hook declined|protected")
_AUTHENTICATION = re.compile(
    r"authentication failed|could not read (?:username|password)|permission denied|terminal prompts disabled"
    r"|returned error: 40[13]|access denied|not authorized|host key verification failed",
    re.IGNORECASE,
)
_ABSENT = re.compile(
    r"repository .*not found|does not appear to be a git repository|returned error: 404|no such remote"
    r"|not a git repository|project you were looking for could not be found",
    re.IGNORECASE,
)
_NO_REF = "couldn't find remote ref"
_FORBIDDEN = re.compile(
    r"transport '[^']*' not allowed|unable to find remote helper|remote-[a-z0-9+.-]+' is not a git command"
)


class Peer(NamedTuple):
    """Whom git talks to: `where` is the name of a configured remote or a URL. `schemes`: the only transports that may be used for it;
    None: those that git's own configuration allows. `ask`: a person may be asked for a password.
    """

    where: str
    schemes: tuple[str, ...] | None = None
    ask: bool = False


def names(places: Places) -> list[str]:
    """The configured remotes."""
    return git(places, "remote").text.split()


def nearest(places: Places, branch: str | None) -> list[str]:
    """The remotes that `git:` stands for on a code branch, the first to be asked first.

    `vmrag.remote` in git config, the branch's own remote, `upstream`, `origin`; where none of them exists, an only remote.
    Raises `RemoteInvalid` where `vmrag.remote` names none.
    """
    there = names(places)
    chosen = config_section(places, "vmrag").get("vmrag.remote")
    if chosen is not None and chosen not in there:
        raise RemoteInvalid(
            f"vmrag.remote in git config names {chosen[:80]!r}, and there is no such git remote.",
            hint="git config --unset vmrag.remote (or see what there is: git remote -v)",
        )
    own = config_section(places, f"branch.{branch}").get(f"branch.{branch}.remote") if branch else None
    wanted = [name for name in (chosen, own, "upstream", "origin") if name in there]
    return list(dict.fromkeys(name for name in wanted if name)) or (there if len(there) == 1 else [])


def url(places: Places, name: str, *, push: bool = False) -> str:
    """Where a configured remote is, as git understands it (`insteadOf` applied). May carry credentials: not to be shown."""
    done = git(places, "remote", "get-url", *(["--push"] if push else []), "--", name)
    if done.returncode != 0:
        raise RemoteMissing(f"There is no git remote {name[:80]!r}.", hint="git remote -v", remote=name)
    return done.text.strip()


def shown(text: str) -> str:
    """A URL, or what git said about one, without what precedes its @."""
    return _CREDENTIALS.sub(r"\1", text)


def tip(places: Places, ref: str) -> str | None:
    """The commit that a local ref is at."""
    done = git(places, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}")
    return done.text.strip() or None if done.returncode == 0 else None


def contains(places: Places, commit: str, part: str) -> bool:
    """Whether a commit has another one among its ancestors; one that is not here is not known to be."""
    return git(places, "merge-base", "--is-ancestor", "--end-of-options", part, commit).returncode == 0


def set_ref(places: Places, ref: str, commit: str | None) -> None:
    """Move a local ref, or (None) remove it."""
    arguments = ("update-ref", ref, commit) if commit else ("update-ref", "-d", ref)
    done = git(places, *arguments)
    if done.returncode != 0:
        raise RemoteUnreachable(f"git cannot move {ref}: {done.complaint}", hint="git fsck")


def fetch(places: Places, peer: Peer, ref: str, into: str) -> str | None:
    """Fetch `ref` of the other side as the local ref `into`, with all its objects; None: the other side has no such ref.

    Then `into` stays as it was. Raises `RemoteUnreachable`, `RemoteMissing`, `AuthenticationFailed`.
    """
    # A partial clone would otherwise leave the contents behind, and fetch them one by one when they are read.
    options = ("--quiet", "--no-tags", "--no-write-fetch-head", "--no-filter", "--no-prune", "--no-auto-maintenance")
    done = _asked(places, peer, "fetch", *options, "--", peer.where, f"+{ref}:{into}")
    if done.returncode == 0:
        return tip(places, into)
    if _NO_REF in done.complaint:
        return None
    raise _failed(peer, done)


def advertised(places: Places, peer: Peer, ref: str) -> str | None:
    """The commit that `ref` is at on the other side, without fetching anything. Raises as `fetch`."""
    done = _asked(places, peer, "ls-remote", "--quiet", "--", peer.where, ref)
    if done.returncode != 0:
        raise _failed(peer, done)
    found = [line.split("\t") for line in done.text.splitlines()]
    return next((commit for commit, name in found if name == ref), None)


def push(places: Places, peer: Peer, commit: str, ref: str, *, expected: str | None) -> None:
    """Let `ref` of the other side be the commit, if it still is `expected` (None: not there).

    Raises `RemoteMoved` where it is not, `RemoteRejected`, and as `fetch`.
    """
    # The user's own pre-push hook is for code, and ours would call this again.
    lease = f"--force-with-lease={ref}:{expected or ''}"
    done = _asked(places, peer, "push", "--porcelain", "--no-verify", lease, "--", peer.where, f"{commit}:{ref}")
    if done.returncode == 0:
        return
    said = f"{done.text}\n{done.complaint}"
    if _MOVED.search(said):
        raise RemoteMoved(
            f"Somebody else pushed knowledge to {shown(peer.where)} meanwhile; nothing was pushed.", hint="vmrag push"
        )
    if _REFUSED.search(said):
        raise RemoteRejected(
            f"{shown(peer.where)} does not take knowledge: {_essence(said)}",
            hint=f"Ask who runs it to allow pushes to {ref}.",
            said=shown(said),
        )
    raise _failed(peer, done)


def _asked(places: Places, peer: Peer, *arguments: str) -> proc.Finished:
    if peer.where.startswith("-") or "::" in peer.where.partition("://")[0]:
        raise RemoteInvalid(f"{shown(peer.where)[:80]!r} is no remote.", hint="git remote -v")
    options = [*_OPTIONS]
    if peer.schemes is not None:
        options += ["protocol.allow=never", *(f"protocol.{each}.allow=always" for each in peer.schemes)]
    settings = [word for option in options for word in ("-c", option)]
    return git(places, *settings, *arguments, extra=None if peer.ask else {"GIT_TERMINAL_PROMPT": "0"})


def _failed(peer: Peer, done: proc.Finished) -> Remote:
    said = shown(done.complaint)
    where, details = shown(peer.where), {"said": said, "remote": shown(peer.where)}
    if _FORBIDDEN.search(said):
        return RemoteInvalid(
            f"git may not use that transport for {where}: {_essence(said)}", hint="git remote -v", **details
        )
    if _AUTHENTICATION.search(said):
        hint = f"See that git itself gets in: git ls-remote {quoted(where)}"
        return AuthenticationFailed(f"{where} did not let us in: {_essence(said)}", hint=hint, **details)
    if _ABSENT.search(said):
        return RemoteMissing(f"There is no git repository at {where}.", hint="git remote -v", **details)
    return RemoteUnreachable(
        f"{where} cannot be reached: {_essence(said)}", hint=f"git ls-remote {quoted(where)}", **details
    )


def _essence(said: str) -> str:
    """The line that says what is wrong."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    telling = [line for line in lines if re.match(r"(?:fatal|error|remote|ssh|!)", line)]
    return (telling or lines or ["no reason was given"])[0]
