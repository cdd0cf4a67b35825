"""The branch `vmrag_keep`, which reaches what no other branch does."""

from __future__ import annotations

from collections.abc import Callable

from vmrag_link.engines.base import KEEP_BRANCH
from vmrag_link.engines.doltlite import history
from vmrag_link.engines.doltlite.connection import Connection
from vmrag_link.errors import EngineFailed

_NEXT = f"{KEEP_BRANCH}_next"
"""Where the next head is made; what a kill leaves of it is dropped by the next anchor."""


def keep(main: Connection, revision: str, message: str, connect: Callable[[str], Connection]) -> None:
    """Give `vmrag_keep` a merge commit with the parents (its head, `revision`); about 4 ms and 5 KB, whatever they hold.

    A merge of contents could conflict. So the old head is first given a child with exactly the revision's contents: merging
    equal contents changes nothing. This happens on a branch of its own, and moving `vmrag_keep` to the result is the one
    step that counts. `connect` opens a connection on a branch; the caller holds the write lock.
    """
    drop_unfinished(main)
    head = history.branch(main, KEEP_BRANCH)
    if head is None:
        main.execute("SELECT dolt_branch(?, ?)", (KEEP_BRANCH, revision))
        return
    if history.merge_base(main, head.head, revision) is None:
        raise EngineFailed(
            f"The revision {revision[:12]} has no history in common with what is kept already.",
            hint="Give it a branch of its own.",
            revision=revision,
        )
    main.execute("SELECT dolt_branch(?, ?)", (_NEXT, revision))
    with connect(_NEXT) as connection:
        connection.execute("SELECT dolt_reset('--soft', ?)", (head.head,))
        connection.execute("SELECT dolt_commit('-A', '--skip-empty', '-m', ?)", (message,))
        connection.execute("SELECT dolt_merge('--no-ff', '-m', ?, ?)", (message, revision))
        merged = connection.execute("SELECT dolt_hashof('HEAD')")[0][0]
    main.execute("SELECT dolt_branch('-f', ?, ?)", (KEEP_BRANCH, merged))
    drop_unfinished(main)


def drop_unfinished(main: Connection) -> None:
    if history.branch(main, _NEXT):
        main.execute("SELECT dolt_branch('-D', ?)", (_NEXT,))
