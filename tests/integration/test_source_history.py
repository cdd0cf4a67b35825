"""`log` and `blame` of documents of sources: git's commits of the files."""

from __future__ import annotations

import pytest

from tests.support import sources
from tests.support.repos import Repo, isolate
from tests.support.sources import PAGE, change, commit
from tests.support.terminal import Project

pytestmark = pytest.mark.hooks("off")

MOVED = PAGE.replace("two", "TWO")


@pytest.fixture
def project(tmp_path, monkeypatch) -> Project:
    """`docs/page.md`: written; a line changed; moved to `docs/deep/page.md`."""
    isolate(monkeypatch, tmp_path / "home")
    made = sources.sourced_project(tmp_path / "work")
    commit(made, "two is TWO\n\nBecause.", **{"docs/page.md": MOVED})
    (made.top / "docs/deep").mkdir()
    made.git("mv", "docs/page.md", "docs/deep/page.md")
    commit(made, "move it")
    return made


def subjects(project: Project, *arguments: str) -> list[str]:
    return [commit["message"].partition("\n")[0] for commit in project.ask("log", *arguments)["commits"]]


def test_log_of_a_file_has_its_commits_through_renames(project):
    shown = project.vmrag("log", "docs/docs/deep/page.md").out.splitlines()
    assert [line.strip() for line in shown[1::2]] == [
        "move it  (docs/page.md -> docs/deep/page.md)",
        "two is TWO  (modified)",
        "begin  (added)",
    ]
    head = project.git("rev-parse", "HEAD")
    assert shown[0] == f"{head} (HEAD, main)  2026-01-02T03:04:05Z  Ada Lovelace <ada@example.com>"
    assert project.vmrag("log", "docs/deep/page.md", "--oneline", "-n", "1").out == (
        f"{head[:10]} (HEAD, main) move it  (docs/page.md -> docs/deep/page.md)\n"
    )


def test_log_as_json_has_full_messages_and_requested_text_changes(project):
    newest, older, first = project.ask("log", "docs/docs/deep/page.md", "-p")["commits"]
    assert (newest["kind"], newest["name"], newest["old_name"]) == (
        "modified",
        "docs/docs/deep/page.md",
        "docs/docs/page.md",
    )
    assert (older["message"], older["old_name"]) == ("two is TWO\n\nBecause.", "")
    assert older["parents"] == [first["commit"]]
    assert [
        (passage["op"], passage["text"])
        for passage in older["diff"]["documents"][0]["text"]
        if passage["op"] != "equal"
    ] == [
        ("delete", "two"),
        ("insert", "TWO"),
    ]
    assert (first["kind"], first["parents"], first["diff"]["documents"][0]["kind"]) == ("added", [], "added")
    assert project.ask("log", "docs/docs/deep/page.md")["commits"][0]["diff"] is None


def test_log_of_a_range_has_the_commits_of_that_range(project):
    name = "docs/docs/deep/page.md"
    assert subjects(project, "HEAD~1", "docs/docs/page.md") == ["two is TWO", "begin"]
    assert subjects(project, "HEAD~1..HEAD", name) == ["move it"]
    assert subjects(project, "HEAD~2..", name) == ["move it", "two is TWO"]
    assert subjects(project, "HEAD...HEAD~1", name) == ["move it"]


def test_log_shows_patches_and_numbers_as_those_of_revisions_are_shown(project):
    out = project.vmrag("log", "HEAD~1", "docs/docs/page.md", "-p", "-n", "1").out
    assert "M  docs/page.md\n" in out
    assert "    [-two-]{+TWO+}\n" in out
    assert "M  docs/page.md | +1 -1" in project.vmrag("log", "HEAD~1", "docs/page.md", "--stat", "-n", "1").out


def test_log_finds_removed_file_by_path_and_full_name(project):
    commit(project, "drop it", **{"docs/deep/page.md": None})
    assert subjects(project, "docs/deep/page.md")[:2] == ["drop it", "move it"]
    assert subjects(project, "docs/docs/deep/page.md")[:2] == ["drop it", "move it"]
    error = project.vmrag("log", "docs/docs/deep/pages.md", code=3)
    assert "no document 'docs/deep/pages.md' in collection 'docs'" in error.err


def test_path_means_the_file_if_a_stored_document_has_that_id(project):
    project.vmrag("init", "--knowledge-base", "--no-sources", "--no-hooks")
    project.put("docs/deep/page.md", "stored\n", collection="notes")
    project.vmrag("commit", "-m", "store it")
    shown = project.ask("log", "notes/docs/deep/page.md")
    assert [revision["message"] for revision in shown["revisions"]] == ["store it"]
    assert subjects(project, "docs/deep/page.md")[0] == "move it"
    assert project.vmrag("blame", "notes/docs/deep/page.md").out.endswith("stored\n")
    assert "TWO" in project.vmrag("blame", "docs/deep/page.md").out
    assert "TWO" in project.vmrag("show", "docs/deep/page.md").out


def test_graph_is_not_drawn_of_a_file(project):
    result = project.vmrag("log", "docs/docs/deep/page.md", "--graph", code=2)
    assert "hint: run 'git log --graph --oneline -- docs/deep/page.md" in result.err


def test_blame_names_the_commit_of_each_line_and_uncommitted_lines(project):
    change(project, "docs/deep/page.md", "four\n", "four\nfive\n")
    lines = project.vmrag("blame", "docs/docs/deep/page.md").out.splitlines()
    first, second = (project.git("rev-parse", f"HEAD~{number}")[:10] for number in (2, 1))
    assert [line.split()[0] for line in lines] == [first, first, first, second, first, first, "WORKING"]
    assert lines[3].split() == [second, "docs/page.md", "Ada", "Lovelace", "2026-01-02", "4)", "TWO"]
    assert lines[6].split() == ["WORKING", "docs/deep/page.md", "not", "committed", "7)", "five"]


def test_blame_at_a_ref_uses_the_file_of_the_ref(project):
    report = project.ask("blame", "HEAD~2:docs/docs/page.md")
    first = project.git("rev-parse", "HEAD~2")
    assert {line["commit"] for line in report["lines"]} == {first} == {report["commit"]}
    assert [line["text"] for line in report["lines"]] == PAGE.splitlines()
    assert [(commit["commit"], commit["message"]) for commit in report["commits"]] == [(first, "begin")]


def test_blame_of_a_file_that_no_commit_has_is_all_uncommitted(project):
    (project.top / "docs/new.md").write_text("a\nb\n")
    project.git("add", "-N", "docs/new.md")
    assert [line["commit"] for line in project.ask("blame", "docs/docs/new.md")["lines"]] == ["WORKING", "WORKING"]


def test_blame_ignores_commits_by_git_configuration_only(project):
    name = "docs/docs/deep/page.md"
    ignored = project.git("rev-parse", "HEAD~1")
    (project.top / ".git-blame-ignore-revs").write_text(f"{ignored}\n")
    assert ignored in {line["commit"] for line in project.ask("blame", name)["lines"]}
    project.git("config", "blame.ignoreRevsFile", ".git-blame-ignore-revs")
    assert ignored not in {line["commit"] for line in project.ask("blame", name)["lines"]}


@pytest.mark.parametrize("name", ["ä ö.md", 'a"b.md', "tab\\n.md"])
def test_names_that_git_quotes_are_followed(project, name):
    commit(project, "odd", **{f"docs/{name}": "text of its own\n"})
    assert subjects(project, f"docs/docs/{name}") == ["odd"]
    assert {line["name"] for line in project.ask("blame", f"docs/docs/{name}")["lines"]} == {f"docs/docs/{name}"}


def test_programs_named_by_the_repository_are_not_started(project, tmp_path):
    proof = tmp_path / "started"
    for key in ("diff.evil.textconv", "diff.evil.command", "core.fsmonitor", "gpg.program", "core.pager"):
        project.git("config", key, f"touch '{proof}'; cat")
    project.git("config", "log.showSignature", "true")
    (project.top / ".gitattributes").write_text("*.md diff=evil\n")
    change(project, "docs/deep/page.md", "four", "FOUR")
    for arguments in (
        ("log", "docs/docs/deep/page.md", "-p"),
        ("blame", "docs/docs/deep/page.md"),
        ("diff",),
        ("diff", "HEAD~2", "HEAD"),
        ("status",),
    ):
        project.vmrag(*arguments, code=None)
    assert not proof.exists()


def test_partial_clone_lists_missing_objects(project, tmp_path):
    project.git("config", "uploadpack.allowFilter", "true")
    change(project, "docs/deep/page.md", "one", "ONE")
    commit(project, "one is ONE")
    Repo(tmp_path).git("clone", "-q", "--filter=blob:none", f"file://{project.top}", "partial")
    clone = Project(tmp_path / "partial")
    assert subjects(clone, "docs/docs/deep/page.md")[0] == "one is ONE"
    shown = clone.vmrag("log", "docs/docs/deep/page.md", "-p", "-n", "1").out
    assert "Not compared, because this clone does not have them: 1 file (docs/deep/page.md)." in shown
    compared = clone.vmrag("diff", "HEAD~1", "HEAD")
    assert compared.out == "no documents changed\n"
    assert "1 file (docs/deep/page.md)" in compared.err
    change(project, "docs/deep/page.md", "ONE", "one more")
    commit(project, "one more")
    clone.git("pull", "-q")
    refused = clone.vmrag("blame", "docs/docs/deep/page.md", code=None)
    assert refused.code
    assert "promisor" not in refused.err
    assert "lacks earlier versions" in refused.err
    assert "git blame" in refused.err
    clone.git("blame", clone.git("rev-parse", "HEAD"), "--", "docs/deep/page.md")
    assert "one more" in clone.vmrag("blame", "docs/docs/deep/page.md").out
