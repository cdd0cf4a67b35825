"""Folders that are built once in a run and copied by the tests, in whichever worker those run."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.repos import isolate
from vmrag_link.env import SWITCH


def build_once(
    factory: pytest.TempPathFactory,
    name: str,
    build: Callable[[Path], object],
    *,
    by: Callable[..., object] | None = None,
) -> Path:
    """Return the folder `name` of this run; the first worker that needs it builds it with
    `build(folder)`.

    The folder exists and is empty when `build` gets it. git and vmrag use a separate home during
    that time. A caller copies the folder and writes nothing into it: other workers read it. `by`:
    the function that identifies `build`, if that one is created each time. A name belongs to one
    function.
    """
    code = (by or build).__code__
    maker = f"{code.co_filename}:{code.co_firstlineno}"
    base = factory.getbasetemp()
    run = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "templates"
    run.mkdir(exist_ok=True)
    folder = run / name
    result = run / f"{name}.done"
    with (run / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not result.exists():
            shutil.rmtree(folder, ignore_errors=True)  # of a build that failed
            folder.mkdir()
            with pytest.MonkeyPatch.context() as patch:
                isolate(patch, run / f"{name}-home")
                patch.delenv(SWITCH, raising=False)  # the same whichever test comes first
                build(folder)
            result.write_text(maker)
        assert result.read_text() == maker, f"two templates are called {name!r}"
    return folder


def copy_tree(source: Path, target: Path) -> Path:
    """The same files, times and modes below `target`, which is an empty folder or does not exist
    yet.
    """
    subprocess.run(["cp", "-a", f"{source}/.", target], check=True)
    return target
