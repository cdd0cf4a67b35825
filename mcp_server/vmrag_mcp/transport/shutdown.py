"""The end of the server: at once, whatever its threads do.

Operations can be killed anywhere, so nothing that was stored is lost.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from typing import NoReturn

from vmrag_link import proc
from vmrag_link.errors import INTERRUPTED, OK

_WATCH_SECONDS = 0.5


def leave(code: int = OK) -> NoReturn:
    """Threads are not waited for; programs that they wait for end, too."""
    proc.abandon()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(
            OSError, ValueError, RuntimeError
        ):  # RuntimeError: a signal came while it was written to
            stream.flush()
    os._exit(code)


def leave_when_told() -> None:
    """SIGTERM and a closed terminal end it as its client does, Ctrl-C as it ends commands."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: leave())
    signal.signal(signal.SIGINT, lambda *_: leave(INTERRUPTED))


def leave_with_parent() -> None:
    """End with the client's process: others may keep the pipe open, so no end of input comes."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_WATCH_SECONDS)
        leave()

    threading.Thread(target=watch, name="parent", daemon=True).start()
