"""The interface through which work reports its progress, without drawing it."""

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
"""Names of kinds of work. Users read them, and hooks recognize by them the work for which git does
not wait.
"""

UNITS = {INDEXING: " files"}
"""Names of the steps of a kind of work, if users read them."""


class Task(Protocol):
    def advance(self, steps: int = 1) -> None: ...


class Progress(Protocol):
    def task(self, description: str, total: int) -> contextlib.AbstractContextManager[Task]:
        """Begin work of `total` steps, as a context manager.

        The receiver can refuse the work by raising an exception. None of it has been done then.
        """

    def note(self, sentence: str) -> None:
        """Show one line to the user now."""


class _Silent:
    def advance(self, steps: int = 1) -> None:
        pass


class Quiet:
    """Progress that reports nothing, for programs and without a terminal."""

    @contextlib.contextmanager
    def task(self, description: str, total: int) -> Iterator[Task]:  # noqa: ARG002
        yield _Silent()

    def note(self, sentence: str) -> None:
        pass


QUIET: Progress = Quiet()
