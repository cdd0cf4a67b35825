"""May this be contacted without being asked to? A pin and a settings file come from whoever wrote what was cloned."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from vmrag_link.errors import RemoteNotTrusted, quoted
from vmrag_link.git.settings import config_values
from vmrag_link.paths import Places
from vmrag_link.pin_values import shown
from vmrag_link.travel.address import OWN, folder

TRUSTED_KEY = "vmrag.trustedRemote"
ROOTS_KEY = "vmrag.fileRoot"


def require(places: Places, remote: str, *, accepted: Callable[[], str | None]) -> None:
    """Raises `RemoteNotTrusted` for a remote that neither this machine's git configuration names nor its person has agreed to.

    `git:` is the code's own remote, which is contacted for the code anyway. `accepted` gives the `remote` of the settings that count
    here; a folder of this machine that it names must lie below a `vmrag.fileRoot` of git's configuration.
    """
    if remote == OWN or is_known(places, remote):
        return
    agree = f"vmrag remote --trust {quoted(remote)}"
    if remote != accepted():
        raise RemoteNotTrusted(
            f"The remote {shown(remote)} was not contacted: nobody here has agreed to it.",
            hint=f"{agree}   (only if you know whose it is)",
            remote=remote,
        )
    place = folder(remote)
    if place is not None and not any(_real(place).is_relative_to(root) for root in _roots(places)):
        raise RemoteNotTrusted(
            f"The remote {shown(remote)} was not opened: it lies outside of the folders that are allowed.",
            hint=f"{agree}   (or all that lies beside it: git config --add {ROOTS_KEY} {quoted(_real(place).parent)})",
            remote=remote,
        )


def is_known(places: Places, remote: str) -> bool:
    """Whether git's configuration on this machine names exactly this remote."""
    return remote in config_values(places, TRUSTED_KEY) or _is_git_remote(places, remote)


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
