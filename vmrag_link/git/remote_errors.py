"""Errors for git's messages about a remote.

git has no codes for these errors, so its text is matched.
"""

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
from vmrag_link.git.remotes import redact_url
from vmrag_link.pin_values import DATA_REF

_MAX_CHARACTERS = 300

_VERDICT = r"(?m)^!\t[^\t]*\t(\[(?:remote )?rejected\].*)$"
"""A ref that was not pushed, as `push --porcelain` prints it."""

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
_KEY_FAILURE = r"(?i)publickey|host key verification failed"

_KEY_ON_A_RUNNER = (
    "give actions/checkout a key that can read this repository: ssh-key, and ssh-known-hosts of its server"
)

_OR_A_BRANCH = (
    " (or set 'remote: git:refs/heads/vmrag/data' in .vmrag.yaml and run 'vmrag pin' to push to a branch instead)"
)
"""An addition to the hint. It is in parentheses, because hooks append a further alternative."""

_ON_A_RUNNER = (
    "let actions/checkout keep its token (persist-credentials: true), or set the step's input 'token' to one that "
    "can read this repository"
)


def build_error(url: str, finished: proc.FinishedProcess) -> RemoteError:
    """Return the error for a failed git command that contacted the remote."""
    complaint = redact_url(finished.error_text)
    address = redact_url(url)
    details = {"said": complaint, "remote": address}
    on_runner = env.in_github_actions()
    if re.search(_FORBIDDEN, complaint):
        return RemoteInvalid(
            f"git does not allow this transport for {address}: {_select_reason(complaint)}",
            hint="run 'git remote -v' to list the remotes",
            **details,
        )
    if re.search(_AUTHENTICATION, complaint):
        hint = f"run 'git ls-remote {quoted(address)}' to check that git itself can authenticate"
        if on_runner:
            hint = _KEY_ON_A_RUNNER if re.search(_KEY_FAILURE, complaint) else _ON_A_RUNNER
        return AuthenticationFailed(f"{address} denied access: {_select_reason(complaint)}", hint=hint, **details)
    if re.search(_ABSENT, complaint):
        hint = (
            f"run 'git remote -v' to check the address, or {_ON_A_RUNNER}"
            if on_runner
            else "run 'git remote -v' to list the remotes"
        )
        return RemoteMissing(f"no git repository at {address}.", hint=hint, **details)
    if re.search(_DAMAGED, complaint):
        return RemoteDamaged(
            f"the knowledge base at {address} is damaged: {_select_reason(complaint)}. Nothing was fetched.",
            hint="run 'vmrag gc --remote --apply' in an intact clone to replace it",
            **details,
        )
    return RemoteUnreachable(
        f"{address} cannot be reached: {_select_reason(complaint)}",
        hint=f"run 'git ls-remote {quoted(address)}' to check the address",
        **details,
    )


def build_push_error(url: str, ref: str, finished: proc.FinishedProcess, content: str) -> RemoteError:
    """Return the error for a failed `git push --porcelain` of one ref.

    `content`: what is pushed, for the message. `RemoteMoved` has git's text in its detail `told`. A
    lock or a conflicting ref on the other side may look the same.
    """
    verdict = re.search(_VERDICT, finished.text)
    if verdict is None:
        return build_error(url, finished)
    address = redact_url(url)
    complaint = redact_url(finished.error_text)
    if re.search(_MOVED, verdict[1]) and not re.search(_NOT_WRITABLE, complaint):
        return RemoteMoved(
            f"{address} has newer {content}, so nothing was pushed.",
            hint="run 'vmrag push' to push the revision",
            said=redact_url(verdict[1]),
            told=complaint,
        )
    remote_lines = " ".join(
        line.partition(":")[2].strip() for line in complaint.splitlines() if line.startswith("remote:")
    )
    return RemoteRejected(
        f"{address} does not take {content}: {redact_url(verdict[1])} {remote_lines}".rstrip()[:_MAX_CHARACTERS],
        hint=f"ask who runs it to allow pushes to {ref}{_OR_A_BRANCH if ref == DATA_REF else ''}",
        said=complaint,
        remote=address,
    )


def build_stuck_error(url: str, ref: str, complaint: str) -> RemoteRejected:
    """Return the error for a ref that cannot be changed although no other client changes it."""
    address = redact_url(url)
    return RemoteRejected(
        f"{address} cannot change {ref}, although no one else pushes: {_select_reason(complaint)}"[:_MAX_CHARACTERS],
        hint=f"ask its administrator to remove what blocks {ref}, such as a lock of a killed git or a ref with a "
        "part of that name",
        said=complaint,
        remote=address,
    )


def _select_reason(complaint: str) -> str:
    """Return the output line with the reason."""
    lines = [line.strip() for line in complaint.splitlines() if line.strip()]
    reasons = [line for line in lines if re.match(r"(?:fatal|error|remote|ssh|!)", line)]
    return (reasons or lines or ["no reason was given"])[0][:_MAX_CHARACTERS]
