"""A temporary folder for an untrusted knowledge base while it is checked, separate from ours."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from vmrag_link import locks, permissions
from vmrag_link.engines.folder import EngineName
from vmrag_link.engines.limits import MEGABYTE, Limits
from vmrag_link.errors import Busy, KnowledgeRefused, RemoteMissing
from vmrag_link.git import remotes, sidecar_repo, transfer
from vmrag_link.git.remotes import Peer
from vmrag_link.paths import Places
from vmrag_link.pin_values import DATA_REF
from vmrag_link.transport import copies

QUARANTINE_KEY = "url-quarantine"
"""The short name under which the engine fetches checked revisions. It is forgotten right after."""

_CODE = "refs/vmrag/code"


class Quarantine(NamedTuple):
    """A repository and a folder for untrusted data."""

    places: Places
    folder: Path

    @property
    def vetted(self) -> Path:
        """The path of a new remote of the engine, for checked revisions."""
        return self.folder / "vetted"

    def fetch_code(self, peer: Peer, ref: str) -> str | None:
        """Fetch the commit of a ref with its history; return None if there is no such ref.

        Raises the errors of `transfer.fetch`.
        """
        return transfer.fetch(self.places, peer, ref, _CODE)

    def fetch_knowledge(self, engine: EngineName, peer: Peer, *, limits: Limits) -> str:
        """Fetch the knowledge base and return its URL on this machine, for the engine.

        Raises `RemoteMissing`, `KnowledgeRefused`, and the errors of `transfer.fetch` and
        `Copy.require_acceptable`.
        """
        where = remotes.redact_url(peer.remote)
        commit = transfer.fetch(self.places, peer, peer.ref, DATA_REF)
        if commit is None:
            raise RemoteMissing(
                f"{where} has no knowledge base.", hint="ask its owner to run 'vmrag push'", remote=where
            )
        copy = copies.open_copy(engine, self.folder / "copy", self.places)
        size = copy.measure_size(self.places, commit)
        limit = limits.file_bytes
        if size > limit:
            raise KnowledgeRefused(
                f"the knowledge base of {where} has {size / MEGABYTE:,.1f} MB, above the limit of {limit / MEGABYTE:,.0f} MB.",
                hint=f"add '--max-mb {-(-size // MEGABYTE)}' if you expect this size",
                remote=where,
                bytes=size,
            )
        copy.require_acceptable(self.places, commit, limits=limits)
        copy.check_out_commit(self.places, commit)
        return copy.url


@contextlib.contextmanager
def open_quarantine(places: Places, *, timeout: float) -> Iterator[Quarantine]:
    """Open the only quarantine. Leftovers of killed processes are removed first.

    `timeout` is in seconds, to wait for another process.
    """
    with locks.hold_exclusive(_lock_path(places), purpose="adopt knowledge", timeout=timeout):
        _remove_folder(places)
        folder = places.quarantine / os.urandom(8).hex()
        git_folder = folder / "git"
        try:
            permissions.make_folder(git_folder)
            repository = sidecar_repo.make_repository(places, git_folder)
            sidecar_repo.add_alternates(places, repository)
            yield Quarantine(repository, folder)
        finally:
            _remove_folder(places)


def list_leftovers(places: Places) -> list[Path]:
    """Return the leftovers of killed processes, unless a process uses the quarantine now."""
    folder = places.quarantine
    return [folder] if folder.exists() and not locks.is_held(_lock_path(places)) else []


def remove_leftovers(places: Places) -> None:
    """Remove the leftovers of killed processes."""
    with contextlib.suppress(Busy), locks.hold_exclusive(_lock_path(places), purpose="clear the quarantine", timeout=0):
        _remove_folder(places)


def _remove_folder(places: Places) -> None:
    if places.quarantine.exists():
        shutil.rmtree(places.quarantine)


def _lock_path(places: Places) -> Path:
    return places.locks / "quarantine.lock"
