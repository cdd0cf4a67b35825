"""Which files an import takes, which it leaves out, and what becomes of documents whose files are
gone, renamed or left out.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.support import terminal
from tests.support.terminal import Project

pytestmark = pytest.mark.hooks("off")

template, project = terminal.template, terminal.project

FRESH = ("--collection", "fresh")
LINES = "".join(f"line {number}\n" for number in range(40))


def documents(project: Project, collection: str = "fresh") -> dict[str, str]:
    """Titles by id."""
    result = project.ask("list", "--collection", collection)["documents"]
    return {document["doc_id"]: document["title"] for document in result if document["uncommitted"] != "removed"}


def left_out(report: dict[str, list[dict[str, str]]]) -> dict[str, str]:
    return {
        skipped_file["name"]: skipped_file["reason"]
        for skipped_file in report["skipped"]
        if skipped_file["reason"] != "is hidden"
    }


def write(project: Project, *names: str, text: str = "") -> None:
    for name in names:
        project.write(name, text or f"# {name}\n")


# -- add and import --------------------------------------------------------------------------------


def test_add_makes_the_document_that_an_import_makes(project: Project) -> None:
    write(project, "all/heading.md", text="Before.\n\n# A heading\n")
    write(project, "all/front.md", text="---\ntitle: From the front\nteam: core\n---\n# Other\n")
    write(project, "all/ruled.rst", text="Ruled\n=====\n\nText.\n")
    write(project, "all/page.html", text="<title>A page</title><p>Text.</p>")
    write(project, "all/plain.txt", text="Plain.\n")
    write(project, "all/data.json", text='{"title": "The data", "n": 1}')
    for path in sorted((project.top / "all").iterdir()):
        project.vmrag("add", f"all/{path.name}", *FRESH)
    titles = documents(project)
    assert project.ask("import", "all", *FRESH)["unchanged"] == 6
    assert titles == documents(project) == {
        "all/heading.md": "A heading",
        "all/front.md": "From the front",
        "all/ruled.rst": "Ruled",
        "all/page.html": "A page",
        "all/plain.txt": "plain",
        "all/data.json": "The data",
    }  # fmt: skip


def test_add_accepts_any_text_with_its_options(project: Project) -> None:
    write(project, "run.sh", text="# no heading\n")
    write(project, "x.md", text="---\nteam: core\nyear: 1\n---\n# X\n")
    project.vmrag("add", "run.sh", *FRESH)
    project.vmrag("add", "run.sh", *FRESH, "--id", "own")
    project.vmrag("add", "x.md", *FRESH, "--title", "Mine", "--metadata", '{"year": 2}')
    project.vmrag("add", "-", *FRESH, "--id", "piped", stdin="# Of the text\n")
    assert documents(project) == {"run.sh": "run", "own": "own", "x.md": "Mine", "piped": "Of the text"}
    assert project.ask("show", "fresh/x.md")["metadata"] == {"team": "core", "year": 2}


# -- what git ignores ------------------------------------------------------------------------------


def test_import_leaves_out_files_ignored_by_git(project: Project, tmp_path: Path) -> None:
    write(project, "all/a.md", "all/build/b.md", "all/build/kept.md", "all/deep/secret.md", "all/deep/open.md")
    write(project, "all/mine/note.md", "all/theirs.md", "all/negated.md", "all/:(top)x.md", "all/[a] .md")
    project.write(".gitignore", "build/\n*negated.md\n!all/negated.md\n")
    project.write("all/deep/.gitignore", "secret.md\n")
    (project.top / ".git/info").mkdir(exist_ok=True)
    (project.top / ".git/info/exclude").write_text("mine\n")
    (tmp_path / "ignore").write_text("theirs.md\n")
    project.git("config", "--global", "core.excludesFile", str(tmp_path / "ignore"))
    project.git("add", "-f", "all/build/kept.md")
    taken = {"all/a.md", "all/build/kept.md", "all/deep/open.md", "all/negated.md", "all/:(top)x.md", "all/[a] .md"}
    said = project.vmrag("import", "all", *FRESH, "--copy").out
    assert "hint: add --include-ignored to import these files too\n" in said
    assert documents(project).keys() == taken
    assert left_out(project.ask("import", "all", *FRESH, "--copy")) == dict.fromkeys(
        ("all/build/b.md", "all/deep/secret.md", "all/mine", "all/theirs.md"), "is ignored by git"
    )
    everything = project.ask("import", "all", *FRESH, "--copy", "--include-ignored")
    assert (everything["changes"]["added"], left_out(everything)) == (4, {})
    again = project.ask("import", "all", *FRESH, "--copy")
    assert again["left_out"] == ["all/build/b.md", "all/deep/secret.md", "all/mine/note.md", "all/theirs.md"]
    assert len(documents(project)) == 10  # what is left out is not thrown away


def test_import_accepts_named_files_ignored_by_git(project: Project) -> None:
    write(project, "all/secret.md", "built/a.md", "built/deep/b.md", "built/.hidden/c.md")
    project.write(".gitignore", "secret.md\n/built/\n")
    said = project.vmrag("import", "all/secret.md", "built", *FRESH).out
    assert "Imported although git ignores it, because you named it: all/secret.md and built.\n" in said
    assert documents(project).keys() == {"all/secret.md", "built/a.md", "built/deep/b.md"}
    assert project.ask("import", "built", *FRESH, "--exclude", "deep/")["left_out"] == ["built/deep/b.md"]


def test_each_repository_lists_its_own_files(project: Project, tmp_path: Path) -> None:
    """A submodule, a folder of another repository, and one of none."""
    inner = terminal.new_project(tmp_path / "inner")
    inner.commit("inner", **{"in.md": "# In", ".gitignore": "tmp/\n"})
    project.git("submodule", "add", "-q", str(inner.top), "all/inner")
    write(project, "all/inner/tmp/t.md", "all/inner/new.md", "all/tmp/t.md")
    assert left_out(project.ask("import", "all", *FRESH)) == {"all/inner/tmp": "is ignored by git"}
    assert documents(project).keys() == {"all/inner/in.md", "all/inner/new.md", "all/tmp/t.md"}
    (inner.top / "tmp").mkdir()
    (inner.top / "tmp/t.md").write_text("t")
    other = project.ask("import", str(inner.top), "--collection", "other", "--base", str(inner.top))
    assert (other["changes"]["added"], left_out(other)) == (1, {"tmp": "is ignored by git"})
    shutil.copytree(inner.top, tmp_path / "plain", ignore=shutil.ignore_patterns(".git"))
    plain = ("--collection", "plain", "--base", str(tmp_path / "plain"))
    assert project.ask("import", str(tmp_path / "plain"), *plain)["changes"]["added"] == 2


def test_repository_that_came_in_an_archive_starts_no_program(project: Project, tmp_path: Path) -> None:
    inner = terminal.new_project(project.top / "all/inner")
    inner.commit("inner", **{"in.md": "# In"})
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/started\n")
    program.chmod(0o755)
    inner.git("config", "core.fsmonitor", str(program))
    assert project.ask("import", "all", *FRESH)["changes"]["added"] == 1
    assert not (tmp_path / "started").exists()
    inner.git("status")
    assert (tmp_path / "started").exists()  # so it would have been


def test_repository_that_came_in_an_archive_fetches_nothing_that_it_lacks(project: Project, tmp_path: Path) -> None:
    """git reads `.gitattributes` of its index, and asks a promisor remote for it by any ssh."""
    program = tmp_path / "ssh"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/started\nfalse\n")
    program.chmod(0o755)
    inner = terminal.new_project(project.top / "all/inner")
    inner.commit("inner", **{"in.md": "# In"})
    inner.write(".gitattributes", "*.x linguist-generated\n")
    inner.git("add", ".gitattributes")
    blob = inner.git("rev-parse", ":.gitattributes").strip()
    (inner.top / f".git/objects/{blob[:2]}/{blob[2:]}").unlink()
    (inner.top / ".gitattributes").unlink()
    settings = {
        "core.repositoryFormatVersion": "1",
        "core.sshCommand": str(program),
        "extensions.partialClone": "origin",
        "remote.origin.promisor": "true",
        "remote.origin.url": "ssh://example.invalid/code",
    }
    for key, value in settings.items():
        inner.git("config", key, value)
    assert project.ask("import", "all", *FRESH)["changes"]["added"] == 1
    assert not (tmp_path / "started").exists()
    inner.git("check-attr", "linguist-generated", "in.md")
    assert (tmp_path / "started").exists()  # so it would have been


def test_git_is_called_once_per_folder_level(project: Project, tmp_path: Path, monkeypatch) -> None:
    for folder in range(12):
        write(project, *(f"all/{folder}/deep/{number}.md" for number in range(12)))
    log, real = tmp_path / "log", shutil.which("git")
    (tmp_path / "bin").mkdir()
    counting = tmp_path / "bin/git"
    counting.write_text(f'#!/bin/sh\necho "$*" >>{log}\nexec {real} "$@"\n')
    counting.chmod(0o755)
    monkeypatch.setenv("PATH", f"{counting.parent}{os.pathsep}{os.environ['PATH']}")
    assert project.ask("import", "all", *FRESH)["changes"]["added"] == 144
    lines = [line for line in log.read_text().splitlines() if "check-" in line]
    assert len(lines) == 4  # `all` and the 12 in it, their folders, the files, and the attributes of files


def test_library_import_also_leaves_them_out(project: Project) -> None:
    write(project, "all/a.md", "all/ignored.md", "ignored.md")
    project.write(".gitignore", "ignored.md\n")
    report = project.ask("import", "all", "--library", "shelf")
    assert [Path(file["source"]).name for file in report["taken"]] == ["a.md"]
    assert set(left_out(report).values()) == {"is ignored by git"}
    report = project.ask("import", "all", "ignored.md", "--library", "shelf", "--include-ignored")
    assert len(report["taken"]) == 3


# -- what else is left out -------------------------------------------------------------------------


def test_patterns_read_as_in_a_gitignore_at_the_root(project: Project) -> None:
    write(project, "all/a.md", "all/drafts/b.md", "all/deep/drafts/c.md", "all/keep.tmp.md", "all/x.tmp.md")
    patterns = ("drafts/", "*.tmp.md", "!keep.tmp.md", "/all/a.md")
    options = [word for pattern in patterns for word in ("--exclude", pattern)]
    project.git("-C", "all", "status", "-s")
    report = project.ask("-C", "all", "import", ".", *FRESH, *options)
    assert left_out(report) == dict.fromkeys(
        ("all/a.md", "all/drafts", "all/deep/drafts", "all/x.tmp.md"), "is excluded"
    )
    assert documents(project).keys() == {"all/keep.tmp.md"}
    error = project.vmrag("import", "all", *FRESH, "--exclude", "!", "--json", code=2).error
    assert error["message"].startswith("--exclude")


def test_generated_files_are_left_out_unless_named(project: Project) -> None:
    write(project, "all/package-lock.json", "all/sub/packages.lock.json", text="{}")
    write(project, "all/api.md", "all/a.md")
    project.write("all/.gitattributes", "api.md linguist-generated\nsub/* -linguist-generated\n")
    report = project.ask("import", "all", *FRESH)
    assert left_out(report) == dict.fromkeys(("all/package-lock.json", "all/api.md"), "is generated")
    assert documents(project).keys() == {"all/a.md", "all/sub/packages.lock.json"}
    assert project.ask("import", "all/api.md", *FRESH)["changes"]["added"] == 1
    assert project.ask("import", "all", *FRESH, "--include-generated")["changes"]["added"] == 1


# -- files that are gone, or elsewhere -------------------------------------------------------------


def test_documents_without_file_are_listed_and_stay_until_pruned(project: Project) -> None:
    write(project, "all/a.md", "all/b.md", "all/c.md", "more/d.md")
    project.vmrag("import", "all", "more", *FRESH)
    for name in ("all/a.md", "all/b.md", "more/d.md"):
        (project.top / name).unlink()
    said = project.vmrag("import", "all", *FRESH).out
    assert "The files of 2 documents are gone: all/a.md and all/b.md. --prune removes them.\n" in said
    assert len(documents(project)) == 4
    pruned = project.ask("import", "all", *FRESH, "--prune")
    assert (pruned["changes"]["removed"], pruned["gone"]) == (2, [])
    assert documents(project).keys() == {"all/c.md", "more/d.md"}


@pytest.fixture
def moving(project: Project) -> Project:
    """Documents and files that are committed."""
    for name in ("a", "b", "c", "d"):
        write(project, f"all/{name}.md", text=f"# {name}\n\n{LINES}of {name}\n")
    write(project, "all/empty.md", "all/none.md", text=" ")
    project.vmrag("import", "all", *FRESH, "--copy")
    project.vmrag("commit", "-m", "before")
    project.git("add", "-A")
    project.git("commit", "-q", "-m", "before")
    return project


def follows(report: dict[str, list[dict[str, str]]]) -> dict[str, str]:
    return {document["doc_id"]: document["now"] for document in report["renamed"]}


def test_renamed_file_keeps_its_document(moving: Project) -> None:
    """Staged and edited; committed twice under other names; not known to git; in another folder."""
    moving.git("mv", "all/b.md", "all/between.md")
    moving.git("commit", "-q", "-m", "once")
    moving.git("mv", "all/between.md", "all/e.md")
    moving.git("commit", "-q", "-m", "twice")
    moving.git("mv", "all/a.md", "all/first.md")
    write(moving, "all/first.md", text=f"# a\n\n{LINES}edited\n")
    (moving.top / "more").mkdir()
    (moving.top / "all/c.md").rename(moving.top / "more/c.md")
    before = documents(moving)
    report = moving.ask("import", "all", "more", *FRESH, "--copy", "--prune")
    assert follows(report) == {"all/a.md": "all/first.md", "all/b.md": "all/e.md", "all/c.md": "more/c.md"}
    assert report["changes"] == {"added": 0, "modified": 3, "removed": 0}
    assert documents(moving) == before
    assert moving.ask("show", "fresh/all/a.md")["content"].endswith("edited\n")
    assert moving.ask("import", "all", "more", *FRESH, "--copy")["renamed"] == []
    moving.vmrag("commit", "-m", "renamed")
    write(moving, "more/c.md", text="# c, again\n")
    assert moving.ask("import", "more", *FRESH, "--copy")["changes"] == {"added": 0, "modified": 1, "removed": 0}
    assert moving.consistent()


def test_ambiguous_renames_become_new_documents(moving: Project) -> None:
    """One of two files of the same text; one like an existing file; one without a text."""
    text = (moving.top / "all/a.md").read_text()
    (moving.top / "all/a.md").unlink()
    write(moving, "all/one.md", "all/two.md", text=text)
    write(moving, "all/like-d.md", text=(moving.top / "all/d.md").read_text())
    (moving.top / "all/empty.md").rename(moving.top / "all/nothing.md")
    report = moving.ask("import", "all", *FRESH, "--copy")
    assert (report["renamed"], report["changes"]["added"]) == ([], 4)
    assert report["gone"] == ["all/a.md", "all/empty.md"]


def test_add_follows_a_renamed_file_as_well(moving: Project) -> None:
    moving.git("mv", "all/a.md", "all/z.md")
    assert moving.vmrag("add", "all/z.md", *FRESH, "--copy").out.startswith("fresh/all/a.md: 1 document modified\n")
    write(moving, "all/a.md", text="# another\n")
    error = moving.vmrag("import", "all", *FRESH, "--copy", "--json", code=2).error
    assert error["details"]["doc_id"] == "all/a.md"  # which is z's, and stays it
    assert moving.ask("show", "fresh/all/a.md")["content"].endswith("of a\n")
