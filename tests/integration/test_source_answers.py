"""Answers about files of sources: citations, places in commits, current code, the origin of
answers, and whether the index equals the files.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.support import bits, sources
from tests.support import chat as language_model
from tests.support.repos import isolate
from tests.support.sources import change, commit
from tests.support.terminal import Project
from vmrag_link import hints
from vmrag_link.code import languages
from vmrag_link.sources import documents
from vmrag_link.sources.readable import convert_blob

pytestmark = pytest.mark.hooks("off")

chat = language_model.chat

FRONT = "---\ntitle: Deploying\n---\n# Deploying\n\nThe rollback script runs twice.\n"
LONG = "def far():\n" + "".join(f"    step_{number} = {number}\n" for number in range(20)) + "    return 'pelican'\n"
KEYS = "class Keys:\n\n    def rotate(self, days):\n        if days:\n            return 'zebra'\n"


@pytest.fixture
def project(tmp_path, monkeypatch) -> Project:
    """Without a knowledge base."""
    isolate(monkeypatch, tmp_path / "home")
    made = sources.sourced_project(tmp_path / "work")
    commit(made, "more", **{"docs/deploy.md": FRONT, "src/keys.py": KEYS, "src/far.py": LONG})
    return made


@pytest.fixture
def stocked(project) -> Project:
    """With a knowledge base, in which `notes/note.md` is."""
    project.vmrag("init", "--knowledge-base", "--no-sources", "--no-hooks")
    project.put("note.md", "# Note\n\nA stored text about otters.\n", collection="notes")
    project.vmrag("commit", "-m", "note")
    commit(project, "with a note")
    return project


def test_progress_of_the_first_query_counts_files(project, monkeypatch):
    monkeypatch.setattr("vmrag_link.cli.terminal.LINE_SECONDS", 0.0)
    monkeypatch.setattr("vmrag_link.sync.adding.BATCH_CHUNKS", 1)
    assert "indexing: 1 of " in (shown := project.vmrag("query", "rollback").err)
    assert all(line.endswith(" files") for line in shown.splitlines() if line.startswith("indexing: "))


# -- vmrag ask


def test_question_is_answered_from_files_without_a_knowledge_base(project):
    shown = project.vmrag("ask", "how often does the rollback script run", "--min-score", "0").out
    assert "The rollback script runs twice. [1]\n" in shown
    assert "[1] Deploying — docs/deploy.md\n" in shown
    assert shown.splitlines()[-1].startswith("from commit ")
    report = project.ask("ask", "rollback script", "--collection", "docs", "--min-score", "0")
    assert (report["sources"][0]["path"], report["sources"][0]["file"]) == ("docs/docs/deploy.md", "docs/deploy.md")


def test_row_of_a_long_table_is_shown_with_its_header_row(project):
    rows = "".join(f"| rotor_{number}_limit | int | {number} |\n" for number in range(120))
    text = f"# Limits\n\n## Rotors\n\n| name | type | kPa |\n|---|---|---|\n{rows}| quokka_limit | int | 22 |\n"
    commit(project, "limits", **{"docs/limits.md": text})
    hit = project.ask("query", "quokka_limit")["results"][0]
    assert (hit["doc_id"], hit["file_line"], hit["header_path"]) == ("docs/limits.md", 127, "Limits > Rotors")
    assert (hit["signature"], "| name |" in hit["text"]) == ("| name | type | kPa |", False)
    assert "… | name | type | kPa |" in project.vmrag("query", "quokka_limit").out
    passage = project.ask("query", "quokka_limit", "--budget", "500")["passages"][0]
    assert (passage["signature"], passage["heading"], passage["lines"][1]) == (
        "| name | type | kPa |",
        "Limits > Rotors",
        127,
    )


def test_operation_of_an_openapi_description_is_found_with_its_path(project):
    api = (Path(__file__).parents[1] / "data/formats/openapi.yaml").read_text()
    commit(project, "api", **{"docs/api.yaml": api})
    hit = project.ask("query", "drainTank")["results"][0]
    assert (hit["doc_id"], hit["file_line"], hit["header_path"]) == ("docs/api.yaml", 17, "paths > /drain > post")


def test_notebook_with_large_pictures_is_a_document_up_to_the_limit(project):
    project.write(".vmrag.yaml", (project.top / ".vmrag.yaml").read_text() + "sources_max_bytes: 2000\n")
    cell = {"cell_type": "code", "source": "numbat()", "outputs": [{"data": {"image/png": "iVBO" * 50_000}}]}
    project.write("docs/plot.ipynb", json.dumps({"cells": [cell]}))
    project.git("add", "-A")
    assert project.ask("query", "numbat")["results"][0]["doc_id"] == "docs/plot.ipynb"
    commit(
        project, "notebook", **{"docs/long.ipynb": json.dumps({"cells": [cell, cell | {"source": "quoll()\n" * 400}]})}
    )
    assert project.ask("query", "numbat", "--at", "HEAD")["results"][0]["doc_id"] == "docs/plot.ipynb"
    assert "quoll" not in str(project.ask("query", "quoll")["results"])
    assert "has text of more than 2,000 bytes" in project.vmrag("sources").out


def test_page_is_found_by_the_title_in_its_front_matter(project):
    page = "---\ntitle: Wombat burrows\n---\nThey dig at night.\n\n## Tools\n\nClaws.\n"
    commit(project, "page", **{"docs/burrows.md": page})
    hits = project.ask("query", "wombat", "--mode", "keyword")["results"]
    assert {(hit["doc_id"], hit["header_path"]) for hit in hits} == {
        ("docs/burrows.md", "Wombat burrows"),
        ("docs/burrows.md", "Tools"),
    }
    assert "Wombat" not in hits[0]["text"]


def test_front_matter_with_names_of_code_fields_stays_front_matter(project):
    odd = "---\nlast_line: 3\nsymbol: Odd\n---\n# Odd\n\nA pangolin sleeps.\n"
    commit(project, "odd", **{"docs/odd.md": odd})
    hit = project.ask("query", "pangolin")["results"][0]
    assert (hit["doc_id"], hit["file_line"], hit["header_path"], hit["symbol"]) == ("docs/odd.md", 7, "Odd", "")
    assert (hit["metadata"]["last_line"], hit["metadata"]["symbol"]) == (3, "Odd")
    passage = project.ask("query", "pangolin", "--budget", "500")["passages"][0]
    assert (passage["path"], passage["lines"], passage["heading"], passage["symbol"]) == (
        "docs/odd.md",
        [5, 7],
        "Odd",
        "",
    )


def test_question_is_answered_from_both_kinds(stocked):
    report = stocked.ask("ask", "a stored text about otters", "--min-score", "0", "--sources", "9")
    assert report["sources"][0]["path"] == "notes/note.md"
    assert "file" not in report["sources"][0]
    assert {source["path"].partition("/")[0] for source in report["sources"]} >= {"notes", "docs"}
    absent = stocked.vmrag("ask", "otters", "--collection", "absent", "--json", code=3)
    assert absent.error["code"] == "COLLECTION_NOT_FOUND"


def test_ask_answers_from_files_before_setup(project):
    project.git("rm", "-q", ".vmrag.yaml")
    project.git("commit", "-qm", "nothing is set up")
    assert "docs/deploy.md" in project.vmrag("ask", "how often does the rollback script run", "--min-score", "0").out


def test_file_is_sent_to_no_language_model(stocked, chat):
    for name, value in {"provider": "openai", "base-url": f"{chat.url}/v1", "model": "m"}.items():
        stocked.git("config", f"vmrag.llm.{name}", value)
    shown = stocked.vmrag("ask", "rollback script", "--collection", "docs", "--min-score", "0", "--sources", "1").out
    assert shown.startswith("warning: Files of the repository are sent to no language model: docs/deploy.md.\n")
    assert "Without a language model; the following is quoted from the documents.\n" in shown
    assert chat.requests == []
    stocked.vmrag("ask", "otters", "--collection", "notes", "--min-score", "0")
    assert len(chat.requests) == 1, "stored documents are"


# -- places


def test_result_at_commit_shows_git_notation_with_the_line(project):
    before = project.git("rev-parse", "--short=7", "HEAD")
    change(project, "docs/deploy.md", "---\n# Dep", "author: me\n---\n\n\n# Dep")
    commit(project, "move it down")
    shown = project.vmrag("query", "rollback script", "-k", "1", "--at", "HEAD~1").out
    assert f"1. {before}:docs/deploy.md:6  Deploying\n" in shown
    hit = project.ask("query", "rollback script", "-k", "1", "--at", "HEAD~1")["results"][0]
    assert (hit["file"], hit["file_line"]) == ("docs/deploy.md", 6)
    assert "1. docs/deploy.md:9  Deploying\n" in project.vmrag("query", "rollback script", "-k", "1").out


def test_place_in_a_commit_exists_after_removal_of_the_file(project):
    commit(project, "away", **{"docs/deploy.md": None, "src/keys.py": None})
    deploy, keys = (
        project.ask("query", text, "-k", "1", "--at", "HEAD~1")["results"][0] for text in ("rollback script", "zebra")
    )
    assert (deploy["file"], deploy["file_line"]) == ("docs/deploy.md", 6)
    assert (keys["file"], keys["file_line"]) == ("src/keys.py", 5)
    assert (
        project.vmrag("query", "rollback script", "--at", "HEAD~1", "--open", "--json", code=2).error["code"]
        == "INVALID_PARAMETER"
    )


# -- code


def test_code_is_shown_with_its_current_text(project):
    shown = project.vmrag("query", "zebra", "-k", "1", "--collection", "code", "--mode", "keyword").out
    assert "\n       def rotate(self, days):\n           if days:\n               return 'zebra'\n" in shown


def test_long_code_is_shown_around_the_best_line(project):
    shown = project.vmrag("query", "pelican", "-k", "1", "--collection", "code", "--mode", "keyword").out
    lines = shown.splitlines()[1:-1]
    assert len(lines) == 8
    assert (lines[0], lines[-1]) == ("       step_13 = 13", "       return 'pelican'")
    shown = project.vmrag("query", "step_0", "-k", "1", "--collection", "code", "--mode", "keyword").out
    assert shown.splitlines()[1:-1][0] == "   def far():"


def test_long_lines_and_control_characters_of_code_are_shown_as_elsewhere(project):
    line = "    x = '\x1b[31m " + "long " * 100 + "'"
    commit(project, "ugly", **{"src/ugly.py": f"def ugly():\n{line}\n    return 'quagga'\n"})
    shown = project.vmrag("query", "quagga", "-k", "1", "--collection", "code", "--mode", "keyword").out
    assert "\x1b" not in shown
    result = next(line for line in shown.splitlines() if "\\x1b[31m" in line)
    assert result.endswith("…")
    assert len(result) < 110


def test_match_right_below_the_first_lines_of_code_is_shown(project):
    shown = project.vmrag("query", "step_6", "-k", "1", "--collection", "code", "--mode", "keyword").out
    assert shown.splitlines()[1:-1][0] == "   def far():", "the eighth line"
    shown = project.vmrag("query", "step_7", "-k", "1", "--collection", "code", "--mode", "keyword").out
    assert "       step_7 = 7" in shown.splitlines(), "the ninth"


# -- what counts at once


def test_generated_attribute_applies_at_once(project):
    commit(project, "made", **{"docs/made.md": "<!-- Code generated, DO NOT EDIT -->\n# Made\n\nA quokka.\n"})
    assert project.ask("query", "quokka", "--mode", "keyword")["results"] == []
    commit(project, "by hand", **{".gitattributes": "docs/made.md linguist-generated=false\n"})
    assert [result["doc_id"] for result in project.ask("query", "quokka", "--mode", "keyword")["results"]] == [
        "docs/made.md"
    ]
    commit(project, "generated, after all", **{".gitattributes": None})
    assert project.ask("query", "quokka", "--mode", "keyword")["results"] == []


# -- where an answer comes from


def test_last_line_is_short_and_true(stocked):
    change(stocked, "docs/page.md", "two", "TWO")
    (stocked.top / "README.md").unlink()
    (stocked.top / "docs/new.md").write_text("new\n")
    last = stocked.vmrag("query", "otters").out.splitlines()[-1]
    head = stocked.git("rev-parse", "HEAD")[:7]
    files = f"commit {head}, 1 edited, 1 removed (1 untracked not searched)"
    assert last == f"from {files}, and revision {stocked.pinned[:7]} of the knowledge base"


# -- the fingerprint


def test_fingerprint_names_the_commit_of_the_files(project, stocked):
    head = stocked.git("rev-parse", "HEAD")
    report = stocked.ask("fingerprint")
    assert report["files"] == {"commit": head, "uncommitted": False}
    (stocked.top / "before.json").write_text(stocked.vmrag("fingerprint", "--json").out)
    change(stocked, "docs/page.md", "two", "TWO")
    assert stocked.ask("fingerprint") == report
    commit(stocked, "louder")
    shown = stocked.vmrag("fingerprint", "--check", "before.json", code=1).out
    assert f"the files were those of commit {head[:7]} and are those of " in shown
    commit(stocked, "none", **{".vmrag.yaml": "embedding:\n  model: hash\n"})
    assert "files" not in stocked.ask("fingerprint")


@pytest.mark.parametrize("kind", ["project", "stocked"])
def test_index_of_files_is_verified(request, kind):
    made = request.getfixturevalue(kind)
    change(made, "docs/page.md", "two", "TWO")
    stored = 1 if kind == "stocked" else 0
    shown = made.vmrag("fingerprint", "--verify").out
    assert f"The index holds {stored} document{'s' * (1 - stored)} and 6 files in " in shown
    at_head = made.ask("fingerprint", "--verify", "--at", "HEAD")
    assert (at_head["documents"], at_head["indexed_files"], at_head["problems"]) == (stored, 6, [])


def test_damaged_index_of_files_is_found_and_repaired_by_the_fix(project):
    project.vmrag("query", "rollback script")
    segment = next((project.shared / "segments").glob("*/"))
    bits.flip(segment / "words-1.idx", 300, 6)
    bits.mark_verified(segment)
    report = project.ask("fingerprint", "--verify", code=1)
    assert len(report["problems"]) == 1
    assert report["fix"].endswith("' to build the index again")
    [command] = hints.list_commands(report["fix"])
    subprocess.run(["sh", "-c", command], check=True, cwd=project.top)
    assert project.ask("fingerprint", "--verify")["problems"] == []


def test_texts_that_are_not_those_of_the_files_are_found(project, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(
            documents,
            "convert_blob",
            lambda file, data: convert_blob(file, data.replace(b"twice", b"never")),
        )
        project.vmrag("query", "rollback script")
    result = project.vmrag("fingerprint", "--verify", code=1)
    assert "1 file of collection 'docs': not as in the index." in result.out


# -- what cannot be read here


@pytest.mark.parametrize("command", [("query", "x"), ("ask", "x"), ("query", "x", "--at", "HEAD")])
def test_unreadable_source_collection_is_reported_with_hint(project, monkeypatch, command):
    monkeypatch.setattr(languages, "find_language_problem", lambda: f"no grammar is installed: {languages.EXTRA_HINT}")
    error = project.vmrag(*command, "--collection", "code", "--json", code=3).error
    assert error["message"].startswith("cannot read the source 'code' (files of this repository) here: no ")
    assert error["hint"] == languages.EXTRA_HINT
