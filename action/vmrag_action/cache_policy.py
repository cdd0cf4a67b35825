"""Whether the job's cache is read and written, and by which keys.

A key ends with the run, so that a cache that proved wrong is followed by a better one: an entry
cannot be written twice. The others are the beginnings of keys, and the newest match counts.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import NamedTuple

import msgspec

from vmrag_action.inputs import Caching
from vmrag_action.runner import WorkflowJob
from vmrag_link import __version__
from vmrag_link.index.verify import SUFFIX
from vmrag_link.models import canonical_json
from vmrag_link.settings import Config

LAYOUT = "vmrag-2"
"""Rises with what a cache holds."""

NOT_AUTOMATIC = ("release", "pull_request_target", "workflow_run")
"""Jobs that publish, or have secrets beside a stranger's input: a cache is read only if asked."""


class Keys(NamedTuple):
    """`key` to write; `prefixes` to read, the best first."""

    key: str
    prefixes: tuple[str, ...]


class Access(NamedTuple):
    read: bool
    write: bool


def folder(job: WorkflowJob) -> Path:
    """Where the cache lies while the job runs: outside of the repository, and never served from."""
    return job.temp / "vmrag-cache"


def keys(job: WorkflowJob, config: Config, revision: str) -> Keys:
    """By system, architecture, format of the index, settings, revision. All of them have a known
    form.
    """
    decisive = canonical_json(
        {
            "embedding": msgspec.to_builtins(config.embedding),
            "chunking": msgspec.to_builtins(config.chunking),
            "version": __version__,
        }
    )
    settings = hashlib.sha256(decisive.encode()).hexdigest()[:16]
    machine = "-".join((LAYOUT, _plain(job.system), _plain(job.architecture), SUFFIX))
    pinned = f"{machine}-{settings}-{revision}"
    return Keys(f"{pinned}-{_plain(job.run)}", (f"{pinned}-", f"{machine}-{settings}-", f"{machine}-"))


def access(job: WorkflowJob, asked: Caching, *, saves: bool) -> Access:
    """`saves`: the workflow wants it, and the event is one of the default branch that no stranger
    causes (`Comparison.saves`).
    """
    careful = not job.hosted or job.event in NOT_AUTOMATIC or job.ref.startswith("refs/tags/")
    if asked == "false" or (asked == "auto" and careful):
        return Access(read=False, write=False)
    return Access(read=True, write=saves)


def _plain(text: str) -> str:
    return "".join(sign if sign.isascii() and (sign.isalnum() or sign == ".") else "_" for sign in text) or "_"
