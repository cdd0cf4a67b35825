"""Where a knowledge base travels to: what `remote:`, a pin's `dolt_remote` or a person on the command line says, as somebody to talk to."""

from __future__ import annotations

import hashlib
import re
from urllib.parse import unquote, urlsplit

from vmrag_link.errors import RemoteInvalid, RemoteMissing
from vmrag_link.git import remotes
from vmrag_link.git.remotes import Peer
from vmrag_link.models import Record
from vmrag_link.paths import Places
from vmrag_link.pin_values import remote_flaw, shown

OWN = "git:"
"""The code repository's own remote."""

_PLAIN = re.compile(r"[A-Za-z0-9_-]{1,60}")
_GIT_SCHEMES = {"git+file": "file", "git+http": "http", "git+https": "https", "git+ssh": "ssh"}
_ENGINE_SCHEMES = ("file", "http", "https")


class Address(Record, frozen=True):
    """One remote. `key`: the short name under which engine and git remember it; `text`: for people, without credentials.

    git talks to `peer`, or (None) the engine to `url`.
    """

    key: str
    text: str
    peer: Peer | None = None
    url: str = ""


def of_code(places: Places, branch: str | None, *, ask: bool = False) -> list[Address]:
    """What `git:` stands for on a code branch, the first to be asked first. Raises `RemoteMissing` where git knows no remote."""
    there = remotes.nearest(places, branch)
    if not there:
        raise RemoteMissing(
            "This repository has no git remote that its knowledge base could travel to.",
            hint="git remote add origin URL (or choose one of several: git config vmrag.remote NAME)",
        )
    return [of_remote(name, ask=ask) for name in there]


def of_remote(name: str, *, ask: bool = False) -> Address:
    """A configured git remote."""
    return Address(_key(name), name, Peer(name, ask=ask))


def of_pushed(places: Places, name: str, url: str, *, ask: bool = False) -> Address:
    """Where `git push` goes, as it tells its hook. Two URLs of one remote are two places."""
    if name in remotes.names(places) and remotes.url(places, name, push=True) == url:
        mirrored = places, f"remote.{name}"
        return of_remote(name, ask=ask) if not _is_mirror(*mirrored) else Address(_key(name), name, Peer(url, ask=ask))
    return Address(_key(url, plain=False), remotes.shown(url), Peer(url, ask=ask))


def _is_mirror(places: Places, section: str) -> bool:
    """`git push NAME REF` is refused for such a remote."""
    from vmrag_link.git.settings import config_section

    return config_section(places, section).get(f"{section}.mirror", "false") == "true"


def of_url(text: str, *, ask: bool = False) -> Address:
    """Any other form of `remote:`. Raises `RemoteInvalid` for what is none, or needs another engine."""
    if flaw := remote_flaw(text):
        raise RemoteInvalid(f"A remote {flaw}", hint="vmrag remote")
    scheme = urlsplit(text).scheme if "://" in text else ""
    if scheme in _GIT_SCHEMES:
        return Address(
            _key(text, plain=False),
            remotes.shown(text),
            Peer(text.removeprefix("git+"), schemes=(_GIT_SCHEMES[scheme],), ask=ask),
        )
    if scheme in _ENGINE_SCHEMES:
        url = "file://" + unquote(urlsplit(text).path) if scheme == "file" else text
        return Address(_key(text, plain=False), remotes.shown(text), url=url)
    raise RemoteInvalid(
        f"{shown(text)} needs the engine dolt; the embedded engine travels by git:, git+https|ssh|file://, file:// or http://.",
        hint='Write into .vmrag.yaml: remote: "git:"',
        remote=text,
    )


def given(places: Places, text: str, *, branch: str | None, ask: bool = False) -> list[Address]:
    """What a person names on the command line: a git remote, `git:`, a URL. Raises `RemoteMissing`, `RemoteInvalid`."""
    if text == OWN:
        return of_code(places, branch, ask=ask)
    if text in remotes.names(places):
        return [of_remote(text, ask=ask)]
    if "://" not in text and "/" not in text:
        raise RemoteMissing(f"There is no git remote {text[:80]!r}.", hint="git remote -v", remote=text)
    return [of_url(text, ask=ask)]


def _key(text: str, *, plain: bool = True) -> str:
    if plain and _PLAIN.fullmatch(text):
        return text
    return f"url-{hashlib.sha256(text.encode(errors='surrogateescape')).hexdigest()[:16]}"
