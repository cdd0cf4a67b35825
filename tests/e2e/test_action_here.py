"""The project's own workflow `knowledge.yml`: its steps run here as on a runner, on this
repository's documents.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support import events
from tests.support.actions_runner import ACTION, CacheService, Runner, restore_packages, setup_python
from tests.support.events import Job
from tests.support.repos import Repo, make_repo

ROOT = Path(__file__).parents[2]
JOB = yaml.safe_load((ROOT / ".github/workflows/knowledge.yml").read_text())["jobs"]["knowledge"]


def step(name: str) -> Any:
    return next(step for step in JOB["steps"] if step.get("name") == name)


def script(repo: Repo, name: str, **environ: str) -> None:
    """One `run:` of the job, as the runner starts it."""
    argv = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step(name)["run"]]
    result = subprocess.run(argv, cwd=repo.top, env=os.environ | environ, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.fixture
def hub(tmp_path: Path) -> Repo:
    """This repository's documents, and what must be found in them."""
    source = make_repo(tmp_path / "source")
    shutil.copytree(ROOT / "docs", source.top / "docs")
    shutil.copytree(ROOT / ".vmrag", source.top / ".vmrag")
    shutil.copy(ROOT / "README.md", source.top)
    for message in ("before", "this commit"):
        source.git("add", "-A")
        source.git("commit", "-q", "--allow-empty", "-m", message)
    source.git("clone", "-q", "--bare", ".", str(tmp_path / "hub"))
    return Repo(tmp_path / "hub")


@pytest.mark.long
def test_action_answers_golden_queries_of_this_repository(hub: Repo, tmp_path: Path) -> None:
    before, tip = hub.git("rev-parse", "main~1"), hub.git("rev-parse", "main")
    repo = events.checkout(hub.top, tmp_path / "workspace", tip)
    (repo.top / ".venv").symlink_to(sys.prefix)  # what the step "Install vmrag" makes
    script(repo, "Pin the documents", **step("Pin the documents")["env"])
    temp = tmp_path / "temp"
    [used] = [step for step in JOB["steps"] if step.get("uses") == "$/action"]
    restore_packages(temp, used["with"])
    environ = Job(tmp_path, "push", events.push(before, tip), sha=tip, ref="refs/heads/main").environ
    others = CacheService(tmp_path / "cache").actions | {"actions/setup-python": setup_python}
    finished = Runner(temp, repo.top, environ, others).run(ACTION, **used["with"])
    print(finished.log)
    assert finished.passed
    assert finished.outputs["findings"] == "0"
    path = os.pathsep.join([*finished.paths, os.environ["PATH"]])
    script(
        repo,
        "Ask with the vmrag that the Action installed",
        PATH=path,
        REVISION=finished.outputs["revision"],
        **finished.variables,
    )
