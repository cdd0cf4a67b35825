"""Fetch and push refs with git itself, using the user's own credentials.

The other side is a `Peer`. git asks the user only with `Peer.may_ask`. `places` is mostly a
repository of `sidecar_repo`, so that what was fetched is not in the code's repository.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping

from vmrag_link import env, proc
from vmrag_link.errors import RemoteInvalid, RemoteMoved, RemoteNotTrusted, RemoteUnreachable, quoted
from vmrag_link.git import credentials, refs, remote_errors
from vmrag_link.git.remotes import Peer, is_mirror, read_push_urls, redact_url
from vmrag_link.git.run import check_git, run_git
from vmrag_link.paths import Places

_LOCK_SECONDS = 1.0
"""Maximum time for which git holds a ref: it writes one line."""

# The user's configuration should only decide how to reach the other side: one ref is pushed alone
# and unsigned, and housekeeping is left to the user's own commands.
_SETTINGS = (
    *("gc.auto=0", "maintenance.auto=false"),
    *("push.followTags=false", "push.gpgSign=false", "push.pushOption=", "push.recurseSubmodules=no"),
    "fetch.recurseSubmodules=no",
    *("color.remote=false", "color.transport=false", "color.push=false"),
)

_FETCH_OPTIONS = ("--quiet", "--no-tags", "--no-write-fetch-head", "--no-auto-maintenance", "--refmap=")

_PATIENT_SECONDS = 300
"""Like `credentials.SILENT_SECONDS`, for attended commands, because a server may work long on a
push.
"""

_MAX_SECONDS = 900
"""Limit of an unattended command, because not every transport notices silence."""
_MAX_LISTING_SECONDS = 60
"""Limit of `ls-remote`."""

_TRANSPORTS = ("ext", "fd", "file", "ftp", "ftps", "git", "http", "https", "ssh")
"""All transports that git includes."""

_UP_TO_DATE = "=\t"
"""Beginning of the line of `push --porcelain` for a ref that needed no push."""

_NO_REF = "couldn't find remote ref"


def read_tip(places: Places, ref: str) -> str | None:
    """Return the object that a local ref points to. It may be untrusted: not a commit, or missing
    in this clone.
    """
    if ref.startswith("refs/"):
        return refs.read_ref(places, ref)
    finished = run_git(places, "rev-parse", "--verify", "--quiet", "--end-of-options", ref)
    return finished.text.strip() or None if finished.returncode == 0 else None


def count_commits(places: Places, commit: str) -> int:
    """Return the number of commits that a commit reaches, including itself."""
    return int(run_git(places, "rev-list", "--count", "--end-of-options", commit).text or "0")


def contains_commit(places: Places, commit: str, part: str) -> bool | None:
    """Return whether a commit has `part` as an ancestor, or None if one of them is missing."""
    finished = run_git(places, "merge-base", "--is-ancestor", "--end-of-options", part, commit)
    return not finished.returncode if finished.returncode in (0, 1) else None


def set_ref(places: Places, ref: str, commit: str | None) -> None:
    """Move a local ref. Without a commit, remove it."""
    check_git(places, "update-ref", *((ref, commit) if commit else ("-d", ref)))


def remove_stale_locks(places: Places, ref: str) -> None:
    """Remove the locks that a killed git left next to a ref or the refs below it. git never removes
    them.

    The caller ensures that no other process moves these refs.
    """
    path = places.common / ref
    for lock in path.parent.glob(f"{path.name}*.lock"):
        with contextlib.suppress(FileNotFoundError):  # removed by its owner, a git that packs refs
            age = time.time() - lock.stat().st_mtime
            time.sleep(_LOCK_SECONDS if 0 <= age < _LOCK_SECONDS else 0)
            lock.unlink()


def fetch(places: Places, peer: Peer, ref: str, into: str) -> str | None:
    """Fetch `ref` of the other side as the local ref `into`, with all its objects. Returns its
    commit.

    None if the other side has no such ref. Then `into` does not change. Raises `RemoteUnreachable`,
    `RemoteMissing`, `RemoteDamaged`, `AuthenticationFailed`.
    """
    # Without --no-filter a partial clone would not fetch the contents now, and later fetch them one
    # by one when they are read.
    options = (*_FETCH_OPTIONS, "--no-prune", "--no-filter")
    finished = _run_remote(places, peer, "fetch", *options, "--", peer.remote, f"+{ref}:{into}")
    if finished.returncode == 0:
        return read_tip(places, into)
    if _NO_REF in finished.error_text:
        return None
    raise remote_errors.build_error(peer.remote, finished)


def fetch_commits(places: Places, peer: Peer, commits: list[str], *options: str) -> None:
    """Fetch commits by their full names into this repository. No ref moves.

    `options` of `git fetch` select how much of their history is fetched. Raises the errors of
    `fetch`.
    """
    finished = _run_remote(places, peer, "fetch", *_FETCH_OPTIONS, *options, "--", peer.remote, *commits)
    if finished.returncode != 0:
        raise remote_errors.build_error(peer.remote, finished)


def read_remote_ref(places: Places, peer: Peer, ref: str, *, within: float | None = None) -> str | None:
    """Return the commit of `ref` on the other side without fetching, or None.

    `within`: seconds to wait for an unattended answer. Raises the errors of `fetch`.
    """
    return _list_refs(places, peer, "--", peer.remote, ref, within=within).get(ref)


def list_remote_refs(places: Places, peer: Peer, prefix: str) -> dict[str, str]:
    """Return the commits of the other side's refs below a prefix, by ref. Raises the errors of
    `fetch`.
    """
    return _list_refs(places, peer, "--", peer.remote, f"{prefix}*")


def delete_refs(places: Places, peer: Peer, refs: Mapping[str, str]) -> None:
    """Delete refs of the other side that still point to these commits. Runs no hook.

    Raises `RemoteMoved`, `RemoteRejected`, and the errors of `fetch`.
    """
    leases = [f"--force-with-lease={ref}:{commit}" for ref, commit in refs.items()]
    deleted = [f":{ref}" for ref in refs]
    finished = _run_remote(places, peer, "push", "--porcelain", "--no-verify", *leases, "--", peer.remote, *deleted)
    if finished.returncode != 0:
        raise remote_errors.build_push_error(peer.remote, next(iter(refs)), finished, "deletion")


def list_remote_branches(places: Places, peer: Peer) -> list[str]:
    """Return the commits of the other side's branches, even if this clone lacks them. Raises the
    errors of `fetch`.
    """
    return list(dict.fromkeys(_list_refs(places, peer, "--heads", "--", peer.remote).values()))


def _list_refs(places: Places, peer: Peer, *what: str, within: float | None = None) -> dict[str, str]:
    """Return commits by the refs of the other side."""
    finished = _run_remote(places, peer, "ls-remote", "--quiet", *what, within=within)
    if finished.returncode != 0:
        raise remote_errors.build_error(peer.remote, finished)
    lines = (line.partition("\t") for line in finished.text.splitlines())
    return {name: commit for commit, _, name in lines}


def push(
    places: Places, peer: Peer, commit: str, ref: str, *, expected: str | None, content: str = "knowledge"
) -> bool:
    """Push the commit to `ref` of the other side, if the ref still is at `expected` (None: it does
    not exist).

    Returns False if the ref was already at the commit. `content`: what is pushed, for messages.
    Raises `RemoteMoved` if the ref is elsewhere, `RemoteRejected`, and the errors of `fetch`.
    """
    try:
        return _push_once(places, peer, commit, ref, expected=expected, content=content)
    except RemoteMoved:
        if read_remote_ref(places, peer, ref) != expected:
            raise
        time.sleep(_LOCK_SECONDS)  # another process may hold the ref at this moment
        try:
            return _push_once(places, peer, commit, ref, expected=expected, content=content)
        except RemoteMoved as again:
            if read_remote_ref(places, peer, ref) != expected:
                raise
            raise remote_errors.build_stuck_error(peer.remote, ref, str(again.details["told"])) from again


def _push_once(places: Places, peer: Peer, commit: str, ref: str, *, expected: str | None, content: str) -> bool:
    """Push like `push`, once. A lock on the other side may look like another client's push."""
    # git refuses to push a single ref to a mirror that is given by its name.
    code = places.code_places or places
    target = read_push_urls(code, peer.remote)[0] if is_mirror(code, peer.remote) else peer.remote
    # The user's own pre-push hook is for code, and vmrag's would call this again.
    lease = f"--force-with-lease={ref}:{expected or ''}"
    finished = _run_remote(places, peer, "push", "--porcelain", "--no-verify", lease, "--", target, f"{commit}:{ref}")
    if finished.returncode == 0:
        return not any(line.startswith(_UP_TO_DATE) for line in finished.text.splitlines())
    raise remote_errors.build_push_error(peer.remote, ref, finished, content)


def _run_remote(places: Places, peer: Peer, *arguments: str, within: float | None = None) -> proc.FinishedProcess:
    if peer.remote.startswith("-") or "::" in peer.remote.partition("://")[0]:
        raise RemoteInvalid(
            f"{redact_url(peer.remote)[:80]!r} is not a remote.", hint="run 'git remote -v' to list the remotes"
        )
    if places.is_jj_workspace:
        raise _build_jj_error(places.code_places or places, peer)
    patience = _PATIENT_SECONDS if peer.may_ask else credentials.SILENT_SECONDS
    settings = [*_SETTINGS, "http.lowSpeedLimit=1", f"http.lowSpeedTime={patience}"]
    if peer.schemes is not None:
        settings += [f"protocol.{transport}.allow=never" for transport in _TRANSPORTS if transport not in peer.schemes]
    options = [word for setting in settings for word in ("-c", setting)]
    access = credentials.build_environment(places, credentials.read_credentials(places), may_ask=peer.may_ask)
    extra = env.read_git_options() | env.read_unattended() | access
    if peer.may_ask:
        return run_git(places, *options, *arguments, extra=extra)
    limit = within or (_MAX_LISTING_SECONDS if arguments[0] == "ls-remote" else _MAX_SECONDS)
    try:
        return run_git(places, *options, *arguments, extra=extra | {"GIT_TERMINAL_PROMPT": "0"}, timeout=limit)
    except TimeoutError as error:
        address = redact_url(peer.remote)
        raise RemoteUnreachable(
            f"git {arguments[0]} did not finish for {address} within {limit:,g} s.",
            hint=f"run 'git ls-remote {quoted(address)}' to check the address",
            remote=address,
        ) from error


def _build_jj_error(code: Places, peer: Peer) -> RemoteNotTrusted:
    """Return the error for a remote of a jj workspace.

    Its repository names the remote's URL and the programs that contact it. git itself would not use
    that repository, which may come from an archive.
    """
    from vmrag_link.git import jj

    address = redact_url(peer.remote)
    return RemoteNotTrusted(
        f"{address} was not contacted: {code.top} is a jj workspace without .git.",
        hint=jj.main_folder_hint(code, "vmrag fetch"),
        remote=address,
    )
