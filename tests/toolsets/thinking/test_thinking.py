"""Thoughts: their places in sessions and branches, and how they are found again."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from tests.support import notes
from tests.support.mcp import Tools
from vmrag_link.embedding.hash_model import HashModel

pytestmark = pytest.mark.hooks("off")

template, project, tools = notes.template, notes.project, notes.tools


def think(tools: Tools, text: str, number: int, **more: Any) -> dict[str, Any]:
    return tools(
        "chroma_sequential_thinking", thought=text, thought_number=number, total_thoughts=4, session_id="plan", **more
    )


def told(tools: Tools, **more: Any) -> list[tuple[str, str]]:
    """Return the session's thoughts in order: position and text of each."""
    session_thoughts = tools("chroma_get_session_summary", session_id="plan", **more)["session_thoughts"]
    return [
        (f"{thought['metadata']['branch_id']}{thought['metadata']['thought_number']}", thought["content"])
        for thought in session_thoughts
    ]


def similar(tools: Tools, query: str, **more: Any) -> list[tuple[str, float]]:
    similar_thoughts = tools("chroma_find_similar_thoughts", query=query, **{"threshold": 0.05} | more)[
        "similar_thoughts"
    ]
    return [(thought["id"], thought["similarity"]) for thought in similar_thoughts]


def leads(answer: dict[str, Any]) -> list[str]:
    return [f"{thought['branch_id']}{thought['thought_number']}" for thought in answer["previous_thoughts"]]


def test_session_has_a_trunk_and_branches_with_previous_thoughts(tools, project):
    for number, text in enumerate(("owls sleep by day", "bats sleep as well", "foxes do not"), start=1):
        answer = think(tools, text, number)
    assert (leads(answer), answer["replaced"]) == (["1", "2"], False)
    aside = think(tools, "count the owls", 2, branch_from_thought=1, branch_id="count")
    assert (aside["thought_id"], leads(aside)) == ("thought_plan_2_branch_count", ["1"])
    assert leads(think(tools, "and the bats", 3, branch_id="count")) == ["1", "count2"]
    unnamed = think(tools, "ask somebody", 4, branch_from_thought=3)
    assert (unnamed["branch_id"][:7], leads(unnamed)) == ("branch-", ["1", "2", "3"])
    trunk = [("1", "owls sleep by day"), ("2", "bats sleep as well"), ("3", "foxes do not")]
    assert told(tools)[:5] == [*trunk, *told(tools)[3:5]]
    assert told(tools, include_branches=False) == trunk
    long = think(tools, "word " * 200, 9)
    assert long["previous_thoughts_count"] == 3, "those of branches lead elsewhere"
    assert max(len(thought["content"]) for thought in think(tools, "ten", 10)["previous_thoughts"]) == 300

    assert think(tools, "bats sleep in caves", 2, custom_data={"sure": 0.5, "why": ["a", {"b": 1}]})["replaced"]
    before = project.marks()
    again = think(tools, "bats sleep in caves", 2, custom_data={"sure": 0.5, "why": ["a", {"b": 1}]})
    assert (again["replaced"], project.marks()) == (False, before), "an equal thought changes nothing"
    [second] = [
        thought
        for thought in tools("chroma_get_session_summary", session_id="plan")["session_thoughts"]
        if thought["id"] == "thought_plan_2"
    ]
    assert second["content"] == "bats sleep in caves"
    assert second["metadata"]["custom_data"] == {"sure": 0.5, "why": ["a", {"b": 1}]}

    for wrong in (
        {"branch_from_thought": 7},
        {"branch_from_thought": 2, "branch_id": "count"},
        {"branch_id": "x" * 300},
        {"branch_id": "a\x00b"},
    ):
        arguments = {"thought": "x", "thought_number": 3, "total_thoughts": 3, "session_id": "plan"} | wrong
        tools.error("INVALID_PARAMETER", "chroma_sequential_thinking", **arguments)
    taken = {"thought": "x", "thought_number": 1, "total_thoughts": 1, "branch_id": "2"}
    tools("chroma_sequential_thinking", session_id="a", **taken)
    shadow = {"thought": "y", "thought_number": 2, "total_thoughts": 2, "session_id": "a_1_branch"}
    tools.error("INVALID_PARAMETER", "chroma_sequential_thinking", **shadow)


def test_thoughts_are_found_by_meaning_and_sessions_by_their_mean(tools, project):
    texts = ["owls sleep by day", "bats sleep in caves", "the index is too slow"]
    for number, text in enumerate(texts, start=1):
        think(tools, text, number)
    think(tools, "owls sleep in barns", 2, branch_from_thought=1, branch_id="aside")
    tools(
        "chroma_sequential_thinking",
        thought="measure the slow index",
        thought_number=1,
        total_thoughts=1,
        session_id="other",
    )
    alike = {"session_id": "plan", "thought_number": 7, "total_thoughts": 9}
    for name, metadata in (
        ("x", {}),
        ("y", alike),
        ("thought_plan_z", alike),
        ("thought_plan_7", {"thought_number": "7"}),
    ):
        given = ("--collection", "thinking_sessions_v1", "--id", name, "--metadata", json.dumps(metadata))
        project.vmrag("add", "-", *given, stdin="owls sleep by day")

    hits = similar(tools, "owls sleep by day")
    assert hits[0] == ("thought_plan_1", 1.0)
    assert {"x", "y", "thought_plan_z", "thought_plan_7"}.isdisjoint(dict(hits)), "of the same text, and no thoughts"
    assert [thought for thought, _ in similar(tools, "owls sleep by day", n_results=1)] == ["thought_plan_1"]
    assert "thought_plan_2_branch_aside" in dict(hits)
    assert "thought_plan_2_branch_aside" not in dict(similar(tools, "owls sleep by day", include_branches=False))
    assert [thought for thought, _ in similar(tools, "slow index", session_id="other")] == ["thought_other_1"]
    none = tools("chroma_find_similar_thoughts", query="bats", threshold=1)
    assert (none["similar_thoughts"], none["total_found"], none["threshold_used"]) == ([], 0, 1)
    assert f"threshold={none['best_similarity']}" in none["message"]

    answer = tools("chroma_find_similar_sessions", query="a slow index", threshold=0)
    assert [session["session_id"] for session in answer["similar_sessions"]] == ["other", "plan"]
    assert answer["best_similarity"] == answer["similar_sessions"][0]["similarity_score"]
    plan = answer["similar_sessions"][1]
    assert (plan["thought_count"], plan["summary"]) == (4, "owls sleep by day … the index is too slow")
    expected = mean_cosine("a slow index", [*texts, "owls sleep in barns"])
    assert plan["similarity_score"] == pytest.approx(expected, abs=0.01)
    think(tools, "measure a slow index", 3)
    [new] = [
        session
        for session in tools("chroma_find_similar_sessions", query="a slow index", threshold=0)["similar_sessions"]
        if session["session_id"] == "plan"
    ]
    assert new["similarity_score"] > plan["similarity_score"], "as the thoughts are now"

    project.git("config", "vmrag.thinking.threshold", "0.99")
    assert similar(tools, "slow index", threshold=-1.0) == []
    project.git("config", "--unset", "vmrag.thinking.threshold")
    assert tools("chroma_find_similar_thoughts", query="x")["threshold_used"] == 0.25, "what suits `hash`"


def mean_cosine(query: str, texts: list[str]) -> float:
    model = HashModel()
    mean = [sum(column) for column in zip(*(floats(entry) for entry in model.embed(texts)), strict=True)]
    [query_vector] = model.embed_queries([query])
    dot = sum(a * b for a, b in zip(mean, floats(query_vector), strict=True))
    return dot / math.sqrt(sum(number * number for number in mean))


def floats(vector: bytes) -> list[float]:
    return [*memoryview(vector).cast("f")]


def test_thoughts_belong_to_their_branch_and_stay_out_of_queries(tools, project):
    think(tools, "zebras have stripes", 1)
    assert "zebras" not in str(project.ask("query", "zebras stripes")["results"])
    [hit] = project.ask("query", "zebras stripes", "--collection", "thinking_sessions_v1")["results"]
    assert hit["doc_id"] == "thought_plan_1"
    tools("dolt_commit", message="thoughts")
    project.git("commit", "-qam", "thoughts")
    project.git("switch", "-q", "-c", "aside", "HEAD~1")
    assert told(tools) == []
    assert similar(tools, "zebras") == []
    assert tools("chroma_find_similar_sessions", query="zebras")["best_similarity"] is None
    think(tools, "lions have none", 1)
    think(tools, "so do not ask them", 2)
    tools("dolt_commit", message="others")
    project.git("commit", "-qam", "others")
    project.git("switch", "-q", "main")
    assert told(tools) == [("1", "zebras have stripes")]
    conflict = tools.error("MERGE_CONFLICT", "merge_branch", source="aside")
    assert [document["doc_id"] for document in conflict["details"]["conflicts"]] == ["thought_plan_1"]
    tools("resolve_conflicts", table="all", strategy="theirs", commit=True)
    assert told(tools) == [("1", "lions have none"), ("2", "so do not ask them")]
    kinds = {collection["name"]: collection["kind"] for collection in tools("chroma_list_collections")["collections"]}
    assert kinds == {"notes": "chroma", "thinking_sessions_v1": "system"}
