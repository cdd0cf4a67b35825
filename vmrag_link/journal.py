"""Operations that must be finished after a kill: one small file each, durable before the operation's first step."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from vmrag_link.errors import FileFailed
from vmrag_link.models import Record
from vmrag_link.paths import write_atomically


class CommitEntry(Record, frozen=True, tag="commit"):
    """A commit of a KB branch that is to be pinned.

    `git_dir` names the work tree, `symbolic` its HEAD, `pin` the pin's bytes (as text) before, `parent` the KB branch's head before.
    """

    git_dir: str
    symbolic: str
    pin: str | None
    kb_branch: str
    parent: str


class Journal:
    """The entries of all work trees of a repository."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @contextlib.contextmanager
    def entry(self, entry: CommitEntry) -> Iterator[None]:
        """The entry is durable before the block begins, and goes away when it ends without an error.

        After an error it stays: who comes next finishes what was begun, or sees that nothing was. Raises `FileFailed`
        (a full disk) before the block.
        """
        path = self._folder / f"commit-{os.urandom(8).hex()}.json"
        try:
            write_atomically(path, msgspec.json.encode(entry), durable=True)
        except OSError as error:
            raise FileFailed(
                f"Nothing was committed: the journal cannot be written ({error.strerror}).",
                hint=f"Make room on the disk of {self._folder}, then run the command again.",
                path=str(path),
            ) from error
        yield
        self.finish(path)

    def entries(self, git_dir: Path) -> list[tuple[Path, CommitEntry]]:
        """What a killed operation of this work tree left, oldest first."""
        if not self._folder.is_dir():
            return []
        read = (
            (path, msgspec.json.decode(path.read_bytes(), type=CommitEntry)) for path in self._folder.glob("*.json")
        )
        mine = [(path, entry) for path, entry in read if entry.git_dir == str(git_dir)]
        return sorted(mine, key=lambda each: each[0].stat().st_mtime_ns)

    def finish(self, path: Path) -> None:
        path.unlink(missing_ok=True)
