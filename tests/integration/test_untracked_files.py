"""Untracked files of sources: searched in one query, and counted if they would be results."""

from __future__ import annotations

import pytest

from tests.support.mcp import Tools
from tests.support.repos import isolate
from tests.support.sources import SETTINGS, commit
from tests.support.terminal import Project, new_project
from vmrag_mcp.options import ToolChoice

pytestmark = pytest.mark.hooks("off")

PAGES = {f"docs/page{number}.md": f"# Page {number}\n\nwalrus herd {number}\n" for number in range(6)}
NOTICE = "1 untracked file matches; run 'vmrag query --untracked' to search untracked files\n"


@pytest.fixture
def project(tmp_path, monkeypatch) -> Project:
    """Without a knowledge base; `docs/new.md` is untracked."""
    isolate(monkeypatch, tmp_path / "home")
    made = new_project(tmp_path / "work", settings=SETTINGS)
    commit(made, "begin", **PAGES, **{"src/a.py": "def f():\n    pass\n", ".gitignore": "docs/secret.md\n"})
    made.write("docs/new.md", "# New\n\nThe otter swims.\n")
    made.write("docs/secret.md", "# Secret\n\nThe otter sleeps.\n")
    return made


def paths(project: Project, *arguments: str) -> list[str]:
    return [hit["doc_id"] for hit in project.ask("query", *arguments)["results"]]


def test_query_searches_untracked_files_with_the_option_only(project):
    assert paths(project, "otter", "--untracked", "--mode", "keyword") == ["docs/new.md"]
    assert paths(project, "otter", "--mode", "keyword") == []
    assert "(1 untracked not searched)" in project.vmrag("query", "otter").out
    shown = project.vmrag("query", "otter", "--untracked", "-k", "1").out
    assert shown.startswith("1. docs/new.md:3  New  (added)\n")
    assert "not searched" not in shown
    assert "docs/new.md:1-3" in project.vmrag("query", "otter", "--untracked", "--budget", "200").out


def test_untracked_file_that_changed_answers_as_it_is(project):
    assert paths(project, "otter", "--untracked", "-k", "1") == ["docs/new.md"]
    project.write("docs/new.md", "# New\n\nThe badger digs.\n")
    assert paths(project, "badger", "--untracked", "-k", "1", "--mode", "keyword") == ["docs/new.md"]
    (project.top / "docs/new.md").unlink()
    assert paths(project, "badger", "--untracked", "-k", "1", "--mode", "keyword") == []


def test_query_refuses_untracked_files_of_a_commit(project):
    assert (
        project.vmrag("query", "otter", "--untracked", "--at", "HEAD", "--json", code=2).error["code"]
        == "INVALID_PARAMETER"
    )


def test_ask_counts_the_untracked_files_that_would_be_results(project):
    project.git("config", "vmrag.sources-untracked", "ask")
    for arguments in (["otter swims", "-k", "2"], ["otter swims", "--budget", "300"]):
        assert project.vmrag("query", *arguments).out.endswith(NOTICE)
    assert "match" not in project.vmrag("query", "walrus herd 3", "-k", "2").out
    block = project.ask("query", "otter swims", "-k", "2")["kb"]["sources"]
    assert (block["untracked"], block["untracked_matches"]) == (1, 1)
    project.write("docs/newer.md", "# Newer\n\nAn otter swims, too.\n")
    assert (
        "\n2 untracked files match; run 'vmrag query --untracked' to search untracked files\n"
        in project.vmrag("query", "otter swims").out
    )
    project.git("add", "docs/new.md", "docs/newer.md")
    assert "match" not in project.vmrag("query", "otter swims").out


def test_ask_needs_no_agreement_and_true_still_does(project):
    commit(project, "ask", **{".vmrag.yaml": f"sources_untracked: ask\n{SETTINGS}"})
    project.write("docs/late.md", "# Late\n\nThe heron waits.\n")
    answer = project.vmrag("query", "heron", "-k", "1")
    assert answer.err == ""
    assert answer.out.endswith(NOTICE)
    commit(project, "true", **{".vmrag.yaml": f"sources_untracked: true\n{SETTINGS}"})
    project.write("docs/later.md", "# Later\n\nThe crane leaves.\n")
    assert paths(project, "crane", "--mode", "keyword") == []
    project.vmrag("trust", "--yes")
    assert paths(project, "crane", "--mode", "keyword") == ["docs/later.md"]


@pytest.mark.parametrize("word", ["yes", "on", "true", "1"])
def test_git_config_accepts_words_for_true(project, word):
    project.git("config", "vmrag.sources-untracked", word)
    assert paths(project, "otter", "--mode", "keyword") == ["docs/new.md"]


def test_untracked_files_are_not_read_if_too_many(project, monkeypatch):
    monkeypatch.setattr("vmrag_link.workspace.answers.query.MAX_UNTRACKED_FILES", 0)
    project.git("config", "vmrag.sources-untracked", "ask")
    assert "(1 untracked not searched)\n" in project.vmrag("query", "otter swims").out


def test_search_of_an_agent_has_the_notice(project):
    tools = Tools(project.top, chosen=ToolChoice("essential"))
    assert "untracked" not in tools("search", query="otter swims").message
    project.git("config", "vmrag.sources-untracked", "ask")
    tools = Tools(project.top, chosen=ToolChoice("essential"))
    assert NOTICE.strip() in tools("search", query="otter swims").message


def test_sources_names_an_exclude_that_matches_nothing(project):
    exclude = '    exclude: ["docs/drafts/", "docs/new.md", "docs/page1*", "docs/secret.md"]\n'
    settings = SETTINGS.replace("  - collection: code", f"{exclude}  - collection: code")
    commit(project, "exclude", **{".vmrag.yaml": settings})
    project.git("rm", "-q", "--cached", "docs/new.md")
    (docs, code) = project.ask("sources")["sources"]
    assert docs["unmatched_exclude"] == ["docs/drafts/", "docs/secret.md"]
    assert code["unmatched_exclude"] == []
    shown = project.vmrag("sources").out
    assert "  exclude: docs/drafts/, docs/secret.md match no file of this source\n" in shown
    project.write("docs/drafts/a.md", "# A\n")
    assert "  exclude: docs/secret.md matches no file of this source\n" in project.vmrag("sources").out
