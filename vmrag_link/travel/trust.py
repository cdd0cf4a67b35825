"""May this be contacted without being asked to? A pin and a settings file can be changed by whoever opens a pull request."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote, urlsplit

from vmrag_link.errors import RemoteNotTrusted, quoted
from vmrag_link.git.settings import config_values
from vmrag_link.paths import Places
from vmrag_link.pin_values import shown
from vmrag_link.travel.address import OWN

TRUSTED_KEY = "vmrag.trustedRemote"
ROOTS_KEY = "vmrag.fileRoot"


def require(places: Places, remote: str, *, accepted: Callable[[], str | None]) -> None:
    """Raises `RemoteNotTrusted` for a remote that neither this machine's git configuration names nor the maintainers have accepted.

    `git:` is the code's own remote, which is contacted for the code anyway. `accepted` gives the `remote` of the settings file on the
    remote's default branch; a folder of this machine that it names must lie below a `vmrag.fileRoot` of git's configuration.
    """
    if remote == OWN or remote in config_values(places, TRUSTED_KEY) or _is_git_remote(places, remote):
        return
    agree = f"git config --add {TRUSTED_KEY} {quoted(remote)}"
    if remote != accepted():
        raise RemoteNotTrusted(
            f"The remote {shown(remote)} was not contacted: nobody here has agreed to it.",
            hint=f"If you know it: {agree}",
            remote=remote,
        )
    folder = _folder(remote)
    if folder is not None and not any(folder.is_relative_to(root) for root in _roots(places)):
        raise RemoteNotTrusted(
            f"The remote {shown(remote)} was not opened: it lies outside of the folders that are allowed.",
            hint=f"git config --add {ROOTS_KEY} {quoted(folder.parent)} (or allow this one remote: {agree})",
            remote=remote,
        )


def _is_git_remote(places: Places, remote: str) -> bool:
    """Whether it is one of the configured git remotes by its URL."""
    return remote.startswith("git+") and remote.removeprefix("git+") in config_values(
        places, r"remote\..*\.(url|pushurl)"
    )


def _folder(remote: str) -> Path | None:
    """The path of a remote on this machine, `..` and links resolved."""
    url = urlsplit(remote)
    return Path(unquote(url.path)).resolve() if url.scheme in ("file", "git+file") else None


def _roots(places: Places) -> list[Path]:
    return [Path(root).resolve() for root in config_values(places, ROOTS_KEY)]
