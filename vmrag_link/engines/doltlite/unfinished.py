"""The branch on which a revision is made that no branch leads to yet. It counts as no branch."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from vmrag_link.engines.base import UNFINISHED_BRANCH
from vmrag_link.engines.doltlite.connection import Connection


@contextlib.contextmanager
def branch(main: Connection, revision: str, connect: Callable[[str], Connection]) -> Iterator[Connection]:
    """A connection on the branch, which is made at the revision and dropped at the end. Do not
    nest.

    The caller holds the write lock until the result is anchored. `connect` opens a connection on a
    branch.
    """
    drop(main)
    main.execute("SELECT dolt_branch(?, ?)", (UNFINISHED_BRANCH, revision))
    try:
        with connect(UNFINISHED_BRANCH) as connection:
            yield connection
    finally:
        drop(main)


def drop(main: Connection) -> None:
    """Remove the branch, if a kill has left it. The caller holds the write lock."""
    if main.execute("SELECT 1 FROM dolt_branches WHERE name = ?", (UNFINISHED_BRANCH,)):
        main.execute("SELECT dolt_branch('-D', ?)", (UNFINISHED_BRANCH,))
