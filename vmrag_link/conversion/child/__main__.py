"""`python -m vmrag_link.conversion.child`: convert files, as `serving` says."""

from __future__ import annotations

import sys
from typing import IO

import msgspec

from vmrag_link.conversion import frames
from vmrag_link.conversion.child.readers import read
from vmrag_link.conversion.child.serving import LONGEST_TASK, is_used_up, serve
from vmrag_link.conversion.frames import Answer, ConversionTask, Disconnected
from vmrag_link.conversion.limits import ContentUnreadable, ConversionLimits


def _receive(stdin: IO[bytes], limits: ConversionLimits) -> tuple[ConversionTask, bytes]:
    task = msgspec.msgpack.decode(frames.receive(stdin, LONGEST_TASK), type=ConversionTask)
    return task, frames.receive(stdin, limits.max_bytes)


def _answer(given: tuple[ConversionTask, bytes], limits: ConversionLimits) -> Answer:
    """Every failure is that of this one file: converters raise whatever they like."""
    try:
        found = read(*given, limits)
    except ContentUnreadable as error:
        return Answer(failed=error.reason, hint=error.hint, last=is_used_up(limits))
    except MemoryError:
        mib = limits.max_memory >> 20
        hint = f"git config vmrag.ingest.convert-mb {2 * mib}"
        return Answer(failed=f"needs more than {mib:,} MiB of memory to be converted", hint=hint, last=True)
    except RecursionError:
        return Answer(failed="nests too deeply to be converted", last=is_used_up(limits))
    except ImportError as error:  # it is installed, or the parent had not asked
        hint = "pip install --force-reinstall 'vmrag-link[convert]'; if memory is short: git config vmrag.ingest.convert-mb NUMBER"
        failed = f"cannot be converted, its converter does not start ({_error_line(error)})"
        return Answer(failed=failed, hint=hint, last=True)
    except Exception as error:  # noqa: BLE001  the outermost boundary of this process
        return Answer(failed=f"cannot be converted ({_error_line(error)})", last=is_used_up(limits))
    return Answer(text=found.content, title=found.title, metadata=found.metadata, last=is_used_up(limits))


def _error_line(error: Exception) -> str:
    """What a library raised, in one line."""
    first = next(iter(str(error).strip().splitlines()), "")
    return f"{type(error).__name__}: {first}"[:300]


if __name__ == "__main__":
    try:
        serve(_receive, _answer)
    except Disconnected:
        sys.exit(0)
