"""Run git with a scrubbed environment, in the C locale, with the repository passed explicitly.

`check_git` raises an error if git fails, `run_git` returns the exit code. `run_git_in` is for a
folder of which no `Places` are known.
"""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Iterable, Iterator, Mapping
from contextvars import ContextVar
from pathlib import Path

from vmrag_link import env, proc
from vmrag_link.errors import GitFailed, LimitExceeded
from vmrag_link.file_access import FileStamp, read_file_stamps
from vmrag_link.paths import Places

_HELD = r"(?:Unable to create '(?P<lock>[^\n]+\.lock)'|could not lock config file (?P<locked>[^\n]+)): File exists"
"""A file that another git command is writing, or was writing when it was killed."""

GUARDS = (
    *("--no-optional-locks", "--no-replace-objects"),
    *("-c", "core.fsmonitor=false"),
    *("-c", "core.hooksPath=/dev/null"),  # otherwise `post-index-change` would also run for vmrag's own index
    *("-c", "core.splitIndex=false", "-c", "core.untrackedCache=false"),
)
"""Options with which git starts no program that a repository names, together with
`guarded_environment`.
"""

MAX_SECONDS = 60.0
MAX_MEMORY_BYTES = 1 << 30
"""Limits of a git command that reads a value from a user or an agent. `HEAD^{/REGEX}` can take
unlimited time and gigabytes.
"""

_answers_agent: ContextVar[bool] = ContextVar("answers_agent", default=False)


@contextlib.contextmanager
def answering_agent() -> Iterator[None]:
    """Limit each git command in this block that has no limit of its own, and resolve no expression
    that searches messages (`plumbing.resolve_commit`), because the values come from an agent.
    """
    before = _answers_agent.set(True)
    try:
        yield
    finally:
        _answers_agent.reset(before)


def is_for_agent() -> bool:
    """Return whether this runs in a block of `answering_agent`."""
    return _answers_agent.get()


def run_git_in(
    folder: Path,
    *arguments: str,
    stdin: bytes | None = None,
    index_file: Path | None = None,
    extra: Mapping[str, str] | None = None,
    timeout: float | None = None,
    memory: int | None = None,
    bounded: bool = False,
) -> proc.FinishedProcess:
    """Run git in any existing directory and return what it left. `extra` is added to its
    environment.

    `timeout` and `memory` are as in `proc.run`. `bounded` sets both for a value from a user or an
    agent. Raises `GitFailed` if git is missing or a signal ended it, `TimeoutError` after `timeout`
    seconds, and `LimitExceeded` after `MAX_SECONDS` if nothing sets `timeout`.
    """
    bounded = bounded or (timeout is None and is_for_agent())
    if bounded:
        timeout, memory = MAX_SECONDS, MAX_MEMORY_BYTES
    environ = env.copy_without(env.GIT_SCRUBBED) | dict(extra or {})
    environ["LC_ALL"] = "C"  # some messages are matched
    if index_file is not None:
        environ["GIT_INDEX_FILE"] = str(index_file)
    try:
        finished = proc.run(["git", *arguments], cwd=folder, env=environ, stdin=stdin, timeout=timeout, memory=memory)
    except TimeoutError as error:
        if not bounded:
            raise
        raise LimitExceeded(
            f"git took more than {MAX_SECONDS:.0f} seconds.",
            hint="name a branch, a tag or a full commit hash, or run the git command yourself",
            arguments=list(arguments),
        ) from error
    except (FileNotFoundError, NotADirectoryError) as error:
        if not folder.is_dir():
            raise GitFailed(f"the directory {folder} was removed.", hint="change to a directory that exists") from error
        raise GitFailed(
            "git was not found on PATH. Relative folders and folders of the working tree are ignored.",
            hint="install git (https://git-scm.com), or add it to PATH",
        ) from error
    if finished.killed_by:
        raise GitFailed(f"{finished.failure}.", hint="run the command again", arguments=list(arguments))
    return finished


def run_git(
    places: Places,
    *arguments: str,
    stdin: bytes | None = None,
    index_file: Path | None = None,
    extra: Mapping[str, str] | None = None,
    timeout: float | None = None,
    memory: int | None = None,
    bounded: bool = False,
) -> proc.FinishedProcess:
    """Run git on this work tree, from its top, and return what it left, even if git failed.

    git by itself would not use the repository of a jj workspace. So there git starts no program
    that the repository names, and fetches nothing. The arguments and errors are those of
    `run_git_in`.
    """
    # Passed explicitly, because a work tree of core.worktree has no .git of its own.
    options = [f"--git-dir={places.git_dir}", f"--work-tree={places.top}"]
    extra = borrowed_environment(places) | dict(extra or {})
    if places.is_jj_workspace:
        options += GUARDS
        extra = _guards_of_jj(places, read_file_stamps([places.common / "config"])) | extra
    return run_git_in(
        places.top,
        *options,
        *arguments,
        stdin=stdin,
        index_file=index_file,
        extra=extra,
        timeout=timeout,
        memory=memory,
        bounded=bounded,
    )


def borrowed_environment(places: Places) -> dict[str, str]:
    """Return the variables with which git uses parts of submodules."""
    if places.borrowed is None:
        return {}
    quoted = (str(folder).replace("\\", "\\\\").replace('"', '\\"') for folder in places.borrowed.objects)
    environment = {"GIT_ALTERNATE_OBJECT_DIRECTORIES": ":".join(f'"{folder}"' for folder in quoted)}
    if places.borrowed.index_file:
        environment["GIT_INDEX_FILE"] = str(places.borrowed.index_file)
    return environment


@functools.lru_cache(maxsize=8)
def _guards_of_jj(places: Places, _stamps: tuple[FileStamp | None, ...]) -> dict[str, str]:
    list_filters = ("config", "--name-only", "--get-regexp", r"^filter\.")
    return guarded_environment(run_git_in(places.top, f"--git-dir={places.common}", *list_filters).text.splitlines())


def guarded_environment(keys: Iterable[str]) -> dict[str, str]:
    """Return the variables that turn off fetches, and the filters that these keys configure.
    Otherwise git would start a `clean` filter to compare a file with new times.

    Variables are used, because a driver's name may contain characters such as `=` that `-c`
    misinterprets. An empty command turns a filter off. A required filter without a command would be
    an error.
    """
    drivers = {key[len("filter.") :].rpartition(".")[0]: None for key in keys if key.startswith("filter.")}
    values = (("clean", ""), ("smudge", ""), ("process", ""), ("required", "false"))
    filters = [(f"filter.{driver}.{name}", value) for driver in drivers for name, value in values]
    return env.GIT_OFFLINE | env.git_settings(above=filters)


def check_git(
    places: Places,
    *arguments: str,
    stdin: bytes | None = None,
    extra: Mapping[str, str] | None = None,
    bounded: bool = False,
) -> proc.FinishedProcess:
    """Run git like `run_git`, and raise `GitFailed` unless it succeeds."""
    finished = run_git(places, *arguments, stdin=stdin, extra=extra, bounded=bounded)
    if finished.returncode != 0:
        raise build_failure(arguments, finished)
    return finished


def build_failure(arguments: tuple[str, ...], finished: proc.FinishedProcess, *, hint: str = "") -> GitFailed:
    """Return the error for a failed git command. By default the hint is about a lock file, or
    repeats the command.
    """
    reason = finished.failure
    return GitFailed(
        f"git {arguments[0]} failed: {reason}",
        hint=hint or _find_unlock_hint(reason) or f"run 'git {' '.join(arguments)}' to see the error",
        arguments=list(arguments),
        exit_code=finished.returncode,
        said=reason,
    )


def _find_unlock_hint(complaint: str) -> str:
    if match := re.search(_HELD, complaint):
        return unlock_hint(match["lock"] or f"{match['locked']}.lock")
    return ""


def unlock_hint(lock: str | Path) -> str:
    """Return what to do about a git lock file.

    The hint names no process, because git closes the file while the user writes a message. Nothing
    shows whether the lock's owner is alive, so removing the lock is never proposed as a command.
    """
    return f"run 'pgrep -fl git' to find the git command that holds it, or remove {lock} if that command died"


def join_lines(names: Iterable[str]) -> bytes:
    """Return names as lines for git's standard input."""
    return "".join(f"{name}\n" for name in names).encode()
