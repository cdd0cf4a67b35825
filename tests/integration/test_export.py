"""`vmrag export`: documents as files, and untrusted names that must not become files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support import terminal
from tests.support.terminal import Project
from vmrag_link.documents.export_paths import find_name_problem
from vmrag_link.engines.base import Write
from vmrag_link.models import Collection, Document, content_hash

pytestmark = pytest.mark.hooks("off")

template, project = terminal.template, terminal.project


def files(folder: Path) -> dict[str, str]:
    return {path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*") if path.is_file()}


def around(project: Project) -> set[str]:
    """The paths of all files of this test but those of git and of the export."""
    paths = (path.relative_to(project.top.parent).as_posix() for path in project.top.parent.rglob("*"))
    return {path for path in paths if not path.startswith(("project/.git/", "project/out"))}


def store(project: Project, *ids: str, collection: str = "evil") -> None:
    """Store documents as another program may write them."""
    rows = [Document(collection, identifier, identifier, "text", content_hash("text")) for identifier in ids]
    with terminal.opened(project) as ws:
        ws.engine.write(
            "main", Write(put_collections=[Collection(collection)], put_documents=rows), expected=ws.require_revision()
        )


def test_documents_become_the_files_that_they_came_from(project):
    output = project.vmrag("export", "out").out
    assert output.splitlines()[0] == "out: 4 files written, 0 unchanged"
    assert files(project.top / "out/handbook") == files(project.top / "docs") | {"faq.md": "A frequent question."}
    assert project.ask("export", "out")["unchanged"] == 4
    project.vmrag("export", "old", "--at", "feature")
    assert files(project.top / "old/handbook").keys() == {"rest.md", "setup.md", "uv.md"}
    project.put("one.md", "One.", collection="notes")
    project.vmrag("export", "some", "--collection", "notes")
    assert files(project.top / "some") == {"notes/one.md": "One."}
    assert (
        project.vmrag("export", "some", "--collection", "note", "--json", code=3).error["code"]
        == "COLLECTION_NOT_FOUND"
    )


def test_file_with_another_text_is_overwritten_only_by_force(project):
    project.vmrag("export", "out")
    mine, other = project.top / "out/handbook/rest.md", project.top / "out/handbook/faq.md"
    mine.write_text("Mine.")
    other.unlink()
    error = project.vmrag("export", "out", "--json", code=3).error
    assert (error["code"], error["details"]["files"]) == ("DUPLICATE_ID", ["handbook/rest.md"])
    assert "--force" in error["hint"]
    assert (mine.read_text(), other.exists()) == ("Mine.", False)
    assert project.ask("export", "out", "--force")["written"] == 2
    assert mine.read_text() == project.vmrag("show", "handbook/rest.md").out


def test_export_stays_in_the_folder_and_lists_left_out_names(project, tmp_path):
    names = [
        "../out.md",
        "/etc/out.md",
        "a/../../out.md",
        "a//b.md",
        ".git/hooks/pre-commit",
        "x/.GIT/config",
        "nul.txt",
        "dir/",
        "y" * 250 + "ü" * 4,
    ]
    store(project, *names, "fine/.hidden.md")
    before = around(project)
    report = project.ask("export", "out", "--collection", "evil", code=1)
    assert {document["doc_id"] for document in report["left_out"]} == set(names)
    assert files(project.top / "out") == {"evil/fine/.hidden.md": "text"}
    assert around(project) == before
    assert (
        "Left out: evil/../out.md is not a path below a folder."
        in project.vmrag("export", "out", "--collection", "evil", code=1).out
    )


def test_names_that_are_one_file_somewhere_are_one_file_nowhere(project):
    store(project, "A.md", "a.md", "b", "b/c.md", "D/x.md", "d/y.md", "e\u0301", "\u00e9")
    report = project.ask("export", "out", "--collection", "evil", code=1)
    assert files(project.top / "out/evil").keys() == {"A.md", "b", "D/x.md", "e\u0301"}
    assert {document["doc_id"] for document in report["left_out"]} == {"a.md", "b/c.md", "d/y.md", "\u00e9"}


@pytest.mark.parametrize("force", [[], ["--force"]])
def test_links_and_pipes_below_the_folder_are_left_alone(project, tmp_path, force):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "rest.md").write_text("Mine.")
    folder = project.top / "out/handbook"
    folder.mkdir(parents=True)
    (folder / "deep").symlink_to(outside)
    (folder / "rest.md").symlink_to(outside / "rest.md")
    os.mkfifo(folder / "faq.md")
    report = project.ask("export", "out", *force, code=1)
    assert {document["doc_id"] for document in report["left_out"]} == {"deep/tls.txt", "rest.md", "faq.md"}
    assert files(outside) == {"rest.md": "Mine."}
    assert (folder / "setup.md").is_file()


def test_folder_in_place_of_a_document_leaves_out_only_this_one(project):
    (project.top / "out/handbook/faq.md").mkdir(parents=True)
    report = project.ask("export", "out", code=1)
    assert [document["doc_id"] for document in report["left_out"]] == ["faq.md"]
    assert (project.top / "out/handbook/setup.md").is_file()


def test_exported_collection_is_never_a_hidden_folder(project):
    store(project, "tasks.json", collection=".vscode")
    report = project.ask("export", ".", code=1)
    assert [result["collection"] for result in report["left_out"]] == [".vscode"]
    assert not (project.top / ".vscode").exists()


def test_export_rejects_a_file_as_destination(project):
    project.write("out", "a file")
    assert project.vmrag("export", "out", "--json", code=2).error["message"].endswith("/out is not a folder.")


@pytest.mark.parametrize("name", ["CON", "com1.md", "a\\b", "end.", "end ", "git~1", ".g\u200cit", "tab\there"])
def test_reserved_names_are_rejected_as_file_names(name):
    assert find_name_problem(("docs", name))
    assert find_name_problem(("docs", f"x{name}x".strip("\\\t"))) is None or "\\" in name or "\t" in name
