"""The repository of the demo: real commands, run as a user would run them, narrated and timed."""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from vmrag_link import env, proc
from vmrag_link.demo.pages import ModulePage
from vmrag_link.demo.story import Narrator
from vmrag_link.errors import DemoFailed, GitFailed
from vmrag_link.models import Record
from vmrag_link.paths import Places
from vmrag_link.pin import Pin, parse_pin

PAGES = "pages"
OURS = (sys.executable, "-P", "-m", "vmrag_link.cli.main")


class Step(Record, frozen=True):
    """A command, or a piece of work of the demo itself."""

    what: str
    seconds: float


class Stage:
    """The repository of the demo.

    With `bars`, long commands show their progress on standard error.
    """

    def __init__(self, top: Path, narrator: Narrator, *, bars: bool) -> None:
        self.places = Places(top, top / ".git", top / ".git")
        self.steps: list[Step] = []
        self._narrator = narrator
        self._bars = bars
        self._environment = _environment()

    def run_command(self, *words: str, long: bool = False) -> None:
        """Run a `git` or `vmrag` command.

        Raises `DemoFailed` with its output.
        """
        self._narrator.command(shlex.join(words))
        result, seconds = self._run_timed(*words, show_stderr=long and self._bars)
        lines = [*result.text.splitlines(), *result.error_text.splitlines()]
        self._narrator.output([line for line in lines if not line.startswith("hint: ")], seconds)

    def set_git(self, key: str, value: str) -> None:
        """Set a git setting of this repository, without narration."""
        self._run_timed("git", "config", key, value)
        self.steps.pop()

    def write_file(self, name: str, text: str) -> None:
        (self.places.top / name).write_text(text, encoding="utf-8")

    def run_for_json(self, *words: str) -> tuple[dict[str, Any], float]:
        """Run a `vmrag` command with `--json`, and return its result and its seconds, without
        narration.
        """
        result, seconds = self._run_timed(*words, "--json")
        report: dict[str, Any] = msgspec.json.decode(result.stdout)
        return report, seconds

    def note_step(self, what: str, since: float) -> None:
        """Record work of the demo itself that began at `since` (`time.perf_counter()`)."""
        self.steps.append(Step(what, round(time.perf_counter() - since, 3)))
        self._narrator.work(what, self.steps[-1].seconds)

    def write_pages(self, pages: Iterable[ModulePage]) -> None:
        """Make the folder of pages contain exactly these pages."""
        folder = self.places.top / PAGES
        folder.mkdir(exist_ok=True)
        names = set()
        for page in pages:
            (folder / page.file).write_text(page.text, encoding="utf-8")
            names.add(page.file)
        for path in folder.iterdir():
            if path.name not in names:
                path.unlink()

    def read_pin(self) -> Pin:
        """Read the pin of the checked-out code."""
        return parse_pin(self.places.pin.read_bytes())

    def list_views(self) -> dict[str, int]:
        """Return the existing views: name and inode, which is different for a new view of that
        name.
        """
        folders = [path for path in self.places.views.iterdir() if path.is_dir()]
        return {folder.name: folder.stat().st_ino for folder in folders}

    def _run_timed(self, *words: str, show_stderr: bool = False) -> tuple[proc.FinishedProcess, float]:
        argv = [*OURS, *words[1:]] if words[0] == "vmrag" else list(words)
        started = time.perf_counter()
        try:
            result = proc.run(argv, cwd=self.places.top, env=self._environment, show_stderr=show_stderr)
        except FileNotFoundError as error:
            raise GitFailed("no git on PATH.", hint="Install git (https://git-scm.com).") from error
        seconds = round(time.perf_counter() - started, 3)
        line = shlex.join(words)
        if result.returncode != 0:
            message = "see above" if show_stderr else result.error_text or result.text.strip() or result.failure
            raise DemoFailed(f"{line} failed: {message}", command=line)
        self.steps.append(Step(line, seconds))
        return result, seconds


def _environment() -> dict[str, str]:
    """Return the environment without variables for other repositories and without the user's
    settings.

    Such settings could sign commits, or move or disable hooks.
    """
    inherited = env.copy_without(env.GIT_SCRUBBED)
    kept = {name: value for name, value in inherited.items() if not name.startswith("VMRAG")}
    return kept | {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "GIT_TERMINAL_PROMPT": "0"}
