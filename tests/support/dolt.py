"""The place of the dolt program, which no package registry has."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from tests.support.repos import ENGINE

REQUIRED = os.environ.get("VMRAG_REQUIRE_DOLT") == "1"
"""Tests that need the program fail where it is absent. Read now: tests inherit no such variable."""


embedded = pytest.mark.skipif(ENGINE != "doltlite", reason="is about the embedded engine's own file")
"""For a test that means no other engine, whichever VMRAG_TEST_ENGINE names."""


def require() -> str:
    """The program's path; skips the test, by the program's name, where `dolt` is not on PATH."""
    if path := shutil.which("dolt"):
        return path
    if REQUIRED:
        pytest.fail("dolt is not on PATH, and VMRAG_REQUIRE_DOLT is set")
    pytest.skip("needs the program dolt on PATH")


def run(folder: Path, *args: str, patience: float = 60.0) -> str:
    """Return the output of the program, run next to vmrag: it waits until no vmrag session is
    open.
    """
    deadline = time.monotonic() + patience
    while True:
        result = subprocess.run(["dolt", *args], cwd=folder, check=False, capture_output=True, text=True)
        if result.returncode == 0:
            return result.stdout
        if "read only" not in result.stderr or time.monotonic() > deadline:
            raise AssertionError(result.stderr)
        time.sleep(0.1)


def await_next_second() -> None:
    """Until the clock shows another second than now."""
    now = int(time.time())
    while int(time.time()) == now:
        time.sleep(0.01)
    time.sleep(0.02)  # C's `time` reads a clock that is a tick behind


def copy_repository(folder: Path, to: Path) -> Path:
    """Copy a repository that no process has open."""
    shutil.copytree(folder, to)
    return to
