"""`vmrag restore` and `vmrag rm`: documents given up and brought back, nothing lost."""

from __future__ import annotations

import re
import shlex

import pytest

from tests.support import terminal
from tests.support.terminal import Project, opened
from vmrag_link import hints

pytestmark = pytest.mark.hooks("off")

template, project = terminal.template, terminal.project

REST = terminal.DOCUMENTS["rest.md"]


def texts(project: Project) -> dict[str, str]:
    """All texts by full name."""
    with opened(project) as ws:
        return {
            "/".join(document.key): document.content for document in ws.engine.read_documents(ws.locate_documents())
        }


def typed(project: Project, command: str) -> None:
    """Type a command that was printed."""
    program, *words = shlex.split(command)
    assert program == "vmrag"
    project.vmrag(*words)


def way_back(said: str) -> str:
    match = re.search(r"run '(vmrag restore .*)' to restore", said)
    assert match, said
    return match[1]


def changed(project: Project) -> dict[str, str]:
    """One document added, one changed, one removed; returns the texts before."""
    before = texts(project)
    project.put("new.md", "Never committed.")
    project.put("rest.md", "Changed.")
    project.drop("faq.md")
    return before


# -- restore ---------------------------------------------------------------------------------------


def test_restored_document_equals_the_commit_and_the_edit_is_recoverable(project):
    changed(project)
    said = project.vmrag("restore", "handbook/rest.md").out
    assert texts(project)["handbook/rest.md"] == REST
    assert project.marks()["rest.md"] is None
    assert said.startswith(f"1 document restored from {project.pinned[:7]}\nOne was never committed;")
    typed(project, way_back(said))
    assert texts(project)["handbook/rest.md"] == "Changed."


def test_removed_document_is_restored_and_an_added_one_removed(project):
    changed(project)
    assert "never committed" not in project.vmrag("restore", "faq.md").out
    assert texts(project)["handbook/faq.md"] == "A frequent question."
    said = project.vmrag("restore", "new.md").out
    assert f"1 document removed, which {project.pinned[:7]} does not have" in said
    assert "handbook/new.md" not in texts(project)
    typed(project, way_back(said))
    assert texts(project)["handbook/new.md"] == "Never committed."


def test_everything_is_given_up_only_when_that_is_confirmed(project):
    before = changed(project)
    now = texts(project)
    for everything in ((), (".",)):
        error = project.vmrag("restore", *everything, "--json", code=2).error
        assert (error["code"], error["details"]["uncommitted_count"]) == ("CONFIRMATION_REQUIRED", 2)
    assert texts(project) == now
    report = project.ask("restore", "--yes")
    assert {document["doc_id"]: document["kind"] for document in report["documents"]} == {
        "new.md": "removed",
        "rest.md": "modified",
        "faq.md": "added",
    }
    assert {document["doc_id"] for document in report["unsaved"]} == {"new.md", "rest.md"}
    assert texts(project) == before
    assert project.status()["kb"]["dirty"] is False
    project.vmrag("restore", "--source", report["kept"], "--yes")
    assert texts(project) == now | {"handbook/faq.md": "A frequent question."}


def test_restore_without_changes_asks_nothing(project):
    assert project.vmrag("restore", ".").out == f"Nothing differs from {project.pinned[:7]}.\n"
    assert project.vmrag("restore", "handbook/faq.md").out == f"Nothing differs from {project.pinned[:7]}.\n"


def test_documents_come_from_another_place_as_git_restore_takes_files(project):
    said = project.vmrag("restore", "--source", "feature", "handbook").out
    assert texts(project) == {
        "handbook/rest.md": "# Rest\n\nNever rest.\n",
        "handbook/setup.md": terminal.DOCUMENTS["setup.md"],
        "handbook/uv.md": "Use uv.",
    }
    at = project.ask("diff", "feature")["old"][:7]
    assert said.splitlines() == [
        f"2 documents restored from {at}",
        f"2 documents removed, which {at} does not have",
        "hint: run 'vmrag commit -m \"What changed in the documents\"' to commit the documents",
    ]
    assert project.marks() == {
        "deep/tls.txt": "removed",
        "faq.md": "removed",
        "rest.md": "modified",
        "setup.md": None,
        "uv.md": "added",
    }
    project.vmrag("restore", "-s", "first", "handbook/*.txt")
    assert "handbook/deep/tls.txt" in texts(project)


def test_restored_document_restores_its_collection_and_new_collections_are_discarded(project):
    settings = project.ask("diff", "first", "WORKING")["collections"]
    project.vmrag("rm", "handbook", "--yes")
    project.put("a", "text", collection="notes")
    project.vmrag("restore", "handbook/faq.md")
    assert set(texts(project)) == {"handbook/faq.md", "notes/a"}
    assert (
        [collection for collection in project.ask("diff")["collections"] if collection["name"] == "handbook"]
        == settings
        == []
    )
    project.vmrag("restore", ".", "--yes")
    assert {text.partition("/")[0] for text in texts(project)} == {"handbook"}
    assert project.ask("diff")["collections"] == []


def test_changed_settings_of_a_collection_are_kept_as_well(project):
    from vmrag_link.ops.collection_writes import modify_collection

    with opened(project) as ws:
        modify_collection(ws, "handbook", metadata={"owner": "Ada"})
    said = project.vmrag("restore", "handbook").out
    assert project.ask("diff")["collections"] == []
    typed(project, way_back(said))
    assert project.ask("diff")["collections"][0]["fields"][0]["after"] == '{"owner":"Ada"}'


def test_show_of_removed_document_hints_at_restore(project):
    project.drop("faq.md")
    error = project.vmrag("show", "faq.md", "--json", code=3).error
    assert error["message"] == "handbook/faq.md was removed here; the removal is not committed."
    [command] = hints.list_commands(error["hint"])
    typed(project, command)
    assert project.vmrag("show", "faq.md").out == "A frequent question.\n"


def test_restore_of_missing_names_changes_nothing(project):
    before = changed(project)
    now = texts(project)
    assert project.vmrag("restore", "rest.md", "nope.md", "--json", code=3).error["code"] == "DOCUMENT_NOT_FOUND"
    assert project.vmrag("restore", "-s", "nope", "rest.md", "--json", code=3).error["code"] == "GIT_COMMIT_NOT_FOUND"
    assert texts(project) == now != before


def test_during_a_merge_one_document_can_be_restored_and_not_all(project):
    project.vmrag("merge", "feature", "--no-commit")
    assert project.marks()["rest.md"] == "modified"
    project.vmrag("restore", "rest.md")
    assert project.marks()["rest.md"] is None
    error = project.vmrag("restore", ".", "--yes", "--json", code=1).error
    assert error["code"] == "MERGE_CONFLICT"
    assert "vmrag merge --abort" in error["hint"]
    assert project.marks()["uv.md"] == "added"


# -- rm --------------------------------------------------------------------------------------------


def test_single_document_is_removed_without_a_question(project):
    assert project.vmrag("rm", "handbook/faq.md").out.startswith(
        "handbook: 1 document removed\nhint: run 'vmrag commit"
    )
    assert project.vmrag("rm", "deep/tls.txt", "rest.md").out.startswith("handbook: 2 documents removed\n")
    assert set(texts(project)) == {"handbook/setup.md"}


@pytest.mark.parametrize(
    ("names", "gone"),
    [
        (["handbook/deep"], ["deep/tls.txt"]),
        (["*.txt"], ["deep/tls.txt"]),
        (["handbook/[fr]*.md"], ["faq.md", "rest.md"]),
        (["--collection", "handbook", "*.md"], ["faq.md", "rest.md", "setup.md"]),
        (["handbook"], ["deep/tls.txt", "faq.md", "rest.md", "setup.md"]),
    ],
)
def test_rm_of_several_documents_requires_confirmation(project, names, gone):
    before = texts(project)
    listed = project.vmrag("rm", "-n", *names).out.splitlines()
    assert [line for line in listed if not line.endswith("(the collection)")] == [
        f"rm handbook/{doc_id}" for doc_id in gone
    ]
    assert project.vmrag("rm", *names, "--json", code=2).error["code"] == "CONFIRMATION_REQUIRED"
    assert texts(project) == before
    removed = project.ask("rm", *names, "--yes")["removed"]
    assert [document["doc_id"] for document in removed] == gone
    assert set(before) - set(texts(project)) == {f"handbook/{doc_id}" for doc_id in gone}


def test_removed_collection_is_restored_as_a_whole(project):
    project.put("new.md", "Never committed.")
    before = texts(project)
    said = project.vmrag("rm", "handbook", "--yes").out
    assert said.startswith("collection handbook removed, with 5 documents\nOne was never committed;")
    with opened(project) as ws:
        assert ws.engine.list_collections(ws.locate_documents()) == []
    typed(project, way_back(said))
    assert texts(project) == before


def test_name_that_means_nothing_removes_nothing(project):
    before = texts(project)
    error = project.vmrag("rm", "faq.md", "nope/*.md", "--json", code=3).error
    assert error["code"] == "COLLECTION_NOT_FOUND"
    assert texts(project) == before
