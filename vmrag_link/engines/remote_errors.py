"""Errors of remotes that every engine raises."""

from __future__ import annotations

from vmrag_link.errors import RemoteDamaged, RemoteMissing, RemoteMoved


def missing_error(url: str, *, message: str | None = None) -> RemoteMissing:
    """Return the error for a remote without a knowledge base. `message`: the engine's own."""
    details = {"remote": url} if message is None else {"remote": url, "said": message}
    return RemoteMissing(f"no knowledge base found at {url}.", hint="run 'vmrag remote' to list the remotes", **details)


def moved_error(url: str, *, message: str | None = None) -> RemoteMoved:
    """Return the error for a push to a remote that has changed since the last fetch."""
    details = {"remote": url} if message is None else {"remote": url, "said": message}
    return RemoteMoved(
        f"{url} has changed since the last fetch; nothing was pushed.",
        hint="run 'vmrag pull' to merge the newer revision",
        **details,
    )


def damaged_error(url: str, *, message: str = "") -> RemoteDamaged:
    return RemoteDamaged(
        f"no readable knowledge base at {url}; nothing was fetched.",
        hint="run 'vmrag remote' to check the address",
        remote=url,
        said=message,
    )
