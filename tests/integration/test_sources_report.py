"""`vmrag sources`, and `vmrag init` and `query` before anything is set up."""

from __future__ import annotations

import re

import pytest

from tests.support.repos import isolate, make_repo
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
    return {source["collection"]: source for source in report["sources"]}


def left_out(report) -> dict[str, str]:
    return {file["path"]: file["reason"] for file in report["left_out"]}


def test_each_source_is_shown_with_its_documents_and_uncommitted_files(project):
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
    result = left_out(project.ask("sources"))
    assert result.keys() == files.keys()
    assert result["docs/b.md"] == "is not text"
    assert result["docs/c.md"] == "is empty"
    assert result["docs/d.md"] == "is marked as generated"


def test_few_of_many_left_out_files_are_shown(project):
    configured(project)
    project.commit("files", **{f"docs/{number:02}.png": b"\0" for number in range(12)})
    assert "and 2 more (-v shows all)" in project.vmrag("sources").out
    everything = project.vmrag("sources", "-v").out
    assert "docs/11.png" in everything
    assert "more" not in everything.split("left out:")[1]


def test_commit_is_shown_by_its_own_settings(project):
    configured(project)
    project.git("tag", "then")
    project.commit("more", **{"docs/more.md": "# More\n", ".vmrag.yaml": SOURCES.replace("docs/, ", "")})
    assert by_name(project.ask("sources", "--at", "then"))["docs"]["documents"] == 2
    assert by_name(project.ask("sources"))["docs"]["documents"] == 1


def test_possible_sources_are_shown_without_sources(project):
    configured(project, "retrieval:\n  k: 7\n")
    report = project.ask("sources")
    assert report["sources"] == []
    assert report["proposal"] == 'sources:\n  - collection: docs\n    paths: ["**/*.md"]\n'
    project.commit("pasted", **{".vmrag.yaml": "retrieval:\n  k: 7\n" + report["proposal"]})
    assert by_name(project.ask("sources"))["docs"]["documents"] == 2


def test_stored_collection_of_same_name_is_reported(project):
    configured(project, "")
    project.vmrag("init", "--knowledge-base", "--no-sources")
    project.put("note", "A note.", collection="docs")
    project.record("stored")
    configured(project)
    docs = by_name(project.ask("sources"))["docs"]
    assert docs["hint"] == "run 'vmrag sources dedupe' to remove the stored copies"
    assert "not read" in project.vmrag("sources").out


def test_path_without_matching_file_is_reported(project):
    configured(project, SOURCES.replace("README.md", "nosuch/, '*.rst'"))
    assert by_name(project.ask("sources"))["docs"]["unmatched"] == ["nosuch/", "*.rst"]
    assert "paths: nosuch/, *.rst match no tracked file" in project.vmrag("sources").out
    assert by_name(project.ask("sources", "--at", "HEAD"))["docs"]["unmatched"] == ["nosuch/", "*.rst"]
    project.write("nosuch/a.md", "# A\n")
    assert "nosuch/" in project.vmrag("sources").out
    project.write(".vmrag.yaml", "sources_untracked: true\n" + SOURCES.replace("README.md", "nosuch/"))
    project.vmrag("trust", "--yes")
    assert by_name(project.ask("sources"))["docs"]["unmatched"] == []


def test_tracked_files_outside_of_sources_are_counted_with_a_hint(project):
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


def test_excluded_files_are_not_reported_as_unnamed(project):
    configured(project, SOURCES.replace("README.md]", '"*.md"]\n    exclude: [README.md]'))
    assert project.ask("sources")["unnamed"] == {}
    assert "In no source" not in project.vmrag("sources").out


def test_commit_without_sources_is_reported(project):
    configured(project, "retrieval:\n  k: 7\n")
    project.git("tag", "then")
    assert "No sources: then has none in its .vmrag.yaml" in project.vmrag("sources", "--at", "then").out


# -- what cannot be read


@pytest.fixture
def without_code(project, monkeypatch):
    configured(project, SOURCES + "  - collection: code\n    kind: code\n    paths: ['*.py']\n")
    project.commit("files", **{"a.py": "def a(): ...\n", "docs/none.md": "", "docs/a.png": b"\0"})
    monkeypatch.setattr(languages, "find_language_problem", lambda: "the extra is missing: pip install it")
    return project


@pytest.mark.parametrize(
    "command", ["show code/a.py", "blame code/a.py", "list --collection code", "grep x --collection code"]
)
def test_unreadable_source_is_shown_with_the_reason(without_code, command):
    error = without_code.vmrag(*command.split(), "--json", code=3).error
    assert (error["code"], error["details"]["collection_name"]) == ("COLLECTION_NOT_FOUND", "code")
    assert "here: the extra is missing" in error["message"]


def test_source_that_cannot_be_read_is_named_in_an_answer(without_code):
    said = without_code.vmrag("query", "install").out
    assert "the source 'code' was not searched: the extra is missing: pip install it\n" in said


@pytest.mark.parametrize(("name", "why"), [("docs/docs/a.png", "it is .png"), ("docs/docs/none.md", "it is empty")])
def test_show_explains_why_a_file_is_left_out(without_code, name, why):
    error = without_code.vmrag("show", name, "--json", code=3).error
    assert (error["code"], error["hint"]) == ("DOCUMENT_NOT_FOUND", "run 'vmrag sources -v' to list all files")
    assert f"because {why}" in error["message"]


# -- before anything is set up


def test_commit_is_shown_before_anything_is_set_up(project):
    assert by_name(project.ask("sources", "--at", "HEAD"))["docs"]["documents"] == 2
    assert "docs  2 documents" in project.vmrag("sources", "--at", "HEAD").out


def test_first_answer_prints_the_next_step_once(project):
    assert "vmrag init" in project.vmrag("query", "install").err
    assert project.vmrag("query", "install").err == ""


def test_status_counts_files_without_knowledge_base(project):
    project.write("README.md", "# Edited\n")
    shown = project.vmrag("status").out
    assert "  files      2 files in 1 source, 1 edited\n" in shown
    assert "0 documents" not in shown
    report = project.ask("status")
    assert (report["state"], report["in_sync"], report["pin"]) == ("files", True, None)


def test_sources_lists_the_proposal_of_init(project):
    report = project.ask("sources")
    assert report["proposed"]
    assert by_name(report)["docs"]["documents"] == 2


# -- init


def test_init_writes_and_stages_settings_file_and_nothing_else(project):
    before = project.git("for-each-ref"), (project.top / ".git" / "config").read_text()
    shown = project.vmrag("init").out
    settings = (project.top / ".vmrag.yaml").read_text()
    assert settings.endswith(
        '\nsources:\n  - collection: docs\n    paths: ["**/*.md"]\n  - collection: notes\n    paths: [".vmrag/notes/"]\n    write: true\n'
    )
    assert project.git("status", "--porcelain") == "A  .vmrag.yaml"
    assert (project.git("for-each-ref"), (project.top / ".git" / "config").read_text()) == before
    assert [path.name for path in (project.top / ".git" / "hooks").iterdir() if path.suffix != ".sample"] == []
    assert shown.startswith("Added the source docs: 2 files (2 .md)\n")
    assert by_name(project.ask("sources"))["docs"]["documents"] == 2


def test_init_accepts_former_option_and_changes_nothing(project):
    project.vmrag("init", "--sources")
    assert project.git("status", "--porcelain") == "A  .vmrag.yaml"


def test_init_counts_files_by_ending_also_uncovered_ones(project):
    project.commit("more", **{"a.css": "a {}", "b.css": "b {}", "LICENSE": "x", "src/a.py": "def a(): ...\n"})
    report = project.ask("init")["files"]
    assert [(source["collection"], source["files"]) for source in report["sources"]] == [
        ("docs", {".md": 2}),
        ("code", {".py": 1}),
    ]
    assert report["uncovered"] == {".css": 2, "LICENSE": 1}


def test_init_shows_uncovered_endings(project):
    project.commit("more", **{"a.css": "a {}", "b.css": "b {}"})
    assert "\nFiles that no source covers: 2 .css\n" in project.vmrag("init").out


@pytest.mark.parametrize("command", ["status", "query install", "list", "sync", "verify", "doctor", "sources"])
def test_commands_print_no_hint_about_hooks_or_pin_without_knowledge_base(project, command):
    project.vmrag("init")
    project.git("commit", "-q", "-m", "set up")
    project.git("switch", "-q", "--detach", "HEAD~1")
    result = project.vmrag(*command.split(), code=None)
    assert not re.search(
        r"hook|pin\b|NOT_INITIALIZED|no knowledge base", result.out.replace("No commit has a pin", "") + result.err
    )


def test_sync_builds_index_of_files_alone(project):
    project.vmrag("init")
    project.git("commit", "-q", "-m", "set up")
    head = project.git("rev-parse", "--short=7", "HEAD")
    assert project.vmrag("sync").out == f"The index is at commit {head}: 2 files in 2 sources.\n"
    assert project.ask("sync")["files"] == 2


def test_verify_has_nothing_to_do_without_pin(project):
    assert project.vmrag("verify").out.startswith("No commit has a pin")
    report = project.ask("verify")
    assert (report["unpinned"], report["findings"]) == (True, [])


def test_init_without_readable_files_writes_settings_and_names_next_step(project):
    project.git("rm", "-q", "-r", "docs", "README.md")
    project.commit("gone", LICENCE="x")
    project.write("a.md", "# A\n")
    assert "then 'vmrag init'" in project.vmrag("init").out
    project.vmrag("add", "-m", "A note.")  # which is in a source already
    error = project.vmrag("init", "--json", code=2).error
    assert "1 untracked file can be documents" in error["message"]
    project.git("add", "a.md")
    assert "Added the source docs: 1 file (1 .md)\n" in project.vmrag("init").out


def test_init_refuses_settings_file_with_sources(project):
    project.vmrag("init")
    error = project.vmrag("init", "--json", code=2).error
    assert (error["code"], error["hint"]) == (
        "ALREADY_INITIALIZED",
        "run 'vmrag sources' to list the files of the sources",
    )


def test_init_adds_sources_later_and_stages_file_that_it_wrote(project):
    project.vmrag("init", "--no-sources")
    project.git("commit", "-qm", "set up")
    assert "vmrag query" in project.vmrag("init").out
    assert project.git("diff", "--cached", "--name-only") == ".vmrag.yaml"


def test_init_does_not_stage_ignored_settings_file(project):
    project.commit("ignore", **{".gitignore": ".vmrag.yaml\n"})
    assert "which git ignores" in project.vmrag("init").out
    assert project.git("status", "--porcelain") == ""


def test_init_with_pin_names_sync_if_the_knowledge_base_is_missing(project, tmp_path):
    project.vmrag("init", "--knowledge-base", "--no-sources")
    project.git("commit", "-qm", "pinned")
    project.git("clone", "-q", ".", str(tmp_path / "clone"))
    assert "run 'vmrag sync'" in Project(tmp_path / "clone").vmrag("init").out
    assert "run 'git commit" in project.vmrag("init").out
    assert project.vmrag("init", "--json", code=2).error["hint"] == "run 'vmrag sync' to sync to the pin"


def test_init_appends_to_existing_settings_and_leaves_them_unstaged(project):
    own_settings = b"# Mine\r\nretrieval:\r\n  k: 7   # more"
    project.write(".vmrag.yaml", own_settings)
    shown = project.vmrag("init").out
    settings = (project.top / ".vmrag.yaml").read_bytes()
    comment = b"# An older version of vmrag-link stops here, and prints how to upgrade it."
    added = [
        b"",
        comment,
        b'requires: "0.2.0"',
        b"",
        b"sources:",
        b"  - collection: docs",
        b'    paths: ["**/*.md"]',
        b"  - collection: notes",
        b'    paths: [".vmrag/notes/"]',
        b"    write: true",
        b"",
    ]
    assert settings == own_settings + b"\r\n" + b"\r\n".join(added)
    assert ".vmrag.yaml" not in project.git("diff", "--cached", "--name-only")
    assert "git add .vmrag.yaml" in shown
    assert by_name(project.ask("sources"))["docs"]["documents"] == 2


def test_init_without_sources_writes_none(project):
    assert "source" not in project.vmrag("init", "--no-sources").out
    assert project.ask("sources")["sources"] == []


def test_unparsable_files_are_named(project):
    table = "static const char primes[] = {\n" + "0,1,2,3,4,5,6,7,8,9,\n" * 12_000 + "};\nint area(int x)\n{\n}\n"
    sources = f"{SOURCES}  - collection: code\n    kind: code\n    paths: ['*.c']\n"
    project.commit("code", **{".vmrag.yaml": sources, "table.c": table, "small.c": "int a = 1;\n"})
    rows = by_name(project.ask("sources"))
    assert (rows["code"]["by_lines"], rows["docs"]["by_lines"]) == (["table.c"], [])
    assert project.ask("query", "--symbols", "area")["definitions"][0]["path"] == "table.c"
    assert "cut by lines, too hard or too large to parse: table.c" in project.vmrag("sources").out
