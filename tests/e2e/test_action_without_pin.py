"""The Action and the pre-commit hooks in a repository that pins no revision."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support import hosted, people
from tests.support.hosted import Ci
from tests.support.repos import isolate
from tests.support.terminal import new_project

shared, world, ci = people.shared, people.world, hosted.ci

pytestmark = pytest.mark.hooks("off")

QUERIES = "queries:\n  - query: otter\n    expect: [docs/page.md]\n"
SOURCES = "embedding:\n  model: hash\nsources:\n  - collection: docs\n    paths: [docs/]\n"


@pytest.fixture
def plain(ci: Ci) -> Ci:
    """The hosted repository has one branch, with two commits of files that are documents."""
    hub, top = ci.world.hub, ci.ada.top
    for ref in hub.git("for-each-ref", "--format=%(refname)").splitlines():
        hub.git("update-ref", "-d", ref)
    ci.ada.git("checkout", "-q", "--orphan", "plain")
    ci.ada.git("rm", "-rfq", ".")
    for name, text in {".vmrag.yaml": SOURCES, ".vmrag/queries.yaml": QUERIES, "docs/page.md": "The otter.\n"}.items():
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_text(text)
    ci.ada.git("add", "-A")
    ci.ada.git("commit", "-q", "-m", "one")
    (top / "docs/page.md").write_text("The otter swims.\n")
    ci.ada.git("commit", "-q", "-a", "-m", "two")
    ci.ada.git("push", "-q", "--no-verify", str(hub.top), "HEAD:refs/heads/main")
    return ci


@pytest.mark.parametrize("mode", ["sync", "verify", "link", "report", "check", "repair"])
@pytest.mark.sample(2)
def test_mode_passes_on_a_push_without_a_pin(plain: Ci, mode: str):
    base = plain.world.hub.git("rev-parse", "main~1")
    outcome = plain.on_push(before=base, mode=mode)
    assert outcome.passed
    assert [note for note in outcome.annotations if note.level in ("error", "warning")] == []
    assert outcome.outputs["findings"] in ("0", "")


@pytest.mark.parametrize("mode", ["sync", "verify", "report", "check", "update"])
@pytest.mark.sample(2)
def test_mode_passes_on_a_pull_request_without_a_pin(plain: Ci, mode: str):
    base, head = (plain.world.hub.git("rev-parse", name) for name in ("main~1", "main"))
    outcome = plain.on_pull_request(base, head, mode=mode)
    assert outcome.passed
    assert [note for note in outcome.annotations if note.level in ("error", "warning")] == []


def test_sync_names_the_missing_pin_in_one_line(plain: Ci):
    outcome = plain.on_push(mode="sync")
    assert "mode: sync has nothing to do on push: the commit has no pin (.dolt-version)." in outcome.summary
    assert (outcome.outputs["in-sync"], outcome.outputs["findings"]) == ("true", "0")


@pytest.mark.parametrize("hook", ["check", "push", "sync"])
def test_hook_of_the_framework_passes_without_a_pin(tmp_path, monkeypatch, hook: str):
    isolate(monkeypatch, tmp_path / "home")
    project = new_project(tmp_path / "work", settings=SOURCES)
    project.git("add", "-A")
    project.git("commit", "-q", "-m", "one")
    outcome = subprocess.run(
        [sys.executable, "-P", "-E", "-m", "vmrag_hooks.framework", hook],
        cwd=project.top,
        capture_output=True,
        text=True,
        check=False,
    )
    assert outcome.returncode == 0, outcome.stderr
    assert len((outcome.stdout + outcome.stderr).splitlines()) <= 1


def test_check_passes_with_one_line_without_pin_and_sources(tmp_path, monkeypatch):
    isolate(monkeypatch, tmp_path / "home")
    project = new_project(tmp_path / "work", settings="embedding:\n  model: hash\n")
    project.write(".vmrag/queries.yaml", QUERIES)
    outcome = project.vmrag("check", "--junit", str(tmp_path / "cases.xml"))
    assert outcome.out == "the repository has no pin and no sources, so nothing can answer .vmrag/queries.yaml.\n"
    assert project.ask("check")["queries"] == []
    assert "<testsuite" in (tmp_path / "cases.xml").read_text()
    project.write(".vmrag.yaml", SOURCES)
    project.write("docs/page.md", "The otter.\n")
    project.git("add", "docs")
    assert project.vmrag("check").out.startswith("1 query answered as expected")


def test_check_of_the_action_passes_without_pin_and_sources(plain: Ci):
    plain.ada.write(".vmrag.yaml", "embedding:\n  model: hash\n")
    plain.ada.git("commit", "-q", "-a", "-m", "three")
    plain.ada.git("push", "-q", "--no-verify", str(plain.world.hub.top), "HEAD:refs/heads/main")
    outcome = plain.on_push(mode="check")
    assert outcome.passed
    assert "nothing can answer .vmrag/queries.yaml" in outcome.log
