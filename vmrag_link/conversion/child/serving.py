"""The main loop of every child process: confine itself, then answer one task after the other until
the end of standard input.

A thread reads standard input. So when the parent process ends, this process ends at once, whatever
it is doing.

These restrictions apply before the process reads an untrusted file, if the system supports them:

* CPU time, open files, and the size of the only file that it writes, its errors: everywhere.
* Address space: on Linux. macOS accepts the limit and ignores it.
* No network: on Linux, in a separate network namespace without devices, if the kernel lets this
  user create one. Root always may. Other users may unless user namespaces are disabled, as in some
  containers and by AppArmor on Ubuntu.
* No file outside of Python's folders, the system's libraries and the child's folder, and no
  writing, also for C code: on Linux with Landlock (5.13), if it is enabled.
* No sockets, programs or other processes, also for C code: on Linux on x86_64 and aarch64, if the
  kernel accepts filters of system calls.
* No sockets, programs or other processes, no file outside of Python's folders and the child's
  folder, and no writing: everywhere for Python code, by an audit hook. The hook does not see C code
  that bypasses Python, so only the other restrictions apply to it.

There is no limit of processes (RLIMIT_NPROC), because Linux counts all threads of the user in it.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import queue
import resource
import struct
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, TypeVar

from vmrag_link import env
from vmrag_link.conversion.child import kernel_rules
from vmrag_link.conversion.limits import MIB, ConversionLimits, receive_frame, send_frames

LONGEST_TASK = 1 << 16
"""Maximum number of bytes of the description of a task, without its file or text."""

Task = TypeVar("Task")


def serve_tasks(
    read: Callable[[IO[bytes], ConversionLimits], Task],
    answer: Callable[[Task, ConversionLimits], tuple[bytes, bool]],
) -> None:
    """Read tasks and write answers until an answer is the last one.

    `read` reads the frames of a task. `answer` returns a frame, and whether it is the last one
    because the process has used too much memory. The first frame on standard input has the limits.
    Raises `Disconnected` if there are none.
    """
    folder = Path.cwd()
    stdin, stdout = sys.stdin.buffer, sys.stdout.buffer
    sys.stdout = sys.stderr  # so that a library cannot print between the answers
    limits = ConversionLimits(*json.loads(receive_frame(stdin, LONGEST_TASK)))
    confine_process(limits, folder)
    tasks: queue.Queue[Task] = queue.Queue()

    def listen() -> None:
        try:
            while True:
                tasks.put(read(stdin, limits))
        finally:  # the parent has ended or sent invalid data, so no one waits for answers
            _remove_folder(folder)
            os._exit(0)

    threading.Thread(target=listen, daemon=True).start()
    while True:
        task = tasks.get()
        limit_seconds(limits.max_cpu_seconds)
        frame, last = answer(task, limits)
        send_frames(stdout, frame)
        if last:
            return


def _remove_folder(folder: Path) -> None:
    """Remove the folder of this process. It has one file, because no other file can be written."""
    with contextlib.suppress(OSError):
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()


def is_memory_exhausted(limits: ConversionLimits) -> bool:
    """Return whether the memory is too low for another task as large as the largest so far."""
    return measure_memory() > limits.max_memory // 2


_NEW_USER, _NEW_NETWORK = 0x10000000, 0x40000000
_NO_NEW_PRIVILEGES = 38
_CAPABILITIES, _READ_ALL_FILES = 0x20080522, 1 << 2
_LARGEST_FILE = MIB
"""Only `stderr`, which the parent has opened, can be written."""

_OPEN_FILES = 64

_REFUSED = (
    "socket.",
    "subprocess.",
    "os.exec",
    "os.fork",
    "os.posix_spawn",
    "os.spawn",
    "os.startfile",
    "os.system",
    "os.kill",
    "os.chmod",
    "os.chown",
    "os.link",
    "os.mkdir",
    "os.rename",
    "os.symlink",
    "os.truncate",
    "os.utime",
    "pty.",
    "urllib.",
    "http.client.",
    "ftplib.",
    "smtplib.",
    "webbrowser.",
    "syslog.",
)
"""Prefixes of audit events that no conversion needs."""

_MODULES = frozenset(("sqlite3", "_sqlite3", "dbm.gnu", "_gdbm", "dbm.ndbm", "_dbm"))
"""Modules that open files in C, in part without an audit event (`ATTACH`)."""

_LIBRARIES = (
    "/lib",
    "/lib64",
    "/usr/lib",
    "/usr/lib64",
    "/usr/local/lib",
    "/nix/store",
    "/gnu/store",
    "/etc/ld.so.cache",
)
"""Folders of the libraries to which Python's C modules are linked."""

_READING = frozenset(("ctypes.dlopen", "os.listdir", "os.scandir"))
_REMOVING = frozenset(("os.remove", "os.rmdir"))
"""Events whose arguments are paths, and perhaps numbers."""

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


def confine_process(limits: ConversionLimits, folder: Path) -> None:
    """Confine this process permanently. `folder` is the only folder that may be removed. No file
    may be written.
    """
    _set_limit(resource.RLIMIT_CORE, 0)
    _set_limit(resource.RLIMIT_FSIZE, _LARGEST_FILE)
    _set_limit(resource.RLIMIT_NOFILE, _OPEN_FILES)
    _set_limit(resource.RLIMIT_AS, limits.max_memory)
    readable = tuple({os.path.realpath(path) for path in (*sys.path, sys.prefix, sys.base_prefix) if path})
    own_folder = os.path.realpath(folder)
    if sys.platform == "linux":
        _leave_network()
        _drop_privileges()
        kernel_rules.restrict_files((*readable, *_LIBRARIES, *_loaded_libraries()), own_folder)
        kernel_rules.block_system_calls()
    sys.addaudithook(_refuse_modules)
    sys.addaudithook(_make_path_hook(readable, own_folder))


def list_missing_limits() -> list[str]:
    """Return the restrictions of `confine_process` that this Linux does not support."""
    if sys.platform != "linux":
        return []
    return [
        *([] if kernel_rules.read_landlock_version() else ["Landlock"]),
        *([] if kernel_rules.supports_filters() else ["a filter of system calls (seccomp)"]),
    ]


def limit_seconds(seconds: int) -> None:
    """Limit the CPU time from now on. At the limit, the kernel kills this process."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    soft = int(used.ru_utime + used.ru_stime) + seconds + 1
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    resource.setrlimit(resource.RLIMIT_CPU, (soft if hard == resource.RLIM_INFINITY else min(soft, hard), hard))


def measure_memory() -> int:
    """Return the peak memory of this process in bytes; 0 if its parent had used more before the
    start.
    """
    peak = _read_peak_memory()
    return peak if peak > _INHERITED_MEMORY else 0


def _read_peak_memory() -> int:
    kilobytes_or_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return kilobytes_or_bytes * (1 if sys.platform == "darwin" else 1024)


_INHERITED_MEMORY = _read_peak_memory()
"""Linux starts the peak memory at what the parent had used when it started this process."""


def _set_limit(which: int, limit: int) -> None:
    hard = resource.getrlimit(which)[1]
    limit = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
    try:
        resource.setrlimit(which, (limit, limit))
    except (ValueError, OSError):
        if sys.platform == "linux":  # other systems refuse some limits
            raise


def _leave_network() -> None:
    """Move to a network namespace without devices.

    Root does not need a user namespace, in which it would lose its permissions.
    """
    libc = ctypes.CDLL(None)
    if libc.unshare(_NEW_NETWORK):
        libc.unshare(_NEW_USER | _NEW_NETWORK)


def _drop_privileges() -> None:
    """Drop all privileges of root except reading, because Python's folders may belong to another
    user.

    No program can regain privileges.
    """
    libc = ctypes.CDLL(None)
    libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    kept = _READ_ALL_FILES if os.geteuid() == 0 else 0
    libc.capset(struct.pack("=Ii", _CAPABILITIES, 0), struct.pack("=6I", kept, kept, 0, 0, 0, 0))


def _loaded_libraries() -> Iterator[str]:
    """Yield the folders of loaded libraries, which are not in the usual places on all systems."""
    with Path("/proc/self/maps").open(encoding="utf-8", errors="surrogateescape") as maps:
        paths = {line.split(maxsplit=5)[-1].rstrip() for line in maps if "/" in line}
    yield from {str(Path(path).parent) for path in paths if ".so" in path}
    yield from env.list_library_folders()


def _refuse_modules(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "import" and arguments[0] in _MODULES:
        raise ImportError(f"{arguments[0]} is not allowed here")


def _make_path_hook(readable: tuple[str, ...], folder: str) -> Callable[[str, tuple[Any, ...]], None]:
    """Return an audit hook that refuses events, and paths outside of some folders."""

    def require_below(folders: tuple[str, ...], event: str, *arguments: Any) -> None:
        for argument in arguments:
            if isinstance(argument, str | bytes | os.PathLike):
                path = os.path.realpath(os.fsdecode(argument))
                if not any(path == folder or path.startswith(f"{folder.rstrip('/')}/") for folder in folders):
                    raise PermissionError(f"{event} of {path} is not allowed here")

    def refuse_event(event: str, arguments: tuple[Any, ...]) -> None:
        if event.startswith(_REFUSED):
            raise PermissionError(f"{event} is not allowed here")
        if event == "open":
            path, mode, flags = arguments
            writes = bool(flags & _WRITING) if isinstance(flags, int) else "r" not in str(mode)
            require_below(() if writes else (folder, *readable), event, path)
        elif event in _READING:
            require_below((folder, *readable), event, *arguments)
        elif event in _REMOVING:
            require_below((folder,), event, *arguments)

    return refuse_event
