"""Libraries: files become documents, stay the same ones when they change, and are found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support import notes
from tests.support.mcp import Tools
from tests.support.terminal import Project
from vmrag_link.documents import origin
from vmrag_link.models import content_hash

pytestmark = pytest.mark.hooks("off")

template, project, tools = notes.template, notes.project, notes.tools

GUIDE = "# Guide\n\nOwls sleep in hollow trees.\n"


@pytest.fixture
def guide(project: Project) -> Path:
    path = project.top / "docs" / "guide.md"
    path.parent.mkdir()
    path.write_text(GUIDE)
    return path


def took(tools: Tools, path: Path | str, **arguments: Any) -> dict[str, Any]:
    return tools("ingest_file", path=str(path), **arguments)


def found(tools: Tools, query: str, **arguments: Any) -> list[dict[str, Any]]:
    return tools("search", query=query, **arguments)["results"]


def test_a_file_is_taken_skipped_and_replaced_and_stays_one_document(tools, guide):
    first = took(tools, guide)
    assert (first["status"], first["library"], first["source"], first["chunk_count"]) == (
        "indexed",
        "default",
        str(guide),
        1,
    )
    again = took(tools, "docs/guide.md", metadata={"team": "birds"})
    assert (again["status"], again["doc_id"], again["chunk_count"]) == ("skipped", first["doc_id"], 1)
    guide.write_text(GUIDE.replace("Owls", "Bats") + "word " * 1000)
    new = took(tools, guide, metadata={"team": "bats"})
    assert (new["status"], new["doc_id"]) == ("replaced", first["doc_id"])
    assert new["chunk_count"] > 1
    whole = tools("get_document", doc_id=first["doc_id"])
    assert whole["content"] == guide.read_text()
    assert whole["title"] == "Guide"
    assert whole["metadata"] == {"team": "bats"}
    assert [each["library"] for each in tools("list_documents")["documents"]] == ["default"]
    guide.write_text(GUIDE)
    took(tools, guide)
    assert tools("get_document", doc_id=first["doc_id"])["metadata"] == {"team": "bats"}, "given before, it stays"


def test_what_is_stored_of_a_file_in_the_work_tree_names_no_machine(tools, project, guide):
    took(tools, guide, library="handbook")
    with notes.opened(project) as ws:
        [stored] = ws.engine.documents(ws.at(), collection="handbook")
    assert (stored.source, stored.source_key, stored.file_type) == ("docs/guide.md", "docs/guide.md", "markdown")
    assert str(project.top) not in str(stored)
    made_of = origin.origin_of(stored)
    assert made_of is not None
    assert made_of.hash == content_hash(GUIDE)


def test_a_merge_of_two_new_versions_knows_that_it_is_neither_file(tools, project, guide):
    guide.write_text("# Guide\n\n" + "".join(f"Line {number}.\n" for number in range(20)))
    taken = took(tools, guide)
    project.vmrag("commit", "-m", "guide")
    project.git("add", "-A")
    project.git("commit", "-q", "-m", "guide")
    for branch, line in (("side", 2), ("main", 17)):
        if branch == "side":
            project.git("switch", "-q", "-c", branch)
        else:
            project.git("switch", "-q", branch)
        guide.write_text(guide.read_text().replace(f"Line {line}.", f"Written on {branch}."))
        assert took(tools, guide)["status"] == "replaced"
        project.vmrag("commit", "-m", branch)
        project.git("commit", "-q", "-a", "-m", branch)
    merged = tools("merge_branch", source="side")
    assert merged["conflicts"] == []
    text = tools("get_document", doc_id=taken["doc_id"])["content"]
    assert "Written on main." in text
    assert "Written on side." in text
    with notes.opened(project) as ws:
        [stored] = ws.engine.documents(ws.at(), collection="default")
    assert origin.origin_of(stored) is None
    assert took(tools, guide)["status"] == "replaced", "the file of this branch is another one"
