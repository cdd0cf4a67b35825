"""Run each hint that a command prints, in the state that printed it: it must help.

`VMRAG_WALK_HINTS=1 pytest …` runs the hints of all commands of these tests; a sample is in each run
(`tests/integration/test_hints.py`). The repositories of a test are in one folder; while a hint
runs, a copy takes its place at the same paths, and is discarded.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from vmrag_link import hints
from vmrag_link.cli.commands import COMMANDS

ENABLED = os.environ.get("VMRAG_WALK_HINTS") == "1"

_PLACEHOLDER = re.compile(r"\b[A-Z]{2,}\b|…|<|\.\.\.")
GIT = (
    "add branch checkout cherry-pick clone commit config diff fetch fsck gc grep log merge mv pull push rebase reflog "
    "remote repack reset restore revert rev-parse rm show stash status switch tag update-index worktree"
).split()
_PROGRAMS = ("cd", "chmod", "cp", "mkdir", "mv", "rm")
_FOR_A_PERSON = (
    "vmrag resolve",
    "vmrag mcp",
    "vmrag demo",
    "vmrag trust",
    "vmrag commit",
    "vmrag push git",
    "git commit",
    "git push",
)
"""They ask, wait for ever, need a message, or do it elsewhere: how it goes on after them is a
person's.
"""

_LOOKING = "status list log diff show doctor remote links branch config query check verify path grep blame sources help --help".split()


def as_it_stands(command: str) -> str:
    return "" if command.startswith(_FOR_A_PERSON) else command


def list_ways(hint: str, typed: Callable[[str], str] = as_it_stands) -> list[list[str]]:
    """List the ways out of a hint, each as commands to type in order, if they can be typed.

    `typed` turns a command into the typed one; the list is empty if another user must act.
    """
    result = []
    for way in hints.list_alternatives(hint):
        steps = []
        for command in filter(_is_command, hints.list_commands(way)):
            if not (step := typed(command)) or _PLACEHOLDER.search(step):
                break
            steps.append(step)
        result += [steps] if steps else []
    return result


def _is_command(text: str) -> bool:
    """Return whether a text in quotes is a command. It can also be an argument or a setting."""
    program, _, rest = text.partition(" ")
    value = {"git": GIT, "vmrag": COMMANDS}.get(program)
    return bool(rest) and (rest.split()[0] in value if value else program in _PROGRAMS)


def is_destructive(command: str) -> bool:
    """Return whether a command discards something irreversibly: such a command must never be
    printed to paste.
    """
    words = shlex.split(command)
    return words[:1] == ["rm"] or ("--force" in words and words[1] in ("push", "uninstall"))


def find_problem(way: list[str], top: Path, again: Callable[[], bool]) -> str | None:
    """Return the problem of a way out; None: it helps.

    `again` repeats the failed command, and returns whether it fails in the same way. A way helps if
    its commands succeed and the failed command does not fail in the same way after them, or if they
    show something.
    """
    environ = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    for command in way:
        if is_destructive(command):
            return f"{command!r} discards something"
        result = subprocess.run(
            command,
            shell=True,
            cwd=top,
            env=environ,
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
            timeout=120,
        )
        if result.returncode not in ((0, 1) if only_shows(command) else (0,)):
            return f"{command!r} ends with {result.returncode}: {result.stderr.strip()[:300]}"
    if not any(map(only_shows, way)) and again():
        return f"after {way} it fails as before"
    return None


def only_shows(command: str) -> bool:
    """Return whether a command only shows something."""
    return any(part in _LOOKING for part in command.split()[1:2] + command.split()[-1:])


def try_on_copy(folder: Path, work: Callable[[], str | None]) -> str | None:
    """Run `work` while a copy takes the place of the folder; open files stay those of the
    original.
    """
    aside = folder.with_name(f"{folder.name}.aside")
    folder.rename(aside)
    try:
        shutil.copytree(aside, folder, symlinks=True)
        return work()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        aside.rename(folder)


def read_hint(err: str) -> str:
    """The hint in what a command printed on stderr, as text or as JSON; empty without one."""
    if (start := err.find('{"')) >= 0 or (start := err.find("{\n")) >= 0:
        with contextlib.suppress(ValueError):
            return str(json.loads(err[start:]).get("error", {}).get("hint") or "")
    return "\n".join(line.removeprefix("hint: ") for line in err.splitlines() if line.startswith("hint: "))


def folder_of_test(top: Path) -> Path | None:
    """All that belongs to the test whose repository this is."""
    return next((parent for parent in top.parents if parent.name.startswith("test_")), None)
