"""How a process that somebody waits for comes and goes quickly.

It collects no garbage while it imports, which triggers that several times for nothing, and it does
not take the interpreter apart when everything is written: that takes a tenth of a `vmrag sync`.
"""

from __future__ import annotations

import contextlib
import gc
import os
import sys
from typing import Any, NoReturn

SELDOM = 20_000
"""New objects after which garbage is collected. Python's 700 are for programs with less memory."""


def begin() -> None:
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


def imported() -> None:
    """From here on garbage is collected, for a process that may run for long: seldom, because
    records are none, and without looking at what was imported.
    """
    if not gc.isenabled():
        gc.freeze()
        gc.set_threshold(SELDOM)
        gc.enable()


def leave(code: int) -> NoReturn:
    """End the process: at once if no other thread is at work and everything could be written."""
    threads = sys.modules.get("threading")
    if threads is None or threads.active_count() == 1:
        with contextlib.suppress(OSError, ValueError):
            for stream in filter(None, (sys.stdout, sys.stderr)):
                stream.flush()
            os._exit(code)
    sys.exit(code)
