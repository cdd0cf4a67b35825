"""`vmrag` as a process that a test may kill, and a repository that is worth killing it over.

A test module takes the fixtures with `library, stocked = cli.library, cli.stocked`.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import pytest

from tests.support.repos import isolate
from tests.support.templates import build_once, copy_tree
from tests.support.terminal import Done, Project, new_project
from vmrag_link.cli.main import run
from vmrag_link.toolsets.compounding.mirror import ActiveProject

ROOT = Path(__file__).parents[2]
VMRAG = (sys.executable, "-P", "-m", "vmrag_link.cli.main")
PATIENCE = 60

WORDS = (
    "garden kettle lantern harbour meadow engine copper winter ladder basket thunder velvet orchard compass bridge "
    "marble candle feather anchor saddle barrel pepper mirror window timber"
).split()


@dataclass
class Running:
    """A process group of its own."""

    process: subprocess.Popen[str]

    def signal(self, number: int) -> None:
        """To the process and its children, as a terminal does with Ctrl-C."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)

    def done(self) -> Done:
        out, err = self.process.communicate(timeout=PATIENCE)
        return Done(self.process.returncode, out, err)


def start(project: Project, *arguments: str, program: tuple[str, ...] = VMRAG, **environ: str) -> Running:
    """`vmrag` in the work tree, with its output captured; `program` for another one."""
    process = subprocess.Popen(
        [*program, *arguments],
        cwd=project.top,
        env=os.environ | environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    return Running(process)


def run_killed(project: Project, seconds: float, *arguments: str, program: tuple[str, ...] = VMRAG) -> Done:
    """SIGKILL to the whole group after that many seconds; what had happened by then (code -9,
    unless it was done).
    """
    running = start(project, *arguments, program=program)
    time.sleep(seconds)
    running.signal(signal.SIGKILL)
    return running.done()


def measure_duration(project: Project, *arguments: str, program: tuple[str, ...] = VMRAG) -> float:
    """Seconds that an unharmed run takes."""
    since = time.monotonic()
    result = start(project, *arguments, program=program).done()
    assert result.code == 0, result
    return time.monotonic() - since


def run_patched(project: Project, body: str, *arguments: str) -> Done:
    """`vmrag` in a process that runs `body` first: what patches a step of it, so that it dies
    there.
    """
    return _driven(project, body, lambda: run(arguments))


def call_patched_tool(
    project: Project, body: str, tool: str, arguments: dict[str, Any], *, config: Path | None = None
) -> Done:
    """Call a tool in a patched process, like `run_patched`; `config` names the active project."""

    def call() -> int:
        from tests.support.mcp import Tools

        tools = Tools(project.top)
        tools.session.state.toolset_values["vmrag_link.toolsets.compounding"] = (
            ActiveProject(str(config)) if config else None
        )
        tools(tool, **arguments)
        return 0

    return _driven(project, body, call)


def _driven(project: Project, body: str, call: Callable[[], int]) -> Done:
    """A process that can `die()`."""

    def patched() -> int:
        exec(body, {"die": lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL), "sys": sys, "os": os})
        return call()

    return run_forked(patched, project.top)


def run_forked(call: Callable[[], int], folder: Path, *, environ: Mapping[str, str] = os.environ) -> Done:
    """Return the output of a process in `folder` that is forked from this one: a third of a second
    faster than one that imports everything again.
    """
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        with warnings.catch_warnings(action="ignore", category=DeprecationWarning):  # of threads, which wait for us
            pid = os.fork()
        if pid == 0:
            _become(call, folder, dict(environ), out.fileno(), err.fileno())
        _, status = os.waitpid(pid, 0)
        said = []
        for file in (out, err):
            file.seek(0)
            said.append(file.read().decode())
    return Done(os.waitstatus_to_exitcode(status), *said)


def _become(call: Callable[[], int], folder: Path, environ: dict[str, str], out: int, err: int) -> NoReturn:
    """The forked process, which does not come back."""
    code = 70
    try:
        os.setsid()
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(PATIENCE)
        warnings.simplefilter("ignore")
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(environ)
        for number, opened in enumerate((os.open(os.devnull, os.O_RDONLY), out, err)):
            os.dup2(opened, number)
        sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w")  # noqa: SIM115  until it ends
        code = call()
    except BaseException:  # noqa: BLE001  nothing may get back into the test
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def error_of(result: Done) -> dict[str, Any]:
    """The error that a failed command printed for a program: JSON on stderr, nothing on stdout."""
    assert result.code != 0, result
    assert result.out == "", result
    error = json.loads(result.err[result.err.index("{") :])["error"]
    assert error["message"]
    return error


def text_of(seed: int, *, lines: int = 12) -> str:
    """A page that shares words with others and has chunks of its own."""
    rows = [
        " ".join(WORDS[(seed * 7 + row * 3 + place * 5) % len(WORDS)] for place in range(9)) for row in range(lines)
    ]
    return f"# Page {seed}\n\n" + "\n".join(f"{row} {seed}-{number}." for number, row in enumerate(rows)) + "\n"


def pages(project: Project, numbers: range, *, folder: str = "docs", edition: int = 0) -> None:
    for number in numbers:
        project.write(f"{folder}/page-{number}.md", text_of(number * 100 + edition))


PAGES = 40


def build(top: Path) -> Project:
    """Three code branches over forty pages, hooks installed, HEAD on `main`: `edited` changes a
    dozen, `other` removes ten.
    """
    project = new_project(top)
    pages(project, range(PAGES))
    project.write(".gitignore", "docs/\nmore/\n")
    project.vmrag("init", "--knowledge-base", "--no-sources")
    project.vmrag("import", "docs", "--collection", "handbook", "--copy", "--base", "docs")
    project.vmrag("commit", "-m", "forty pages")
    project.git("add", "-A")
    project.git("commit", "-q", "--no-verify", "-m", "forty pages")
    project.git("switch", "-q", "-c", "edited")
    pages(project, range(8), edition=1)
    pages(project, range(PAGES, PAGES + 4))
    project.vmrag("import", "docs", "--collection", "handbook", "--copy", "--base", "docs")
    project.vmrag("commit", "-m", "edited")
    project.git("commit", "-q", "--no-verify", "-m", "edited")
    project.git("switch", "-q", "-c", "other", "main")
    project.vmrag("rm", "--collection", "handbook", *[f"page-{number}.md" for number in range(10)])
    project.vmrag("commit", "-m", "ten pages less")
    project.git("commit", "-q", "--no-verify", "-m", "ten pages less")
    project.git("switch", "-q", "main")
    shutil.rmtree(project.top / "docs")
    pages(project, range(PAGES))
    return project


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_once(tmp_path_factory, "library", lambda folder: build(folder / "project")) / "project"


@pytest.fixture
def stocked(library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A copy of the library, in an isolated home."""
    isolate(monkeypatch, tmp_path / "home")
    return Project(copy_tree(library, tmp_path / "project"))


# -- machines in a bad state -----------------------------------------------------------------------

WITHOUT_RIGHTS = (
    sys.executable,
    "-c",
    """import ctypes, os, sys
for right in (1, 2, 3):  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_FOWNER
    ctypes.CDLL(None).prctl(24, right, 0, 0, 0)
os.execvp(sys.argv[1], sys.argv[1:])""",
)
"""Prefix of a program for which permissions count, even if root runs it."""


@contextlib.contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """For programs that run `WITHOUT_RIGHTS`."""
    modes = {path: path.stat().st_mode for path in [folder, *folder.rglob("*")] if not path.is_symlink()}
    for path, mode in modes.items():
        path.chmod(mode & ~0o222)
    try:
        yield
    finally:
        for path, mode in modes.items():
            path.chmod(mode)


@contextlib.contextmanager
def small_disk(folder: Path, *, kilobytes: int) -> Iterator[Callable[[int], None]]:
    """The folder on a disk of its own; yields what fills it until so many bytes are left. Skips
    where that is not allowed.
    """
    with mounted(folder, kilobytes):

        def fill(free: int) -> None:
            disk = os.statvfs(folder)
            with (folder / "filler").open("ab") as filler:
                filler.write(b"\0" * max(0, disk.f_bavail * disk.f_frsize - free))

        yield fill


@contextlib.contextmanager
def mounted(folder: Path, kilobytes: int) -> Iterator[None]:
    aside = folder.with_name(folder.name + "-aside")
    folder.rename(aside)
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", str(folder)]
    if sys.platform != "linux" or subprocess.run(command, capture_output=True, check=False).returncode:
        folder.rmdir()
        aside.rename(folder)
        pytest.skip("a tmpfs cannot be mounted here")
    try:
        subprocess.run(["cp", "-a", f"{aside}/.", folder], check=True)
        yield
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)
