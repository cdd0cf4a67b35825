"""The one place that starts processes.

No program is found in a work tree: PATH is followed without its relative folders and without those
in the work tree around the working directory, ours and the program's. What is started gets such a
PATH, too, because git looks up ssh, gpg and editors. A virtual environment that the person
activated stays on it, wherever it lies: what they run there runs already. We take nothing from it.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

from vmrag_link import env as environment
from vmrag_link import terminal_text
from vmrag_link.paths import read_regular

_GRACE_SECONDS = 3.0
"""How long a program that is ended may clear up."""


_bounded_now: set[subprocess.Popen[bytes]] = set()
"""What runs with a limit now: such programs talk to others, and wait for them."""

_detached: list[subprocess.Popen[bytes]] = []
"""What was started to outlive us, as far as it had not ended when the next one was started."""

_accompanying: list[subprocess.Popen[bytes]] = []
"""What was started to end with us."""


Started = subprocess.Popen[bytes]


class FinishedProcess(subprocess.CompletedProcess[bytes]):
    """What a program left: `returncode`, `stdout` and `stderr` as bytes."""

    @property
    def text(self) -> str:
        return self.stdout.decode(errors="surrogateescape")

    @property
    def error_text(self) -> str:
        """Its standard error, for people. Part of it may come from another machine, so control
        characters are escaped.
        """
        lines = self.stderr.decode(errors="replace").splitlines()
        return "\n".join(terminal_text.escape_controls(line) for line in lines).strip()

    @property
    def killed_by(self) -> str:
        """The signal that ended it, such as `SIGKILL`; empty if it ended by itself."""
        if self.returncode >= 0:
            return ""
        try:
            return signal.Signals(-self.returncode).name
        except ValueError:
            return f"signal {-self.returncode}"

    @property
    def failure(self) -> str:
        """Why it failed, for people: its signal, what it said, or else its exit code."""
        program = Path(str(self.args[0])).name
        if self.killed_by:
            return f"{program} was killed by {self.killed_by}"
        return self.error_text or f"{program} ended with exit code {self.returncode}"


def find_program(program: str, cwd: Path | None = None) -> str | None:
    """Where the program of this name is that would be started in a folder; None: nowhere."""
    return _found(program, environment.list_program_folders(), _around(cwd))


def list_programs(program: str, cwd: Path | None = None) -> list[str]:
    """All programs of this name on PATH; `find` gives the first of them."""
    return list(_all_found(program, environment.list_program_folders(), _around(cwd)))


def compute_child_path(cwd: Path | None = None) -> str:
    """The PATH that a program gets which is started in a folder."""
    return _kept(os.environ, _around(cwd))


def _prepared(argv: Sequence[str], cwd: Path | None, env: Mapping[str, str] | None) -> tuple[list[str], dict[str, str]]:
    """With the program's path for its name, and the PATH that it gets.

    Raises FileNotFoundError.
    """
    environ, around = dict(os.environ if env is None else env), _around(cwd)
    program, *arguments = argv
    if "/" not in program:
        found = _found(program, environment.list_program_folders(environ), around)
        if found is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), program)
        program = found
    if environment.EXECUTABLES in environ:
        environ[environment.EXECUTABLES] = _kept(environ, around)
    return [program, *arguments], environ


_Identity = tuple[int, int]
"""A folder, by whatever name: device and inode."""


def _found(program: str, folders: tuple[str, ...], around: frozenset[_Identity]) -> str | None:
    return next(_all_found(program, folders, around), None)


def _all_found(program: str, folders: tuple[str, ...], around: frozenset[_Identity]) -> Iterator[str]:
    """As `shutil.which`, without its module, for which every hook would wait."""
    places = (os.path.join(each, program) for each in _outside(folders, around, ""))  # noqa: PTH118  as on PATH
    return (place for place in places if os.access(place, os.X_OK) and not os.path.isdir(place))  # noqa: PTH112


def _kept(environ: Mapping[str, str], around: frozenset[_Identity]) -> str:
    activated = environment.activated_folder(environ)
    return os.pathsep.join(_outside(environment.list_program_folders(environ), around, activated))


@functools.lru_cache(maxsize=32)
def _outside(folders: tuple[str, ...], around: frozenset[_Identity], activated: str) -> tuple[str, ...]:
    def inside(folder: str) -> bool:
        real = Path(os.path.realpath(folder))
        return not around.isdisjoint(
            identity for parent in (real, *real.parents) for identity in _identity(str(parent))
        )

    return tuple(each for each in folders if each == activated or not inside(each))


def _around(cwd: Path | None) -> frozenset[_Identity]:
    """The work trees around our working directory and another one."""
    here = []
    with contextlib.suppress(FileNotFoundError):  # it is gone
        here.append(os.getcwd())  # noqa: PTH109  as a key
    if cwd is not None:
        here.append(str(cwd))
    return frozenset(identity for each in here for top in _work_trees(each) for identity in _identity(top))


_known_tops: dict[str, tuple[str, ...]] = {}


def _work_trees(folder: str) -> tuple[str, ...]:
    """The top of the work tree around a folder; of a linked one and of a submodule the first one's,
    too. Where all is one work tree, programs are nowhere else.
    """
    if folder in _known_tops:
        return _known_tops[folder]
    real = Path(os.path.realpath(folder))
    for parent in (real, *real.parents[:-1]):
        if os.path.lexists(parent / ".git"):
            _known_tops[folder] = (str(parent), *_linked_from(parent))
            return _known_tops[folder]
    return ()


_LINK_BYTES = 4096


def _linked_from(top: Path) -> Iterator[str]:
    """The top of the work tree whose `.git` holds what this one's `.git`, a file, names."""
    with contextlib.suppress(OSError):
        link = os.fsdecode(read_regular(top / ".git", _LINK_BYTES).removeprefix(b"gitdir: ").rstrip(b"\n"))
        named = Path(os.path.realpath(top / link))
        yield from (str(parent.parent) for parent in named.parents if parent.name == ".git")


def _identity(folder: str) -> Iterator[_Identity]:
    with contextlib.suppress(OSError):
        found = os.stat(folder)  # noqa: PTH116  hot
        yield found.st_dev, found.st_ino


def run(
    argv: Sequence[str],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    stdin: bytes | None = None,
    show_stderr: bool = False,
    timeout: float | None = None,
    memory: int | None = None,
) -> FinishedProcess:
    """Run a program to its end with captured output; never through a shell. Raises
    FileNotFoundError if it is absent.

    `show_stderr` leaves it our own standard error, where it can draw its progress; nothing of that
    is captured. After `timeout` seconds it is ended, with all that it has started, and TimeoutError
    is raised; such a program must not ask anything at the terminal. `memory`: with `timeout`, the
    bytes of data that it and each of its children can allocate, where the system has such a limit.
    """
    words, environ = _prepared(argv, cwd, env)
    if timeout is not None:
        return _bounded(words, cwd, environ, stdin, timeout=timeout, memory=memory)
    given = subprocess.DEVNULL if stdin is None else subprocess.PIPE
    shown = None if show_stderr else subprocess.PIPE
    with subprocess.Popen(words, cwd=cwd, env=environ, stdin=given, stdout=subprocess.PIPE, stderr=shown) as process:
        try:
            said, complained = process.communicate(stdin)
        except BaseException:
            _clear_up(process)
            raise
    return FinishedProcess(words, process.returncode, said, complained or b"")


def start_piped(
    argv: Sequence[str], *, cwd: Path, env: Mapping[str, str], stderr: IO[bytes]
) -> subprocess.Popen[bytes]:
    """Start a program that answers on its standard output what it is told on its standard input;
    what it complains of goes to a file.

    It is in a process group of its own: Ctrl-C at the terminal ends us, not what it is in the
    middle of. The end of its input, which the end of our process is, too, ends it. Raises
    FileNotFoundError if it is absent.
    """
    pipe = subprocess.PIPE
    words, environ = _prepared(argv, cwd, env)
    return subprocess.Popen(words, cwd=cwd, env=environ, stdin=pipe, stdout=pipe, stderr=stderr, process_group=0)


def wait_or_kill(process: subprocess.Popen[bytes], seconds: float) -> None:
    """Wait for a program that ends by itself, and kill it when it does not within that time."""
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def run_interactive(argv: Sequence[str], *, cwd: Path, env: Mapping[str, str]) -> int:
    """Run a program that talks to the person at our terminal; returns its exit code."""
    words, environ = _prepared(argv, cwd, env)
    with subprocess.Popen(words, cwd=cwd, env=environ) as process:
        try:
            return process.wait()
        except BaseException:
            _clear_up(process)
            raise


def start_pager(argv: Sequence[str], *, cwd: Path, env: Mapping[str, str]) -> Started:
    """Start a program that shows the person at our terminal what it gets on its standard input."""
    words, environ = _prepared(argv, cwd, env)
    return subprocess.Popen(words, cwd=cwd, env=environ, stdin=subprocess.PIPE)


def _clear_up(process: subprocess.Popen[bytes]) -> None:
    """Wait for a program that Ctrl-C has reached, too: git then removes its locks. Killed at once
    it would leave them.
    """
    for number in (None, signal.SIGTERM, signal.SIGKILL):
        if number:
            process.send_signal(number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE_SECONDS)
            return


def _bounded(
    argv: list[str],
    cwd: Path | None,
    env: Mapping[str, str] | None,
    stdin: bytes | None,
    *,
    timeout: float,
    memory: int | None,
) -> FinishedProcess:
    """Run the program in a process group of its own, so that a timeout ends what it has started,
    too.
    """
    pipe = subprocess.PIPE
    given = subprocess.DEVNULL if stdin is None else pipe
    with subprocess.Popen(argv, cwd=cwd, env=env, stdin=given, stdout=pipe, stderr=pipe, process_group=0) as process:
        _bounded_now.add(process)
        if memory is not None:
            _limit_memory(process, memory)
        try:
            said, complained = process.communicate(stdin, timeout=timeout)
        except subprocess.TimeoutExpired as error:
            _end(process)
            raise TimeoutError(timeout) from error
        except BaseException:  # Ctrl-C reaches us alone
            _end(process)
            raise
        finally:
            _bounded_now.discard(process)
    return FinishedProcess(argv, process.returncode, said, complained)


def _limit_memory(process: subprocess.Popen[bytes], memory: int) -> None:
    """Limit the data of a program that has just started. Files that it maps, such as git's packs,
    are not data.

    Linux alone can limit another process, and nothing runs between fork and exec of a program with
    threads.
    """
    import resource  # few commands need it

    if hasattr(resource, "prlimit"):
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(process.pid, resource.RLIMIT_DATA, (memory, memory))


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the program and its children. They are asked first, so that they can clear up."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
            os.killpg(process.pid, number)
            process.wait(_GRACE_SECONDS)


def terminate_programs() -> None:
    """Ask the programs that our threads wait for to end, with their children. For a process that
    exits without joining its threads.
    """
    for process in list(_bounded_now):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)


def start_companion(argv: Sequence[str], *, cwd: Path, env: Mapping[str, str]) -> int:
    """Start a program that works beside us, and return its process id. Its input ends with our
    process, and it must end then.
    """
    nothing = subprocess.DEVNULL
    for each in [each for each in _accompanying if each.poll() is not None]:
        _accompanying.remove(each)
        each.communicate()  # closes its input
    words, environ = _prepared(argv, cwd, env)
    process = subprocess.Popen(
        words, cwd=cwd, env=environ, stdin=subprocess.PIPE, stdout=nothing, stderr=nothing, process_group=0
    )
    _accompanying.append(process)
    return process.pid


def start_detached(argv: Sequence[str], *, cwd: Path, env: Mapping[str, str] | None = None) -> int:
    """Start a program that outlives us and our terminal, with no stream of ours; returns its
    process id.
    """
    nothing = subprocess.DEVNULL
    _detached[:] = [each for each in _detached if each.poll() is None]  # a server would gather zombies
    words, environ = _prepared(argv, cwd, env)
    process = subprocess.Popen(
        words, cwd=cwd, env=environ, stdin=nothing, stdout=nothing, stderr=nothing, start_new_session=True
    )
    _detached.append(process)
    return process.pid
