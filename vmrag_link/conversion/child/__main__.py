"""`python -m vmrag_link.conversion.child`: convert files, one after the other, until the end of
standard input.

A thread reads what we are told, so the end of the process that started this one ends it at once,
in whatever conversion it is.
"""

from __future__ import annotations

import os
import queue
import shutil
import sys
import threading
from pathlib import Path
from typing import IO

import msgspec

from vmrag_link.conversion import frames
from vmrag_link.conversion.child import confinement
from vmrag_link.conversion.child.readers import read
from vmrag_link.conversion.frames import Answer, ConversionTask, Disconnected
from vmrag_link.conversion.limits import ConversionLimits
from vmrag_link.conversion.unreadable import ContentUnreadable

_LONGEST_TASK = 1 << 16


def main() -> None:
    folder = Path.cwd()
    stdin, stdout = sys.stdin.buffer, sys.stdout.buffer
    sys.stdout = sys.stderr  # nothing that a library prints gets between the answers
    limits = msgspec.msgpack.decode(frames.receive(stdin, _LONGEST_TASK), type=ConversionLimits)
    confinement.confine(limits, folder)
    tasks: queue.Queue[tuple[ConversionTask, bytes]] = queue.Queue()
    threading.Thread(target=_listen, args=(stdin, tasks, limits, folder), daemon=True).start()
    while True:
        task, data = tasks.get()
        answer = _answer(task, data, limits)
        frames.send(stdout, frames.encode(answer))
        if answer.last:
            return


def _listen(
    stdin: IO[bytes], tasks: queue.Queue[tuple[ConversionTask, bytes]], limits: ConversionLimits, folder: Path
) -> None:
    try:
        while True:
            task = msgspec.msgpack.decode(frames.receive(stdin, _LONGEST_TASK), type=ConversionTask)
            tasks.put((task, frames.receive(stdin, limits.max_bytes)))
    finally:  # whatever it was: nobody waits for answers any more
        shutil.rmtree(folder, ignore_errors=True)
        os._exit(0)


def _answer(task: ConversionTask, data: bytes, limits: ConversionLimits) -> Answer:
    """Every failure is that of this one file: converters raise whatever they like."""
    confinement.allow_seconds(limits.max_cpu_seconds)
    try:
        found = read(task, data, limits)
    except ContentUnreadable as error:
        return Answer(failed=error.reason, hint=error.hint, last=_is_used_up(limits))
    except MemoryError:
        mib = limits.max_memory >> 20
        hint = f"git config vmrag.ingest.convert-mb {2 * mib}"
        return Answer(failed=f"needs more than {mib:,} MiB of memory to be converted", hint=hint, last=True)
    except RecursionError:
        return Answer(failed="nests too deeply to be converted", last=_is_used_up(limits))
    except ImportError as error:  # it is installed, or the parent had not asked
        hint = "pip install --force-reinstall 'vmrag-link[convert]'; if memory is short: git config vmrag.ingest.convert-mb NUMBER"
        failed = f"cannot be converted, its converter does not start ({_said(error)})"
        return Answer(failed=failed, hint=hint, last=True)
    except Exception as error:  # noqa: BLE001  the outermost boundary of this process
        return Answer(failed=f"cannot be converted ({_said(error)})", last=_is_used_up(limits))
    return Answer(text=found.content, title=found.title, metadata=found.metadata, last=_is_used_up(limits))


def _said(error: Exception) -> str:
    """What a library raised, in one line."""
    first = next(iter(str(error).strip().splitlines()), "")
    return f"{type(error).__name__}: {first}"[:300]


def _is_used_up(limits: ConversionLimits) -> bool:
    """Whether memory is left for another file as large as the largest so far."""
    return confinement.memory_used() > limits.max_memory // 2


if __name__ == "__main__":
    try:
        main()
    except Disconnected:
        sys.exit(0)
