"""Questions about this project, asked of its own documents and code as they are here."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.support.terminal import new_project

TOP = Path(__file__).parents[2]
QUESTIONS = TOP / "tests/data/own-questions.yaml"
SETTINGS = """\
sources:
  - collection: docs
    paths: [README.md, docs/]
  - collection: code
    kind: code
    paths: [vmrag_link/, mcp_server/, action/, hooks/]
"""


def test_this_project_answers_questions_about_itself(tmp_path):
    project = new_project(tmp_path / "project", settings=SETTINGS)
    for folder in ("docs", "vmrag_link", "mcp_server", "action", "hooks"):
        shutil.copytree(TOP / folder, project.top / folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(TOP / "README.md", project.top)
    (project.top / ".vmrag").mkdir(exist_ok=True)
    shutil.copy(QUESTIONS, project.top / ".vmrag/queries.yaml")
    project.git("add", "-f", "-A")
    project.git("commit", "-q", "-m", "everything")
    checked = project.ask("check", code=None)
    assert [query for query in checked["queries"] if query["misses"]] == []
    assert len(checked["queries"]) > 20
