"""The journal of operations that must be finished if their process is killed.

Each operation writes a small file durably before its first step.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from vmrag_link.errors import FileFailed, quoted, system_failure
from vmrag_link.file_access import read_regular, write_atomically
from vmrag_link.formats import require_known_format
from vmrag_link.models import Record

MAX_ENTRY_BYTES = 1 << 16
"""An entry contains a pin and a few names."""

FORMAT = 1
"""The format of an entry. Entries of newer programs have a higher one."""

_MAX_PATH_BYTES = 4096
_MAX_NAME_BYTES = 255
"""The system refuses longer paths and names."""


class CommitEntry(Record, frozen=True, tag="commit"):
    """A commit of a KB branch whose revision is still to be pinned."""

    git_dir: str
    """The git directory of the work tree."""
    symbolic: str
    """The HEAD of the work tree."""
    pin: str | None
    """The bytes of the pin before the commit, as text."""
    kb_branch: str
    parent: str
    """The head of the KB branch before the commit."""
    format: int = FORMAT


class ReplayEntry(Record, frozen=True, tag="replay"):
    """A move of a KB branch's uncommitted documents from the revision `head` to the revision
    `to`.
    """

    kb_branch: str
    head: str
    to: str
    aside: str
    """The KB branch with a commit of these documents in the meantime."""
    format: int = FORMAT


Entry = CommitEntry | ReplayEntry


class Journal:
    """The entries of all work trees of a repository."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @contextlib.contextmanager
    def record_entry(self, entry: Entry) -> Iterator[None]:
        """Write the entry durably, run the block, and remove the entry.

        After an error or a kill, the entry stays, and the next command finishes the operation.
        Raises `FileFailed` before the block, for example if the disk is full.
        """
        kind = "commit" if isinstance(entry, CommitEntry) else "replay"
        path = self._folder / f"{kind}-{os.urandom(8).hex()}.json"
        try:
            # The standard library also encodes lone surrogates, in names that are not UTF-8.
            write_atomically(path, json.dumps(msgspec.to_builtins(entry)).encode())
        except OSError as error:
            failure = system_failure(error)
            raise FileFailed(
                f"nothing was done: cannot write the journal in {self._folder} ({error.strerror}).",
                hint=failure.hint if failure else f"run 'ls -la {quoted(self._folder)}' to check its permissions",
                path=str(path),
            ) from error
        yield
        self.remove_entry(path)

    def list_entries(self) -> list[tuple[Path, Entry | None]]:
        """Return the entries of running and of killed operations, oldest first.

        A file that no operation can have written has None. Raises `FormatTooNew` for the entry of a
        newer program, which has to finish its own operation.
        """
        entries = []
        for path in self._folder.glob("*.json"):
            with contextlib.suppress(FileNotFoundError):  # its operation ends right now
                entries.append((path.lstat().st_mtime_ns, path, _read_entry(path)))
        return [(path, entry) for _, path, entry in sorted(entries, key=lambda item: item[:2])]

    def remove_entry(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def mark_damaged(self, path: Path) -> Path:
        """Rename a damaged entry, so that no command uses it, and return its new path."""
        names = (path.with_name(f"{path.stem}{f'-{number}' if number else ''}.damaged") for number in itertools.count())
        return path.rename(next(name for name in names if not os.path.lexists(name)))


def _read_entry(path: Path) -> Entry | None:
    """Read an entry; None for a damaged one.

    Raises `FileNotFoundError` and `FormatTooNew`.
    """
    try:
        content = read_regular(path, MAX_ENTRY_BYTES + 1)
    except FileNotFoundError:
        raise
    except OSError:
        return None
    if len(content) > MAX_ENTRY_BYTES:
        return None
    require_known_format(content, FORMAT, what="An operation that was interrupted", path=path)
    return _decode_entry(content)


def _decode_entry(content: bytes) -> Entry | None:
    try:
        entry: Entry = msgspec.convert(json.loads(content), type=Entry)
    except (ValueError, RecursionError):  # ValidationError is a ValueError
        return None
    names = msgspec.to_builtins(entry)
    del names["format"]
    pin = names.pop("pin", None) or ""
    return entry if all(map(_is_possible_name, names.values())) and "\0" not in pin else None


def _is_possible_name(name: str) -> bool:
    """Return whether a folder, a branch or a revision can have this name."""
    try:
        raw = os.fsencode(name)
    except UnicodeEncodeError:
        return False
    return (
        b"\0" not in raw
        and len(raw) < _MAX_PATH_BYTES
        and all(len(part) <= _MAX_NAME_BYTES for part in raw.split(b"/"))
    )
