"""Operations that must be finished after a kill: one small file each, durable before the
operation's first step.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from vmrag_link.errors import FileFailed, system_failure
from vmrag_link.formats import require_known_format
from vmrag_link.models import Record
from vmrag_link.paths import read_regular, write_atomically

MAX_ENTRY_BYTES = 1 << 16
"""Bytes; an entry holds a pin and a few names."""

FORMAT = 1
"""The format of an entry, which a newer program's entries exceed."""

LONGEST_PATH, LONGEST_NAME = 4096, 255
"""Bytes; with more the system refuses to look."""


class CommitEntry(Record, frozen=True, tag="commit"):
    """A commit of a KB branch that is to be pinned.

    `git_dir` names the work tree, `symbolic` its HEAD, `pin` the pin's bytes (as text) before,
    `parent` the KB branch's head before.
    """

    git_dir: str
    symbolic: str
    pin: str | None
    kb_branch: str
    parent: str
    format: int = FORMAT


class ReplayEntry(Record, frozen=True, tag="replay"):
    """Uncommitted documents of a KB branch are carried from the revision `head` to the revision
    `to`.

    `aside` is the KB branch that holds them in a commit meanwhile.
    """

    kb_branch: str
    head: str
    to: str
    aside: str
    format: int = FORMAT


Entry = CommitEntry | ReplayEntry


class Journal:
    """The entries of all work trees of a repository."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @contextlib.contextmanager
    def record_entry(self, entry: Entry) -> Iterator[None]:
        """Write the entry durably, run the block, and remove the entry.

        After an error or a kill it stays: the next command finishes what was begun. Raises
        `FileFailed` (a full disk) before the block.
        """
        kind = "commit" if isinstance(entry, CommitEntry) else "replay"
        path = self._folder / f"{kind}-{os.urandom(8).hex()}.json"
        try:
            write_atomically(path, _encode(entry))
        except OSError as error:
            known = system_failure(error)
            raise FileFailed(
                f"Nothing was done: the journal in {self._folder} cannot be written ({error.strerror}).",
                hint=known.hint if known else f"ls -la '{self._folder}'",
                path=str(path),
            ) from error
        yield
        self.remove_entry(path)

    def list_entries(self) -> list[tuple[Path, Entry | None]]:
        """The entries of operations under way and of killed ones, oldest first; None for a file
        that no operation can have written.

        Raises `FormatTooNew` for a newer program's entry: what it began is its own to finish.
        """
        found = []
        for path in self._folder.glob("*.json"):
            with contextlib.suppress(FileNotFoundError):  # its operation ends right now
                found.append((path.lstat().st_mtime_ns, path, _read(path)))
        return [(path, entry) for _, path, entry in sorted(found, key=lambda each: each[:2])]

    def remove_entry(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def mark_damaged(self, path: Path) -> Path:
        """Rename a damaged entry, so that no command works it off; returns its new path."""
        names = (path.with_name(f"{path.stem}{f'-{number}' if number else ''}.damaged") for number in itertools.count())
        return path.rename(next(name for name in names if not os.path.lexists(name)))


# By the standard library: names of paths and branches that are not UTF-8 are lone surrogates, which
# msgspec's JSON refuses.


def _encode(entry: Entry) -> bytes:
    return json.dumps(msgspec.to_builtins(entry)).encode()


def _read(path: Path) -> Entry | None:
    """Raises `FileNotFoundError`, `FormatTooNew`."""
    try:
        content = read_regular(path, MAX_ENTRY_BYTES + 1)
    except FileNotFoundError:
        raise
    except OSError:
        return None
    if len(content) > MAX_ENTRY_BYTES:
        return None
    require_known_format(content, FORMAT, what="An operation that was interrupted", path=path)
    return _decode(content)


def _decode(content: bytes) -> Entry | None:
    try:
        entry: Entry = msgspec.convert(json.loads(content), type=Entry)
    except (ValueError, RecursionError):  # ValidationError is a ValueError
        return None
    values = msgspec.to_builtins(entry)
    pin, _ = values.pop("pin", None), values.pop("format")
    return entry if all(map(_is_possible_name, values.values())) and "\0" not in (pin or "") else None


def _is_possible_name(name: str) -> bool:
    """Whether a folder, a branch or a revision can have this name."""
    try:
        raw = os.fsencode(name)
    except UnicodeEncodeError:
        return False
    return b"\0" not in raw and len(raw) < LONGEST_PATH and all(len(each) <= LONGEST_NAME for each in raw.split(b"/"))
