"""The errors for what git says about remotes. It has no codes for them, so its words are read."""

from __future__ import annotations

import re

from vmrag_link import env, proc
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
from vmrag_link.git.remotes import shown
from vmrag_link.pin_values import DATA

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


def of_answer(url: str, done: proc.Finished) -> RemoteError:
    """The error for a failed git command that talked to the remote."""
    said = shown(done.complaint)
    where, details, runner = shown(url), {"said": said, "remote": shown(url)}, env.in_github_actions()
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


def of_push(url: str, ref: str, done: proc.Finished, content: str) -> RemoteError:
    """The error for a failed `git push --porcelain` of one ref.

    `content`: what is pushed.
    `RemoteMoved` has git's words in its detail `told`. Something in the way may look the same.
    """
    verdict = re.search(_VERDICT, done.text)
    if verdict is None:
        return of_answer(url, done)
    where, said = shown(url), shown(done.complaint)
    if re.search(_MOVED, verdict[1]) and not re.search(_NOT_WRITABLE, said):
        return RemoteMoved(
            f"Somebody else pushed {content} to {where} meanwhile; nothing was pushed.",
            hint="vmrag push",
            said=shown(verdict[1]),
            told=said,
        )
    told = " ".join(line.partition(":")[2].strip() for line in said.splitlines() if line.startswith("remote:"))
    return RemoteRejected(
        f"{where} does not take {content}: {shown(verdict[1])} {told}".rstrip()[:_MOST_SAID],
        hint=f"Ask who runs it to allow pushes to {ref}{_OR_A_BRANCH if ref == DATA else ''}.",
        said=said,
        remote=where,
    )


def stuck(url: str, ref: str, said: str) -> RemoteRejected:
    """The error for a ref that cannot be changed although nobody else changes it."""
    where = shown(url)
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
