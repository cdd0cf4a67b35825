"""Answers to questions about other subjects, and passages far below the best one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.mcp import Tools
from tests.support.repos import isolate
from tests.support.terminal import Project, new_project
from vmrag_link.embedding import registry
from vmrag_link.index import keywords
from vmrag_link.retrieval.query import FIRST_HITS, Hit
from vmrag_link.retrieval.weakness import WEAK_NOTE, select_relevant, shares_rare_word
from vmrag_mcp.options import ToolChoice

pytestmark = pytest.mark.hooks("off")

SETTINGS = """\
embedding:
  model: default
sources:
- collection: docs
  paths: [docs/]
"""
TOPICS = ("timeouts", "retries", "tokens", "caches", "queues", "hooks", "indexes", "merges", "branches", "settings")
OTHER = "how long should a sourdough loaf rest before baking"
OURS = "after which time does the gateway drop a request"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    isolate(monkeypatch, tmp_path / "home")
    project = new_project(tmp_path / "project", settings=SETTINGS)
    for topic in TOPICS:
        lines = "\n".join(f"The setting {topic}_{number} changes how {topic} are handled." for number in range(40))
        project.write(f"docs/{topic}.md", f"# About {topic}\n\n{lines}\n")
    project.write("docs/gateway.md", "# Gateway\n\nThe gateway drops a slow request after 30 seconds.\n")
    project.git("add", "-A")
    project.git("commit", "-q", "-m", "Begin")
    return project


def search_text(project: Project, query: str, **more: object) -> str:
    text, failed = Tools(project.top, chosen=ToolChoice("essential")).run("search", {"query": query, **more})
    assert not failed, text
    return text


def list_files(text: str) -> list[str]:
    return re.findall(r"^(docs/\S+):\d+", text, re.MULTILINE)


@pytest.mark.parametrize("more", [{}, {"ref": "HEAD"}], ids=["work tree", "ref"])
def test_search_shortens_weak_answer(project, more):
    text = search_text(project, OTHER, **more)
    assert 1 <= len(list_files(text)) <= FIRST_HITS
    assert len(text) < 2_000
    assert f"{WEAK_NOTE}." in text.splitlines()[-1]
    assert "more with a larger" not in text


def test_search_leaves_out_passages_far_below_best(project):
    text = search_text(project, OURS)
    assert list_files(text)[0] == "docs/gateway.md"
    assert len(list_files(text)) <= FIRST_HITS
    assert len(text) < 8_000
    assert WEAK_NOTE not in text
    assert "more with a larger" not in text


def test_search_counts_left_out_passages_that_are_worth_reading(project):
    text = search_text(project, "which settings change how caches are handled", max_tokens=300)
    assert re.search(r"; [1-9]\d* more with a larger max_tokens", text)


def test_query_marks_weak_answer(project):
    answer = project.ask("query", OTHER)
    assert answer["weak"] is True
    assert len(answer["results"]) == 5, "nothing is hidden"
    assert WEAK_NOTE in project.vmrag("query", OTHER).out.splitlines()
    packed = project.ask("query", OTHER, "--budget", "2000")
    assert packed["weak"] is True
    assert packed["tokens"] > 1_000
    assert WEAK_NOTE in project.vmrag("query", OTHER, "--budget", "2000").out.splitlines()
    assert "weak" not in project.ask("query", OURS)
    assert project.ask("query", f"{OTHER} in a setting", "--mode", "keyword")["weak"] is True
    assert "weak" not in project.ask("query", OURS, "--mode", "keyword")
    assert WEAK_NOTE not in project.vmrag("query", OURS).out


def test_chroma_query_documents_marks_weak_answers(project):
    tools = Tools(project.top)
    answer = tools("chroma_query_documents", query_texts=[OTHER, OURS], n_results=4)
    assert [result.get("weak") for result in answer["results"]] == [True, None]
    assert all(len(result["matches"]) == 4 for result in answer["results"])
    assert tools("chroma_query_documents", query_texts=[OTHER], max_tokens=2000)["weak"] is True
    assert "weak" not in tools("chroma_query_documents", query_texts=[OURS], max_tokens=2000)


def test_query_marks_no_answer_with_rare_word(project):
    assert "weak" not in project.ask("query", "sourdough gateway")


def test_models_declare_measured_cosines_of_unrelated_texts():
    assert [registry.load_model(name).unrelated for name in ("default", "hash", "minilm")] == [0.3, 0.35, None]


def test_hits_far_below_best_are_not_worth_reading():
    scores = (1.0, 0.9, 0.5, 0.4, 0.3)
    hits = [Hit(rank, "docs", f"{rank}", 0, 1, score, "", "", {}) for rank, score in enumerate(scores, start=1)]
    assert [hit.rank for hit in select_relevant(hits)] == [1, 2, 3]
    even = [Hit(rank, "docs", f"{rank}", 0, 1, 0.7, "", "", {}) for rank in range(1, 9)]
    assert len(select_relevant(even)) == 8
    assert select_relevant([]) == []


@pytest.mark.parametrize(
    ("query", "text", "shares"),
    [
        ("Scheinwerfer", "Der Rückfahrscheinwerfer ist defekt.", True),
        ("Scheinwerfer", "Der Schein wirft Schatten.", False),
        ("蓄電池", "停電の後は蓄電池を点検", True),
        ("蓄電池", "停電の後は点検", False),
        ("cafe\u0301", "Das CAFÉ", True),
    ],
)
def test_hit_shares_rare_word_in_any_language(query, text, shares):
    hit = Hit(1, "docs", "a.md", 0, 1, 1.0, text, "", {})
    holding = {tuple(terms): 1 for terms in keywords.find_query_terms(query)}
    assert shares_rare_word(hit, holding, 100) is shares
