"""git that only looks: it takes no lock, fetches nothing, replaces no object, and starts no program
that the repository or the configuration names.

It reads what is needed beside the person's own git commands, of trees that strangers wrote. Blobs
that a partial clone lacks stay missing: nothing is fetched for them.
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
from typing import BinaryIO

from vmrag_link import env, proc
from vmrag_link.errors import GitFailed, LimitExceeded
from vmrag_link.git import configuration
from vmrag_link.git.run import GUARDS, MOST_MEMORY, borrowed_environment, build_failure, guarded_environment, run_git
from vmrag_link.paths import Places

SECONDS = 120.0
"""A tree of a few kilobytes can have more paths than any machine can list: each level names one
subtree twice.
"""

MOST_BYTES = 400_000_000
"""Of one answer that lists something."""

_READ = 1 << 20
_LATE = "long"

_UNTIL: ContextVar[float | None] = ContextVar("until", default=None)


@contextlib.contextmanager
def share_deadline() -> Iterator[None]:
    """All looks within end `SECONDS` after the first of these blocks began, not each by itself."""
    if _UNTIL.get() is not None:
        yield
        return
    before = _UNTIL.set(time.monotonic() + SECONDS)
    try:
        yield
    finally:
        _UNTIL.reset(before)


def seconds_left() -> float:
    """The seconds that the next call of git has, or the work on its answers."""
    until = _UNTIL.get()
    return SECONDS if until is None else max(until - time.monotonic(), 0.0)


def require_time(what: str) -> None:
    """Raise `LimitExceeded` after the deadline. `what` begins a sentence: `git ls-files`."""
    if not seconds_left():
        raise _too_long(what)


def run_readonly(
    places: Places,
    *arguments: str,
    stdin: bytes | None = None,
    index_file: Path | None = None,
    fine: tuple[int, ...] = (0,),
) -> proc.FinishedProcess:
    """Run git; another exit code than those raises `GitFailed`, and more than `SECONDS`, or the
    `one_deadline` around it, `LimitExceeded`.
    """
    try:
        done = run_git(
            places,
            *GUARDS,
            *arguments,
            stdin=stdin,
            index_file=index_file,
            extra=_environment(places),
            timeout=seconds_left(),
            memory=MOST_MEMORY,
        )
    except TimeoutError as error:
        raise _too_long(f"git {arguments[0]}") from error
    if done.returncode not in fine:
        raise build_failure(arguments, done)
    return done


def list_fields(places: Places, *arguments: str, most: int, index_file: Path | None = None) -> list[bytes]:
    """What git lists between NULs. Raises as `look`, and `LimitExceeded` for more than `most`.

    git is ended as soon as that shows: what it says does not pile up.
    """
    content = _streamed(places, arguments, most, index_file, keep=True)
    return content.split(b"\0")[:-1] if content else []


def require_fewer(places: Places, *arguments: str, most: int) -> None:
    """Raise as `fields`, and keep nothing of what git lists."""
    _streamed(places, arguments, most, None, keep=False)


def feed_output(
    places: Places, *arguments: str, take: Callable[[bytes], bool], seconds: float, extra: Mapping[str, str]
) -> bool:
    """Hand what git writes to `take`, part by part, until it returns False. `extra` goes into git's
    environment.

    Return False if git took more than `seconds`. Raises `GitFailed` if git fails.
    """
    reason = _run_streamed(places, arguments, lambda part: "" if take(part) else "enough", seconds=seconds, extra=extra)
    return reason != _LATE


def _streamed(places: Places, arguments: tuple[str, ...], most: int, index_file: Path | None, *, keep: bool) -> bytes:
    parts: list[bytes] = []
    number = size = 0

    def take_part(part: bytes) -> str:
        nonlocal number, size
        number += part.count(b"\0")
        size += len(part)
        if number > most or size > MOST_BYTES:
            return "much"
        if keep:
            parts.append(part)
        return ""

    extra = {"GIT_INDEX_FILE": str(index_file)} if index_file is not None else {}
    reason = _run_streamed(places, arguments, take_part, seconds=seconds_left(), extra=extra)
    if reason == _LATE:
        raise _too_long(f"git {arguments[0]}")
    if reason:
        raise LimitExceeded(
            f"git {arguments[0]} lists more than {most:,} names.",
            hint="Name fewer files in `sources` of .vmrag.yaml, or leave folders out by `exclude`.",
            most=most,
        )
    return b"".join(parts)


def _run_streamed(
    places: Places,
    arguments: tuple[str, ...],
    take: Callable[[bytes], str],
    *,
    seconds: float,
    extra: Mapping[str, str],
) -> str:
    """Run git, hand on its output as it comes, and return why it was ended early, if it was.

    Raises `GitFailed` if git fails by itself.
    """
    environ = env.copy_without(env.GIT_SCRUBBED) | _environment(places) | borrowed_environment(places)
    environ |= {"LC_ALL": "C"} | dict(extra)
    argv = ["git", f"--git-dir={places.git_dir}", f"--work-tree={places.top}", *GUARDS, *arguments]
    reading, writing = os.pipe()  # no file: the disk may take none
    with os.fdopen(reading, "rb") as messages:
        try:
            with os.fdopen(writing, "wb") as stderr:
                process = proc.start_piped(argv, cwd=places.top, env=environ, stderr=stderr)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise GitFailed(
                f"git cannot be started in {places.top}.", hint="See that git is on PATH, and that the folder exists."
            ) from error
        from vmrag_link.thread_task import ThreadTask

        reader = ThreadTask(functools.partial(_read_beginning, messages))
        reason = _feed_parts(process, take, seconds)
        done = proc.FinishedProcess(argv, process.returncode, b"", reader.result())
    if not reason and done.returncode != 0:
        raise build_failure(arguments, done)
    return reason


def _read_beginning(messages: BinaryIO) -> bytes:
    """Return the beginning of what a program writes, and let it write the rest."""
    beginning = messages.read(_READ)
    while messages.read(_READ):
        pass
    return beginning


def _feed_parts(process: proc.Started, take: Callable[[bytes], str], seconds: float) -> str:
    """Hand on all that a program writes, and return why it was ended: what `take` returned, or
    `_LATE`.
    """
    late = threading.Event()

    def end() -> None:
        late.set()
        process.kill()

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    try:
        with process:
            assert process.stdin is not None  # noqa: S101  `piped` opened both
            assert process.stdout is not None  # noqa: S101
            process.stdin.close()
            # As it comes: `read` would wait until that much is there.
            for part in iter(functools.partial(os.read, process.stdout.fileno(), _READ), b""):
                if reason := take(part):
                    process.kill()
                    return reason
    except BaseException:
        process.kill()
        process.wait()
        raise
    finally:
        timer.cancel()
    return _LATE if late.is_set() else ""


def _environment(places: Places) -> dict[str, str]:
    return guarded_environment(key for key, _ in configuration.list_entries(places))


def _too_long(what: str) -> LimitExceeded:
    return LimitExceeded(
        f"{what} took more than {SECONDS:.0f} seconds, with what was looked at before.",
        hint="Name fewer files in `sources` of .vmrag.yaml, or leave folders out by `exclude`.",
    )


# What `--missing=print` would print are the missing ones that another object names; of the names
# themselves those are left out that are missing.
_HERE = ("rev-list", "--objects", "--no-object-names", "--no-walk", "--ignore-missing", "--missing=print", "--stdin")


def read_blob_sizes(places: Places, blobs: Iterable[str]) -> dict[str, int]:
    """The sizes in bytes of the blobs that are here; others are left out. Raises as
    `beside.look`.
    """
    asked = [*dict.fromkeys(blobs)]
    if not asked:
        return {}
    answer = _cat_file(places, "--batch-check", asked)
    found = (line.split(b" ") for line in answer.splitlines())
    return {each[0].decode(): int(each[2]) for each in found if len(each) == 3 and each[1] == b"blob"}  # noqa: PLR2004


def read_blobs(places: Places, blobs: Iterable[str]) -> dict[str, bytes]:
    """The contents of the blobs that are here; all are in memory at once. Raises as
    `beside.look`.
    """
    asked = [*dict.fromkeys(blobs)]
    if not asked:
        return {}
    answer = _cat_file(places, "--batch", asked)
    found: dict[str, bytes] = {}
    at = 0
    while (end := answer.find(b"\n", at)) >= 0:
        match answer[at:end].split(b" "):
            case [name, kind, size]:
                at = end + 1 + int(size)
                if kind == b"blob":
                    found[name.decode()] = answer[end + 1 : at]
                at += 1
            case _:  # `NAME missing`
                at = end + 1
    return found


def _cat_file(places: Places, how: str, names: Sequence[str]) -> bytes:
    """What `git cat-file` says of these objects: in a partial clone the first missing object ends
    git, so the others are found first.
    """
    done = run_readonly(places, "cat-file", how, "--buffer", stdin=_lines(names), fine=(0, _FATAL))
    if done.returncode == 0:
        return done.stdout
    here = set(run_readonly(places, *_HERE, stdin=_lines(names)).text.split())
    left = [name for name in names if name in here]
    return run_readonly(places, "cat-file", how, "--buffer", stdin=_lines(left)).stdout if left else b""


_FATAL = 128


def _lines(names: Iterable[str]) -> bytes:
    return "".join(f"{name}\n" for name in names).encode()
