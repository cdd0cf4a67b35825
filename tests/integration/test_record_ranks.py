"""Deliberate records among pages that mention the words of a question in passing."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.support.repos import isolate
from tests.support.sources import commit
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


def first(project: Project, query: str) -> list[str]:
    return [hit["doc_id"] for hit in project.ask("query", query)["results"]][:3]


def test_query_finds_note_among_pages(project):
    project.write(".vmrag/notes/search.md", "We chose Pagefind over Algolia, because it needs no server.\n")
    commit(project, "Begin")
    assert "search" in first(project, WHY)


def test_query_finds_decision_among_pages(project):
    project.write("docs/adr/0003-search.md", "# 3. Search\n\nPagefind instead of Algolia, which needs a contract.\n")
    commit(project, "Begin")
    assert "docs/adr/0003-search.md" in first(project, WHY)


def test_query_finds_section_of_changelog_among_pages(project):
    versions = [
        f"## 1.{minor}.0\n\n- The part {minor} is faster.\n- Fixed: an error of page {minor}.\n" for minor in range(30)
    ]
    versions[7] += "- Pagefind is the default search.\n"
    project.write("CHANGELOG.md", "# Changelog\n\n" + "\n".join(reversed(versions)))
    commit(project, "Begin")
    assert "CHANGELOG.md" in first(project, "since which version is pagefind the default")


def test_query_finds_version_in_changelog_with_its_changes(project):
    letters = random.Random(3)
    changes = "".join(
        f"Version {major}.{minor}.{patch}\n-------------\n\nReleased 20{minor:02}-0{patch + 1}-13\n\n"
        + "".join(
            f"- {' '.join(''.join(letters.choices('aeioklmnrst', k=6)) for _ in range(6))} {major}.{patch}.{minor}\n"
            for _ in range(40)
        )
        + "\n\n"
        for major in (3, 2, 1)
        for minor in range(6)
        for patch in range(3)
    )
    project.write("CHANGELOG.md", changes)
    commit(project, "Add a changelog")
    for version in ("3.1.0", "2.1.2", "v1.0.2"):
        hits = project.ask("query", f"what changed in {version}", "--collection", "docs")["results"][:2]
        titles = [hit["header_path"].rpartition(" > ")[2] for hit in hits]
        assert titles == [f"Version {version.lstrip('v')}"] * 2
        assert hits[0]["chunk"] + 1 == hits[1]["chunk"]


def test_query_finds_stored_note_among_pages(project):
    project.vmrag("init", "--knowledge-base", "--no-hooks")
    text = "We chose Pagefind over Algolia, because it needs no server."
    project.vmrag("add", "-m", text, "--collection", "memory", "--id", "search")
    commit(project, "Begin")
    assert "search" in first(project, WHY)
