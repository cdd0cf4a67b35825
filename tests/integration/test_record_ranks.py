"""Deliberate records among pages that mention the words of a question in passing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.repos import isolate
from tests.support.terminal import Project, new_project

pytestmark = pytest.mark.hooks("off")

SETTINGS = """\
embedding:
  model: default
sources:
- collection: docs
  paths: [docs/, CHANGELOG.md]
- collection: notes
  paths: [.vmrag/notes/]
  write: true
"""
WHY = "why did we choose pagefind"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    isolate(monkeypatch, tmp_path / "home")
    project = new_project(tmp_path / "project", settings=SETTINGS)
    for number in range(40):
        text = (
            f"Pagefind builds the index of chapter {number}. To choose another folder for pagefind, set its option.\n"
        )
        project.write(f"docs/page{number}.md", f"# Search {number}\n\n{text * (1 + number % 5)}")
    return project


def commit(project: Project) -> None:
    project.git("add", "-A")
    project.git("commit", "-q", "-m", "Begin")


def first(project: Project, query: str) -> list[str]:
    return [hit["doc_id"] for hit in project.ask("query", query)["results"]][:3]


def test_query_finds_note_among_pages(project):
    project.write(".vmrag/notes/search.md", "We chose Pagefind over Algolia, because it needs no server.\n")
    commit(project)
    assert "search" in first(project, WHY)


def test_query_finds_decision_among_pages(project):
    project.write("docs/adr/0003-search.md", "# 3. Search\n\nPagefind instead of Algolia, which needs a contract.\n")
    commit(project)
    assert "docs/adr/0003-search.md" in first(project, WHY)


def test_query_finds_section_of_changelog_among_pages(project):
    versions = [
        f"## 1.{minor}.0\n\n- The part {minor} is faster.\n- Fixed: an error of page {minor}.\n" for minor in range(30)
    ]
    versions[7] += "- Pagefind is the default search.\n"
    project.write("CHANGELOG.md", "# Changelog\n\n" + "\n".join(reversed(versions)))
    commit(project)
    assert "CHANGELOG.md" in first(project, "since which version is pagefind the default")


def test_query_finds_stored_note_among_pages(project):
    project.vmrag("init", "--knowledge-base", "--no-hooks")
    text = "We chose Pagefind over Algolia, because it needs no server."
    project.vmrag("add", "-m", text, "--collection", "memory", "--id", "search")
    commit(project)
    assert "search" in first(project, WHY)
