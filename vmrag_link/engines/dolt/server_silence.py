"""A server that took long not to answer is not asked again for a minute.

Each command, and each hook of git's, would wait for it once more.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from vmrag_link.engines.dolt.access import DoltAccess
from vmrag_link.errors import ServerUnreachable, quoted
from vmrag_link.models import Record
from vmrag_link.paths import write_atomically

NAME = "unreached.json"
RETRY_SECONDS = 60.0
LONG_SECONDS = 2.0
"""What took less is asked again each time: it costs nobody anything."""


class _Silence(Record, frozen=True):
    """`at`: seconds since 1970."""

    server: str
    at: float
    message: str


@contextlib.contextmanager
def remember_silence(folder: Path, access: DoltAccess) -> Iterator[None]:
    """Reach the server in the block; what keeps it from that is remembered in a knowledge base's
    folder, if it took long.

    Raises `ServerUnreachable` at once for what is remembered.
    """
    note = folder / NAME
    _require_not_silent(note, access)
    begun = time.monotonic()
    try:
        yield
    except ServerUnreachable as error:
        if time.monotonic() - begun >= LONG_SECONDS:
            with contextlib.suppress(OSError):  # a courtesy to the next command
                write_atomically(
                    note, msgspec.json.encode(_Silence(access.server, time.time(), error.message)), durable=False
                )
        raise


def _require_not_silent(note: Path, access: DoltAccess) -> None:
    try:
        found = msgspec.json.decode(note.read_bytes(), type=_Silence)
    except (OSError, UnicodeDecodeError, msgspec.DecodeError):
        return
    ago = time.time() - found.at
    if found.server == access.server and 0 <= ago < RETRY_SECONDS:
        raise ServerUnreachable(
            f"{found.message} That was {ago:.0f} s ago; it is asked again {RETRY_SECONDS:.0f} s after it.",
            hint=f"Ask whether it runs there. To try at once: rm -f {quoted(note)}, and run the command again.",
            server=access.server,
        )
