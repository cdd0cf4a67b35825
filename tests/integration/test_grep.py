"""`vmrag grep`: lines that match, where, and what it says of patterns that are none."""

from __future__ import annotations

import pytest

from tests.support import terminal
from tests.support.terminal import Project

pytestmark = pytest.mark.hooks("off")

template, project = terminal.template, terminal.project


def found(project: Project, *arguments: str, code: int = 0) -> list[str]:
    return project.vmrag("grep", *arguments, code=code).out.splitlines()


def test_lines_of_documents_here_and_at_another_place(project):
    assert found(project, "[Rr]est") == ["handbook/rest.md:1:# Rest", "handbook/rest.md:3:Take a rest, and sleep well."]
    assert found(project, "Never", "--at", "feature") == ["handbook/rest.md:3:Never rest."]
    assert found(project, "Never", code=1) == []
    project.put("draft.md", "Never say never.")
    assert found(project, "Never") == ["handbook/draft.md:1:Never say never."]
    assert found(project, "Never", "--at", "HEAD", code=1) == []
    assert found(project, "Never", "--at", "WORKING") == ["handbook/draft.md:1:Never say never."]


def test_options_are_those_of_grep(project):
    project.put("x.md", "A.B\nAxB\r\na.b\n\nend", collection="notes")
    assert found(project, "A.B") == ["notes/x.md:1:A.B", "notes/x.md:2:AxB"]
    assert found(project, "-F", "A.B") == ["notes/x.md:1:A.B"]
    assert found(project, "-i", "^a.b$", "-c") == ["notes/x.md:3"]
    assert found(project, "-l", "-i", "e") == [
        "handbook/deep/tls.txt",
        "handbook/faq.md",
        "handbook/rest.md",
        "handbook/setup.md",
        "notes/x.md",
    ]
    assert found(project, "-l", "-i", "e", "--collection", "notes") == ["notes/x.md"]
    assert found(project, "-F", "a.b", "-U", "1") == ["notes/x.md-2-AxB", "notes/x.md:3:a.b", "notes/x.md-4-"]
    assert found(project, "-U", "1", "Rest|A.B|well") == [
        "handbook/rest.md:1:# Rest",
        "handbook/rest.md-2-",
        "handbook/rest.md:3:Take a rest, and sleep well.",
        "--",
        "notes/x.md:1:A.B",
        "notes/x.md:2:AxB",
        "notes/x.md-3-a.b",
    ]
    assert found(project, "q*", "-c", "--collection", "notes") == ["notes/x.md:5"]


def test_a_very_long_line_is_shown_around_its_match(project):
    project.put("long.md", "x" * 50_000 + "needle" + "y" * 50_000)
    [line] = found(project, "needle")
    assert len(line) < 1_200
    assert "…x" in line
    assert "needle" in line
    assert line.endswith("y…")
    assert project.ask("grep", "needle")["documents"][0]["lines"][0]["matches"] == [[50_000, 50_006]]


@pytest.mark.parametrize("pattern", ["(a", "a{99999999999}", "(" * 5_000 + ")" * 5_000, "(?P<x>"])
def test_what_is_no_pattern_is_a_mistake_with_a_way_out(project, pattern):
    done = project.vmrag("grep", pattern, code=2)
    assert "is no regular expression" in done.err
    assert "vmrag grep -F -- " in done.err


def test_what_is_not_there_is_an_error(project):
    assert (
        project.vmrag("grep", "x", "--collection", "handbok", "--json", code=3).error["code"] == "COLLECTION_NOT_FOUND"
    )
    assert project.vmrag("grep", "x", "--at", "nowhere", "--json", code=3).error["code"] == "GIT_COMMIT_NOT_FOUND"
