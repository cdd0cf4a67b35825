"""The RAG app of docs/python.md answers from a shallow clone with its index."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.repos import isolate
from tests.support.sources import SETTINGS, commit
from tests.support.terminal import Project, new_project

PAGE = (Path(__file__).parents[2] / "docs" / "python.md").read_text()
_, PROGRAM, _, TEST, RELEASES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
QUERIES = "queries:\n  - query: how do requests time out\n    first: docs/timeouts.md\n"
pytestmark = pytest.mark.hooks("off")


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """An invented service with two releases, pushed with its knowledge base; the second is later
    than the tag `v2.0`.
    """
    isolate(monkeypatch, tmp_path / "home")
    project = new_project(tmp_path / "service", settings=SETTINGS)
    project.git("init", "-q", "--bare", str(tmp_path / "remote.git"))
    project.git("remote", "add", "origin", "../remote.git")
    project.vmrag("init", "--knowledge-base", "--no-sources")
    project.put("runbook.md", "# Runbook\n\nRestart the gateway at midnight.\n")
    project.vmrag("commit", "-m", "runbook")
    text = "# Timeouts\n\nRequests time out after {} seconds.\n"
    commit(project, "two", **{"docs/timeouts.md": text.format(30), "answer.py": PROGRAM, "README.md": "# Service\n"})
    project.git("tag", "v2.0")
    commit(project, "three", **{"docs/timeouts.md": text.format(5)})
    project.git("push", "-q", "origin", "main", "v2.0")
    project.vmrag("push")
    return project


def ask(top: Path, question: str, **environ: str) -> str:
    argv = [sys.executable, "answer.py", *question.split()]
    result = subprocess.run(argv, cwd=top, env=os.environ | environ, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_program_has_at_most_25_lines():
    assert len(PROGRAM.splitlines()) <= 25


def test_program_answers_from_the_checked_out_commit(service):
    printed = ask(service.top, "when do requests time out")
    assert printed.startswith("Put your chat model here")
    assert "docs/timeouts.md:1-3" in printed.splitlines()[-1]


def test_program_answers_from_its_release_without_the_remote(service, tmp_path):
    release = service.git("rev-parse", "v2.0")
    url = f"file://{tmp_path / 'remote.git'}"
    app = tmp_path / "app"
    subprocess.run(["git", "clone", "-q", "--depth", "1", "--branch", "v2.0", url, str(app)], check=True)
    image = Project(app)
    image.vmrag("sync")
    image.vmrag("query", "warm up", "-q")
    shutil.rmtree(tmp_path / "remote.git")
    indexes = sorted(path.name for path in (app / ".git/vmrag/sources").iterdir())
    sources = ask(app, "when do requests time out", GIT_COMMIT=release).splitlines()[-1]
    assert "docs/timeouts.md:1-3" in sources
    assert "handbook/runbook.md:" in ask(app, "restart the gateway", GIT_COMMIT=release).splitlines()[-1]
    assert sorted(path.name for path in (app / ".git/vmrag/sources").iterdir()) == indexes


def test_program_never_answers_from_another_release(service):
    argv = [sys.executable, "answer.py", "timeouts"]
    environ = os.environ | {"GIT_COMMIT": "0" * 40}
    result = subprocess.run(argv, cwd=service.top, env=environ, capture_output=True, text=True, check=False)
    assert result.returncode != 0
    assert "GitReferenceMissing" in result.stderr


def test_example_test_passes_for_the_service(service, monkeypatch):
    monkeypatch.chdir(service.top)
    names: dict[str, object] = {}
    exec(compile(TEST, "python.md", "exec"), names)
    names["test_timeout_question_finds_its_page"]()


def test_example_of_releases_passes_with_golden_queries(service, monkeypatch):
    monkeypatch.chdir(service.top)
    service.git("tag", "v1.0", "v2.0")
    service.git("tag", "-f", "v2.0", "HEAD")
    service.write("tests/test_releases.py", RELEASES)
    service.write(".vmrag/queries.yaml", QUERIES)
    for at in ((), ("--at", "v1.0")):
        assert service.ask("check", *at)["metrics"]["mrr"] == 1
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests", ".vmrag/queries.yaml"],
        cwd=service.top,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "3 passed" in result.stdout, result.stdout
