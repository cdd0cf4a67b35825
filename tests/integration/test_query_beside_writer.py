"""Queries while another process writes documents."""

from __future__ import annotations

import pytest

from tests.support import terminal
from tests.support.mcp import Tools
from vmrag_link.sync.indexer import Indexer

pytestmark = pytest.mark.hooks("off")

template, project = terminal.template, terminal.project


@pytest.mark.parametrize("command", ["query", "verify"])
def test_query_and_verify_retry_after_a_concurrent_write(project, monkeypatch, command):
    project.put("one.md", "A first text about walruses.")
    for path in (project.shared / "uncommitted").iterdir():
        if path.is_dir():
            terminal.shutil.rmtree(path)
    names = iter(["two.md", "three.md"])
    plan = Indexer._plan_changes

    def plan_and_let_another_write(self, *arguments):
        """Store a document after the plan, as another process does that leaves the index to us."""
        planned = plan(self, *arguments)
        if name := next(names, None):
            other = Tools(project.top)
            text = "A later text about walruses."
            other(
                "chroma_add_document_with_id", collection_name="handbook", id=name, document=text, increment_index=False
            )
        return planned

    monkeypatch.setattr(Indexer, "_plan_changes", plan_and_let_another_write)
    if command == "query":
        names_found = {row["doc_id"] for row in project.ask("query", "walruses", "-k", "3")["results"]}
        assert names_found == {"one.md", "two.md", "three.md"}
    else:
        assert "as it should" in project.vmrag("fingerprint", "--verify").out
