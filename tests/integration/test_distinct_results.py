"""One result for a page in several languages, and for copies of a passage."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.mcp import Tools
from tests.support.repos import isolate
from tests.support.sources import commit
from tests.support.terminal import Project, new_project
from vmrag_mcp.options import ToolChoice

pytestmark = pytest.mark.hooks("off")

SETTINGS = """\
embedding:
  model: default
sources:
- collection: docs
  paths: [docs/, vendor/]
"""
ENGLISH = (
    "# Gateway timeouts\n\nThe gateway drops a slow request after thirty seconds. Set `drop_after` to change this.\n"
)
FRENCH = "# Délais du gateway\n\nLe gateway abandonne une requête lente après trente secondes. Changez `drop_after`.\n"
CHINESE = "# gateway 超时\n\ngateway 会在三十秒后丢弃慢请求。修改 `drop_after`。\n"
QUESTION = "after which time does the gateway drop a request"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    isolate(monkeypatch, tmp_path / "home")
    project = new_project(tmp_path / "project", settings=SETTINGS)
    project.write("docs/timeouts.md", ENGLISH)
    project.write("docs/fr/timeouts.md", FRENCH)
    project.write("docs/zh-cn/timeouts.md", CHINESE)
    for number in range(12):
        project.write(
            f"docs/page{number}.md", f"# Page {number}\n\nThe gateway has part {number}, and part {number * 7}.\n"
        )
    return project


def results(project: Project, query: str, *options: str) -> list[dict]:
    return project.ask("query", query, *options)["results"]


@pytest.mark.parametrize("mode", ["hybrid", "keyword", "vector"])
def test_translations_fill_one_result(project, mode):
    commit(project, "Begin")
    hits = results(project, QUESTION, "-k", "10", "--mode", mode)
    pages = [hit for hit in hits if hit["doc_id"].endswith("timeouts.md")]
    assert [(hit["doc_id"], hit["also_in"]) for hit in pages] == [("docs/timeouts.md", ["fr", "zh-cn"])]
    assert len(hits) == 10, "further results take the places"
    assert [hit["rank"] for hit in hits] == [*range(1, 11)]
    assert [hit["score"] for hit in hits] == sorted((hit["score"] for hit in hits), reverse=True)
    assert all(hit["also_in"] == [] for hit in hits if hit not in pages)


def test_result_is_in_language_of_question(project):
    commit(project, "Begin")
    french = results(project, "après combien de secondes le gateway abandonne une requête")[0]
    assert (french["doc_id"], french["also_in"]) == ("docs/fr/timeouts.md", ["docs/timeouts.md", "zh-cn"])
    chinese = results(project, "gateway 会在多久后丢弃慢请求")[0]
    assert (chinese["doc_id"], chinese["also_in"]) == ("docs/zh-cn/timeouts.md", ["docs/timeouts.md", "fr"])


def test_path_finds_translation(project):
    commit(project, "Begin")
    hits = results(project, QUESTION, "--path", "docs/fr/**")
    assert [hit["doc_id"] for hit in hits] == ["docs/fr/timeouts.md"]


def test_copies_fill_one_result(project):
    project.write("docs/__e2e__/site/timeouts-copy.md", ENGLISH)
    project.write("vendor/gateway/timeouts.md", ENGLISH.upper())
    commit(project, "Begin")
    hit, second = results(project, QUESTION)[:2]
    others = ["fr", "zh-cn", "docs/__e2e__/site/timeouts-copy.md", "vendor/gateway/timeouts.md"]
    assert (hit["doc_id"], hit["also_in"]) == ("docs/timeouts.md", others)
    assert second["doc_id"].startswith("docs/page")


def test_many_translations_leave_room_for_further_results(project):
    languages = (
        "af ar bg bn bs ca cs cy da de el es et eu fa fi ga gl gu he hi hr hu hy id is it ja ka kk km kn ko ku".split()
    )
    for language in languages:
        project.write(f"docs/{language}/timeouts.md", f"{ENGLISH}\n{language} " + "drop request gateway time " * 3)
        project.write(
            f"docs/{language}/long.md",
            "\n\n".join(f"## {n}\n\ndrop request gateway time {language} {n}" for n in range(9)),
        )
    project.write("docs/long.md", "\n\n".join(f"## {n}\n\nA drop of the gateway in time {n}" for n in range(9)))
    commit(project, "Begin")
    hits = results(project, QUESTION, "-k", "12")
    assert len(hits) == 12
    assert not [hit["doc_id"] for hit in hits if hit["doc_id"].split("/")[1] in languages]
    assert [hit["also_in"] for hit in hits if hit["doc_id"] == "docs/timeouts.md"] == [
        sorted([*languages, "fr", "zh-cn"])
    ]


def test_terminal_and_tool_name_translations(project):
    commit(project, "Begin")
    assert "also in: fr, zh-cn" in [line.strip() for line in project.vmrag("query", QUESTION).out.splitlines()]
    text, failed = Tools(project.top, chosen=ToolChoice("essential")).run("search", {"query": QUESTION})
    assert not failed
    assert text.splitlines()[0].startswith("docs/timeouts.md:")
    assert "also in: fr, zh-cn" in text.splitlines()[0]
    results_found = Tools(project.top)("chroma_query_documents", query_texts=[QUESTION])["results"][0]["matches"]
    assert [match.get("also_in") for match in results_found][:2] == [["fr", "zh-cn"], None]
    results_found = Tools(project.top)("chroma_query_documents", query_texts=[QUESTION], max_tokens=2000)["passages"]
    assert [passage.get("also_in") for passage in results_found][:2] == [["fr", "zh-cn"], None]
    packed = project.ask("query", QUESTION, "--budget", "2000")
    assert packed["passages"][0]["also_in"] == ["fr", "zh-cn"]


def test_data_ranks_below_text_unless_question_names_its_file(project):
    data = " ".join(f"0.29 0.30 M{number}.29 {number * 7}.30" for number in range(30))
    project.write("docs/icon-table.md", f"{data}\n")
    project.write(
        "docs/upgrade.md",
        "To migrate to a new version, read this page. Version 0.30 renames an option of the gateway.\n",
    )
    commit(project, "Begin")
    results_found = [hit["doc_id"] for hit in results(project, "migrate from 0.29 to 0.30")]
    assert results_found.index("docs/upgrade.md") < results_found.index("docs/icon-table.md")
    assert results(project, "icon-table.md 0.29 0.30")[0]["doc_id"] == "docs/icon-table.md"
