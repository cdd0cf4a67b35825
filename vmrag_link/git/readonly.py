"""Read-only git commands: they take no lock, fetch nothing, replace no object, and start no program
that the repository or the configuration names.

They read trees that untrusted people wrote, next to the user's own git commands. Blobs that a
partial clone lacks stay missing, because nothing is fetched for them.
"""

from __future__ import annotations

import contextlib
import functools
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import BinaryIO, Literal

from vmrag_link import env, proc
from vmrag_link.errors import GitFailed, LimitExceeded
from vmrag_link.git import configuration
from vmrag_link.git.run import (
    GUARDS,
    MAX_MEMORY_BYTES,
    borrowed_environment,
    build_failure,
    guarded_environment,
    join_lines,
    run_git,
)
from vmrag_link.paths import Places

SECONDS = 120.0
"""Time limit of one command. A tree of a few kilobytes can have more paths than any machine can
list, because each level can name one subtree twice.
"""

_MAX_LIST_BYTES = 400_000_000
"""Size limit of one answer that lists something."""

_READ_BYTES = 1 << 20
_FATAL = 128  # exit code of git

# `--ignore-missing` leaves out the named objects that are missing. `--missing=print` is for missing
# objects that other objects name.
_LIST_PRESENT = (
    *("rev-list", "--objects", "--no-object-names", "--no-walk"),
    *("--ignore-missing", "--missing=print", "--stdin"),
)

_DEADLINE: ContextVar[float | None] = ContextVar("deadline", default=None)

_StopReason = Literal["", "late", "enough"]
"""Why git was stopped before its end: after a time limit, or because the reader wants no more
output. Empty if git was not stopped.
"""


@contextlib.contextmanager
def share_deadline() -> Iterator[None]:
    """Let all commands in the block end `SECONDS` after the outermost of these blocks began,
    instead of each after its own limit.
    """
    if _DEADLINE.get() is not None:
        yield
        return
    before = _DEADLINE.set(time.monotonic() + SECONDS)
    try:
        yield
    finally:
        _DEADLINE.reset(before)


def seconds_left() -> float:
    """Return the seconds that remain for the next git command, or for the work on its answers."""
    deadline = _DEADLINE.get()
    return SECONDS if deadline is None else max(deadline - time.monotonic(), 0.0)


def require_time(what: str) -> None:
    """Raise `LimitExceeded` after the deadline.

    `what` is the beginning of the sentence, such as `git ls-files`.
    """
    if not seconds_left():
        raise _build_timeout_error(what)


def run_readonly(
    places: Places,
    *arguments: str,
    stdin: bytes | None = None,
    index_file: Path | None = None,
    fine: tuple[int, ...] = (0,),
) -> proc.FinishedProcess:
    """Run git and return what it left.

    Raises `GitFailed` if the exit code is not in `fine`. Raises `LimitExceeded` after `SECONDS`, or
    after the deadline of `share_deadline`.
    """
    try:
        finished = run_git(
            places,
            *GUARDS,
            *arguments,
            stdin=stdin,
            index_file=index_file,
            extra=_build_environment(places),
            timeout=seconds_left(),
            memory=MAX_MEMORY_BYTES,
        )
    except TimeoutError as error:
        raise _build_timeout_error(f"git {arguments[0]}") from error
    if finished.returncode not in fine:
        raise build_failure(arguments, finished)
    return finished


def list_fields(places: Places, *arguments: str, limit: int, index_file: Path | None = None) -> list[bytes]:
    """Return the NUL-terminated fields that git prints.

    git is stopped as soon as there are more than `limit`, so its output does not pile up. Raises
    `GitFailed` and `LimitExceeded`.
    """
    content = _read_limited(places, arguments, limit, index_file, keep=True)
    return content.split(b"\0")[:-1] if content else []


def require_fewer(places: Places, *arguments: str, limit: int) -> None:
    """Raise `LimitExceeded` if git lists more than `limit` fields. Nothing of the list is kept.

    Raises `GitFailed`.
    """
    _read_limited(places, arguments, limit, None, keep=False)


def feed_output(
    places: Places, *arguments: str, take: Callable[[bytes], bool], seconds: float, extra: Mapping[str, str]
) -> bool:
    """Hand git's output to `take`, part by part, until `take` returns False.

    `extra` is added to git's environment. Returns False if git took more than `seconds`. Raises
    `GitFailed`.
    """
    return _stream_output(places, arguments, take, seconds=seconds, extra=extra) != "late"


def read_blob_sizes(places: Places, blobs: Iterable[str]) -> dict[str, int]:
    """Return the sizes in bytes of the blobs that this clone has, by name.

    Raises `GitFailed` and `LimitExceeded`.
    """
    names = [*dict.fromkeys(blobs)]
    if not names:
        return {}
    answer = _run_cat_file(places, "--batch-check", names)
    lines = (line.split(b" ") for line in answer.splitlines())
    return {fields[0].decode(): int(fields[2]) for fields in lines if len(fields) == 3 and fields[1] == b"blob"}  # noqa: PLR2004


def read_blobs(places: Places, blobs: Iterable[str]) -> dict[str, bytes]:
    """Return the contents of the blobs that this clone has, by name. All are in memory at once.

    Raises `GitFailed` and `LimitExceeded`.
    """
    names = [*dict.fromkeys(blobs)]
    if not names:
        return {}
    answer = _run_cat_file(places, "--batch", names)
    contents: dict[str, bytes] = {}
    position = 0
    while (end := answer.find(b"\n", position)) >= 0:
        match answer[position:end].split(b" "):
            case [name, kind, size]:
                position = end + 1 + int(size)
                if kind == b"blob":
                    contents[name.decode()] = answer[end + 1 : position]
                position += 1
            case _:  # `NAME missing`
                position = end + 1
    return contents


def _read_limited(
    places: Places, arguments: tuple[str, ...], limit: int, index_file: Path | None, *, keep: bool
) -> bytes:
    """Return the fields that git prints or, without `keep`, nothing. Raises `LimitExceeded` for
    more than `limit` fields.
    """
    parts: list[bytes] = []
    number = size = 0

    def take_part(part: bytes) -> bool:
        nonlocal number, size
        number += part.count(b"\0")
        size += len(part)
        if keep:
            parts.append(part)
        return number <= limit and size <= _MAX_LIST_BYTES

    extra = {"GIT_INDEX_FILE": str(index_file)} if index_file is not None else {}
    reason = _stream_output(places, arguments, take_part, seconds=seconds_left(), extra=extra)
    if reason == "late":
        raise _build_timeout_error(f"git {arguments[0]}")
    if reason == "enough":
        raise LimitExceeded(
            f"git {arguments[0]} lists more than {limit:,} names.",
            hint="name fewer files in `sources` of .vmrag.yaml, or leave out folders with `exclude`",
            most=limit,
        )
    return b"".join(parts)


def _stream_output(
    places: Places,
    arguments: tuple[str, ...],
    take: Callable[[bytes], bool],
    *,
    seconds: float,
    extra: Mapping[str, str],
) -> _StopReason:
    """Run git, hand its output to `take` as it arrives, and return why git was stopped early.

    Raises `GitFailed` if git itself fails.
    """
    environ = env.copy_without(env.GIT_SCRUBBED) | _build_environment(places) | borrowed_environment(places)
    environ |= {"LC_ALL": "C"} | dict(extra)
    argv = ["git", f"--git-dir={places.git_dir}", f"--work-tree={places.top}", *GUARDS, *arguments]
    reading, writing = os.pipe()  # not a file: the disk may be full
    with os.fdopen(reading, "rb") as messages:
        try:
            with os.fdopen(writing, "wb") as stderr:
                process = proc.start_piped(argv, cwd=places.top, env=environ, stderr=stderr)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise GitFailed(
                f"git cannot be started in {places.top}.", hint="check that git is on PATH and that the folder exists"
            ) from error
        from vmrag_link.thread_task import ThreadTask

        reader = ThreadTask(functools.partial(_read_beginning, messages))
        reason = _feed_parts(process, take, seconds)
        finished = proc.FinishedProcess(argv, process.returncode, b"", reader.result())
    if not reason and finished.returncode != 0:
        raise build_failure(arguments, finished)
    return reason


def _read_beginning(messages: BinaryIO) -> bytes:
    """Return the beginning of what a program writes, and let it write the rest."""
    beginning = messages.read(_READ_BYTES)
    while messages.read(_READ_BYTES):
        pass
    return beginning


def _feed_parts(process: proc.Started, take: Callable[[bytes], bool], seconds: float) -> _StopReason:
    """Hand everything that a program writes to `take`, until `take` returns False."""
    late = threading.Event()

    def stop_process() -> None:
        late.set()
        process.kill()

    timer = threading.Timer(seconds, stop_process)
    timer.daemon = True
    timer.start()
    try:
        with process:
            assert process.stdin is not None  # noqa: S101  `start_piped` opened both
            assert process.stdout is not None  # noqa: S101
            process.stdin.close()
            # `os.read` returns what has arrived. The file's `read` would wait for that many bytes.
            for part in iter(functools.partial(os.read, process.stdout.fileno(), _READ_BYTES), b""):
                if not take(part):
                    process.kill()
                    return "enough"
    except BaseException:
        process.kill()
        process.wait()
        raise
    finally:
        timer.cancel()
    return "late" if late.is_set() else ""


def _build_environment(places: Places) -> dict[str, str]:
    return guarded_environment(key for key, _ in configuration.list_entries(places))


def _build_timeout_error(what: str) -> LimitExceeded:
    return LimitExceeded(
        f"{what} exceeded the limit of {SECONDS:.0f} seconds for all git commands of this step.",
        hint="name fewer files in `sources` of .vmrag.yaml, or leave out folders with `exclude`",
    )


def _run_cat_file(places: Places, mode: str, names: Sequence[str]) -> bytes:
    """Return the output of `git cat-file` for these objects.

    In a partial clone git stops at the first missing object. Then the existing objects are listed
    first, and git reads only those.
    """
    finished = run_readonly(places, "cat-file", mode, "--buffer", stdin=join_lines(names), fine=(0, _FATAL))
    if finished.returncode == 0:
        return finished.stdout
    present = set(run_readonly(places, *_LIST_PRESENT, stdin=join_lines(names)).text.split())
    existing = [name for name in names if name in present]
    return run_readonly(places, "cat-file", mode, "--buffer", stdin=join_lines(existing)).stdout if existing else b""
