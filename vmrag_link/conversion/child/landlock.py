"""Landlock: the kernel keeps files from this process, from its code in C as well.

Linux 5.13 brought it; each version of its interface (ABI) refuses more. It knows contents of files
and of folders; who may open what (`chmod`) and the size of a file by its path (`truncate`, before
ABI 3) are refused by `seccomp`. That a file exists, and how large it is, can still be seen.
https://docs.kernel.org/userspace-api/landlock.html
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import struct
import sys
from collections.abc import Iterable
from pathlib import Path

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
"""Numbers of system calls, the same on all architectures."""

_VERSION = 1
_PATH_BENEATH = 1

_WRITE_FILE, _READ_FILE, _READ_DIR, _REMOVE_DIR, _REMOVE_FILE = (1 << bit for bit in range(1, 6))
_MAKE_DIR, _MAKE_REG, _TRUNCATE = 1 << 7, 1 << 8, 1 << 14
_READING = _READ_FILE | _READ_DIR
_WRITING = _READING | _WRITE_FILE | _REMOVE_DIR | _REMOVE_FILE | _MAKE_DIR | _MAKE_REG | _TRUNCATE
_OF_FILES = _READ_FILE | _WRITE_FILE | _TRUNCATE

_FILES = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 5: (1 << 16) - 1}
"""By ABI: what of files is refused unless a rule allows it. 5 adds requests to devices."""

_TCP, _TCP_SINCE = 3, 4
"""To listen and to connect."""

_SCOPE, _SCOPE_SINCE = 3, 6
"""Sockets with abstract names and signals, to processes beyond this one."""


def version() -> int:
    """The kernel's ABI; 0 where it has no Landlock, or refuses it to this process."""
    if sys.platform != "linux":
        return 0
    return max(0, _call(_CREATE_RULESET, None, 0, _VERSION))


def restrict(readable: Iterable[str], writable: str) -> bool:
    """For good, this thread and those that it starts; whether the kernel does it.

    `no_new_privs` has to be set. Of `readable`, files and folders, some need not be there. Empty
    folders beside `writable` can be removed: the process removes its own when it ends.
    """
    abi = version()
    if not abi:
        return False
    files = max(mask for since, mask in _FILES.items() if since <= abi)
    # A kernel takes the structure of each ABI before its own by its size.
    handled = [files]
    handled += [_TCP] if abi >= _TCP_SINCE else []
    handled += [_SCOPE] if abi >= _SCOPE_SINCE else []
    attributes = struct.pack(f"={len(handled)}Q", *handled)
    ruleset = _call(_CREATE_RULESET, attributes, len(attributes), 0)
    if ruleset < 0:
        return False
    try:
        for path in readable:
            _allow(ruleset, path, _READING & files)
        _allow(ruleset, writable, _WRITING & files)
        _allow(ruleset, str(Path(writable).parent), _REMOVE_DIR & files)
        return _call(_RESTRICT_SELF, ruleset, 0) == 0
    finally:
        os.close(ruleset)


def _allow(ruleset: int, path: str, access: int) -> None:
    with contextlib.suppress(FileNotFoundError, NotADirectoryError, PermissionError):
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
        try:
            allowed = access if Path(path).is_dir() else access & _OF_FILES
            _call(_ADD_RULE, ruleset, _PATH_BENEATH, struct.pack("=Qi", allowed, place), 0)
        finally:
            os.close(place)


def _call(number: int, *arguments: int | bytes | None) -> int:
    """What the system call returns; -1 for an error."""
    given = [ctypes.c_long(each) if isinstance(each, int) else each for each in arguments]
    return int(ctypes.CDLL(None).syscall(ctypes.c_long(number), *given))
