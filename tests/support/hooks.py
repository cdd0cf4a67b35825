"""Hooks under real git. A recorder stands where the interpreter does: it tells when Python would
start, and with what.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.repos import Repo, isolate, make_repo
from vmrag_hooks import installer
from vmrag_link.git import plumbing
from vmrag_link.sync.binding import encode_applied

SHELLS = {
    name: argv
    for name, argv in {"dash": ["dash"], "busybox": ["busybox", "sh"], "bash": ["bash", "--posix"]}.items()
    if shutil.which(argv[0])
}


class Stage:
    """A repository with hooks, and the log of what the recorder was started with."""

    def __init__(self, repo: Repo, folder: Path) -> None:
        self.repo = repo
        self.log = folder / "log"
        self.recorder = folder / "re 'corder"
        self.recorder.write_text(
            "#!/bin/sh\n"
            f'{{ echo "$@"; echo "git: $(env | grep -E "^GIT_(DIR|INDEX_FILE|WORK_TREE|PREFIX)=" | tr "\\n" " ")";'
            f' echo "cwd: $(pwd)"; echo "stdin: $(cat)"; }} >>"{self.log}"\necho loud\n'
        )
        self.recorder.chmod(0o755)

    def install(self, repo: Repo | None = None, **options) -> installer.InstallReport:
        return installer.install(plumbing.locate((repo or self.repo).top), python=str(self.recorder), **options)

    def fails(self, code: int) -> None:
        """The interpreter from now on ends with this exit code."""
        self.recorder.write_text(f"#!/bin/sh\nexit {code}\n")

    def apply(self, repo: Repo | None = None) -> None:
        """What a sync leaves behind."""
        places = plumbing.locate((repo or self.repo).top)
        places.own.mkdir(exist_ok=True)
        places.applied.write_bytes(encode_applied(plumbing.head(places).symbolic, plumbing.pin_bytes(places)))

    def starts(self) -> list[str]:
        """The hooks for which Python was started since the last call, with their arguments."""
        lines = self.lines()
        return [line.partition("vmrag_hooks ")[2] for line in lines if line.startswith("-P -E -m vmrag_hooks ")]

    def lines(self) -> list[str]:
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        self.log.unlink(missing_ok=True)
        return lines

    def queue(self, repo: Repo | None = None) -> list[str]:
        """The lines that wait for `vmrag links`, since the last call."""
        path = plumbing.locate((repo or self.repo).top).link_queue
        lines = path.read_text().splitlines() if path.exists() else []
        path.unlink(missing_ok=True)
        return lines

    def run(self, shell: str, hook: str, *arguments: str, stdin: str = "", repo: Repo | None = None, **environ: str):
        """The shim as git would run it, in a shell of our choice."""
        path = self.repo.top / ".git" / "hooks" / hook
        return subprocess.run(
            [shutil.which(SHELLS[shell][0]), *SHELLS[shell][1:], path, *arguments],
            cwd=(repo or self.repo).top,
            env=os.environ | environ,
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
        )


@pytest.fixture
def stage(monkeypatch, tmp_path) -> Stage:
    """`main` and `twin` pin one thing, `side` two commits on another; HEAD is on `main`, and
    applied.
    """
    isolate(monkeypatch, tmp_path / "home")
    repo = make_repo(tmp_path / 'it\'s a "ü" repo')
    repo.commit("first", pin='{\n  "x": "1"\n}\n', code="1\n")
    repo.git("branch", "twin")
    repo.git("checkout", "-q", "-b", "side")
    repo.commit("second", pin='{\n  "x": "2"\n}\n')
    repo.commit("third", other="o")
    repo.git("checkout", "-q", "main")
    made = Stage(repo, tmp_path)
    made.install()
    (repo.top / ".git" / "vmrag" / "kb").mkdir()
    made.apply()
    return made


def pinned_repo(monkeypatch, folder: Path) -> Repo:
    """One commit with a pin, and a knowledge base as far as a shim can see."""
    isolate(monkeypatch, folder / "home")
    made = make_repo(folder / 'it\'s a "ü" repo')
    made.commit("first", pin="one\n", code="1\n")
    (made.top / ".git" / "vmrag" / "kb").mkdir(parents=True)
    return made


class Log:
    """What the hooks wrote, since the last call; `recorder` stands where Python does."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "log"
        self.recorder = folder / "recorder"
        self.recorder.write_text(f'#!/bin/sh\necho "vmrag $5" >>"{self.path}"\n')
        self.recorder.chmod(0o755)

    def __call__(self) -> list[str]:
        lines = self.path.read_text().splitlines() if self.path.exists() else []
        self.path.unlink(missing_ok=True)
        return lines

    def names(self) -> list[str]:
        return sorted(line.split()[0] for line in self())


@pytest.fixture
def log(tmp_path) -> Log:
    return Log(tmp_path)


def foreign(hooks: Path, folder: Path, hook: str = "post-checkout", *, name="other", code=0, mode=0o755) -> Path:
    """A hook of another tool, which logs its arguments and its input."""
    path = hooks / hook
    path.write_text(f'#!/bin/sh\necho "{name} $* <$(cat)>" >>"{folder}/log"\nexit {code}\n')
    path.chmod(mode)
    return path


def tree(folder: Path) -> dict[str, tuple[int, bytes | Path | dict]]:
    """Name, mode and content of everything in it."""
    return {path.name: (path.lstat().st_mode, _content(path)) for path in folder.iterdir()}


def _content(path: Path) -> bytes | Path | dict:
    if path.is_symlink():
        return path.readlink()
    return tree(path) if path.is_dir() else path.read_bytes()
