"""How a process that somebody waits for comes and goes quickly, and how it ends at Ctrl-C.

It collects no garbage while it imports, which triggers that several times for nothing, and it does
not take the interpreter apart when everything is written: that takes a tenth of a `vmrag sync`.

Import this module first: from then on, Ctrl-C prints one line instead of a traceback, also while
other modules are imported.
"""

from __future__ import annotations

import sys


def _print_uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if issubclass(kind, KeyboardInterrupt):
        sys.stderr.write("Interrupted. Nothing that was stored is lost.\n")
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

SELDOM = 20_000
"""New objects after which garbage is collected. Python's 700 are for programs with less memory."""


def prepare_start() -> None:
    """Call it before anything else is imported."""
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
    """From here on garbage is collected, for a process that may run for long: seldom, because
    records are none, and without looking at what was imported.
    """
    if not gc.isenabled():
        gc.freeze()
        gc.set_threshold(SELDOM)
        gc.enable()


def exit_process(code: int) -> NoReturn:
    """End the process: at once if no other thread is at work and everything could be written."""
    threads = sys.modules.get("threading")
    if threads is None or threads.active_count() == 1:
        with contextlib.suppress(OSError, ValueError):
            for stream in filter(None, (sys.stdout, sys.stderr)):
                stream.flush()
            os._exit(code)
    sys.exit(code)
