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
"""A callback of a running statement. It ends the statement if the result is not 0."""

TRANSIENT = ctypes.c_void_p(-1)
"""SQLite copies a bound value before the call returns."""


_REINSTALL = f"run 'python -m pip install --force-reinstall doltlite=={VERSION}' to reinstall the engine"

_MADE_FOR = "Linux with glibc (x86-64 and arm64) and macOS on Apple silicon"


class Library:
    """The functions of the C interface with their types.

    `version_checked` is True after `require_version` succeeded.
    """

    def __init__(self, path: Path) -> None:
        mode = os.RTLD_NOW | os.RTLD_LOCAL | getattr(os, "RTLD_DEEPBIND", 0)
        try:
            self._dll = ctypes.CDLL(str(path), mode=mode)
        except OSError as error:
            raise EngineFailed(f"cannot load the engine's library {path}: {error}.", hint=_REINSTALL) from error
        self.version_checked = False

        handle, text, number = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int
        pointer = ctypes.POINTER(ctypes.c_void_p)
        self.open = self._bind_function("open_v2", number, text, pointer, number, text)
        self.close = self._bind_function("close_v2", number, handle)
        self.errmsg = self._bind_function("errmsg", text, handle)
        self.extended_errcode = self._bind_function("extended_errcode", number, handle)
        self.busy_timeout = self._bind_function("busy_timeout", number, handle, number)
        self.get_autocommit = self._bind_function("get_autocommit", number, handle)
        self.interrupt = self._bind_function("interrupt", None, handle)
        self.limit = self._bind_function("limit", number, handle, number, number)
        self.watch = self._bind_function("progress_handler", None, handle, number, Watch, handle)
        # Variadic: arguments after the option are passed with their types.
        self.db_config = self._bind_function("db_config", number, handle, number)
        self.prepare = self._bind_function("prepare_v2", number, handle, text, number, pointer, pointer)
        self.step = self._bind_function("step", number, handle)
        self.reset = self._bind_function("reset", number, handle)
        self.finalize = self._bind_function("finalize", number, handle)
        self.bind_null = self._bind_function("bind_null", number, handle, number)
        self.bind_int64 = self._bind_function("bind_int64", number, handle, number, ctypes.c_int64)
        self.bind_text = self._bind_function("bind_text", number, handle, number, text, number, handle)
        self.column_count = self._bind_function("column_count", number, handle)
        self.column_type = self._bind_function("column_type", number, handle, number)
        self.column_int64 = self._bind_function("column_int64", ctypes.c_int64, handle, number)
        self.column_double = self._bind_function("column_double", ctypes.c_double, handle, number)
        self.column_text = self._bind_function("column_text", handle, handle, number)
        self.column_blob = self._bind_function("column_blob", handle, handle, number)
        self.column_bytes = self._bind_function("column_bytes", number, handle, number)

    def _bind_function(self, name: str, result: type[Any] | None, *arguments: type[Any]) -> Callable[..., Any]:
        function = self._dll[f"sqlite3_{name}"]
        function.restype = result
        function.argtypes = arguments
        return function

    def set_option(self, connection: ctypes.c_void_p, option: int, *, on: bool) -> None:
        """Set a `sqlite3_db_config` option.

        Raises `EngineFailed` if the library does not know it.
        """
        now = ctypes.c_int(-1)
        code = self.db_config(connection, option, ctypes.c_int(on), ctypes.byref(now))
        if code or bool(now.value) is not on:
            raise EngineFailed(f"the engine's library does not support the option {option}.", hint=_REINSTALL)

    def require_version(self, version: str) -> None:
        """Refuse a library of any other version: it would read the storage format differently."""
        if version.removeprefix("v") != VERSION:
            raise EngineFailed(
                f"the installed doltlite is {version}; vmrag requires {VERSION}.", hint=_REINSTALL, version=version
            )
        self.version_checked = True


@functools.cache
def load_library() -> Library:
    """Return the library of this process.

    Raises `EngineFailed` if it is missing or cannot be loaded.
    """
    return Library(locate_library())


def locate_library() -> Path:
    """Return the path of the library in the wheel, without importing the package.

    Raises `EngineFailed` if it is not installed, or does not exist for this system. On such a
    system the package may still be installed: pip builds one without a library from the sdist.
    """
    spec = importlib.util.find_spec("doltlite")
    folder = Path(spec.origin).parent / "_lib" if spec and spec.origin else None
    libraries = sorted(folder.glob("libdoltlite.*")) if folder else []
    if libraries:
        return libraries[0]
    if not has_wheel_for(sys.platform, os.uname().machine, glibc=_has_glibc()):
        raise EngineFailed(
            f"the embedded engine, doltlite, is made for {_MADE_FOR} only.",
            hint=f"run '{extras.format_install_command('dolt')}', then 'vmrag init --engine dolt', or 'vmrag migrate "
            "--to dolt' on a supported machine",
        )
    if folder is None:
        raise EngineFailed("the embedded engine is not installed: the package doltlite is missing.", hint=_REINSTALL)
    raise EngineFailed(f"the embedded engine's library is missing from {folder}.", hint=_REINSTALL)


def has_wheel_for(system: str, machine: str, *, glibc: bool) -> bool:
    """Return whether doltlite has a wheel for `sys.platform` and the machine name of `uname`.

    A marker in `pyproject.toml` has the same condition, except `glibc`, for which markers have no
    name.
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
FETCH_AGAIN = (
    "move the file away, because it has the only copy of unpushed revisions, then run 'vmrag clone' to fetch it again"
)

_SENTENCES = {
    READ_ONLY: (
        "cannot write to the knowledge base {path}: it or its folder is read-only.",
        "give yourself write permission, or run the command as the owner",
    ),
    10: (
        "the file system failed while reading or writing the knowledge base {path}.",
        "check the free space, the quota and the health of that disk",
    ),
    11: ("the knowledge base {path} is damaged.", FETCH_AGAIN),
    FULL: (
        "the disk is full: cannot write to the knowledge base {path}; nothing was stored.",
        "run 'vmrag gc --apply' to delete data that can be rebuilt, or make room on that disk",
    ),
    CANNOT_OPEN: ("cannot open the knowledge base {path}.", "check that it exists, and that you may read its folder"),
    TOO_BIG: (
        "a document is larger than limits.document_mb, which also limits reading.",
        "split the document, or run 'git config vmrag.limits.document-mb 500' to raise the limit",
    ),
    26: ("{path} is not a knowledge base.", FETCH_AGAIN),
}


def sqlite_error(code: int, message: str, path: Path) -> VmragError:
    """Return the error for an extended result code of SQLite, with its message in the details."""
    primary = code & 0xFF
    details: dict[str, Any] = {"sqlite_code": code, "sqlite_message": message, "path": str(path)}
    if primary == BUSY:
        return Busy(
            f"another program is writing to the knowledge base {path}.",
            hint="wait for it to finish, then run the command again",
            **details,
        )
    if primary == CANNOT_OPEN and is_too_long(path, max_bytes=DOLTLITE_PATH_BYTES):
        return path_too_long(path, max_bytes=DOLTLITE_PATH_BYTES)
    if primary in _SENTENCES:
        sentence, hint = _SENTENCES[primary]
        kinds = {TOO_BIG: LimitExceeded, READ_ONLY: EngineUnwritable, FULL: EngineUnwritable}
        kind = kinds.get(primary, EngineFailed)
        return kind(sentence.format(path=path), hint=hint, **details)
    return EngineFailed(f"the knowledge base {path} failed: {message}.", **details)
