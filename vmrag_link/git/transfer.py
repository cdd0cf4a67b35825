"""Fetching and pushing one ref by git itself, with the user's own credentials.

It asks at the terminal only with `ask`.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping

from vmrag_link import env, proc
from vmrag_link.errors import (
    RemoteInvalid,
    RemoteMoved,
    RemoteNotTrusted,
    RemoteUnreachable,
    quoted,
)
from vmrag_link.git import credentials, refs, remotes
from vmrag_link.git.remotes import Peer, is_mirror, read_push_urls, redact_url
from vmrag_link.git.run import check_git, run_git
from vmrag_link.paths import Places

_LOCK_SECONDS = 1.0
"""How long git may hold a ref: it writes a line."""

# The user's configuration should only decide how to reach the other side: one ref is pushed alone
# and unsigned, and housekeeping is left to the user's own commands.
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

_PATIENT_SECONDS = 300
"""As `credentials.SILENT_SECONDS`, with a person watching: a server may think long over a push."""

_MOST_SECONDS, _MOST_SECONDS_OF_A_QUESTION = 900, 60
"""Seconds that git may take at all while nobody watches: not every transport notices silence.

A question is `ls-remote`.
"""

_TRANSPORTS = ("ext", "fd", "file", "ftp", "ftps", "git", "http", "https", "ssh")
"""All that git comes with."""

_UP_TO_DATE = "=\t"
"""What `push --porcelain` says first of a ref that needed no push."""

_NO_REF = "couldn't find remote ref"


def read_tip(places: Places, ref: str) -> str | None:
    """The object that a local ref names, which may be a stranger's: no commit, or not here."""
    if ref.startswith("refs/"):
        return refs.read_ref(places, ref)
    done = run_git(places, "rev-parse", "--verify", "--quiet", "--end-of-options", ref)
    return done.text.strip() or None if done.returncode == 0 else None


def count_commits(places: Places, commit: str) -> int:
    """How many commits that one reaches, itself included."""
    return int(run_git(places, "rev-list", "--count", "--end-of-options", commit).text or 0)


def contains_commit(places: Places, commit: str, part: str) -> bool | None:
    """Whether a commit has another one among its ancestors; None if one of them is missing."""
    done = run_git(places, "merge-base", "--is-ancestor", "--end-of-options", part, commit)
    return not done.returncode if done.returncode in (0, 1) else None


def set_ref(places: Places, ref: str, commit: str | None) -> None:
    """Move a local ref, or (None) remove it."""
    check_git(places, "update-ref", *((ref, commit) if commit else ("-d", ref)))


def remove_stale_locks(places: Places, ref: str) -> None:
    """Remove the locks that a killed git left beside a ref or the refs below it; git never does.

    The caller ensures that nobody else moves them.
    """
    path = places.common / ref
    for lock in path.parent.glob(f"{path.name}*.lock"):
        with contextlib.suppress(FileNotFoundError):  # its owner is alive: git, when it packs refs
            age = time.time() - lock.stat().st_mtime
            time.sleep(_LOCK_SECONDS if 0 <= age < _LOCK_SECONDS else 0)
            lock.unlink()


def fetch(places: Places, peer: Peer, ref: str, into: str) -> str | None:
    """Fetch `ref` of the other side as the local ref `into`, with all its objects.

    None: the other side has no such ref, and `into` stays as it was. Raises `RemoteUnreachable`,
    `RemoteMissing`, `RemoteDamaged`, `AuthenticationFailed`.
    """
    # Without --no-filter a partial clone would leave the contents behind, and fetch them one by one
    # when they are read.
    options = (
        "--quiet",
        "--no-tags",
        "--no-write-fetch-head",
        "--no-prune",
        "--no-auto-maintenance",
        "--refmap=",
        "--no-filter",
    )
    done = _talk(places, peer, "fetch", *options, "--", peer.remote, f"+{ref}:{into}")
    if done.returncode == 0:
        return read_tip(places, into)
    if _NO_REF in done.error_text:
        return None
    raise remotes.build_error(peer.remote, done)


def fetch_commits(places: Places, peer: Peer, commits: list[str], *options: str) -> None:
    """Fetch commits by their full names into this repository; no ref moves.

    `options` of `git fetch` say how much of their history comes. Raises as `fetch`.
    """
    fixed = ("--quiet", "--no-tags", "--no-write-fetch-head", "--no-auto-maintenance", "--refmap=")
    done = _talk(places, peer, "fetch", *fixed, *options, "--", peer.remote, *commits)
    if done.returncode != 0:
        raise remotes.build_error(peer.remote, done)


def read_remote_ref(places: Places, peer: Peer, ref: str, *, within: float | None = None) -> str | None:
    """The commit of `ref` on the other side, without fetching anything. Raises as `fetch`.

    `within`: seconds to wait for the answer, if nobody is asked for a password.
    """
    return _list_refs(places, peer, "--", peer.remote, ref, within=within).get(ref)


def list_remote_refs(places: Places, peer: Peer, prefix: str) -> dict[str, str]:
    """The commits of the other side's refs below a prefix, by ref. Raises as `fetch`."""
    return _list_refs(places, peer, "--", peer.remote, f"{prefix}*")


def delete_refs(places: Places, peer: Peer, refs: Mapping[str, str]) -> None:
    """Delete refs of the other side that still are these commits. Runs no hook.

    Raises `RemoteMoved`, `RemoteRejected`, and as `fetch`.
    """
    leases = [f"--force-with-lease={ref}:{commit}" for ref, commit in refs.items()]
    deleted = [f":{ref}" for ref in refs]
    answer = _talk(places, peer, "push", "--porcelain", "--no-verify", *leases, "--", peer.remote, *deleted)
    if answer.returncode != 0:
        raise remotes.build_push_error(peer.remote, next(iter(refs)), answer, "deletion")


def list_remote_branches(places: Places, peer: Peer) -> list[str]:
    """The commits of the other side's branches now, here or not. Raises as `fetch`."""
    return list(dict.fromkeys(_list_refs(places, peer, "--heads", "--", peer.remote).values()))


def _list_refs(places: Places, peer: Peer, *what: str, within: float | None = None) -> dict[str, str]:
    """Commits by the refs of the other side."""
    done = _talk(places, peer, "ls-remote", "--quiet", *what, within=within)
    if done.returncode != 0:
        raise remotes.build_error(peer.remote, done)
    lines = (line.partition("\t") for line in done.text.splitlines())
    return {name: commit for commit, _, name in lines}


def push(
    places: Places, peer: Peer, commit: str, ref: str, *, expected: str | None, content: str = "knowledge"
) -> bool:
    """Let `ref` of the other side be the commit, if it still is `expected` (None: not there).

    False: it was that commit already. `content`: what messages call that which is pushed.
    Raises `RemoteMoved` where it is not, `RemoteRejected`, and as `fetch`.
    """
    try:
        return _push(places, peer, commit, ref, expected=expected, content=content)
    except RemoteMoved:
        if read_remote_ref(places, peer, ref) != expected:
            raise
        time.sleep(_LOCK_SECONDS)  # somebody may hold the ref at this moment
        try:
            return _push(places, peer, commit, ref, expected=expected, content=content)
        except RemoteMoved as again:
            if read_remote_ref(places, peer, ref) != expected:
                raise
            raise remotes.build_stuck_error(peer.remote, ref, str(again.details["told"])) from again


def _push(places: Places, peer: Peer, commit: str, ref: str, *, expected: str | None, content: str) -> bool:
    """As `push`. Something in the way may look like another person's push."""
    # git refuses to push one ref to a mirror by its name.
    code = places.code_places or places
    to = read_push_urls(code, peer.remote)[0] if is_mirror(code, peer.remote) else peer.remote
    # The user's own pre-push hook is for code, and ours would call this again.
    lease = f"--force-with-lease={ref}:{expected or ''}"
    done = _talk(places, peer, "push", "--porcelain", "--no-verify", lease, "--", to, f"{commit}:{ref}")
    if done.returncode == 0:
        return not any(line.startswith(_UP_TO_DATE) for line in done.text.splitlines())
    raise remotes.build_push_error(peer.remote, ref, done, content)


def _talk(places: Places, peer: Peer, *arguments: str, within: float | None = None) -> proc.FinishedProcess:
    if peer.remote.startswith("-") or "::" in peer.remote.partition("://")[0]:
        raise RemoteInvalid(f"{redact_url(peer.remote)[:80]!r} is no remote.", hint="git remote -v")
    if places.is_jj_workspace:
        raise _jj_remote_refused(places.code_places or places, peer)
    patience = _PATIENT_SECONDS if peer.may_ask else credentials.SILENT_SECONDS
    options = [*_OPTIONS, "http.lowSpeedLimit=1", f"http.lowSpeedTime={patience}"]
    if peer.schemes is not None:
        options += [f"protocol.{transport}.allow=never" for transport in _TRANSPORTS if transport not in peer.schemes]
    settings = [word for option in options for word in ("-c", option)]
    access = credentials.build_environment(places, credentials.read_credentials(places), ask=peer.may_ask)
    extra = env.read_git_options() | env.read_unattended() | access
    if peer.may_ask:
        return run_git(places, *settings, *arguments, extra=extra)
    most = within or (_MOST_SECONDS_OF_A_QUESTION if arguments[0] == "ls-remote" else _MOST_SECONDS)
    try:
        return run_git(places, *settings, *arguments, extra=extra | {"GIT_TERMINAL_PROMPT": "0"}, timeout=most)
    except TimeoutError as error:
        where = redact_url(peer.remote)
        raise RemoteUnreachable(
            f"{where} was given up: git {arguments[0]} was not done after {most:,g} s.",
            hint=f"git ls-remote {quoted(where)}",
            remote=where,
        ) from error


def _jj_remote_refused(code: Places, peer: Peer) -> RemoteNotTrusted:
    """The repository names the remote's URL and the programs that reach it. git by itself would not
    use that repository, which may have come in an archive.
    """
    from vmrag_link.git import jj

    where = redact_url(peer.remote)
    return RemoteNotTrusted(
        f"{where} was not contacted: {code.top} is a workspace of jj without .git.",
        hint=jj.main_folder_hint(code, "vmrag fetch"),
        remote=where,
    )
