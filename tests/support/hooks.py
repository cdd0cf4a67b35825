"""Hooks under real git.

A recorder takes the place of the interpreter: it records when Python would start, and its input.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.repos import Repo, isolate, make_repo
from vmrag_hooks import installer
from vmrag_link.git import installed_gits, plumbing
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
        return installer.install_hooks(
            plumbing.locate_work_tree((repo or self.repo).top), python=str(self.recorder), **options
        )

    def fails(self, code: int) -> None:
        """The interpreter from now on ends with this exit code."""
        self.recorder.write_text(f"#!/bin/sh\nexit {code}\n")

    def apply(self, repo: Repo | None = None) -> None:
        """Write the state that a sync leaves."""
        places = plumbing.locate_work_tree((repo or self.repo).top)
        places.work_tree_folder.mkdir(exist_ok=True)
        places.applied.write_bytes(encode_applied(plumbing.read_head(places).symbolic, plumbing.read_pin_bytes(places)))

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
        path = plumbing.locate_work_tree((repo or self.repo).top).link_queue
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


def add_remote(repo: Repo) -> Repo:
    """The same, with a bare `origin` that has its `main`."""
    repo.git("init", "-q", "--bare", "../remote.git")
    repo.git("remote", "add", "origin", "../remote.git")
    repo.git("push", "-q", "origin", "main")
    return repo


class Log:
    """Lines that the hooks wrote since the last call; `recorder` takes the place of Python."""

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


def run_all_events(repo: Repo, log: Log, *, branch: str = "main", **environ: str) -> dict[str, list[str]]:
    """Commits a pin on the branch, changes branches, merges, pushes to `origin`: what each
    operation made the hooks write, by the hook's name.
    """
    number = len(repo.git("rev-list", "--all").split())
    repo.write(".dolt-version", f"{number}\n")
    steps = {
        "pre-commit": ["commit", "-q", "-a", "-m", "pin"],
        "post-checkout": ["checkout", "-q", "-B", "other", "HEAD~1"],
        "post-merge": ["merge", "-q", branch],
        "pre-push": ["push", "-q", "origin", branch],
    }
    log()
    written = {}
    for hook, step in steps.items():
        result = repo.run(*step, env=environ)
        assert result.returncode == 0, result.stderr
        written[hook] = [line for line in log() if f" {hook}" in line]
    repo.git("checkout", "-q", "-B", branch, env=environ)
    log()
    return written


def expect_each(*names: str, hooks=("pre-commit", "post-checkout", "post-merge", "pre-push")) -> dict[str, list[str]]:
    """Return the expected lines if these run once each, in this order; other managers have these
    hooks.
    """
    return {
        hook: [f"{name} {hook}" for name in names if name == "vmrag" or hook in hooks]
        for hook in ("pre-commit", "post-checkout", "post-merge", "pre-push")
    }


def add_foreign_hook(
    hooks: Path, folder: Path, hook: str = "post-checkout", *, name="other", code=0, mode=0o755
) -> Path:
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


# -- a git that runs hooks from its configuration

_NEW_GIT = os.environ.get("VMRAG_TEST_GIT", "")
"""The folder of one that is not on PATH. Read now: tests inherit no such variable."""


@pytest.fixture(scope="session")
def new_git(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A PATH on which it is the only git. Skips the test where there is none."""
    folders = [folder for folder in (_NEW_GIT, *os.environ["PATH"].split(os.pathsep)) if folder]
    first = next((folder for folder in folders if runs_hooks(Path(folder, "git"))), None)
    if first is None:
        pytest.skip("needs a git of version 2.54 or later, on PATH or in the folder VMRAG_TEST_GIT")
    return os.pathsep.join(
        [first, *(_without_git(Path(folder), tmp_path_factory) for folder in folders if folder != first)]
    )


def runs_hooks(git: Path) -> bool:
    if not os.access(git, os.X_OK):
        return False
    said = subprocess.check_output([git, "version"], text=True).split()[2]
    return tuple(map(int, said.split(".")[:2])) >= installed_gits.FIRST_VERSION


def _without_git(folder: Path, factory: pytest.TempPathFactory) -> str:
    if not (folder / "git").exists():
        return str(folder)
    links = factory.mktemp("programs")
    for program in folder.iterdir():
        if program.name != "git":
            (links / program.name).symlink_to(program)
    return str(links)
