"""How long work reports its advance, apart from what draws it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Protocol

BUILDING = "building the index"
INDEXING = "indexing"
EMBEDDING = "embedding"
ASKING = "asking the embedding service"
FETCHING = "fetching"
FOLLOWING = "building Chroma's store"
SHARING = "sending to the Chroma server"
LOOKING_UP = "looking up what revisions need"
DOWNLOADING = "downloading from the Chroma server"
"""What pieces of work are called: people read these names, and hooks know by them what git does not
wait for.
"""

UNITS = {INDEXING: " files"}
"""What the steps of a piece of work are called, if people read that."""


class Task(Protocol):
    def advance(self, steps: int = 1) -> None: ...


class Progress(Protocol):
    def task(self, description: str, total: int) -> contextlib.AbstractContextManager[Task]:
        """A piece of work of `total` steps; used as a context manager.

        A watcher may refuse the work by raising: nothing of it has been done yet.
        """

    def note(self, sentence: str) -> None:
        """One line that a person should see now."""


class _Silent:
    def advance(self, steps: int = 1) -> None:
        pass


class Quiet:
    """Reports nothing: for programs, and where no terminal is."""

    @contextlib.contextmanager
    def task(self, description: str, total: int) -> Iterator[Task]:  # noqa: ARG002
        yield _Silent()

    def note(self, sentence: str) -> None:
        pass


QUIET: Progress = Quiet()
