"""A place for a stranger's knowledge base while it is checked, apart from ours and removed
afterwards.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from vmrag_link import locks, permissions
from vmrag_link.engines.base import EngineName
from vmrag_link.engines.limits import MEGABYTE, Limits
from vmrag_link.errors import Busy, KnowledgeRefused, RemoteMissing
from vmrag_link.git import remotes, sidecar_repo, transfer
from vmrag_link.git.remotes import Peer
from vmrag_link.paths import Places
from vmrag_link.pin_values import DATA_REF
from vmrag_link.transport import copies

QUARANTINE_KEY = "url-quarantine"
"""The short name under which the engine fetches what came out of here; forgotten at once."""

_CODE = "refs/vmrag/code"


class Quarantine(NamedTuple):
    """`places`: a repository of its own. `vetted`: the path of a new remote of the engine's, for
    what may leave.
    """

    places: Places
    folder: Path

    @property
    def vetted(self) -> Path:
        return self.folder / "vetted"

    def fetch_code(self, peer: Peer, ref: str) -> str | None:
        """Fetch the commit of a ref with its history; None if there is no such ref.

        Raises as `transfer.fetch`.
        """
        return transfer.fetch(self.places, peer, ref, _CODE)

    def fetch_knowledge(self, engine: EngineName, peer: Peer, *, limits: Limits) -> str:
        """A URL of its knowledge base on this machine, as the engine takes it.

        Raises as `code`, `RemoteMissing`, and as `Copy.require_acceptable`.
        """
        where = remotes.redact_url(peer.remote)
        commit = transfer.fetch(self.places, peer, peer.ref, DATA_REF)
        if commit is None:
            raise RemoteMissing(
                f"{where} has no knowledge base.",
                hint="Ask whose it is to push it: vmrag push (git push does it with the hooks installed)",
                remote=where,
            )
        copy = copies.open_copy(engine, self.folder / "copy", self.places)
        size, limit = copy.measure_size(self.places, commit), limits.file_bytes
        if size > limit:
            raise KnowledgeRefused(
                f"The knowledge base of {where} has {size / MEGABYTE:,.1f} MB; at most {limit / MEGABYTE:,.0f} are looked at.",
                hint=f"If that is what you expect: --max-mb {-(-size // MEGABYTE)}",
                remote=where,
                bytes=size,
            )
        copy.require_acceptable(self.places, commit, limits=limits)
        copy.check_out_commit(self.places, commit)
        return copy.url


@contextlib.contextmanager
def open_quarantine(places: Places, *, timeout: float) -> Iterator[Quarantine]:
    """One at a time; leftovers of killed ones go first.

    `timeout`: seconds to wait for another one.
    """
    with locks.hold_exclusive(_lock(places), purpose="adopt knowledge", timeout=timeout):
        _clear(places)
        folder = places.quarantine / os.urandom(8).hex()
        store = folder / "git"
        try:
            permissions.make_folder(store)
            strange = sidecar_repo.make_repository(places, store)
            sidecar_repo.add_alternates(places, strange)
            yield Quarantine(strange, folder)
        finally:
            _clear(places)


def list_leftovers(places: Places) -> list[Path]:
    """The leftovers of killed processes, while nobody is at work here."""
    there = places.quarantine
    return [there] if there.exists() and not locks.is_held(_lock(places)) else []


def remove_leftovers(places: Places) -> None:
    """Remove it."""
    with contextlib.suppress(Busy), locks.hold_exclusive(_lock(places), purpose="clear the quarantine", timeout=0):
        _clear(places)


def _clear(places: Places) -> None:
    if places.quarantine.exists():
        shutil.rmtree(places.quarantine)


def _lock(places: Places) -> Path:
    return places.locks / "quarantine.lock"
