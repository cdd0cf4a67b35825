"""Answers beside a knowledge base without documents."""

from __future__ import annotations

import pytest

from tests.support.repos import isolate
from tests.support.sources import SETTINGS, commit
from tests.support.terminal import Project, new_project

pytestmark = pytest.mark.hooks("off")


@pytest.fixture
def project(tmp_path, monkeypatch) -> Project:
    """A repository that version 0.1.0 set up: its pin names an empty knowledge base."""
    isolate(monkeypatch, tmp_path / "home")
    made = new_project(tmp_path / "work", settings=SETTINGS)
    commit(made, "begin", **{"docs/page.md": "# Page\n\nThe otter swims.\n", "src/a.py": "def f():\n    pass\n"})
    made.vmrag("init", "--knowledge-base", "--no-sources", "--no-hooks")
    commit(made, "empty pin")
    return made


def test_answer_names_no_revision_without_documents(project):
    head = project.git("rev-parse", "--short=7", "HEAD")
    for arguments in (["otter"], ["otter", "--budget", "300"], ["otter", "--at", "HEAD"], ["otter", "--since", "HEAD"]):
        last = project.vmrag("query", *arguments).out.splitlines()[-1]
        assert last.partition(";")[0] == f"from commit {head}"
    block = project.ask("query", "otter")["kb"]
    assert block["empty"] is True
    assert block["commit"]
    project.write(".vmrag/queries.yaml", "queries:\n  - query: otter\n    first: docs/page.md\n")
    assert project.vmrag("check").out == f"1 query answered as expected, from commit {head}.\n"
    project.put("a.md", "stored\n", collection="notes")
    assert "of the knowledge base, uncommitted documents included" in project.vmrag("query", "otter").out
    assert "empty" not in project.ask("query", "otter")["kb"]
