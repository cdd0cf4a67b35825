"""`vmrag query`: the query, the revision that answers, and files that stay unchanged."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from tests.support import terminal
from tests.support.mcp import Tools
from tests.support.terminal import Project
from vmrag_link.index.seal import VERIFIED

pytestmark = pytest.mark.hooks("off")

template, project = terminal.template, terminal.project


def found(project: Project, *arguments: str) -> list[str]:
    return [result["doc_id"] for result in project.ask("query", *arguments)["results"]]


def fingerprints(folder: Path) -> dict[str, str]:
    """Return the content of each file except locks, logs, and notes of verified contents."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file() and ".lock" not in path.name and path.name != VERIFIED
    }


@pytest.fixture
def library(project: Project) -> Project:
    """Documents with metadata, in two collections, uncommitted."""
    for number, team in enumerate(("core", "core", "web", "web"), start=1):
        metadata = json.dumps({"team": team, "year": 2020 + number, "open": number % 2 == 0})
        text = f"Release notes number {number} of the team {team}."
        project.vmrag("add", "-", "--collection", "notes", "--id", f"note-{number}", "--metadata", metadata, stdin=text)
    return project


# -- another ref -----------------------------------------------------------------------------------


def test_query_at_a_ref_answers_like_on_that_branch(project):
    project.put("draft.md", "A draft about uv.")
    before = fingerprints(project.own), fingerprints(project.shared / "kb"), project.git("status", "--short")
    at_feature, at_first = project.answers("feature"), project.answers("first")
    block = project.ask("query", "uv", "--at", "feature")["kb"]
    after = fingerprints(project.own), fingerprints(project.shared / "kb"), project.git("status", "--short")
    assert after == before
    assert block["commit"] == json.loads(project.git("show", "feature:.dolt-version"))["dolt_commit"]
    assert (block["branch"], block["dirty"], block["in_sync"]) == (None, False, True)
    project.git("switch", "-q", "feature")
    assert project.answers() == at_feature
    project.git("switch", "-q", "--detach", "first")
    assert project.answers() == at_first
    assert len({json.dumps(answers) for answers in (at_feature, at_first, project.answers("main"))}) == 3


@pytest.mark.parametrize("ref", ["feature", "HEAD~1", "first", "refs/heads/feature", "@{u}"])
def test_at_accepts_any_name_of_a_commit(project, ref):
    if ref == "@{u}":
        project.git("branch", "-q", "--set-upstream-to", "feature")
    pinned = json.loads(project.git("show", f"{ref}:.dolt-version"))["dolt_commit"]
    assert project.ask("query", "rest", "--at", ref)["kb"]["commit"] == pinned


def test_query_at_a_ref_without_a_usable_pin_fails(project):
    project.git("switch", "-q", "--orphan", "ancient")
    project.commit("ancient", **{"notes.data": "1"})
    error = project.vmrag("query", "x", "--at", "ancient", "--json", code=1).error
    assert error["code"] == "NO_PIN"
    pin = json.loads(project.git("show", "main:.dolt-version")) | {"dolt_commit": "0" * 40}
    project.commit("elsewhere", pin=json.dumps(pin))
    assert project.vmrag("query", "x", "--at", "ancient", "--json", code=1).error["code"] == "PIN_MISSING_REVISION"
    project.commit("broken", pin="{")
    assert project.vmrag("query", "x", "--at", "ancient", "--json", code=1).error["code"] == "PIN_MALFORMED"


def test_uncommitted_documents_answer_in_the_worktree_only(project):
    project.put("draft.md", "Zebras live here.")
    assert found(project, "zebras", "--mode", "keyword") == ["draft.md"]
    assert found(project, "zebras", "--mode", "keyword", "--at", "main") == []


# -- ranking and filters ---------------------------------------------------------------------------


def test_modes_rank_by_words_by_meaning_and_by_both(project):
    keyword = project.ask("query", "certificates", "--mode", "keyword")["results"]
    assert [document["doc_id"] for document in keyword] == ["deep/tls.txt"]
    vector = project.ask("query", "certificates", "--mode", "vector")["results"]
    assert len(vector) == 4
    assert [result["score"] for result in vector] == sorted((result["score"] for result in vector), reverse=True)
    hybrid = project.ask("query", "certificates", "--mode", "hybrid")
    assert hybrid["results"] == project.ask("query", "certificates")["results"]
    project.git("config", "vmrag.retrieval.mode", "keyword")
    assert project.ask("query", "certificates")["results"] == keyword


def test_filters_over_metadata_and_texts(library):
    assert set(found(library, "release", "--where", '{"team": "core"}')) == {"note-1", "note-2"}
    assert set(found(library, "release", "--where", '{"year": {"$gte": 2023}}')) == {"note-3", "note-4"}
    assert found(library, "release", "--where", '{"team": "core", "open": true}') == ["note-2"]
    assert set(found(library, "release", "--where", '{"$or": [{"year": 2021}, {"year": 2024}]}')) == {
        "note-1",
        "note-4",
    }
    assert found(library, "release", "--where-document", '{"$contains": "number 3"}') == ["note-3"]
    assert found(library, "release", "--where", '{"team": "nobody"}') == []
    for mode in ("keyword", "vector"):
        assert found(library, "notes", "--mode", mode, "--where", '{"year": 2022}') == ["note-2"]


def test_collections_are_searched_together_or_by_name(library):
    assert set(found(library, "release install", "-k", "50")) == set(library.marks())
    assert set(found(library, "release install", "-k", "50", "--collection", "notes")) == {
        f"note-{n}" for n in (1, 2, 3, 4)
    }
    both = found(library, "release install", "-k", "50", "--collection", "notes", "--collection", "handbook")
    assert both == found(library, "release install", "-k", "50")
    error = library.vmrag("query", "x", "--collection", "noets", "--json", code=3).error
    assert error["code"] == "COLLECTION_NOT_FOUND"
    assert error["details"]["collections"] == ["handbook", "notes"]
    assert "Did you mean 'notes'?" in error["message"]
    assert error["hint"] == "use one of these collections: handbook, notes"


def test_k_limits_the_answer(library):
    assert len(found(library, "release", "-k", "2")) == 2
    assert len(found(library, "release")) == 5
    library.git("config", "vmrag.retrieval.k", "3")
    assert len(found(library, "release")) == 3
    assert found(library, "release", "-k", "3") == found(library, "release", "-k", "50")[:3]


def test_empty_result_is_an_answer(project):
    assert project.ask("query", "zzzzqqq", "--mode", "keyword")["results"] == []
    said = project.vmrag("query", "zzzzqqq", "--mode", "keyword").out.splitlines()
    assert said[0] == "Nothing found."
    assert said[1].startswith("from revision ")


@pytest.mark.parametrize(
    "text", ['"', "'; DROP TABLE chunks --", "NEAR(a b)", "*", "AND OR NOT", "日本語", "a\nb", "-x"]
)
def test_query_accepts_any_text(project, text):
    assert project.vmrag("query", "--json", "--", text).json["kb"]["in_sync"] is True


@pytest.mark.parametrize("text", ["", " \n"])
def test_empty_query_is_a_mistake_of_the_call(project, text):
    error = project.vmrag("query", "--json", "--", text, code=2).error
    assert (error["code"], error["message"], error["hint"]) == (
        "INVALID_PARAMETER",
        "the query is empty.",
        "write a question or some words",
    )
    assert (
        "query"
        in Tools(project.top).error("INVALID_PARAMETER", "chroma_query_documents", query_texts=[text])["message"]
    )


def test_query_works_from_any_directory(project, tmp_path):
    expected = project.answers()[0]
    for arguments in (("-C", "docs/deep"), ("-C", str(project.top))):
        assert found(project, *arguments, "install the program", "-k", "20") == [name[1] for name in expected]
        outside = project.ask(*arguments, "query", "install the program", "-k", "20")
        assert [result["doc_id"] for result in outside["results"]] == [name[1] for name in expected]
    elsewhere = Project(tmp_path)
    assert elsewhere.ask("-C", "project", "query", "rest")["kb"]["worktree"] == str(project.top)


# -- diff, log, fingerprint ------------------------------------------------------------------------


def test_diff_shows_uncommitted_changes_and_differences_of_refs(project):
    assert project.vmrag("diff").out == "no documents changed\n"
    project.put("setup.md", "Other.")
    project.put("new.md", "New.", collection="notes")
    assert project.vmrag("diff", "--stat").out.splitlines() == [
        "M  handbook/setup.md | +1 -7",
        "A  notes/new.md      | +1 -0",
        "1 document added, 1 modified; 2 words inserted(+), 7 deleted(-)",
        "Settings of collections: notes (added)",
    ]
    report = project.ask("diff", "main", "feature")
    assert [(document["kind"], document["doc_id"]) for document in report["documents"]] == [
        ("removed", "deep/tls.txt"),
        ("removed", "faq.md"),
        ("modified", "rest.md"),
        ("added", "uv.md"),
    ]
    back = project.ask("diff", report["new"], "main")
    assert back["changes"] == {"added": 2, "modified": 1, "removed": 1}
    assert (project.ask("diff", "first")["new"], project.ask("diff", "first")["changes"]["added"]) == ("WORKING", 2)


def test_log_goes_back_to_the_beginning(project):
    messages = [revision["message"] for revision in project.ask("log")["revisions"]]
    assert messages[:2] == ["faq", "first"]
    assert [revision["message"] for revision in project.ask("log", "feature")["revisions"]][:2] == ["uv", "first"]
    assert "first  (3 documents added)" in project.vmrag("log").out


def test_fingerprint_is_compared_with_a_hash_or_a_file(project):
    report = project.ask("fingerprint")
    (project.top / "hash.txt").write_text(project.vmrag("fingerprint").out)
    (project.top / "whole.json").write_text(json.dumps(report))
    for given in (report["fingerprint"], "hash.txt", "whole.json", str(project.top / "whole.json")):
        assert project.ask("-C", ".", "fingerprint", "--check", given)["equal"] is True
    output_lines = project.vmrag("fingerprint", "--check", "whole.json", "--at", "feature", code=1).out.splitlines()
    assert output_lines[1] == f"{report['fingerprint']} is expected"
    assert output_lines[2].startswith(f"the revision was {project.pinned[:7]} and is ")
    heavier = {"VMRAG_RETRIEVAL_VECTOR_WEIGHT": "0.9"}
    said = project.vmrag("fingerprint", "--check", "whole.json", code=1, env=heavier).out
    assert "ranking.vector_weight was 0.4 and is 0.9" in said
    project.put("draft.md", "A draft.")
    (project.top / "dirty.json").write_text(json.dumps(project.ask("fingerprint")))
    said = project.vmrag("fingerprint", "--check", "dirty.json", "--at", "HEAD", code=1).out
    assert "it included uncommitted documents" in said
    compared = project.ask("fingerprint", "--check", "hash.txt", code=1)
    assert (compared["equal"], compared["differences"]) == (
        False,
        ["the present fingerprint includes uncommitted documents; run 'vmrag diff' to list them"],
    )


def test_fingerprint_of_an_older_revision_is_not_compared(project):
    expected = project.ask("fingerprint")["fingerprint"]
    nowhere = "0" * len(project.pinned)  # of the form that the engine's own have
    pin = json.loads((project.top / ".dolt-version").read_text()) | {"dolt_commit": nowhere}
    project.write(".dolt-version", json.dumps(pin))
    project.git("add", ".dolt-version")
    assert project.ask("fingerprint")["fingerprint"] == expected
    error = project.vmrag("fingerprint", "--check", expected, "--json", code=1).error
    assert (error["code"], error["hint"]) == (
        "PIN_MISSING_REVISION",
        "run 'git remote add origin URL' to add one, then 'vmrag fetch'",
    )


@pytest.mark.parametrize(("given", "code"), [("missing.txt", 3), ("docs/setup.md", 2), ("abc", 3), (".vmrag.yaml", 2)])
def test_fingerprint_check_rejects_invalid_values(project, given, code):
    assert (
        "vmrag fingerprint --json" in project.vmrag("fingerprint", "--check", given, "--json", code=code).error["hint"]
    )


def test_equal_knowledge_has_an_equal_fingerprint(project, tmp_path):
    fingerprint = project.ask("fingerprint")["fingerprint"]
    assert project.ask("fingerprint", "--at", "feature")["fingerprint"] != fingerprint
    project.put("draft.md", "A draft.")
    assert project.ask("fingerprint")["fingerprint"] != fingerprint
    assert project.ask("fingerprint")["dirty"] is True
    project.drop("draft.md")
    assert project.vmrag("fingerprint").out.strip() == fingerprint
    other = terminal.new_project(tmp_path / "other")
    other.vmrag("init", "--knowledge-base", "--no-sources")
    docs = str(project.top / "docs")
    other.vmrag("import", docs, "--collection", "handbook", "--base", docs)
    other.put("faq.md", "A frequent question.")
    assert other.ask("fingerprint")["fingerprint"] == fingerprint
    assert other.answers() == project.answers()
