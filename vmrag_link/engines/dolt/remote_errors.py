"""What Dolt says when a remote does not do what it was asked, as errors of ours.

A server's words, and a repository's, are a stranger's; they were made safe to show before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from vmrag_link.engines.dolt.connection import said
from vmrag_link.errors import (
    AuthenticationFailed,
    EngineFailed,
    EngineUnwritable,
    RemoteDamaged,
    RemoteMissing,
    RemoteMoved,
    RemoteRejected,
    RemoteUnreachable,
    VmragError,
)
from vmrag_link.pin_values import hosted

_MOST_SAID = 200

_MOVED = ("non-fast-forward", "branch not found", "optimistic lock", "stale info", "merge needed", "manifest changed")
_SHUT_OUT = ("unauthenticated", "access denied", "permissiondenied", "dolt_remote_password", "authorization header")
_MISSING = ("database not found", "repository not found", "no such repository")
_UNREACHABLE = ("code = unavailable", "deadline", "no such host", "connection refused", "timeout", "tls:", "x509:")
_REJECTED = ("readonly", "read-only", "read only", "unimplemented", "not supported", "permission")


def translated(error: EngineFailed, url: str) -> VmragError:
    """The error for a failed fetch from this URL or push to it."""
    told = said(error)[:_MOST_SAID]
    words = told.lower().replace(" ", "")
    served = not url.startswith(("file://", "git+file://"))
    details = {"remote": url, "said": told}

    def says(parts: tuple[str, ...]) -> bool:
        return any(part.replace(" ", "") in words for part in parts)

    if not told or (isinstance(error, EngineUnwritable) and not served):
        return error
    if says(_MOVED):
        return RemoteMoved(f"{url} has moved on meanwhile; nothing was pushed.", hint="vmrag pull", **details)
    if served:
        return _of_server(says, told, url, details)
    if says(_REJECTED):
        return RemoteRejected(f"{url} does not take that: {told}.", hint="See who may write there.", **details)
    return damaged(url, said=told)


def damaged(url: str, *, said: str = "") -> RemoteDamaged:
    return RemoteDamaged(
        f"The knowledge base at {url} is damaged, or is none. Nothing of it was taken.",
        hint="vmrag remote (shows what is contacted)",
        remote=url,
        said=said,
    )


def _of_server(says: Callable[[tuple[str, ...]], bool], told: str, url: str, details: Mapping[str, str]) -> VmragError:
    if says(_SHUT_OUT):
        return AuthenticationFailed(
            f"{url} did not let us in: {told}.",
            hint="DOLT_REMOTE_PASSWORD=… vmrag fetch (the user is git config vmrag.dolt.user); on DoltHub: dolt login",
            **details,
        )
    if says(_MISSING):
        return RemoteMissing(f"There is no knowledge base at {url}.", hint="vmrag remote", **details)
    if says(_UNREACHABLE):
        where = url if url.startswith("http") else "https://www.dolthub.com" if hosted(url) else ""
        hint = f"See who answers: curl -sS {where}" if where else "vmrag remote (shows what is contacted)"
        return RemoteUnreachable(f"{url} cannot be reached: {told}.", hint=hint, **details)
    return RemoteRejected(
        f"{url} does not take that: {told}.", hint="Ask who runs it what may be pushed there.", **details
    )
