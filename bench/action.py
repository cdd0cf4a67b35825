"""The Action with a warm cache, against `vmrag sync` and `vmrag fingerprint --verify` where the
vectors lie already.

Both fetch the knowledge base, build the index and compare it with the documents. The Action takes
the vectors out of the cache besides, and reads the event. The figure omits a start of Python for
each of its steps, because a step is a process. It also omits installation and GitHub's own actions.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from bench import knowledge, timing
from bench.knowledge import VMRAG
from bench.timing import Figure, Run
from vmrag_action.caches import LAYOUT
from vmrag_link.ops import portable_index
from vmrag_link.progress import QUIET
from vmrag_link.workspace import Workspace

LIMIT = 1.3
STEPS = ("prepare", "sync")
BARE_START = Path(__file__).with_name("bare_start.py")
SIZES = (1_000, 10_000)


def run(folder: Path, sizes: list[int], rounds: int, env: dict[str, str]) -> list[Figure]:
    return [figure for size in sizes if size in SIZES for figure in measured(folder, size, rounds, env)]


def measured(folder: Path, size: int, rounds: int, env: dict[str, str]) -> list[Figure]:
    stage = Stage(folder, size, env)
    timed = timing.in_turn(
        {
            "Action": stage.action,
            "vmrag": stage.commands,
            "start": lambda: timing.once([sys.executable, str(BARE_START)], cwd=folder, env=env),
        },
        rounds,
    )
    seconds = {name: sample.wall for name, sample in timed.items()}
    start = seconds["start"]
    # Two commands start twice, where one would do.
    ratio = (seconds["Action"] - len(STEPS) * start) / (seconds["vmrag"] - start)
    return [Figure(f"Action with a warm cache, {size:,} documents", ratio, LIMIT, seconds)]


class Stage:
    """The code's repository, and what a cache of it holds."""

    def __init__(self, folder: Path, size: int, env: dict[str, str]) -> None:
        self._env = env
        self._folder = folder / f"action-{size}"
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(parents=True)
        repo = knowledge.make(folder, size, env)
        self._hub = self._folder / "hub.git"
        knowledge.git(self._folder, "clone", "-q", "--bare", str(repo), str(self._hub), env=env)
        subprocess.run([*VMRAG, "push", "-q", f"git+file://{self._hub}"], cwd=repo, env=env, check=True)
        self._packed = self._folder / LAYOUT
        workspace = Workspace.open(repo, QUIET)
        portable_index.pack_vectors(workspace, self._packed)
        workspace.close()
        self._clones = 0

    def commands(self) -> Run:
        """`sync` and `fingerprint --verify` where the vectors lie at their place."""
        clone = self._clone()
        home = clone / ".git" / "vmrag"
        home.mkdir(mode=0o700)
        shutil.copytree(self._packed, home, dirs_exist_ok=True)
        sync = timing.once([*VMRAG, "sync"], cwd=clone, env=self._env)
        verify = timing.once([*VMRAG, "fingerprint", "--verify"], cwd=clone, env=self._env)
        return Run(sync.wall + verify.wall, sync.cpu + verify.cpu, max(sync.peak_mb, verify.peak_mb))

    def action(self) -> Run:
        """The steps, one after the other; GitHub's restore is between them, and not timed."""
        clone = self._clone()
        temp = clone.with_name(f"{clone.name}-temp")
        variables = self._told(clone, temp)
        prepare = self._step("prepare", clone, variables)
        shutil.copytree(self._packed, temp / "vmrag-cache")
        sync = self._step("sync", clone, variables | {"VMRAG_NO_SERVICES": ""})
        if "from the cache" not in (temp / "summary").read_text().replace("&#45;", "-"):
            raise SystemExit("the Action has embedded texts")
        return Run(prepare.wall + sync.wall, prepare.cpu + sync.cpu, max(prepare.peak_mb, sync.peak_mb))

    def _clone(self) -> Path:
        self._clones += 1
        clone = self._folder / f"clone-{self._clones}"
        url = f"file://{self._hub}"
        knowledge.git(self._folder, "clone", "-q", "--depth=1", "-b", "main", url, str(clone), env=self._env)
        return clone

    def _step(self, name: str, clone: Path, variables: dict[str, str]) -> Run:
        return timing.once([sys.executable, "-I", "-m", "vmrag_action", name], cwd=clone, env=variables)

    def _told(self, clone: Path, temp: Path) -> dict[str, str]:
        temp.mkdir()
        files = {name: temp / name.rpartition("_")[2].lower() for name in ("OUTPUT", "ENV", "PATH", "STEP_SUMMARY")}
        for file in files.values():
            file.touch()
        return {
            **self._env,
            **{f"GITHUB_{name}": str(file) for name, file in files.items()},
            "GITHUB_ACTIONS": "true",
            "GITHUB_EVENT_NAME": "schedule",
            "GITHUB_REF": "refs/heads/main",
            "GITHUB_SHA": knowledge.git(clone, "rev-parse", "HEAD", env=self._env).strip(),
            "GITHUB_WORKSPACE": str(clone),
            "RUNNER_TEMP": str(temp),
            "RUNNER_OS": "Linux",
            "RUNNER_ARCH": "X64",
            "RUNNER_ENVIRONMENT": "github-hosted",
        }
