"""What every child process does: confine itself, then answer one task after the other, until the
end of standard input.

A thread reads what we are told, so the end of the process that started this one ends it at once,
in whatever it is doing.
"""

from __future__ import annotations

import os
import queue
import shutil
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import IO, Protocol, TypeVar

import msgspec

from vmrag_link.conversion.child import confinement
from vmrag_link.conversion.limits import ConversionLimits, receive, send

LONGEST_TASK = 1 << 16
"""Bytes of what a task says beside its file or text."""

Task = TypeVar("Task")


class HasLast(Protocol):
    """An answer; after the `last` one the process ends, because it has used too much to go on."""

    @property
    def last(self) -> bool: ...


def serve(
    read: Callable[[IO[bytes], ConversionLimits], Task],
    answer: Callable[[Task, ConversionLimits], HasLast],
) -> None:
    """`read` reads the frames of a task. The first frame of all holds the limits.

    Returns after the `last` answer. Raises `Disconnected` where there are no limits.
    """
    folder = Path.cwd()
    stdin, stdout = sys.stdin.buffer, sys.stdout.buffer
    sys.stdout = sys.stderr  # nothing that a library prints gets between the answers
    limits = msgspec.msgpack.decode(receive(stdin, LONGEST_TASK), type=ConversionLimits)
    confinement.confine(limits, folder)
    tasks: queue.Queue[Task] = queue.Queue()

    def listen() -> None:
        try:
            while True:
                tasks.put(read(stdin, limits))
        finally:  # whatever it was: nobody waits for answers any more
            shutil.rmtree(folder, ignore_errors=True)
            os._exit(0)

    threading.Thread(target=listen, daemon=True).start()
    while True:
        task = tasks.get()
        confinement.allow_seconds(limits.max_cpu_seconds)
        found = answer(task, limits)
        send(stdout, msgspec.msgpack.encode(found))
        if found.last:
            return


def is_used_up(limits: ConversionLimits) -> bool:
    """Whether no memory is left for another task as large as the largest so far."""
    return confinement.memory_used() > limits.max_memory // 2
