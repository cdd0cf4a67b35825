"""The keys of the job's caches of packages and of vectors, and which job uses a cache.

A key ends with the run, because GitHub writes no entry twice: a better cache can then follow a bad
one. During the installation, only the standard library can be imported.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from vmrag_link.settings import Config

LAYOUT = "vmrag-2"
"""Changes with the contents of the cache of vectors."""

PACKAGES_LAYOUT = "vmrag-packages-1"

NOT_AUTOMATIC = ("release", "pull_request_target", "workflow_run")
"""Events of jobs that publish, or have secrets next to untrusted input. They read a cache only if
the workflow asks for it.
"""


class CacheKeys(NamedTuple):
    key: str
    """The key to write."""
    prefixes: tuple[str, ...]
    """Beginnings of keys to read, the best first. GitHub uses the newest match."""


class CacheAccess(NamedTuple):
    read: bool
    write: bool


def vectors_folder(temp: Path) -> Path:
    """Return the folder of the vectors while the job runs.

    It is outside the repository, and nothing is served from it.
    """
    return temp / "vmrag-cache"


def compute_vector_keys(environ: Mapping[str, str], config: Config, revision: str) -> CacheKeys:
    """Return the keys for vectors, by system, architecture, format of the index, settings and
    revision.

    All of them have a known form.
    """
    import msgspec

    from vmrag_link import __version__
    from vmrag_link.index.view import SUFFIX
    from vmrag_link.models import encode_canonical_json

    decisive = encode_canonical_json(
        {
            "embedding": msgspec.to_builtins(config.embedding),
            "chunking": msgspec.to_builtins(config.chunking),
            "version": __version__,
        }
    )
    settings = hashlib.sha256(decisive.encode()).hexdigest()[:16]
    machine = "-".join((LAYOUT, *_describe_machine(environ), SUFFIX))
    pinned = f"{machine}-{settings}-{revision}"
    return CacheKeys(f"{pinned}-{_identify_run(environ)}", (f"{pinned}-", f"{machine}-{settings}-", f"{machine}-"))


def compute_package_keys(environ: Mapping[str, str], digest: str) -> CacheKeys:
    """Return the keys for packages.

    `digest` identifies the packages, the machine and Python. The code of the Action is not cached.
    """
    prefix = "-".join((PACKAGES_LAYOUT, *_describe_machine(environ), digest[:32], ""))
    return CacheKeys(prefix + _identify_run(environ), (prefix,))


def decide_access(environ: Mapping[str, str], mode: str, *, saves: bool) -> CacheAccess:
    """Return whether the job reads and writes a cache.

    `mode` is the input `enable-cache`: `auto`, `true` or `false`. `saves` is True if the workflow
    wants to write, and the event is on the default branch and not caused by an untrusted user
    (`Comparison.saves`).
    """
    hosted = environ.get("RUNNER_ENVIRONMENT") == "github-hosted"
    tag = environ.get("GITHUB_REF", "").startswith("refs/tags/")
    is_risky = not hosted or tag or environ.get("GITHUB_EVENT_NAME", "") in NOT_AUTOMATIC
    if mode != "true" and (mode != "auto" or is_risky):
        return CacheAccess(read=False, write=False)
    return CacheAccess(read=True, write=saves)


def _describe_machine(environ: Mapping[str, str]) -> tuple[str, str]:
    return _clean_name(environ.get("RUNNER_OS", "")), _clean_name(environ.get("RUNNER_ARCH", ""))


def _identify_run(environ: Mapping[str, str]) -> str:
    """Return a text that identifies this run."""
    return _clean_name(f"{environ.get('GITHUB_RUN_ID', '0')}.{environ.get('GITHUB_RUN_ATTEMPT', '1')}")


def _clean_name(text: str) -> str:
    return "".join(sign if sign.isascii() and (sign.isalnum() or sign == ".") else "_" for sign in text) or "_"
