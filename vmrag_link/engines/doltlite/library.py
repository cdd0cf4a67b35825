"""libdoltlite, bound by ctypes.

The package `doltlite` is located but never imported: its loader redirects the process's own sqlite3
to doltlite and marks the environment of every child. Loaded with DEEPBIND, the library shares no
symbol with stock SQLite.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from vmrag_link import extras
from vmrag_link.errors import (
    DOLTLITE_PATH_BYTES,
    Busy,
    EngineFailed,
    EngineUnwritable,
    LimitExceeded,
    VmragError,
    is_too_long,
    path_too_long,
)

VERSION = "0.51.3"
"""The one version whose storage format this program knows; the format is beta."""

ROW, DONE, BUSY = 100, 101, 5
INTEGER, FLOAT, TEXT, NULL = 1, 2, 3, 5
OPEN_READONLY, OPEN_READWRITE, OPEN_CREATE, OPEN_FULL_MUTEX = 0x1, 0x2, 0x4, 0x10000
LIMIT_LENGTH = 0
INTERRUPTED, TOO_BIG = 9, 18
DEFENSIVE, ENABLE_TRIGGER, ENABLE_VIEW, TRUSTED_SCHEMA = 1010, 1003, 1015, 1017
"""Options of `sqlite3_db_config`."""

Watch = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
"""What a running statement asks from time to time whether it should end (anything but 0)."""

TRANSIENT = ctypes.c_void_p(-1)
"""SQLite copies a bound value before the call returns."""


_REINSTALL = f"Install the engine again: python -m pip install --force-reinstall doltlite=={VERSION}"

_MADE_FOR = "Linux with glibc (x86-64 and arm64) and macOS on Apple silicon"


class Library:
    """The functions of the C interface with their types. `confirmed` says whether its version was
    checked.
    """

    def __init__(self, path: Path) -> None:
        mode = os.RTLD_NOW | os.RTLD_LOCAL | getattr(os, "RTLD_DEEPBIND", 0)
        try:
            self._dll = ctypes.CDLL(str(path), mode=mode)
        except OSError as error:
            raise EngineFailed(f"The engine's library {path} cannot be loaded: {error}.", hint=_REINSTALL) from error
        self.version_checked = False

        handle, text, number = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int
        pointer = ctypes.POINTER(ctypes.c_void_p)
        self.open = self._function("open_v2", number, text, pointer, number, text)
        self.close = self._function("close_v2", number, handle)
        self.errmsg = self._function("errmsg", text, handle)
        self.extended_errcode = self._function("extended_errcode", number, handle)
        self.busy_timeout = self._function("busy_timeout", number, handle, number)
        self.get_autocommit = self._function("get_autocommit", number, handle)
        self.interrupt = self._function("interrupt", None, handle)
        self.limit = self._function("limit", number, handle, number, number)
        self.watch = self._function("progress_handler", None, handle, number, Watch, handle)
        # Variadic: what follows the option is passed with its type.
        self.db_config = self._function("db_config", number, handle, number)
        self.prepare = self._function("prepare_v2", number, handle, text, number, pointer, pointer)
        self.step = self._function("step", number, handle)
        self.reset = self._function("reset", number, handle)
        self.finalize = self._function("finalize", number, handle)
        self.bind_null = self._function("bind_null", number, handle, number)
        self.bind_int64 = self._function("bind_int64", number, handle, number, ctypes.c_int64)
        self.bind_text = self._function("bind_text", number, handle, number, text, number, handle)
        self.column_count = self._function("column_count", number, handle)
        self.column_type = self._function("column_type", number, handle, number)
        self.column_int64 = self._function("column_int64", ctypes.c_int64, handle, number)
        self.column_double = self._function("column_double", ctypes.c_double, handle, number)
        self.column_text = self._function("column_text", handle, handle, number)
        self.column_blob = self._function("column_blob", handle, handle, number)
        self.column_bytes = self._function("column_bytes", number, handle, number)

    def _function(self, name: str, result: type[Any] | None, *arguments: type[Any]) -> Callable[..., Any]:
        function = self._dll[f"sqlite3_{name}"]
        function.restype = result
        function.argtypes = arguments
        return function

    def set_option(self, connection: ctypes.c_void_p, option: int, *, on: bool) -> None:
        """Set a `sqlite3_db_config` option. Raises `EngineFailed` where the library does not know
        it.
        """
        now = ctypes.c_int(-1)
        code = self.db_config(connection, option, ctypes.c_int(on), ctypes.byref(now))
        if code or bool(now.value) is not on:
            raise EngineFailed(f"The engine's library does not know its option {option}.", hint=_REINSTALL)

    def require_version(self, version: str) -> None:
        """Refuse a library of any other version: it would read the storage format differently."""
        if version.removeprefix("v") != VERSION:
            raise EngineFailed(
                f"The installed doltlite is {version}; this program works with {VERSION} only.",
                hint=_REINSTALL,
                version=version,
            )
        self.version_checked = True


@functools.cache
def load_library() -> Library:
    """The library of this process. Raises as `locate`."""
    return Library(locate_library())


def locate_library() -> Path:
    """Where the wheel put the library; nothing of the package is imported.

    Raises `EngineFailed` where it is not installed, or is not made for this system. There the
    package may still be installed: pip builds one without a library from the sdist.
    """
    spec = importlib.util.find_spec("doltlite")
    folder = Path(spec.origin).parent / "_lib" if spec and spec.origin else None
    found = sorted(folder.glob("libdoltlite.*")) if folder else []
    if found:
        return found[0]
    if not has_wheel_for(sys.platform, os.uname().machine, glibc=_has_glibc()):
        raise EngineFailed(
            f"The embedded engine, doltlite, is made for {_MADE_FOR} only.",
            hint=f"Let Dolt store what is new here: {extras.format_install_command('dolt')}, then: vmrag init --engine dolt; "
            "what doltlite has stored is moved to Dolt where doltlite runs: vmrag migrate --to dolt",
        )
    if folder is None:
        raise EngineFailed("The embedded engine is not installed: there is no package doltlite.", hint=_REINSTALL)
    raise EngineFailed(f"The embedded engine's library is missing from {folder}.", hint=_REINSTALL)


def has_wheel_for(system: str, machine: str, *, glibc: bool) -> bool:
    """Whether doltlite has a wheel for `sys.platform` and the machine that `uname` names.

    `pyproject.toml` says the same in a marker, but for `glibc`, which has none.
    """
    return (system, machine) == ("darwin", "arm64") or (
        glibc and system == "linux" and machine in ("x86_64", "aarch64")
    )


def _has_glibc() -> bool:
    try:
        return bool(os.confstr("CS_GNU_LIBC_VERSION"))
    except (OSError, ValueError):  # musl, macOS
        return False


READ_ONLY, FULL, CANNOT_OPEN = 8, 13, 14
FETCH_AGAIN = "Move the file aside (what was not pushed is only in there), then: vmrag clone"

_SENTENCES = {
    READ_ONLY: (
        "The knowledge base {path} cannot be written: it or its folder is read-only.",
        "Give yourself write permission, or run the command as the user who owns it.",
    ),
    10: (
        "The file system failed while the knowledge base {path} was read or written.",
        "Check the free space, the quota and the health of that disk; nothing of this change was stored.",
    ),
    11: ("The knowledge base {path} is damaged.", FETCH_AGAIN),
    FULL: (
        "The disk is full: the knowledge base {path} could not be written, nothing of this change was stored.",
        "Make room on that disk ('vmrag gc --apply' removes what can be built again), then run the command again.",
    ),
    CANNOT_OPEN: (
        "The knowledge base {path} cannot be opened.",
        "Check that it exists and that you may read its folder.",
    ),
    TOO_BIG: (
        "A document is larger than `limits.document_mb` allows, which counts for what is read, too.",
        "Split the document; or, if it is meant to be so large: git config vmrag.limits.document-mb 500",
    ),
    26: ("{path} is not a knowledge base.", FETCH_AGAIN),
}


def sqlite_error(code: int, message: str, path: Path) -> VmragError:
    """The error for an extended result code of SQLite, with its message in the details."""
    primary = code & 0xFF
    details: dict[str, Any] = {"sqlite_code": code, "sqlite_message": message, "path": str(path)}
    if primary == BUSY:
        return Busy(
            f"Another program is writing to the knowledge base {path}.",
            hint="Wait for it to finish and run the command again.",
            **details,
        )
    if primary == CANNOT_OPEN and is_too_long(path, most=DOLTLITE_PATH_BYTES):
        return path_too_long(path, most=DOLTLITE_PATH_BYTES)
    if primary in _SENTENCES:
        sentence, hint = _SENTENCES[primary]
        kind = (
            LimitExceeded if primary == TOO_BIG else EngineUnwritable if primary in (READ_ONLY, FULL) else EngineFailed
        )
        return kind(sentence.format(path=path), hint=hint, **details)
    return EngineFailed(f"The knowledge base {path} failed: {message}.", **details)
