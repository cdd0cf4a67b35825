"""A client's file on disk: read as it is, and replaced only while it is still that.

A file of the project is never reached through a link: a stranger's repository may have put it
there, to have another file written. A person's own file may be a link, as many keep theirs in a
repository of their own: it is changed where it lies, and the link stays.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from vmrag_link import env, locks
from vmrag_link.errors import file_failures
from vmrag_link.paths import read_regular, write_atomically
from vmrag_mcp.clients.edits import TextRefused

LARGEST = 4 * 1024 * 1024
_WAIT_SECONDS = 10.0


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

    def read(self) -> bytes | None:
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
        return tuple(each for each in self.target.parents if not each.exists())

    def replace(self, before: bytes | None, after: bytes) -> None:
        """Raises `TextRefused` if it is not any more what was read: its client writes it, too."""
        self._require(before)
        mode = None if before is None else stat.S_IMODE(self.target.stat().st_mode)
        with file_failures():
            write_atomically(self.target, after, mode=mode)

    def delete(self, before: bytes, folders: tuple[Path, ...]) -> None:
        """With those of the folders that are empty then."""
        self._require(before)
        with file_failures():
            self.target.unlink()
        for each in folders:
            with contextlib.suppress(OSError):  # somebody else's file lies in it
                each.rmdir()

    def _require(self, before: bytes | None) -> None:
        if self.read() != before:
            raise TextRefused("it was changed by another program meanwhile")


def notes() -> Path:
    """What is remembered of entries, which lie in files of the project and of this person."""
    return env.data_home() / "vmrag" / "clients"


@contextlib.contextmanager
def writing() -> Iterator[None]:
    """One installation at a time. Raises `Busy`."""
    with locks.exclusive(notes() / "lock", purpose="mcp install", timeout=_WAIT_SECONDS):
        yield
