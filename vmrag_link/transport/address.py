"""Addresses of remotes: parsing them, and checking whether vmrag may contact them.

An address comes from `remote:`, a pin's `dolt_remote`, or the argument of a command. Pin and
settings may be untrusted, so a remote is contacted only if git's configuration or the user allows
it. The engine of the knowledge base decides which forms of addresses are possible.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from pathlib import Path
from urllib.parse import unquote

from vmrag_link.engines.folder import EngineName
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

TRUSTED_KEY = "vmrag.trustedRemote"
"""The git setting with the remotes that the user trusts."""
ROOTS_KEY = "vmrag.fileRoot"
"""The git setting with the folders below which a remote may be."""

_NETWORK = ("https", "ssh")
_GIT_SCHEMES = {"git+file": ("file",), "git+http": ("http", *_NETWORK), "git+https": _NETWORK, "git+ssh": _NETWORK}
"""The transports that git may use, even if an `insteadOf` or a redirection names another one.

Each of them is at least as secure as the one in the address.
"""

_ENGINE_SCHEMES = ("file", "http", "https")
_DOLT_SCHEMES = (*_ENGINE_SCHEMES, "ssh", "aws", "gs", "az", "oci", "oss", "s3")
"""Dolt itself supports cloud buckets and ssh. vmrag was not tested with them."""


class Address(Record, frozen=True):
    """One remote. git contacts `peer`; without `peer`, the engine contacts `url`."""

    key: str
    """The short name in engine and git, made from the URL.

    A git remote that gets another URL gets another key, and so does another ref.
    """
    text: str
    """The address to show, without credentials."""
    peer: Peer | None = None
    url: str = ""


def list_code_addresses(places: Places, branch: str | None, *, ref: str = DATA_REF, ask: bool = False) -> list[Address]:
    """Return the addresses that `git:` means on a code branch, the preferred one first.

    `ref` is the ref with the knowledge base. Raises `RemoteMissing` if git has no remote.
    """
    return _list_addresses(places, remotes.list_for_reading(places, branch), ref=ref, ask=ask)


def list_code_push_addresses(
    places: Places, branch: str | None, *, ref: str = DATA_REF, ask: bool = False
) -> list[Address]:
    """Return the addresses to which `git push` pushes on a code branch, the preferred one first.

    Raises `RemoteMissing` if git has no remote.
    """
    return _list_addresses(places, remotes.list_for_writing(places, branch), ref=ref, ask=ask)


def _list_addresses(places: Places, names: list[str], *, ref: str, ask: bool) -> list[Address]:
    if names:
        return [remote_address(places, name, ref=ref, ask=ask) for name in names]
    if remotes.list_remotes(places):
        raise RemoteMissing(
            "cannot choose one of several git remotes for the knowledge base.",
            hint="run 'git remote -v' to list them, then 'git config vmrag.remote NAME' to choose one",
        )
    raise RemoteEmpty("this repository has no git remote.", hint="run 'git remote add origin URL' to add one")


def remote_address(places: Places, name: str, *, ref: str = DATA_REF, ask: bool = False) -> Address:
    """Return the address of a configured git remote for fetching."""
    return Address(_git_key(remotes.read_url(places, name), ref), name, Peer(name, may_ask=ask, ref=ref))


def pushed_address(places: Places, name: str, url: str, *, ref: str = DATA_REF, ask: bool = False) -> Address:
    """Return the address to which `git push` pushes, as it tells its hook.

    Each URL of one remote has an address. The name means the URL for fetches.
    """
    is_configured = name in remotes.list_remotes(places) and remotes.read_url(places, name) == url
    is_only = is_configured and remotes.read_push_urls(places, name) == [url]
    peer = Peer(name if is_only else url, may_ask=ask, ref=ref)
    return Address(_git_key(url, ref), name if is_configured else remotes.redact_url(url), peer)


def list_push_targets(places: Places, address: Address) -> list[Address]:
    """Return the addresses to which `git push` would push: a remote may have several URLs."""
    peer = address.peer
    if peer is None or peer.remote not in remotes.list_remotes(places):
        return [address]
    urls = remotes.read_push_urls(places, peer.remote)
    return [pushed_address(places, peer.remote, url, ref=peer.ref, ask=peer.may_ask) for url in urls]


def parse_url(text: str, *, engine: EngineName = "doltlite", ask: bool = False) -> Address:
    """Parse any other form of `remote:`.

    Raises `RemoteInvalid` for anything else, and for addresses that only another engine can reach.
    """
    if flaw := find_remote_flaw(text):
        raise RemoteInvalid(f"invalid remote: it {flaw}", hint="run 'vmrag remote' to list the remotes")
    scheme = _parse_scheme(text)
    shown = remotes.redact_url(text)
    if scheme in _GIT_SCHEMES:
        url = text.removeprefix("git+")
        ref = ENGINE_DATA_REFS[engine]
        return Address(_git_key(url, ref), shown, Peer(url, schemes=_GIT_SCHEMES[scheme], may_ask=ask, ref=ref))
    if scheme in _ENGINE_SCHEMES or (engine == "dolt" and (scheme in _DOLT_SCHEMES or is_hosted_database(text))):
        return Address(f"url-{_short_hash(text)}", shown, url=f"file://{_url_path(text)}" if scheme == "file" else text)
    raise RemoteInvalid(
        f"{quote_untrusted(text)} needs the engine dolt; the embedded engine supports git:, git+https|ssh|file://, file:// and http://.",
        hint="set 'remote: \"git:\"' in .vmrag.yaml, then run 'vmrag trust'",
        remote=text,
    )


def local_folder(text: str) -> Path | None:
    """Return the folder of a remote that needs no network, or None for all others."""
    return Path(_url_path(text)) if _parse_scheme(text) in ("file", "git+file") else None


def _parse_scheme(text: str) -> str:
    return text.partition("://")[0] if "://" in text else ""


def _url_path(text: str) -> str:
    """Return the path that git and the engine open. For both, `?` and `#` are part of the path."""
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
    """Parse a remote on the command line: a git remote (name or URL), a URL, or `git:`.

    `ref` is the ref of the code's remotes with the knowledge base, if it is not the engine's.
    Raises `RemoteMissing` and `RemoteInvalid`.
    """
    data = ENGINE_DATA_REFS[engine]
    if code_ref := parse_git_ref(text, data=data):
        return list_code_addresses(places, branch, ref=code_ref, ask=ask)
    if name := remotes.find_name(places, text):
        return [remote_address(places, name, ref=ref or data, ask=ask)]
    if "://" not in text and "/" not in text:
        raise RemoteMissing(
            f"no such git remote: {text[:80]!r}.", hint="run 'git remote -v' to list the remotes", remote=text
        )
    return [parse_url(text, engine=engine, ask=ask)]


def _git_key(url: str, ref: str) -> str:
    """Return the key of a git repository, for any of its names.

    A changed password does not change it.
    """
    public_url = remotes.redact_url(url)
    return f"git-{_short_hash(public_url if ref == DATA_REF else f'{public_url} {ref}')}"


def _short_hash(text: str) -> str:
    import hashlib  # a checkout does not need it

    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()[:16]


def require_trusted(places: Places, remote: str, *, accepted: Callable[[], str | None]) -> None:
    """Raise `RemoteNotTrusted` unless git's configuration here or the user allows the remote.

    `git:` is the code's own remote, which git contacts for the code in any case. `accepted` returns
    the `remote` of the trusted settings. A local folder in it must also be below a git setting
    `vmrag.fileRoot`.
    """
    if is_configured_here(places, remote):
        return
    if remote != accepted():
        raise RemoteNotTrusted(
            f"did not contact the untrusted remote {quote_untrusted(remote)}.",
            hint=f"run '{_trust_command(remote)}' if you know its owner",
            remote=remote,
        )
    require_below_root(places, remote)


def require_trusted_for_agent(
    places: Places, remote: str, *, accepted: Callable[[], str | None], agreed: Collection[str]
) -> None:
    """Raise `RemoteNotTrusted` for an address in an agent's arguments, unless the user allows it.

    Untrusted text may have put it there. `agreed` are the addresses that the user confirmed. The
    details of the error hold `ask` if a question to the user could help. They never do for a folder
    outside of the roots, because a push would write there.
    """
    if is_configured_here(places, remote):
        return
    require_below_root(places, remote)
    if remote not in agreed and remote != accepted():
        raise RemoteNotTrusted(
            f"did not contact {quote_untrusted(remote)}: it is not a remote of this repository, and you have not trusted it.",
            hint=f"run '{_trust_command(remote)}' if you know its owner",
            remote=remote,
            ask=True,
        )


def is_configured_here(places: Places, remote: str) -> bool:
    """Return whether this machine's git configuration has a remote, as trusted or as the code's."""
    return (
        parse_git_ref(remote) is not None
        or remote in read_config_values(places, TRUSTED_KEY)
        or _is_git_remote(places, remote)
    )


def require_below_root(places: Places, remote: str) -> None:
    """Raise `RemoteNotTrusted` for a local folder outside of each git setting `vmrag.fileRoot`."""
    folder = local_folder(remote)
    if folder is not None and not is_below_root(places, folder):
        raise RemoteNotTrusted(
            f"did not open the remote {quote_untrusted(remote)}: it is outside of the allowed folders.",
            hint=f"run '{_trust_command(remote)}', or 'git config --add {ROOTS_KEY} "
            f"{quoted(_resolve_path(folder).parent)}' to allow its parent folder",
            remote=remote,
        )


def is_below_root(places: Places, path: Path) -> bool:
    """Return whether a path, with links resolved, is below a git setting `vmrag.fileRoot`."""
    return any(_resolve_path(path).is_relative_to(root) for root in _list_roots(places))


def _trust_command(remote: str) -> str:
    return f"vmrag remote --trust {quoted(remote)}"


def _is_git_remote(places: Places, remote: str) -> bool:
    """Return whether a remote is the URL of a configured git remote."""
    return remote.startswith("git+") and remote.removeprefix("git+") in read_config_values(
        places, r"remote\..*\.(url|pushurl)"
    )


def _list_roots(places: Places) -> list[Path]:
    """Return the absolute roots.

    The meaning of a relative one would depend on the current directory.
    """
    roots = [Path(os.path.expanduser(root)) for root in read_config_values(places, ROOTS_KEY)]  # noqa: PTH111  never raises
    return [_resolve_path(root) for root in roots if root.is_absolute()]


def _resolve_path(path: Path) -> Path:
    """Resolve `..` and links as far as the path exists. A ring of links is not followed."""
    return Path(os.path.realpath(path))
