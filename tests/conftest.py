"""No test sees this machine: no configuration of git, no home directory; and on CI no test is
skipped for want of a program.
"""

from __future__ import annotations

import contextlib
import gc
import os
import re
import shutil
import signal
import sys
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.support import dolt
from tests.support.dolt_server import dolt_server  # noqa: F401  a fixture
from tests.support.long import LONG, examples
from tests.support.repos import ENGINE, isolate
from vmrag_link.env import SWITCH

NOT_FROM_PYPI = {"busybox", "chromium", "dash", "dolt", "fish", "git-lfs", "jj", "sshd", "strace", "zsh"}
"""Programs that the line which CI runs cannot install: a test that needs one may be skipped there,
too.
"""

PIP_CACHE = os.environ.get("PIP_CACHE_DIR") or str(Path.home() / ".cache" / "pip")
"""The one thing of this machine that a test may use: what installing the project has downloaded
already.
"""

settings.register_profile("untimed", settings.default, deadline=None, max_examples=examples(100))
settings.load_profile("untimed")  # without a deadline: the duration of a case depends on the load of the machine

gc.disable()  # until all tests are collected: nearly nothing of it is garbage

_MISSING = re.compile(r"\b([\w.-]+) is not installed")


@pytest.fixture(scope="session", autouse=True)
def _nothing_of_this_machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Use a file as the home directory, so that programs find nothing in it and fail to write
    there.
    """
    folder = tmp_path_factory.mktemp("machine")
    with pytest.MonkeyPatch.context() as patch:
        isolate(patch, folder / "configured")
        patch.delenv(SWITCH, raising=False)
        (folder / "home-is-out-of-bounds").touch()
        patch.setenv("HOME", str(folder / "home-is-out-of-bounds"))
        patch.setenv("PIP_CACHE_DIR", PIP_CACHE)
        patch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")  # hints name `vmrag`
        yield


@pytest.fixture(scope="session", autouse=True)
def _what_tests_begin_they_end() -> Iterator[None]:
    """Kill processes that still run after the tests of a worker, and fail the run.

    Processes are recognized by their environment (Linux).
    """
    name, mark = "TESTED_BY", f"{os.getpid()}-{time.time_ns()}"
    os.environ[name] = mark
    yield
    del os.environ[name]
    until = time.monotonic() + 20  # a sync in the background may be at work
    while (remaining := _processes(f"{name}={mark}")) and time.monotonic() < until:
        time.sleep(0.2)
    for number in remaining:
        with contextlib.suppress(ProcessLookupError):
            os.kill(number, signal.SIGKILL)
    assert not remaining, f"Tests left behind: {', '.join(remaining.values())}"


def _processes(variable: str) -> dict[int, str]:
    """Command lines, by number, of those that were started with this variable."""
    result = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if variable.encode() in (folder / "environ").read_bytes().split(b"\0"):
                result[int(folder.name)] = (folder / "cmdline").read_text().replace("\0", " ").strip()
    return {number: line for number, line in result.items() if line and number != os.getpid()}


@pytest.fixture(scope="session", autouse=True)
def _signals_as_in_a_terminal() -> None:
    """A shell starts what it runs in the background with Ctrl-C ignored, `nohup` with the hangup.
    Programs inherit what is ignored; from this process they do not, as it has a handler instead.
    """
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda *_: None)


@pytest.fixture(autouse=True)
def _the_engine_that_is_asked_for() -> None:
    """Start all knowledge bases of tests on Dolt if the environment selects it."""
    if ENGINE == "dolt":
        dolt.require()


@pytest.fixture(autouse=True)
def _hooks_of_this_test(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Marked `hooks("off")`, by itself or by its module, a test switches off what its hooks would
    do: a sixth of a second each, where they are not the subject. In a long run, and in a test that
    only a long run has, they run.
    """
    marker = request.node.get_closest_marker("hooks")
    if marker and marker.args == ("off",) and not LONG and not request.node.get_closest_marker("long"):
        monkeypatch.setenv(SWITCH, "0")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item):
    report = yield
    if report.skipped and os.environ.get("CI") == "true" and isinstance(report.longrepr, tuple):
        missing = _MISSING.search(report.longrepr[2])
        if missing and missing[1] not in NOT_FROM_PYPI:
            report.outcome = "failed"
            report.longrepr = f"{item.nodeid}: {missing[0]}, but CI has everything that the extra `dev` names"
    return report


@pytest.hookimpl(tryfirst=True)  # before pytest leaves out what is marked `long`
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Select cases of a test marked `sample(count)`: the first, the last and some between them.

    If the sample is one case, it is chosen by the name of the test, so that the tests of a module
    use all kinds of a fixture. The other cases are `long`.
    """
    cases: dict[tuple[Path, str], list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("sample") and not item.get_closest_marker("long"):
            cases.setdefault((item.path, item.originalname), []).append(item)
    for case in cases.values():
        [count] = case[0].get_closest_marker("sample").args
        chosen = {round(number * (len(case) - 1) / max(1, count - 1)) for number in range(min(count, len(case)))}
        if count == 1:
            chosen = {zlib.crc32(case[0].originalname.encode()) % len(case)}
        for number, item in enumerate(case):
            if number not in chosen:
                item.add_marker(pytest.mark.long)


def pytest_collection_finish() -> None:
    """Freeze the objects of the collection: the garbage collector need not scan ten thousand tests
    again and again. It runs rarely, because a test that parses all modules needs four times the CPU
    with Python's usual thresholds.
    """
    gc.freeze()
    gc.set_threshold(20_000, 50, 100)
    gc.enable()


@pytest.fixture
def git_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A `git` on PATH that writes a line for each start and is git; returns the file."""
    folder, log = tmp_path / "logging", tmp_path / "git.log"
    folder.mkdir()
    real = shutil.which("git")
    (folder / "git").write_text(f'#!/bin/sh\nprintf "%s\\n" "$*" >> {log}\nexec {real} "$@"\n')
    (folder / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    log.touch()
    return log
