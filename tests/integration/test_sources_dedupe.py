"""`vmrag sources dedupe`: remove stored copies of files that are documents themselves."""

from __future__ import annotations

import pytest

from tests.support import terminal
from tests.support.terminal import Project, copied, derive_template
from vmrag_link import hints
from vmrag_link.ops.sources import dedupe_sources

pytestmark = pytest.mark.hooks("off")

SETTINGS = "embedding:\n  model: hash\n"
SOURCES = 'sources:\n  - collection: {name}\n    paths: ["docs/"]\n'

template = terminal.template


def set_up(project: Project) -> None:
    """The documents of `docs/` were imported into `handbook`, which has another one."""
    project.write(".vmrag.yaml", SETTINGS + SOURCES.format(name="files"))
    project.git("commit", "-qam", "sources")


@pytest.fixture(scope="module")
def imported(tmp_path_factory, template):
    return derive_template(tmp_path_factory, "deduping", template, set_up)


@pytest.fixture
def project(imported, tmp_path, monkeypatch) -> Project:
    return copied(imported, tmp_path, monkeypatch)


def names(project: Project) -> set[str]:
    return {f"{document['collection']}/{document['doc_id']}" for document in project.ask("list")["documents"]}


FILES = {"files/docs/setup.md", "files/docs/rest.md", "files/docs/deep/tls.txt"}


def test_twins_are_removed_and_committed_with_the_pin(project):
    before = project.pinned
    report = project.ask("sources", "dedupe")
    assert len(report["documents"]) == 3
    assert report["differing"] == []
    assert project.pinned == report["commit"]["revision"] != before
    assert names(project) == {"handbook/faq.md", *FILES}
    assert project.git("diff", "--cached", "--name-only") == ".dolt-version"
    assert project.status()["in_sync"]


def test_settings_that_name_the_sources_go_into_the_same_commit(project):
    assert "hint: run 'git commit -m \"…\"'" in project.vmrag("sources", "dedupe").out


@pytest.mark.parametrize("tracked", [True, False])
def test_unstaged_settings_are_in_the_suggested_command(project, tracked):
    project.write(".vmrag.yaml", SETTINGS)
    project.git("commit", "-qam", "no sources")
    if not tracked:
        project.git("rm", "-q", "--cached", ".vmrag.yaml")
        project.git("commit", "-qm", "untracked")
    project.write(".vmrag.yaml", SETTINGS + SOURCES.format(name="files"))
    assert 'hint: run \'git add .vmrag.yaml && git commit -m "…"' in project.vmrag("sources", "dedupe").out


@pytest.mark.hooks("on")
def test_commit_that_drops_documents_without_their_sources_warns(project):
    project.write(".vmrag.yaml", SETTINGS)
    project.git("commit", "-qam", "no sources")
    project.write(".vmrag.yaml", SETTINGS + SOURCES.format(name="files"))
    project.vmrag("sources", "dedupe")
    said = project.run("commit", "-m", "adopted").stderr
    assert "this commit drops 3 documents that the sources in .vmrag.yaml replace" in said
    project.git("add", ".vmrag.yaml")
    assert "drops" not in project.run("commit", "--amend", "--no-edit").stderr


def test_adopting_again_changes_nothing(project):
    project.vmrag("sources", "dedupe")
    pinned = project.pinned
    again = project.ask("sources", "dedupe")
    assert (again["documents"], again["commit"]) == ([], None)
    assert project.pinned == pinned


def test_dry_run_lists_and_removes_nothing(project):
    before = names(project)
    assert "rm handbook/setup.md" in project.vmrag("sources", "dedupe", "--dry-run").out
    assert names(project) == before


def test_removal_waits_for_a_commit_of_other_uncommitted_documents(project):
    project.put("note.md", "A note.")
    pinned = project.pinned
    report = project.ask("sources", "dedupe")
    assert report["uncommitted"]
    assert project.pinned == pinned
    assert project.marks()["setup.md"] == "removed"
    assert "vmrag commit" in project.vmrag("sources", "dedupe").out
    project.vmrag("commit", "-m", "both")
    assert names(project) == {"handbook/faq.md", "handbook/note.md", *FILES}


def test_text_that_no_revision_holds_is_kept(project):
    project.write(".vmrag.yaml", SETTINGS)
    project.write("docs/setup.md", "# Setup\n\nTold once.\n")
    project.vmrag("import", "docs", "--collection", "handbook", "--copy")
    project.write("docs/setup.md", "# Setup\n\nTold otherwise.\n")
    project.write(".vmrag.yaml", SETTINGS + SOURCES.format(name="files"))
    report = project.ask("sources", "dedupe")
    assert report["unsaved"] == [{"collection": "handbook", "doc_id": "setup.md"}]
    assert "Told once." in project.vmrag("show", f"{report['kept']}:handbook/setup.md").out


def test_dedupe_keeps_documents_without_file(project):
    project.put("setup.md", "# Setup\n\nTyped in.\n")
    project.vmrag("sources", "dedupe")
    assert "handbook/setup.md" in names(project)


def test_dedupe_lists_documents_that_differ_from_their_file(project):
    project.write("docs/setup.md", "# Setup\n\nInstall it otherwise.\n")
    report = project.ask("sources", "dedupe")
    assert report["differing"] == [{"collection": "handbook", "doc_id": "setup.md"}]
    then = project.vmrag("show", f"{report['commit']['parent']}:handbook/setup.md").out
    assert "pip" in then


def test_dedupe_removes_stored_collection_with_source_name_if_it_becomes_empty(project):
    project.drop("faq.md")
    project.record("without")
    project.write(".vmrag.yaml", SETTINGS + SOURCES.format(name="handbook"))
    assert "not read" in project.vmrag("sources").out
    report = project.ask("sources", "dedupe")
    assert report["collections"] == ["handbook"]
    assert names(project) == {file.replace("files/", "handbook/") for file in FILES}
    assert "not read" not in project.vmrag("sources").out


def test_dedupe_keeps_other_documents_of_a_collection_with_hint(project):
    project.write(".vmrag.yaml", SETTINGS + SOURCES.format(name="handbook"))
    said = project.vmrag("sources", "dedupe").out
    assert "The stored collection handbook has 1 other document" in said
    assert names(project) == {"handbook/faq.md"}
    project.vmrag("rm", "handbook/faq.md")
    project.vmrag("commit", "-m", "without")
    assert project.ask("sources", "dedupe")["collections"] == ["handbook"]
    assert names(project) == {file.replace("files/", "handbook/") for file in FILES}


def test_file_that_is_left_out_keeps_its_stored_document(project):
    project.write("docs/rest.md", "<!-- @generated -->\n# Rest\n")
    project.vmrag("sources", "dedupe")
    assert names(project) == {"handbook/faq.md", "handbook/rest.md", *FILES - {"files/docs/rest.md"}}


def test_kill_before_the_commit_leaves_the_removal_uncommitted(project, monkeypatch):
    def killed(*_args, **_options):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(dedupe_sources.committing, "commit", killed)
        project.vmrag("sources", "dedupe", code=130)
    assert "vmrag commit" in project.vmrag("sources", "dedupe").out
    project.vmrag("commit", "-m", "adopted")
    assert names(project) == {"handbook/faq.md", *FILES}


def test_dedupe_without_sources_has_nothing_to_do(project):
    project.write(".vmrag.yaml", SETTINGS)
    assert "vmrag sources add PATH" in project.vmrag("sources", "dedupe", code=2).err


# -- what is stored, and what is not


def test_folder_import_leaves_out_files_of_sources_with_reasons(project):
    project.write("notes/a.md", "# A\n")
    project.write("docs/new.md", "# New\n")
    said = project.vmrag("import", "notes", "docs", "--collection", "notes", "--base", ".").out
    assert "docs/setup.md: is a document of the source 'files'" in said
    assert "docs/new.md: is a document of the source 'files' as soon as git tracks it; run 'git add'" in said
    assert {name for name in names(project) if name.startswith("notes/")} == {"notes/notes/a.md"}


def test_file_that_a_source_leaves_out_can_be_imported(project):
    project.write("docs/made.md", "<!-- @generated -->\n# Made\n")
    project.git("add", "docs/made.md")
    project.vmrag("import", "docs/made.md", "--collection", "notes", "--copy")
    assert "notes/docs/made.md" in names(project)


@pytest.mark.parametrize(
    ("command", "hint"),
    [
        ("import docs/setup.md --collection notes", "edit the file docs/setup.md"),
        ("add docs/setup.md --collection notes", "edit the file docs/setup.md"),
        ("rm files/docs/setup.md", "git rm docs/setup.md"),
        ("rm docs/setup.md", "git rm docs/setup.md"),
        ("restore files/docs/setup.md", "git log docs/setup.md"),
        ("import notes --collection files", "run 'vmrag list --collection files' to list the files to edit"),
        ("rm files", "run 'vmrag list --collection files' to list the files to edit"),
    ],
)
def test_writes_to_source_files_are_rejected_with_hint(project, command, hint):
    project.write("notes/a.md", "# A\n")
    error = project.vmrag(*command.split(), "--json", code=2).error
    assert error["code"] == "SOURCE_READ_ONLY"
    assert hint in error["hint"]


def test_file_that_is_deleted_is_restored_by_git(project):
    project.git("rm", "-q", "docs/setup.md")
    error = project.vmrag("restore", "files/docs/setup.md", "--json", code=2).error
    [command] = hints.list_commands(error["hint"])
    project.git(*command.split()[1:])
    assert (project.top / "docs/setup.md").exists()


def test_name_that_no_file_has_is_missing_as_ever(project):
    error = project.vmrag("rm", "files/docs/none.md", "--json", code=3).error
    assert error["code"] == "DOCUMENT_NOT_FOUND"
    assert error["message"] == "the source 'files' (files of this repository) has no document 'docs/none.md'."
    assert error["hint"] == "run 'vmrag list --collection files' to list its documents"


def test_status_and_doctor_report_copies_until_they_are_removed(project):
    project.write("docs/rest.md", "# Rest\n\nSleep.\n")
    warning = "3 stored copies of tracked files may be outdated"
    said = project.vmrag("status", code=None).out
    assert "modified:  docs/rest.md" in said
    assert f"  warning: {warning}; run 'vmrag sources dedupe' to remove the stored copies\n" in said
    assert {copy["path"] for copy in project.status()["changes"]["copies"]} == {
        "docs/setup.md",
        "docs/rest.md",
        "docs/deep/tls.txt",
    }
    doctor = project.vmrag("doctor", code=None).out
    assert f"{warning}: handbook/deep/tls.txt, handbook/rest.md, handbook/setup.md." in doctor
    project.vmrag("sources", "dedupe")
    assert "dedupe" not in project.vmrag("status", code=None).out
    assert "outdated" not in project.vmrag("doctor", code=None).out


def test_query_warns_of_copies_in_its_answer_only(project):
    answer = project.ask("query", "install the program", "--collection", "handbook", "-k", "1")
    assert answer["copies"] == [{"collection": "handbook", "doc_id": "setup.md", "path": "docs/setup.md"}]
    warning = "warning: 1 stored copy of a tracked file may be outdated; run 'vmrag sources dedupe' to remove the stored copies"
    command = ("query", "install the program", "--collection", "handbook", "-k", "1")
    assert warning in project.vmrag(*command).out
    assert warning in project.vmrag(*command, "--budget", "100").out
    assert (
        "outdated" not in project.vmrag("query", "faq", "--collection", "handbook", "--where", '{"title": "faq"}').out
    )
    assert "outdated" not in project.vmrag("query", "install", "--collection", "files").out


def test_query_does_not_warn_of_copies_of_untracked_files(project):
    project.git("rm", "-q", "--cached", "docs/setup.md")
    assert project.ask("query", "install the program", "--collection", "handbook", "-k", "1")["copies"] == []


def test_query_without_a_pin_does_not_warn_of_copies(project):
    project.git("rm", "-q", ".dolt-version", ".vmrag.yaml")
    project.git("commit", "-q", "-m", "as before anything was set up")
    for command in ("query install", "sources", "status"):
        result = project.vmrag(*command.split(), code=None)
        assert "dedupe" not in result.out + result.err


def test_dedupe_names_copies_that_no_source_reads(project):
    project.write("notes/a.md", "# A\n")
    project.vmrag("import", "notes", "--collection", "notes")
    project.vmrag("commit", "-m", "notes")
    project.git("add", "-A")
    said = project.vmrag("sources", "dedupe").out
    assert "No source reads the files of 1 other stored copy: notes/a.md" in said
    assert "vmrag sources add notes/a.md" in said


def test_dedupe_hands_ids_over_to_golden_queries(project):
    project.drop("faq.md")
    project.record("without")
    queries = """\
# ours
queries:
  - query: install the program   # with pip
    collection: handbook
    first: handbook/setup.md
    expect: [handbook/setup.md, "handbook/rest.md"]
"""
    project.write(".vmrag/queries.yaml", queries)
    project.vmrag("check")
    report = project.ask("sources", "dedupe")
    assert report["renamed"]["handbook/setup.md"] == "files/docs/setup.md"
    text = (project.top / ".vmrag/queries.yaml").read_text()
    assert text == queries.replace('"handbook/rest.md"', "files/docs/rest.md").replace(
        "handbook/setup.md", "files/docs/setup.md"
    ).replace("collection: handbook", 'collection: "files"')
    project.vmrag("check")


def test_dedupe_keeps_names_of_a_collection_that_counts_from_the_root(project):
    project.write(".vmrag.yaml", SETTINGS)
    project.vmrag("import", "docs", "--collection", "guide", "--copy")
    project.vmrag("commit", "-m", "guide")
    before = {name for name in names(project) if name.startswith("guide/")}
    project.vmrag("sources", "add", "docs", "--collection", "guide")
    report = project.ask("sources", "dedupe")
    assert report["collections"] == ["guide"]
    assert {name for name in names(project) if name.startswith("guide/")} == before
    assert not any(name.startswith("guide/") for name in report["renamed"])


def test_adopt_prints_its_replacement(project):
    result = project.vmrag("sources", "adopt", code=2)
    assert "'vmrag sources adopt' is now called 'vmrag sources dedupe'" in result.err
    assert "hint: run 'vmrag sources dedupe' to remove the stored copies" in result.err


def test_answer_reports_that_the_stored_collection_answers(project):
    project.write(".vmrag.yaml", SETTINGS + SOURCES.format(name="handbook"))
    said = project.vmrag("query", "install the program")
    assert "handbook/setup.md" in said.out
    assert (
        "the source 'handbook' was not searched: the knowledge base stores a collection of that name, which was searched; "
        "run 'vmrag sources dedupe' to search the files instead\n"
    ) in said.out


def test_library_takes_no_file_of_a_source(project):
    project.write("notes/a.md", "# A\n")
    error = project.vmrag("import", "docs/setup.md", "--library", "shelf", "--json", code=2).error
    assert error["code"] == "SOURCE_READ_ONLY"
    report = project.ask("import", "docs", "notes/a.md", "docs/rest.md", "--library", "shelf")
    assert [skipped_file["reason"] for skipped_file in report["skipped"]] == ["is a document of the source 'files'"] * 4
    assert len(report["taken"]) == 1
