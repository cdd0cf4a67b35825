"""A client's settings file: read, edited at one position, and replaced only if it has not changed.

A file of the project is never reached through a link, because an untrusted repository could contain
a link to another file. A personal file can be a link, because many people keep their settings in a
repository: the target is changed, and the link stays.

An editor adds, changes or removes one entry of one section. Every other byte stays: comments, order
and line ends. A receipt records which entry vmrag has added to which file of this computer, so that
vmrag can remove exactly that entry. It contains no other text of a personal file, which can have
keys of services: only our entry, what was added for it, and the white space that it replaced.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

import msgspec

from vmrag_link import env, locks
from vmrag_link.errors import file_failures
from vmrag_link.file_access import read_regular, write_atomically
from vmrag_link.models import Record, format_json

MAX_FILE_BYTES = 4 * 1024 * 1024
_WAIT_SECONDS = 10.0

MAX_NESTING = 100
TOO_DEEP = f"it is nested deeper than {MAX_NESTING} levels"
"""The reason of `TextRefused` for such a text."""


class SettingsFile(NamedTuple):
    path: Path
    label: str
    """Its name for people."""
    top: Path | None
    """The folder of its project; None for a personal file."""

    @property
    def target(self) -> Path:
        """The path to write to."""
        return self.path if self.top else Path(os.path.realpath(self.path))

    def read_content(self) -> bytes | None:
        """Return the content; None if the file does not exist.

        Raises `TextRefused` for anything except a writable file.
        """
        if self.top:
            for folder in self.path.relative_to(self.top).parents[:-1]:
                if (self.top / folder).is_symlink():
                    raise TextRefused(f"{folder} is a link")
        try:
            content = read_regular(self.target, MAX_FILE_BYTES + 1)
            mode = self.target.stat().st_mode
        except FileNotFoundError:
            return None
        except OSError as error:
            raise TextRefused(str(error.strerror)) from error
        if len(content) > MAX_FILE_BYTES:
            raise TextRefused(f"it has more than {MAX_FILE_BYTES} bytes")
        if not mode & (stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH):
            raise TextRefused("it is read-only")
        return content

    def missing_folders(self) -> tuple[Path, ...]:
        """Return the folders to create for the file, the outermost last."""
        return tuple(parent for parent in self.target.parents if not parent.exists())

    def replace_content(self, before: bytes | None, after: bytes) -> None:
        """Write the file.

        Raises `TextRefused` if it has changed since: its client also writes it.
        """
        self._require_unchanged(before)
        mode = None if before is None else stat.S_IMODE(self.target.stat().st_mode)
        with file_failures():
            write_atomically(self.target, after, mode=mode)

    def delete_file(self, before: bytes, folders: tuple[Path, ...]) -> None:
        """Delete the file, and then those of the folders that are empty."""
        self._require_unchanged(before)
        with file_failures():
            self.target.unlink()
        for folder in folders:
            with contextlib.suppress(OSError):  # the folder contains other files
                folder.rmdir()

    def _require_unchanged(self, before: bytes | None) -> None:
        if self.read_content() != before:
            raise TextRefused("another program has changed it")


def find_receipts_folder() -> Path:
    """Return the folder with the receipts for entries in files of projects and of this user."""
    return env.data_home() / "vmrag" / "clients"


@contextlib.contextmanager
def lock_installation() -> Iterator[None]:
    """Wait for other installations until the block ends. Raises `Busy`."""
    with locks.hold_exclusive(find_receipts_folder() / "lock", purpose="mcp install", timeout=_WAIT_SECONDS):
        yield


class InstallReceipt(Record, frozen=True):
    """A record of an added entry."""

    file: str
    name: str
    entry: dict[str, Any]
    added: Addition
    new: bool = False
    """vmrag created the file."""
    folders: tuple[str, ...] = ()
    """Folders that vmrag created for the file, the innermost first."""


def find_receipt(path: Path, name: str) -> InstallReceipt | None:
    """Return the receipt of an entry; None if this computer has not added it or the receipt is
    lost.
    """
    with contextlib.suppress(OSError, msgspec.DecodeError, UnicodeDecodeError):
        return msgspec.json.decode(_receipt_path(path, name).read_bytes(), type=InstallReceipt)
    return None


def keep_receipt(receipt: InstallReceipt) -> None:
    write_atomically(_receipt_path(Path(receipt.file), receipt.name), format_json(receipt).encode())


def drop_receipt(path: Path, name: str) -> None:
    _receipt_path(path, name).unlink(missing_ok=True)


def _receipt_path(path: Path, name: str) -> Path:
    digest = hashlib.sha256(f"{path}\0{name}".encode(errors="surrogateescape")).hexdigest()
    return find_receipts_folder() / f"{digest[:32]}.json"


Entry = Mapping[str, Any]


class TextRefused(Exception):
    """The text cannot be read or edited. `reason` is the end of `cannot edit FILE: …`."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Addition(Record, frozen=True):
    """Parts that vmrag added with an entry; the removal of the entry removes them also."""

    made: Literal["entry", "section", "document"] = "entry"
    """The outermost part that did not exist."""
    blank: str = ""
    """The white space that it replaced; for a document, the whole earlier text."""


class Editor(Protocol):
    """An editor for one format. All functions raise `TextRefused`.

    The caller compares the values before and after a change, so an editor need not expect every way
    to write a file.
    """

    def read_values(self, text: str) -> dict[str, Any]:
        """Return all values of the text."""

    def add_entry(self, text: str, section: str, name: str, entry: Entry) -> tuple[str, Addition]:
        """Return the text with a new entry, and what was added."""

    def change_entry(self, text: str, section: str, name: str, values: Entry) -> str:
        """Return the text with these values of the entry."""

    def remove_entry(self, text: str, section: str, name: str, added: Addition | None) -> str:
        """Return the text without the entry.

        `added` None: it is unknown how the entry was added.
        """


class Replacement(NamedTuple):
    """`written` replaces the characters `start` to `end` of a text."""

    start: int
    end: int
    written: str


def apply_changes(text: str, changes: Iterable[Replacement]) -> str:
    """Return the text after changes that do not overlap. Changes at one place keep their order."""
    ordered = sorted(changes, key=lambda change: change.start)
    for change in ordered[::-1]:
        text = text[: change.start] + change.written + text[change.end :]
    return text


def line_end(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def build_structure_error(section: str) -> TextRefused:
    """Return the error for a file without the structure of the client's file."""
    return TextRefused(f"{section} does not have the structure of that client's file")
