"""Addresses of remotes: `remote:`, a pin's `dolt_remote`, or the argument of a command; and whether
one may be contacted unasked, because pin and settings may be a stranger's.

What an address can be depends on the engine of the knowledge base.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from pathlib import Path
from urllib.parse import unquote

from vmrag_link.engines.base import EngineName
from vmrag_link.errors import RemoteEmpty, RemoteInvalid, RemoteMissing, RemoteNotTrusted, quoted
from vmrag_link.git import remotes
from vmrag_link.git.configuration import read_config_values
from vmrag_link.git.remotes import Peer
from vmrag_link.models import Record
from vmrag_link.paths import Places
from vmrag_link.pin_values import (
    DATA_REF,
    ENGINE_DATA_REFS,
    find_remote_flaw,
    is_hosted_database,
    parse_git_ref,
    quote_untrusted,
)

_NETWORK = ("https", "ssh")
_GIT_SCHEMES = {"git+file": ("file",), "git+http": ("http", *_NETWORK), "git+https": _NETWORK, "git+ssh": _NETWORK}
"""The transports that git may use, whatever an `insteadOf` or a redirection says.

None of them is less guarded than the one that was named.
"""

_ENGINE_SCHEMES = ("file", "http", "https")
_DOLT_SCHEMES = (*_ENGINE_SCHEMES, "ssh", "aws", "gs", "az", "oci", "oss", "s3")
"""Cloud buckets and ssh are Dolt's own; nothing of ours was tried on them."""


class Address(Record, frozen=True):
    """One remote. git talks to `peer`, or (None) the engine to `url`.

    `key`: its short name in engine and git, made from its URL: a git remote that gets another URL
    is another place, and so is another ref. `text`: for people, without credentials.
    """

    key: str
    text: str
    peer: Peer | None = None
    url: str = ""


def list_code_addresses(places: Places, branch: str | None, *, ref: str = DATA_REF, ask: bool = False) -> list[Address]:
    """The addresses that `git:` names on a code branch, the preferred one first.

    `ref`: where they hold the knowledge base.

    Raises `RemoteMissing` where git has no remote.
    """
    return _addresses(places, remotes.list_for_reading(places, branch), ref=ref, ask=ask)


def list_code_push_addresses(
    places: Places, branch: str | None, *, ref: str = DATA_REF, ask: bool = False
) -> list[Address]:
    """As `of_code`, where `git push` goes to on that branch."""
    return _addresses(places, remotes.list_for_writing(places, branch), ref=ref, ask=ask)


def _addresses(places: Places, found: list[str], *, ref: str, ask: bool) -> list[Address]:
    if found:
        return [remote_address(places, name, ref=ref, ask=ask) for name in found]
    if remotes.list_remotes(places):
        raise RemoteMissing(
            "It is not clear which of the git remotes the knowledge base travels to.",
            hint="git config vmrag.remote NAME (or see what there is: git remote -v)",
        )
    raise RemoteEmpty(
        "This repository has no git remote that its knowledge base could travel to.", hint="git remote add origin URL"
    )


def remote_address(places: Places, name: str, *, ref: str = DATA_REF, ask: bool = False) -> Address:
    """A configured git remote, as it is fetched from."""
    return Address(_git_key(remotes.read_url(places, name), ref), name, Peer(name, may_ask=ask, ref=ref))


def pushed_address(places: Places, name: str, url: str, *, ref: str = DATA_REF, ask: bool = False) -> Address:
    """The place to which `git push` goes, as it tells its hook.

    Two URLs of one remote are two places; the name stands for the one that is fetched.
    """
    known = name in remotes.list_remotes(places) and remotes.read_url(places, name) == url
    alone = known and remotes.read_push_urls(places, name) == [url]
    peer = Peer(name if alone else url, may_ask=ask, ref=ref)
    return Address(_git_key(url, ref), name if known else remotes.redact_url(url), peer)


def list_push_targets(places: Places, address: Address) -> list[Address]:
    """The places to which `git push` would go: a remote may have several URLs for that."""
    peer = address.peer
    if peer is None or peer.remote not in remotes.list_remotes(places):
        return [address]
    urls = remotes.read_push_urls(places, peer.remote)
    return [pushed_address(places, peer.remote, url, ref=peer.ref, ask=peer.may_ask) for url in urls]


def parse_url(text: str, *, engine: EngineName = "doltlite", ask: bool = False) -> Address:
    """Any other form of `remote:`.

    Raises `RemoteInvalid` for anything else and for what only another engine reaches.
    """
    if flaw := find_remote_flaw(text):
        raise RemoteInvalid(f"A remote {flaw}", hint="vmrag remote")
    scheme = _scheme(text)
    seen = remotes.redact_url(text)
    if scheme in _GIT_SCHEMES:
        url = text.removeprefix("git+")
        ref = ENGINE_DATA_REFS[engine]
        return Address(_git_key(url, ref), seen, Peer(url, schemes=_GIT_SCHEMES[scheme], may_ask=ask, ref=ref))
    if scheme in _ENGINE_SCHEMES or (engine == "dolt" and (scheme in _DOLT_SCHEMES or is_hosted_database(text))):
        return Address(f"url-{_hash(text)}", seen, url=f"file://{_path(text)}" if scheme == "file" else text)
    raise RemoteInvalid(
        f"{quote_untrusted(text)} needs the engine dolt; the embedded engine travels by git:, git+https|ssh|file://, file:// or http://.",
        hint='Write remote: "git:" into .vmrag.yaml, then: vmrag trust',
        remote=text,
    )


def local_folder(text: str) -> Path | None:
    """Where a remote lies that is reached without a network; None for all others."""
    return Path(_path(text)) if _scheme(text) in ("file", "git+file") else None


def _scheme(text: str) -> str:
    return text.partition("://")[0] if "://" in text else ""


def _path(text: str) -> str:
    """What git and the engine open, letter by letter: for neither does a `?` or a `#` end it."""
    return unquote(text.partition("://")[2])


def parse_remote(
    places: Places,
    text: str,
    *,
    branch: str | None,
    engine: EngineName = "doltlite",
    ref: str = "",
    ask: bool = False,
) -> list[Address]:
    """A remote on the command line: a git remote (name or URL), a URL, `git:`.

    `ref`: where the code's remotes hold the knowledge base, if not where its engine's lie. Raises
    `RemoteMissing`, `RemoteInvalid`.
    """
    data = ENGINE_DATA_REFS[engine]
    if own := parse_git_ref(text, data=data):
        return list_code_addresses(places, branch, ref=own, ask=ask)
    if name := remotes.find_name(places, text):
        return [remote_address(places, name, ref=ref or data, ask=ask)]
    if "://" not in text and "/" not in text:
        raise RemoteMissing(f"There is no git remote {text[:80]!r}.", hint="git remote -v", remote=text)
    return [parse_url(text, engine=engine, ask=ask)]


def _git_key(url: str, ref: str) -> str:
    """The key of a git repository, by any of its names; a changed password makes no other place."""
    place = remotes.redact_url(url)
    return f"git-{_hash(place if ref == DATA_REF else f'{place} {ref}')}"


def _hash(text: str) -> str:
    import hashlib  # a checkout names no remote

    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()[:16]


TRUSTED_KEY = "vmrag.trustedRemote"
ROOTS_KEY = "vmrag.fileRoot"


def require_trusted(places: Places, remote: str, *, accepted: Callable[[], str | None]) -> None:
    """Raises `RemoteNotTrusted` for a remote that neither git's configuration here names nor the
    person agreed to.

    `git:` is the code's own remote, which is contacted for the code anyway. `accepted` gives the
    `remote` of the settings that count here; a folder of this machine that it names must lie below
    a `vmrag.fileRoot` of git's configuration.
    """
    if is_configured_here(places, remote):
        return
    if remote != accepted():
        raise RemoteNotTrusted(
            f"The remote {quote_untrusted(remote)} was not contacted: nobody here has agreed to it.",
            hint=f"{_agree(remote)}   (only if you know whose it is)",
            remote=remote,
        )
    require_below_root(places, remote)


def require_trusted_for_agent(
    places: Places, remote: str, *, accepted: Callable[[], str | None], agreed: Collection[str]
) -> None:
    """As `require`, for an address in an agent's arguments, which a stranger's text may have put
    there.

    `agreed` are the addresses that the person confirmed. If asking could help, the error's details
    hold `ask`: never for a folder outside of the roots, into which a push would write.
    """
    if is_configured_here(places, remote):
        return
    require_below_root(places, remote)
    if remote not in agreed and remote != accepted():
        raise RemoteNotTrusted(
            f"{quote_untrusted(remote)} was not contacted: no remote of this repository has this address, and it is not trusted.",
            hint=f"{_agree(remote)}   (only if you know whose it is)",
            remote=remote,
            ask=True,
        )


def is_configured_here(places: Places, remote: str) -> bool:
    """Whether this machine's git configuration names a remote, as trusted or as the code's."""
    return (
        parse_git_ref(remote) is not None
        or remote in read_config_values(places, TRUSTED_KEY)
        or _is_git_remote(places, remote)
    )


def require_below_root(places: Places, remote: str) -> None:
    """Raises `RemoteNotTrusted` for a local folder that is not below a `vmrag.fileRoot` of git's
    configuration.
    """
    place = local_folder(remote)
    if place is not None and not is_below_root(places, place):
        raise RemoteNotTrusted(
            f"The remote {quote_untrusted(remote)} was not opened: it lies outside of the folders that are allowed.",
            hint=f"{_agree(remote)}   (or all that lies beside it: git config --add {ROOTS_KEY} {quoted(_real(place).parent)})",
            remote=remote,
        )


def is_below_root(places: Places, path: Path) -> bool:
    """Whether a path, links resolved, lies below a `vmrag.fileRoot` of git's configuration."""
    return any(_real(path).is_relative_to(root) for root in _roots(places))


def _agree(remote: str) -> str:
    return f"vmrag remote --trust {quoted(remote)}"


def _is_git_remote(places: Places, remote: str) -> bool:
    """Whether it is one of the configured git remotes by its URL."""
    return remote.startswith("git+") and remote.removeprefix("git+") in read_config_values(
        places, r"remote\..*\.(url|pushurl)"
    )


def _roots(places: Places) -> list[Path]:
    """Only absolute ones: what a relative one is would depend on where a command is started."""
    roots = [Path(os.path.expanduser(root)) for root in read_config_values(places, ROOTS_KEY)]  # noqa: PTH111  never raises
    return [_real(root) for root in roots if root.is_absolute()]


def _real(path: Path) -> Path:
    """`..` and links resolved, as far as there is anything; a ring of links is not followed."""
    return Path(os.path.realpath(path))
