"""The input of a sync, and the view that it built."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from vmrag_link.engines.base import Engine
from vmrag_link.index.views import Views
from vmrag_link.index.working import WorkingCopy
from vmrag_link.models import ChangeCounts, ChunkCounts, Record
from vmrag_link.paths import Places
from vmrag_link.progress import Progress
from vmrag_link.sync.chroma_state import ChromaStores

if TYPE_CHECKING:
    from vmrag_link.merging.threeway import Derived
    from vmrag_link.sync.indexer import Indexer


How = Literal["reused", "delta", "fresh"]


class Built(Record, frozen=True):
    """A provided view. `changes` and `chunks` count what the base did not have."""

    path: Path
    how: How
    changes: ChangeCounts
    chunks: ChunkCounts
    seconds: dict[str, float]
    """Seconds by step."""


class SyncContext(NamedTuple):
    """One work tree, its knowledge base and its indexes."""

    places: Places
    index_file: Path | None
    """The index of the git commit whose hook this is."""
    engine: Engine
    views: Views
    chroma: ChromaStores
    keep_bytes: int
    lock_timeout: float
    indexer: Callable[[], Indexer]
    progress: Progress
    derived: Derived
    """Return True if a file needs no stored document."""

    def working_copy(self, kb_branch: str, base: str) -> WorkingCopy:
        """Return the index of the uncommitted documents of a KB branch on a revision. It may not
        exist yet.
        """
        return WorkingCopy(self.places.working_copies, kb_branch=kb_branch, base=base, timeout=self.lock_timeout)

    @contextlib.contextmanager
    def without_copy(self, kb_branch: str, base: str) -> Iterator[None]:
        """Discard the working copy, and keep other processes from making one, while the block
        writes rows without indexing them.
        """
        copy = self.working_copy(kb_branch, base)
        with copy.lock_for_writing():
            copy.remove_copy()
            yield
