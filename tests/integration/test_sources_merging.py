"""Knowledge is merged where files became documents of sources: what was imported from them is
removed on one side, and changed on the other.
"""

from __future__ import annotations

import pytest

from tests.support import terminal
from tests.support.terminal import Project, copied, derive_template

pytestmark = pytest.mark.hooks("off")

SETTINGS = "embedding:\n  model: hash\n"
SOURCES = SETTINGS + 'sources:\n  - collection: files\n    paths: ["docs/"]\n'

template = terminal.template


def branch_off(project: Project) -> None:
    """Create two branches.

    adopted: sources, and the copies removed; changed: a copy and its file have a new text; HEAD is
    on `adopted`.
    """
    project.git("switch", "-qc", "changed")
    project.write("docs/setup.md", "# Setup\n\nInstall the program with uv.\n")
    project.vmrag("import", "docs/setup.md", "--collection", "handbook", "--copy")
    project.put("kept.md", "This is stored.")
    project.vmrag("commit", "-m", "changed")
    project.git("commit", "-qam", "changed")
    project.git("switch", "-q", "main")
    project.vmrag("sync")
    project.git("switch", "-qc", "adopted")
    project.write(".vmrag.yaml", SOURCES)
    project.vmrag("sources", "dedupe")
    project.git("commit", "-qam", "adopted")


@pytest.fixture(scope="module")
def branched(tmp_path_factory, template):
    return derive_template(tmp_path_factory, "adopted-and-changed", template, branch_off)


@pytest.fixture
def project(branched, tmp_path, monkeypatch) -> Project:
    return copied(branched, tmp_path, monkeypatch)


def names(project: Project) -> set[str]:
    return {f"{document['collection']}/{document['doc_id']}" for document in project.ask("list")["documents"]}


MERGED = {
    "handbook/faq.md",
    "handbook/kept.md",
    "files/docs/setup.md",
    "files/docs/rest.md",
    "files/docs/deep/tls.txt",
}


@pytest.mark.parametrize(("ours", "theirs"), [("adopted", "changed"), ("changed", "adopted")])
def test_git_merges_without_a_conflict_from_either_side(project, ours, theirs):
    project.git("switch", "-q", ours)
    project.git("merge", "-q", "--no-edit", theirs)
    project.vmrag("sync")
    assert names(project) == MERGED
    assert "with uv" in project.vmrag("show", "files/docs/setup.md").out


def test_rebase_onto_the_adoption_has_no_conflict(project):
    project.git("switch", "-q", "changed")
    project.git("rebase", "-q", "adopted")
    project.vmrag("sync")
    assert names(project) == MERGED


def test_vmrag_merge_has_no_conflict(project):
    report = project.ask("merge", "changed")
    assert report["result"] == "merge"
    assert "handbook/setup.md" not in names(project)


def test_collection_that_became_a_source_merges_with_changed_documents(project):
    project.git("switch", "-q", "main")
    project.vmrag("sync")
    project.vmrag("import", "docs", "--collection", "guide", "--copy", "--base", "docs")
    project.vmrag("commit", "-m", "guide")
    project.git("commit", "-qam", "guide")
    project.git("switch", "-qc", "other")
    project.write("docs/rest.md", "# Rest\n\nSleep longer.\n")
    project.vmrag("import", "docs/rest.md", "--collection", "guide", "--copy")
    project.vmrag("commit", "-m", "longer")
    project.git("commit", "-qam", "longer")
    project.git("switch", "-q", "main")
    project.vmrag("sync")
    project.write(".vmrag.yaml", SOURCES.replace("files", "guide"))
    assert project.ask("sources", "dedupe")["collections"] == ["guide"]
    project.git("commit", "-qam", "guide is a source")
    project.git("merge", "-q", "--no-edit", "other")
    project.vmrag("sync")
    assert "longer" in project.vmrag("show", "guide/docs/rest.md").out


def test_uncommitted_changes_of_a_twin_follow_the_adoption_without_a_conflict(project):
    project.git("switch", "-q", "main")
    project.vmrag("sync")
    project.write("docs/rest.md", "# Rest\n\nSleep longer.\n")
    project.vmrag("import", "docs/rest.md", "--collection", "handbook", "--copy")
    project.put("note.md", "Another note.")
    project.git("merge", "-q", "--ff-only", "adopted")
    project.vmrag("sync")
    marks = {
        f"{document['collection']}/{document['doc_id']}": document["uncommitted"]
        for document in project.ask("list")["documents"]
    }
    assert "handbook/rest.md" not in marks
    assert marks["handbook/note.md"] == "added"
    assert marks["files/docs/rest.md"] == "modified"


def test_documents_outside_of_sources_conflict_as_usual(project):
    project.git("switch", "-q", "changed")
    project.put("faq.md", "Another answer.")
    project.record("faq")
    project.git("switch", "-q", "adopted")
    project.vmrag("sync")
    project.drop("faq.md")
    project.record("no faq")
    result = project.run("merge", "--no-edit", "changed")
    assert result.returncode == 1
    assert [conflict["id"] for conflict in project.ask("resolve", "--list", code=None)["conflicts"]] == [
        "handbook/faq.md"
    ]


def test_document_without_file_on_both_sides_is_in_conflict(project):
    """The change of one side is not lost: the merge reports a conflict."""
    for branch in ("changed", "adopted"):
        project.git("switch", "-q", branch)
        project.vmrag("sync", code=None)
        project.git("rm", "-q", "docs/setup.md")
        project.git("commit", "-qm", f"no file on {branch}")
    project.git("merge", "-q", "--no-edit", "changed", check=False)
    conflicts = project.ask("resolve", "--list", code=None)["conflicts"]
    assert len(conflicts) == 1
    assert "setup.md" in str(conflicts)
