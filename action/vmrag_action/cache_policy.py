"""Whether the job's caches are read and written, and by which keys: that of the packages, which is
read before anything is installed, and that of vectors.

A key ends with the run, so that a cache that proved wrong is followed by a better one: an entry
cannot be written twice. The others are the beginnings of keys, and the newest match counts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:  # the installation asks before any of ours can be imported
    from vmrag_link.settings import Config

LAYOUT = "vmrag-2"
"""Rises with what a cache of vectors holds."""

LAYOUT_OF_PACKAGES = "vmrag-packages-1"

NOT_AUTOMATIC = ("release", "pull_request_target", "workflow_run")
"""Jobs that publish, or have secrets beside a stranger's input: a cache is read only if asked."""


class Keys(NamedTuple):
    """`key` to write; `prefixes` to read, the best first."""

    key: str
    prefixes: tuple[str, ...]


class Access(NamedTuple):
    read: bool
    write: bool


def folder(temp: Path) -> Path:
    """Where the vectors lie while the job runs: outside of the repository, and never served
    from.
    """
    return temp / "vmrag-cache"


def keys(environ: Mapping[str, str], config: Config, revision: str) -> Keys:
    """By system, architecture, format of the index, settings, revision. All of them have a known
    form.
    """
    import msgspec

    from vmrag_link import __version__
    from vmrag_link.index.view import SUFFIX
    from vmrag_link.models import canonical_json

    decisive = canonical_json(
        {
            "embedding": msgspec.to_builtins(config.embedding),
            "chunking": msgspec.to_builtins(config.chunking),
            "version": __version__,
        }
    )
    settings = hashlib.sha256(decisive.encode()).hexdigest()[:16]
    machine = "-".join((LAYOUT, *_machine(environ), SUFFIX))
    pinned = f"{machine}-{settings}-{revision}"
    return Keys(f"{pinned}-{_run(environ)}", (f"{pinned}-", f"{machine}-{settings}-", f"{machine}-"))


def keys_of_packages(environ: Mapping[str, str], digest: str) -> Keys:
    """`digest` says which packages, for which machine and Python. Of the Action's own code nothing
    is kept.
    """
    prefix = "-".join((LAYOUT_OF_PACKAGES, *_machine(environ), digest[:32], ""))
    return Keys(prefix + _run(environ), (prefix,))


def access(environ: Mapping[str, str], asked: str, *, saves: bool) -> Access:
    """`saves`: the workflow wants it, and the event is one of the default branch that no stranger
    causes (`Comparison.saves`).
    """
    hosted = environ.get("RUNNER_ENVIRONMENT") == "github-hosted"
    tag = environ.get("GITHUB_REF", "").startswith("refs/tags/")
    careful = not hosted or tag or environ.get("GITHUB_EVENT_NAME", "") in NOT_AUTOMATIC
    if asked != "true" and (asked != "auto" or careful):
        return Access(read=False, write=False)
    return Access(read=True, write=saves)


def _machine(environ: Mapping[str, str]) -> tuple[str, str]:
    return _plain(environ.get("RUNNER_OS", "")), _plain(environ.get("RUNNER_ARCH", ""))


def _run(environ: Mapping[str, str]) -> str:
    """What no other run is called."""
    return _plain(f"{environ.get('GITHUB_RUN_ID', '0')}.{environ.get('GITHUB_RUN_ATTEMPT', '1')}")


def _plain(text: str) -> str:
    return "".join(sign if sign.isascii() and (sign.isalnum() or sign == ".") else "_" for sign in text) or "_"
