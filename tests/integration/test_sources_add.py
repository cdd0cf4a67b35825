"""`vmrag sources add`: files become documents by an entry in `.vmrag.yaml`."""

from __future__ import annotations

import pytest

from tests.support.repos import isolate
from tests.support.sources import commit
from tests.support.terminal import Project, new_project

pytestmark = pytest.mark.hooks("off")

SETTINGS = "# ours\nembedding:\n  model: hash   # fast\n"


@pytest.fixture
def project(tmp_path, monkeypatch) -> Project:
    isolate(monkeypatch, tmp_path)
    project = new_project(tmp_path / "repo", settings=SETTINGS)
    files = {"README.md": "# Read me\n", "docs/setup.md": "# Setup\n", "docs/old/a.md": "# Old\n"}
    commit(project, "begin", **files, **{"src/a.py": "def f():\n    pass\n", "manual.pdf": "%PDF-1.4\n"})
    return project


def names(project: Project) -> set[str]:
    return {row["id"] for row in project.ask("query", "setup", "-k", "20")["results"]}


def test_sources_add_writes_and_stages_a_source(project):
    result = project.vmrag("sources", "add", "docs/", "--collection", "handbook")
    assert "Added the source handbook: docs/ (2 files)." in result.out
    assert project.git("status", "--short") == "M  .vmrag.yaml"
    text = (project.top / ".vmrag.yaml").read_text()
    requirement = '\n# An older version of vmrag-link stops here, and prints how to upgrade it.\nrequires: "0.2.0"\n'
    assert text == SETTINGS + requirement + '\nsources:\n  - collection: handbook\n    paths: ["docs/"]\n'
    assert "1. docs/setup.md:1" in project.vmrag("query", "setup").out


@pytest.mark.parametrize("command", [["sources", "add", "docs"], ["init"]], ids=["sources add", "init"])
def test_commands_that_write_sources_require_the_version_that_knows_them(project, monkeypatch, command):
    result = project.vmrag(*command)
    assert "The file requires vmrag-link 0.2.0 or newer." in result.out
    assert project.vmrag("sources", "add", "src", "--kind", "code").out.count("requires") == 0, "it did before"
    assert (project.top / ".vmrag.yaml").read_text().count("requires:") == 1
    monkeypatch.setattr("vmrag_link.formats.__version__", "0.1.0")
    for words in (["query", "setup"], ["status"], ["sources"]):
        error = project.vmrag(*words, "--json", code=2).error
        assert (error["code"], error["hint"]) == (
            "SCHEMA_TOO_NEW",
            "run 'python -m pip install --upgrade \"vmrag-link>=0.2.0\"' to upgrade vmrag-link",
        )


def test_init_without_sources_requires_no_version(tmp_path, monkeypatch):
    isolate(monkeypatch, tmp_path)
    project = new_project(tmp_path / "other")
    (project.top / ".vmrag.yaml").unlink()
    assert project.ask("init", "--knowledge-base", "--no-sources")["files"]["requires"] == ""
    assert "requires:" not in (project.top / ".vmrag.yaml").read_text()


def test_sources_add_appends_to_the_first_source_of_the_kind(project):
    project.vmrag("sources", "add", "docs")
    project.vmrag("sources", "add", "src", "--kind", "code")
    report = project.ask("sources", "add", "README.md")
    assert (report["collection"], report["created"], report["paths"]) == ("docs", False, ["README.md"])
    rows = {row["collection"]: row["documents"] for row in project.ask("sources")["sources"]}
    assert rows == {"docs": 3, "code": 1}


def test_sources_add_changes_nothing_for_files_of_the_source(project):
    project.vmrag("sources", "add", "docs")
    before = (project.top / ".vmrag.yaml").read_bytes()
    assert "already has these paths" in project.vmrag("sources", "add", "docs/setup.md").out
    assert (project.top / ".vmrag.yaml").read_bytes() == before


def test_sources_add_takes_paths_and_patterns_from_the_current_folder(project):
    result = project.vmrag("-C", "docs", "sources", "add", "*.md", "../README.md")
    assert "Added the source docs: docs/*.md README.md (2 files)." in result.out


def test_sources_add_names_files_with_wildcards_in_their_names(project):
    commit(project, "page", **{"app/[slug]/page.md": "# Page\n"})
    assert project.ask("sources", "add", "app/[slug]")["files"] == 1
    assert project.ask("sources", "add", "app/[slug]/page.md", "--collection", "page")["files"] == 1


def test_sources_add_leaves_unstaged_changes_to_the_user(project):
    project.write(".vmrag.yaml", SETTINGS + "retrieval.k: 3\n")
    assert "hint: run 'git add .vmrag.yaml" in project.vmrag("sources", "add", "docs").out
    assert project.git("diff", "--cached", "--name-only") == ""


@pytest.mark.parametrize(
    ("arguments", "message", "hint"),
    [
        (["nothing"], "git tracks no file that nothing names.", "check the path"),
        (["../outside"], "../outside is outside the repository.", "vmrag import ../outside"),
        (["src"], "no source of the kind 'document' can read src/a.py", "run 'vmrag sources add src --kind code'"),
        (["manual.pdf"], "no source of the kind 'document' can read manual.pdf", "vmrag import manual.pdf"),
        (["docs", "--collection", "a/b"], "invalid collection name 'a/b'", "--collection a-b"),
        ([], "missing argument PATH.", "run 'vmrag sources add docs/'"),
        (
            ["docs", "--dry-run"],
            "'vmrag sources add' has no option --dry-run.",
            "run 'vmrag sources dedupe --help' to see its options",
        ),
    ],
)
def test_sources_add_refuses_with_a_hint(project, arguments, message, hint):
    result = project.vmrag("sources", "add", *arguments, code=2)
    assert message in result.err
    assert hint in result.err
    assert (project.top / ".vmrag.yaml").read_text() == SETTINGS


def test_sources_add_refuses_an_untracked_file(project):
    project.write("new.md", "# New\n")
    assert "hint: run 'git add new.md" in project.vmrag("sources", "add", "new.md", code=2).err


def test_sources_add_refuses_files_that_the_source_excludes(project):
    project.write(
        ".vmrag.yaml", SETTINGS + 'sources:\n- collection: docs\n  paths: ["*.md"]\n  exclude: ["docs/old/"]\n'
    )
    result = project.vmrag("sources", "add", "docs/old", code=2)
    assert "the source 'docs' excludes docs/old/a.md." in result.err


def test_sources_add_refuses_another_kind_in_one_source(project):
    project.vmrag("sources", "add", "docs")
    result = project.vmrag("sources", "add", "src", "--collection", "docs", "--kind", "code", code=2)
    assert "the source 'docs' has files of the kind 'document'." in result.err


def test_sources_add_refuses_while_the_environment_states_sources(project):
    stated = {"VMRAG_SOURCES": '[{"collection": "docs", "paths": ["docs/"]}]'}
    assert "unset VMRAG_SOURCES" in project.vmrag("sources", "add", "README.md", code=2, env=stated).err


def test_sources_add_takes_the_name_of_a_stored_collection(project):
    project.vmrag("init", "--knowledge-base", "--no-sources")
    project.vmrag("import", "docs", "--collection", "handbook", "--copy")
    project.vmrag("commit", "-m", "handbook")
    result = project.vmrag("sources", "add", "docs", "--collection", "handbook")
    assert "The stored collection handbook answers until its copies are removed." in result.out
    assert project.ask("sources", "dedupe")["collections"] == ["handbook"]


# -- import --copy


@pytest.mark.parametrize("command", [["import", "docs/setup.md"], ["add", "docs/setup.md"]])
def test_copy_stores_a_file_of_a_source(project, command):
    project.vmrag("init", "--knowledge-base", "--no-sources")
    project.vmrag("sources", "add", "docs")
    assert project.vmrag(*command, "--collection", "copies", code=2).err
    project.vmrag(*command, "--collection", "copies", "--copy")
    stored = {f"{row['collection']}/{row['doc_id']}" for row in project.ask("list")["documents"]}
    assert "copies/docs/setup.md" in stored


def test_copy_stores_a_file_of_a_source_in_a_library(project):
    project.vmrag("init", "--knowledge-base", "--no-sources")
    project.vmrag("sources", "add", "docs")
    report = project.ask("import", "docs", "--library", "shelf", "--copy")
    assert len(report["taken"]) == 2
