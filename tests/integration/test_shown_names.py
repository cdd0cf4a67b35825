"""Names of results: a file of a source by its path, and every command accepts this name."""

from __future__ import annotations

import re

import pytest

from tests.support.mcp import Tools
from tests.support.repos import isolate
from tests.support.sources import SETTINGS, commit
from tests.support.terminal import Project, new_project
from vmrag_mcp.options import ToolChoice

pytestmark = pytest.mark.hooks("off")

CONFIG = "Config\n======\n\nThe timeout is thirty seconds.\n"


@pytest.fixture
def project(tmp_path, monkeypatch) -> Project:
    """Without a knowledge base. The collection `docs` has a file at the top and one in `docs/` with
    the same name.
    """
    isolate(monkeypatch, tmp_path / "home")
    made = new_project(tmp_path / "work", settings=SETTINGS)
    files = {"README.md": "# Top\n\ntimeout above\n", "docs/README.md": "# Below\n\ntimeout below\n"}
    commit(made, "begin", **files, **{"docs/config.rst": CONFIG, "src/a.py": "def timeout():\n    pass\n"})
    return made


def names_of(project: Project, *arguments: str) -> list[str]:
    shown = project.vmrag("query", "timeout", *arguments).out
    return [match[1] for line in shown.splitlines() if (match := re.match(r"\d+\. (\S+)", line))]


def store_copy(project: Project) -> None:
    project.vmrag("init", "--knowledge-base", "--no-sources", "--no-hooks")
    project.put("docs/config.rst", CONFIG, collection="kept")
    project.vmrag("commit", "-m", "a copy")


def test_query_prints_the_path_of_a_file_once_with_its_line(project):
    shown = project.vmrag("query", "thirty seconds", "-k", "1").out
    assert shown.startswith("1. docs/config.rst:4  Config\n")
    assert shown.count("config.rst") == 1


def test_show_accepts_every_name_that_query_prints(project):
    texts = {"README.md": "# Top", "docs/README.md": "# Below", "docs/config.rst": "Config", "src/a.py": "def"}
    names = names_of(project)
    assert {name.partition(":")[0] for name in names} == texts.keys()
    for name in names:
        assert project.vmrag("show", name).out.startswith(texts[name.partition(":")[0]]), name


def test_show_accepts_every_name_that_query_prints_in_a_subfolder(project):
    folder = project.top / "docs"
    shown = project.vmrag("-C", str(folder), "query", "timeout").out
    names = [line.split()[1] for line in shown.splitlines() if re.match(r"\d+\. ", line)]
    assert {name.partition(":")[0] for name in names} == {"./README.md", "../README.md", "./config.rst", "../src/a.py"}
    for name in names:
        text = project.vmrag("-C", str(folder), "show", name).out
        assert text == (folder / name.partition(":")[0]).read_text(), name


def test_show_accepts_the_name_of_a_file_in_a_commit(project):
    commit(project, "other", **{"docs/config.rst": "Config\n"})
    (name,) = names_of(project, "-k", "1", "--at", "HEAD~1", "--path", "config.rst")
    assert name == f"{project.git('rev-parse', '--short=7', 'HEAD~1')}:docs/config.rst:4"
    assert project.vmrag("show", name).out == CONFIG


@pytest.mark.parametrize("command", ["log", "blame", "show"])
def test_path_means_the_file_before_an_equal_full_name(project, command):
    commit(project, "top changes", **{"README.md": "# Top again\n"})
    below, top = (project.vmrag(command, name).out for name in ("docs/README.md", "docs//README.md"))
    assert ("Below" in below, "Top" in below) == (command != "log", False)
    assert ("top changes" if command == "log" else "Top again") in top
    assert "top changes" not in below


def test_list_and_grep_and_diff_print_paths(project):
    listed = project.vmrag("list").out.splitlines()
    assert [line.split()[0] for line in listed] == ["README.md", "docs/README.md", "docs/config.rst", "src/a.py"]
    assert "docs/config.rst:4:The timeout is thirty seconds." in project.vmrag("grep", "thirty").out
    assert project.vmrag("grep", "-l", "below").out == "docs/README.md\n"
    (project.top / "docs/config.rst").write_text("Config\n")
    assert project.vmrag("diff", "--name-only").out == "docs/config.rst\n"
    assert "    modified:  docs/config.rst\n" in project.vmrag("status").out


def test_answers_for_programs_keep_collection_and_id(project):
    hit = project.ask("query", "thirty seconds", "-k", "1")["results"][0]
    assert (hit["collection"], hit["doc_id"], hit["file"], hit["file_line"], hit["name"]) == (
        *("docs", "docs/config.rst"),
        *("docs/config.rst", 4, "docs/config.rst"),
    )
    (match,) = project.ask("grep", "thirty")["documents"]
    assert (match["collection"], match["doc_id"], match["name"]) == ("docs", "docs/config.rst", "docs/config.rst")


def test_path_in_several_collections_has_the_name_of_the_collection(project):
    store_copy(project)
    names = names_of(project, "--path", "config.rst")
    assert sorted(names) == ["docs/docs/config.rst", "kept/docs/config.rst"]
    listed = project.vmrag("list").out
    assert "  docs/docs/config.rst  " in listed
    assert "  docs/README.md  " in listed
    assert "kept/docs/config.rst" in project.vmrag("list", "--collection", "kept").out
    assert "docs/docs/config.rst" in project.vmrag("list", "--collection", "docs").out
    for name in names:
        assert project.vmrag("show", name).out == CONFIG


def test_stored_name_that_is_also_a_path_has_two_slashes(project):
    project.vmrag("init", "--knowledge-base", "--no-sources", "--no-hooks")
    project.put("a.py", "the stored timeout\n", collection="src")
    project.vmrag("commit", "-m", "src")
    assert "  src//a.py  " in project.vmrag("list").out
    assert "src//a.py" in names_of(project)
    assert project.vmrag("show", "src//a.py").out == "the stored timeout\n"
    assert project.vmrag("show", "src/a.py").out == "def timeout():\n    pass\n"


# -- golden queries


def test_golden_queries_accept_paths_and_keep_recorded_names(project):
    project.write(
        ".vmrag/queries.yaml",
        "queries:\n"
        "  - query: thirty seconds\n    expect: [docs/config.rst]\n    first: docs/docs/config.rst\n"
        "  - query: timeout above\n    first: docs/README.md\n"  # the full name of README.md
        "  - query: timeout below\n    first: docs/docs/README.md\n"
        "  - query: timeout\n",
    )
    project.vmrag("check", "--update")
    written = (project.top / ".vmrag/queries.yaml").read_text()
    assert "document: docs/docs/config.rst" in written
    assert "4 queries answered as expected" in project.vmrag("check").out
    commit(project, "less", **{"docs/config.rst": "Config\n\ntimeout\n"})
    missed = project.vmrag("check", code=1).out
    assert " docs/config.rst #0" in missed
    assert "docs/docs/config.rst" not in missed


def test_report_and_compared_answers_print_paths(project):
    commit(project, "ask", **{".vmrag/queries.yaml": "queries:\n  - query: thirty\n    first: docs/docs/config.rst\n"})
    commit(project, "less", **{"docs/config.rst": "Config\n", "README.md": "# Top\n\nthirty\n"})
    report = project.vmrag("report", "HEAD~1").out
    assert "docs/config.rst is not the first" in report
    assert " M  docs/config.rst (file)" in report
    assert "docs/docs/config" not in report + project.vmrag("diff", "--queries", "HEAD~1", "HEAD").out
    assert "docs/docs/config" not in project.vmrag("query", "thirty", "--since", "HEAD~1").out


# -- tools


def test_read_takes_every_place_that_search_and_grep_show(project):
    store_copy(project)
    tools = Tools(project.top, chosen=ToolChoice("essential"))
    places = [place for query in ("timeout", "thirty") for place in tools("search", query=query).places]
    assert {"README.md:1-3", "docs/README.md:1-3", "docs/docs/config.rst:1-4"} <= set(places)
    texts = {place: tools("read", name=place).text for place in places}
    assert texts["README.md:1-3"].startswith("# Top")
    assert texts["docs/README.md:1-3"].startswith("# Below")
    lines = tools("grep", pattern="thirty").body
    assert sorted(line.partition(":")[0] for line in lines) == ["docs/docs/config.rst", "kept/docs/config.rst"]
