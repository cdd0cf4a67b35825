"""A client's file: read as it is, edited in one place, and replaced only while it is still that.

A file of the project is never reached through a link: a stranger's repository may have put it
there, to have another file written. A person's own file may be a link, as many keep theirs in a
repository of their own: it is changed where it lies, and the link stays.

An editor adds, changes or removes one entry of one section. Every other byte stays: the comments,
the order, the line ends. A receipt says what was put into which file of this computer, so that
exactly that can be taken out again. It holds no text of a person's file, which may have keys of
services in it: only our entry, what had to be made for it, and the white space that stood there.
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
from vmrag_link.models import Record, format_json
from vmrag_link.paths import read_regular, write_atomically

LARGEST = 4 * 1024 * 1024
_WAIT_SECONDS = 10.0

DEEPEST = 100
TOO_DEEP = f"it is nested deeper than {DEEPEST} levels"
"""The reason of `TextRefused` for such a text."""


class SettingsFile(NamedTuple):
    """`label`: what it is called to people. `top`: the project that it belongs to; None: a
    person's own.
    """

    path: Path
    label: str
    top: Path | None

    @property
    def target(self) -> Path:
        """Where it is written."""
        return self.path if self.top else Path(os.path.realpath(self.path))

    def read_content(self) -> bytes | None:
        """None: it is not there. Raises `TextRefused` for what is no file that may be written."""
        if self.top:
            for folder in self.path.relative_to(self.top).parents[:-1]:
                if (self.top / folder).is_symlink():
                    raise TextRefused(f"{folder} is a link")
        try:
            content = read_regular(self.target, LARGEST + 1)
            mode = self.target.stat().st_mode
        except FileNotFoundError:
            return None
        except OSError as error:
            raise TextRefused(str(error.strerror)) from error
        if len(content) > LARGEST:
            raise TextRefused(f"it has more than {LARGEST} bytes")
        if not mode & (stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH):
            raise TextRefused("it is read-only")
        return content

    def missing_folders(self) -> tuple[Path, ...]:
        """Those that are to be made for it, the outermost last."""
        return tuple(parent for parent in self.target.parents if not parent.exists())

    def replace_content(self, before: bytes | None, after: bytes) -> None:
        """Raises `TextRefused` if it is not any more what was read: its client writes it, too."""
        self._require(before)
        mode = None if before is None else stat.S_IMODE(self.target.stat().st_mode)
        with file_failures():
            write_atomically(self.target, after, mode=mode)

    def delete_file(self, before: bytes, folders: tuple[Path, ...]) -> None:
        """With those of the folders that are empty then."""
        self._require(before)
        with file_failures():
            self.target.unlink()
        for folder in folders:
            with contextlib.suppress(OSError):  # somebody else's file lies in it
                folder.rmdir()

    def _require(self, before: bytes | None) -> None:
        if self.read_content() != before:
            raise TextRefused("it was changed by another program meanwhile")


def notes_file() -> Path:
    """What is remembered of entries, which lie in files of the project and of this person."""
    return env.data_home() / "vmrag" / "clients"


@contextlib.contextmanager
def lock_installation() -> Iterator[None]:
    """One installation at a time. Raises `Busy`."""
    with locks.hold_exclusive(notes_file() / "lock", purpose="mcp install", timeout=_WAIT_SECONDS):
        yield


class InstallReceipt(Record, frozen=True):
    """`new`: there was no file, and for its sake `folders` were made, the innermost first."""

    file: str
    name: str
    entry: dict[str, Any]
    added: Addition
    new: bool = False
    folders: tuple[str, ...] = ()


def find_receipt(path: Path, name: str) -> InstallReceipt | None:
    """None: this computer has not put the entry there, or knows no more of it."""
    with contextlib.suppress(OSError, msgspec.DecodeError, UnicodeDecodeError):
        return msgspec.json.decode(_place(path, name).read_bytes(), type=InstallReceipt)
    return None


def keep_receipt(receipt: InstallReceipt) -> None:
    write_atomically(_place(Path(receipt.file), receipt.name), format_json(receipt).encode())


def drop_receipt(path: Path, name: str) -> None:
    _place(path, name).unlink(missing_ok=True)


def _place(path: Path, name: str) -> Path:
    digest = hashlib.sha256(f"{path}\0{name}".encode(errors="surrogateescape")).hexdigest()
    return notes_file() / f"{digest[:32]}.json"


Entry = Mapping[str, Any]


class TextRefused(Exception):
    """The text cannot be read, or not be edited. `reason` completes `FILE is left as it is: …`."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Addition(Record, frozen=True):
    """What was made with an entry, so that its removal can undo that, too.

    `made`: the outermost thing that was not there. `blank`: the white space that stood in its
    place; for a document, all of the former text.
    """

    made: Literal["entry", "section", "document"] = "entry"
    blank: str = ""


class Editor(Protocol):
    """One format. All functions raise `TextRefused`.

    The caller compares what `read` finds before and after: an editor need not foresee every way
    in which a person can write a file.
    """

    def read_values(self, text: str) -> dict[str, Any]:
        """All values of the text."""

    def add_entry(self, text: str, section: str, name: str, entry: Entry) -> tuple[str, Addition]:
        """The text with an entry that is not there."""

    def change_entry(self, text: str, section: str, name: str, values: Entry) -> str:
        """The text with these values in place of those that the entry has."""

    def remove_entry(self, text: str, section: str, name: str, added: Addition | None) -> str:
        """The text without the entry; None: nothing is known of how it came there."""


class Replacement(NamedTuple):
    """Characters `start` to `end` of a text become `written`."""

    start: int
    end: int
    written: str


def apply_changes(text: str, changes: Iterable[Replacement]) -> str:
    """The text after changes that do not overlap; of two at one place, the first stands first."""
    ordered = sorted(changes, key=lambda change: change.start)
    for each in ordered[::-1]:
        text = text[: each.start] + each.written + text[each.end :]
    return text


def line_end(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def not_built_so(section: str) -> TextRefused:
    return TextRefused(f"{section} is not built as that client's file is")
