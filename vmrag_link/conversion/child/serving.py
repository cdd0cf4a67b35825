"""What every child process does: confine itself, then answer one task after the other, until the
end of standard input.

A thread reads what we are told, so the end of the process that started this one ends it at once,
in whatever it is doing.

What the process takes from itself before it looks at a stranger's file, where it holds:

* Seconds of computing, open files, and the size of the one file that it writes, its complaints:
  everywhere.
* Address space: on Linux. macOS takes the limit and does not keep it.
* No network: on Linux in a network namespace of its own, which has no device, if the kernel lets
  this user make one. Root always may; others may unless user namespaces are switched off, as in
  some containers and by AppArmor on Ubuntu.
* No file outside of Python's own folders, the system's libraries and the child's, and no file to
  write, for code in C as well: on Linux with Landlock (5.13), if it is switched on.
* No socket, no program, no other process, for code in C as well: on Linux on x86_64 and aarch64, if
  the kernel takes filters of system calls.
* No socket, no program, no other process, no file outside of Python's own folders and the child's,
  and no file to write: everywhere, for all that is Python code, by an audit hook. Code in C that
  does not tell Python what it does is kept by the above only.

There is no limit of processes (RLIMIT_NPROC): Linux counts all threads of the user in it.
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
"""Bytes of what a task says beside its file or text."""

Task = TypeVar("Task")


def serve_tasks(
    read: Callable[[IO[bytes], ConversionLimits], Task],
    answer: Callable[[Task, ConversionLimits], tuple[bytes, bool]],
) -> None:
    """`read` reads the frames of a task. The first frame of all holds the limits. `answer` returns
    a frame, and whether it is the last, because the process has used too much.

    Returns after the `last` answer. Raises `Disconnected` where there are no limits.
    """
    folder = Path.cwd()
    stdin, stdout = sys.stdin.buffer, sys.stdout.buffer
    sys.stdout = sys.stderr  # nothing that a library prints gets between the answers
    limits = ConversionLimits(*json.loads(receive_frame(stdin, LONGEST_TASK)))
    confine_process(limits, folder)
    tasks: queue.Queue[Task] = queue.Queue()

    def listen() -> None:
        try:
            while True:
                tasks.put(read(stdin, limits))
        finally:  # whatever it was: nobody waits for answers any more
            _remove(folder)
            os._exit(0)

    threading.Thread(target=listen, daemon=True).start()
    while True:
        task = tasks.get()
        limit_seconds(limits.max_cpu_seconds)
        frame, last = answer(task, limits)
        send_frames(stdout, frame)
        if last:
            return


def _remove(folder: Path) -> None:
    """Remove our folder. It holds one file, because no other can be written."""
    with contextlib.suppress(OSError):
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()


def is_memory_exhausted(limits: ConversionLimits) -> bool:
    """Whether no memory is left for another task as large as the largest so far."""
    return measure_memory() > limits.max_memory // 2


_NEW_USER, _NEW_NETWORK = 0x10000000, 0x40000000
_NO_NEW_PRIVILEGES = 38
_CAPABILITIES, _READ_ALL_FILES = 0x20080522, 1 << 2
_LARGEST_FILE = MIB
"""Only `stderr`, which its parent has opened, can be written."""

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
"""How the names of audit events begin that nothing in a conversion has reason for."""

_MODULES = frozenset(("sqlite3", "_sqlite3", "dbm.gnu", "_gdbm", "dbm.ndbm", "_dbm"))
"""Modules that open files in C, some without a word to the audit hook (`ATTACH`)."""

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
"""Where the libraries lie that Python's modules in C are linked to."""

_READING = frozenset(("ctypes.dlopen", "os.listdir", "os.scandir"))
_REMOVING = frozenset(("os.remove", "os.rmdir"))
"""Events whose arguments are paths, and perhaps numbers."""

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


def confine_process(limits: ConversionLimits, folder: Path) -> None:
    """For good; `folder` is the only one that may be removed, and no file may be written."""
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_FSIZE, _LARGEST_FILE)
    _limit(resource.RLIMIT_NOFILE, _OPEN_FILES)
    _limit(resource.RLIMIT_AS, limits.max_memory)
    readable = tuple({os.path.realpath(each) for each in (*sys.path, sys.prefix, sys.base_prefix) if each})
    own = os.path.realpath(folder)
    if sys.platform == "linux":
        _leave_network()
        _drop_privileges()
        kernel_rules.restrict_files((*readable, *_LIBRARIES, *_loaded_libraries()), own)
        kernel_rules.block_system_calls()
    sys.addaudithook(_refuse_modules)
    sys.addaudithook(_refuse_outside(readable, own))


def list_missing_limits() -> list[str]:
    """What this Linux does not do for `confine`, though others do."""
    if sys.platform != "linux":
        return []
    return [
        *([] if kernel_rules.read_landlock_version() else ["Landlock"]),
        *([] if kernel_rules.supports_filters() else ["a filter of system calls (seccomp)"]),
    ]


def limit_seconds(seconds: int) -> None:
    """Computing from now on; then the kernel ends this process."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    soft = int(used.ru_utime + used.ru_stime) + seconds + 1
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    resource.setrlimit(resource.RLIMIT_CPU, (soft if hard == resource.RLIM_INFINITY else min(soft, hard), hard))


def measure_memory() -> int:
    """Bytes, at the most so far; 0 below what whoever started this process had used."""
    most = _most_used()
    return most if most > _INHERITED else 0


def _most_used() -> int:
    kilobytes_or_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return kilobytes_or_bytes * (1 if sys.platform == "darwin" else 1024)


_INHERITED = _most_used()
"""Linux counts on from what the parent had used when it started this process."""


def _limit(which: int, most: int) -> None:
    hard = resource.getrlimit(which)[1]
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    try:
        resource.setrlimit(which, (most, most))
    except (ValueError, OSError):
        if sys.platform == "linux":  # others refuse some of them
            raise


def _leave_network() -> None:
    """Root may without a user namespace, in which it would lose what root may."""
    libc = ctypes.CDLL(None)
    if libc.unshare(_NEW_NETWORK):
        libc.unshare(_NEW_USER | _NEW_NETWORK)


def _drop_privileges() -> None:
    """Of what root may, only reading is left: Python's folders may be another user's. No program
    gives more.
    """
    libc = ctypes.CDLL(None)
    libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    kept = _READ_ALL_FILES if os.geteuid() == 0 else 0
    libc.capset(struct.pack("=Ii", _CAPABILITIES, 0), struct.pack("=6I", kept, kept, 0, 0, 0, 0))


def _loaded_libraries() -> Iterator[str]:
    """The folders of those that this process has: not all systems have them in the usual places."""
    with Path("/proc/self/maps").open(encoding="utf-8", errors="surrogateescape") as maps:
        paths = {line.split(maxsplit=5)[-1].rstrip() for line in maps if "/" in line}
    yield from {str(Path(path).parent) for path in paths if ".so" in path}
    yield from env.list_library_folders()


def _refuse_modules(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "import" and arguments[0] in _MODULES:
        raise ImportError(f"{arguments[0]} is not allowed here")


def _refuse_outside(readable: tuple[str, ...], folder: str) -> Callable[[str, tuple[Any, ...]], None]:
    def require_below(folders: tuple[str, ...], event: str, *given: Any) -> None:
        for each in given:
            if isinstance(each, str | bytes | os.PathLike):
                path = os.path.realpath(os.fsdecode(each))
                if not any(path == folder or path.startswith(f"{folder.rstrip('/')}/") for folder in folders):
                    raise PermissionError(f"{event} of {path} is not allowed here")

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
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

    return hook
