"""`vmrag import` without a path, and `vmrag commit -a`: documents become what their files are,
where only the files were changed; and nothing is lost.
"""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from tests.support import terminal
from tests.support.terminal import Project, opened
from vmrag_link.documents import importing
from vmrag_link.ops.branches import commit
from vmrag_link.ops.documents.update import DocumentUpdate, update

pytestmark = pytest.mark.hooks("off")

template, project = terminal.template, terminal.project

SETUP = "docs/setup.md"
NEW = "# Setup\n\nInstall the program with uv.\n"
AS_IT_IS = "Every document is as its file.\n"


def hide(project: Project) -> None:
    """`docs/deep`, by a sparse checkout."""
    project.git("update-index", "-q", "--refresh")  # else git takes the file of a copied work tree for a changed one
    project.git("sparse-checkout", "set", "--no-cone", "/*", "!/docs/deep/")
    assert not (project.top / "docs/deep/tls.txt").exists()


def text(project: Project, name: str) -> str:
    return project.ask("show", name)["content"]


def edit(project: Project, doc_id: str = "setup.md", said: str = "# Setup\n\nAs an agent knows it.\n") -> None:
    """In the knowledge base, as an agent does."""
    with opened(project) as ws:
        update(ws, "handbook", [DocumentUpdate(doc_id, text=said)])


def of(report: dict, collection: str = "handbook") -> dict:
    return next(each for each in report["collections"] if each["collection"] == collection)


def counts(report: dict, collection: str = "handbook") -> tuple[int, int, int]:
    found = of(report, collection)["changes"]
    return found["added"], found["modified"], found["removed"]


def paths(found: list[dict]) -> list[str]:
    return [each["path"] for each in found]


def test_changed_files_are_taken_and_then_there_is_nothing_to_do(project: Project) -> None:
    assert project.vmrag("import").out == AS_IT_IS
    project.write(SETUP, NEW)
    assert project.vmrag("import").out.splitlines() == [
        "handbook: 1 document modified, 2 unchanged",
        'Next: vmrag commit -m "What changed in the knowledge"',
    ]
    assert text(project, "handbook/setup.md") == NEW
    assert project.vmrag("import").out == AS_IT_IS
    assert project.vmrag("import", "--prune").out == AS_IT_IS
    assert project.consistent()


def test_the_answer_for_programs_has_every_collection_with_files(project: Project) -> None:
    project.put("note", "of no file", collection="notes")
    assert project.ask("import") == {
        "collections": [
            {
                "collection": "handbook",
                "created": False,
                "changes": {"added": 0, "modified": 0, "removed": 0},
                "unchanged": 3,
                "skipped": [],
                "branch": None,
                "pending": "",
                "base": "docs",
                "renamed": [],
                "gone": [],
                "left_out": [],
                "ignored": [],
            }
        ],
        "edited": [],
        "private": [],
        "new": [],
        "commands": [],
        "elsewhere": [],
        "not_checked_out": [],
    }


def test_it_works_from_a_folder_below_and_line_ends_are_no_change(project: Project) -> None:
    (project.top / SETUP).write_bytes(terminal.DOCUMENTS["setup.md"].replace("\n", "\r\n").encode())
    project.write("docs/rest.md", "# Rest\n\nSleep.\n")
    done = project.vmrag("-C", "docs/deep", "import", "--json")
    assert counts(done.json) == (0, 1, 0)
    assert done.json["edited"] == []


@pytest.mark.parametrize("staged", [True, False])
def test_of_a_file_that_is_gone_the_document_goes_with_prune_alone(project: Project, staged: bool) -> None:
    if staged:
        project.git("rm", "-q", "docs/rest.md")
    else:
        (project.top / "docs/rest.md").unlink()
    assert project.vmrag("import").out == "The file of 1 document is gone: rest.md. --prune removes it.\n"
    assert "handbook/rest.md" in project.vmrag("list").out
    pruned = project.ask("import", "--prune")
    assert (counts(pruned), of(pruned)["gone"]) == ((0, 0, 1), [])
    assert project.vmrag("import").out == AS_IT_IS


def test_a_file_that_never_was_here_is_not_gone(project: Project) -> None:
    """A colleague imported it from a file that git does not have."""
    project.write("docs/mine.md", "# Mine\n")
    project.vmrag("import", "docs/mine.md", "--collection", "handbook", "--copy")
    (project.top / "docs/mine.md").unlink()
    assert of(project.ask("import"))["gone"] == ["mine.md"]
    (project.own / "seen-files.json").unlink()  # now this is the colleague's machine
    assert counts(project.ask("import", "--prune")) == (0, 0, 0)
    assert text(project, "handbook/mine.md") == "# Mine\n"


def test_what_a_sparse_checkout_hides_is_never_gone(project: Project) -> None:
    assert project.ask("status")["changes"]["files"]["files"] == []  # every file has been seen here
    hide(project)
    (project.top / "docs/rest.md").unlink()
    report = project.ask("import", "--prune")
    assert (counts(report), report["not_checked_out"]) == ((0, 0, 1), ["docs/deep/tls.txt"])
    assert counts(
        {"collections": [project.ask("import", "docs", "--collection", "handbook", "--copy", "--prune")]}
    ) == (0, 0, 0)
    assert project.ask("status")["changes"]["files"]["files"] == []
    project.git("restore", "docs/rest.md")
    edit(project)
    assert project.ask("commit", "-a", "-m", "edited")["changes"] == {"added": 0, "modified": 1, "removed": 1}
    assert "Not in this work tree, though git has them: docs/deep/tls.txt" in project.vmrag("import", "-v").out


def test_a_hidden_file_is_not_the_one_that_a_new_file_was_renamed_from(project: Project) -> None:
    hide(project)
    project.write("docs/certificates.txt", terminal.DOCUMENTS["deep/tls.txt"])
    report = project.ask("import", "docs", "--collection", "handbook", "--copy")
    assert (report["renamed"], report["changes"]["added"]) == ([], 1)


def test_files_of_a_submodule_that_is_not_checked_out_are_not_gone(project: Project, tmp_path: Path) -> None:
    other = terminal.new_project(tmp_path / "other")
    other.write("guide.md", "# Guide\n")
    other.git("add", "-A")
    other.git("commit", "-q", "-m", "guide")
    project.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(other.top), "docs/other")
    project.git("commit", "-q", "-m", "submodule")
    project.vmrag("import", "docs/other", "--collection", "handbook", "--copy")
    (project.top / "docs/other/guide.md").unlink()
    assert of(project.ask("import"))["gone"] == ["other/guide.md"]
    project.git("submodule", "--quiet", "deinit", "--force", "docs/other")
    report = project.ask("import", "--prune")
    assert (counts(report), report["not_checked_out"]) == ((0, 0, 0), ["docs/other/guide.md"])


def test_renamed_files_keep_their_documents_known_to_git_or_not_and_outside_of_the_base(project: Project) -> None:
    project.git("mv", SETUP, "docs/installing.md")
    (project.top / "wiki").mkdir()
    project.git("mv", "docs/deep/tls.txt", "wiki/tls.txt")
    (project.top / "docs/rest.md").rename(project.top / "docs/sleep.md")
    report = project.ask("import", "--prune")
    assert {each["doc_id"]: each["now"] for each in of(report)["renamed"]} == {
        "deep/tls.txt": "wiki/tls.txt",
        "rest.md": "docs/sleep.md",
        "setup.md": "docs/installing.md",
    }
    assert (counts(report), of(report)["gone"], report["new"]) == ((0, 3, 0), [], [])
    project.write("wiki/tls.txt", "Certificates are renewed every week.\n")
    assert counts(project.ask("import")) == (0, 1, 0)
    assert text(project, "handbook/deep/tls.txt") == "Certificates are renewed every week.\n"
    assert project.consistent()


def test_a_renamed_file_whose_document_was_edited_takes_nothing_and_loses_nothing(project: Project) -> None:
    edit(project)
    project.git("mv", SETUP, "docs/installing.md")
    report = project.ask("import", "--prune")
    assert (counts(report), paths(report["edited"])) == ((0, 0, 0), ["docs/installing.md"])
    assert "As an agent knows it" in text(project, "handbook/setup.md")


def test_collections_count_from_their_own_bases_and_one_can_be_named(project: Project) -> None:
    project.write("notes/a.md", "# A\n")
    project.vmrag("import", "notes", "--collection", "notes", "--copy", "--base", "notes")
    project.write("top.md", "# Top\n")
    project.vmrag("import", "top.md", "--collection", "root", "--copy")
    project.vmrag("commit", "-m", "more")
    for name in (SETUP, "notes/a.md", "top.md"):
        project.write(name, f"# {name}\n\nChanged.\n")
    report = project.ask("import", "--collection", "notes", "--copy")
    assert [each["collection"] for each in report["collections"]] == ["notes"]
    report = project.ask("import")
    assert [counts(report, each) for each in ("handbook", "notes", "root")] == [(0, 1, 0), (0, 0, 0), (0, 1, 0)]
    assert [of(report, each)["base"] for each in ("handbook", "notes", "root")] == ["docs", "notes", "."]
    assert text(project, "notes/a.md") == "# notes/a.md\n\nChanged.\n"
    assert project.vmrag("import").out == AS_IT_IS


def test_front_matter_that_changed_is_taken(project: Project) -> None:
    project.write("docs/team.md", "---\nteam: core\n---\n# Team\n")
    project.vmrag("import", "docs/team.md", "--collection", "handbook", "--copy")
    project.write("docs/team.md", "---\nteam: docs\ntitle: We\n---\n# Team\n")
    assert counts(project.ask("import")) == (0, 1, 0)
    shown = project.ask("show", "handbook/team.md")
    assert (shown["title"], shown["metadata"]["team"]) == ("We", "docs")


def test_what_has_to_be_converted_is_converted_and_what_cannot_be_is_said(project: Project) -> None:
    project.write("docs/table.csv", "name,age\nAda,36\n")
    project.write("docs/data.json", '{"a": 1}')
    project.vmrag("import", "docs", "--collection", "handbook", "--copy")
    project.write("docs/table.csv", "name,age\nAda,37\n")
    project.write("docs/data.json", '{"a": ')
    report = project.ask("import")
    assert (counts(report), [each["name"] for each in of(report)["skipped"]]) == ((0, 1, 0), ["data.json"])
    assert "37" in text(project, "handbook/table.csv")


def test_new_files_are_named_with_the_command_that_takes_them(project: Project) -> None:
    project.write("docs/new.md", "# New\n")
    assert project.vmrag("import").out.splitlines() == [
        "New, and not imported: docs/new.md",
        "  to take: vmrag import docs --collection handbook",
    ]
    project.vmrag(*shlex.split(project.ask("import")["commands"][0])[1:])
    assert text(project, "handbook/new.md") == "# New\n"


@pytest.mark.parametrize("committed", [True, False])
def test_a_document_that_was_edited_stays_until_its_file_is_named(project: Project, committed: bool) -> None:
    edit(project)
    if committed:
        project.vmrag("commit", "-m", "edited")
    project.write(SETUP, NEW)
    project.write("docs/new.md", "# New\n")
    assert project.vmrag("import").out.splitlines() == [
        "Edited in the knowledge base, so not taken from: docs/setup.md",
        "New, and not imported: docs/new.md",
        "  to take: vmrag import docs/new.md docs/setup.md --collection handbook",
    ]
    assert "As an agent knows it" in text(project, "handbook/setup.md")
    project.vmrag(*shlex.split(project.ask("import")["commands"][0])[1:])
    assert text(project, "handbook/setup.md") == NEW


def test_a_document_that_is_edited_while_files_are_read_stays(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.write(SETUP, NEW)
    project.write("docs/rest.md", "# Rest\n\nSleep.\n")
    read = importing.read

    def reading(file, *given):
        if file.doc_id == "rest.md":
            edit(project)
        return read(file, *given)

    monkeypatch.setattr(importing, "read", reading)
    assert counts(project.ask("import")) == (0, 1, 0)
    assert "As an agent knows it" in text(project, "handbook/setup.md")


def test_what_a_file_holds_when_it_is_read_is_what_is_stored(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    project.write(SETUP, "# Setup\n\nOnce.\n")
    read = importing.read

    def reading(file, *given):
        project.write(SETUP, NEW)
        return read(file, *given)

    monkeypatch.setattr(importing, "read", reading)
    project.vmrag("import")
    assert text(project, "handbook/setup.md") == NEW
    monkeypatch.undo()
    assert project.vmrag("import").out == AS_IT_IS


def test_a_document_of_a_stranger_brings_in_nothing_that_git_ignores(project: Project) -> None:
    """It names the file as its source, and says what another file here said."""
    project.write(".gitignore", "secret.md\n")
    project.write("docs/secret.md", "a key")
    project.write("docs/.hidden.md", "a key")
    for name in ("docs/secret.md", "docs/.hidden.md"):
        project.write(name, terminal.DOCUMENTS["rest.md"])
        project.vmrag("import", name, "--collection", "handbook", "--copy")
        project.write(name, "a key")
    report = project.ask("import")
    assert paths(report["private"]) == ["docs/.hidden.md", "docs/secret.md"]
    assert (counts(report), of(report)["branch"]) == ((0, 0, 0), None)
    assert "a key" not in project.texts().values()
    assert "Not taken without being named" in project.vmrag("import").out
    project.vmrag(*shlex.split(report["commands"][0])[1:])
    assert text(project, "handbook/secret.md") == "a key"


def test_an_ignored_folder_that_was_imported_here_is_read_again(project: Project) -> None:
    project.write(".gitignore", "site/\n")
    project.write("site/page.md", "# Page\n")
    project.vmrag("import", "site", "--collection", "pages", "--copy")
    project.write("site/page.md", "# Page, again\n")
    assert counts(project.ask("import"), "pages") == (0, 1, 0)


def test_files_outside_of_the_repository_are_read_where_this_machine_knows_them(
    project: Project, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "a.md").write_text("# A\n")
    (outside / "b.md").write_text("# B\n")
    project.vmrag("import", str(outside), "--collection", "notes", "--base", str(outside))
    (outside / "a.md").write_text("# A, again\n")
    (outside / "b.md").unlink()
    report = project.ask("commit", "-a", "-m", "notes")["files"]
    assert (counts(report, "notes"), of(report, "notes")["gone"]) == ((0, 1, 0), ["b.md"])  # git deleted nothing
    assert counts(project.ask("import", "--prune"), "notes") == (0, 0, 1)
    outside.rename(tmp_path / "away")
    report = project.ask("import", "--prune")
    assert (report["elsewhere"], [each["collection"] for each in report["collections"]]) == (["notes"], ["handbook"])
    said = project.vmrag("import").out
    assert "vmrag import DIR --collection notes --base DIR" in said
    assert text(project, "notes/a.md") == "# A, again\n"


@pytest.mark.parametrize(
    "options",
    [
        ("--library", "shelf"),
        ("--base", "docs"),
        ("--replace",),
        ("--exclude", "x"),
        ("--include-ignored",),
        ("--metadata", "{}"),
        ("--sitemap",),
        ("--most", "3"),
    ],
)
def test_options_about_what_is_named_are_refused_where_nothing_is(project: Project, options: tuple[str, ...]) -> None:
    done = project.vmrag("import", *options, code=2)
    assert f"{options[0]} needs a file, a folder or a URL." in done.err
    assert "vmrag import" in done.err


def test_a_collection_that_is_not_there_or_a_library_is_refused(project: Project) -> None:
    assert (
        project.vmrag("import", "--collection", "none", "--copy", "--json", code=None).error["code"]
        == "COLLECTION_NOT_FOUND"
    )
    project.vmrag("import", SETUP, "--library", "shelf")
    assert "is a library" in project.vmrag("import", "--collection", "shelf", "--copy", code=2).err
    assert [each["collection"] for each in project.ask("import")["collections"]] == ["handbook"]


# -- commit -a -------------------------------------------------------------------------------------


def test_commit_all_takes_changes_and_deletions_into_one_revision(project: Project) -> None:
    before = project.pinned
    project.write(SETUP, NEW)
    project.git("rm", "-q", "docs/rest.md")
    (project.top / "docs/deep/tls.txt").unlink()
    project.put("faq.md", "Asked again.")
    said = project.vmrag("commit", "-am", "all of it").out.splitlines()
    assert said[0] == "handbook: 1 document modified, 2 removed, 0 unchanged"
    assert said[1].endswith("] all of it")
    assert said[2] == " 2 documents modified, 2 removed"
    assert project.ask("log")["revisions"][0]["parents"] == [before]
    project.git("commit", "-qam", "all of it")
    assert project.texts() == {"faq.md": "Asked again.", "setup.md": NEW}
    assert project.consistent()


def test_commit_all_with_nothing_to_commit_is_refused_as_commit_is(project: Project) -> None:
    plain = project.vmrag("commit", "-m", "m", "--json", code=1).error
    assert project.vmrag("commit", "-a", "-m", "m", "--json", code=1).error == plain
    assert plain["code"] == "NO_CHANGES"
    assert project.vmrag("commit", "-a", "-m", " ", code=2).err == project.vmrag("commit", "-m", " ", code=2).err


def test_commit_says_that_files_have_changed_and_commit_all_is_what_it_names(project: Project) -> None:
    project.write(SETUP, NEW)
    error = project.vmrag("commit", "-m", "uv, too", "--json", code=1).error
    assert error["message"] == "No documents have changed since the last commit, but 1 file has."
    project.vmrag(*shlex.split(error["hint"])[1:])
    assert text(project, "handbook/setup.md") == NEW


def test_commit_all_removes_documents_of_what_git_deleted_and_no_others(project: Project) -> None:
    """A file that git never had, one whose document was edited, one that git tracks no more."""
    project.write("docs/mine.md", "# Mine\n")
    project.vmrag("import", "docs/mine.md", "--collection", "handbook", "--copy")
    (project.top / "docs/mine.md").unlink()
    edit(project, "rest.md")
    project.git("rm", "-q", "docs/rest.md")
    project.git("rm", "-q", "--cached", "docs/deep/tls.txt")
    report = project.ask("commit", "-a", "-m", "some")
    assert counts(report["files"]) == (0, 0, 1)
    assert of(report["files"])["gone"] == ["mine.md", "rest.md"]
    assert {"mine.md", "rest.md"} < project.texts().keys()
    assert "deep/tls.txt" not in project.texts()


def test_commit_all_after_git_committed_the_deletion(project: Project) -> None:
    project.git("rm", "-q", "docs/rest.md")
    project.git("commit", "-q", "-m", "no rest")
    (project.own / "seen-files.json").unlink()  # as in a clone
    assert counts(project.ask("commit", "-a", "-m", "no rest")["files"]) == (0, 0, 1)


def test_commit_all_is_refused_in_a_merge_and_takes_nothing(project: Project) -> None:
    project.record("ours", rest="# Rest\n\nAlways rest.\n")
    project.write(SETUP, NEW)
    project.vmrag("merge", "feature", code=1)
    plain = project.vmrag("commit", "-m", "x", "--json", code=1).error
    error = project.vmrag("commit", "-a", "-m", "x", "--json", code=1).error
    assert error["code"] == plain["code"] == "MERGE_CONFLICT"
    project.vmrag("merge", "--abort")
    assert project.run("merge", "-q", "feature").returncode
    plain = project.vmrag("commit", "-m", "x", "--json", code=None).error
    assert project.vmrag("commit", "-a", "-m", "x", "--json", code=None).error == plain
    project.git("merge", "--abort")
    assert project.ask("import", "--collection", "handbook", "--copy")["collections"][0]["changes"]["modified"] == 1


def test_what_was_taken_in_stays_uncommitted_if_the_commit_is_killed(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    project.write(SETUP, NEW)
    monkeypatch.setattr(commit, "_commit_and_pin", killed)
    assert project.vmrag("commit", "-a", "-m", "x", code=130).code == 130
    monkeypatch.undo()
    assert project.marks()["setup.md"] == "modified"
    assert project.vmrag("commit", "-a", "-m", "x").code == 0
    assert project.consistent()


# -- what is proposed ------------------------------------------------------------------------------


def test_status_proposes_one_command_where_it_does_the_same_as_several(project: Project) -> None:
    project.write("notes/a.md", "# A\n")
    project.vmrag("import", "notes", "--collection", "notes", "--copy", "--base", "notes")
    project.vmrag("commit", "-m", "notes")
    project.write(SETUP, NEW)
    project.write("notes/a.md", "# A, again\n")
    report = project.ask("status")
    assert report["changes"]["files"]["commands"] == ["vmrag import"]
    assert report["reasons"][0].endswith(" Next: vmrag import")
    project.write("notes/new.md", "# New\n")
    assert project.ask("status")["changes"]["files"]["commands"] == [
        "vmrag import docs --collection handbook",
        "vmrag import notes --collection notes",
    ]
    (project.top / "notes/new.md").unlink()
    project.vmrag("import")
    assert project.ask("status")["changes"]["files"]["files"] == []
