"""Start and end a process quickly, and handle Ctrl-C.

The process collects no garbage while it imports, because that would trigger several useless
collections. When everything is written, it does not finalize the interpreter, which would take a
tenth of a `vmrag sync`.

Import this module first. From then on, Ctrl-C prints one line instead of a traceback, also while
other modules are imported.
"""

from __future__ import annotations

import sys


def _print_uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if issubclass(kind, KeyboardInterrupt):
        sys.stderr.write("Interrupted. No stored data was lost.\n")
    else:
        sys.__excepthook__(kind, error, trace)


if sys.excepthook is sys.__excepthook__:
    sys.excepthook = _print_uncaught

import contextlib  # noqa: E402
import gc  # noqa: E402
import os  # noqa: E402
from typing import TYPE_CHECKING, Any, NoReturn  # noqa: E402

if TYPE_CHECKING:
    from types import TracebackType

_COLLECTION_THRESHOLD = 20_000
"""Number of new objects after which garbage is collected. Python's 700 are for programs with less
memory.
"""


def prepare_start() -> None:
    """Prepare a quick start. Call it before any other import."""
    gc.disable()
    modules: dict[str, Any] = sys.modules
    if "msgspec" in modules or "typing_extensions" in modules:
        return
    # msgspec prefers this module to `typing`, which has all of it since Python 3.11; to import it
    # takes a twentieth of a `vmrag sync`.
    modules["typing_extensions"] = None
    import msgspec  # noqa: F401

    del modules["typing_extensions"]


def enable_collection() -> None:
    """Collect garbage from now on, for a process that can run for long.

    Collections are rare, because records are not tracked. Imported objects are skipped.
    """
    if not gc.isenabled():
        gc.freeze()
        gc.set_threshold(_COLLECTION_THRESHOLD)
        gc.enable()


def exit_process(code: int) -> NoReturn:
    """End the process.

    If no other thread is running and the output could be written, the interpreter is not finalized.
    """
    threads = sys.modules.get("threading")
    if threads is None or threads.active_count() == 1:
        with contextlib.suppress(OSError, ValueError):
            for stream in filter(None, (sys.stdout, sys.stderr)):
                stream.flush()
            os._exit(code)
    sys.exit(code)
