"""Place of an answer for users: headings, line, file, and its revision."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from tests.support import terminal
from tests.support.terminal import Project
from vmrag_link.engines.base import Write
from vmrag_link.errors import KnowledgeMoved, LimitExceeded
from vmrag_link.workspace.follow import provenance

pytestmark = pytest.mark.hooks("off")

template, project = terminal.template, terminal.project

GUIDE = "# Guide\n\n## Setup\n\nInstall the program.\n\n## Keys\n\nAsk Ada for the key.\n"


@pytest.fixture
def guide(project: Project) -> Project:
    project.write("docs/guide.md", "---\nteam: core\n---\n" + GUIDE)
    project.vmrag("import", "docs/guide.md", "--collection", "handbook")
    return project


def best(project: Project, *arguments: str):
    return project.ask("query", *arguments, "-k", "1")["results"][0]


def place(result) -> tuple:
    return result["header_path"], result["line"], result["file"] and Path(result["file"]).name, result["file_line"]


# -- where -----------------------------------------------------------------------------------------


def test_passage_has_its_headings_and_line(guide):
    result = best(guide, "which key has Ada")
    assert place(result) == ("Guide > Keys", 9, "guide.md", 12)  # the file has front matter
    assert [result["text"][start:end] for start, end in result["matches"]] == ["Keys", "Ada", "key"]
    shown = guide.vmrag("query", "which key has Ada", "-k", "1").out.splitlines()
    assert shown[:2] == ["1. handbook/guide.md", "   docs/guide.md:12  Guide > Keys"]
    assert f"  #0 {result['score']:g}" in guide.vmrag("query", "which key has Ada", "-k", "1", "-v").out


def test_changed_file_has_the_current_line_of_the_text(guide):
    guide.write("docs/guide.md", "More.\n" * 5 + GUIDE)
    assert place(best(guide, "which key has Ada"))[3] == 9 + 5
    guide.write("docs/guide.md", "More.\n")
    assert place(best(guide, "which key has Ada"))[2:] == ("guide.md", None)
    (guide.top / "docs/guide.md").unlink()
    assert place(best(guide, "which key has Ada"))[2:] == (None, None)
    assert guide.vmrag("query", "which key has Ada", "-k", "1").out.splitlines()[1] == "   line 9  Guide > Keys"
    assert "vmrag show handbook/guide.md" in guide.vmrag("query", "key", "-k", "1", "--open", code=2).err


def test_equal_chunks_of_one_document_have_their_own_lines(project):
    block = "## Part\n\n" + "The same words in every part of it. " * 14 + "\n\n"
    project.put("long.md", "# Long\n\n" + block * 3)
    results = project.ask("query", "same words part", "--mode", "keyword", "-k", "20")["results"]
    lines = [document["line"] for document in results if document["doc_id"] == "long.md"]
    assert len(set(lines)) > 1


@pytest.mark.parametrize(
    "source", ["../outside.md", "/etc/passwd", ".git/config", "link/outside.md", "https://a.b/c.md"]
)
def test_untrusted_source_path_is_not_opened(guide, source):
    (guide.top.parent / "outside.md").write_text("Ask Ada for the key.\n")
    (guide.top / "link").symlink_to("..")
    guide.record("guide")
    with terminal.opened(guide) as ws:
        row = ws.engine.find_document(ws.locate_documents(), "handbook", "guide.md")
        rows = Write(put_documents=[msgspec.structs.replace(row, source=source)])
        ws.engine.write("main", rows, expected=ws.require_revision())
    result = best(guide, "which key has Ada")
    assert (result["doc_id"], result["line"], result["file"]) == ("guide.md", 9, None)


def test_whole_lines_and_lines_around(guide):
    guide.put(
        "long.txt", "".join(f"Line {n} of many words, which fill the chunk until it is full.\n" for n in range(1, 60))
    )
    shown = guide.vmrag("query", "line 30", "-k", "1", "--mode", "keyword", "--full").out.splitlines()[2:-1]
    numbers = [int(line.split()[0]) for line in shown]
    assert numbers == list(range(numbers[0], numbers[-1] + 1))
    assert any(
        line.endswith(f"{n}  Line {n} of many words, which fill the chunk until it is full.")
        for n in (30,)
        for line in shown
    )
    wider = guide.ask("query", "line 30", "-k", "1", "--mode", "keyword", "-U", "2")["results"][0]["excerpt"]
    assert wider["first"] == numbers[0] - 2
    assert len(wider["lines"]) == len(numbers) + 4


# -- from which revision ---------------------------------------------------------------------------


@pytest.fixture
def drifted(project: Project) -> Project:
    pin = json.loads((project.top / ".dolt-version").read_text()) | {"dolt_commit": "0" * 40}
    project.write(".dolt-version", json.dumps(pin))
    return project


@pytest.mark.parametrize(
    "words",
    [
        ("query", "rest"),
        ("ask", "rest"),
        ("grep", "rest"),
        ("issue", "search", "x"),
        ("doc", "search", "x"),
        ("issue", "list"),
    ],
)
def test_answer_from_other_revision_begins_with_a_warning(drifted, words):
    result = drifted.vmrag(*words)
    assert result.out.splitlines()[0].startswith("warning: the pinned revision is not in this knowledge base")
    assert result.err == ""
    spoken = drifted.vmrag(*words, "--json")
    assert spoken.err.startswith("warning: the pinned revision")
    assert spoken.json


@pytest.mark.parametrize(
    "words", [("query", "rest"), ("ask", "rest"), ("grep", "rest"), ("issue", "search", "x"), ("doc", "search", "x")]
)
def test_strict_refuses_such_an_answer(drifted, words):
    assert drifted.vmrag(*words, "--strict", "--json", code=1).error["code"] == "PIN_MISSING_REVISION"
    assert drifted.vmrag(*words, code=1, env={"VMRAG_STRICT": "1"}).out == ""
    drifted.vmrag(*words, env={"VMRAG_STRICT": "0"})
    drifted.git("checkout", "-q", ".dolt-version")
    assert drifted.vmrag(*words, "--strict").err == ""


def test_strict_fails_like_drift_for_any_reason(project):
    with terminal.opened(project) as ws:
        ws.follow_error = LimitExceeded("It makes too many chunks.", hint="vmrag rm big.md")
        with pytest.raises(KnowledgeMoved) as raised:
            provenance.refuse_outdated(ws, ("The pin has moved.",), strict=True)
        assert (raised.value.exit_code, raised.value.hint, raised.value.cause) == (
            1,
            "vmrag rm big.md",
            LimitExceeded.code,
        )
        provenance.refuse_outdated(ws, (), strict=True)
