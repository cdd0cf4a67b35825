"""The Action's `mode: report` over pull requests, pushes and a merge queue, run from `action.yml`
by what stands for GitHub's runner.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from markdown_it import MarkdownIt
from selectolax.lexbor import LexborHTMLParser

from tests.support import events, hosted, people
from tests.support.actions_runner import Finished
from tests.support.events import FORK
from tests.support.hosted import Ci
from vmrag_link.markdown_text import MAX_BYTES

pytestmark = pytest.mark.hooks("off")

shared, world, ci = people.shared, people.world, hosted.ci

QUERIES = "queries:\n  - query: what do otters eat?\n    expect: [handbook/otters.md]\n"
OURS = set("html head body h2 h3 p table thead tbody tr th td details summary ins del br".split())
OTTERS = "# Otters\n\nOtters eat fish, and sometimes crabs.\n"


def propose(ci: Ci, branch: str = "topic", **documents: str) -> tuple[str, str]:
    """A branch that writes these documents, with its knowledge on the host: base and head."""
    base = ci.tip
    ci.ada.git("switch", "-q", "-c", branch)
    for name, text in documents.items():
        ci.ada.write_document(name, text)
    ci.ada.vmrag("push")
    ci.ada.git("push", "-q", "origin", f"{branch}:refs/heads/{branch}")
    return base, ci.ada.git("rev-parse", "HEAD")


class Shown:
    """A summary as a browser would show it, before GitHub's sanitizer takes out what it does not
    like.
    """

    def __init__(self, run: Finished) -> None:
        assert len(run.summary.encode()) <= MAX_BYTES
        html = MarkdownIt("commonmark").enable("table").render(run.summary)
        self.page = LexborHTMLParser(html)
        self.text = self.page.body.text(separator=" ")

    def cells(self, heading: str) -> list[list[str]]:
        """The rows of the table below a heading."""
        element = next(element for element in self.page.css("h2, h3") if element.text() == heading)
        table = element.next
        while table.tag != "table":
            table = table.next
        return [[cell.text(separator=" ") for cell in row.css("td")] for row in table.css("tbody tr")]

    def look_for_markup(self) -> None:
        """Nothing but ours, and not one attribute."""
        every = self.page.css("*")
        assert {element.tag for element in every} <= OURS
        assert not any(element.attributes for element in every)


def queries(ci: Ci, text: str = QUERIES) -> None:
    ci.ada.write(".vmrag/queries.yaml", text)
    ci.ada.git("add", "-A")
    ci.ada.git("commit", "-q", "-m", "queries")
    ci.ada.git("push", "-q", "origin", "main")


def test_pull_request_shows_its_documents_and_answers(ci):
    """One answer has another document, one another text at the same place, one neither."""
    same = ("{query: install the program, mode: keyword, k: 1}", "{query: rest, mode: keyword, k: 1}")
    queries(ci, QUERIES + "".join(f"  - {query}\n" for query in same))
    base, head = propose(ci, **{"otters.md": OTTERS, "setup.md": "# Setup\n\nInstall the program with uv.\n"})
    run = ci.on_pull_request(base, head, mode="report")
    assert run.passed
    assert [run.outputs[name] for name in ("documents-changed", "queries-changed", "findings")] == ["2", "2", ""]
    shown = Shown(run)
    shown.look_for_markup()
    assert f"Compared: origin/main with {head[:12]}." in shown.text
    assert [row[:2] for row in shown.cells("Documents")] == [
        ["added", "handbook/otters.md"],
        ["changed", "handbook/setup.md"],
    ]
    [[query, before, after], [other, *_, changed_answer]] = shown.cells("Golden queries that change")
    assert query.startswith("what do otters eat?")
    assert "handbook/otters.md is not among the first" in before
    assert after.startswith("1. handbook/otters.md")
    assert other.startswith("install the program")
    assert changed_answer.startswith("handbook/setup.md has a different text at place 1.")
    assert "Otters eat fish" in shown.page.css_first("ins").text(separator=" ")
    assert len(shown.cells("Revisions")) == 2
    assert "Otters eat fish" in Path(run.outputs["report-path"]).read_text()
    [notice] = [annotation for annotation in run.annotations if annotation.title == "Changed documents"]
    assert (notice.level, notice.file) == ("notice", ".dolt-version")
    assert run.step("sync").outcome == "skipped"


def test_squash_report_shows_dropped_knowledge(ci):
    ci.ada.git("switch", "-q", "-c", "topic")
    ci.ada.write_document("topic.md", "Only the topic knows of otters.")
    ci.ada.git("switch", "-q", "main")
    kept = ci.ada.write_document("main.md", "Only main knows of badgers.")
    ci.ada.git("push", "-q", "origin", "main")
    before = ci.tip
    squashed = ci.ada.git("commit-tree", "topic^{tree}", "-p", "main", "-m", "squashed")
    ci.ada.git("switch", "-q", "topic")
    ci.ada.vmrag("push")
    ci.ada.git("switch", "-q", "main")
    ci.ada.vmrag("push")
    ci.ada.git("push", "-q", "origin", f"{squashed}:refs/heads/main")
    run = ci.on_push(before=before, mode="report")
    assert run.passed  # `verify` decides about failures of a job
    shown = Shown(run)
    assert [row[:2] for row in shown.cells("Documents")] == [
        ["removed", "handbook/main.md"],
        ["added", "handbook/topic.md"],
    ]
    assert [row[1] for row in shown.cells("Pins of the git commits")] == ["KNOWLEDGE_DROPPED"]
    title = f"Revisions of {before[:12]} that are not in {squashed[:12]}"
    assert [row[0] for row in shown.cells(title)] == [kept[:12]]
    assert "vmrag merge --repair" in shown.text


HOSTILE = "::error::x ##[group]y <img src=x onerror=z> [l](javascript:z) `c` @who </summary></details><script>"


def test_untrusted_names_and_texts_are_shown_as_text(ci):
    queries(ci, f"queries:\n  - query: {json.dumps(HOSTILE)}\n")
    name = "::warning::<b>|`x`[a](javascript:b).md"
    base, head = propose(ci, "topic`id`", **{name: f"# {HOSTILE}\n\n{HOSTILE}\n::set-output name=report-path::x\n"})
    run = ci.on_pull_request(base, head, mode="report", source=FORK)
    assert run.passed
    shown = Shown(run)
    shown.look_for_markup()
    assert shown.cells("Documents")[0][1] == f"handbook/{name}"
    assert HOSTILE in shown.page.css_first("ins").text(separator=" ")
    assert run.outputs["report-path"].endswith("/vmrag-report.html")
    page = LexborHTMLParser(Path(run.outputs["report-path"]).read_text())
    assert not page.css("img, b, a[href^=javascript]")
    assert len(run.said("error") + run.said("warning")) == 0  # the runner takes none from a text, and neither do we


def test_merge_queue_gets_the_summary_alone(ci):
    base, head = propose(ci, **{"otters.md": OTTERS})
    merge = ci.world.hub.git("commit-tree", f"{head}^{{tree}}", "-p", base, "-p", head, "-m", "queue")
    ref = f"refs/heads/gh-readonly-queue/main/pr-7-{base}"
    ci.world.hub.git("update-ref", ref, merge)
    result = ci.run("merge_group", events.merge_group(base, merge), sha=merge, ref=ref, mode="report")
    assert result.passed
    assert (result.outputs["documents-changed"], result.outputs["report-path"]) == ("1", "")
    assert Shown(result).cells("Documents")[0][:2] == ["added", "handbook/otters.md"]


def test_event_without_a_base_has_nothing_to_compare(ci):
    result = ci.run("schedule", {"schedule": "0 3 * * *"}, sha=ci.tip, ref="refs/heads/main", mode="report")
    assert result.passed
    assert "mode: report has nothing to do on schedule: there is no base to compare with." in Shown(result).text
    assert result.outputs["documents-changed"] == ""


@pytest.mark.parametrize(
    ("event", "pushed", "said"),
    [
        ("pull_request", True, "check in quarantine"),
        pytest.param("pull_request", False, "has no knowledge base", marks=pytest.mark.long),
        ("pull_request_target", True, "is not in this knowledge base"),
    ],
)
def test_knowledge_of_a_fork_is_vetted_in_quarantine_without_secrets(
    event: str, pushed: bool, said: str, ci: Ci
) -> None:
    fork = ci.world.bare("fork.git")
    base = ci.tip
    revision = ci.ada.write_document("theirs.md", OTTERS)
    head = ci.ada.git("rev-parse", "HEAD")
    ci.ada.git("push", "-q", "origin", "main:refs/heads/topic")
    ci.ada.git("push", "-q", str(fork.top), "main")
    if pushed:
        ci.ada.git("remote", "add", "fork", str(fork.top))
        ci.ada.vmrag("push", "fork")
    ci.world.hub.git("config", "--global", f"url.file://{fork.top}.insteadOf", "https://github.example/me/project")
    run = ci.on_pull_request(base, head, event=event, mode="report", source=FORK)
    shown = Shown(run)
    assert said in shown.text
    taken = said == "check in quarantine"
    assert run.passed is taken
    if taken:
        assert [row[:2] for row in shown.cells("Documents")] == [["added", "handbook/theirs.md"]]
        assert [row[1] for row in shown.cells("Pins of the git commits")] == ["NOT_ON_REMOTE"]
    assert not ci.world.holds(revision)


def test_private_fork_is_left_out_and_fails_nothing(ci: Ci) -> None:
    """GitHub reports a private fork as missing to a token of the base."""
    base = ci.tip
    ci.ada.write_document("theirs.md", OTTERS)
    head = ci.ada.git("rev-parse", "HEAD")
    ci.ada.git("push", "-q", "origin", "main:refs/heads/topic")
    nowhere = ci.world.top / "nowhere.git"
    ci.world.hub.git("config", "--global", f"url.file://{nowhere}.insteadOf", "https://github.example/me/project")
    run = ci.on_pull_request(base, head, mode="report", source=FORK)
    assert run.passed
    assert "in a fork that this job cannot read" in run.summary
    assert f"vmrag adopt https://github.example/me/project {head}" in run.said("notice")[-1]
