"""Our hooks in real pre-commit and real prek, from a git clone of this project, alone and beside
`vmrag install`.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support import terminal
from tests.support.repos import make_repo
from tests.support.templates import build_once, copy_tree
from tests.support.terminal import Done, Project
from vmrag_hooks import installer
from vmrag_link.git import hook_config, plumbing

ROOT = Path(__file__).parents[2]
TOOLS = Path(sys.executable).parent
PACKAGED = ("pyproject.toml", "README.md", "LICENSE", ".pre-commit-hooks.yaml", "vmrag_link", "hooks")
MANAGERS = ("pre-commit", "prek")
STAGES = ("pre-commit", "pre-merge-commit", "pre-push", "post-checkout", "post-merge", "post-rewrite")
CONFIG = """default_install_hook_types: [{stages}]
repos:
- repo: {source}
  rev: {revision}
  hooks:
  - id: vmrag-check
  - id: vmrag-push
  - id: vmrag-sync
"""
MISSING = "which is not in this knowledge base"
UNCOMMITTED = "are not committed, so this commit does not pin them"

template, project = terminal.template, terminal.project


@dataclass(frozen=True)
class Framework:
    """`source`: this project as a repository of hooks. `home`: the environments that both managers
    have made of it.
    """

    source: Path
    home: Path

    @property
    def environ(self) -> dict[str, str]:
        homes = {"PRE_COMMIT_HOME": str(self.home / "pre-commit"), "PREK_HOME": str(self.home / "prek")}
        return homes | {"PREK_UV_SOURCE": "pip"}  # as everything else; its own choice is a download from elsewhere

    @property
    def config(self) -> str:
        revision = subprocess.check_output(["git", "rev-parse", "HEAD"], cwd=self.source, text=True).strip()
        return CONFIG.format(stages=", ".join(STAGES), source=self.source, revision=revision)

    def start(self, manager: str, *arguments: str, cwd: Path, **environ: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [TOOLS / manager, *arguments],
            cwd=cwd,
            env=os.environ | self.environ | environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, manager: str, *arguments: str, cwd: Path) -> Done:
        return ended(self.start(manager, *arguments, cwd=cwd))


def ended(process: subprocess.Popen[str]) -> Done:
    out, _ = process.communicate()
    return Done(process.returncode, out, "")


@dataclass(frozen=True)
class Built:
    """Environments that are built once.

    `tried`: the output of `pre-commit try-repo` about a bad pin; it makes a separate environment.
    """

    framework: Framework
    tried: Done


@pytest.fixture(scope="session")
def built(template: Path, tmp_path_factory: pytest.TempPathFactory) -> Built:
    folder = build_once(tmp_path_factory, "framework", lambda folder: _build(folder, template))
    return Built(Framework(folder / "source", folder / "home"), Done(*json.loads((folder / "tried.json").read_text())))


def _build(folder: Path, template: Path) -> None:
    source = make_repo(folder / "source")
    for name in PACKAGED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, source.top / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, source.top / name)
    source.git("add", "-A")
    source.commit("hooks")
    framework = Framework(source.top, folder / "home")

    user = Project(copy_tree(template, folder / "user"))
    user.write(".pre-commit-config.yaml", framework.config)
    stage_bad_pin(user)
    calls = (
        ("pre-commit", "try-repo", str(source.top), "vmrag-check"),
        ("pre-commit", "install-hooks"),
        ("prek", "prepare-hooks"),
    )
    # A home directory: uv looks for interpreters there.
    running = [framework.start(*call, cwd=user.top, HOME=str(folder)) for call in calls]
    tried, *prepared = [ended(process) for process in running]
    assert [result.code for result in prepared] == [0, 0], prepared
    (folder / "tried.json").write_text(json.dumps([tried.code, tried.out, tried.err]))


@pytest.fixture
def framework(built: Built) -> Framework:
    return built.framework


def stage_bad_pin(project: Project) -> None:
    """Stage a pin of a missing revision."""
    pin = project.top / ".dolt-version"
    pin.write_text(pin.read_text().replace(project.pinned, "0" * 40))
    project.git("add", ".dolt-version")


class Stage:
    """A project that uses our hooks by a framework, at first without any shim. `started`: hooks for
    which Python was started.
    """

    def __init__(self, project: Project, framework: Framework, folder: Path) -> None:
        self.project = project
        self.framework = framework
        self.places = plumbing.locate_work_tree(project.top)
        self.log = folder / "log"
        self.interpreter = folder / "counting-python"
        self.interpreter.write_text(f'#!/bin/sh\necho "$5" >>"{self.log}"\nexec "{sys.executable}" "$@"\n')
        self.interpreter.chmod(0o755)
        project.vmrag("uninstall")
        project.write(".pre-commit-config.yaml", framework.config)  # on every branch: git does not know of it
        project.write(".git/info/exclude", ".pre-commit-config.yaml\n")

    def install(self, manager: str) -> None:
        """The framework's hooks."""
        result = self.framework.run(manager, "install", cwd=self.project.top)
        assert result.code == 0, result

    def install_ours(self) -> None:
        installer.install_hooks(self.places, python=str(self.interpreter))

    def git(self, *arguments: str, **environ: str) -> Done:
        """Return the output of git and its hooks, on both streams."""
        result = self.project.run(*arguments, env=environ)
        return Done(result.returncode, result.stdout + result.stderr, "")

    def started(self) -> list[str]:
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        self.log.unlink(missing_ok=True)
        return lines

    def remote(self, folder: Path, name: str = "origin") -> None:
        self.project.git("init", "-q", "--bare", str(folder))
        self.project.git("remote", "add", name, str(folder))


@pytest.fixture
def stage(project: Project, framework: Framework, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    for name, value in framework.environ.items():
        monkeypatch.setenv(name, value)
    return Stage(project, framework, tmp_path)


def said(result: Done, *, times: int) -> list[str]:
    """Our lines: so many, wherever the frameworks have put them."""
    lines = [line.strip() for line in result.out.splitlines() if line.lstrip().startswith("vmrag: ")]  # prek indents
    assert len(lines) == times, result.out
    return lines


# -- the framework alone


def test_manifest_is_valid_and_covers_its_stages(tmp_path):
    framework = Framework(ROOT, tmp_path)
    assert framework.run("pre-commit", "validate-manifest", ".pre-commit-hooks.yaml", cwd=ROOT).code == 0
    assert framework.run("prek", "validate-manifest", ".pre-commit-hooks.yaml", cwd=ROOT).code == 0
    assert set(STAGES) <= set(hook_config.HOOKS)


@pytest.mark.long
def test_pre_commit_tries_the_repository_on_a_staged_pin(built):
    assert built.tried.code == 1, built.tried
    assert MISSING in said(built.tried, times=1)[0]


@pytest.mark.long
@pytest.mark.parametrize("manager", MANAGERS)
def test_framework_refuses_bad_pin_and_accepts_good_pin(stage, manager):
    stage.install(manager)
    head = stage.project.git("rev-parse", "HEAD")
    stage_bad_pin(stage.project)
    result = stage.git("commit", "-m", "bad")
    assert result.code == 1
    assert MISSING in said(result, times=1)[0]
    assert stage.project.git("rev-parse", "HEAD") == head

    assert stage.git("commit", "-m", "bad", VMRAG="0").code == 0
    stage.project.git("reset", "-q", "--hard", head)

    stage.project.put("new.md", "New.")
    stage.project.vmrag("commit", "-m", "new")
    result = stage.git("commit", "-m", "good")
    assert result.code == 0
    said(result, times=0)


@pytest.mark.long
def test_merge_that_drops_knowledge_is_refused(stage):
    stage.install("pre-commit")
    result = stage.git("merge", "--no-edit", "-s", "ours", "feature")
    assert result.code == 1
    assert "drops documents" in said(result, times=1)[0]
    stage.project.git("merge", "--abort")
    installer.install_hooks(stage.places, hooks=())  # the merge driver, and no shim
    assert stage.git("merge", "--no-edit", "feature").code == 0
    assert stage.project.git("rev-list", "--count", "--merges", "HEAD") == "1"


@pytest.mark.long
@pytest.mark.parametrize("manager", MANAGERS)
def test_push_is_refused_for_a_bad_pin(stage, manager, tmp_path):
    stage.install(manager)
    stage.remote(tmp_path / "remote")
    stage.remote(tmp_path / "empty", name="empty")
    assert stage.git("push", "-q", "origin", "main").code == 0
    stage_bad_pin(stage.project)
    stage.project.git("commit", "-q", "--no-verify", "-m", "bad")
    for name in ("origin", "empty"):  # the framework knows a range of commits, and none
        result = stage.git("push", name, "main:new")
        assert result.code == 1
        assert MISSING in said(result, times=1)[0]
        assert stage.project.git("ls-remote", name, "new") == ""


@pytest.mark.long
@pytest.mark.parametrize("manager", MANAGERS)
def test_knowledge_follows_the_code_by_the_recorded_interpreter(stage, manager):
    stage.install(manager)
    installer.install_hooks(stage.places, python=str(stage.interpreter), hooks=())
    result = stage.git("switch", "feature")
    assert (result.code, stage.started()) == (0, ["post-checkout"])
    assert said(result, times=1) == [
        f"vmrag: the knowledge base is now at {stage.project.pinned[:7]} (+1 ~1 -2 documents)"
    ]
    assert stage.project.status()["state"] == "in_sync"
    assert stage.git("switch", "-q", "-c", "work", "first").code == 0
    assert stage.started() == ["post-checkout"]
    assert stage.git("merge", "-q", "feature").code == 0
    assert stage.started() == ["post-merge"]
    stage.project.commit("code", code="1")
    assert stage.git("rebase", "-q", "--onto", "main", "feature").code == 0
    assert stage.started() == ["post-rewrite"]
    assert stage.project.status()["state"] == "in_sync"


@pytest.mark.long
@pytest.mark.parametrize("recorded", [None, "/nowhere/python"])
def test_checkout_leaves_the_sync_to_the_next_command_without_an_interpreter(stage, recorded):
    stage.install("pre-commit")
    if recorded:
        stage.places.interpreter.write_text(recorded + "\n")
    result = stage.git("switch", "feature")
    assert result.code == 0
    said(result, times=0)
    assert stage.project.status()["state"] == "drift"


# -- beside `vmrag install`


@pytest.fixture(params=["ours first", "the framework first"])
def both(request: pytest.FixtureRequest, stage: Stage, manager: str) -> Stage:
    if request.param == "ours first":
        stage.install_ours()
        stage.install(manager)
    else:
        stage.install(manager)
        stage.install_ours()
    return stage


@pytest.mark.long
@pytest.mark.parametrize("manager", MANAGERS)
def test_together_each_check_runs_once(both, tmp_path):
    project = both.project
    project.put("new.md", "New.")
    project.write("code.py", "1")
    project.git("add", "code.py")
    result = both.git("commit", "-m", "code")
    assert (result.code, both.started()) == (0, ["pre-commit"])
    assert UNCOMMITTED in said(result, times=1)[0]
    project.drop("new.md")

    stage_bad_pin(both.project)
    result = both.git("commit", "-m", "bad")
    assert (result.code, both.started()) == (1, ["pre-commit"])
    assert MISSING in said(result, times=1)[0]

    both.remote(tmp_path / "remote")
    project.git("commit", "-q", "--no-verify", "-m", "bad")
    both.started()
    result = both.git("push", "origin", "feature", "main")  # the framework sees the first one only
    assert (result.code, both.started()) == (1, ["pre-push"])
    assert MISSING in said(result, times=1)[0]
    project.git("reset", "-q", "--hard", "HEAD~")

    result = both.git("merge", "--no-edit", "-s", "ours", "feature")
    assert (result.code, both.started()) == (1, ["pre-merge-commit"])
    assert "drops documents" in said(result, times=1)[0]
    project.git("merge", "--abort")

    result = both.git("switch", "feature")
    assert (result.code, both.started()) == (0, ["post-checkout"])
    said(result, times=1)


@pytest.mark.long
@pytest.mark.parametrize("manager", MANAGERS)
def test_manual_run_checks_although_shims_do_too(stage, manager):
    stage.install_ours()
    stage.install(manager)
    stage_bad_pin(stage.project)
    for arguments in (["run", "--all-files"], ["run", "vmrag-check"]):
        result = stage.framework.run(manager, *arguments, cwd=stage.project.top)
        assert (result.code, stage.started()) == (1, [])
        assert MISSING in said(result, times=1)[0]
    stage.project.git("commit", "-q", "--no-verify", "-m", "bad")
    stage.started()
    result = stage.framework.run(manager, "run", "--hook-stage", "pre-push", "--all-files", cwd=stage.project.top)
    assert (result.code, stage.started()) == (1, [])
    assert MISSING in said(result, times=1)[0]


@pytest.mark.long
def test_framework_checks_if_shims_serve_other_worktrees(stage):
    stage.install_ours()
    stage.install("pre-commit")
    (stage.places.shared / "some-work-trees").touch()
    stage_bad_pin(stage.project)
    result = stage.git("commit", "-m", "bad")
    assert (result.code, stage.started()) == (1, [])
    assert MISSING in said(result, times=1)[0]
