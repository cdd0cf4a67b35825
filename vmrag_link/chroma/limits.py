"""The limits that Chroma's library needs. Below them it aborts the process, so they are checked
first.
"""

from __future__ import annotations

import contextlib
import os
import resource
import sys

from vmrag_link.errors import LimitTooLow

DESCRIPTORS = 24
"""Free file descriptors: its databases, its threads, and one HNSW index of five files.

With 12 it aborts, with 16 it works.
"""

ADDRESS_SPACE = 400 << 20
"""Free bytes: opening it maps that much for threads and their arenas. With 300 MB it sometimes
aborts.
"""

LIBRARY = "chromadb_rust_bindings"


def require() -> None:
    """Raises `LimitTooLow` where a limit of this process is below what Chroma needs."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files != resource.RLIM_INFINITY and files - _open_files() < DESCRIPTORS:
        raise LimitTooLow(
            f"The vector index needs {DESCRIPTORS} free file descriptors, and this process may open {files} in all.",
            hint="ulimit -n 256",
            limit="RLIMIT_NOFILE",
        )
    space, _ = resource.getrlimit(resource.RLIMIT_AS)
    if space != resource.RLIM_INFINITY and LIBRARY not in sys.modules and space - _address_space() < ADDRESS_SPACE:
        raise LimitTooLow(
            f"The vector index needs {ADDRESS_SPACE >> 20} MB of address space more than this process may have "
            f"({space >> 20} MB in all).",
            hint="ulimit -v unlimited",
            limit="RLIMIT_AS",
        )


def _open_files() -> int:
    try:
        return len(os.listdir("/dev/fd"))  # noqa: PTH208  numbers, not paths
    except OSError:
        return DESCRIPTORS  # not even that many are left, or nobody tells


def _address_space() -> int:
    with contextlib.suppress(OSError), open("/proc/self/statm", "rb") as told:  # noqa: PTH123
        return int(told.read().split()[0]) * resource.getpagesize()
    return 0
