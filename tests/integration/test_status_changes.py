"""`vmrag status`: what is not committed, and what is not pushed."""

from __future__ import annotations

import pytest

from tests.support import terminal
from tests.support.terminal import Project, opened
from vmrag_link.engines.base import Write
from vmrag_link.models import Document

pytestmark = pytest.mark.hooks("off")

template, project = terminal.template, terminal.project


def changes(project: Project) -> dict:
    return project.ask("status")["changes"]


def documents(project: Project) -> dict[str, str]:
    return {
        f"{document['collection']}/{document['doc_id']}": document["kind"] for document in changes(project)["documents"]
    }


# -- documents -------------------------------------------------------------------------------------


def test_changed_documents_are_listed_with_the_command_to_type(project):
    project.put("new.md", "New.")
    project.put("rest.md", "Changed.")
    project.drop("faq.md")
    project.put("a", "text", collection="notes")
    assert project.vmrag("status").out.split("\n\n")[1].splitlines() == [
        "Documents not committed:",
        '  (use "vmrag diff" to see, "vmrag commit" to keep them)',
        '  (use "vmrag restore NAME" to discard them)',
        "    added:     notes/ (a new collection)",
        "    removed:   handbook/faq.md",
        "    added:     handbook/new.md",
        "    modified:  handbook/rest.md",
        "    added:     notes/a",
    ]
    assert documents(project) == {
        "handbook/faq.md": "removed",
        "handbook/new.md": "added",
        "handbook/rest.md": "modified",
        "notes/a": "added",
    }
    project.vmrag("restore", "--yes")
    assert (documents(project), changes(project)["collections"]) == ({}, [])


def test_many_documents_are_listed_with_examples_of_each_kind(project):
    names = [f"{number:02}.md" for number in range(60)]
    with opened(project) as ws:
        branch = ws.find_kb_branch()
        rows = [Document("handbook", name, name, "text", "0" * 64) for name in names]
        ws.engine.write(branch.name, Write(put_documents=rows), expected=branch.head)
    project.put("rest.md", "Changed.")
    project.drop("faq.md")
    said = project.vmrag("status").out.split("\n\n")[1].splitlines()
    listed = [line.split() for line in said[3:]]
    assert [line for line in listed if line[0] != "added:"] == [
        ["removed:", "handbook/faq.md"],
        ["modified:", "handbook/rest.md"],
        ["…", "and", "42", "more", "added", "(-v", "shows", "all)"],
    ]
    assert sum(line[0] == "added:" for line in listed) == 18
    every = project.vmrag("status", "-v").out
    assert all(f"handbook/{name}" in every for name in names)
    assert "more added" not in every
    assert len(documents(project)) == 62


# -- what is not pushed ----------------------------------------------------------------------------


def test_revisions_that_the_remote_is_not_known_to_have_are_counted(project, tmp_path):
    assert changes(project)["unpushed"] is None
    project.git("init", "-q", "--bare", str(tmp_path / "origin.git"))
    project.git("remote", "add", "origin", str(tmp_path / "origin.git"))
    assert changes(project)["unpushed"] == {"remote": "origin", "revisions": 2, "problem": ""}
    project.vmrag("push")
    assert changes(project)["unpushed"]["revisions"] == 0
    assert "  remote     origin, nothing to push\n" in project.vmrag("status").out
    project.record("one", one="1")
    project.record("two", two="2")
    (tmp_path / "origin.git").rename(tmp_path / "away.git")  # nothing asks it
    assert "  remote     origin, 2 revisions not pushed; run 'vmrag push' to push them\n" in project.vmrag("status").out
