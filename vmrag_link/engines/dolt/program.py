"""Finding, checking and running the `dolt` program.

`run_dolt` is the only adapter to doltcli. doltcli gives a program neither standard input nor a
timeout, and cannot keep variables from it. Above Python 3.11 it is rarely installed. All other
calls use `proc`.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import importlib.util
import os
import re
import stat
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType

from vmrag_link import env, proc, terminal_text
from vmrag_link.engines.dolt.connection import find_remedy
from vmrag_link.errors import DoltMissing, EngineFailed, EngineUnwritable, quoted, shortened
from vmrag_link.models import Record

OLDEST_VERSION = (2, 3, 0)
"""The oldest version that works. The tests were run with 2.3.1."""

_CONFIGURATION = '{"metrics.disabled":"true","versioncheck.disabled":"true"}'
_VERSION = r"dolt version (\d+\.\d+\.\d+\S*)"
_VERSION_SECONDS = 60.0
"""Seconds for a program to print its version. Dolt needs a sixth of a second."""

DOLTCLI = "doltcli==0.2.2"
_WITHOUT_WHEEL = (3, 12)

_SCRUBBED = env.GIT_SCRUBBED | env.DOLT_SCRUBBED
_ADDED = {env.DOLT_NO_REPORT: "1", **env.DOLT_GIT_REMOTES}

_URL_CHARACTERS = frozenset("%#?\\")
"""Characters that Dolt does not escape in the URL that it makes of a folder's path."""

_SHELL = "/bin/sh"
_SHELL_ARGUMENTS = ("-c", 'exec /usr/bin/env "$@" </dev/null', "dolt")
"""The first arguments of the shell that doltcli starts instead of Dolt.

Arguments for `env` follow. A program that doltcli starts gets our environment and our standard
input, which may belong to an MCP client.
"""

_HOW_TO_INSTALL = "brew install dolt, or https://docs.dolthub.com/introduction/installation"
_CONFIGURE = "git config vmrag.dolt.binary /PATH/TO/dolt"


class Program(Record, frozen=True):
    """A checked Dolt program: its absolute path and its version, such as `2.3.1`."""

    path: str
    version: str


def find_program(binary: str = "") -> Program:
    """Return the program at this absolute path, or the one on PATH if `binary` is empty.

    It is run once per process to print its version. This contacts nothing and changes no files of
    this user. Raises `DoltMissing` if it is missing, too old, or another program.
    """
    path = locate_program(binary)
    return _programs.get(_file_identity(path)) or remember_version(path, _ask_version(path))


def locate_program(binary: str = "") -> str:
    """Return the path of the program without running it. A session reports its version."""
    path = binary or proc.find_program("dolt")
    if not path:
        raise DoltMissing(
            "the knowledge base needs the program dolt, which is not on PATH.",
            hint=f"install it ({_HOW_TO_INSTALL}), or run '{_CONFIGURE}' to configure its path",
        )
    try:
        Path(path).stat()
    except OSError as error:
        raise _not_runnable_error(path, error) from error
    return path


def build_environment(cwd: Path) -> dict[str, str]:
    """Return the environment of a `dolt` process.

    It is ours without variables that redirect git or change revisions. Dolt uses `PWD` if it names
    the directory in which the process starts.
    """
    return env.copy_without(_SCRUBBED) | _ADDED | {env.WORKING_DIRECTORY: str(openable_path(cwd))}


def openable_path(folder: Path) -> Path:
    """Return a path by which Dolt can open the folder: its own, or a link in the temporary folder.

    The link is the same in each process. Raises `EngineFailed`.
    """
    return _make_link(folder) if _URL_CHARACTERS.intersection(str(folder)) else folder


@functools.lru_cache(maxsize=64)
def _make_link(folder: Path) -> Path:
    links = Path(tempfile.gettempdir(), f"vmrag-dolt-{os.getuid()}")
    parent = links / hashlib.sha256(os.fsencode(folder)).hexdigest()[:16]
    # Dolt uses the last part as the name of the database.
    name = "folder" if _URL_CHARACTERS.intersection(folder.name) else folder.name
    try:
        links.mkdir(mode=0o700, exist_ok=True)
        state = links.lstat()
        if not stat.S_ISDIR(state.st_mode) or state.st_uid != os.getuid() or state.st_mode & 0o022:
            raise PermissionError(errno.EACCES, "another user can write there")
        parent.mkdir(exist_ok=True)
        with contextlib.suppress(FileExistsError):
            (parent / name).symlink_to(folder)
    except OSError as error:
        raise EngineFailed(
            f"Dolt cannot open {folder}, and cannot create a link to it in {links}: {error.strerror}.",
            hint="move the project to a path without % # ? \\, or set TMPDIR to a folder that you own",
        ) from error
    return parent / name


def run_dolt(
    arguments: Sequence[str],
    *,
    cwd: Path,
    binary: str = "",
    env: Mapping[str, str] | None = None,
    stdin: bytes | None = None,
    timeout: float | None = None,
) -> str:
    """Run `dolt` with these arguments in a folder and return its output.

    `env` is added to `build_environment()`. After `timeout` seconds, the program and all its
    children are ended. Raises `DoltMissing`, and `EngineFailed` with the program's message.
    """
    path = find_program(binary).path
    # `env` would take a path with "=" for a variable.
    is_plain = env is None and stdin is None and timeout is None and "=" not in path
    if is_plain and (cwd / ".dolt").is_dir() and (doltcli := _import_doltcli()):
        return _run_doltcli(doltcli, path, arguments, cwd)
    try:
        process = proc.run(
            [path, *arguments], cwd=cwd, env=build_environment(cwd) | dict(env or {}), stdin=stdin, timeout=timeout
        )
    except TimeoutError as error:
        what = f"dolt {arguments[0]} did not finish within {timeout:g} seconds."
        raise EngineFailed(what, hint="run the command again", arguments=list(arguments)) from error
    except OSError as error:
        raise _start_error(path, cwd, error) from error
    if process.returncode != 0:
        message = process.failure if process.killed_by else process.stderr.decode(errors="replace")
        raise dolt_error(message, arguments, exit_code=process.returncode)
    return _decode_output(process.stdout, arguments)


def check_repository(folder: Path, binary: str = "", *, timeout: float | None = None) -> None:
    """Require that every chunk of a repository matches the hash that names it.

    No session may have it open. Raises `DoltMissing` and `EngineFailed`.
    """
    run_dolt(["fsck", "--quiet"], cwd=folder, binary=binary, timeout=timeout)


def dolt_error(message: str, arguments: Sequence[str], *, exit_code: int = 1) -> EngineFailed:
    """Return the error for a message of Dolt, which may contain untrusted text."""
    shown = terminal_text.indent_continuation(message.strip()) or f"it ended with exit code {exit_code}"
    hint = find_remedy(shown)
    kind = EngineUnwritable if hint else EngineFailed
    hint = hint or f"run 'dolt {' '.join(map(quoted, arguments))}' to see the whole output"
    return kind(f"dolt {arguments[0]} failed: {shown}", hint=hint, arguments=list(arguments), said=shown)


def _start_error(path: str, cwd: Path, error: OSError) -> EngineFailed | DoltMissing:
    if not cwd.is_dir():
        return EngineFailed(f"the directory {cwd} no longer exists.", hint="change to a directory that exists")
    return _not_runnable_error(path, error)


def _not_runnable_error(path: str, error: OSError) -> DoltMissing:
    return DoltMissing(
        f"cannot run {path}: {error.strerror}.", hint=f"run '{_CONFIGURE}' to configure its path", path=path
    )


def _decode_output(output: bytes, arguments: Sequence[str]) -> str:
    try:
        return output.decode()
    except UnicodeDecodeError as error:
        raise dolt_error("its output is not UTF-8", arguments) from error


# -- the check


_Identity = tuple[str, int, int, int]

_programs: dict[_Identity, Program] = {}
"""The programs whose version this process knows."""


def _file_identity(path: str) -> _Identity:
    state = Path(path).stat()
    return path, state.st_ino, state.st_size, state.st_mtime_ns


def _ask_version(path: str) -> str:
    first = _first_line(path)
    match = re.fullmatch(_VERSION, first)
    if not match:
        raise DoltMissing(
            f"{path} is not the database Dolt: 'dolt version' prints {shortened(terminal_text.escape_line(first))!r}.",
            hint=f"install Dolt ({_HOW_TO_INSTALL}), then run '{_CONFIGURE}' to configure its path",
            path=path,
        )
    return match[1]


def remember_version(path: str, version: str) -> Program:
    """Remember the version that a program reported, so that `find_program` need not run it.

    Raises `DoltMissing` for a version before OLDEST_VERSION.
    """
    require_recent_version(path, version)
    return _programs.setdefault(_file_identity(path), Program(path, version))


def require_recent_version(path: str, version: str) -> None:
    """Raise `DoltMissing` for a version before OLDEST_VERSION."""
    if tuple(map(int, re.findall(r"\d+", version)[:3])) < OLDEST_VERSION:
        raise DoltMissing(
            f"{path} is Dolt {version}; vmrag needs {'.'.join(map(str, OLDEST_VERSION))} or newer.",
            hint=f"install a newer version ({_HOW_TO_INSTALL})",
            path=path,
            version=version,
        )


def _first_line(path: str) -> str:
    """Return the first line that `PROGRAM version` prints.

    It runs in a home directory of its own: this user's configuration, or a missing one, may allow
    Dolt to ask GitHub for the latest release. Further lines would be GitHub's answer.
    """
    with tempfile.TemporaryDirectory(prefix="vmrag-dolt-") as folder:
        home = Path(folder, ".dolt")
        home.mkdir()
        (home / "config_global.json").write_text(_CONFIGURATION)
        try:
            process = proc.run(
                [path, "version"],
                cwd=Path(folder),
                env=build_environment(Path(folder)) | {env.DOLT_HOME: folder},
                timeout=_VERSION_SECONDS,
            )
        except TimeoutError:
            return f"nothing within {_VERSION_SECONDS:g} seconds"
        except OSError as error:
            raise _start_error(path, Path(folder), error) from error
    output = process.stdout or process.stderr
    return output.decode(errors="replace").partition("\n")[0].strip()


# -- doltcli


def how_to_install_doltcli(python: tuple[int, int]) -> str:
    """Return the command that installs doltcli for this version of Python.

    doltcli requires typed-ast but never imports it. Above 3.11, typed-ast has no wheel.
    """
    return f"pip install {'' if python < _WITHOUT_WHEEL else '--no-deps '}{DOLTCLI}"


@functools.cache
def _import_doltcli() -> ModuleType | None:
    """Return doltcli, or None if it is missing.

    It is prepared to start any program in a cleaned environment.
    """
    if importlib.util.find_spec("doltcli") is None:
        return None
    import logging

    import doltcli
    import doltcli.utils

    logger = logging.getLogger("doltcli")  # it logs Dolt's messages unescaped
    logger.addHandler(logging.NullHandler())
    logger.propagate = False
    doltcli.utils.set_dolt_path(_SHELL)
    untyped: ModuleType = doltcli
    return untyped


def _run_doltcli(doltcli: ModuleType, path: str, arguments: Sequence[str], cwd: Path) -> str:
    unset = [word for name in sorted(_SCRUBBED) for word in ("-u", name)]
    added_values = _ADDED | {
        env.EXECUTABLES: proc.compute_child_path(cwd),
        env.WORKING_DIRECTORY: str(openable_path(cwd)),
    }
    added = [f"{name}={value}" for name, value in added_values.items()]
    try:
        output: str = doltcli.Dolt(str(cwd)).execute(
            [*_SHELL_ARGUMENTS, *unset, *added, path, *arguments], print_output=False
        )
    except doltcli.DoltException as error:
        raise dolt_error(error.stderr or "", arguments, exit_code=error.exitcode) from error
    except UnicodeDecodeError as error:
        raise dolt_error("its output is not UTF-8", arguments) from error
    return output
