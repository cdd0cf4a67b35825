"""Whether a remote may be contacted unasked: pin and settings may be a stranger's."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from pathlib import Path

from vmrag_link.errors import RemoteNotTrusted, quoted
from vmrag_link.git.configuration import config_values
from vmrag_link.paths import Places
from vmrag_link.pin_values import own_ref, shown
from vmrag_link.transport.address import folder

TRUSTED_KEY = "vmrag.trustedRemote"
ROOTS_KEY = "vmrag.fileRoot"


def require(places: Places, remote: str, *, accepted: Callable[[], str | None]) -> None:
    """Raises `RemoteNotTrusted` for a remote that neither git's configuration here names nor the
    person agreed to.

    `git:` is the code's own remote, which is contacted for the code anyway. `accepted` gives the
    `remote` of the settings that count here; a folder of this machine that it names must lie below
    a `vmrag.fileRoot` of git's configuration.
    """
    if named_here(places, remote):
        return
    if remote != accepted():
        raise RemoteNotTrusted(
            f"The remote {shown(remote)} was not contacted: nobody here has agreed to it.",
            hint=f"{_agree(remote)}   (only if you know whose it is)",
            remote=remote,
        )
    require_below_root(places, remote)


def require_from_agent(
    places: Places, remote: str, *, accepted: Callable[[], str | None], agreed: Collection[str]
) -> None:
    """As `require`, for an address in an agent's arguments, which a stranger's text may have put
    there.

    `agreed` are the addresses that the person confirmed. If asking could help, the error's details
    hold `ask`: never for a folder outside of the roots, into which a push would write.
    """
    if named_here(places, remote):
        return
    require_below_root(places, remote)
    if remote not in agreed and remote != accepted():
        raise RemoteNotTrusted(
            f"{shown(remote)} was not contacted: no remote of this repository has this address, and nobody here has agreed to it.",
            hint=f"{_agree(remote)}   (only if you know whose it is)",
            remote=remote,
            ask=True,
        )


def named_here(places: Places, remote: str) -> bool:
    """Whether this machine's git configuration names a remote, as trusted or as the code's."""
    return own_ref(remote) is not None or remote in config_values(places, TRUSTED_KEY) or _is_git_remote(places, remote)


def require_below_root(places: Places, remote: str) -> None:
    """Raises `RemoteNotTrusted` for a local folder that is not below a `vmrag.fileRoot` of git's
    configuration.
    """
    place = folder(remote)
    if place is not None and not below_root(places, place):
        raise RemoteNotTrusted(
            f"The remote {shown(remote)} was not opened: it lies outside of the folders that are allowed.",
            hint=f"{_agree(remote)}   (or all that lies beside it: git config --add {ROOTS_KEY} {quoted(_real(place).parent)})",
            remote=remote,
        )


def below_root(places: Places, path: Path) -> bool:
    """Whether a path, links resolved, lies below a `vmrag.fileRoot` of git's configuration."""
    return any(_real(path).is_relative_to(root) for root in _roots(places))


def _agree(remote: str) -> str:
    return f"vmrag remote --trust {quoted(remote)}"


def _is_git_remote(places: Places, remote: str) -> bool:
    """Whether it is one of the configured git remotes by its URL."""
    return remote.startswith("git+") and remote.removeprefix("git+") in config_values(
        places, r"remote\..*\.(url|pushurl)"
    )


def _roots(places: Places) -> list[Path]:
    """Only absolute ones: what a relative one is would depend on where a command is started."""
    roots = [Path(os.path.expanduser(root)) for root in config_values(places, ROOTS_KEY)]  # noqa: PTH111  never raises
    return [_real(root) for root in roots if root.is_absolute()]


def _real(path: Path) -> Path:
    """`..` and links resolved, as far as there is anything; a ring of links is not followed."""
    return Path(os.path.realpath(path))
