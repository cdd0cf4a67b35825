"""`vmrag sources`, and `vmrag init` and `query` before anything is set up."""

from __future__ import annotations

import pytest

from tests.support.repos import isolate, make_repo
from tests.support.screen import Screen
from tests.support.terminal import Project
from vmrag_link.code import languages

pytestmark = pytest.mark.hooks("off")

SOURCES = """\
sources:
  - collection: docs
    paths: [docs/, README.md]
"""


@pytest.fixture
def project(tmp_path, monkeypatch) -> Project:
    """Nothing is set up."""
    isolate(monkeypatch, tmp_path / "home")
    monkeypatch.setenv("VMRAG_EMBEDDING_MODEL", "hash")
    made = Project(make_repo(tmp_path / "project").top)
    made.commit("one", **{"docs/setup.md": "# Setup\n\nInstall it.\n", "README.md": "# Read me\n"})
    return made


def configured(project: Project, settings: str = SOURCES) -> Project:
    project.commit("settings", **{".vmrag.yaml": settings})
    return project


def by_name(report) -> dict:
    return {each["collection"]: each for each in report["sources"]}


def left_out(report) -> dict[str, str]:
    return {each["path"]: each["reason"] for each in report["left_out"]}


def test_each_source_is_shown_with_its_documents_and_what_is_not_committed(project):
    configured(project)
    project.write("docs/setup.md", "# Setup\n\nInstall it twice.\n")
    project.write("docs/new.md", "# New\n")
    report = project.ask("sources")
    docs = by_name(report)["docs"]
    assert (docs["documents"], docs["uncommitted"]) == (2, {"docs/setup.md": "modified"})
    assert report["untracked"] == 1
    said = project.vmrag("sources").out
    assert "docs  2 documents" in said
    assert "not committed: docs/setup.md (modified)" in said
    assert "1 file that git does not track is left out" in said


def test_every_file_that_is_left_out_is_named_with_its_reason(project):
    configured(project)
    files = {"docs/a.png": b"\0", "docs/b.md": b"\0\1", "docs/c.md": "", "docs/d.md": "<!-- @generated -->\n# D\n"}
    project.commit("files", **files)
    found = left_out(project.ask("sources"))
    assert found.keys() == files.keys()
    assert found["docs/b.md"] == "is no text"
    assert found["docs/c.md"] == "is empty"
    assert found["docs/d.md"] == "is generated, as it says itself"


def test_of_many_files_that_are_left_out_a_few_are_shown(project):
    configured(project)
    project.commit("files", **{f"docs/{number:02}.png": b"\0" for number in range(12)})
    assert "and 2 more (see them with -v)" in project.vmrag("sources").out
    everything = project.vmrag("sources", "-v").out
    assert "docs/11.png" in everything
    assert "more" not in everything.split("left out:")[1]


def test_a_commit_is_shown_by_its_own_settings(project):
    configured(project)
    project.git("tag", "then")
    project.commit("more", **{"docs/more.md": "# More\n", ".vmrag.yaml": SOURCES.replace("docs/, ", "")})
    assert by_name(project.ask("sources", "--at", "then"))["docs"]["documents"] == 2
    assert by_name(project.ask("sources"))["docs"]["documents"] == 1


def test_without_sources_it_is_shown_what_could_be_written(project):
    configured(project, "retrieval:\n  k: 7\n")
    report = project.ask("sources")
    assert report["sources"] == []
    assert report["proposal"] == 'sources:\n  - collection: docs\n    paths: ["**/*.md"]\n'
    project.commit("pasted", **{".vmrag.yaml": "retrieval:\n  k: 7\n" + report["proposal"]})
    assert by_name(project.ask("sources"))["docs"]["documents"] == 2


def test_a_collection_that_is_stored_is_said_to_be_in_the_way(project):
    configured(project, "")
    project.vmrag("init", "--no-sources")
    project.put("note", "A note.", collection="docs")
    project.record("stored")
    configured(project)
    docs = by_name(project.ask("sources"))["docs"]
    assert docs["hint"] == "vmrag sources adopt"
    assert "not read" in project.vmrag("sources").out


def test_a_path_that_names_no_file_is_said(project):
    configured(project, SOURCES.replace("README.md", "nosuch/, '*.rst'"))
    assert by_name(project.ask("sources"))["docs"]["unmatched"] == ["nosuch/", "*.rst"]
    assert "paths: nosuch/, *.rst match no tracked file" in project.vmrag("sources").out
    assert by_name(project.ask("sources", "--at", "HEAD"))["docs"]["unmatched"] == ["nosuch/", "*.rst"]
    project.write("nosuch/a.md", "# A\n")
    assert "nosuch/" in project.vmrag("sources").out
    project.write(".vmrag.yaml", "sources_untracked: true\n" + SOURCES.replace("README.md", "nosuch/"))
    project.vmrag("trust", "--yes")
    assert by_name(project.ask("sources"))["docs"]["unmatched"] == []


def test_tracked_files_in_no_source_are_counted_with_what_to_write(project):
    files = {"a.py": "def a(): ...\n", "b.py": "def b(): ...\n", "c.sql": "SELECT 1;\n", "notes.md": "# Notes\n"}
    configured(project)
    project.commit("more", **files)
    report = project.ask("sources")
    assert report["unnamed"] == {".py": 2, ".sql": 1, ".md": 1}
    added = '  # to the paths of docs: ["**/*.md"]\n  - collection: code\n    kind: code\n'
    added += '    paths: ["**/*.py", "**/*.sql"]\n'
    assert report["addition"] == added
    assert "In no source: 2 .py, 1 .sql, 1 .md" in project.vmrag("sources").out
    project.commit("pasted", **{".vmrag.yaml": SOURCES + report["addition"]})
    assert by_name(project.ask("sources"))["code"]["documents"] == 3
    assert project.ask("sources")["unnamed"] == {".md": 1}


def test_what_a_source_excludes_is_in_none_on_purpose(project):
    configured(project, SOURCES.replace("README.md]", '"*.md"]\n    exclude: [README.md]'))
    assert project.ask("sources")["unnamed"] == {}
    assert "In no source" not in project.vmrag("sources").out


def test_a_commit_without_sources_is_said_to_have_none(project):
    configured(project, "retrieval:\n  k: 7\n")
    project.git("tag", "then")
    assert "No sources: then has none in its .vmrag.yaml" in project.vmrag("sources", "--at", "then").out


# -- what cannot be read


@pytest.fixture
def without_code(project, monkeypatch):
    configured(project, SOURCES + "  - collection: code\n    kind: code\n    paths: ['*.py']\n")
    project.commit("files", **{"a.py": "def a(): ...\n", "docs/none.md": "", "docs/a.png": b"\0"})
    monkeypatch.setattr(languages, "problem", lambda: "the extra is missing: pip install it")
    return project


@pytest.mark.parametrize(
    "command", ["show code/a.py", "blame code/a.py", "list --collection code", "grep x --collection code"]
)
def test_a_source_that_cannot_be_read_here_says_why(without_code, command):
    error = without_code.vmrag(*command.split(), "--json", code=3).error
    assert (error["code"], error["details"]["collection_name"]) == ("COLLECTION_NOT_FOUND", "code")
    assert "cannot be read here: the extra is missing" in error["message"]


def test_a_source_that_cannot_be_read_is_named_in_an_answer(without_code):
    said = without_code.vmrag("query", "install").out
    assert "The source 'code' was not asked: the extra is missing: pip install it\n" in said


@pytest.mark.parametrize(("name", "why"), [("docs/docs/a.png", "it is .png"), ("docs/docs/none.md", "it is empty")])
def test_a_file_that_is_left_out_says_so_where_it_is_named(without_code, name, why):
    error = without_code.vmrag("show", name, "--json", code=3).error
    assert (error["code"], error["hint"]) == ("DOCUMENT_NOT_FOUND", "vmrag sources -v")
    assert f"is left out of the source 'docs', because {why}" in error["message"]


# -- before anything is set up


def test_a_commit_is_shown_before_anything_is_set_up(project):
    assert by_name(project.ask("sources", "--at", "HEAD"))["docs"]["documents"] == 2
    assert "docs  2 documents" in project.vmrag("sources", "--at", "HEAD").out


def test_the_first_answer_says_once_how_to_go_on(project):
    assert "vmrag init" in project.vmrag("query", "install").err
    assert project.vmrag("query", "install").err == ""


def test_status_says_that_files_answer_without_a_knowledge_base(project):
    assert "Files of sources answer all the same, as docs" in project.vmrag("status", code=1).out


def test_what_init_would_write_is_shown_before(project):
    report = project.ask("sources")
    assert report["proposed"]
    assert by_name(report)["docs"]["documents"] == 2


# -- init


def test_init_writes_sources_where_that_is_said(project):
    project.vmrag("init", "--sources")
    settings = (project.top / ".vmrag.yaml").read_text()
    assert settings.endswith('\nsources:\n  - collection: docs\n    paths: ["**/*.md"]\n')
    assert settings.startswith("# Settings of this project's knowledge base")
    assert ".vmrag.yaml" in project.git("diff", "--cached", "--name-only")
    assert project.git("diff", "--name-only") == ""
    assert by_name(project.ask("sources"))["docs"]["documents"] == 2


def test_without_a_person_init_only_says_what_could_be_written(project):
    said = project.vmrag("init").out
    last = "Next: vmrag init --sources   (lets the files above be documents of each commit)"
    assert said.splitlines()[-4:] == ["  sources:", "    - collection: docs", '      paths: ["**/*.md"]', last]
    assert "sources:" not in (project.top / ".vmrag.yaml").read_text()
    assert project.ask("sources")["sources"] == []
    assert project.vmrag("list").out == "No documents yet. Next: vmrag init --sources\n"
    assert "could answer: vmrag init --sources" in project.vmrag("query", "install").out
    project.put("note", "A note.")
    assert "could answer" not in project.vmrag("query", "note").out


def test_init_says_that_no_file_can_be_proposed(project):
    project.git("rm", "-q", "-r", "docs", "README.md")
    project.commit("gone", LICENCE="x")
    project.write("a.md", "# A\n")
    line = "No tracked file could be a document of a source: git add FILE, then: vmrag init --sources"
    assert f"{line}   (1 untracked file could)\n" in project.vmrag("init", "--sources").out
    error = project.vmrag("init", "--sources", "--json", code=2).error
    assert error["message"] == "No tracked file could be a document of a source."
    assert "1 untracked file could" in error["hint"]
    assert project.vmrag("list").out.endswith("vmrag import docs/ --collection handbook\n")


def test_init_again_shows_how_code_becomes_a_source(project):
    configured(project)
    project.commit("code", **{"a.py": "def a(): ...\n"})
    project.vmrag("init", "--sources")
    error = project.vmrag("init", "--sources", "--json", code=2).error
    assert error["message"].endswith('\n  - collection: code\n    kind: code\n    paths: ["**/*.py"]')
    assert "kind: code" in project.vmrag("init", "--sources", code=2).err


def test_init_adds_sources_later_and_stages_what_it_wrote_itself(project):
    project.vmrag("init")
    project.git("commit", "-qm", "set up")
    assert "vmrag query" in project.vmrag("init", "--sources").out
    assert project.git("diff", "--cached", "--name-only") == ".vmrag.yaml"
    assert "names sources already" in project.vmrag("init", "--sources", code=2).err


def test_settings_of_a_persons_own_keep_every_byte_and_are_theirs_to_stage(project):
    own = b"# Mine\r\nretrieval:\r\n  k: 7   # more"
    project.write(".vmrag.yaml", own)
    said = project.vmrag("init", "--sources").out
    settings = (project.top / ".vmrag.yaml").read_bytes()
    assert settings == own + b'\r\n\r\nsources:\r\n  - collection: docs\r\n    paths: ["**/*.md"]\r\n'
    assert ".vmrag.yaml" not in project.git("diff", "--cached", "--name-only")
    assert "git add .vmrag.yaml" in said
    assert by_name(project.ask("sources"))["docs"]["documents"] == 2


def test_init_says_nothing_of_sources_where_none_are_wanted(project):
    assert "sources" not in project.vmrag("init", "--no-sources").out


def test_a_person_at_a_terminal_is_asked_and_enter_agrees(project):
    with Screen(project, "init") as screen:
        screen.expect("Let them be documents?")
        screen.answer("\n")
        screen.expect("documents now")
        assert screen.end() == 0
    assert by_name(project.ask("sources"))["docs"]["documents"] == 2
