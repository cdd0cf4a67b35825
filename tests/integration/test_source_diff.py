"""`vmrag diff` of documents of sources, beside those that are stored."""

from __future__ import annotations

import pytest

from tests.support import sources
from tests.support.repos import isolate, make_repo
from tests.support.sources import PAGE, SETTINGS, change, commit
from tests.support.terminal import Project

pytestmark = pytest.mark.hooks("off")


@pytest.fixture
def project(tmp_path, monkeypatch) -> Project:
    isolate(monkeypatch, tmp_path / "home")
    return sources.sourced_project(tmp_path / "work")


@pytest.fixture
def stocked(project) -> Project:
    """With a knowledge base, in which `notes/note.md` is."""
    project.vmrag("init", "--knowledge-base", "--no-sources", "--no-hooks")
    project.put("note.md", "stored text\n", collection="notes")
    project.vmrag("commit", "-m", "note")
    commit(project, "with a note")
    return project


def names(project: Project, *arguments: str) -> list[str]:
    return project.vmrag("diff", *arguments, "--name-status").out.splitlines()


def test_diff_shows_the_files_that_differ_from_head(project):
    assert project.vmrag("diff").out == "no documents changed\n"
    change(project, "docs/page.md", "two", "TWO")
    (project.top / "README.md").unlink()
    (project.top / "docs/untracked.md").write_text("text\n")
    assert names(project) == ["D\tREADME.md", "M\tdocs/page.md"]
    out = project.vmrag("diff").out
    assert "    [-two-]{+TWO+}\n" in out
    assert out.endswith("1 document modified, 1 removed\n")
    assert "M  docs/page.md | +1 -1" in project.vmrag("diff", "--stat").out


def test_diff_shows_both_kinds_of_documents(stocked):
    stocked.put("note.md", "stored words\n", collection="notes")
    change(stocked, "docs/page.md", "two", "TWO")
    assert names(stocked) == ["M\tdocs/page.md", "M\tnotes/note.md"]
    report = stocked.ask("diff")
    assert (report["old"], report["new"]) == (stocked.pinned, "WORKING")
    assert (report["old_commit"], report["new_commit"]) == (stocked.git("rev-parse", "HEAD"), "WORKING")
    assert names(stocked, "notes/note.md") == ["M\tnotes/note.md"]
    assert names(stocked, "docs/page.md") == ["M\tdocs/page.md"]
    assert names(stocked, "--only", "docs/") == ["M\tdocs/page.md"]
    assert names(stocked, "HEAD", "note.md", "docs/docs/page.md") == ["M\tdocs/page.md", "M\tnotes/note.md"]


def test_refs_are_compared_by_the_trees_of_their_commits(stocked):
    change(stocked, "docs/page.md", "two", "TWO")
    commit(stocked, "TWO")
    assert names(stocked) == []
    assert names(stocked, "HEAD~1") == ["M\tdocs/page.md"]
    assert names(stocked, "HEAD~1", "HEAD") == ["M\tdocs/page.md"]
    assert names(stocked, "HEAD~1..") == ["M\tdocs/page.md"]
    # Before the knowledge base existed.
    assert names(stocked, "HEAD~2", "HEAD") == ["M\tdocs/page.md", "A\tnotes/note.md"]


def test_three_dots_compare_with_the_merge_base(project):
    project.git("switch", "-q", "-c", "side")
    commit(project, "aside", **{"docs/aside.md": "# Aside\n"})
    project.git("switch", "-q", "main")
    commit(project, "meanwhile", **{"README.md": "# Read me\n"})
    assert names(project, "main...side") == ["A\tdocs/aside.md"]
    assert names(project, "main..side") == ["M\tREADME.md", "A\tdocs/aside.md"]


def test_revision_has_no_files_to_compare(stocked):
    change(stocked, "docs/page.md", "two", "TWO")
    report = stocked.ask("diff", stocked.pinned)
    assert (report["documents"], report.get("old_commit")) == ([], None)


def test_each_commit_names_its_own_sources(project):
    commit(project, "less", **{".vmrag.yaml": SETTINGS.replace("[docs/, README.md]", "[docs/]")})
    assert names(project, "HEAD~1", "HEAD") == ["D\tREADME.md"]
    assert names(project) == []
    (project.top / ".vmrag.yaml").write_text(SETTINGS)
    assert names(project) == []  # the settings of the work tree count for both
    assert names(project, "HEAD") == ["A\tREADME.md"]


def test_code_is_only_counted_unless_requested(project):
    change(project, "src/a.py", "pass", "return 1")
    (project.top / "src/b.py").write_text("x = 1\n")
    project.git("add", "-A")
    result = project.vmrag("diff")
    assert result.out == "no documents changed\nCode: 2 files (1 added, 1 modified); to see them: --files\n"
    assert project.ask("diff")["files"] == [{"collection": "code", "added": 1, "modified": 1, "removed": 0}]
    assert names(project, "--files") == ["M\tsrc/a.py", "A\tsrc/b.py"]
    assert names(project, "code/src/b.py") == ["A\tsrc/b.py"]
    assert names(project, "--only", "code/src") == ["M\tsrc/a.py", "A\tsrc/b.py"]
    listed = project.vmrag("diff", "--name-only")
    assert (listed.out, listed.err) == ("", "Code: 2 files (1 added, 1 modified). Their names: --files\n")


def test_two_documents_are_compared_by_their_names(stocked):
    change(stocked, "docs/page.md", "two", "TWO")
    assert "[-two-]{+TWO+}" in stocked.vmrag("diff", "HEAD:docs/docs/page.md").out
    assert "M  README.md -> docs/page.md" in stocked.vmrag("diff", "HEAD:docs/README.md", "docs/page.md").out
    assert "M  notes/note.md -> README.md" in stocked.vmrag("diff", "HEAD:note.md", "docs/README.md").out
    missing = stocked.vmrag("diff", "HEAD:docs/docs/pages.md", code=3)
    assert "Did you mean 'docs/page.md'?" in missing.err


def test_unchanged_file_is_not_shown(project):
    (project.top / "docs/page.md").write_bytes(b"\xef\xbb\xbf" + PAGE.encode())
    assert project.vmrag("diff").out == "no documents changed\n"


def test_diff_shows_stored_document_that_became_a_file_as_modified(project):
    (project.top / ".vmrag.yaml").write_text("embedding:\n  model: hash\n")
    project.vmrag("init", "--knowledge-base", "--no-sources", "--no-hooks")
    project.put("README.md", "# Readme\n", collection="docs")
    project.put("docs/page.md", "# Page\n", collection="docs")
    project.vmrag("commit", "-m", "stored")
    before = commit(project, "stored")
    project.vmrag("rm", "docs", "--yes")
    project.vmrag("commit", "-m", "as files")
    commit(project, "as files", **{".vmrag.yaml": SETTINGS})
    shown = names(project, before, "HEAD")
    assert "M\tdocs/page.md" in shown
    assert not any(line.startswith(("A", "D")) for line in shown)


def test_proposed_sources_are_compared_before_setup(project):
    commit(project, "none", **{".vmrag.yaml": None})
    change(project, "docs/page.md", "two", "TWO")
    assert names(project) == ["M\tdocs/page.md"]
    commit(project, "two")
    assert names(project, "HEAD~1", "HEAD") == ["M\tdocs/page.md"]


def test_golden_answers_of_two_commits_are_compared(project):
    commit(
        project,
        "queries",
        **{
            ".vmrag/queries.yaml": "queries:\n  - query: seven\n    expect: [docs/docs/page.md]\n",
            "docs/page.md": "seven\n",
        },
    )
    out = project.vmrag("diff", "--queries", "HEAD~1").out
    assert "1 query: 1 ranked differently" in out
    assert project.vmrag("diff", "--queries").out.endswith("1 alike\n")


# -- commits before anything was set up


@pytest.fixture
def early(tmp_path, monkeypatch) -> Project:
    """`v0.1`: before the settings and the first pin. The source has another name than the one that
    `vmrag init` would propose.
    """
    isolate(monkeypatch, tmp_path / "home")
    project = Project(make_repo(tmp_path / "early").top)
    commit(project, "begin", **{"docs/page.md": PAGE})
    project.git("tag", "v0.1")
    project.write(".vmrag.yaml", SETTINGS.replace("collection: docs", "collection: handbook"))
    project.vmrag("init", "--knowledge-base", "--no-sources", "--no-hooks")
    project.put("note.md", "stored text\n", collection="notes")
    project.vmrag("commit", "-m", "note")
    commit(project, "with a note", **{"docs/page.md": PAGE.replace("two", "TWO")})
    return project


@pytest.mark.parametrize("place", ["v0.1", "v0.1..HEAD", "v0.1...HEAD"])
@pytest.mark.sample(1)
def test_diff_compares_files_with_a_commit_before_the_settings(early, place):
    assert names(early, place) == ["M\tdocs/page.md", "A\tnotes/note.md"]
    assert names(early, place, "docs/page.md") == ["M\tdocs/page.md"]


def test_diff_and_show_find_document_of_commit_before_settings(early):
    assert "[-two-]{+TWO+}" in early.vmrag("diff", "v0.1:docs/page.md").out
    assert early.vmrag("show", "v0.1:handbook/docs/page.md").out == early.vmrag("show", "v0.1:docs/page.md").out


def test_diff_without_sources_compares_with_a_commit_without_a_pin(early):
    early.write(".vmrag.yaml", "embedding:\n  model: hash\n")
    assert names(early, "v0.1") == ["A\tnotes/note.md"]


def test_log_lists_the_revisions_since_a_commit_without_a_pin(early):
    def messages(*arguments: str) -> list[str]:
        return [revision["message"] for revision in early.ask("log", *arguments)["revisions"]]

    for place in ("v0.1..HEAD", "v0.1..", "v0.1...HEAD", "HEAD...v0.1"):
        assert messages(place) == ["note", "Create the knowledge base"]
        assert messages(place, "notes/note.md") == ["note"]


def test_log_reports_a_commit_that_pins_nothing(early):
    assert early.vmrag("log", "v0.1", "--json", code=1).error["code"] == "NO_PIN"
    early.write("Makefile", "all:\n")
    commit(early, "make")
    assert "hint: run 'git log -- Makefile" in early.vmrag("log", "Makefile", code=3).err
