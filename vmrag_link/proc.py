"""Start processes. No other module starts any.

vmrag starts no program of a work tree. It ignores folders of PATH that are relative, or in the work
tree around its working directory or that of the program. The started program gets the same PATH,
because git looks up ssh, gpg and editors. A virtual environment that the user activated stays on
that PATH, wherever it is, because its programs already run there. vmrag itself starts no program of
it.
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
from vmrag_link.file_access import read_regular

_GRACE_SECONDS = 3.0
"""Seconds that a terminated program has to clean up."""
_MAX_LINK_BYTES = 4096

_bounded_now: set[subprocess.Popen[bytes]] = set()
"""Running programs with a time limit. They use the network, and wait for it."""

_detached: list[subprocess.Popen[bytes]] = []
"""Programs that outlive this process, and had not ended when the next one was started."""

_companions: list[subprocess.Popen[bytes]] = []
"""Programs that end with this process."""


Started = subprocess.Popen[bytes]


class FinishedProcess(subprocess.CompletedProcess[bytes]):
    """The result of a program: `returncode`, `stdout` and `stderr` as bytes."""

    @property
    def text(self) -> str:
        return self.stdout.decode(errors="surrogateescape")

    @property
    def error_text(self) -> str:
        """Standard error as text for users.

        Control characters are escaped, because a part can come from another machine.
        """
        lines = self.stderr.decode(errors="replace").splitlines()
        return "\n".join(terminal_text.escape_controls(line) for line in lines).strip()

    @property
    def killed_by(self) -> str:
        """The signal that ended the program, such as `SIGKILL`; an empty text if it ended on its
        own.
        """
        if self.returncode >= 0:
            return ""
        try:
            return signal.Signals(-self.returncode).name
        except ValueError:
            return f"signal {-self.returncode}"

    @property
    def failure(self) -> str:
        """Why the program failed, for users: its signal, its standard error or its exit code."""
        program = Path(str(self.args[0])).name
        if self.killed_by:
            return f"{program} was killed by {self.killed_by}"
        return self.error_text or f"{program} ended with exit code {self.returncode}"


def find_program(program: str, cwd: Path | None = None) -> str | None:
    """Return the path of the program that would be started in a folder, or None if there is no such
    program.
    """
    return _find_program(program, environment.list_program_folders(), _find_surrounding_trees(cwd))


def list_programs(program: str, cwd: Path | None = None) -> list[str]:
    """Return all programs of this name on PATH. The first one is the result of `find_program`."""
    return list(_find_programs(program, environment.list_program_folders(), _find_surrounding_trees(cwd)))


def compute_child_path(cwd: Path | None = None) -> str:
    """Return the PATH of a program that is started in a folder."""
    return _compute_path(os.environ, _find_surrounding_trees(cwd))


def _prepare_start(
    argv: Sequence[str], cwd: Path | None, env: Mapping[str, str] | None
) -> tuple[list[str], dict[str, str]]:
    """Return the command with the path of its program, and the environment with its PATH.

    Raises FileNotFoundError if the program does not exist.
    """
    environ = dict(os.environ if env is None else env)
    around = _find_surrounding_trees(cwd)
    program, *arguments = argv
    if "/" not in program:
        path = _find_program(program, environment.list_program_folders(environ), around)
        if path is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), program)
        program = path
    if environment.EXECUTABLES in environ:
        environ[environment.EXECUTABLES] = _compute_path(environ, around)
    return [program, *arguments], environ


_Identity = tuple[int, int]
"""Device and inode of a folder, whatever its name is."""


def _find_program(program: str, folders: tuple[str, ...], around: frozenset[_Identity]) -> str | None:
    return next(_find_programs(program, folders, around), None)


def _find_programs(program: str, folders: tuple[str, ...], around: frozenset[_Identity]) -> Iterator[str]:
    """Yield the paths of a program.

    The module of `shutil.which` would slow down each hook.
    """
    paths = (os.path.join(folder, program) for folder in _filter_folders(folders, around, ""))  # noqa: PTH118  as on PATH
    return (path for path in paths if os.access(path, os.X_OK) and not os.path.isdir(path))  # noqa: PTH112


def _compute_path(environ: Mapping[str, str], around: frozenset[_Identity]) -> str:
    activated = environment.activated_folder(environ)
    return os.pathsep.join(_filter_folders(environment.list_program_folders(environ), around, activated))


def _filter_folders(folders: tuple[str, ...], around: frozenset[_Identity], activated: str) -> tuple[str, ...]:
    """Return the folders of PATH that are `activated` or not in one of the work trees `around`."""
    return tuple(folder for folder in folders if folder == activated or around.isdisjoint(_identify_parents(folder)))


@functools.lru_cache(maxsize=256)
def _identify_parents(folder: str) -> frozenset[_Identity]:
    """Return the identities of a folder and of all folders around it."""
    real = Path(os.path.realpath(folder))
    return frozenset(identity for parent in (real, *real.parents) for identity in _identify_folder(str(parent)))


def _find_surrounding_trees(cwd: Path | None) -> frozenset[_Identity]:
    """Return the identities of the work trees around the working directory and another folder."""
    folders = []
    with contextlib.suppress(FileNotFoundError):  # it was deleted
        folders.append(os.getcwd())  # noqa: PTH109  as a key
    if cwd is not None:
        folders.append(str(cwd))
    return frozenset(
        identity for folder in folders for top in _find_work_trees(folder) for identity in _identify_folder(top)
    )


_tops_by_folder: dict[str, tuple[str, ...]] = {}


def _find_work_trees(folder: str) -> tuple[str, ...]:
    """Return the top of the work tree around a folder.

    For a linked work tree and a submodule, the result also has the top of the main work tree. If
    the root is a work tree, it is ignored, because all programs are in it.
    """
    if folder in _tops_by_folder:
        return _tops_by_folder[folder]
    real = Path(os.path.realpath(folder))
    for parent in (real, *real.parents[:-1]):
        if os.path.lexists(parent / ".git"):
            _tops_by_folder[folder] = (str(parent), *_find_main_tree(parent))
            return _tops_by_folder[folder]
    return ()


def _find_main_tree(top: Path) -> Iterator[str]:
    """Yield the top of the work tree that contains the git directory named by the `.git` file of
    this one.
    """
    with contextlib.suppress(OSError):
        link = os.fsdecode(read_regular(top / ".git", _MAX_LINK_BYTES).removeprefix(b"gitdir: ").rstrip(b"\n"))
        git_dir = Path(os.path.realpath(top / link))
        yield from (str(parent.parent) for parent in git_dir.parents if parent.name == ".git")


def _identify_folder(folder: str) -> Iterator[_Identity]:
    with contextlib.suppress(OSError):
        status = os.stat(folder)  # noqa: PTH116  hot
        yield status.st_dev, status.st_ino


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
    """Run a program to its end, and capture its output. No shell is used.

    With `show_stderr`, the program writes to the standard error of this process, for example its
    progress, and it is not captured. After `timeout` seconds, the program and its children are
    terminated, and TimeoutError is raised. Such a program must not ask anything at the terminal.
    `memory` needs a timeout, and limits the bytes of data that the program and each of its children
    can allocate, if the system supports that.

    Raises FileNotFoundError if the program does not exist.
    """
    words, environ = _prepare_start(argv, cwd, env)
    if timeout is not None:
        return _run_bounded(words, cwd, environ, stdin, timeout=timeout, memory=memory)
    stdin_mode = subprocess.DEVNULL if stdin is None else subprocess.PIPE
    shown = None if show_stderr else subprocess.PIPE
    with subprocess.Popen(
        words, cwd=cwd, env=environ, stdin=stdin_mode, stdout=subprocess.PIPE, stderr=shown
    ) as process:
        try:
            out, err = process.communicate(stdin)
        except BaseException:
            _end_interrupted(process)
            raise
    return FinishedProcess(words, process.returncode, out, err or b"")


def start_piped(
    argv: Sequence[str], *, cwd: Path, env: Mapping[str, str], stderr: IO[bytes]
) -> subprocess.Popen[bytes]:
    """Start a program that reads requests from its standard input and writes answers to its
    standard output.

    It writes its errors to a file. It runs in its own process group, so that Ctrl-C at the terminal
    does not interrupt it. It ends when its input ends, also if this process dies. Raises
    FileNotFoundError if the program does not exist.
    """
    pipe = subprocess.PIPE
    words, environ = _prepare_start(argv, cwd, env)
    return subprocess.Popen(words, cwd=cwd, env=environ, stdin=pipe, stdout=pipe, stderr=stderr, process_group=0)


def wait_or_kill(process: subprocess.Popen[bytes], seconds: float) -> None:
    """Wait for a program that ends on its own, and kill it after this time."""
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def run_interactive(argv: Sequence[str], *, cwd: Path, env: Mapping[str, str]) -> int:
    """Run a program that interacts with the user at the terminal, and return its exit code."""
    words, environ = _prepare_start(argv, cwd, env)
    with subprocess.Popen(words, cwd=cwd, env=environ) as process:
        try:
            return process.wait()
        except BaseException:
            _end_interrupted(process)
            raise


def start_pager(argv: Sequence[str], *, cwd: Path, env: Mapping[str, str]) -> Started:
    """Start a program that shows its standard input to the user at the terminal."""
    words, environ = _prepare_start(argv, cwd, env)
    return subprocess.Popen(words, cwd=cwd, env=environ, stdin=subprocess.PIPE)


def _end_interrupted(process: subprocess.Popen[bytes]) -> None:
    """Wait for a program that Ctrl-C has also reached, then terminate it.

    git needs the time to remove its locks.
    """
    for number in (None, signal.SIGTERM, signal.SIGKILL):
        if number:
            process.send_signal(number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE_SECONDS)
            return


def _run_bounded(
    argv: list[str],
    cwd: Path | None,
    env: Mapping[str, str] | None,
    stdin: bytes | None,
    *,
    timeout: float,
    memory: int | None,
) -> FinishedProcess:
    """Run the program in its own process group, so that a timeout also ends its children."""
    pipe = subprocess.PIPE
    stdin_mode = subprocess.DEVNULL if stdin is None else pipe
    with subprocess.Popen(
        argv, cwd=cwd, env=env, stdin=stdin_mode, stdout=pipe, stderr=pipe, process_group=0
    ) as process:
        _bounded_now.add(process)
        if memory is not None:
            _limit_memory(process, memory)
        try:
            out, err = process.communicate(stdin, timeout=timeout)
        except subprocess.TimeoutExpired as error:
            _end_group(process)
            raise TimeoutError(timeout) from error
        except BaseException:  # Ctrl-C reaches only this process
            _end_group(process)
            raise
        finally:
            _bounded_now.discard(process)
    return FinishedProcess(argv, process.returncode, out, err)


def _limit_memory(process: subprocess.Popen[bytes], memory: int) -> None:
    """Limit the data of a program that has just started.

    Files that it maps, such as git's packs, are not data. Only Linux can limit another process. In
    a program with threads, no code can run between fork and exec.
    """
    import resource  # few commands need it

    if hasattr(resource, "prlimit"):
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(process.pid, resource.RLIMIT_DATA, (memory, memory))


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """End a program and its children. They can clean up before they are killed."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
            os.killpg(process.pid, number)
            process.wait(_GRACE_SECONDS)


def terminate_programs() -> None:
    """Terminate the programs that the threads of this process wait for, with their children.

    It is for a process that exits without joining its threads.
    """
    for process in list(_bounded_now):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)


def start_companion(argv: Sequence[str], *, cwd: Path, env: Mapping[str, str]) -> int:
    """Start a program that ends with this process, and return its process id.

    Its standard input ends with this process, and the program must end then.
    """
    nothing = subprocess.DEVNULL
    for companion in [companion for companion in _companions if companion.poll() is not None]:
        _companions.remove(companion)
        companion.communicate()  # closes its input
    words, environ = _prepare_start(argv, cwd, env)
    process = subprocess.Popen(
        words, cwd=cwd, env=environ, stdin=subprocess.PIPE, stdout=nothing, stderr=nothing, process_group=0
    )
    _companions.append(process)
    return process.pid


def start_detached(argv: Sequence[str], *, cwd: Path, env: Mapping[str, str] | None = None) -> int:
    """Start a program that outlives this process and its terminal, and return its process id.

    It gets no stream of this process.
    """
    nothing = subprocess.DEVNULL
    _detached[:] = [program for program in _detached if program.poll() is None]  # a server would gather zombies
    words, environ = _prepare_start(argv, cwd, env)
    process = subprocess.Popen(
        words, cwd=cwd, env=environ, stdin=nothing, stdout=nothing, stderr=nothing, start_new_session=True
    )
    _detached.append(process)
    return process.pid
