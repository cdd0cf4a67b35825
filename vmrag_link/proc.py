"""The one place that starts processes."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path


class Finished(subprocess.CompletedProcess[bytes]):
    """What a program left: `returncode`, `stdout` and `stderr` as bytes."""

    @property
    def text(self) -> str:
        return self.stdout.decode(errors="surrogateescape")

    @property
    def complaint(self) -> str:
        """What it said on standard error, for people: part of that may come from another machine, and moves no cursor here."""
        lines = self.stderr.decode(errors="replace").splitlines()
        return "\n".join(
            "".join(sign if sign.isprintable() or sign == "\t" else "?" for sign in line) for line in lines
        ).strip()


def run(
    argv: Sequence[str],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    stdin: bytes | None = None,
    show_stderr: bool = False,
) -> Finished:
    """Run a program to its end with captured output; never through a shell. Raises FileNotFoundError if it is absent.

    `show_stderr` leaves it our own standard error, where it can draw its progress; nothing of that is captured.
    """
    done = subprocess.run(
        list(argv),
        cwd=cwd,
        env=env,
        input=stdin,
        stdin=subprocess.DEVNULL if stdin is None else None,
        stdout=subprocess.PIPE,
        stderr=None if show_stderr else subprocess.PIPE,
        check=False,
    )
    return Finished(done.args, done.returncode, done.stdout, done.stderr or b"")


def detached(argv: Sequence[str], *, cwd: Path) -> int:
    """Start a program that outlives us and our terminal, with no stream of ours; returns its process id."""
    nothing = subprocess.DEVNULL
    return subprocess.Popen(
        list(argv), cwd=cwd, stdin=nothing, stdout=nothing, stderr=nothing, start_new_session=True
    ).pid
