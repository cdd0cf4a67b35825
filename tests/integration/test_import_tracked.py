"""`vmrag import` refuses files that git tracks in this repository and that a source can read."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from tests.support.office_files import pdf
from tests.support.repos import isolate
from tests.support.sources import commit
from tests.support.templates import build_once, copy_tree
from tests.support.terminal import Project, new_project, opened
from vmrag_link import hints
from vmrag_link.toolsets.libraries import tools

pytestmark = pytest.mark.hooks("off")

FILES = {
    "README.md": "# Read me\n",
    "docs/setup.md": "# Setup\n\nInstall it.\n",
    "docs/table.csv": "a,b\n1,2\n",
    "notes/plain.txt": "Plain.\n",
    "src/tool.py": "def f():\n    pass\n",
    "Makefile": "all:\n",
}


def build(top: Path) -> None:
    project = new_project(top / "repo")
    commit(project, "begin", **FILES)
    project.vmrag("init", "--knowledge-base", "--no-sources")


@pytest.fixture
def project(tmp_path, tmp_path_factory, monkeypatch) -> Project:
    isolate(monkeypatch, tmp_path)
    top = tmp_path / "repo"
    copy_tree(build_once(tmp_path_factory, "import-tracked", build) / "repo", top)
    return Project(top)


def stored(project: Project) -> set[str]:
    return {f"{row['collection']}/{row['doc_id']}" for row in project.ask("list")["documents"]}


@pytest.mark.parametrize(
    ("command", "command_of_hint"),
    [
        ("import docs/setup.md --collection kb", "sources add docs/setup.md --collection kb"),
        ("import notes --collection kb", "sources add notes --collection kb"),
        ("import README.md notes --collection kb", "sources add README.md notes --collection kb"),
        ("import src/tool.py --collection kb", "sources add src/tool.py --collection kb --kind code"),
        ("add README.md --collection kb", "sources add README.md --collection kb"),
        ("add README.md --collection kb --id other", "sources add README.md --collection kb"),
        ("add Makefile --collection kb", "sources add Makefile --collection kb --kind code"),
        ("import notes --library shelf", "sources add notes"),
        ("import README.md --library shelf", "sources add README.md"),
        ("import README.md notes --library shelf", "sources add README.md notes"),
        ("-C docs import setup.md --collection kb", "sources add docs/setup.md --collection kb"),
        ("import notes --collection kb --prune", "sources add notes --collection kb"),
    ],
)
@pytest.mark.sample(5)
def test_import_refuses_tracked_files_with_a_hint_that_works(project, command, command_of_hint):
    error = project.vmrag(*command.split(), "--json", code=2).error
    assert error["code"] == "SOURCE_READ_ONLY"
    [hinted] = hints.list_commands(error["hint"])
    assert hinted == f"vmrag {command_of_hint}"
    alternative = hints.list_alternatives(error["hint"])[1]
    assert alternative == "add --copy to store a copy that does not follow the file"
    assert stored(project) == set()
    copied = [word for word in command.split() if word != "--prune"]
    project.vmrag(*copied, "--copy")
    project.vmrag("restore", "--yes")
    project.vmrag(*shlex.split(hinted)[1:])
    project.vmrag(*command.split(), code=2)


def test_import_skips_tracked_files_of_a_folder(project):
    (project.top / "docs/manual.pdf").write_bytes(pdf("A manual."))
    project.git("add", "docs/manual.pdf")
    project.write("docs/draft.md", "# Draft\n")
    result = project.vmrag("import", "docs", "--collection", "kb")
    assert "  docs/setup.md: is tracked by git\n" in result.out
    assert "hint: run 'vmrag sources add docs --collection kb'" in result.out
    assert stored(project) == {"kb/docs/manual.pdf", "kb/docs/draft.md", "kb/docs/table.csv"}
    again = project.ask("import", "docs", "--collection", "kb")
    assert (again["changes"]["modified"], again["unchanged"]) == (0, 3)


def test_import_rejects_a_source_file_with_a_hint_to_edit_it(project):
    project.vmrag("sources", "add", "docs")
    error = project.vmrag("import", "docs/setup.md", "--collection", "kb", "--json", code=2).error
    assert error["message"] == "docs/setup.md is not stored: it is a document of the source 'docs'."
    assert error["hint"].startswith("edit the file docs/setup.md, or add --copy")


def test_import_refuses_an_untracked_file_of_a_source(project):
    project.vmrag("sources", "add", "docs")
    project.write("docs/new.md", "# New\n")
    error = project.vmrag("import", "docs/new.md", "--collection", "kb", "--json", code=2).error
    assert hints.list_commands(error["hint"]) == ["git add docs/new.md"]


def test_import_stores_tracked_files_that_no_source_reads(project):
    project.write(".gitattributes", "lfs.md filter=lfs\nbinary.md binary\n")
    (project.top / "manual.pdf").write_bytes(pdf("A manual."))
    (project.top / "link.md").symlink_to("/dev/null")
    commit(project, "more", **{"lfs.md": "# LFS\n", "binary.md": "# Binary\n", "large.md": "# Large\n" * 130_000})
    project.vmrag("import", "lfs.md", "binary.md", "large.md", "manual.pdf", "--collection", "kb")
    assert stored(project) == {"kb/lfs.md", "kb/binary.md", "kb/large.md", "kb/manual.pdf"}


def test_import_refuses_a_link_to_a_tracked_file(project):
    (project.top / "other.md").symlink_to("docs/setup.md")
    assert (
        project.vmrag("import", "other.md", "--collection", "kb", "--json", code=2).error["code"] == "SOURCE_READ_ONLY"
    )


def test_import_refuses_tracked_files_from_an_outside_base(project):
    base = str(project.top.parent)
    assert (
        project.vmrag("import", "notes", "--collection", "kb", "--base", base, "--json", code=2).error["code"]
        == "SOURCE_READ_ONLY"
    )


def test_import_stores_files_outside_the_repository_again(project, tmp_path):
    folder = tmp_path / "wiki"
    folder.mkdir()
    (folder / "page.md").write_text("# Page\n")
    words = ("import", str(folder), "--collection", "wiki")
    project.vmrag(*words, "--base", str(folder))
    (folder / "page.md").write_text("# Page\n\nMore.\n")
    assert project.ask(*words)["changes"]["modified"] == 1


def test_import_prunes_documents_although_all_files_are_refused(project):
    project.write("notes/gone.md", "# Gone\n")
    project.vmrag("import", "notes", "--collection", "kb")
    (project.top / "notes/gone.md").unlink()
    assert project.ask("import", "notes", "--collection", "kb", "--prune")["changes"]["removed"] == 1


def test_import_copy_stores_the_text_only_on_request(project):
    project.vmrag("import", "docs/setup.md", "--collection", "kb", "--copy")
    project.write("docs/setup.md", "# Setup\n\nChanged.\n")
    assert "Install it." in project.vmrag("show", "kb/docs/setup.md").out
    project.vmrag("import", "docs/setup.md", "--collection", "kb", "--copy")
    assert "Changed." in project.vmrag("show", "kb/docs/setup.md").out


def test_import_that_is_refused_starts_nothing_without_a_knowledge_base(tmp_path, monkeypatch):
    isolate(monkeypatch, tmp_path)
    project = new_project(tmp_path / "repo")
    commit(project, "begin", **FILES)
    error = project.vmrag("import", "notes", "--collection", "kb", "--json", code=2).error
    assert error["code"] == "SOURCE_READ_ONLY"
    assert not (project.top / ".dolt-version").exists()


def test_chroma_and_ingest_tools_store_tracked_files(project):
    with opened(project) as ws:
        assert tools.ingest_path(ws, "shelf", "README.md").report.status == "indexed"


def test_import_and_answers_run_no_program_of_the_repository(project, tmp_path):
    project.vmrag("import", "docs", "--collection", "kb", "--copy")
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\ntouch '{tmp_path}/ran'\ncat\n")
    program.chmod(0o755)
    project.write(".gitattributes", "*.md filter=x diff=x\n")
    for name in ("filter.x.clean", "filter.x.smudge", "diff.x.command", "diff.x.textconv"):
        project.git("config", name, str(program))
    project.write("docs/setup.md", "# Setup\n\nChanged.\n")
    (tmp_path / "ran").unlink(missing_ok=True)
    project.vmrag("import", "docs", "--collection", "kb", code=None)
    project.vmrag("query", "install")
    project.vmrag("status")
    assert not (tmp_path / "ran").exists()


# -- removed forms of commands, and a removed setting


@pytest.mark.parametrize("options", [(), ("--prune",), ("--collection", "kb")])
def test_import_without_a_path_names_the_replacement(project, options):
    result = project.vmrag("import", *options, code=2)
    assert "missing argument PATH" in result.err
    assert "hint: run 'vmrag import PATH --collection NAME" in result.err


def test_commit_all_names_the_replacement(project):
    result = project.vmrag("commit", "-a", "-m", "all", code=2)
    assert "'vmrag commit -a' was removed" in result.err
    assert "hint: run 'vmrag commit -m all" in result.err


@pytest.mark.parametrize("place", ["file", "environment", "git"])
@pytest.mark.parametrize("value", ["warn", "fail"])
@pytest.mark.sample(2)
def test_on_stale_setting_names_its_replacement_and_fails_verify(project, place, value):
    env = {}
    if place == "file":
        project.write(".vmrag.yaml", f"embedding:\n  model: hash\nimport:\n  on_stale: {value}\n")
    elif place == "git":
        project.git("config", "vmrag.import.on-stale", value)
    else:
        env = {"VMRAG_IMPORT_ON_STALE": value}
    warning = project.vmrag("list", env=env).err
    assert "import.on_stale was removed; run 'vmrag sources dedupe'" in warning
    project.git("add", "-A")
    project.git("commit", "-qm", "settings")
    result = project.vmrag("verify", code=2 if value == "fail" else 0, env=env)
    assert ("import.on_stale was removed, and 'vmrag verify'" in result.err) == (value == "fail")
    assert "delete the setting" in project.vmrag("doctor", code=None, env=env).out


def test_remaining_keys_of_the_removed_section_are_unknown(project):
    project.write(".vmrag.yaml", "import:\n  on_stael: fail\n")
    assert "on_stael" in project.vmrag("list", code=2).err
