"""Real git repositories under a temporary directory, with a fixed identity and no configuration of
the machine.
"""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from vmrag_link.env import SWITCH
from vmrag_link.settings.keys import KEYS

DATE = "2026-01-02T03:04:05+00:00"

ENGINE = os.environ.get("VMRAG_TEST_ENGINE", "doltlite")
"""The engine of the knowledge bases that tests start by `init`, instead of the usual one: the tests
of the loop, of merges, of replays and of two users run on each.
"""

HOOKS_PLACE = os.environ.get("VMRAG_TEST_HOOKS", "files")
"""Place of hooks in tests of other subjects, with any installed git."""

ENGINE_CLASS = {
    "doltlite": "vmrag_link.engines.doltlite.engine import DoltliteEngine",
    "dolt": "vmrag_link.engines.dolt.engine import DoltEngine",
}[ENGINE]
"""For `from … as m` in a child process whose engine a test patches."""

DATABASE_FILE = {"doltlite": "kb.doltlite", "dolt": f".dolt/noms/{'v' * 32}"}[ENGINE]
"""File in the folder of the knowledge base that an engine writes."""

UNTENDED = "[gc]\n\tauto = 0\n[maintenance]\n\tauto = false\n[receive]\n\tautogc = false\n"
"""For git's configuration. Without the last two every commit, fetch and push starts a process that
finds nothing to do.
"""


def isolate(monkeypatch, home: Path) -> None:
    """Nothing of this machine's configuration or of the caller's repository reaches git from now
    on. The switch of our hooks stays as it is: a marker of the test sets it (`conftest`).
    """
    for name in [name for name in os.environ if name.startswith(("GIT_", "GITHUB_", "VMRAG", "DOLT_"))]:
        if name != SWITCH:
            monkeypatch.delenv(name)
    home.mkdir(parents=True, exist_ok=True)
    (home / "gitconfig").write_text(
        "[user]\n\tname = Ada Lovelace\n\temail = ada@example.com\n[init]\n\tdefaultBranch = main\n"
        '[advice]\n\tdetachedHead = false\n[protocol "file"]\n\tallow = always\n' + UNTENDED
    )
    if KEYS["engine"].default != ENGINE:
        monkeypatch.setenv(KEYS["engine"].variable, ENGINE)
    monkeypatch.setenv("VMRAG_HOOKS_PLACE", HOOKS_PLACE)
    monkeypatch.setenv("VMRAG_INDEX_CHROMA", "off")  # no process in the background where a test is not about it
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / "xdg"))
    monkeypatch.setenv("XDG_DATA_HOME", str(home / "data"))
    monkeypatch.setenv("DOLT_ROOT_PATH", str(home))
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(home / "gitconfig"))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    monkeypatch.setenv("GIT_AUTHOR_DATE", DATE)
    monkeypatch.setenv("GIT_COMMITTER_DATE", DATE)
    monkeypatch.setenv("GIT_TERMINAL_PROMPT", "0")
    monkeypatch.setenv("GIT_EDITOR", "true")
    monkeypatch.setenv("GIT_PAGER", "cat")  # which is not a pager


ON = {SWITCH: "1"}
"""For git where our hooks have to work whatever marker the test has."""


@dataclass(frozen=True)
class Repo:
    """A work tree."""

    top: Path

    def git(self, *arguments: str, check: bool = True, env: dict[str, str] | None = None, stdin: str = "") -> str:
        """Run git and return its stdout; raise its output if `check` is set and it fails."""
        result = self.run(*arguments, env=env, stdin=stdin)
        if check and result.returncode != 0:
            raise AssertionError(f"git {' '.join(arguments)}: {result.returncode}\n{result.stdout}{result.stderr}")
        return result.stdout.strip()

    def run(self, *arguments: str, env: dict[str, str] | None = None, stdin: str = ""):
        environ = os.environ | (env or {})
        return subprocess.run(
            ["git", *arguments], cwd=self.top, env=environ, input=stdin, capture_output=True, text=True, check=False
        )

    def write(self, name: str, content: str | bytes) -> Path:
        path = self.top / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    def commit(self, message: str = "commit", **files: str | bytes | None) -> str:
        """Write and commit files, `pin=` being `.dolt-version`, which nothing checks, and None
        removing it; returns the hash.
        """
        paths = {".dolt-version" if name == "pin" else name: content for name, content in files.items()}
        if removed := [path for path, content in paths.items() if content is None]:
            self.git("rm", "-q", *removed)
        written = {path: content for path, content in paths.items() if content is not None}
        for path, content in written.items():
            self.write(path, content)
        if written:
            self.git("add", "-f", *written)
        unchecked = ["--no-verify"] if "pin" in files else []
        self.git("commit", "-q", "--allow-empty", *unchecked, "-m", message)
        return self.git("rev-parse", "HEAD")


def make_repo(top: Path) -> Repo:
    """A new, empty repository; call `isolate` first."""
    top.mkdir(parents=True)
    repo = Repo(top)
    repo.git("init", "-q")
    return repo
