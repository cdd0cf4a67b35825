"""The `dolt` program: found, checked, and run to its end.

`run` is the one adapter to doltcli. doltcli gives a program neither standard input nor a timeout,
and cannot keep variables from it; and above Python 3.11 it is rarely installed. What it cannot do
goes through `proc`.
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
_PATIENCE = 60.0
"""Seconds for a program to say its version: Dolt takes a sixth of one."""

DOLTCLI = "doltcli==0.2.2"
_WITHOUT_WHEEL = (3, 12)

_SCRUBBED = env.GIT_SCRUBBED | env.DOLT_SCRUBBED
_ADDED = {env.DOLT_NO_REPORT: "1", **env.DOLT_GIT_REMOTES}

_OF_URLS = frozenset("%#?\\")
"""Dolt opens a folder by a URL that it makes of the path without escaping these."""

_SHELL = "/bin/sh"
_CLEANED = ("-c", 'exec /usr/bin/env "$@" </dev/null', "dolt")
"""doltcli starts a shell in place of Dolt, with these and with words for `env`.

What doltcli starts gets our environment, and our standard input, where a client may speak.
"""

_INSTALL = "brew install dolt, or https://docs.dolthub.com/introduction/installation"
_NAME_IT = "git config vmrag.dolt.binary /PATH/TO/dolt"


class Program(Record, frozen=True):
    """A Dolt that was checked: its absolute path and its version, such as `2.3.1`."""

    path: str
    version: str


def find_program(binary: str = "") -> Program:
    """The program at this absolute path, or on PATH where it is empty.

    It is asked for its version once in a process; nothing is contacted, and nothing of this user's
    is changed. Raises `DoltMissing` where it is absent, too old, or another program.
    """
    path = locate_program(binary)
    return _programs.get(_identity(path)) or remember_version(path, _ask_version(path))


def locate_program(binary: str = "") -> str:
    """As `find`, without asking the program anything: a session is told its version."""
    path = binary or proc.find_program("dolt")
    if not path:
        raise DoltMissing(
            "There is no dolt on PATH, which runs a knowledge base of Dolt.", hint=f"{_INSTALL}; or name it: {_NAME_IT}"
        )
    try:
        Path(path).stat()
    except OSError as error:
        raise _not_run(path, error) from error
    return path


def build_environment(cwd: Path) -> dict[str, str]:
    """What every `dolt` process gets: ours, but for what sends git elsewhere or changes
    revisions.

    Dolt believes `PWD` if it names the directory in which the process starts.
    """
    return env.copy_without(_SCRUBBED) | _ADDED | {env.WORKING_DIRECTORY: str(openable_path(cwd))}


def openable_path(folder: Path) -> Path:
    """Return a path by which Dolt can open the folder: its own, or a link in the temporary folder.

    The link is the same in each process. Raises `EngineFailed`.
    """
    return _make_link(folder) if _OF_URLS.intersection(str(folder)) else folder


@functools.lru_cache(maxsize=64)
def _make_link(folder: Path) -> Path:
    ours = Path(tempfile.gettempdir(), f"vmrag-dolt-{os.getuid()}")
    place = ours / hashlib.sha256(os.fsencode(folder)).hexdigest()[:16]
    name = "folder" if _OF_URLS.intersection(folder.name) else folder.name  # Dolt names the database so
    try:
        ours.mkdir(mode=0o700, exist_ok=True)
        state = ours.lstat()
        if not stat.S_ISDIR(state.st_mode) or state.st_uid != os.getuid() or state.st_mode & 0o022:
            raise PermissionError(errno.EACCES, "another user can write there")
        place.mkdir(exist_ok=True)
        with contextlib.suppress(FileExistsError):
            (place / name).symlink_to(folder)
    except OSError as error:
        raise EngineFailed(
            f"Dolt cannot open {folder}, and no link to it can be made at {ours}: {error.strerror}.",
            hint="move the project to a path without % # ? \\, or set TMPDIR to a folder that you own",
        ) from error
    return place / name


def run_dolt(
    arguments: Sequence[str],
    *,
    cwd: Path,
    binary: str = "",
    env: Mapping[str, str] | None = None,
    stdin: bytes | None = None,
    timeout: float | None = None,
) -> str:
    """Run `dolt` with these arguments in a folder; returns what it printed.

    `env` is added to `environment()`. After `timeout` seconds it is ended with all that it started.
    Raises `DoltMissing`, and `EngineFailed` with what it said.
    """
    path = find_program(binary).path
    bare = env is None and stdin is None and timeout is None and "=" not in path  # `env` would take it for a variable
    if bare and (cwd / ".dolt").is_dir() and (doltcli := _doltcli()):
        return _through_doltcli(doltcli, path, arguments, cwd)
    try:
        done = proc.run(
            [path, *arguments], cwd=cwd, env=build_environment(cwd) | dict(env or {}), stdin=stdin, timeout=timeout
        )
    except TimeoutError as error:
        what = f"dolt {arguments[0]} did not end within {timeout:g} seconds."
        raise EngineFailed(what, hint="Run the command again.", arguments=list(arguments)) from error
    except OSError as error:
        raise _not_started(path, cwd, error) from error
    if done.returncode != 0:
        said = done.failure if done.killed_by else done.stderr.decode(errors="replace")
        raise dolt_error(said, arguments, exit_code=done.returncode)
    return _text(done.stdout, arguments)


def check_repository(folder: Path, binary: str = "", *, timeout: float | None = None) -> None:
    """Require that every piece of a repository is the one that its hash names.

    No session may have it open. Raises as `run`.
    """
    run_dolt(["fsck", "--quiet"], cwd=folder, binary=binary, timeout=timeout)


def dolt_error(said: str, arguments: Sequence[str], *, exit_code: int = 1) -> EngineFailed:
    """The error for what Dolt said: its words may be a stranger's."""
    words = terminal_text.indent_continuation(said.strip()) or f"it ended with exit code {exit_code}"
    hint = find_remedy(words)
    kind = EngineUnwritable if hint else EngineFailed
    hint = hint or f"Run it by itself: dolt {' '.join(map(quoted, arguments))}"
    return kind(f"dolt {arguments[0]} failed: {words}", hint=hint, arguments=list(arguments), said=words)


def _not_started(path: str, cwd: Path, error: OSError) -> EngineFailed | DoltMissing:
    if not cwd.is_dir():
        return EngineFailed(f"{cwd} is not a directory any more.", hint="Change to a directory that exists.")
    return _not_run(path, error)


def _not_run(path: str, error: OSError) -> DoltMissing:
    return DoltMissing(f"{path} cannot be run: {error.strerror}.", hint=f"Name the program: {_NAME_IT}", path=path)


def _text(said: bytes, arguments: Sequence[str]) -> str:
    try:
        return said.decode()
    except UnicodeDecodeError as error:
        raise dolt_error("its output is not UTF-8", arguments) from error


# -- the check


_Identity = tuple[str, int, int, int]

_programs: dict[_Identity, Program] = {}
"""The programs that told this process their version."""


def _identity(path: str) -> _Identity:
    state = Path(path).stat()
    return path, state.st_ino, state.st_size, state.st_mtime_ns


def _ask_version(path: str) -> str:
    first = _first_line(path)
    found = re.fullmatch(_VERSION, first)
    if not found:
        raise DoltMissing(
            f"{path} is not Dolt, the database: asked for its version it says {shortened(terminal_text.escape_line(first))!r}.",
            hint=f"Install Dolt ({_INSTALL}), and name it: {_NAME_IT}",
            path=path,
        )
    return found[1]


def remember_version(path: str, version: str) -> Program:
    """Remember the version that a program told, so that `find` does not ask for it.

    Raises `DoltMissing` for a version before OLDEST.
    """
    require_recent_version(path, version)
    return _programs.setdefault(_identity(path), Program(path, version))


def require_recent_version(path: str, version: str) -> None:
    """Raises `DoltMissing` for a version before OLDEST."""
    if tuple(map(int, re.findall(r"\d+", version)[:3])) < OLDEST_VERSION:
        raise DoltMissing(
            f"{path} is Dolt {version}; this needs {'.'.join(map(str, OLDEST_VERSION))} or newer.",
            hint=f"Install a newer one: {_INSTALL}",
            path=path,
            version=version,
        )


def _first_line(path: str) -> str:
    """The first line that `PROGRAM version` prints.

    In a home directory of its own: this user's may allow Dolt to ask GitHub for the latest release,
    and without configuration it does. Further lines would be its answer.
    """
    with tempfile.TemporaryDirectory(prefix="vmrag-dolt-") as folder:
        home = Path(folder, ".dolt")
        home.mkdir()
        (home / "config_global.json").write_text(_CONFIGURATION)
        try:
            done = proc.run(
                [path, "version"],
                cwd=Path(folder),
                env=build_environment(Path(folder)) | {env.DOLT_HOME: folder},
                timeout=_PATIENCE,
            )
        except TimeoutError:
            return f"nothing within {_PATIENCE:g} seconds"
        except OSError as error:
            raise _not_started(path, Path(folder), error) from error
    said = done.stdout or done.stderr
    return said.decode(errors="replace").partition("\n")[0].strip()


# -- doltcli


def how_to_install_doltcli(python: tuple[int, int]) -> str:
    """A command for this version of Python. Above 3.11 the typed-ast that doltcli requires, and
    never imports, has no wheel.
    """
    return f"pip install {'' if python < _WITHOUT_WHEEL else '--no-deps '}{DOLTCLI}"


@functools.cache
def _doltcli() -> ModuleType | None:
    """doltcli, ready to start any program in a cleaned environment; None where it is absent."""
    if importlib.util.find_spec("doltcli") is None:
        return None
    import logging

    import doltcli
    import doltcli.utils

    own = logging.getLogger("doltcli")  # it logs what Dolt said, unescaped
    own.addHandler(logging.NullHandler())
    own.propagate = False
    doltcli.utils.set_dolt_path(_SHELL)
    untyped: ModuleType = doltcli
    return untyped


def _through_doltcli(doltcli: ModuleType, path: str, arguments: Sequence[str], cwd: Path) -> str:
    left_out = [word for name in sorted(_SCRUBBED) for word in ("-u", name)]
    added_values = _ADDED | {
        env.EXECUTABLES: proc.compute_child_path(cwd),
        env.WORKING_DIRECTORY: str(openable_path(cwd)),
    }
    added = [f"{name}={value}" for name, value in added_values.items()]
    try:
        said: str = doltcli.Dolt(str(cwd)).execute([*_CLEANED, *left_out, *added, path, *arguments], print_output=False)
    except doltcli.DoltException as error:
        raise dolt_error(error.stderr or "", arguments, exit_code=error.exitcode) from error
    except UnicodeDecodeError as error:
        raise dolt_error("its output is not UTF-8", arguments) from error
    return said
