"""Other repositories: one ref is fetched from them and pushed to them, by git itself with the user's own credentials.

Nothing here asks at a terminal unless `ask` says that somebody sits there; what git says about a URL is shown without what precedes its @.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Sequence
from typing import NamedTuple

from vmrag_link import env, proc
from vmrag_link.errors import (
    AuthenticationFailed,
    Remote,
    RemoteDamaged,
    RemoteInvalid,
    RemoteMissing,
    RemoteMoved,
    RemoteRejected,
    RemoteUnreachable,
    quoted,
)
from vmrag_link.git.run import demand, git
from vmrag_link.git.settings import config_section, config_values
from vmrag_link.paths import Places

_LOCK_SECONDS = 1.0
"""How long git may hold a ref: it writes a line."""

# A name and a password, whose / and @ may not be encoded as they should be.
_CREDENTIALS = re.compile(r"(://)(?:[^/\s]*@|[^/\s:@\[]*:(?!\d+(?:/|$))\S*@)")

# Of the user's configuration only what says how to get there should count: who pushes one ref pushes that ref alone, unsigned,
# and leaves housekeeping to the user's own commands.
_OPTIONS = (
    "gc.auto=0",
    "maintenance.auto=false",
    "push.followTags=false",
    "push.gpgSign=false",
    "push.pushOption=",
    "push.recurseSubmodules=no",
    "fetch.recurseSubmodules=no",
    "color.remote=false",
    "color.transport=false",
    "color.push=false",
)

_SILENT_SECONDS, _PATIENT_SECONDS = 30, 300
"""How long a host may say nothing: while nobody watches, and while a person does, for a server may think long over a large push."""

_SSH_OPTIONS = f"-o ConnectTimeout={_SILENT_SECONDS} -o ServerAliveInterval=10 -o ServerAliveCountMax=3"
_MOST_SAID = 300

_TRANSPORTS = ("ext", "fd", "file", "ftp", "ftps", "git", "http", "https", "ssh")
"""All that git comes with."""

_VERDICT = re.compile(r"^!\t[^\t]*\t(\[(?:remote )?rejected\].*)$", re.MULTILINE)
"""What `push --porcelain` says of a ref that was not pushed."""

_MOVED = re.compile(
    r"\((?:stale info|fetch first|non-fast-forward|needs force|remote ref updated since checkout)\)"
    r"|cannot lock ref|failed to update ref|reference already exists|incorrect old value|failed to lock"
)
_NOT_WRITABLE = re.compile(r"Unable to create '[^']*': (?!File exists)")
_AUTHENTICATION = re.compile(
    r"authentication failed|could not read (?:username|password)|permission denied|terminal prompts disabled"
    r"|returned error: 40[13]|access denied|not authorized|host key verification failed",
    re.IGNORECASE,
)
_ABSENT = re.compile(
    r"repository .*not found|does not appear to be a git repository|returned error: 404|no such remote"
    r"|not a git repository|invalid gitfile format|project you were looking for could not be found",
    re.IGNORECASE,
)
_DAMAGED = re.compile(
    r"repository corruption on the remote side|did not send all necessary objects|fsck error|unresolved deltas"
)
_NO_REF = "couldn't find remote ref"
_FORBIDDEN = re.compile(
    r"transport '[^']*' not allowed|unable to find remote helper|remote-[a-z0-9+.-]+' is not a git command"
)


class Peer(NamedTuple):
    """Whom git talks to: `where` is the name of a configured remote or a URL. `schemes`: the only transports that may be used for it,
    as far as git's own configuration allows them; None: all that it allows. `ask`: a person may be asked for a password.
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


def url(places: Places, name: str) -> str:
    """Where a configured remote is fetched from, `insteadOf` applied. May carry credentials: not to be shown."""
    return _urls(places, name)[0]


def push_urls(places: Places, name: str) -> list[str]:
    """All places that `git push NAME` goes to, as `url`."""
    return _urls(places, name, "--push", "--all")


def _urls(places: Places, name: str, *options: str) -> list[str]:
    done = git(places, "remote", "get-url", *options, "--", name)
    if done.returncode != 0:
        raise RemoteMissing(f"There is no git remote {name[:80]!r}.", hint="git remote -v", remote=name)
    return done.text.splitlines()


def default_branch(places: Places, name: str) -> str | None:
    """The tracking ref of a remote's default branch, as git wrote it down when it cloned.

    Only a symbolic ref says so: whoever may push can make a branch `HEAD`, which is fetched under the same name.
    """
    head = f"refs/remotes/{name}/HEAD"
    target = git(places, "symbolic-ref", "--quiet", head).text.strip()
    return target if target.startswith(head.removesuffix("HEAD")) else None


def shown(text: str) -> str:
    """A URL, or what git and a stranger's server said, without what precedes the @ of a URL, and without what steers a terminal."""
    plain = "".join(each if each.isprintable() or each == "\n" else " " for each in text)
    return _CREDENTIALS.sub(r"\1", plain)


def tracked(places: Places, name: str) -> list[str]:
    """Where the branches of a configured remote were when they were last fetched: commits."""
    return demand(places, "for-each-ref", "--format=%(objectname)", f"refs/remotes/{name}/").text.split()


def tip(places: Places, ref: str) -> str | None:
    """The object that a local ref names, which may be a stranger's: no commit, or not here."""
    done = git(places, "rev-parse", "--verify", "--quiet", "--end-of-options", ref)
    return done.text.strip() or None if done.returncode == 0 else None


def count(places: Places, commit: str) -> int:
    """How many commits that one reaches, itself included."""
    return int(git(places, "rev-list", "--count", "--end-of-options", commit).text or 0)


def contains(places: Places, commit: str, part: str) -> bool:
    """Whether a commit has another one among its ancestors; one that is not here is not known to be."""
    return git(places, "merge-base", "--is-ancestor", "--end-of-options", part, commit).returncode == 0


def set_ref(places: Places, ref: str, commit: str | None) -> None:
    """Move a local ref, or (None) remove it."""
    demand(places, "update-ref", *((ref, commit) if commit else ("-d", ref)))


def release(places: Places, ref: str) -> None:
    """Remove what a git that was killed has left beside a ref, or the refs that begin with it, and that no git would ever remove.

    The caller sees to it that nobody else moves them.
    """
    path = places.common / ref
    for lock in path.parent.glob(f"{path.name}*.lock"):
        with contextlib.suppress(FileNotFoundError):  # it belonged to somebody who is alive: git, when it packs refs
            age = time.time() - lock.stat().st_mtime
            time.sleep(_LOCK_SECONDS if 0 <= age < _LOCK_SECONDS else 0)
            lock.unlink()


def tidy(places: Places) -> None:
    """Let git pack what has gathered, where nobody else ever asks it to."""
    demand(places, "gc", "--auto", "--quiet")


def fetch(places: Places, peer: Peer, ref: str, into: str) -> str | None:
    """Fetch `ref` of the other side as the local ref `into`, with all its objects; None: the other side has no such ref.

    Then `into` stays as it was. Raises `RemoteUnreachable`, `RemoteMissing`, `RemoteDamaged`,
    `AuthenticationFailed`.
    """
    options = ["--quiet", "--no-tags", "--no-write-fetch-head", "--no-prune", "--no-auto-maintenance", "--refmap="]
    # A partial clone would otherwise leave the contents behind, and fetch them one by one when they are read.
    options.append("--no-filter")
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
    arguments = ("push", "--porcelain", "--no-verify", lease, "--", peer.where, f"{commit}:{ref}")
    mirror = f"remote.{peer.where}.mirror"  # git refuses to push one ref there
    there = "=" not in mirror and mirror in config_section(places, f"remote.{peer.where}")
    done = _asked(places, peer, *arguments, options=[f"{mirror}=false"] if there else [])
    if done.returncode == 0:
        return
    verdict = _VERDICT.search(done.text)
    if verdict is None:
        raise _failed(peer, done)
    where, said = shown(peer.where), shown(done.complaint)
    if _MOVED.search(verdict[1]) and not _NOT_WRITABLE.search(said):
        raise RemoteMoved(
            f"Somebody else pushed knowledge to {where} meanwhile; nothing was pushed.",
            hint="vmrag push",
            said=shown(verdict[1]),
        )
    told = " ".join(line.partition(":")[2].strip() for line in said.splitlines() if line.startswith("remote:"))
    raise RemoteRejected(
        f"{where} does not take knowledge: {shown(verdict[1])} {told}".rstrip()[:_MOST_SAID],
        hint=f"Ask who runs it to allow pushes to {ref}.",
        said=said,
        remote=where,
    )


def _asked(places: Places, peer: Peer, *arguments: str, options: Sequence[str] = ()) -> proc.Finished:
    if peer.where.startswith("-") or "::" in peer.where.partition("://")[0]:
        raise RemoteInvalid(f"{shown(peer.where)[:80]!r} is no remote.", hint="git remote -v")
    patience = _PATIENT_SECONDS if peer.ask else _SILENT_SECONDS
    options = [*_OPTIONS, *options, "http.lowSpeedLimit=1", f"http.lowSpeedTime={patience}"]
    if peer.schemes is not None:
        options += [f"protocol.{each}.allow=never" for each in _TRANSPORTS if each not in peer.schemes]
    settings = [word for option in options for word in ("-c", option)]
    extra = env.git_options() | _ssh(places, ask=peer.ask) | ({} if peer.ask else {"GIT_TERMINAL_PROMPT": "0"})
    return git(places, *settings, *arguments, extra=extra)


def _ssh(places: Places, *, ask: bool) -> dict[str, str]:
    """Left to itself ssh waits for ever, and asks at the terminal whatever git is told. Another program in its place is left alone."""
    configured = config_values(places, r"core\.sshcommand")
    command = env.ssh_command() or (configured[-1] if configured else None)
    if command is None:
        command = "" if env.ssh_program() else "ssh"
    if command.partition(" ")[0].rpartition("/")[2] != "ssh":
        return {}
    return {env.SSH_COMMAND: f"{command} {_SSH_OPTIONS}{'' if ask else ' -o BatchMode=yes'}"}


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
    if _DAMAGED.search(said):
        return RemoteDamaged(
            f"The knowledge base at {where} is damaged: {_essence(said)}. Nothing of it was taken.",
            hint="Somebody with a sound clone can put theirs there: vmrag gc --remote --apply",
            **details,
        )
    return RemoteUnreachable(
        f"{where} cannot be reached: {_essence(said)}", hint=f"git ls-remote {quoted(where)}", **details
    )


def _essence(said: str) -> str:
    """The line that says what is wrong."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    telling = [line for line in lines if re.match(r"(?:fatal|error|remote|ssh|!)", line)]
    return (telling or lines or ["no reason was given"])[0][:_MOST_SAID]
